"""Virtual keys of a LiteLLM gateway as credentials (§9.8): one key per order, named by its alias.

A key never allows more than the lease. The gateway's own wildcards would: there, `openai/*` also
opens `openai/a/b` and models without any prefix. So patterns are matched here against the names of
the gateway's models, and a key lists the models that the lease allows. No key is minted if the
lease allows none of them, as an empty list would open them all, nor if its budget is used up or it
expires within a second.

The gateway counts in US dollars. A budget without dollars is refused, because a key for it would
have no ceiling at the gateway. Other currencies beside dollars are enforced by the runtime
(§9.8.3).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from decimal import Decimal
from http import HTTPStatus
from math import inf
from typing import Final

import attrs
import trio

from arcp_trio.authority.budget import exact
from arcp_trio.authority.grants import parse_grant
from arcp_trio.authority.lease import BUDGET, MODEL
from arcp_trio.provisioners.litellm_gateway import (
    Gateway,
    LiteLlmError,
    checked_url,
    is_unknown_key,
    json_object,
    problem_in,
)
from arcp_trio.runtime.credentials.provisioner import CannotRevoke, CredentialOrder, Issued
from arcp_trio.wire.errors import ArcpError, BudgetExhausted, InvalidRequest, PermissionDenied
from arcp_trio.wire.json import JsonLike, object_in

__all__ = ["LiteLlmError", "LiteLlmProvisioner"]

_CURRENCY: Final = "USD"
_SETS_OF_MODELS: Final = frozenset({"all-proxy-models", "all-team-models", "no-default-models"})
"""Names that open whole sets of models in a key's list of models."""
_NO_ANSWER: Final = frozenset(
    {HTTPStatus.BAD_GATEWAY, HTTPStatus.SERVICE_UNAVAILABLE, HTTPStatus.GATEWAY_TIMEOUT}
)
"""Answers of a proxy before the gateway, which may still be working on the request."""


