"""`serve --config FILE.toml`: options under [serve], limits under [limits], and ceilings."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final, cast

import attrs

from arcp_trio.authority.ceiling import Ceiling
from arcp_trio.cli.defaults import STORE_VARIABLE
from arcp_trio.cli.errors import CommandError, did_you_mean, reason
from arcp_trio.cli.options import flag_of, options_of
from arcp_trio.cli.serve.ceilings import read_ceilings
from arcp_trio.cli.serve.options import EXCLUDES, KEPT_IN, NETWORK, ServeOptions
from arcp_trio.cli.value_kinds import is_finite, is_whole
from arcp_trio.runtime.limits import Limits

STDIO_CHUNK_BYTES: Final = 32 * 1024
"""The default of `chunk_bytes` with --stdio: some clients read no line of more than 64 KiB."""

_TABLES: Final = {
    "serve": "[serve]",
    "limits": "[limits]",
    "ceiling": "[ceiling.PRINCIPAL]",
}

ReadFile = Callable[[Path], bytes]
"""Reads a file. At the start, a named pipe that the shell has made is as good as a file."""


@attrs.frozen(kw_only=True)
class Config:
    """All settings of one `serve`."""

    options: ServeOptions
    limits: Limits
    ceilings: Mapping[str, Ceiling] = attrs.field(factory=dict[str, Ceiling])


def settle(given: Mapping[str, object], *, read: ReadFile = Path.read_bytes) -> Config:
    """Return the settings that the command line and its configuration file, if any, give together.

    Raises:
        CommandError: the file cannot be used, or the settings contradict each other.
    """
    named = dict(given)
    path = named.pop("config", None)
    tables = {} if path is None else _tables(Path(cast("str", path)), read)
    configured = _options(tables.get("serve", {}), f"{path}: [serve]")
    merged = merge(named, configured)
    _check_stdio(merged)
    _find_store(merged)
    options = ServeOptions(**merged)  # type: ignore[arg-type]  # each value is of its option's kind
    return Config(
        options=options,
        limits=_limits(options, tables.get("limits", {}), f"{path}: [limits]"),
        ceilings=read_ceilings(tables.get("ceiling", {}), f"{path}: [ceiling"),
    )


def merge(given: Mapping[str, object], configured: Mapping[str, object]) -> dict[str, object]:
    """Return the options of the file, each replaced by what the command line says about it.

    An option on the command line also removes the options of the file that it excludes.
    """
    excluded = {other for name in given for other in EXCLUDES.get(name, ())}
    kept = {name: value for name, value in configured.items() if name not in excluded}
    return {**kept, **given}


def _check_stdio(merged: Mapping[str, object]) -> None:
    network = [flag_of(name) for name in NETWORK if name in merged]
    if merged.get("stdio") and network:
        raise CommandError(
            f"--stdio does not listen on the network; leave out {', '.join(network)}"
        )


def _find_store(merged: dict[str, object]) -> None:
    """Add the store that the environment names, if nothing else says where everything is kept."""
    shared = os.environ.get(STORE_VARIABLE)
    if shared and not any(merged.get(name) for name in KEPT_IN):
        merged["store"] = shared
    if "node" in merged and "store" not in merged:
        raise CommandError("--node names one of the runtimes that share a store; give --store, too")


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
        if name not in _TABLES:
            raise CommandError(
                f"{path}: unknown key {name}; the tables are {', '.join(_TABLES.values())}"
            )
        if not isinstance(table, dict):
            raise CommandError(f"{path}: {name} must be a table, [{name}]")
    return cast("dict[str, dict[str, object]]", document)


def _options(table: Mapping[str, object], where: str) -> dict[str, object]:
    known = {option.name: option for option in options_of(ServeOptions)}
    for key, value in table.items():
        if key not in known:
            raise CommandError(
                f"{where} unknown key {key}{did_you_mean(key, known)}; its keys are the options, "
                "with _ for -"
            )
        if not known[key].accepts(value):
            raise CommandError(f"{where} {key} must be {known[key].wants}")
    kept_in = [name for name in KEPT_IN if table.get(name)]
    if len(kept_in) > 1:
        raise CommandError(f"{where} has both {' and '.join(kept_in)}; keep one of them")
    return dict(table)


def _limits(options: ServeOptions, table: Mapping[str, object], where: str) -> Limits:
    chosen: dict[str, object] = {"chunk_bytes": STDIO_CHUNK_BYTES} if options.stdio else {}
    chosen |= _checked(table, where)
    for option in options_of(ServeOptions):
        value = getattr(options, option.name)
        if option.limit is not None and value is not None:
            chosen[option.limit] = value
    try:
        return Limits(**chosen)  # type: ignore[arg-type]  # each value is of its field's type
    except ValueError as error:
        raise CommandError(f"{where} {error}") from error


def _checked(table: Mapping[str, object], where: str) -> Mapping[str, object]:
    """Return the table of limits after checking that each value has the type of its field."""
    known = {field.name: field.type for field in attrs.fields(attrs.resolve_types(Limits))}
    for key, value in table.items():
        if key not in known:
            raise CommandError(
                f"{where} unknown key {key}{did_you_mean(key, known)}; its keys are those of "
                "arcp_trio.Limits"
            )
        may_be_fraction = known[key] is float
        if not (is_finite(value) if may_be_fraction else is_whole(value)):
            wants = "number" if may_be_fraction else "whole number"
            raise CommandError(f"{where} {key} must be a {wants}")
    return table
