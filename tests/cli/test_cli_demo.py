"""The demo agents, as a client meets them."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from tests.cli.processes import Peer, peer, starter

pytestmark = pytest.mark.real_tcp


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Peer]:
    """Have one session with one runtime, for all tests of the file."""
    with starter(tmp_path_factory.mktemp("demo")) as start:
        served = start("serve", "--port", "0", "--token", "alice=x")
        with peer(served.url(), "x") as connected:
            yield connected


def test_they_are_announced(session: Peer) -> None:
    """The welcome lists each demo agent with its one version."""
    assert session.answer["payload"]["capabilities"]["agents"] == [
        {"name": name, "versions": ["1.0.0"], "default": "1.0.0"}
        | ({"x-vendor.arcp-trio.durable": ["1.0.0"]} if name == "hiker" else {})
        for name in (
            *("echo", "countdown", "chatty", "report", "shopper", "team", "sleeper", "cook"),
            "hiker",
        )
    ]


@pytest.mark.parametrize("value", [None, {"a": [1, "ü"]}, "text", 0, False, []])
def test_echo(session: Peer, value: object) -> None:
    """Echo returns its input, whatever it is."""
    (end,) = session.run("echo", value)
    assert end["payload"]["result"] == {"echo": value}


def test_countdown(session: Peer) -> None:
    """Countdown reports each step out of n, then returns how many there were."""
    *events, end = session.run("countdown", {"n": 3, "delay": 0})
    assert [event["payload"]["kind"] for event in events] == ["progress"] * 3
    assert [event["payload"]["body"] for event in events] == [
        {"current": step, "total": 3, "units": "steps"} for step in (1, 2, 3)
    ]
    assert end["payload"]["result"] == {"done": 3}


def test_chatty(session: Peer) -> None:
    """Chatty logs n messages of the size asked for, then returns n."""
    *events, end = session.run("chatty", {"n": 20, "size": 7})
    assert [event["payload"]["kind"] for event in events] == ["log"] * 20
    assert {len(event["payload"]["body"]["message"]) for event in events} == {7}
    assert end["payload"]["result"] == {"n": 20}


def test_the_longest_message_fits(session: Peer) -> None:
    """The largest size that chatty accepts is one that a frame can carry."""
    event, end = session.run("chatty", {"n": 1, "size": 1_000_000})
    assert len(event["payload"]["body"]["message"]) == 1_000_000
    assert end["type"] == "job.result"


def test_chatty_by_default(session: Peer) -> None:
    """Without an input chatty logs 1000 messages of 100 characters."""
    *events, end = session.run("chatty")
    assert {len(event["payload"]["body"]["message"]) for event in events} == {100}
    assert (len(events), end["payload"]["result"]) == (1000, {"n": 1000})


@pytest.mark.parametrize(
    ("input_", "size", "pages"),
    [
        (None, 1_600, 1),
        ({"size": 4_001}, 4_001, 1),
        ({"size": 1_000_000}, 1_000_000, 250),
        ({"size": 0}, 0, 0),
    ],
)
def test_report(session: Peer, input_: object, size: int, pages: int) -> None:
    """Report streams a text of the size asked for, by default as much as a screen shows."""
    *events, end = session.run("report", input_)
    # A client that offers `ack` and does not acknowledge is told that it falls behind.
    events = [event for event in events if event["payload"]["kind"] != "status"]
    assert {event["payload"]["kind"] for event in events} == {"result_chunk"}
    text = "".join(event["payload"]["body"]["data"] for event in events)
    assert len(text) == end["payload"]["result_size"] == size
    assert text.count("Page ") == pages
    assert input_ is not None or text.count("\n") <= 22


def test_they_read_like_something_real(session: Peer) -> None:
    """What chatty and report say is sentences."""
    event, _ = session.run("chatty", {"n": 1})
    assert event["payload"]["body"]["message"].startswith("message 1: The ferry left on time with")
    *events, _ = session.run("report", {"size": 400})
    heading, first, *_ = "".join(it["payload"]["body"]["data"] for it in events).splitlines()
    assert heading.rstrip() == "Page 1"
    assert re.fullmatch(
        r"Day 1: \d+ to \d+ degrees, [a-z ]+; wind from the [a-z-]+, force \d\. *", first
    )


def test_shopper(session: Peer) -> None:
    """Shopper buys until the budget is used up, and says so; metrics show what is left."""
    lease = {"tool.call": ["shop.*"], "cost.budget": ["USD:1.00"]}
    *events, end = session.run("shopper", {"price": 0.4}, lease_request=lease)
    bodies = [event["payload"]["body"] for event in events]
    left = [body["value"] for body in bodies if body.get("name") == "cost.budget.remaining"]
    assert left == [0.6, 0.2, -0.2]
    assert end["payload"]["result"] == {"bought": 3, "stopped_by": "BUDGET_EXHAUSTED"}


def test_shopper_without_a_lease(session: Peer) -> None:
    """Shopper buys nothing without a lease."""
    tool_call, tool_result, end = session.run("shopper")
    assert tool_call["payload"]["kind"] == "tool_call"
    assert tool_result["payload"]["body"]["error"]["code"] == "PERMISSION_DENIED"
    assert end["payload"]["result"] == {"bought": 0, "stopped_by": "PERMISSION_DENIED"}


def test_hiker(session: Peer) -> None:
    """Hiker logs each stage, and returns how many there were and in how many runs."""
    *events, end = session.run("hiker", {"stages": 2, "seconds": 0.01})
    assert [event["payload"]["body"]["message"] for event in events] == [
        "stage 1 of 2",
        "stage 2 of 2",
    ]
    assert end["payload"]["result"] == {"stages": 2, "runs": 1}


def test_cook(session: Peer) -> None:
    """Cook asks what to cook, and without a lease nobody."""
    lease = {"tool.call": ["human.ask"]}
    *_, asked, end = session.run("cook", lease_request=lease, max_runtime_sec=1)
    assert asked["payload"]["body"]["error"]["code"] == "CANCELLED"
    assert end["payload"]["final_status"] == "timed_out"
    *_, end = session.run("cook")
    assert end["payload"]["code"] == "PERMISSION_DENIED"


def test_team(session: Peer) -> None:
    """Team has each item echoed by a job of its own, and collects the results in order."""
    parent = session.submit("team", ["a", "b"], lease_request={"agent.delegate": ["echo"]})
    frames = [session.receive()]
    while frames[-1].get("job_id") != parent["job_id"] or frames[-1]["type"] != "job.result":
        frames.append(session.receive())
    children = [frame["payload"] for frame in frames if frame["type"] == "job.accepted"]
    assert [child["parent_job_id"] for child in children] == [parent["job_id"]] * 2
    assert frames[-1]["payload"]["result"] == {"results": [{"echo": "a"}, {"echo": "b"}]}


def test_team_without_a_lease(session: Peer) -> None:
    """Without a lease, the event and the job's error say which delegation was refused, and why."""
    delegation, refusal, end = session.run("team", ["a", "b"])
    assert delegation["payload"]["kind"] == "delegate"
    said = "delegation refused: agent echo: the lease does not allow agent.delegate of 'echo@1.0.0'"
    assert refusal["payload"]["body"]["error"]["message"] == said
    assert (end["payload"]["code"], end["payload"]["message"]) == ("PERMISSION_DENIED", said)


