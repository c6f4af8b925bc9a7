"""Conversations with ACP agents that go on in later jobs."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio

from arcp_trio import ArcpError, Client, JobHandle
from arcp_trio.testing import open_pair
from tests.proxies.acp.stage import SECONDS, command, connected, runtime_of, steps, told

RESUMES: dict[str, Any] = {"sessionCapabilities": {"resume": {}}}
LOADS: dict[str, Any] = {"loadSession": True}
BOTH = LOADS | RESUMES
NOT_FOUND = {"code": -32601, "message": "Method not found"}


@asynccontextmanager
async def keeping(folder: Path, **options: Any) -> AsyncGenerator[Client, None]:
    """Connect a client to a runtime with an agent that keeps its sessions in a folder."""
    words = command(store=str(folder / "sessions"), **{"capabilities": BOTH, **options})
    async with connected({"scripted": words, "other": command()}, data=folder) as client:
        yield client


async def begin(
    client: Client, *each: list[Any], session: str, cwd: Path | None = None, **terms: Any
) -> JobHandle:
    """Submit a job that goes on with the conversation of another."""
    more = {} if cwd is None else {"cwd": str(cwd)}
    given = {"prompt": steps(*each), "session": session, **more}
    return await client.submit(terms.pop("agent", "scripted"), given, **terms)


async def refusal(handle: JobHandle) -> ArcpError:
    """Return the error that a job ends with."""
    with pytest.raises(ArcpError) as caught:
        await handle.result()
    return caught.value


async def first_of(client: Client, *each: list[Any], **given: Any) -> str:
    """Do a job whose agent does some steps, and return its id."""
    job = await client.submit("scripted", {"prompt": steps(*each), **given})
    await job.result()
    return job.id


async def events_and_session(handle: JobHandle) -> tuple[list[str], tuple[str, bool]]:
    """Return the kinds of a job's events, and what it has told of its session.

    That is the job by which it was begun, and whether it goes on.
    """
    events = [(event.kind, event.body) async for event in handle.events()]
    (about,) = [body for _, body in events if body.get("phase") == "session"]
    kinds = [kind for kind, body in events if body.get("phase") not in ("starting", "session")]
    return kinds, (about["session"], about["continued"])


@pytest.mark.parametrize(
    "options",
    [
        {"capabilities": RESUMES},
        {"capabilities": LOADS},
        {"errors": {"session/resume": NOT_FOUND}},
        {"replays": ["session/resume", "session/load"]},
    ],
    ids=["resumed", "loaded", "resume is offered and not found", "resume replays"],
)
async def test_a_conversation_goes_on(tmp_path: Path, options: Any) -> None:
    """The next job is in the same session, and what the agent replays is not told as its own."""
    async with keeping(tmp_path, **options) as client:
        first = await client.submit("scripted", steps(["say", "a"]))
        assert await first.result() == "a"
        assert (await events_and_session(first))[1] == (first.id, False)
        second = await begin(client, ["history"], session=first.id)
        assert await second.result() == '[["say"], ["history"]]'
        third = await begin(client, ["think", "hm"], ["history"], session=second.id)
        kinds, session = await events_and_session(third)
        assert kinds == ["thought", "result_chunk", "result_chunk"]
        assert session == (first.id, True)
        assert await third.result() == '[["say"], ["history"], ["think", "history"]]'


async def test_any_job_of_a_conversation_will_do(tmp_path: Path) -> None:
    """The first job's id leads to the conversation as it is now."""
    async with keeping(tmp_path) as client:
        first = await first_of(client, ["say", "a"])
        await (await begin(client, ["say", "b"], session=first)).result()
        again = await begin(client, ["history"], session=first)
        assert await again.result() == '[["say"], ["say"], ["history"]]'


