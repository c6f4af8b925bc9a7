"""How options of the command line are read."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arcp_trio import Limits
from arcp_trio.cli import main, value_kinds
from arcp_trio.cli.parser import build_parser
from arcp_trio.cli.serve.config import merge
from arcp_trio.cli.serve.options import ServeOptions


def parsed(*arguments: str) -> dict[str, object]:
    """Parse the arguments of `serve`; return the values that were given."""
    given_options = vars(build_parser().parse_args(["serve", *arguments]))
    del given_options["command"]
    return given_options


def refusal(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """Return the one line of a usage error."""
    with pytest.raises(SystemExit) as caught:
        main(["serve", *arguments])
    assert caught.value.code == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.endswith("\n")
    assert err.count("\n") == 1
    return err.rstrip()


def test_only_given_options_are_returned() -> None:
    """An option that is not given is absent, so that the file can set it."""
    assert parsed() == {}
    assert parsed("--demo-agents", "--port", "0") == {"demo_agents": True, "port": 0}


def test_repeatable_options_collect_in_order() -> None:
    """A repeated option keeps all its values, in the order of the command line."""
    assert parsed("--agents", "b", "--agents", "a") == {"agents": ["b", "a"]}


@pytest.mark.parametrize(
    ("arguments", "value"),
    [
        (("--port", "65535"), 65535),
        (("--resume-window", "1"), 1),
        (("--heartbeat", "2147483647"), 2147483647),
        (("--drain", "0"), 0.0),
        (("--drain", "1.5"), 1.5),
        (("--cancel-grace", "1e3"), 1000.0),
        (("--log-level", "debug"), "debug"),
        (("--synchronous", "normal"), "normal"),
        (("--token", "alice=a=b=="), ["alice=a=b=="]),
    ],
)
def test_values_within_their_kind(arguments: tuple[str, str], value: object) -> None:
    """A good value is read as a value of its kind."""
    assert list(parsed(*arguments).values()) == [value]


@pytest.mark.parametrize(
    "arguments",
    [
        ("--port", "65536"),
        ("--port", "-1"),
        ("--port", "http"),
        ("--resume-window", "0"),
        ("--resume-window", "0.5"),
        ("--heartbeat", "2147483648"),
        ("--drain", "-1"),
        ("--drain", "nan"),
        ("--drain", "inf"),
        ("--cancel-grace", "soon"),
        ("--log-level", "loud"),
        ("--synchronous", "FULL"),
        ("--host", ""),
        ("--token", ""),
        ("--data",),
    ],
)
def test_values_outside_their_kind(
    capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...]
) -> None:
    """A bad value is refused in one line that names its option."""
    assert f"argument {arguments[0]}: " in refusal(capsys, *arguments)


def test_memory_excludes_data(capsys: pytest.CaptureFixture[str]) -> None:
    """--memory and --data exclude each other."""
    assert "--memory" in refusal(capsys, "--memory", "--data", "somewhere")


@pytest.mark.parametrize(
    "arguments",
    [
        ("--tokn", "alice=hush"),
        ("--tokn=alice=hush",),
        ("--token", "alice", "=hush"),
        ("alice=hush",),
        ("-thush",),
    ],
)
def test_unknown_arguments_are_not_repeated(
    capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...]
) -> None:
    """A mistyped --token does not put the token on the terminal."""
    assert "hush" not in refusal(capsys, *arguments)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("submit", "echo", "hello"), "submit takes one argument, AGENT[@VERSION], and options; a"),
        (("jobs", "all"), "jobs takes options only; a value with spaces needs quotes"),
        (("submit", "echo", "-i", "5"), "unknown option -i; see arcp-trio submit --help"),
    ],
)
def test_what_a_command_takes(
    capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], words: str
) -> None:
    """An argument too many is answered by what the command takes."""
    with pytest.raises(SystemExit):
        main(arguments)
    assert words in capsys.readouterr().err


def test_options_are_not_abbreviated(capsys: pytest.CaptureFixture[str]) -> None:
    """An abbreviated option is refused, so that new options cannot change its meaning."""
    said = refusal(capsys, "--mem")
    assert "unknown option --mem (did you mean --memory?); see arcp-trio serve --help" in said


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("sevre",), "there is no command 'sevre' (did you mean serve?); see arcp-trio --help"),
        (("frobnicate",), "there is no command 'frobnicate'; the commands are serve, submit, "),
        (
            ("ping", "--cuont=3"),
            "unknown option --cuont (did you mean --count?); see arcp-trio ping",
        ),
        (("nodes", "--url=x"), "unknown option --url; see arcp-trio nodes"),
        (("--verison",), "unknown option --verison; see arcp-trio --help"),
    ],
)
def test_a_mistyped_word(
    capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], words: str
) -> None:
    """A command or an option that is much like the given one is named, on one line."""
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert caught.value.code == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(f"arcp-trio: {words}")
    assert err.count("\n") == 1


@given(value=st.integers() | st.floats() | st.text() | st.booleans() | st.none())
def test_kinds_take_any_value_of_a_file(value: object) -> None:
    """A kind accepts or refuses any value, and never takes a boolean for a number."""
    for kind in (value_kinds.PORT, value_kinds.SECONDS, value_kinds.WHOLE_SECONDS):
        assert kind.accepts(value) in (True, False)
        assert not (isinstance(value, bool) and kind.accepts(value))


def test_the_command_line_wins_over_the_file() -> None:
    """An option of the command line replaces that of the file, also a list."""
    configured = {"port": 1, "agents": ["a"], "drain": 3}
    assert merge({"port": 2, "agents": ["b"]}, configured) == {
        "port": 2,
        "agents": ["b"],
        "drain": 3,
    }


def test_memory_and_data_win_over_each_other() -> None:
    """Of `memory` and `data`, the command line's replaces the file's."""
    assert merge({"memory": True}, {"data": "kept"}) == {"memory": True}
    assert merge({"data": "kept"}, {"memory": True}) == {"data": "kept"}


def test_help_states_the_defaults(capsys: pytest.CaptureFixture[str]) -> None:
    """The defaults in the help are those of the options and of the runtime's limits."""
    with pytest.raises(SystemExit) as caught:
        main(["serve", "--help"])
    assert caught.value.code == 0
    text = " ".join(capsys.readouterr().out.partition("options:")[2].split())
    stated = dict(re.findall(r"--([a-z-]+) [A-Z]+ [^()]*\(default ([^ )]+)\)", text))
    settings, limits = ServeOptions(), Limits()
    assert stated == {
        "host": settings.host[0],
        "port": str(settings.port),
        "data": settings.data,
        "resume-window": str(limits.resume_window_seconds),
        "heartbeat": str(limits.heartbeat_seconds),
        "drain": f"{settings.drain:g}",
        "cancel-grace": f"{limits.cancel_grace_seconds:g}",
        "log-level": settings.log_level,
        "synchronous": settings.synchronous,
        "sandbox": settings.sandbox,
    }


def test_no_command_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    """Without a command there is the help, on stderr, and exit code 2."""
    assert main([]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("usage: arcp-trio")


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    """`--version` prints the name of the program and its version."""
    from arcp_trio import __version__

    with pytest.raises(SystemExit) as caught:
        main(["--version"])
    assert caught.value.code == 0
    assert capsys.readouterr().out == f"arcp-trio {__version__}\n"
