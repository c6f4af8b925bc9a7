"""What may be reached: each URL is held against the lease and what the operator adds."""

from __future__ import annotations

import socket
import sys
from collections.abc import Callable
from typing import Any

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from arcp_trio.authority.grants import parse_grant
from arcp_trio.authority.lease import Lease
from arcp_trio.authority.patterns import Pattern
from arcp_trio.authority.sites import at_and_below, everything_at, loopback_ports, reaches
from arcp_trio.authority.targets import forms
from arcp_trio.sandbox.network.reach import Reach, Refused, connect, host_and_port
from arcp_trio.wire.errors import ArcpError, BudgetExhausted, LeaseExpired, PermissionDenied

AT_HOME = """
import fcntl, socket, struct, trio
from arcp_trio.sandbox.network.reach import Refused, connect
from tests.sandbox.test_reach import Names

with socket.socket() as any_socket:  # an address of this machine that is not in 127.0.0.0/8
    address = struct.pack("16sH2x4s8x", b"lo", socket.AF_INET, socket.inet_aton("192.0.2.7"))
    fcntl.ioctl(any_socket, 0x8916, address)
    fcntl.ioctl(any_socket, 0x8914, struct.pack("16sh", b"lo", 0x49))

async def main():
    trio.socket.set_custom_hostname_resolver(Names("192.0.2.7"))
    (listener,) = await trio.open_tcp_listeners(0, host="192.0.2.7")
    port = listener.socket.getsockname()[1]
    await (await connect("192.0.2.7", port, is_named=True)).aclose()
    try:
        await connect("evil.example", port, is_named=True)
    except Refused as error:
        print(error)

trio.run(main)
"""


def patterns(*texts: str) -> list[Pattern]:
    """Return patterns of URLs."""
    return [parse_grant("net.fetch", text) for text in texts]


def allowed(check: Callable[[str], None], url: str) -> bool:
    """Return whether a check lets a URL through."""
    try:
        check(url)
    except Refused:
        return False
    return True


def reach_of(*texts: str, added: tuple[str, ...] = (), error: ArcpError | None = None) -> Reach:
    """Return what a lease reaches; `error` is what stands in the way of all of it."""
    lease = Lease.read({"net.fetch": list(texts)})

    def authorize(url: str) -> None:
        if error is not None:
            raise error
        if not lease.allows("net.fetch", forms("net.fetch", url)):
            raise PermissionDenied("the lease does not allow it")

    return Reach(lease=lease, authorize=authorize, added=lambda: patterns(*added))


def test_what_people_have_allowed() -> None:
    """The site of an allowed URL may be connected to; what may be asked for makes a network."""
    asking = Lease.read({"x-vendor.arcp-trio.ask.net.fetch": ["https://a.example/**"]})

    def authorize(url: str) -> None:
        if url != "https://a.example/x":
            raise PermissionDenied("nobody has allowed it")

    reach = Reach(
        lease=asking,
        authorize=authorize,
        added=list,
        approved=lambda: ["https://a.example/x"],
    )
    assert reach.anything
    assert allowed(reach.check, "https://a.example/x")
    assert not allowed(reach.check, "https://a.example/y")
    assert allowed(reach.check_site, "https://a.example:443")
    assert not allowed(reach.check_site, "https://b.example")
    nobody = Reach(lease=asking, authorize=authorize, added=list)
    assert not allowed(nobody.check_site, "https://a.example:443")


@pytest.mark.parametrize(
    ("pattern", "url", "expected"),
    [
        ("https://a.example/**", "https://a.example", True),
        ("https://a.example/v1/*", "https://a.example:443", True),
        ("https://a.example/v1/*", "https://b.example", False),
        ("https://a.example/v1", "https://a.example:444", False),
        ("https://*.example/x", "https://a.example", True),
        ("http://a.example/**", "https://a.example", False),
        ("https://a.example:*/x", "https://a.example:8443", True),
        ("**", "https://a.example", True),
        ("https://**", "https://a.example", True),
        ("**/x", "https://a.example", True),
    ],
)
def test_sites(pattern: str, url: str, expected: bool) -> None:  # noqa: FBT001
    """A site can be reached if the pattern can match something there."""
    assert reaches(patterns(pattern), url) is expected


HOSTS = st.sampled_from(["a.example", "b.example", "a.example:8443", "127.0.0.1:80"])
PARTS = st.lists(st.sampled_from(["a", "b", "*", "**", "a*"]), max_size=3)
TEXTS = st.builds(
    lambda scheme, host, parts: "/".join([f"{scheme}://{host}", *parts]),
    *(st.sampled_from(["http", "https"]), st.one_of(HOSTS, st.just("*.example")), PARTS),
)
PATHS = st.lists(st.sampled_from(["a", "b", "ab"]), max_size=3).map("/".join)


@given(st.lists(TEXTS, max_size=3), HOSTS, PATHS)
def test_no_site_of_a_leased_url_is_refused(texts: list[str], host: str, path: str) -> None:
    """If a URL is leased, a tunnel to its site is let through."""
    reach = reach_of(*texts)
    if allowed(reach.check, f"https://{host}/{path}"):
        assert allowed(reach.check_site, f"https://{host}")


@pytest.mark.parametrize("error", [LeaseExpired("expired"), BudgetExhausted("used up")])
def test_what_has_ended(error: ArcpError) -> None:
    """An expired lease and a budget that is used up close tunnels, too, but not the operator's."""
    reach = reach_of("https://a.example/x", added=("https://model.example/**",), error=error)
    assert not allowed(reach.check, "https://a.example/x")
    assert not allowed(reach.check_site, "https://a.example")
    assert allowed(reach.check, "https://model.example/v1")
    assert allowed(reach.check_site, "https://model.example")


