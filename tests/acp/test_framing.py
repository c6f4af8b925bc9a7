"""Lines and messages: however the bytes are cut, and whatever is in them."""

from __future__ import annotations

import json
from contextlib import suppress
from itertools import pairwise
from typing import Any

import pytest
import trio
from attrs import frozen
from hypothesis import given, settings
from hypothesis import strategies as st
from trio.testing import MockClock

from arcp_trio import acp
from arcp_trio.acp.jsonrpc import (
    IncomingAnswer,
    IncomingRequest,
    Notification,
    error_line,
    parse,
    request_line,
    result_line,
)
from tests.acp.stage import Stage, ended, said, staged, text, written

SCALARS = st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.text(max_size=8)
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=8
)
IDS = st.integers(-(2**63), 2**63 - 1) | st.text() | st.none()


@frozen
class Step:
    """Something that the agent writes, and how long the handler of it takes."""

    kind: str
    session: str
    delay: float


STEPS = st.lists(
    st.builds(
        Step,
        st.sampled_from(["update", "answer", "banner"]),
        st.sampled_from(["s", "other"]),
        st.sampled_from([0.001, 0.01, 0.3]),
    ),
    max_size=30,
)


class Model:
    """What each session has to see, by the order in which the agent writes."""

    def __init__(self, steps: list[Step], ids: dict[str, list[int]]) -> None:
        self.expected: dict[str, list[str]] = {"s": [], "other": []}
        self.delays: dict[str, float] = {}
        frames: list[bytes] = []
        ids = {session: list(each) for session, each in ids.items()}
        for number, step in enumerate(steps):
            if step.kind == "update":
                self.expected[step.session].append(str(number))
                self.delays[str(number)] = step.delay
                frames.append(written(said(number, step.session)))
            elif step.kind == "answer" and ids[step.session]:
                id_ = ids[step.session].pop(0)
                self.expected[step.session].append(f"answer {id_}")
                frames.append(written({"id": id_, "result": id_}))
            else:
                frames.append(b"  a banner: {}\r\n\n")
        self.data = b"".join(frames)
        self.unanswered = [id_ for each in ids.values() for id_ in each]


async def write_cut(stage: Stage, data: bytes, cuts: list[int]) -> None:
    """Write bytes, cut at some places, with time to read between."""
    places = sorted({0, len(data), *(cut % (len(data) + 1) for cut in cuts)})
    for begin, end in pairwise(places):
        await stage.actor.raw(data[begin:end])
        await trio.sleep(0.001)


async def interleaved(steps: list[Step], cuts: list[int]) -> None:
    """Have an agent write the steps, and compare what each session sees with the model."""
    seen: dict[str, list[str]] = {"s": [], "other": []}
    model: list[Model] = []

    async def handle(session: acp.Session, update: acp.Update) -> None:
        await trio.sleep(model[0].delays[text(update)])
        seen[session.id].append(text(update))

    async def ask(session: acp.Session) -> None:
        result = await session.request("x")
        seen[session.id].append(f"answer {result}")

    async with staged(on_update=handle, limits=acp.Limits(queue_items=4)) as stage:
        sessions = [stage.session, await stage.open("other")]
        async with trio.open_nursery() as nursery:
            ids: dict[str, list[int]] = {}
            for session in sessions:
                wanted = sum(s.kind == "answer" and s.session == session.id for s in steps)
                ids[session.id] = []
                for _ in range(wanted):
                    nursery.start_soon(ask, session)
                    ids[session.id].append((await stage.actor.receive("x"))["id"])
            model.append(Model(steps, ids))
            await write_cut(stage, model[0].data, cuts)
        await trio.sleep(100)
        assert seen == model[0].expected


@given(STEPS, st.lists(st.integers(0, 10_000), max_size=20))
@settings(max_examples=60)
def test_any_interleaving_cut_anywhere(steps: list[Step], cuts: list[int]) -> None:
    """Each session sees its updates and answers in the order of the bytes, and nothing else."""
    trio.run(interleaved, steps, cuts, clock=MockClock(autojump_threshold=0))


