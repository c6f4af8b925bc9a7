"""`submit --detach`, and after it `watch`, `jobs` and `cancel` from other sessions."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
from attrs import evolve

from tests.cli.clients import Commands, served

pytestmark = pytest.mark.real_tcp


def test_detach_then_watch_then_cancel(commands: Commands) -> None:
    """A detached job is listed, watched from its first event, and cancelled."""
    job_id = commands.detached("waiting@2")
    assert job_id in commands.run("jobs", "--status", "running").out
    with commands.start("watch", job_id) as watching:
        assert watching.stderr is not None
        assert watching.stderr.readline() == f"{job_id}  waiting@2\n"
        assert watching.stderr.readline() == "info: begun\n"
        cancelled = commands.run("cancel", job_id, "--reason", "wrong input")
        assert (cancelled.code, cancelled.out) == (0, "")
        assert cancelled.err == f"{job_id} is being cancelled\n"
        out, err = watching.communicate(timeout=60)
    assert (watching.returncode, out) == (4, "")
    assert err.splitlines()[-1] == (f"arcp-trio: {job_id} was stopped by alice: wrong input")
    listed = {entry["job_id"]: entry["status"] for entry in commands.run("jobs", "--json").objects}
    assert listed[job_id] == "cancelled"
    assert "has ended: cancelled" in commands.refused(1, "cancel", job_id)


def test_the_beginning_of_an_id(commands: Commands) -> None:
    """As git does, commands take the beginning of an id if only one job's id begins so."""
    one, other = (commands.detached("waiting") for _ in range(2))
    end = next(n for n in range(30) if one[:n] != other[:n])
    several = commands.refused(1, "cancel", one[: end - 1])
    assert several.startswith(f"{one[: end - 1]} is the beginning of several ids: job_")
    assert one in several
    assert other in several
    short = one[4:26].lower()
    assert len({each for each in (one, other) if each[4:26].lower() == short}) == 1
    assert commands.run("cancel", short, "--wait").err.endswith(f"{one} has ended: cancelled\n")
    assert one in commands.run("watch", one[:26]).err
    assert commands.run("token", other[:26]).code == 0
    assert "there is no such job" in commands.refused(1, "watch", "job")
    assert "there is no such job" in commands.refused(1, "watch", "0123456789")
    assert commands.run("cancel", other).code == 0


def test_cancel_and_wait(commands: Commands) -> None:
    """With --wait, `cancel` returns once the job has ended, and says how."""
    job_id = commands.detached("waiting")
    done = commands.run("cancel", job_id, "--wait")
    assert (done.code, done.out) == (0, "")
    assert done.err == f"{job_id} is being cancelled\n{job_id} has ended: cancelled\n"
    assert job_id in commands.run("jobs", "--status", "cancelled").out
    again = commands.run("cancel", job_id, "--wait")
    assert (again.code, again.err) == (0, f"{job_id} has ended: cancelled\n")
    job_id = commands.run("submit", "echo", "--detach").out.strip()
    commands.run("watch", job_id)
    assert "has ended: success" in commands.refused(1, "cancel", job_id, "--wait")


@pytest.mark.parametrize("as_json", [False, True])
def test_an_operator_cancels_and_waits(tmp_path: Path, *, as_json: bool) -> None:
    """An operator that may stop a job and not observe it waits for its end all the same."""
    options = ("--token=root=r00t", "--operator=root", "--cancel-grace=1")
    with served(tmp_path, *options) as commands:
        root = evolve(commands, token="r00t")
        job_id = commands.detached("stubborn")
        assert "there is no such job" in root.refused(1, "watch", job_id)
        done = root.run("cancel", job_id, "--wait", *["--json"] * as_json)
        assert done.code == 0
        if as_json:
            ended = {"type": "job.error", "job_id": job_id, "final_status": "cancelled"}
            assert done.objects == [{"type": "job.cancelled", "job_id": job_id}, ended]
        else:
            assert done.err == f"{job_id} is being cancelled\n{job_id} has ended: cancelled\n"
        assert job_id in commands.run("jobs", "--status", "cancelled").out


@pytest.mark.parametrize(
    ("options", "advice"),
    [
        (["--observer=auditor"], "only the job's own principal may stop it"),
        (["--observer=auditor", "--no-stop"], "or wait until that session is over"),
    ],
)
def test_advice_at_a_refused_cancel(tmp_path: Path, options: list[str], advice: str) -> None:
    """The advice to wait is given where waiting can help, which is not the case for an observer."""
    with served(tmp_path, "--token=auditor=s3en", *options) as commands:
        job_id = commands.detached("waiting")
        refused = evolve(commands, token="s3en").refused(1, "cancel", job_id)
        assert refused.rstrip().endswith(advice)


