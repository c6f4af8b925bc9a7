"""The Go SDK's client, which reads an inline result under the name `output`."""

from __future__ import annotations

from trio.testing import MockClock

from arcp_trio.testing import open_peer
from arcp_trio.testing.frames import Frame
from tests.stage import make_runtime


async def test_a_go_client_gets_its_result_as_output(autojump_clock: MockClock) -> None:
    """The client's name decides, for results that are sent live and for replayed ones."""
    hello: Frame = {
        "client": {"name": "arcp-go-client", "version": "1"},
        "auth": {"scheme": "bearer", "token": "test-token"},
    }
    said = {"result": ["result"]}
    async with make_runtime() as runtime:
        async with open_peer(runtime) as peer:
            await peer.send("session.hello", hello)
            await peer.expect("session.welcome")
            job = await peer.submit("echo", said, idempotency_key="k")
            payload = (await peer.until_terminal(job["job_id"]))["payload"]
            assert payload["output"] == said
            assert "result" not in payload
            resume = peer.resume_from() | {"last_event_seq": 0}
        async with open_peer(runtime) as again:
            await again.send("session.hello", hello | {"resume": resume})
            assert (await again.expect("job.result"))["payload"] == payload
        async with open_peer(runtime) as other:
            await other.hello()
            await other.submit("echo", said, idempotency_key="k")
            assert (await other.expect("job.result"))["payload"]["result"] == said
