"""What to type so that a job gets the lease that it lacks."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping

from arcp_trio.authority.approvals import ASK
from arcp_trio.authority.lease import BUDGET, Lease
from arcp_trio.authority.targets import forms
from arcp_trio.wire.errors import InvalidRequest, LeaseSubsetViolation, PermissionDenied
from arcp_trio.wire.json import JsonValue, list_in, object_in


def missing_options(code: str, details: JsonValue, lease: Mapping[str, JsonValue]) -> list[str]:
    """Return which options of `submit` a refused operation needs; no options if none would help.

    None helps against the refusal of what `lease` allows already, as a child was given less of it,
    or of what people are to be asked for.
    The details may be of any form, as the runtime may be another vendor's.
    """
    missing: list[JsonValue] = []
    if code == PermissionDenied.code:
        missing = [details]
    elif code == LeaseSubsetViolation.code:
        missing = list_in(object_in(details).get("beyond"))
    options = [_option(each, lease) for each in missing]
    return options if all(options) else []


def joined_pattern(code: str, details: JsonValue, lease: Mapping[str, JsonValue]) -> str | None:
    """Return the item of `lease` that would allow what was refused if its commas separated."""
    match details:
        case {"capability": str(capability), "target": str(target)} if (
            code == PermissionDenied.code
        ):
            for pattern in list_in(lease.get(capability)):
                parts: list[JsonValue] = [*pattern.split(",")] if isinstance(pattern, str) else []
                if len(parts) > 1 and _allows({capability: parts}, capability, target):
                    return f"{capability}={pattern}"
        case _:
            pass
    return None


def asking_options(options: Iterable[str]) -> list[str]:
    """Return the options by which a person is asked, in place of those that allow edits of files.

    Args:
        options: what `missing_options` returns.
    """
    words = [option.partition(" ") for option in options]
    return [f"--ask {item}" for _, _, item in words if item.lstrip("'").startswith("fs.write=")]


def _option(missing: JsonValue, lease: Mapping[str, JsonValue]) -> str:
    match missing:
        case {"capability": str(capability), "target": str(target), **others}:
            # A pattern says what is needed for more than this target.
            advised = str(others.get("pattern") or target)
            helps = _allows({capability: [advised]}, capability, target)
            asks = _allows({capability: lease.get(f"{ASK}{capability}", [])}, capability, target)
            if not helps or asks or _allows(lease, capability, target):
                return ""
            return f"--lease {shlex.quote(f'{capability}={advised}')}"
        case {"capability": str(capability), "pattern": str(pattern)}:
            return f"--lease {shlex.quote(f'{capability}={pattern}')}"
        case {"capability": "cost.budget", "currency": str(currency), "asked": str(asked)}:
            return f"--budget {shlex.quote(f'{currency}:{asked}')}"
        case _:
            return ""


def _allows(lease: Mapping[str, JsonValue], capability: str, target: str) -> bool:
    patterns = [pattern for pattern in list_in(lease.get(capability)) if isinstance(pattern, str)]
    try:
        read = Lease.read({capability: patterns})
        return capability != BUDGET and read.allows(capability, forms(capability, target))
    except (InvalidRequest, ValueError):
        return False