async def test_an_agent_that_keeps_no_sessions(tmp_path: Path) -> None:
    """Without resume and load there is an error that names the agent."""
    async with keeping(tmp_path, capabilities={}) as client:
        first = await first_of(client, ["say", "a"])
        error = await refusal(await begin(client, ["say", "b"], session=first))
        assert error.code == "INTERNAL_ERROR"
        assert error.message == "agent scripted: it neither resumes sessions nor loads them"


async def test_an_agent_that_has_lost_the_session(tmp_path: Path) -> None:
    """If neither resume nor load succeeds, the agent's own words are told."""
    lost = {"code": -32002, "message": "no such session"}
    async with keeping(
        tmp_path, errors={"session/resume": NOT_FOUND, "session/load": lost}
    ) as client:
        first = await first_of(client, ["say", "a"])
        error = await refusal(await begin(client, ["say", "b"], session=first))
        assert error.code == "INTERNAL_ERROR"
        assert error.message.startswith("agent scripted ")
        assert "no such session" in error.message


async def test_foreign_and_unknown_jobs_are_not_found(tmp_path: Path) -> None:
    """Ids of another principal's job and of no job, and other texts: the same words."""
    words = command(store=str(tmp_path / "sessions"), capabilities=BOTH)
    runtime = runtime_of({"scripted": words}, data=tmp_path)
    with trio.fail_after(SECONDS):
        async with (
            runtime,
            open_pair(runtime, token="tok") as alice,
            open_pair(runtime, token="bob-tok") as bob,
        ):
            theirs = await first_of(alice, ["say", "a"])
            unknown = f"{theirs[:-4]}ZZZZ"
            strange = ["", ".", "../sessions", "../../etc/passwd", "\0", "é" * 3_000]
            seen = {
                (error.code, error.message)
                for each in (theirs, unknown, *strange)
                for error in [await refusal(await begin(bob, ["say", "b"], session=each))]
            }
            assert seen == {("JOB_NOT_FOUND", "there is no such job")}
    assert not (tmp_path / "etc").exists()


async def test_a_foreign_conversation_that_is_busy_is_not_found(tmp_path: Path) -> None:
    """Nobody learns from a refusal that another principal's job is at work."""
    words = command(store=str(tmp_path / "sessions"), capabilities=BOTH)
    runtime = runtime_of({"scripted": words}, data=tmp_path)
    with trio.fail_after(SECONDS):
        async with (
            runtime,
            open_pair(runtime, token="tok") as alice,
            open_pair(runtime, token="bob-tok") as bob,
        ):
            job = await alice.submit("scripted", steps(["say", "a"], ["wait"]))
            await until_said(job)
            error = await refusal(await begin(bob, ["say", "b"], session=job.id))
            assert error.code == "JOB_NOT_FOUND"
            await job.cancel()


async def until_said(handle: JobHandle) -> None:
    """Wait until the agent of a job has said something."""
    async for event in handle.events():
        if event.kind == "result_chunk":
            return


async def test_another_agents_job(tmp_path: Path) -> None:
    """A conversation goes on with the agent that it was begun with only."""
    async with keeping(tmp_path) as client:
        first = await first_of(client, ["say", "a"])
        error = await refusal(await begin(client, ["say", "b"], session=first, agent="other"))
        assert error.code == "INVALID_REQUEST"
        assert "$.session" in error.message


async def test_two_turns_at_once(tmp_path: Path) -> None:
    """While a turn lasts, another is refused, whichever job's id it names; afterwards it is not."""
    async with keeping(tmp_path) as client:
        first = await first_of(client, ["say", "a"])
        busy = await begin(client, ["say", "b"], ["wait"], session=first)
        await until_said(busy)
        for session in (first, busy.id):
            error = await refusal(await begin(client, ["say", "c"], session=session))
            assert (error.code, error.retryable) == ("INTERNAL_ERROR", True)
            assert busy.id in error.message
        await busy.cancel()
        await refusal(busy)
        last = await begin(client, ["history"], session=busy.id)
        assert await last.result() == '[["say"], ["say", "wait"], ["history"]]'


