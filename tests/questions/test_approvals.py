"""Approvals: what a lease allows on condition is asked for, decided, and told."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

from arcp_trio import (
    ArcpError,
    InvalidEvent,
    InvalidRequest,
    JobContext,
    JobNotFound,
    Json,
    Limits,
    PermissionDenied,
)
from arcp_trio.testing import Peer
from arcp_trio.testing.frames import Frame
from arcp_trio.wire.features import CLIENT_FEATURES, Feature
from arcp_trio.wire.questions import QUESTION
from arcp_trio.wire.timestamps import rfc3339
from tests.questions.approving import ASK, approving, begun, result_of
from tests.questions.support import answer, listed, next_question, outcome
from tests.reading import until_end
from tests.stage import AUDITOR, BOB, OPERATOR

DEPLOY = ("tool.call", "deploy")
CALL = {"tool": "t", "call_id": "c", "args": 1}
WITHOUT = tuple(each for each in CLIENT_FEATURES if each != Feature.QUESTIONS)


async def test_an_approval_is_a_question(autojump_clock: MockClock) -> None:
    """Everybody sees the call and the status, those who know questions what is asked for."""
    async with approving() as stage:
        peer = await stage.welcomed()
        job_id = await begun(peer, DEPLOY)
        told = [(await peer.expect("job.event", job_id=job_id))["payload"] for _ in range(3)]
        call, status, question = (each["body"] for each in told)
        assert [each["kind"] for each in told[:2]] == ["tool_call", "status"]
        assert status == {"phase": "approval", "message": "Allow tool.call of deploy?"}
        expires_at = question.pop("expires_at")
        assert question == {
            "question_id": call["call_id"],
            "prompt": "Allow tool.call of deploy?",
            "options": ["allow", "deny"],
            "kind": "approval",
            "capability": "tool.call",
            "targets": ["deploy"],
            "tool": "test/tool.call",
            "args": {"of": "deploy"},
            "for_job": "tool.call of deploy, with any arguments",
        }
        waiting: Json = await listed(peer, job_id)
        assert waiting["questions"] == [{**question, "expires_at": expires_at}]
        await answer(peer, {**question, "job_id": job_id}, "allow", reason="it is Monday")
        result = await result_of(peer, call["call_id"])
        decided = {"decision": "allow", "by": "alice", "reason": "it is Monday"}
        assert result["x-vendor.arcp-trio.decision"] == decided
        assert result["result"] == {
            "done": True,
            "decision": "allow",
            "by": "alice",
            "reason": "it is Monday",
        }
        assert await outcome(peer, job_id) == ["done"]


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        (("agent.delegate", "other@1.0.0"), ", with any input"),
        (("net.fetch", "http://a.example/x"), ", also by what the agent does by itself"),
        (
            ("net.fetch", "https://a.example:8443/x/y"),
            ", also by what the agent does by itself: then all of https://a.example:8443",
        ),
    ],
)
async def test_what_a_yes_for_the_job_opens(
    autojump_clock: MockClock, asked: tuple[str, str], expected: str
) -> None:
    """The prompt says what else is allowed with the scope of the job."""
    lease = {asked[0].replace(".", "_"): [asked[1]]}
    async with approving() as stage:
        peer = await stage.welcomed()
        job_id = await begun(peer, asked, agent="careful", **lease)
        question = await next_question(peer, job_id)
        assert question["for_job"] == f"{asked[0]} of {asked[1]}{expected}"
        await answer(peer, question, "deny")


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        ("x-vendor.arcp-trio.question", {"question_id": "q", "prompt": "?"}),
        ("x-vendor.arcp-trio.anything", {}),
        ("tool_call", {"tool": "human.ask", "call_id": "c", "args": {}}),
        ("tool_call", {"tool": "session/request_permission", "call_id": "c", "args": {}}),
        (
            "tool_call",
            {"tool": "t", "call_id": "c", "args": 1, "x-vendor.arcp-trio.from": "runtime"},
        ),
        ("tool_result", {"call_id": "c", "result": 1, "x-vendor.arcp-trio.decision": {}}),
        ("tool_result", {"call_id": "open", "result": {"decision": "allow", "by": "bob"}}),
        ("status", {"phase": "approved", "message": "bob has allowed it", "call_id": "open"}),
        ("", {"tool": "human.ask"}),
    ],
)
async def test_an_agent_cannot_say_what_only_the_runtime_says(
    autojump_clock: MockClock, kind: str, body: Frame
) -> None:
    """Neither by hand nor as a tool of its own; nothing is told of it."""
    refused: list[str] = []

    async with approving() as stage:

        @stage.runtime.agent("forger")
        async def forger(job: JobContext) -> None:
            await job.emit("tool_call", {"tool": "t", "call_id": "open", "args": None})
            await job.ask_approval("open", "t", None, "tool.call", ["t"])
            try:
                if kind:
                    await job.emit(kind, body)
                else:
                    async with job.tool_call("human.ask"):
                        pass
            except InvalidEvent as error:
                refused.append(str(error))

        peer = await stage.welcomed()
        job_id = await begun(peer, agent="forger")
        told = [each["payload"] for each in await until_end(peer, job_id)]
        assert len(refused) == 1
        kinds = [each["kind"] for each in told if "kind" in each]
        assert kinds == ["tool_call", "status", "x-vendor.arcp-trio.question", "tool_result"]


async def test_an_id_stands_for_one_question(autojump_clock: MockClock) -> None:
    """Nobody who reads one question can be made to answer another one."""
    refused: list[str] = []

    async with approving() as stage:

        @stage.runtime.agent("swap")
        async def swap(job: JobContext) -> None:
            await job.emit("tool_call", {"tool": "t", "call_id": "open", "args": None})
            for args in ("harmless", "harmless", "harmful"):
                try:
                    await job.ask_approval("open", "t", args, "tool.call", ["t"])
                except InvalidRequest as error:
                    refused.append(str(error))
                else:
                    with trio.move_on_after(1):
                        await job.decision("open")

        peer = await stage.welcomed()
        job_id = await begun(peer, agent="swap")
        told = [each["payload"] for each in await until_end(peer, job_id)]
        asked = [each["body"]["args"] for each in told if each.get("kind") == QUESTION]
        assert asked == ["harmless", "harmless"]
        assert refused == ["people were asked something else under this id: take another id"]


async def test_a_denial(autojump_clock: MockClock) -> None:
    """Denied by a person: PERMISSION_DENIED, with who and why among the details."""
    async with approving() as stage:
        peer = await stage.welcomed()
        question = await next_question(peer, await begun(peer, DEPLOY))
        await answer(peer, question, "deny", reason="not today")
        error = (await result_of(peer, question["question_id"]))["error"]
        assert error["code"] == "PERMISSION_DENIED"
        assert error["details"] == {"decision": "deny", "by": "alice", "reason": "not today"}


async def test_nobody_decides(autojump_clock: MockClock) -> None:
    """After `approval_seconds` it is TIMEOUT, and a later answer finds no question."""
    async with approving(limits=Limits(approval_seconds=30)) as stage:
        peer = await stage.welcomed()
        question = await next_question(peer, await begun(peer, DEPLOY))
        error = (await result_of(peer, question["question_id"]))["error"]
        assert error["code"] == "TIMEOUT"
        assert error["details"] == {"decision": "deny", "by": "timeout"}
        assert autojump_clock.current_time() == pytest.approx(30, abs=1)
        with pytest.raises(JobNotFound):
            await answer(peer, question, "allow")


async def test_two_answers(autojump_clock: MockClock) -> None:
    """The first valid one counts; the other is told that there is no such question."""
    async with approving() as stage:
        peer, approver = await stage.welcomed(), await stage.welcomed(token=BOB)
        question = await next_question(peer, await begun(peer, DEPLOY))
        await answer(approver, question, "deny")
        with pytest.raises(JobNotFound):
            await answer(peer, question, "allow")
        assert await outcome(peer, question["job_id"]) == ["PERMISSION_DENIED"]
        (error,) = [
            each["payload"]["body"]["error"]
            for each in peer.seen
            if each["payload"].get("kind") == "tool_result"
        ]
        assert error["details"] == {"decision": "deny", "by": "bob"}
        assert await listed(peer, question["job_id"]) is None


async def test_another_session_of_the_principal(autojump_clock: MockClock) -> None:
    """The principal decides from any of its sessions."""
    async with approving() as stage:
        peer, other = await stage.welcomed(), await stage.welcomed()
        question = await next_question(peer, await begun(peer, DEPLOY))
        await answer(other, question, "allow")
        assert await outcome(peer, question["job_id"]) == ["done"]


async def refusal(peer: Peer, question: Frame, value: Json = "allow", **more: Json) -> Frame:
    """Decide in vain; return the refusal without what names its request."""
    with pytest.raises(ArcpError) as caught:
        await answer(peer, question, value, **more)
    return {"code": caught.value.code, "message": caught.value.message}


async def test_who_may_not_decide(autojump_clock: MockClock) -> None:
    """An observer is refused; to an operator and to strangers the job is as good as none."""
    async with approving() as stage:
        peer, observer = await stage.welcomed(), await stage.welcomed(token=AUDITOR)
        operator = await stage.welcomed(token=OPERATOR)
        question = await next_question(peer, await begun(peer, DEPLOY))
        subscribe = {"job_id": question["job_id"], "history": True}
        await observer.answer("job.subscribed", await observer.send("job.subscribe", subscribe))
        assert await next_question(observer, question["job_id"]) == question
        with pytest.raises(PermissionDenied):
            await answer(observer, question, "allow")
        nothing = await refusal(operator, {"job_id": "job_none", "question_id": "call_none"})
        assert await refusal(operator, question) == nothing
        await answer(peer, question, "allow")
        assert await refusal(observer, question) == nothing


@pytest.mark.parametrize(
    ("value", "more"),
    [("yes", {}), (True, {}), (None, {}), ("allow", {"scope": "ever"}), ("deny", {"reason": 3})],
)
async def test_what_is_no_decision(
    value: Json, more: dict[str, Json], autojump_clock: MockClock
) -> None:
    """Another answer or scope is refused, and the question stays open."""
    async with approving() as stage:
        peer = await stage.welcomed()
        question = await next_question(peer, await begun(peer, DEPLOY))
        with pytest.raises(InvalidRequest):
            await answer(peer, question, value, **more)
        await answer(peer, question, "allow")
        assert await outcome(peer, question["job_id"]) == ["done"]


async def test_plain_questions_have_no_scope(autojump_clock: MockClock) -> None:
    """Only the answer to an approval may say for how long it counts."""
    async with approving() as stage:
        peer = await stage.welcomed()
        lease = {"tool.call": ["human.ask"]}
        job = await peer.submit("asker", {"prompt": "Publish?"}, lease_request=lease)
        question = await next_question(peer, job["job_id"])
        with pytest.raises(InvalidRequest, match="only the answer to an approval"):
            await answer(peer, question, "yes", scope="job")
        await answer(peer, question, "yes")


async def test_once_is_once(autojump_clock: MockClock) -> None:
    """Without a scope, and with `once`, the same thing is asked for again."""
    async with approving() as stage:
        peer = await stage.welcomed()
        job_id = await begun(peer, DEPLOY, DEPLOY, DEPLOY)
        for more in ({}, {"scope": "once"}, {}):
            await answer(peer, await next_question(peer, job_id), "allow", **more)
        assert await outcome(peer, job_id) == ["done"] * 3


@pytest.mark.parametrize(
    ("value", "outcomes"),
    [("allow", ["done", "done"]), ("deny", ["PERMISSION_DENIED", "PERMISSION_DENIED"])],
)
async def test_for_the_job(value: str, outcomes: list[str], autojump_clock: MockClock) -> None:
    """With the scope `job` the same target is decided alike, and another one is asked for."""
    async with approving() as stage:
        peer = await stage.welcomed()
        job_id = await begun(peer, DEPLOY, DEPLOY, ("tool.call", "destroy"))
        await answer(peer, await next_question(peer, job_id), value, scope="job")
        second = await next_question(peer, job_id)
        assert second["targets"] == ["destroy"]
        await answer(peer, second, "allow")
        assert await outcome(peer, job_id) == [*outcomes, "done"]
        again = await begun(peer, DEPLOY)
        assert (await next_question(peer, again))["targets"] == ["deploy"]


async def test_what_the_lease_does_not_say_cannot_be_asked_for(autojump_clock: MockClock) -> None:
    """Outside of the lease it is refused at once, and nobody is asked."""
    async with approving() as stage:
        peer = await stage.welcomed()
        job_id = await begun(peer, ("tool.call", "a"), tool_call=["b"])
        told = await until_end(peer, job_id)
        assert told[-1]["payload"]["result"] == ["PERMISSION_DENIED"]
        kinds = [each["payload"]["kind"] for each in told[:-1]]
        assert kinds == ["tool_call", "tool_result"]


async def test_an_agent_that_asks_for_anything(autojump_clock: MockClock) -> None:
    """People are not asked for what would be refused whatever they say."""
    async with approving() as stage:
        peer = await stage.welcomed()
        for wanted in (["tool.call", "a"], ["model.use", "m"], ["fs.write", "/x"]):
            lease = {f"{ASK}tool.call": ["b"], f"{ASK}model.use": ["m"]}
            job = await peer.submit("bold", wanted, lease_request=lease)
            told = await until_end(peer, job["job_id"])
            assert told[-1]["payload"]["result"] == "PERMISSION_DENIED"
            kinds = {each["payload"].get("kind") for each in told}
            assert "x-vendor.arcp-trio.question" not in kinds


async def test_who_watches_without_questions(autojump_clock: MockClock) -> None:
    """A session that knows no questions sees the call, the status and the result."""
    async with approving() as stage:
        peer, other = await stage.welcomed(), await stage.welcomed(features=WITHOUT)
        question = await next_question(peer, await begun(peer, DEPLOY))
        subscribe = {"job_id": question["job_id"], "history": True}
        await other.answer("job.subscribed", await other.send("job.subscribe", subscribe))
        await answer(peer, question, "allow")
        told = await until_end(other, question["job_id"])
        kinds = [each["payload"]["kind"] for each in told[:-1]]
        assert kinds == ["tool_call", "status", "tool_result"]
        with pytest.raises(InvalidRequest):
            await answer(other, question, "allow")


async def test_who_submits_without_questions(autojump_clock: MockClock) -> None:
    """A job of a client that knows no questions is refused at once, even if others could answer."""
    async with approving() as stage:
        peer = await stage.welcomed(features=WITHOUT)
        approver = await stage.welcomed(token=BOB)
        job_id = await begun(peer, DEPLOY)
        told = await until_end(peer, job_id)
        assert told[-1]["payload"]["result"] == ["PERMISSION_DENIED"]
        error = told[-2]["payload"]["body"]["error"]
        assert "x-vendor.arcp-trio.questions" in error["message"]
        assert [each["payload"]["kind"] for each in told[:-1]] == ["tool_call", "tool_result"]
        assert await listed(approver, job_id) is None


async def test_a_delegated_job_asks(autojump_clock: MockClock) -> None:
    """A child may ask for what its parent may ask for, and its submitter's people decide."""
    async with approving() as stage:
        peer = await stage.welcomed()
        lease = {f"{ASK}tool.call": ["deploy"], "agent.delegate": ["careful"]}
        job = await peer.submit("manager", [list(DEPLOY)], lease_request=lease)
        child = (await peer.expect("job.accepted", parent_job_id=job["job_id"]))["payload"]
        assert child["lease"] == {f"{ASK}tool.call": ["deploy"]}
        await answer(peer, await next_question(peer, child["job_id"]), "allow")
        assert await outcome(peer, job["job_id"]) == ["done"]


