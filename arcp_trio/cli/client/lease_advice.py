"""What to type so that a job gets the lease that it lacks."""

from __future__ import annotations

import shlex

from arcp_trio.authority.lease import BUDGET, Lease
from arcp_trio.authority.targets import forms
from arcp_trio.wire.errors import InvalidRequest, LeaseSubsetViolation, PermissionDenied
from arcp_trio.wire.json import JsonValue, list_in, object_in


def missing_options(code: str, details: JsonValue) -> list[str]:
    """Return which options of `submit` a refused operation needs; no options if none would help.

    The details may be of any form, as the runtime may be another vendor's.
    """
    missing: list[JsonValue] = []
    if code == PermissionDenied.code:
        missing = [details]
    elif code == LeaseSubsetViolation.code:
        missing = list_in(object_in(details).get("beyond"))
    options = [_option(each) for each in missing]
    return options if all(options) else []


def _option(missing: JsonValue) -> str:
    match missing:
        case {"capability": str(capability), "target": str(target)} if _grants(capability, target):
            return f"--lease {shlex.quote(f'{capability}={target}')}"
        case {"capability": str(capability), "pattern": str(pattern)}:
            return f"--lease {shlex.quote(f'{capability}={pattern}')}"
        case {"capability": "cost.budget", "currency": str(currency), "asked": str(asked)}:
            return f"--budget {shlex.quote(f'{currency}:{asked}')}"
        case _:
            return ""


def _grants(capability: str, target: str) -> bool:
    """Return whether a lease whose pattern is the target allows it."""
    try:
        lease = Lease.read({capability: [target]})
        return capability != BUDGET and lease.allows(capability, forms(capability, target))
    except (InvalidRequest, ValueError):
        return False
