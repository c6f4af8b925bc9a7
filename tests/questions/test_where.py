"""Agents ask from wherever they run: in the loop, in threads, under asyncio, in processes."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio

from arcp_trio import Json, Runtime, Workers
from arcp_trio.testing import open_peer
from arcp_trio.testing.frames import Frame
from arcp_trio.wire.features import CLIENT_FEATURES
from tests.questions.anywhere import agents
from tests.questions.approving import ASK
from tests.questions.support import MAY_ASK, answer, next_question
from tests.stage import TOKENS, simple_agents

pytestmark = pytest.mark.real_tcp


@pytest.mark.parametrize("process", ["", "-process"])
@pytest.mark.parametrize("where", ["trio", "thread", "asyncio"])
async def test_an_agent_asks_where_it_runs(where: str, process: str) -> None:
    """The answer comes back as it was given, and a time-out as `Unanswered`."""
    with trio.fail_after(60):
        runtime = Runtime(auth=TOKENS, workers=Workers(count=1))
        runtime.add(agents)
        async with runtime, open_peer(runtime) as peer:
            await peer.hello(features=CLIENT_FEATURES)
            job = await peer.submit(where + process, lease_request=MAY_ASK)
            await answer(peer, await next_question(peer, job["job_id"]), "yes")
            end = await peer.until_terminal(job["job_id"])
            assert end["payload"]["result"] == ["yes", "TIMEOUT"]


@pytest.mark.parametrize("process", ["", "-process"])
@pytest.mark.parametrize("where", ["trio", "thread", "asyncio"])
async def test_people_are_asked_for_what_needs_them(
    where: str, process: str, tmp_path: Path
) -> None:
    """Each call asks by itself and waits, while the agent's other tasks go on."""
    path = str(tmp_path / "a.txt")
    patterns = {
        "tool.call": ["mail.*"],
        "fs.write": [f"{tmp_path}/**"],
        "net.fetch": ["https://h.example/**"],
        "agent.delegate": ["echo"],
    }
    lease = {f"{ASK}{capability}": each for capability, each in patterns.items()}
    asked: list[tuple[str, str, Json]] = []
    with trio.fail_after(60):
        runtime = Runtime(auth=TOKENS, workers=Workers(count=1))
        runtime.add(agents)
        runtime.add(simple_agents)
        async with runtime, open_peer(runtime) as peer:
            await peer.hello(features=CLIENT_FEATURES)
            job = await peer.submit(f"{where}-doer{process}", path, lease_request=lease)
            for _ in range(6):
                question = await next_question(peer, job["job_id"])
                while "meanwhile" not in str(peer.recorder.events(job["job_id"])):
                    await peer.receive()
                asked.append((question["capability"], question["targets"][0], question.get("args")))
                denied = question["targets"] == ["mail.delete"]
                await answer(peer, question, "deny" if denied else "allow")
            end = await peer.until_terminal(job["job_id"])
    assert end["payload"]["result"] == ["sent", "sent to bob", 7, "to the child", "alice"]
    assert await trio.Path(path).read_text() == "written"
    assert asked == [
        ("tool.call", "mail.send", {"to": "ada"}),
        ("tool.call", "mail.copy", {"to": "bob"}),
        ("fs.write", path, {"path": path, "mode": "w"}),
        ("net.fetch", "https://h.example/a", {"target": "https://h.example/a"}),
        ("agent.delegate", "echo@1.0.0", {"agent": "echo", "input": "to the child"}),
        ("tool.call", "mail.delete", None),
    ]
    bodies = [each["payload"]["body"] for each in peer.recorder.events(job["job_id"])]
    named = [each for each in bodies if "call_id" in each]
    calls = {each["call_id"]: each["tool"] for each in named if "tool" in each}
    said = {calls[each["call_id"]]: each for each in named if "tool" not in each}
    assert said["fs.write"]["result"] == {"decision": "allow", "by": "alice"}
    assert said["mail.delete"]["error"]["details"] == {"decision": "deny", "by": "alice"}
    words = [each.get("message") for each in bodies if each.get("phase") == "approved"]
    assert words == [f"alice has allowed tool.call of mail.{each}" for each in ("send", "copy")]


async def test_who_waits_for_people_holds_up_nobody() -> None:
    """A job in the only worker lends its place while people think, and goes on beside others."""
    with trio.fail_after(60):
        runtime = Runtime(auth=TOKENS, workers=Workers(count=1))
        runtime.add(agents)
        async with runtime, open_peer(runtime) as peer:
            await peer.hello(features=CLIENT_FEATURES)
            questions: list[Frame] = []
            for where in ("trio", "thread", "asyncio"):
                job = await peer.submit(f"{where}-process", lease_request=MAY_ASK)
                questions.append(await next_question(peer, job["job_id"]))
            for question in questions:
                await answer(peer, question, "yes")
                end = await peer.until_terminal(question["job_id"])
                assert end["payload"]["result"] == ["yes", "TIMEOUT"]


@pytest.mark.parametrize("process", ["", "-process"])
@pytest.mark.parametrize("where", ["trio", "thread", "asyncio"])
async def test_a_cancel_ends_the_wait_where_it_is(where: str, process: str) -> None:
    """A job that is cancelled while it asks ends at once, wherever its agent waits."""
    with trio.fail_after(60):
        runtime = Runtime(auth=TOKENS, workers=Workers(count=1))
        runtime.add(agents)
        async with runtime, open_peer(runtime) as peer:
            await peer.hello(features=CLIENT_FEATURES)
            job = await peer.submit(where + process, lease_request=MAY_ASK)
            await next_question(peer, job["job_id"])
            await peer.send("job.cancel", {"job_id": job["job_id"]})
            end = await peer.until_terminal(job["job_id"])
            assert end["payload"]["final_status"] == "cancelled"
            bodies = [each["payload"]["body"] for each in peer.seen if each["type"] == "job.event"]
            assert bodies[-1]["error"]["code"] == "CANCELLED"