class LiteLlmProvisioner:
    """Mints, rotates and revokes virtual keys at a LiteLLM gateway.

    `models` are the names of the gateway's models that leases can open: single models, neither
    wildcards nor access groups. `endpoint` is the URL at which agents use the keys, by default
    `base_url` + `/v1`. A lease without `model.use` gets no key.

    A gateway of several processes may accept a deleted key until their caches drop it, unless they
    share one cache.
    """

    def __init__(
        self,
        base_url: str,
        master_key: str,
        *,
        models: Collection[str],
        endpoint: str | None = None,
        timeout_seconds: float = 10.0,
    ) -> None:
        self._gateway = Gateway(base_url, master_key, timeout_seconds)
        self._models = [_checked_model(name) for name in models]
        self._endpoint = checked_url(endpoint or f"{self._gateway.base_url}/v1")
        self._timeout_seconds = timeout_seconds
        # Orders whose answer was lost: until this time of Trio's clock their key may appear.
        self._may_appear_until: dict[str, float] = {}

    def __repr__(self) -> str:
        return f"LiteLlmProvisioner({self._gateway.base_url!r})"

    async def issue(self, order: CredentialOrder) -> Sequence[Issued]:
        """Mint a key that allows at most what the lease does.

        Raises:
            InvalidRequest: the gateway cannot enforce the order's budget.
        """
        models = self._allowed(order.lease)
        if not models or _is_over(order):
            return ()
        if order.budget and _CURRENCY not in order.budget:
            raise InvalidRequest(
                f"a key for a budget of {', '.join(sorted(order.budget))} would have no ceiling: "
                f"the gateway counts in {_CURRENCY}; add an amount of {_CURRENCY} to {BUDGET}"
            )
        body: dict[str, JsonLike] = {
            "key_alias": order.id,
            "key_type": "llm_api",  # it can call models and not manage keys
            "models": models,
            "metadata": {
                "arcp_job_id": order.job_id,
                "arcp_principal": order.principal,
                "arcp_trace_id": order.trace_id,
            },
        }
        constraints: dict[str, JsonLike] = {MODEL: models}
        if _CURRENCY in order.budget:
            left = order.budget[_CURRENCY]
            body["max_budget"] = left
            constraints[BUDGET] = [f"{_CURRENCY}:{left:f}"]
        if order.seconds_left is not None:
            body["duration"] = f"{int(order.seconds_left)}s"
            constraints["expires_at"] = order.expires_at
        value, handle = await self._generate(order.id, body)
        return (
            Issued(
                handle=handle,
                value=value,
                endpoint=self._endpoint,
                profile="openai",
                constraints=constraints,
            ),
        )

    async def rotate(self, order: CredentialOrder, handle: str) -> Sequence[Issued]:
        """Mint another key under the order's own alias, with at most what the old key has left.

        The gateway counts costs that an agent may not have reported (§9.6, §14); without asking it,
        each rotation would forget them.
        """
        if _CURRENCY in order.budget:
            left = min(order.budget[_CURRENCY], await self._left(handle))
            order = attrs.evolve(order, budget={**order.budget, _CURRENCY: left})
        return await self.issue(order)

    async def revoke(self, order_id: str, handle: str | None) -> None:
        """Delete the key with this handle; without one, the order's key if one was minted.

        Raises:
            CannotRevoke: the gateway does not accept the master key.
        """
        path = "/key/delete"
        named = {"key_aliases": [order_id]} if handle is None else {"keys": [handle]}
        response = await self._gateway.send("POST", path, body=named)
        if response.status_code in {HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN}:
            raise CannotRevoke(f"{path}: {response.status_code}: master key not accepted")
        if is_unknown_key(response):
            if handle is None and trio.current_time() < self._may_appear_until.get(order_id, -inf):
                raise LiteLlmError(f"{path}: no key yet for {order_id}, but one may appear")
        elif not response.is_success:
            raise self._gateway.refusal(path, response)
        self._may_appear_until.pop(order_id, None)

    def explain(self, error: Exception) -> ArcpError | None:
        """Translate the error of an agent's own call to the gateway (§9.6, §9.7).

        The reason is in the body of the error's `response`, as in httpx, its successor, requests
        and the OpenAI library. A response that was streamed and not read cannot be translated.
        """
        try:
            content: object = getattr(getattr(error, "response", None), "content", None)
        except RuntimeError:  # not read
            return None
        problem = problem_in(content) if isinstance(content, bytes) else {}
        kind, message = str(problem.get("type")), str(problem.get("message"))
        if kind == "budget_exceeded" or "Budget has been exceeded" in message:
            return BudgetExhausted("the budget of the job's credential is used up")
        if kind.endswith("_model_access_denied") or "not allowed to access model" in message:
            return PermissionDenied("the job's credential does not allow this model")
        return None

    def _allowed(self, lease: Mapping[str, Sequence[str]]) -> list[str]:
        patterns = [parse_grant(MODEL, text) for text in lease.get(MODEL, ())]
        return [name for name in self._models if any(pattern.matches(name) for pattern in patterns)]

    async def _left(self, handle: str) -> Decimal:
        """Ask the gateway how much a key may still spend."""
        path = "/key/info"
        response = await self._gateway.send("GET", path, params={"key": handle})
        if not response.is_success:
            raise self._gateway.refusal(path, response)
        info = object_in(json_object(response.content).get("info"))
        try:
            return exact(info.get("max_budget")) - exact(info.get("spend"))
        except ValueError:
            raise LiteLlmError(f"{path}: without max_budget and spend") from None

    async def _generate(self, order_id: str, body: Mapping[str, JsonLike]) -> tuple[str, str]:
        """Mint a key; return its value, and the hash under which the gateway knows it."""
        path = "/key/generate"
        answered = False
        try:
            response = await self._gateway.send("POST", path, body=body)
            answered = response.status_code not in _NO_ANSWER
        finally:
            if not answered:
                until = trio.current_time() + self._timeout_seconds
                self._may_appear_until[order_id] = until
        if not response.is_success:
            raise self._gateway.refusal(path, response)
        minted = _minted(response.content)
        if minted is None:
            raise LiteLlmError(f"{path}: {response.status_code} without key and token_id")
        return minted


def _is_over(order: CredentialOrder) -> bool:
    """Return whether the lease no longer allows anything (§9.5, §9.6)."""
    if order.seconds_left is not None and order.seconds_left < 1:
        return True
    return any(left <= 0 for left in order.budget.values())


def _minted(content: bytes) -> tuple[str, str] | None:
    answer = json_object(content)
    value, handle = answer.get("key"), answer.get("token_id")
    return (value, handle) if isinstance(value, str) and isinstance(handle, str) else None


def _checked_model(name: str) -> str:
    if not name or "*" in name or name in _SETS_OF_MODELS:
        raise ValueError(f"expected the name of one model, not {name!r}")
    return name