async def test_cancelled_while_open(autojump_clock: MockClock) -> None:
    """Once the end of the job is decided, a decision comes too late."""
    async with approving() as stage:
        peer = await stage.welcomed()
        question = await next_question(peer, await begun(peer, DEPLOY))
        await peer.send("job.cancel", {"job_id": question["job_id"]})
        with pytest.raises(JobNotFound):
            await answer(peer, question, "allow")
        assert (await peer.until_terminal(question["job_id"]))["payload"]["code"] == "CANCELLED"


async def test_the_lease_expires_before_the_decision(autojump_clock: MockClock) -> None:
    """An approval does not outlast the lease: the job is over, and the answer too late."""
    async with approving() as stage:
        peer = await stage.welcomed()
        lease = {f"{ASK}tool.call": ["*"]}
        until = {"expires_at": rfc3339(time.time() + 50)}
        job = await peer.submit(
            "careful", [list(DEPLOY)], lease_request=lease, lease_constraints=until
        )
        question = await next_question(peer, job["job_id"])
        assert (await peer.until_terminal(job["job_id"]))["payload"]["code"] == "LEASE_EXPIRED"
        with pytest.raises(JobNotFound):
            await answer(peer, question, "allow")


async def test_files_and_links(tmp_path: Path) -> None:
    """The approved file is written; a link's target has not been approved with its name."""
    (tmp_path / "secret").write_text("kept")
    (tmp_path / "link").symlink_to(tmp_path / "secret")
    with trio.fail_after(100):
        async with approving() as stage:
            peer = await stage.welcomed()
            files = [str(tmp_path / name) for name in ("new", "link")]
            job_id = await begun(
                peer, *(("fs.write", each) for each in files), fs_write=[f"{tmp_path}/**"]
            )
            for path in files:
                question = await next_question(peer, job_id)
                assert question["targets"] == [path]
                await answer(peer, question, "allow")
            assert await outcome(peer, job_id) == ["done", "PERMISSION_DENIED"]
    assert (tmp_path / "new").read_text() == "approved"
    assert (tmp_path / "secret").read_text() == "kept"


