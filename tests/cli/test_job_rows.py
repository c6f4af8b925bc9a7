"""What a row of `arcp-trio jobs` says of a job."""

from __future__ import annotations

from arcp_trio import JobInfo
from arcp_trio.cli.client.job_rows import job_rows


def a_job(node: str | None) -> JobInfo:
    """Return a job of alice's."""
    return JobInfo(
        id="job_1",
        agent="echo@1.0.0",
        status="running",
        lease={},
        parent_id=None,
        created_at=None,
        trace_id=None,
        last_event_seq=None,
        principal="alice",
        node=node,
    )


def test_a_row_names_the_node() -> None:
    """Whose job it is stands with the node at which it runs, if the runtime is several."""
    _, alone, among = job_rows([a_job(None), a_job("n1")], 0.0, None)
    assert (alone[5], among[5]) == ("alice", "alice at n1")
