"""What to type so that a job gets the lease that it lacks."""

from __future__ import annotations

import shlex
from typing import Any, cast

import pytest

from arcp_trio.authority.approvals import ASK
from arcp_trio.cli.client.event_lines import Teller
from arcp_trio.cli.client.lease_advice import asking_options, joined_pattern, missing_options
from arcp_trio.wire.json import JsonObject, JsonValue
from tests.cli.clients import HOSTILE, Commands

DENIED = "PERMISSION_DENIED"
BEYOND = "LEASE_SUBSET_VIOLATION"
LISTS: JsonObject = {"fs.read": ["/a,/b", 7], "tool.call": "a,b"}


def lacking(commands: Commands, agent: str) -> str:
    """Submit a job without a lease; return what the last line but one says that it lacks."""
    done = commands.run("submit", agent)
    *_, advice, end = done.err.splitlines()
    assert (done.code, " failed: PERMISSION_DENIED: " in end) == (1, True), done.err
    assert done.err.count("--lease") == 1
    return advice.removeprefix("the lease lacks: ")


@pytest.mark.real_tcp
@pytest.mark.parametrize(
    ("agent", "option"),
    [("caller", "--lease tool.call=copy"), ("team", "--lease agent.delegate=echo@1.0.0")],
)
def test_what_to_type(commands: Commands, agent: str, option: str) -> None:
    """A refused call or delegation names the option, once; with this option it is allowed."""
    assert lacking(commands, agent) == option
    assert commands.run("submit", agent, *shlex.split(option)).code == 0


@pytest.mark.real_tcp
def test_a_refusal_that_the_agent_catches(commands: Commands) -> None:
    """A job that succeeds without what was refused tells what it lacked, too."""
    done = commands.run("submit", "shopper")
    assert done.code == 0
    assert done.err.splitlines()[-1] == "the lease lacks: --lease tool.call=shop.buy"


@pytest.mark.real_tcp
def test_patterns_joined_by_commas(commands: Commands) -> None:
    """A list where one pattern stands is called one pattern, if it was to allow what is refused."""
    done = commands.run("submit", "caller", "--lease", "tool.call=search,copy")
    *_, lacks, joined, _ = done.err.splitlines()
    assert lacks == "the lease lacks: --lease tool.call=copy"
    assert joined == "the lease: tool.call=search,copy is one pattern; give --lease once for each"
    assert joined_pattern(DENIED, {"capability": "fs.read", "target": "/c"}, LISTS) is None
    assert joined_pattern(BEYOND, {"capability": "fs.read", "target": "/a"}, LISTS) is None
    assert joined_pattern(DENIED, "strange", LISTS) is None


def test_what_the_lease_has_already() -> None:
    """What the job has, and only a child of it was not given, is not called lacking."""
    details: JsonObject = {"capability": "fs.write", "target": "/a/b"}
    assert missing_options(DENIED, details, {"fs.write": ["/a/*"]}) == []
    others: list[JsonObject] = [{"fs.write": ["/b/*"]}, {"fs.read": ["/a/*"]}, {"fs.write": "/a/*"}]
    for other in others:
        assert missing_options(DENIED, details, other) == ["--lease fs.write=/a/b"]


@pytest.mark.parametrize(
    ("code", "details", "words"),
    [
        (DENIED, {"capability": "fs.read", "target": "/a b"}, "--lease 'fs.read=/a b'"),
        (
            DENIED,
            {"capability": "net.fetch", "target": "https://a.example/x?q=1"},
            "--lease 'net.fetch=https://a.example/x?q=1'",
        ),
        (DENIED, {"capability": "model.use", "target": "acme/m"}, "--lease model.use=acme/m"),
        (
            DENIED,
            {"capability": "fs.read", "target": "/a", "pattern": "/a/**"},
            "--lease 'fs.read=/a/**'",
        ),
        (DENIED, {"capability": "fs.read", "target": "/a", "pattern": 5}, ""),
        (
            BEYOND,
            {
                "beyond": [
                    {"capability": "tool.call", "pattern": "a.*"},
                    {"capability": "cost.budget", "currency": "USD", "asked": "2"},
                ]
            },
            "--lease 'tool.call=a.*'; --budget USD:2",
        ),
    ],
)
def test_options(code: str, details: Any, words: str) -> None:
    """Each kind of operation has its option, quoted for a shell."""
    assert "; ".join(missing_options(code, details, {})) == words


@pytest.mark.parametrize(
    ("code", "details"),
    [
        (DENIED, None),
        (DENIED, {}),
        (DENIED, [1]),
        (DENIED, {"beyond": [{"capability": "tool.call", "pattern": "a.*"}]}),
        (DENIED, {"capability": "tool.call", "target": 5}),
        (DENIED, {"capability": "fs.read", "target": "a"}),
        (DENIED, {"capability": "fs.read", "target": "/a/../b"}),
        (DENIED, {"capability": "cost.budget", "target": "USD:1"}),
        (DENIED, {"capability": "fs.delete", "target": "/a"}),
        (DENIED, {"capability": "tool.call", "target": HOSTILE}),
        ("INTERNAL_ERROR", {"capability": "tool.call", "target": "a"}),
        (BEYOND, {"beyond": []}),
        (BEYOND, {"beyond": 3}),
        (BEYOND, {"beyond": [{"expires_at": "2099-01-01T00:00:00Z", "available": None}]}),
    ],
)
def test_no_option_helps(code: str, details: Any) -> None:
    """Where no option is known to help, none is named."""
    assert missing_options(code, details, {}) == []


def test_how_to_be_asked() -> None:
    """For an edit that was refused, the option by which a person is asked is named as well."""
    options = ["--lease fs.write=/a", "--lease 'fs.write=/a b'", "--lease fs.read=/a", "--budget E"]
    assert asking_options(options) == ["--ask fs.write=/a", "--ask 'fs.write=/a b'"]
    teller = Teller(live=False, colours=False)
    details: JsonObject = {"capability": "fs.write", "target": "/a"}
    teller.refused({"code": DENIED, "message": "no", "details": details})
    lines = ["the lease lacks: --lease fs.write=/a", "or, to be asked first: --ask fs.write=/a"]
    assert teller.closing() == lines


def test_what_may_be_asked_for_is_not_lacking() -> None:
    """The lease says that people are asked: no option is advised."""
    details: JsonObject = {"capability": "tool.call", "target": "mail.send"}
    asks, others = ({f"{ASK}tool.call": cast("JsonValue", [each])} for each in ("mail.*", "web.*"))
    assert missing_options(DENIED, details, asks) == []
    assert missing_options(DENIED, details, others) != []