async def test_a_client_that_comes_back_finds_it(autojump_clock: MockClock) -> None:
    """The question stands in the journal: a later subscriber is told of it, too."""
    async with approving() as stage:
        peer, late = await stage.welcomed(), await stage.welcomed()
        question = await next_question(peer, await begun(peer, DEPLOY))
        subscribe = {"job_id": question["job_id"], "history": True}
        await late.answer("job.subscribed", await late.send("job.subscribe", subscribe))
        assert await next_question(late, question["job_id"]) == question
        await answer(late, question, "allow")
        assert await outcome(peer, question["job_id"]) == ["done"]


async def test_how_much_is_asked_for_at_once(autojump_clock: MockClock) -> None:
    """Approvals count as questions do: past the limit the next one is refused to the agent."""
    async with approving(limits=Limits(questions_per_job=1)) as stage:
        peer = await stage.welcomed()
        job_id = await begun(peer, DEPLOY, ("tool.call", "b"), agent="hasty")
        question = await next_question(peer, job_id)
        result = await peer.expect("job.event", job_id=job_id)
        while result["payload"]["kind"] != "tool_result":
            result = await peer.expect("job.event", job_id=job_id)
        assert result["payload"]["body"]["error"]["details"]["limit"] == "questions_per_job"
        await answer(peer, question, "allow")
        await peer.until_terminal(job_id)