def test_sleeper(session: Peer) -> None:
    """Sleeper returns how long it slept."""
    (end,) = session.run("sleeper", {"seconds": 0.01})
    assert end["payload"]["result"] == {"slept": 0.01}


@pytest.mark.parametrize(
    ("agent", "value", "complaint"),
    [
        ("countdown", [], "expected object or null @ $.payload.input"),
        ("sleeper", 3, "expected object or null @ $.payload.input"),
        ("countdown", {"n": -1}, "expected at least 0 @ $.payload.input.n"),
        ("countdown", {"n": 1.5}, "expected integer @ $.payload.input.n"),
        ("countdown", {"n": True}, "expected integer @ $.payload.input.n"),
        ("countdown", {"n": None}, "expected integer @ $.payload.input.n"),
        ("countdown", {"delay": "1"}, "expected number @ $.payload.input.delay"),
        ("countdown", {"delay": -0.1}, "expected at least 0 @ $.payload.input.delay"),
        ("chatty", {"size": 10**12}, "expected at most 1000000 @ $.payload.input.size"),
        ("report", {"size": -1}, "expected at least 0 @ $.payload.input.size"),
        ("shopper", {"currency": 1}, "expected string @ $.payload.input.currency"),
        ("sleeper", {"seconds": [1]}, "expected number @ $.payload.input.seconds"),
        ("hiker", {"stages": "all"}, "expected integer @ $.payload.input.stages"),
    ],
)
def test_bad_input(session: Peer, agent: str, value: object, complaint: str) -> None:
    """A wrong input is refused with its place, and there is no job."""
    refusal = session.submit(agent, value)
    assert refusal["type"] == "session.error"
    assert (refusal["payload"]["code"], refusal["payload"]["message"]) == (
        "INVALID_REQUEST",
        complaint,
    )


def test_their_inputs_are_announced(session: Peer) -> None:
    """The welcome says what those with settings take, with a default for each, which holds."""
    schemas = session.answer["payload"]["x-vendor.arcp-trio"]["input_schemas"]
    assert {ref.removesuffix("@1.0.0") for ref in schemas} == {
        *("countdown", "chatty", "report", "shopper", "sleeper", "hiker")
    }
    for schema in schemas.values():
        assert all(
            {"default", "description"} <= each.keys() for each in schema["properties"].values()
        )
    report = schemas["report@1.0.0"]["properties"]["size"]
    *_, end = session.run("report")
    assert end["payload"]["result_size"] == report["default"]


def test_a_whole_number_may_be_written_with_a_point(session: Peer) -> None:
    """1.0 is an integer, as it is in JSON Schema, and the agents take it for one."""
    *_, end = session.run("countdown", {"n": 1.0, "delay": 0})
    assert end["payload"]["result"] == {"done": 1}
