"""What agents declare of their input: checked before there is a job, and told to clients."""

from __future__ import annotations

import enum
from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Annotated, Any, Literal

import attrs
import pytest
from trio.testing import MockClock

from arcp_trio import Agents, InvalidRequest, JobContext, Runtime
from arcp_trio.runtime.connection.welcomes import SCHEMA_BYTES
from arcp_trio.runtime.job.input_schemas import MOST_BYTES, input_schema
from arcp_trio.testing import Peer, open_pair, open_peer
from arcp_trio.wire.json import Json
from tests.jobs import delegating
from tests.stage import make_runtime

VENDOR = "x-vendor.arcp-trio"
AT = {
    "type": "object",
    "properties": {"x": {"type": "array", "items": {"minimum": 0}}},
    "required": ["x"],
    "additionalProperties": False,
}
COUNT = {
    "type": "object",
    "properties": {"n": {"type": "integer"}, "at": AT},
    "required": ["n"],
}

agents = Agents()
calls: list[Json] = []


@agents.agent("counter", input_schema=COUNT)
async def counter(job: JobContext) -> Json:
    """Note the input, and return it."""
    calls.append(job.input)
    return job.input


@pytest.fixture
async def runtime() -> AsyncGenerator[Runtime]:
    """A runtime with an agent that takes an object with a whole number, and a delegating one."""
    calls.clear()
    async with make_runtime(agents, delegating.agents) as entered:
        yield entered


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"n": "three"}, "expected integer @ $.payload.input.n"),
        ({}, "missing @ $.payload.input.n"),
        (None, "expected object @ $.payload.input"),
        ({"n": "x" * 200_000}, "expected integer @ $.payload.input.n"),
        ({"n": 1, "at": {"x": [0, -1]}}, "expected at least 0 @ $.payload.input.at.x[1]"),
        ({"n": 1, "at": {"x": [0], "y": 1}}, "expected nothing @ $.payload.input.at.y"),
        ({"n": 1, "at": {}}, "missing @ $.payload.input.at.x"),
    ],
)
@pytest.mark.parametrize("key", [None, "monday"])
async def test_a_wrong_input_is_refused(
    peer: Peer, autojump_clock: MockClock, given: Json, problem: str, key: str | None
) -> None:
    """An input that does not match is refused with its place, and the agent is not called."""
    fields = {} if key is None else {"idempotency_key": key}
    with pytest.raises(InvalidRequest) as refusal:
        await peer.submit("counter", given, **fields)
    assert refusal.value.message == problem
    assert calls == []
    await peer.submit("counter", {"n": 3}, **fields)
    await peer.expect("job.result")
    assert calls == [{"n": 3}]


async def test_a_large_input_is_checked(peer: Peer, autojump_clock: MockClock) -> None:
    """A large input that matches starts a job, and so does a small one after it."""
    for size in (200_000, 1):
        await peer.submit("counter", {"n": 1, "more": "x" * size})
        await peer.expect("job.result")
    assert len(calls) == 2


async def test_a_delegated_input_is_checked(peer: Peer, autojump_clock: MockClock) -> None:
    """A delegation with a wrong input is refused, with its place."""
    asked = {"agent": "counter", "input": {"n": 1.5}}
    await peer.submit("boss", asked, lease_request=delegating.LEASE)
    end = await peer.expect("job.result")
    assert end["payload"]["result"] == {"refused": "INVALID_REQUEST"}
    (refused,) = (each for each in peer.seen if "error" in each["payload"].get("body", {}))
    message = refused["payload"]["body"]["error"]["message"]
    assert message == "delegation refused: agent counter: expected integer @ $.input.n"
    assert calls == []


async def test_clients_are_told(runtime: Runtime, autojump_clock: MockClock) -> None:
    """The welcome has the schemas in its vendor part, and the client library has them, too."""
    async with open_peer(runtime) as peer:
        welcome = await peer.hello(features=())
        assert welcome["payload"][VENDOR] == {"input_schemas": {"counter@1.0.0": COUNT}}
    async with open_pair(runtime) as client:
        assert client.input_schemas == {"counter@1.0.0": COUNT}


async def test_a_welcome_has_room(autojump_clock: MockClock) -> None:
    """Schemas for which a welcome has no room are left out, and still hold."""
    many = Agents()
    for number in range(4):
        title = "x" * (MOST_BYTES - 100)
        many.agent(f"a{number}", input_schema={"title": title, "type": "null"})(counter)
    async with make_runtime(many) as runtime, open_peer(runtime) as peer:
        welcome = await peer.hello()
        told = welcome["payload"][VENDOR]["input_schemas"]
        assert list(told) == ["a0@1.0.0", "a1@1.0.0"]
        assert 2 * MOST_BYTES <= SCHEMA_BYTES
        with pytest.raises(InvalidRequest, match="expected null"):
            await peer.submit("a3", 1)


