"""The log's two formats: one line for each fact, whatever is in it."""

from __future__ import annotations

import json
import logging
import math
import re
import signal
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arcp_trio.log_lines import JsonFormatter, TextFormatter
from tests.cli.processes import ROOT, Starter, peer

ANY_TEXT = st.text(st.characters(exclude_categories=()))  # lone surrogates, too


def record(
    message: str = "job ended",
    *args: object,
    exception: BaseException | None = None,
    **fields: object,
) -> logging.LogRecord:
    """Return a record as a log call with `extra` makes it."""
    made = logging.LogRecord(
        *("arcp_trio.runtime.job.job", logging.INFO, __file__, 1, message, args),
        None if exception is None else (type(exception), exception, exception.__traceback__),
    )
    made.created = 1_700_000_000.1239
    vars(made).update(fields)
    return made


def raised(message: str) -> BaseException:
    """Return an exception with a traceback."""

    def fail() -> None:
        raise ValueError(message)

    with pytest.raises(ValueError) as caught:  # noqa: PT011 - it is ours
        fail()
    return caught.value


def whole(text: str) -> str:
    """Return the text with each pair of surrogates made one character."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")


def test_a_line_of_json() -> None:
    """A line of JSON has time, level, logger and event, then the fields in their own types."""
    line = JsonFormatter().format(record("%d done", 3, job_id="job_1", seconds=0.5, code=None))
    assert line == (
        '{"ts": "2023-11-14T22:13:20.123Z", "level": "info", '
        '"logger": "arcp_trio.runtime.job.job", '
        '"event": "3 done", "job_id": "job_1", "seconds": 0.5}'
    )


def test_a_line_of_text() -> None:
    """A line of text has the message, then the fields, quoted where they need it."""
    made = record(job_id="job_1", seconds=0.5, error='no "x" = y', empty="", code=None)
    assert TextFormatter().format(made) == (
        "2023-11-14T22:13:20.123Z info    arcp_trio.runtime.job.job: job ended "
        'job_id=job_1 seconds=0.5 error="no \\"x\\" = y" empty=""'
    )


def test_an_exception_is_a_field_of_json() -> None:
    """The whole traceback is a field of the one line."""
    line = JsonFormatter().format(record(exception=raised("first\nsecond é漢😀")))
    assert "\n" not in line
    trace = json.loads(line)["exception"]
    assert trace.startswith("Traceback (most recent call last):\n")
    assert trace.endswith("ValueError: first\nsecond é漢😀")
    assert "é漢😀" in line


def test_an_exception_of_text_stands_behind_bars() -> None:
    """Each line of a traceback has a bar before it, so that none looks like a fact."""
    forged = "oops\n2023-11-14T22:13:20.123Z info    arcp_trio: all is well\r\x1b[2K\u2028done"
    first, *others = TextFormatter().format(record(exception=raised(forged))).split("\n")
    assert first.endswith("job ended")
    assert all(line.startswith("  | ") for line in others)
    assert others[-1] == "  | done"
    assert "\x1b" not in "".join(others)


@given(message=ANY_TEXT, value=ANY_TEXT, error=ANY_TEXT)
def test_nothing_breaks_a_line(message: str, value: str, error: str) -> None:
    """Newlines, control characters and surrogates of any text are escaped."""
    made = record("%s", message, value=value, exception=raised(error))
    line = JsonFormatter().format(made)
    assert line.splitlines() == [line]
    line.encode()
    read = json.loads(line)
    assert (read["event"], read["value"]) == (whole(message), whole(value))
    made = record("%s", message, value=value)
    line = TextFormatter().format(made)
    assert line.splitlines() == [line]
    assert not re.search(r"[\x00-\x1f\x7f-\x9f\u202e]", line)
    line.encode()


@pytest.mark.parametrize(
    "field", [math.nan, math.inf, {1, 2}, b"bytes", {("a",): 1}, object(), [raised("x")]]
)
def test_a_field_may_be_anything(field: object) -> None:
    """A field that is not JSON is written as text, and the rest of the line as usual."""
    made = record(field=field, seconds=1)
    read = json.loads(JsonFormatter().format(made))
    assert read["event"] == "job ended"
    assert isinstance(read["field"], str | list)
    assert "job ended field=" in TextFormatter().format(made)


def test_a_field_cannot_pass_for_what_every_line_has() -> None:
    """A field cannot replace the time, the level, the logger or the event."""
    read = json.loads(JsonFormatter().format(record(ts="never", event="nothing", logger="me")))
    assert read["ts"] == "2023-11-14T22:13:20.123Z"
    assert read["event"] == "job ended"
    assert read["logger"] == "arcp_trio.runtime.job.job"


@pytest.mark.real_tcp
def test_a_process_that_logs_json(start: Starter) -> None:
    """At level debug every line is an object, and none has the token."""
    served = start(
        *("serve", "--memory", "--port=0", "--token=alice=hunter2"),
        *("--log-format=json", "--log-level=debug"),
    )
    with peer(served.url(), "hunter2") as session:
        session.run("countdown", {"n": 2, "delay": 0})
        session.send("job.submit", {"agent": "é\n"})
        session.receive()
    served.send_signal(signal.SIGTERM)
    code, _, err = served.end()
    assert code == 0
    assert "hunter2" not in err
    lines = [json.loads(line) for line in err.splitlines()]
    assert all({"ts", "level", "logger", "event"} <= set(line) for line in lines)
    assert {"job ended", "submit refused", "runtime over"} <= {line["event"] for line in lines}
    assert any(not line["logger"].startswith("arcp_trio") for line in lines)


SCRIPT = """
import logging, sys
from arcp_trio.cli.logs import set_up
set_up(*sys.argv[1:])
text = "said \\u00e9\\u6f22\\U0001f600\\udc80"
logging.getLogger("arcp_trio.x").info(text, extra={"job_id": "job_1"})
logging.getLogger("trio-websocket").info("noise")
logging.getLogger("trio-websocket").warning("news")
logging.getLogger("psycopg").warning("noise")
logging.getLogger("mine").debug("detail")
"""


def log_of(level: str, style: str, **environment: str) -> list[str]:
    """Return the lines that a process logs with this level and style."""
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, level, style],
        cwd=ROOT,
        env={"PYTHONPATH": str(ROOT), **environment},
        check=True,
        capture_output=True,
        timeout=60,
    )
    assert done.stdout == b""
    return done.stderr.decode().splitlines()


def test_it_is_utf8_whatever_the_locale() -> None:
    """The log is UTF-8 under any locale and encoding of the process."""
    (said, news) = log_of("info", "json", LC_ALL="C", PYTHONIOENCODING="latin1", PYTHONUTF8="0")
    assert json.loads(said)["event"] == "said é漢😀\udc80"
    assert "é漢😀" in said
    assert json.loads(news)["level"] == "warning"


def test_levels() -> None:
    """At debug all is logged, else libraries from warning on; psycopg raises what it warns of."""
    assert len(log_of("info", "text")) == 2
    assert len(log_of("debug", "text")) == 5
    assert [line.split()[-1] for line in log_of("warning", "text")] == ["news"]
    assert log_of("error", "text") == []
