"""Which words go into one event: those that are waiting, and never across anything else."""

from __future__ import annotations

from itertools import groupby
from typing import Any

import trio
from hypothesis import given
from hypothesis import strategies as st
from trio.testing import MockClock

from arcp_trio import JobContext, acp
from arcp_trio.acp.updates import update_of
from arcp_trio.proxies.acp.allowed import AllowedEdits
from arcp_trio.proxies.acp.calls import Calls
from arcp_trio.proxies.acp.conversation import AgentConversation
from arcp_trio.proxies.acp.mapping import Item, UpdateEvents
from arcp_trio.proxies.acp.workplace import Workplace
from arcp_trio.sandbox.containment import start_uncontained
from arcp_trio.testing import open_peer
from arcp_trio.wire.json import Json
from tests.jobs.acting import end_of, said
from tests.stage import make_runtime

THOUGHT = "agent_thought_chunk"
ROLES = {"agent_message_chunk": "data", THOUGHT: "text"}

not_blank = st.characters(codec="utf-8", exclude_categories=("C", "Z"))
texts = st.one_of(st.text(not_blank, min_size=1, max_size=5), st.sampled_from(["so. ", "so\n"]))
words = st.tuples(st.sampled_from(sorted(ROLES)), texts)
modes = st.tuples(st.just("current_mode_update"), st.sampled_from("ab"))
told = st.lists(st.tuples(st.one_of(words, modes), st.booleans()), max_size=30)
"""What an agent tells, each with whether it is waiting when what came before it is taken."""


def update(kind: str, text: str) -> acp.Update:
    """Return the update that tells this."""
    content: dict[str, Any] = {"type": "text", "text": text} if kind in ROLES else {}
    found = update_of({"sessionUpdate": kind, "content": content, "currentModeId": text})
    assert found is not None
    return found


def seen(kind: str, body: dict[str, Any]) -> tuple[str, str]:
    """Return what an event tells, as the agent has told it."""
    if kind == "result_chunk":
        return "agent_message_chunk", body["data"]
    if kind == "thought":
        return THOUGHT, body["text"]
    return "current_mode_update", body["message"]


def merged(items: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """Return items with neighbouring words of one kind in one."""
    runs = [(kind, [text for _, text in run]) for kind, run in groupby(items, lambda it: it[0])]
    return [
        each
        for kind, run in runs
        for each in ([(kind, "".join(run))] if kind in ROLES else [(kind, text) for text in run])
    ]


@given(told)
def test_words_keep_their_order(items: list[tuple[tuple[str, str], bool]]) -> None:
    """Whatever is waiting, events are in the agent's order, and words are merged only with words.

    If everything is waiting, neighbouring words of one kind are one event; if nothing is, each is
    an event of its own. But thoughts are merged up to the end of a sentence.
    """

    async def act(job: JobContext) -> Json:
        place = Workplace(cwd="/", environment={}, start=start_uncontained, network=None)
        conversation = AgentConversation(job, job.id, "/", own_folder=True)
        events = UpdateEvents(job, Calls(job), AllowedEdits(job, place), conversation)
        left = [(update(*what), waiting) for what, waiting in items]

        def ready() -> Item | None:
            return left.pop(0)[0] if left and left[0][1] else None

        item: Item | None = None
        while left or item is not None:
            item = item or left.pop(0)[0]
            assert isinstance(item, acp.Update)
            item = await events.take(item, ready)
        await events.flush()
        return await events.result.end()

    async def main() -> None:
        async with make_runtime() as runtime, open_peer(runtime) as peer:
            await peer.hello()
            await end_of(runtime, peer, act)
            found = [seen(*event) for event in said(peer)]
        if found and found[-1] == ("agent_message_chunk", ""):
            found.pop()
        sent = [what for what, _ in items]
        assert merged(found) == merged(sent)
        others = [each for each in found if each[0] != THOUGHT]
        if all(waiting for _, waiting in items[1:]):
            assert others == [each for each in merged(sent) if each[0] != THOUGHT]
        if not any(waiting for _, waiting in items[1:]):
            assert others == [each for each in sent if each[0] != THOUGHT]

    trio.run(main, clock=MockClock(autojump_threshold=0))
