"""How this project tests; read this before adding a test.

- A test is a plain function, async when it needs Trio (pytest-trio runs it). Its docstring is one
  sentence that says what the test shows.
- Time is virtual: a test that waits for anything takes `autojump_clock` as an argument of its own
  (pytest-trio looks for it nowhere else). No test sleeps in real time;
  `trio.testing.wait_all_tasks_blocked` and `Sequencer` order events. An autojump clock does not
  wait for threads: use it with the memory store and memory streams only.
- A test with real I/O (marker `real_tcp`: loopback and port 0) runs under an absolute
  `trio.fail_after`.
- The folders under `tests/` follow the parts of the project or the promises that they keep. A
  folder's support modules have what its tests share; no test module imports another one.
- All folders share `tests/stage.py`: `make_runtime` makes a runtime in virtual time with the usual
  principals, and a folder's `Stage` is such a runtime with the folder's agents, its store, and
  clients. `tests/reading.py` receives frames, `tests/slow_stores.py` has stores that take their
  time, and `tests/footprint.py` counts tasks, file descriptors and memory,
  and `tests/processes.py` tells which processes are alive.
- Most tests speak the wire or the public API, and read figures from the runtime's metrics
  (`tests/metrics.py`). Only `tests/inside.py` names internals of a runtime, for what cannot be seen
  from outside, and `tests/defects.py`, which puts defects into a runtime to show that a check finds
  them. A unit test of one module imports that module.
- Grammars and invariants are tested with Hypothesis. Fixtures live longer than an example, so
  virtual time under `@given` is a run of its own:
  `trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))`.
- A test that shows a clause of the specification names it: `@pytest.mark.spec("6.3-2")`. The
  clauses are in `tests/conformance/clauses.toml`; `make conformance` writes the outcomes to
  `docs/conformance.md`.
- A test of each limit is named in `tests/limits/test_covered.py`.
- A warning fails the test, and so does a log record of level ERROR or above, unless the test
  expects it: `@pytest.mark.logs_error("regex")`. An expected record that does not come fails the
  test, too.
- How fast the runtime is shows in counts, not in times: `tests/speed` counts what it does for each
  event, job and session.
- `sandbox` marks tests that build sandboxes. Where that is not possible, they are skipped, and the
  summary says why.
- `postgres` marks tests that need a PostgreSQL. `tests/postgres.py` starts one for the run, and
  gives a test an empty database (`database`) or a server of its own. Where that is not possible,
  they are skipped, and the summary says why; but in CI they fail.
- `alone` marks tests that measure delays: `make test` runs them after the others, one at a time.
- `soak` marks tests that run for minutes: `make soak` runs them, `make test` does not.
"""

from __future__ import annotations

import functools
import logging
import os
import re
import subprocess
from collections.abc import Iterator

import hypothesis
import pytest

from arcp_trio.log_lines import TextFormatter

pytest_plugins = ["pytester", "tests.conformance.plugin", "tests.postgres"]

# No deadline per example: its time depends on the load of the machine, and pytest-timeout bounds
# the test as a whole.
hypothesis.settings.register_profile("dev", deadline=None)
# The same examples in every run: a change must not meet a failure that it did not cause.
hypothesis.settings.register_profile(
    "ci", deadline=None, derandomize=True, database=None, print_blob=True
)
hypothesis.settings.load_profile("ci" if os.environ.get("CI") else "dev")


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip a test that needs a sandbox where none can be built."""
    if item.get_closest_marker("sandbox") is not None:
        reason = _why_no_sandbox()
        if reason is not None:
            pytest.skip(f"no sandbox: {reason}")


@functools.cache
def _why_no_sandbox() -> str | None:
    """Try bubblewrap alone: where it works, sandboxes of this project have to work."""
    command = ["bwrap", "--unshare-all", "--ro-bind", "/", "/", "true"]
    try:
        done = subprocess.run(  # noqa: S603 - our own words
            command, capture_output=True, text=True, timeout=60, check=False
        )
    except FileNotFoundError:
        return "bubblewrap is not installed"
    return done.stderr.strip() if done.returncode else None


class _Errors(logging.Handler):
    """A handler that keeps records of level ERROR and above."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.setFormatter(TextFormatter())
        self.messages: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.messages.append(self.format(record))


@pytest.fixture(autouse=True)
def _no_unexpected_error_logs(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fail a test that logs an unexpected error, or does not log an expected one."""
    expected = [str(mark.args[0]) for mark in request.node.iter_markers("logs_error")]
    handler = _Errors()
    logging.getLogger().addHandler(handler)
    try:
        yield
    finally:
        logging.getLogger().removeHandler(handler)
    unexpected = [m for m in handler.messages if not any(re.search(e, m) for e in expected)]
    assert not unexpected, "logged without being expected:\n" + "\n".join(unexpected)
    missing = [e for e in expected if not any(re.search(e, m) for m in handler.messages)]
    assert not missing, f"expected in the log, but not logged: {missing}"
