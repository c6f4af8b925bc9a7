"""What contained agents reach: what their lease says, by a proxy that looks at each request."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from arcp_trio import Client
from tests.footprint import descriptors
from tests.processes import has_children
from tests.proxies.acp.stage import begin, connected, first_word
from tests.proxies.acp.web import Web, web

pytestmark = [pytest.mark.real_tcp, pytest.mark.sandbox]

PROXY = 3128


@pytest.fixture
def site() -> Iterator[Web]:
    """Serve pages on this machine."""
    with web() as found:
        yield found


async def said(client: Client, *step: Any, net: tuple[str, ...] = ()) -> Any:
    """Have a contained agent do a step, and return what it says."""
    return await first_word(await begin(client, list(step), lease={"net.fetch": list(net)}))


def get(target: str, *more: str) -> str:
    """Return a request, or several on one connection, of which the last one closes it."""
    targets = [target, *more]
    heads = [f"GET {each} HTTP/1.1\r\nHost: x\r\n" for each in targets]
    return "\r\n".join(heads) + "Connection: close\r\n\r\n"


async def test_nothing_is_reached_without_a_lease(site: Web) -> None:
    """Without `net.fetch` there is no port of this machine, no proxy and no name."""
    async with connected(sandbox="require") as client:
        for port in (site.port, PROXY):
            assert "refused" in await said(client, "dial", port, get("/"))
        assert "Temporary failure" in await said(client, "dial", 80, get("/"), "example.org")
        assert "unreachable" in await said(client, "dial", 80, get("/"), "192.0.2.1")
    assert site.seen == []


async def test_a_port_of_this_machine(site: Web) -> None:
    """A leased URL of this machine is reached at its own port; other paths there are refused.

    So are requests that follow on the same connection, and other ports.
    """
    net = (f"{site.site}/ok/**",)
    async with connected(sandbox="require") as client:
        assert await said(client, "fetch", f"{site.site}/ok/a?b=1", net=net) == [
            200,
            f"/ok/a?b=1 127.0.0.1:{site.port} ",
        ]
        assert await said(client, "fetch", f"{site.site}/ok/post", "the body", net=net) == [
            200,
            f"/ok/post 127.0.0.1:{site.port} the body",
        ]
        status, why = await said(client, "fetch", f"{site.site}/secret", net=net)
        assert status == 403
        assert "the lease does not allow net.fetch" in why
        several = get("/ok/1", "/ok/2", "/ok/../secret", "/ok/3")
        answers = await said(client, "dial", site.port, several, net=net)
        assert [answers.count(f"/ok/{number} ") for number in (1, 2, 3)] == [1, 1, 0]
        assert answers.count("403 ") == 1
        assert "refused" in await said(client, "dial", site.port + 1, get("/"), net=net)
    assert site.seen == ["GET /ok/a?b=1", "POST /ok/post", "GET /ok/1", "GET /ok/2"]


async def test_the_name_localhost(site: Web) -> None:
    """A lease may name this machine as localhost."""
    url = f"http://localhost:{site.port}/a"
    async with connected(sandbox="require") as client:
        status, _ = await said(client, "fetch", url, net=(f"http://localhost:{site.port}/**",))
        assert status == 200


async def test_absolute_urls(site: Web) -> None:
    """Through the proxy, a leased URL is fetched, and no other one; each answer says why."""
    net = (f"{site.site}/ok/**",)
    async with connected(sandbox="require") as client:
        answer = await said(client, "dial", PROXY, get(f"{site.site}/ok/a"), net=net)
        assert answer.startswith("HTTP/1.1 200 ")
        assert answer.endswith(f"/ok/a 127.0.0.1:{site.port} ")
        for url in (
            f"{site.site}/no",
            "http://example.org/",
            f"http://a@127.0.0.1:{site.port}/ok/a",
            f"{site.site}/ok/..;/no",
            f"{site.site}/ok/%252e%252e/no",
        ):
            answer = await said(client, "dial", PROXY, get(url), net=net)
            assert answer.startswith("HTTP/1.1 403 "), url
            assert "arcp-trio: " in answer
        fragment = f"{site.site}/ok/a#/../../no"
        for target in ("/ok/a", f"https://127.0.0.1:{site.port}/ok/a", "ftp://x/", fragment):
            answer = await said(client, "dial", PROXY, get(target), net=net)
            assert answer.startswith("HTTP/1.1 400 "), target
        answer = await said(client, "dial", PROXY, "nonsense\r\n\r\n", net=net)
        assert "200" not in answer
    assert site.seen == ["GET /ok/a"]


async def test_two_lengths_of_a_body(site: Web) -> None:
    """A request whose body has two lengths is refused: the server could take it for two."""
    body = "Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n"
    async with connected(sandbox="require") as client:
        for port, target in ((PROXY, f"{site.site}/a"), (site.port, "/a")):
            request = f"POST {target} HTTP/1.1\r\nHost: x\r\n{body}"
            answer = await said(client, "dial", port, request, net=(f"{site.site}/**",))
            assert answer.startswith("HTTP/1.1 400 ")
            assert "not both" in answer
    assert site.seen == []


async def test_tunnels(site: Web) -> None:
    """A tunnel leads to a host and port at which the lease names something, whatever the path."""
    net = (f"https://127.0.0.1:{site.port}/api/**",)
    async with connected(sandbox="require") as client:
        for port, status in ((site.port, 200), (site.port + 1, 403)):
            head = f"CONNECT 127.0.0.1:{port} HTTP/1.1\r\nHost: x\r\n\r\n"
            answer = await said(client, "dial", PROXY, head + get("/through"), net=net)
            assert answer.startswith(f"HTTP/1.1 {status} ")
            assert ("/through" in answer) == (status == 200)
        head = "CONNECT nonsense HTTP/1.1\r\nHost: x\r\n\r\n"
        assert (await said(client, "dial", PROXY, head, net=net)).startswith("HTTP/1.1 400 ")


async def test_what_the_operator_lets_agents_reach(site: Web) -> None:
    """What the operator adds is reached without a lease; programs are told where the proxy is."""
    async with connected(sandbox="require", net=[f"{site.site}/model/**"]) as client:
        assert (await said(client, "fetch", f"{site.site}/model/a"))[0] == 200
        assert (await said(client, "fetch", f"{site.site}/other"))[0] == 403
        variables = (await said(client, "environment"))["variables"]
        assert variables["HTTPS_PROXY"] == variables["http_proxy"] == f"http://127.0.0.1:{PROXY}"
        assert variables["NO_PROXY"] == "127.0.0.1,localhost"
        assert variables["NODE_USE_ENV_PROXY"] == "1"
    async with connected(sandbox="require", net=[site.site]) as client:  # all that is there
        assert (await said(client, "fetch", f"{site.site}/any/path"))[0] == 200


async def test_a_server_that_is_not_there() -> None:
    """A server that does not answer is a status that says so."""
    with web() as gone:
        pass
    async with connected(sandbox="require") as client:
        status, why = await said(client, "fetch", f"{gone.site}/a", net=(f"{gone.site}/**",))
    assert status == 502
    assert "refused" in why


async def test_nothing_stays_behind(site: Web) -> None:
    """After many jobs that reach something there are as many descriptors as before."""
    counts: list[int] = []
    async with connected(sandbox="require") as client:
        for _ in range(10):
            lease = {"net.fetch": [f"{site.site}/**"]}
            job = await begin(client, ["fetch", f"{site.site}/a"], lease=lease)
            assert json.loads(str(await job.result()))[0] == 200
            counts.append(descriptors())
        assert counts[-1] <= counts[0]
        assert not has_children()


async def test_a_client_is_told_what_was_refused(site: Web) -> None:
    """Once for each URL, without what may be a secret in it: an agent only says that it failed."""
    lease = {"net.fetch": [f"{site.site}/ok/**"]}
    secret = f"{site.site}/secret?key=k"
    steps: list[list[Any]] = [["fetch", secret], ["fetch", secret]]
    steps.append(["dial", PROXY, "CONNECT u:p@example.org:443 HTTP/1.1\r\nHost: x\r\n\r\n"])
    async with connected(sandbox="require") as client:
        handle = await begin(client, *steps, lease=lease)
        logs = [event.body async for event in handle.events() if event.kind == "log"]
    assert [(each["level"], each["message"]) for each in logs] == [
        ("warn", f"the sandbox has refused {site.site}/secret"),
        ("warn", "the sandbox has refused https://example.org:443"),
    ]
