"""Approvals: what a lease allows on the condition that a person agrees to it.

Such operations stand in the lease under vendor capabilities, `x-vendor.arcp-trio.ask.fs.write` and
the like, with patterns as for the capability behind. So an approval never widens a lease (§9.1).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import attrs

from arcp_trio.authority.targets import forms

ASK: Final = "x-vendor.arcp-trio.ask."
"""What stands before the name of a capability that may be asked for."""

ASKABLE: Final = ("fs.read", "fs.write", "net.fetch", "tool.call", "agent.delegate")
"""The capabilities that people can be asked for."""


def behind(capability: str) -> str:
    """Return the capability that is asked for under this one; itself if it is not one of those."""
    asked = capability.removeprefix(ASK)
    return asked if asked in ASKABLE else capability


def _forms_of_targets(approval: Approval) -> frozenset[tuple[str, ...]]:
    return frozenset(forms(approval.capability, target) for target in approval.targets)


@attrs.frozen(kw_only=True)
class Approval:
    """What a person has decided on operations of a job."""

    capability: str
    targets: Sequence[str]
    by: str
    """The principal that has decided."""
    allowed: bool = True
    reason: str | None = None
    _forms: frozenset[tuple[str, ...]] = attrs.field(
        init=False, default=attrs.Factory(_forms_of_targets, takes_self=True)
    )

    def covers(self, capability: str, target_forms: Sequence[str]) -> bool:
        """Return whether the target with these forms is one that was decided on.

        All forms count: who allows `/a%2Fb` has not allowed `/a/b`.
        """
        return capability == self.capability and tuple(target_forms) in self._forms

    def told(self) -> dict[str, str]:
        """Return what the result of the operation's tool call says of the decision."""
        told = {"decision": "allow" if self.allowed else "deny", "by": self.by}
        return told if self.reason is None else {**told, "reason": self.reason}
