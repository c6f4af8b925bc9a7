"""Questions of durable jobs with real processes: `kill -9`, SIGTERM, and a store on disk."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.cli.processes import LIFETIME_SECONDS, ROOT, Serve, starter

pytestmark = pytest.mark.real_tcp

AGENTS = """
import arcp_trio

agents = arcp_trio.Agents()

@agents.agent("curious", durable=True)
async def curious(job):
    answers = []
    for prompt in job.input:
        answers.append(await job.ask(prompt))
        with open("answers", "a") as file:
            print(prompt, file=file)
    return answers + [job.run]
"""
OPTIONS = ("--port=0", "--data=data", "--agents=agents_that_ask", "--log-level=error")


def run(folder: Path, *arguments: str) -> str:
    """Run a client command, and return its standard output."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("ARCP_")}
    done = subprocess.run(
        [sys.executable, "-m", "arcp_trio", *arguments, "--data=data"],
        cwd=folder,
        env={**kept, "PYTHONPATH": str(ROOT)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=LIFETIME_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def asked(folder: Path, job_id: str, prompt: str) -> str:
    """Wait until a job asks this, and return the question's id."""
    ends = time.monotonic() + LIFETIME_SECONDS
    while time.monotonic() < ends:
        for line in run(folder, "jobs", "--waiting", "--json").splitlines():
            info = json.loads(line)
            for question in info["waiting"]:
                if (info["job_id"], question["prompt"]) == (job_id, prompt):
                    return str(question["question_id"])
    raise AssertionError(f"{job_id} does not ask {prompt!r}")


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_questions_and_answers_outlast_the_process(number: int, tmp_path: Path) -> None:
    """Killed or stopped while it asks: the question is there again, and no answer is lost."""
    (tmp_path / "agents_that_ask.py").write_text(AGENTS, encoding="utf-8")
    with starter(tmp_path, lifetime=5 * LIFETIME_SECONDS) as start:
        served = begin(start("serve", *OPTIONS))
        prompts = ["one?", "two?"]
        submit = ("submit", "curious", "--detach", "--lease=tool.call=human.ask")
        job_id = run(tmp_path, *submit, "--input", json.dumps(prompts)).strip()
        for prompt in prompts:
            before = asked(tmp_path, job_id, prompt)
            end(served, number)
            served = begin(start("serve", *OPTIONS))
            assert asked(tmp_path, job_id, prompt) == before
            run(tmp_path, "answer", job_id, f"to {prompt}")
        lines = run(tmp_path, "watch", job_id, "--json").splitlines()
        end(served, signal.SIGTERM)
    *events, terminal = map(json.loads, lines)
    assert terminal["result"] == ["to one?", "to two?", 3]
    kinds = [event["kind"] for event in events]
    assert kinds.count("x-vendor.arcp-trio.question") == kinds.count("tool_call") == 2
    assert [event["body"]["run"] for event in events if event["kind"] == "status"] == [2, 3]


def begin(served: Serve) -> Serve:
    """Wait until a process listens."""
    served.url()
    return served


def end(served: Serve, number: int) -> None:
    """End a process by a signal, and wait until it is gone."""
    served.send_signal(number)
    code, _, said = served.end()
    assert code == (0 if number == signal.SIGTERM else -number), said
