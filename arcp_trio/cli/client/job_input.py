"""The input of the job that `submit` submits: JSON, or a prompt."""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path
from typing import Final

from arcp_trio.cli.client.options import SubmitOptions
from arcp_trio.cli.errors import CommandError, plainly, reason
from arcp_trio.wire import json
from arcp_trio.wire.errors import InvalidRequest
from arcp_trio.wire.json import JsonObject, JsonValue, dumps

_STRUCTURED: Final = ("{", "[", '"')
_NO_JSON: Final = ("not valid JSON", "number is not finite")
_QUOTES: Final = """; JSON has double quotes, which a shell leaves alone in '{"n": 3}'"""
_LONG: Final = 80
"""Characters of an --input from which on an error does not repeat it."""


def input_of(options: SubmitOptions) -> JsonValue:
    """Return the input that the options give.

    Raises:
        CommandError: it cannot be read, or is not JSON, or the options contradict each other.
    """
    if options.prompt is None:
        for flag, value in (("--cwd", options.cwd), ("--session", options.session)):
            if value is not None:
                raise CommandError(f"{flag} is for a prompt: give --prompt TEXT, too")
        return read_input(options.input)
    if options.input is not None:
        raise CommandError("--prompt and --input are two ways to say the input; give one")
    given: JsonObject = {"prompt": options.prompt}
    if options.cwd is not None:
        given["cwd"] = os.path.abspath(options.cwd)  # noqa: PTH100 - links are the runtime's affair
    if options.session is not None:
        given["session"] = options.session
    return given


def read_input(given: str | None) -> JsonValue:
    """Return the agent's input: JSON, or what is in a file or on standard input.

    Raises:
        CommandError: it cannot be read, or is not JSON.
    """
    if given is None:
        return None
    where, text = "--input", given
    if given == "-":
        where = "standard input"
        text = _decoded(sys.stdin.buffer.read(), where)
    elif given.startswith("@"):
        where = given[1:]
        if not where:
            raise CommandError("--input @ names no file; write @FILE")
        try:
            text = _decoded(Path(where).read_bytes(), where)
        except OSError as error:
            raise CommandError(f"cannot read the input {where}: {reason(error)}") from error
    try:
        return json.loads(text)
    except InvalidRequest as error:
        fault = plainly(error.message)
        if text is given and not text.startswith(_STRUCTURED) and fault.startswith(_NO_JSON):
            raise CommandError(_not_json(text)) from error
        bare = text is given and '"' not in text and fault.startswith(_NO_JSON)
        hint = _QUOTES if bare else ""
        raise CommandError(f"{where} cannot be sent: {fault}{hint}") from error


def _not_json(text: str) -> str:
    """Return what to type in place of an --input that seems to be meant as text."""
    if len(text) > _LONG:
        return """--input is not JSON; text needs quotes of its own: --input '"text"'"""
    if Path(text).is_file():
        return (
            f"--input {text} is not JSON; to send what is in the file, write {_option(f'@{text}')}"
        )
    return f"--input {text} is not JSON; to send text, write {_option(dumps(text).decode())}"


def _option(value: str) -> str:
    return f"--input {shlex.quote(value)}"


def _decoded(data: bytes, where: str) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise CommandError(f"{where} is not UTF-8 text") from error
