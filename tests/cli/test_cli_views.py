"""`arcp-trio token`: a token for looking, from a running runtime, which outlasts a restart."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
from attrs import evolve

from tests.cli.clients import TOKEN, Commands
from tests.cli.processes import starter

pytestmark = pytest.mark.real_tcp


def test_a_token_for_looking(commands: Commands) -> None:
    """With a token for one job, that job is listed, and neither cancelled nor another one seen."""
    job, other = commands.detached("waiting"), commands.detached("echo")
    done = commands.run("token", job, "--expires-in", "10m")
    assert (done.code, done.err) == (0, "")
    looker = evolve(commands, token=done.out.strip())
    assert [each["job_id"] for each in looker.run("jobs", "--json").objects] == [job]
    assert "this token is for looking only" in looker.refused(1, "cancel", job)
    assert "JOB_NOT_FOUND" in looker.refused(1, "watch", other)
    (made,) = commands.run("token", "--json").objects
    everything = evolve(commands, token=made["token"])
    assert {job, other} <= {each["job_id"] for each in everything.run("jobs", "--json").objects}
    assert "x-vendor.arcp-trio.tokens" in everything.refused(1, "token")
    assert "seconds: a token is good for" in commands.refused(1, "token", "--expires-in", "2d")
    assert "JOB_NOT_FOUND" in commands.refused(1, "token", "job_01ARZ3NDEKTSV4RRFFQ69G5FAV")


def test_it_outlasts_a_restart(tmp_path: Path) -> None:
    """A token is good at the next `serve` of the folder."""
    with starter(tmp_path) as start:
        options = ("serve", "--port=0", f"--token=alice={TOKEN}", "--log-level=error")
        first = start(*options)
        commands = Commands(first.url(), tmp_path)
        job = commands.detached("echo")
        token = commands.run("token", job).out.strip()
        first.send_signal(signal.SIGTERM)
        first.end()
        looker = Commands(start(*options).url(), tmp_path, token)
        assert [each["job_id"] for each in looker.run("jobs", "--json").objects] == [job]