async def test_the_folder_stays(tmp_path: Path) -> None:
    """A conversation keeps its own folder, and what is in it."""
    async with keeping(tmp_path) as client:
        first = await client.submit("scripted", steps(["environment"]))
        folder = _cwd(await first.result())
        assert folder.is_relative_to(tmp_path)
        assert not list(folder.iterdir())
        (folder / "made").touch()
        second = await begin(client, ["environment"], session=first.id)
        assert _cwd(await second.result()) == folder
        assert (folder / "made").exists()
        assert folder.stat().st_mode & 0o077 == 0


def _cwd(said: Any) -> Path:
    return Path(json.loads(said)["cwd"])


async def test_a_given_folder_stays_within_the_lease(tmp_path: Path) -> None:
    """Another folder is refused; the old one is, too, if the new lease does not cover it."""
    work, away = tmp_path / "work", tmp_path / "away"
    work.mkdir()
    away.mkdir()
    lease = {"fs.read": [f"{work}/**", str(work), f"{away}/**", str(away)]}
    async with keeping(tmp_path) as client:
        first = await client.submit(
            "scripted", {"prompt": steps(["say", "a"]), "cwd": str(work)}, lease=lease
        )
        await first.result()
        for cwd, granted, code in (
            (away, lease, "INVALID_REQUEST"),
            (None, {}, "PERMISSION_DENIED"),
            (work, {}, "PERMISSION_DENIED"),
        ):
            job = await begin(client, ["say", "b"], session=first.id, cwd=cwd, lease=granted)
            assert (await refusal(job)).code == code
        for cwd in (None, work):
            job = await begin(client, ["environment"], session=first.id, cwd=cwd, lease=lease)
            assert _cwd(await job.result()) == work


async def test_another_folder_for_a_conversation_with_its_own(tmp_path: Path) -> None:
    """A conversation that has a folder of its own cannot be moved."""
    async with keeping(tmp_path) as client:
        first = await first_of(client, ["say", "a"])
        job = await begin(
            client, ["say", "b"], session=first, cwd=tmp_path, lease={"fs.read": ["/**"]}
        )
        assert (await refusal(job)).code == "INVALID_REQUEST"


async def test_costs_of_earlier_jobs_are_not_counted_again(tmp_path: Path) -> None:
    """An agent tells of the sum of its session, of which each job pays what is new."""
    async with keeping(tmp_path) as client:
        paid: list[list[float]] = []
        session = await first_of(client, ["cost", 0.25], ["cost", 0.5])
        for sums in ([0.5, 0.75], [0.75], [1.0]):
            job = await begin(
                client,
                *(["cost", each] for each in sums),
                session=session,
                lease={"cost.budget": ["USD:1.00"]},
            )
            costs = [body for kind, body in await told(job) if kind == "metric"]
            paid.append([each["value"] for each in costs if each["name"] == "cost.inference"])
        assert paid == [[0.25], [], [0.25]]


async def test_a_first_job_that_failed_before_its_session(tmp_path: Path) -> None:
    """A job that has not come to a session has no conversation."""
    async with keeping(tmp_path, errors={"session/new": NOT_FOUND}) as client:
        job = await client.submit("scripted", steps(["say", "a"]))
        await refusal(job)
        error = await refusal(await begin(client, ["say", "b"], session=job.id))
        assert error.code == "JOB_NOT_FOUND"


async def test_without_a_data_folder(tmp_path: Path) -> None:
    """Conversations go on for as long as the process lives."""
    words = command(store=str(tmp_path / "sessions"), capabilities=BOTH)
    async with connected({"scripted": words}) as client:
        first = await client.submit("scripted", steps(["environment"]))
        folder = _cwd(await first.result())
        second = await begin(client, ["environment"], session=first.id)
        assert _cwd(await second.result()) == folder
