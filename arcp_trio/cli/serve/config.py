"""`serve --config FILE.toml`: the options under [serve], the runtime's bounds under [limits]."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final, cast

import attrs

from arcp_trio.cli.errors import CommandError, reason
from arcp_trio.cli.options import NETWORK, SERVE, ServeOptions, merge
from arcp_trio.runtime.limits import Limits

STDIO_CHUNK_BYTES: Final = 32 * 1024
"""Of a streamed result, unless it is given: some clients take no line of more than 64 KiB."""


ReadFile = Callable[[Path], bytes]
"""How files are read: at the start also a pipe that the shell has made for one."""


@attrs.frozen(kw_only=True)
class Config:
    """All settings of one `serve`."""

    options: ServeOptions
    limits: Limits


def settle(given: Mapping[str, object], *, read: ReadFile = Path.read_bytes) -> Config:
    """Join what the command line gives with the configuration file that it names, if any."""
    named = dict(given)
    path = named.pop("config", None)
    tables = {} if path is None else _tables(Path(cast("str", path)), read)
    configured = _options(tables.get("serve", {}), f"{path}: [serve]")
    merged = merge(named, configured)
    _check_stdio(merged)
    options = ServeOptions(**merged)  # type: ignore[arg-type]  # each was held against its kind
    bounds = _bounds(tables.get("limits", {}), f"{path}: [limits]")
    return Config(options=options, limits=_limits(options, bounds, f"{path}: [limits]"))


def _check_stdio(merged: Mapping[str, object]) -> None:
    network = [f"--{name.replace('_', '-')}" for name in NETWORK if name in merged]
    if merged.get("stdio") and network:
        raise CommandError(f"--stdio listens nowhere; leave out {', '.join(network)}")


def _tables(path: Path, read: ReadFile) -> dict[str, dict[str, object]]:
    try:
        document: dict[str, object] = tomllib.loads(read(path).decode())
    except OSError as error:
        raise CommandError(f"cannot read the configuration {path}: {reason(error)}") from error
    except UnicodeDecodeError as error:
        raise CommandError(f"the configuration {path} is not UTF-8 text") from error
    except ValueError as error:
        raise CommandError(f"{path} is not a TOML file: {error}") from error
    for name, table in document.items():
        if name not in ("serve", "limits"):
            raise CommandError(f"{path}: unknown key {name}; the tables are [serve] and [limits]")
        if not isinstance(table, dict):
            raise CommandError(f"{path}: {name} must be a table, [{name}]")
    return cast("dict[str, dict[str, object]]", document)


def _options(table: Mapping[str, object], where: str) -> dict[str, object]:
    known = {option.name: option for option in SERVE}
    for key, value in table.items():
        if key not in known:
            raise CommandError(f"{where} unknown key {key}; its keys are the options, with _ for -")
        if not known[key].accepts(value):
            raise CommandError(f"{where} {key} must be {known[key].wants}")
    if table.get("memory") and "data" in table:
        raise CommandError(f"{where} has both memory and data; keep one of them")
    return dict(table)


def _bounds(table: Mapping[str, object], where: str) -> dict[str, float]:
    known = {field.name: field.type for field in attrs.fields(attrs.resolve_types(Limits))}
    bounds: dict[str, float] = {}
    for key, value in table.items():
        if key not in known:
            raise CommandError(f"{where} unknown key {key}; its keys are those of arcp_trio.Limits")
        if _is_whole(value) or (known[key] is float and _is_finite(value)):
            bounds[key] = cast("float", value)
        else:
            wants = "number" if known[key] is float else "whole number"
            raise CommandError(f"{where} {key} must be a {wants}")
    return bounds


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_finite(value: object) -> bool:
    return isinstance(value, float) and math.isfinite(value)


def _limits(options: ServeOptions, bounds: dict[str, float], where: str) -> Limits:
    by_flag = {
        "resume_window_seconds": options.resume_window,
        "heartbeat_seconds": options.heartbeat,
        "cancel_grace_seconds": options.cancel_grace,
    }
    if options.stdio:
        bounds = {"chunk_bytes": STDIO_CHUNK_BYTES} | bounds
    chosen = bounds | {key: value for key, value in by_flag.items() if value is not None}
    try:
        return Limits(**chosen)  # type: ignore[arg-type]  # held against the fields' types above
    except ValueError as error:
        raise CommandError(f"{where} {error}") from error
