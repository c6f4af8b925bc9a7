"""What people are shown of the targets of an approval."""

from __future__ import annotations

import pytest
from trio.testing import MockClock

from tests.questions.approving import ASK, approving, begun
from tests.questions.support import answer, next_question, outcome


async def test_the_target_that_is_shown(autojump_clock: MockClock) -> None:
    """People see where a path leads, in full, and the operation is decided as it was asked for."""
    long = f"/work/{'a/' * 100}{'../' * 100}.git/hooks/pre-push"
    async with approving() as stage:
        peer = await stage.welcomed()
        job_id = await begun(peer, ("fs.read", long), fs_read=["/work/**"])
        question = await next_question(peer, job_id)
        assert question["targets"] == ["/work/.git/hooks/pre-push"]
        assert question["prompt"] == "Allow fs.read of /work/.git/hooks/pre-push?"
        await answer(peer, question, "allow")
        assert await outcome(peer, job_id) == ["done"]


async def test_a_target_that_is_named_twice(autojump_clock: MockClock) -> None:
    """A target that an agent names twice, in whatever spelling, is shown once."""
    async with approving() as stage:
        peer = await stage.welcomed()
        targets = ["/work/a", "/work/b", "/work/./a", "/work/b"]
        lease = {f"{ASK}fs.write": ["/work/**"]}
        job = await peer.submit("bold", ["fs.write", *targets], lease_request=lease)
        question = await next_question(peer, job["job_id"])
        assert question["targets"] == ["/work/a", "/work/b"]
        assert question["prompt"] == "Allow fs.write of /work/a, /work/b?"
        assert question["for_job"] == "fs.write of /work/a, /work/b, with any content"


@pytest.mark.parametrize(("length", "is_asked"), [(1_000, True), (1_001, False)])
async def test_a_target_that_is_too_long(
    length: int,
    is_asked: bool,  # noqa: FBT001
    autojump_clock: MockClock,
) -> None:
    """A target is shown to its end; nobody is asked for one that is too long to be read."""
    async with approving() as stage:
        peer = await stage.welcomed()
        job_id = await begun(peer, ("tool.call", "x" * length))
        if is_asked:
            question = await next_question(peer, job_id)
            assert question["prompt"] == f"Allow tool.call of {'x' * length}?"
            await answer(peer, question, "allow")
        assert await outcome(peer, job_id) == ["done" if is_asked else "PERMISSION_DENIED"]