def test_cancel_as_json(commands: Commands) -> None:
    """With --json, `cancel` prints an object for the agreement and one for the end."""
    first, second = commands.detached("waiting"), commands.detached("waiting")
    (agreed,) = commands.run("cancel", first, "--json", "--reason", "wrong input").objects
    assert agreed == {"type": "job.cancelled", "job_id": first, "reason": "wrong input"}
    done = commands.run("cancel", second, "--json", "--wait")
    assert (done.code, done.err) == (0, "")
    agreed, ended = done.objects
    assert agreed["job_id"] == ended["job_id"] == second
    assert (ended["type"], ended["final_status"]) == ("job.error", "cancelled")


def test_detach_as_json(commands: Commands) -> None:
    """With --json the id is in an object."""
    done = commands.run("submit", "echo", "--detach", "--json")
    (said,) = done.objects
    assert said.keys() == {"type", "job_id"}
    assert said["type"] == "detached"


def test_a_job_that_has_ended(commands: Commands) -> None:
    """A job that has ended is shown with all its events and its end."""
    job_id = commands.detached("countdown", "--input", '{"n": 3, "delay": 0}')
    done = commands.run("watch", job_id)
    assert (done.code, done.out) == (0, '{"done":3}\n')
    assert done.err.splitlines()[1:] == [f"progress: {step}/3 steps" for step in (1, 2, 3)]
    *events, last = commands.run("watch", job_id, "--json").objects
    assert [event["body"]["current"] for event in events] == [1, 2, 3]
    assert (last["type"], last["result"]) == ("job.result", {"done": 3})
    *events, _ = commands.run("watch", job_id, "--from-seq", "2", "--json").objects
    assert [event["body"]["current"] for event in events] == [3]


def test_after_the_last_event(commands: Commands) -> None:
    """After the last event there is nothing to show; the exit code is that of the job's end."""
    for agent, code, status in (("echo", 0, "success"), ("failing", 1, "error")):
        job_id = commands.run("submit", agent, "--json").objects[-1]["job_id"]
        done = commands.run("watch", job_id, "--from-seq", "99")
        assert (done.code, done.out) == (code, "")
        assert done.err.splitlines()[1:] == [
            f"the job ended before: {status}; without --from-seq all of it is shown"
        ]


@pytest.mark.parametrize(
    ("arguments", "code"), [(("failing",), 1), (("sleeper", "--max-runtime", "1"), 5)]
)
def test_how_it_ended_is_the_exit_code(
    commands: Commands, arguments: tuple[str, ...], code: int
) -> None:
    """`watch` ends with the exit code that `submit` has for the same end."""
    assert commands.run("watch", commands.detached(*arguments)).code == code


def test_no_such_job(commands: Commands) -> None:
    """An unknown job can be neither watched nor cancelled."""
    words = "refused: JOB_NOT_FOUND: there is no such job; arcp-trio jobs --all lists"
    assert words in commands.refused(1, "watch", "job_1")
    assert words in commands.refused(1, "cancel", "job_1")


def test_while_its_submitter_is_connected(commands: Commands) -> None:
    """`cancel` ends a job while another process waits for it, which is told who did it."""
    with commands.start("submit", "waiting") as submitting:
        assert submitting.stderr is not None
        job_id = submitting.stderr.readline().split()[0]
        assert commands.run("cancel", job_id).code == 0
        _, err = submitting.communicate(timeout=60)
    assert submitting.returncode == 4
    assert f"{job_id} was stopped by alice\n" in err


def test_after_its_submitter_was_killed(commands: Commands) -> None:
    """`cancel` ends the job of a process that was killed, at once."""
    with commands.start("submit", "waiting", "--json") as submitting:
        assert submitting.stdout is not None
        job_id = submitting.stdout.readline().partition('"job_id":"')[2].partition('"')[0]
        submitting.kill()
        submitting.communicate(timeout=60)
    assert commands.run("cancel", job_id).code == 0
    assert commands.run("watch", job_id).code == 4


def test_ctrl_c_leaves(commands: Commands) -> None:
    """Ctrl-C ends `watch` with 130, and the job goes on."""
    job_id = commands.detached("waiting")
    with commands.start("watch", job_id) as watching:
        assert watching.stderr is not None
        watching.stderr.readline()
        watching.send_signal(signal.SIGINT)
        out, _ = watching.communicate(timeout=60)
    assert (watching.returncode, out) == (130, "")
    assert job_id in commands.run("jobs", "--status", "running").out
    commands.run("cancel", job_id)
