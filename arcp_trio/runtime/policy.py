"""What a deployment decides where the specification leaves it open."""

from __future__ import annotations

import attrs


@attrs.frozen(kw_only=True)
class Policy:
    """The defaults are the strict ones."""

    any_model: bool = False
    """A lease without `model.use` allows every model, rather than none (§9.7)."""
