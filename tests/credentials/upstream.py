"""A gateway that mints keys, as a small model with a state of its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import attrs
import trio

from arcp_trio import (
    ArcpError,
    BudgetExhausted,
    CannotRevoke,
    CredentialOrder,
    Issued,
    PermissionDenied,
)
from arcp_trio.wire.json import Json

ENDPOINT = "https://gw.example/v1"

SECRET = "sk-virt-"
"""The beginning of every value, for which tests search where no value may be."""


class GatewayError(Exception):
    """An error of the gateway itself."""


class SpentTooMuchError(Exception):
    """The gateway's refusal when a key's cap is reached."""


class WrongModelError(Exception):
    """The gateway's refusal of a model that the key does not cover."""


@attrs.frozen
class Key:
    """A minted key: its order and its bounds."""

    handle: str
    value: str = attrs.field(repr=False)
    order: CredentialOrder


@attrs.define(eq=False)
class Upstream:
    """A provisioner that mints, rotates and revokes; its test says how it fails and how slowly."""

    keys: dict[str, Key] = attrs.field(factory=dict[str, Key])
    """All keys that were minted, by handle."""
    orders: dict[str, CredentialOrder] = attrs.field(factory=dict[str, CredentialOrder])
    """All orders, by id."""
    _minted: dict[str, list[str]] = attrs.field(factory=dict[str, list[str]])
    """Handles by order."""
    revoked: dict[str, float] = attrs.field(factory=dict[str, float])
    """When each was revoked, by handle."""
    calls: list[tuple[float, str, str]] = attrs.field(factory=list[tuple[float, str, str]])
    """All calls: when, which, and about what."""
    mints: int = 1
    """How many keys an order gets."""
    rotates: int = 1
    """How many keys replace one."""
    slow: float = 0
    """Seconds before minting."""
    slow_answer: float = 0
    """Seconds between minting and the answer."""
    stubborn: bool = False
    """Whether minting goes on although it is cancelled."""
    slow_revoke: float = 0
    slow_search: float = 0
    """Seconds more to revoke what an order has minted."""
    failing: Callable[[str], Exception | None] = lambda _: None
    """Return the exception of a call, by name, before anything is done."""
    failing_after: Callable[[str], Exception | None] = lambda _: None
    """Return the exception of a call, by name, after it was done."""
    extra: dict[str, Json] = attrs.field(factory=dict[str, Json])
    """Constraints besides the usual."""

    # -- what a provisioner does

    async def issue(self, order: CredentialOrder) -> Sequence[Issued]:
        """Mint `mints` keys."""
        return await self._mint("issue", order, self.mints)

    async def rotate(self, order: CredentialOrder, handle: str) -> Sequence[Issued]:
        """Mint `rotates` keys; the one with the same handle goes on."""
        assert handle in self.live
        return await self._mint("rotate", order, self.rotates)

    async def _mint(self, call: str, order: CredentialOrder, count: int) -> Sequence[Issued]:
        self.orders[order.id] = order
        self._called(call, order.id)
        with trio.CancelScope(shield=self.stubborn):
            await trio.sleep(self.slow)
            minted = [self._new_key(order) for _ in range(count)]
            await trio.sleep(self.slow_answer)
        self._fail(self.failing_after, call)
        return [self._answer(key) for key in minted]

    def mint_late(self) -> None:
        """Mint for the last order, whose answer was given up."""
        self._new_key([*self.orders.values()][-1])

    def _new_key(self, order: CredentialOrder) -> Key:
        number = len(self.keys) + 1
        handle = f"vk_{number}"
        key = Key(handle, f"{SECRET}{number:04}-{order.id}", order)
        self.keys[handle] = key
        self._minted.setdefault(order.id, []).append(handle)
        return key

    def _answer(self, key: Key) -> Issued:
        order = key.order
        constraints: dict[str, Json] = {}
        if order.budget:
            constraints["cost.budget"] = [f"{unit}:{left:f}" for unit, left in order.budget.items()]
        if "model.use" in order.lease:
            constraints["model.use"] = list(order.lease["model.use"])
        if order.expires_at is not None:
            constraints["expires_at"] = order.expires_at
        return Issued(
            handle=key.handle,
            value=key.value,
            endpoint=ENDPOINT,
            profile="openai",
            constraints=constraints | self.extra,
        )

    async def revoke(self, order_id: str, handle: str | None) -> None:
        """Revoke one key, or all of an order."""
        self._called("revoke", handle or order_id)
        await trio.sleep(self.slow_revoke + (self.slow_search if handle is None else 0))
        for each in [handle] if handle is not None else self._minted.get(order_id, []):
            self.revoked.setdefault(each, trio.current_time())
        self._fail(self.failing_after, "revoke")

    def explain(self, error: Exception) -> ArcpError | None:
        """Return the gateway's own errors in the codes of §12."""
        if isinstance(error, SpentTooMuchError):
            return BudgetExhausted("USD budget exhausted")
        if isinstance(error, WrongModelError):
            return PermissionDenied("the model is not allowed")
        return None

    def _called(self, call: str, about: str) -> None:
        self.calls.append((trio.current_time(), call, about))
        self._fail(self.failing, call)

    def _fail(self, failing: Callable[[str], Exception | None], call: str) -> None:
        error = failing(call)
        if error is not None:
            raise error

    # -- what a test looks at

    @property
    def live(self) -> set[str]:
        """The handles of the keys that are alive."""
        return self.keys.keys() - self.revoked.keys()

    @property
    def live_values(self) -> set[str]:
        """The values of the keys that are alive."""
        return {self.keys[handle].value for handle in self.live}

    def times(self, call: str) -> list[float]:
        """Return when something was called."""
        return [at for at, name, _ in self.calls if name == call]


def down(*calls: str, times: int = 1_000_000) -> Callable[[str], Exception | None]:
    """Return a function that fails these calls, the first `times` times."""
    left = times

    def failing(call: str) -> Exception | None:
        nonlocal left
        if call not in calls or not left:
            return None
        left -= 1
        return GatewayError("503 from the gateway at 10.1.2.3")

    return failing


def refusing(call: str) -> Exception | None:
    """Refuse to revoke for good."""
    return CannotRevoke("the master key is not accepted") if call == "revoke" else None
