"""How this project tests; read before adding a test.

- A test is a plain function, async when it needs Trio (pytest-trio runs it), with one sentence
  saying what it shows.
- Time is virtual: `autojump_clock`, as an argument of the test itself (pytest-trio looks nowhere
  else for it), for anything that waits. No test sleeps for real;
  `trio.testing.wait_all_tasks_blocked` and `Sequencer` order things. Autojump clocks know nothing
  of threads: use them with the memory store and memory streams only.
- A test that does real I/O (marker `real_tcp`: loopback and port 0) stands under an absolute
  `trio.fail_after`.
- Most tests speak the wire or the public API. Grammars and invariants are tested with Hypothesis;
  fixtures live longer than an example, so virtual time under `@given` is a run of its own:
  `trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))`.
- A test that shows a clause of the specification says which: `@pytest.mark.spec("6.3-2")`. The
  clauses are in `tests/conformance/clauses.toml`; `make conformance` writes what passed to
  `docs/conformance.md`.
- A warning fails the test, and so does a log record of level ERROR or above, unless the test says
  that it expects one: `@pytest.mark.logs_error("regex")`. An expected record that never comes
  fails the test as well.
- `soak` marks what runs for minutes: `make soak` runs it, `make test` does not.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Iterator

import hypothesis
import pytest

from arcp_trio.cli.logs import TextFormatter

pytest_plugins = ["pytester", "tests.conformance.plugin"]

# No deadline per example: its cost depends on who else uses the machine, and pytest-timeout bounds
# the test as a whole.
hypothesis.settings.register_profile("dev", deadline=None)
# The same examples in every run: a change that did not cause a failure must not meet it.
hypothesis.settings.register_profile(
    "ci", deadline=None, derandomize=True, database=None, print_blob=True
)
hypothesis.settings.load_profile("ci" if os.environ.get("CI") else "dev")


class _Errors(logging.Handler):
    """Keeps what is logged at level ERROR and above."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.setFormatter(TextFormatter())
        self.messages: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.messages.append(self.format(record))


@pytest.fixture(autouse=True)
def _no_unexpected_error_logs(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fail a test that logs an error it did not announce, or announces one that is not logged."""
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
    assert not missing, f"expected in the log, but never came: {missing}"
