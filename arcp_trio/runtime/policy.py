"""What a deployment decides where the specification leaves it open."""

from __future__ import annotations

from collections.abc import Set as AbstractSet

import attrs


@attrs.frozen(kw_only=True)
class Policy:
    """The defaults are the strict ones. A subclass may decide otherwise who observes whom.

    To observe and to cancel are two things: an observer cancels nothing, and a runtime's operators,
    who may cancel any job, observe none by that. Whoever is to do both is named as both.
    """

    any_model: bool = False
    """A lease without `model.use` allows every model, rather than none (§9.7)."""
    observers: AbstractSet[str] = frozenset()
    """Principals that may list and subscribe to everybody's jobs (§7.6)."""

    def observes_all(self, observer: str) -> bool:
        """Whether a principal's listings have everybody's jobs, of which it may observe some."""
        return observer in self.observers

    def may_observe(self, observer: str, owner: str) -> bool:
        """Whether a principal may know of another's jobs and follow them; never cancel them."""
        return observer == owner or self.observes_all(observer)
