"""What the class of a message may say of its fields, beyond their types."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Final

import attrs
from msgspec import Meta

KEEP_NULL: Final = "keep_null"
"""Metadata of the few fields that are sent as null rather than left out: tells when."""

WIRE_NAME: Final = "wire_name"
"""Metadata of a field whose name on the wire cannot be a name in Python: tells that name."""

VENDOR: Final = "x-vendor.arcp-trio"
"""The field in which this project says more than the specification asks for; others ignore it."""


def always(_: object) -> bool:
    """Return True: the commonest value of `KEEP_NULL`."""
    return True


@attrs.frozen
class Rule:
    """What a value of the right type must also be; what `holds` returns is judged by its truth."""

    expected: str
    holds: Callable[[Any], object]


NonEmpty = Annotated[str, Rule("a non-empty string", bool)]
# Strings that are stored, or repeated in answers, have a bound.
Identifier = Annotated[str, Meta(min_length=1, max_length=256)]
Remark = Annotated[str, Meta(max_length=4096)]