@given(st.binary(max_size=200) | st.text().map(str.encode) | VALUES.map(json.dumps).map(str.encode))
def test_any_line_is_a_message_or_passed_over(line: bytes) -> None:
    """Whatever a line has in it, it is a message, or a ValueError says why not."""
    with suppress(ValueError):
        assert isinstance(parse(line, 16, 1_000), Notification | IncomingRequest | IncomingAnswer)


@given(IDS, VALUES)
def test_ids_and_values_come_back_as_they_were(id_: Any, value: Any) -> None:
    """An answer that is written is read as it was, with an id of the same type."""
    answer = parse(result_line(id_, value), 128, 1_000)
    assert isinstance(answer, IncomingAnswer)
    assert (answer.id, type(answer.id)) == (id_, type(id_))
    assert answer.result == value
    refusal = parse(error_line(id_, -1, "no"), 128, 1_000)
    assert isinstance(refusal, IncomingAnswer)
    assert refusal.error is not None


@given(st.integers(0, 2**53), st.text(), st.dictionaries(st.text(), VALUES))
def test_requests_come_back_as_they_were(id_: int, method: str, params: Any) -> None:
    """A request that is written is one line, and is read as it was."""
    line = request_line(id_, method, params)
    assert b"\n" not in line
    assert parse(line, 128, 1_000) == IncomingRequest(id_, method, params)


@pytest.mark.parametrize("id_", ["true", "1.0", "[]", "{}", "1e999", "9" * 40])
def test_ids_of_other_types_are_refused(id_: str) -> None:
    """A message whose id is neither an integer nor a string is passed over."""
    with pytest.raises(ValueError, match="id"):
        parse(f'{{"jsonrpc":"2.0","id":{id_},"method":"x"}}', 16, 1_000)


@pytest.mark.parametrize(
    ("written_as", "read_as"),
    [
        (r'"a\ud800b"', "a�b"),
        (r'"a\udc00"', "a�"),
        (r'"\ud800"', "�"),
        (r'"\ud83d\ude00"', "😀"),
        ("NaN", None),
        ("1e999", None),
        ("-Infinity", None),
        ("9" * 30, None),
        ("9" * 5000, None),
        (r'{"\ud800":[1e999]}', {"�": [None]}),
    ],
)
def test_what_cannot_be_passed_on_is_mended(written_as: str, read_as: Any) -> None:
    """Lone surrogates become U+FFFD, and numbers beyond their bounds null."""
    message = parse(f'{{"method":"x","params":{{"v":{written_as}}}}}', 16, 1_000)
    assert message == Notification("x", {"v": read_as})


def test_what_is_not_utf_8_is_mended() -> None:
    """A byte that is not UTF-8 becomes U+FFFD."""
    assert parse(b'{"method":"x","params":{"v":"\xff"}}', 16, 1_000) == Notification(
        "x", {"v": "�"}
    )


@pytest.mark.parametrize("levels", [17, 1000, 1_000_000])
def test_nesting_is_bounded(levels: int) -> None:
    """A line that is nested too deeply is passed over."""
    with pytest.raises(ValueError, match="deep"):
        parse(f'{{"method":"x","params":{{"v":{"[" * levels}{"]" * levels}}}}}', 16, 10**7)


async def test_answers_match_by_type(autojump_clock: MockClock) -> None:
    """Answers with ids that are only equal to a number, or not known, or doubled, are ignored."""
    async with staged() as stage:
        turn = stage.session.prompt("go")
        id_ = await stage.actor.prompted()
        assert id_ == 2
        for wrong in (f"{id_}.0", "true", f'"{id_}"', "null", "77"):
            await stage.actor.raw(f'{{"id":{wrong},"result":{{"stopReason":"no"}}}}\n'.encode())
        await stage.actor.say(said("a"), ended(id_), ended(id_, "refusal"))
        assert [text(item) async for item in turn] == ["a"]
        assert turn.stop_reason == "end_turn"
