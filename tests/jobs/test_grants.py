"""Grants over the wire: agents with versions, and patterns that can never match (§9.2)."""

from __future__ import annotations

import pytest
from trio.testing import MockClock

from arcp_trio import JobContext
from arcp_trio.testing import open_peer
from arcp_trio.wire.json import Json
from tests.jobs import doer
from tests.stage import make_runtime


@pytest.mark.parametrize(
    ("pattern", "wanted", "outcome"),
    [
        ("pdf@*", "pdf", "2.0"),
        ("pdf@*", "pdf@1.0", "1.0"),
        ("pdf@1.*", "pdf@1.0", "1.0"),
        ("pdf@1.*", "pdf", "PERMISSION_DENIED"),  # the default is 2.0
        ("pdf", "pdf@1.0", "1.0"),
        ("p*", "pdf", "2.0"),
        ("pdf@*", "echo", "PERMISSION_DENIED"),
        ("pdf@*", "pdf@3.0", "AGENT_VERSION_NOT_AVAILABLE"),
        ("pdf@*", "other@3.0", "PERMISSION_DENIED"),
    ],
)
@pytest.mark.spec("9.3-2")
async def test_delegation_to_a_version(
    pattern: str, wanted: str, outcome: str, autojump_clock: MockClock
) -> None:
    """A pattern of `agent.delegate` names an agent, or an agent with the version it resolves to."""

    async def version(job: JobContext) -> Json:
        return job.version

    async with make_runtime() as runtime, open_peer(runtime) as peer:
        runtime.add(doer.agents)
        runtime.agent("pdf", version="1.0")(version)
        runtime.agent("pdf", version="2.0", default=True)(version)
        await peer.hello()
        steps: Json = [["delegate", {"agent": wanted}]]
        lease = {"agent.delegate": [pattern]}
        job = await peer.submit("doer", steps, lease_request=lease)
        end = await peer.until_terminal(job["job_id"])
        assert end["payload"]["result"] == [outcome]


async def test_a_grant_that_never_matches_is_accepted_and_told(autojump_clock: MockClock) -> None:
    """Relative paths, and names that no agent has, grant nothing; the job is warned of them."""
    async with make_runtime() as runtime, open_peer(runtime) as peer:
        runtime.add(doer.agents)
        await peer.hello()
        lease: dict[str, Json] = {
            "fs.read": ["*", "/ws/**", "**/x"],
            "fs.write": ["src/**"],
            "agent.delegate": ["PDF@*", "pdf@*"],
            "tool.call": ["a/b"],
        }
        steps: Json = [["authorize", "fs.read", "/etc"], ["authorize", "fs.read", "/ws/a"]]
        job = await peer.submit("doer", steps, lease_request=lease)
        assert job["lease"] == lease
        end = await peer.until_terminal(job["job_id"])
        assert end["payload"]["result"] == ["PERMISSION_DENIED", "done"]
        (warning,) = [e["payload"]["body"] for e in peer.recorder.events(job["job_id"])]
        assert warning["level"] == "warn"
        for idle in ("fs.read '*'", "fs.write 'src/**'", "agent.delegate 'PDF@*'"):
            assert idle in warning["message"]
        for other in ("/ws", "**/x", "'pdf@*'", "a/b"):
            assert other not in warning["message"]


async def test_many_idle_grants_are_one_event(autojump_clock: MockClock) -> None:
    """A thousand grants that never match are told in one event of a moderate size."""
    async with make_runtime() as runtime, open_peer(runtime) as peer:
        await peer.hello()
        lease = {"fs.read": ["x" * 50 + str(n) for n in range(1_000)]}
        job = await peer.submit("echo", lease_request=lease)
        await peer.until_terminal(job["job_id"])
        (event,) = peer.recorder.events(job["job_id"])
        message = event["payload"]["body"]["message"]
        assert message.endswith("and more")
        assert len(message) < 5_000


@pytest.mark.spec("8.4-12")
async def test_a_streamed_result_has_a_summary(autojump_clock: MockClock) -> None:
    """The terminal of a streamed result has what the agent says of it."""
    async with make_runtime() as runtime:

        @runtime.agent("writer")
        async def writer(job: JobContext) -> None:
            async with job.stream_result() as out:
                with pytest.raises(ValueError, match="summary"):
                    out.summarize("x" * 10_000_000)
                out.summarize("begun")
                await out.write("text")
                if job.input is not None:
                    out.summarize(job.input)
            with pytest.raises(ValueError, match="not the block"):
                out.summarize("too late")

        for features, shown in ((("result_chunk",), ["begun", "Two words."]), ((), [None, None])):
            async with open_peer(runtime) as peer:
                await peer.hello(features=features)
                for said, summary in zip((None, "Two words."), shown, strict=True):
                    job = await peer.submit("writer", said)
                    payload = (await peer.until_terminal(job["job_id"]))["payload"]
                    assert payload.get("summary") == summary
                    assert ("result_id" in payload) == bool(features)
