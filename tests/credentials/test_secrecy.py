"""Values are in memory and on the submitter's wire, and nowhere else (§14)."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import pytest
import trio

from arcp_trio import Credential, Issued, JobContext, Json, SqliteStore
from arcp_trio.cli import main
from arcp_trio.log_lines import JsonFormatter
from arcp_trio.testing import open_peer
from tests.credentials.runtimes import LEASE, providing_runtime
from tests.credentials.upstream import SECRET, Upstream, down
from tests.inside import shown_by_repr

VALUE = f"{SECRET}value"


def test_no_representation_shows_a_value() -> None:
    """No repr of a provisioner's answer or of an agent's credential shows a value."""
    issued = Issued(handle="vk", value=VALUE, endpoint="https://gw.example")
    credential = Credential(id="c", scheme="bearer", value=VALUE, endpoint="https://gw.example")
    for shown in (issued, credential, [credential], {"c": issued}):
        assert VALUE not in f"{shown!r} {shown}"
    assert VALUE not in str(credential.public())
    assert credential.wire() == credential.public() | {"value": VALUE}


async def live_through_everything(folder: Path, upstream: Upstream) -> str:
    """Issue, rotate, delegate, fail and cancel over a real store; return the session's id."""
    runtime = providing_runtime(upstream, SqliteStore(folder / "arcp.db"), revoke_seconds=1)

    @runtime.agent("all")
    async def everything(job: JobContext) -> Json:
        """Rotate, delegate, and raise with everything that can be shown."""
        (credential,) = job.credentials
        await job.rotate(credential.id)
        child = await job.delegate("worker", lease={"model.use": ["tier-fast/x"]})
        await child.result()
        raise RuntimeError(f"{job!r} {vars(job)} {job.credentials} {shown_by_repr(runtime)}")

    async with runtime, open_peer(runtime) as peer:
        welcome = await peer.hello()
        submit = {"agent": "all", "lease_request": LEASE, "idempotency_key": "k"}
        await peer.answer("job.accepted", await peer.send("job.submit", submit))
        accepted = await peer.answer("job.accepted", await peer.send("job.submit", submit))
        await peer.until_terminal(accepted["job_id"])
        sleeper = await peer.submit("sleeper", lease_request=LEASE)
        upstream.failing = down("revoke", times=1)
        await peer.send("job.cancel", {"job_id": sleeper["job_id"]})
        await peer.until_terminal(sleeper["job_id"])
        session_id: str = welcome["session_id"]
        return session_id


@pytest.mark.spec("9.8.2-2", "14-9")
@pytest.mark.logs_error("agent failed .*agent=all@1.0.0")
async def test_no_value_is_on_disk_or_in_a_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """No value is in the data folder or in the log."""
    upstream = Upstream()
    with caplog.at_level(logging.DEBUG), trio.fail_after(60):
        await live_through_everything(tmp_path, upstream)
    assert len(upstream.keys) == 4
    assert upstream.live == set()
    files = [path for path in tmp_path.rglob("*") if path.is_file()]  # noqa: ASYNC240
    assert files
    for path in files:
        content = path.read_bytes()
        assert SECRET.encode() not in content, path
        assert all(key.value.encode() not in content for key in upstream.keys.values())
    log = [JsonFormatter().format(record) for record in caplog.records]
    assert not [line for line in log if SECRET in line]


@pytest.mark.logs_error("agent failed .*agent=all@1.0.0")
def test_a_replay_of_the_store_shows_credentials_without_values(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """`arcp-trio replay` prints frames whose credentials have no values."""
    session_id = trio.run(live_through_everything, tmp_path, Upstream())
    assert main(["replay", "--data", str(tmp_path), session_id]) == 0
    frames = [json.loads(line) for line in capfd.readouterr().out.splitlines()]
    accepted = [f["payload"] for f in frames if f["type"] == "job.accepted"]
    assert len(accepted) == 3
    for payload in accepted:
        assert [sorted(each) for each in payload["credentials"]] == [
            ["constraints", "endpoint", "id", "profile", "scheme"]
        ]
    bodies = [f["payload"]["body"] for f in frames if f["type"] == "job.event"]
    (rotated,) = [body for body in bodies if body.get("phase") == "credential_rotated"]
    assert rotated["id"] == accepted[0]["credentials"][0]["id"]
    assert "value" not in rotated