async def test_without_schemas_nothing_is_said(autojump_clock: MockClock) -> None:
    """A runtime whose agents declare nothing has no vendor part in its welcome."""
    async with make_runtime() as runtime, open_peer(runtime) as peer:
        assert VENDOR not in (await peer.hello())["payload"]


@pytest.fixture
async def peer(runtime: Runtime) -> AsyncGenerator[Peer]:
    """A peer whose session is open."""
    async with open_peer(runtime) as connected:
        await connected.hello()
        yield connected


# -- schemas of classes


class Colour(enum.Enum):
    """A colour."""

    RED = "red"
    BLUE = "blue"


@attrs.frozen
class Size:
    """How large it is."""

    width: int
    height: float | None = None


@attrs.frozen
class Order:
    """What is ordered."""

    name: str = attrs.field(metadata={"description": "of the customer"})
    sizes: list[Size]
    colour: Colour | None
    kind: Literal["a", "b"]
    notes: Mapping[str, Annotated[str, "a note"]] = attrs.field(factory=dict[str, str])
    tags: Sequence[str] = ()
    either: int | str = 3
    extra: Any = None
    inside: Size | None = None
    computed: int = attrs.field(init=False, default=1)
    _note: str = attrs.field(default="", alias="note")


SIZE = {
    "type": "object",
    "properties": {"width": {"type": "integer"}, "height": {"type": ["number", "null"]}},
    "description": "How large it is.",
    "required": ["width"],
    "additionalProperties": False,
}


def test_the_schema_of_a_class() -> None:
    """The schema of an attrs class has its fields, their types, defaults and descriptions."""
    assert input_schema(Order) == {
        "type": "object",
        "description": "What is ordered.",
        "properties": {
            "name": {"type": "string", "description": "of the customer"},
            "sizes": {"type": "array", "items": SIZE},
            "colour": {"enum": ["red", "blue", None]},
            "kind": {"enum": ["a", "b"]},
            "notes": {"type": "object", "additionalProperties": {"type": "string"}},
            "tags": {"type": "array", "items": {"type": "string"}},
            "either": {"type": ["integer", "string"], "default": 3},
            "extra": {},
            "inside": {**SIZE, "type": ["object", "null"]},
            "note": {"type": "string", "default": ""},
        },
        "required": ["name", "sizes", "colour", "kind"],
        "additionalProperties": False,
    }


@attrs.frozen
class Endless:
    """A class that contains itself."""

    inner: Endless | None = None


@attrs.frozen
class Odd:
    """A class with a field of a type that JSON has not."""

    when: complex


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (Endless, "Endless contains itself"),
        (Odd, "Odd.when: there is no schema for <class 'complex'>"),
        (int, "int is not an attrs class"),
        ([], "it is neither a JSON Schema, which is a dict, nor an attrs class"),
        ({"pattern": "x"}, "schema: 'pattern' is not one of type"),
        ({"properties": {"a": {"items": {"$ref": "#"}}}}, "schema.a.items: '$ref' is not one of"),
        ({"properties": {"a": {"type": "text"}}}, "schema.a.type: 'text' is not one of null"),
        ({"additionalProperties": {"enum": []}}, "schema.additionalProperties.enum must be a list"),
        ({"items": {"required": "n"}}, "schema.items.required must be a list of names"),
        ({"properties": {"a": {"maximum": "9"}}}, "schema.a.maximum must be a number"),
        ({"title": "x" * MOST_BYTES}, f"it has more than {MOST_BYTES} bytes"),
        ({"title": {1}}, "set is not a JSON value @ $.title"),
    ],
)
def test_a_schema_that_cannot_be_used(given: Any, message: str) -> None:
    """What cannot be a schema is refused as the agent is registered, which the message names."""
    with pytest.raises((ValueError, TypeError)) as error:
        Agents().agent("a", input_schema=given)
    assert str(error.value).startswith("the input_schema of agent a@1.0.0: ")
    assert message in str(error.value)


def test_a_schema_is_the_agents_own() -> None:
    """To change the object that was given changes nothing."""
    given: dict[str, Json] = {"type": "integer"}
    registry = Agents()
    registry.agent("a", input_schema=given)(counter)
    given["type"] = "string"
    agent = registry.resolve("a")
    assert agent.input_schema == {"type": "integer"}
    agent.check_input(b"1", "$")
    moved = registry.in_processes().resolve("a")
    with pytest.raises(InvalidRequest, match="expected integer"):
        moved.check_input(b'"1"', "$")