def test_ports() -> None:
    """Ports of this machine are those that patterns name, in plain HTTP."""
    named = patterns(
        *("http://127.0.0.1:8080/**", "http://localhost:81/x", "http://127.0.0.1/**"),
        *("http://127.0.0.1:*/**", "https://127.0.0.1:9/**", "http://a.example:7/**", "**"),
    )
    assert loopback_ports(named) == [8080, 81, 80]


@pytest.mark.parametrize(
    "path",
    [
        *(
            "public/..;/x",
            "public/..;a=b/x",
            "public/%2e%2e;/x",
            "public/..%3b/x",
            "public/.;/../x",
        ),
        *("public/%252e%252e/x", "public/%25252E%2525252e/x", "public/.%252e%252fx"),
        *("public/%25%32%65%25%32%65/x", "public/%%32%65./x", "public/.%252%65/x"),
        *("public/%2532%2565/..%252f..%252fx", "public/%25%2532%2565./x"),
        *("public/a%25252fb%252f..%252f..%252fx", "public/.%252%65%252%66x"),
        *("public/..%255cx", "public/a/..%253bb/..%252f..%252fx"),
    ],
)
def test_paths_that_servers_read_otherwise(path: str) -> None:
    """A path that leads out of what is leased if it is decoded twice, or if `..;` is `..`."""
    reach = reach_of("http://a.example/public/**")
    assert not allowed(reach.check, f"http://a.example/{path}")
    assert allowed(reach.check, f"http://a.example/public/y?{path}")
    assert allowed(reach_of("http://a.example/**").check, f"http://a.example/{path}")


def test_a_host_without_a_path() -> None:
    """What the operator names without a path is all of that host; a path is taken as it is."""
    for text in ("https://a.example", "https://A.example:443/", "https://*.example"):
        (pattern,) = patterns(text)
        reach = reach_of(added=(everything_at(pattern).text,))
        assert allowed(reach.check, "https://a.example/v1/models?x")
        assert not allowed(reach.check, "https://b.other/v1")
    for text in ("https://a.example/v1", "https://**", "**", "https://a.example/*"):
        (pattern,) = patterns(text)
        assert everything_at(pattern) == pattern


def test_endpoints() -> None:
    """A credential opens its endpoint and what is below it; what is not a URL opens nothing."""
    (exact, below) = at_and_below("https://a.example/v1/")
    assert (exact.text, below.text) == ("https://a.example/v1", "https://a.example/v1/**")
    assert at_and_below("not a url") == []


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("http://A.example/x", ("a.example", 80)),
        ("https://a.example", ("a.example", 443)),
        ("https://a.example:8443/", ("a.example", 8443)),
        ("http://[::1]/", ("::1", 80)),
        ("http://[::1]:81/", ("::1", 81)),
    ],
)
def test_where_a_server_is(url: str, expected: tuple[str, int]) -> None:
    """The host and port are those of the canonical URL, which was checked."""
    assert host_and_port(url) == expected


class Names(trio.abc.HostnameResolver):
    """Has each name lead to some address."""

    def __init__(self, address: str) -> None:
        self.address = address

    async def getaddrinfo(self, host: Any, port: Any, *_: Any, **__: Any) -> list[Any]:
        """Look a name up."""
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (self.address, port))]

    async def getnameinfo(self, *_: Any) -> Any:
        """Not called."""
        raise NotImplementedError


@pytest.mark.parametrize(
    "address",
    [
        *("127.0.0.1", "127.9.9.9", "169.254.169.254", "0.0.0.0", "100.100.100.200"),
        *("fd00:ec2::254", "fd00:ec2::23", "fd20:ce::254", "168.63.129.16"),
        *("64:ff9b::7f00:1", "64:ff9b::a9fe:a9fe"),
    ],
)
async def test_a_name_that_leads_here(address: str) -> None:
    """The owner of a name cannot open the services of this machine by it."""
    trio.socket.set_custom_hostname_resolver(Names(address))
    with pytest.raises(Refused, match="machine that this runs on"):
        await connect("evil.example", 80, is_named=True)


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "::ffff:127.0.0.1", "169.254.169.254"])
async def test_a_star_does_not_stand_for_this_machine(host: str) -> None:
    """Neither for its addresses nor for those where clouds tell their secrets."""
    trio.socket.set_custom_hostname_resolver(Names("127.0.0.1"))
    with pytest.raises(Refused, match="machine that this runs on"):
        await connect(host, 80, is_named=False)


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        *((f"http://127.0.0.1{rest}", True) for rest in (":8080/**", ":*/**", "/x")),
        *((each, False) for each in ("http://*/**", "http://*:*/**", "http://**", "**")),
        *((each, False) for each in ("http://127.0.0.*/**", "http://*.0.0.1:8080/**")),
    ],
)
def test_named_hosts(pattern: str, expected: bool) -> None:  # noqa: FBT001
    """A host is named by a pattern that leaves none of it open, whatever its port."""
    assert reach_of(pattern).names_host("http://127.0.0.1:8080/x") is expected
    assert not reach_of(pattern).names_host("http://[::1]/x")
    assert reach_of("http://[::1]:*/**").names_host("http://[::1]:80/x")


@pytest.mark.sandbox
async def test_a_name_that_leads_to_another_address_of_this_machine() -> None:
    """Nor by one that leads to its address in a network; named as such, the address is reached."""
    command = ["unshare", "--user", "--map-root-user", "--net", sys.executable, "-c", AT_HOME]
    done = await trio.run_process(command, capture_stdout=True)
    assert done.stdout == b"evil.example leads to the machine that this runs on\n"
