"""What the class of a message may say of its fields, beyond their types."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Final

import attrs
from msgspec import Meta

KEEP_NULL: Final = "keep_null"
"""The metadata key of a field that may be sent as null: a function of the object says when."""

WIRE_NAME: Final = "wire_name"
"""The metadata key of a field whose name on the wire cannot be a name in Python: that name."""

VENDOR: Final = "x-vendor.arcp-trio"
SANDBOX: Final = f"{VENDOR}.sandbox"
"""The constraint of a lease under which its job must be contained."""
SANDBOX_REQUIRED: Final = "required"
"""The constraint's value."""
"""The field in which this project says more than the specification asks for; others ignore it."""


def always(_: object) -> bool:
    """Return True; for fields whose null is always sent (`KEEP_NULL`)."""
    return True


@attrs.frozen
class Rule:
    """What a value of the right type must also be; `holds` returns a true value if it is."""

    expected: str
    holds: Callable[[Any], object]


NonEmpty = Annotated[str, Rule("a non-empty string", bool)]
# Strings that are stored, or repeated in answers, have a bound.
Identifier = Annotated[str, Meta(min_length=1, max_length=256)]
Remark = Annotated[str, Meta(max_length=4096)]
Bearer = Annotated[str, Meta(min_length=1, max_length=16_384)]
