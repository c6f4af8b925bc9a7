"""The LiteLLM provisioner, with a stand-in for the gateway that speaks real HTTP."""

from __future__ import annotations

import importlib
import logging
import sys
from decimal import Decimal

import httpx2
import pytest

from arcp_trio import CannotRevoke, Issued, Provisioner
from arcp_trio.provisioners.litellm import LiteLlmError, LiteLlmProvisioner
from arcp_trio.wire.errors import BudgetExhausted, InvalidRequest, PermissionDenied
from tests.provisioners.gateway import MASTER_KEY, Fault, problem
from tests.provisioners.orders import MODELS, an_order, issue, provisioner_of, shown_with_locals

pytestmark = pytest.mark.real_tcp


async def call(issued: Issued, model: str) -> Exception | None:
    """Call a model with a key, as an agent does."""
    async with httpx2.AsyncClient() as client:
        response = await client.post(
            f"{issued.endpoint}/chat/completions",
            headers={"Authorization": f"Bearer {issued.value}"},
            json={"model": model, "messages": []},
        )
    try:
        response.raise_for_status()
    except httpx2.HTTPStatusError as error:
        return error
    return None


# --- issuing ---------------------------------------------------------------------------------


@pytest.mark.spec("9.8.3-1", "9.8.3-2", "9.8.3-3", "9.8.3-4", "9.7-3", "14-8")
async def test_a_key_carries_what_the_lease_says(gateway):
    """A key has the order's id as its alias, and the lease's models, budget and time left."""
    provisioner: Provisioner = provisioner_of(gateway)
    order = an_order(budget={"USD": Decimal("4.20")}, seconds_left=90.9)
    [issued] = await provisioner.issue(order)
    [body] = gateway.bodies("/key/generate")
    assert body == {
        "key_alias": "cred_1",
        "key_type": "llm_api",
        "models": ["tier-fast/mini"],
        "max_budget": 4.2,
        "duration": "90s",
        "metadata": {
            "arcp_job_id": "job_1",
            "arcp_principal": "ada",
            "arcp_trace_id": "0af7651916cd43dd8448eb211c80319c",
        },
    }
    [key] = gateway.keys
    assert issued == Issued(
        handle=key.hash,
        value=key.value,
        endpoint=f"{gateway.url}/v1",
        profile="openai",
        constraints={
            "model.use": ["tier-fast/mini"],
            "cost.budget": ["USD:4.20"],
            "expires_at": "2026-05-13T23:42:00Z",
        },
    )


@pytest.mark.spec("9.8.3-5")
async def test_only_dollars_are_the_gateways(gateway):
    """Only a budget in dollars is sent to the gateway, and shown as its constraint."""
    both = {"credits": Decimal(1000), "USD": Decimal("0.000000000001")}
    mixed = await issue(provisioner_of(gateway), an_order("cred_2", budget=both))
    [body] = gateway.bodies("/key/generate")
    assert body["max_budget"] == 1e-12
    assert mixed.constraints["cost.budget"] == ["USD:0.000000000001"]


async def test_a_budget_without_dollars_is_refused(gateway):
    """No key is minted whose budget the gateway could not enforce; the refusal says what helps."""
    for budget in ({"EUR": Decimal("0.01")}, {"EUR": Decimal(5), "credits": Decimal(1)}):
        with pytest.raises(InvalidRequest, match="the gateway counts in USD; add an amount of USD"):
            await issue(provisioner_of(gateway), an_order(budget=budget))
    assert gateway.keys == []
    assert gateway.bodies("/key/generate") == []


async def test_a_lease_without_an_end_asks_for_none(gateway):
    """A lease without expires_at gives a key without duration, and no such constraint."""
    issued = await issue(provisioner_of(gateway), an_order())
    [body] = gateway.bodies("/key/generate")
    assert "duration" not in body
    assert set(issued.constraints) == {"model.use"}


@pytest.mark.parametrize(
    ("patterns", "models"),
    [
        (["openai/*"], ["openai/gpt-4o"]),
        (["openai/**"], ["openai/gpt-4o", "openai/eu/gpt-4o"]),
        (["gpt-4o"], ["gpt-4o"]),
        (["*"], ["gpt-4o"]),
        (["tier-*/mini", "tier-slow/*", "no-such-model"], ["tier-fast/mini", "tier-slow/big"]),
        (["**"], list(MODELS)),
    ],
)
async def test_patterns_become_the_models_they_allow(gateway, patterns, models):
    """A key lists the names of the models that the lease's patterns match, and no pattern."""
    issued = await issue(provisioner_of(gateway), an_order(models=patterns))
    [body] = gateway.bodies("/key/generate")
    assert body["models"] == models
    assert issued.constraints["model.use"] == models


@pytest.mark.parametrize(
    "order",
    [
        an_order(models=None),
        an_order(models=[]),
        an_order(models=["all-proxy-models", "all-team-models", "anthropic/*", "beta-group"]),
        an_order(budget={"USD": Decimal(0)}),
        an_order(budget={"USD": Decimal(5), "EUR": Decimal("-0.01")}),
        an_order(seconds_left=0.99),
        an_order(seconds_left=-3),
    ],
    ids=[
        "no model.use",
        "empty model.use",
        "no model of ours",
        "no dollars",
        "no euros",
        "ending",
        "over",
    ],
)
async def test_no_key_where_none_could_be_used(gateway, order):
    """A lease that allows no model, or nothing at all, gets no key."""
    assert await provisioner_of(gateway).issue(order) == ()
    assert gateway.requests == []


async def test_the_endpoint_may_be_another(gateway):
    """Agents may be given another URL of the gateway than the runtime uses."""
    provisioner = LiteLlmProvisioner(
        f"{gateway.url}/", MASTER_KEY, models=MODELS, endpoint="https://llm.example.com/v1/"
    )
    assert (await issue(provisioner, an_order())).endpoint == "https://llm.example.com/v1"


async def test_an_alias_names_one_key(gateway):
    """Issuing an order twice fails and leaves the first key alone."""
    provisioner = provisioner_of(gateway)
    await provisioner.issue(an_order())
    with pytest.raises(LiteLlmError, match="400: Key with alias 'cred_1' already exists"):
        await provisioner.issue(an_order())
    assert len(gateway.keys) == 1


@pytest.mark.spec("9.8.2-8")
async def test_a_rotated_key_outlives_the_one_it_replaces(gateway):
    """A rotation mints a second key with what is left, and revoking the first one spares it."""
    provisioner = provisioner_of(gateway)
    old = await issue(provisioner, an_order("cred_1", budget={"USD": Decimal(5)}))
    [new] = await provisioner.rotate(an_order("cred_2", budget={"USD": Decimal(3)}), old.handle)
    assert len(gateway.keys) == 2
    assert (new.handle, new.value) != (old.handle, old.value)
    assert new.constraints["cost.budget"] == ["USD:3"]
    await provisioner.revoke("cred_1", old.handle)
    assert [key.value for key in gateway.keys] == [new.value]


@pytest.mark.spec("9.8.3-2")
async def test_a_rotation_forgets_no_cost(gateway):
    """A new key gets what the gateway says is left, and no key is minted when nothing is."""
    provisioner = provisioner_of(gateway)
    unreported = {"USD": Decimal(2), "EUR": Decimal(1)}
    first = await issue(provisioner, an_order("cred_1", budget=unreported))
    assert await call(first, "tier-fast/mini") is None
    [second] = await provisioner.rotate(an_order("cred_2", budget=unreported), first.handle)
    assert second.constraints["cost.budget"] == ["USD:1.0"]
    assert await call(second, "tier-fast/mini") is None
    assert await provisioner.rotate(an_order("cred_3", budget=unreported), second.handle) == ()
    assert len(gateway.keys) == 2


async def test_a_rotation_of_what_is_not_known_is_trouble(gateway):
    """A rotation fails if the gateway does not say what the old key has spent."""
    provisioner = provisioner_of(gateway)
    order = an_order(budget={"USD": Decimal(2)})
    with pytest.raises(LiteLlmError, match="/key/info: 404: Key not found"):
        await provisioner.rotate(order, "hash")
    gateway.faults.append(Fault(answer=(200, {"info": {"max_budget": 5.0}})))
    with pytest.raises(LiteLlmError, match="/key/info: without max_budget and spend"):
        await provisioner.rotate(order, "hash")
    assert gateway.keys == []


# --- explaining ------------------------------------------------------------------------------


@pytest.mark.spec("9.6-10", "9.7-2")
async def test_what_the_gateway_refuses_is_told_in_the_words_of_arcp(gateway):
    """Errors about the budget and about a model are translated, and no others."""
    provisioner = provisioner_of(gateway)
    issued = await issue(provisioner, an_order(budget={"USD": Decimal(1)}))
    assert await call(issued, "tier-fast/mini") is None
    over, beyond = await call(issued, "tier-fast/mini"), await call(issued, "tier-slow/big")
    await provisioner.revoke("cred_1", issued.handle)
    revoked = await call(issued, "tier-fast/mini")
    assert over is not None
    assert beyond is not None
    assert revoked is not None
    assert isinstance(provisioner.explain(over), BudgetExhausted)
    assert isinstance(provisioner.explain(beyond), PermissionDenied)
    assert provisioner.explain(revoked) is None


class SdkError(Exception):
    """An error as the OpenAI library raises it, with a response."""

    def __init__(self, response: object) -> None:
        super().__init__("refused")
        self.response = response


@pytest.mark.parametrize(
    ("response", "expected"),
    [
        (
            httpx2.Response(
                400, json=problem(400, "None", "x: Budget has been exceeded!", None)[1]
            ),
            BudgetExhausted,
        ),
        (
            httpx2.Response(
                401, json=problem(401, "auth_error", "key not allowed to access model.", None)[1]
            ),
            PermissionDenied,
        ),
        (
            httpx2.Response(403, json=problem(403, "team_model_access_denied", "", None)[1]),
            PermissionDenied,
        ),
        (httpx2.Response(429, json=problem(429, "throttling_error", "Rate limit", None)[1]), None),
        (httpx2.Response(429, json={"error": "budget_exceeded"}), None),
        (httpx2.Response(500, text="<html>budget_exceeded</html>"), None),
        (httpx2.Response(429, stream=httpx2.ByteStream(b"")), None),
        (None, None),
    ],
    ids=["budget", "model, older", "team", "rate", "other shape", "no JSON", "unread", "none"],
)
def test_explaining_needs_a_body_that_says_it(response, expected):
    """Errors of older gateways are translated, too, and unclear ones are not."""
    provisioner = LiteLlmProvisioner("http://gateway", MASTER_KEY, models=MODELS)
    explained = provisioner.explain(SdkError(response))
    assert type(explained) is (type(None) if expected is None else expected)
    assert provisioner.explain(ValueError("no response at all")) is None


# --- secrets ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "fault",
    [
        None,
        Fault(cut=True),
        Fault(answer=problem(400, "bad_request_error", f"bad: {MASTER_KEY}, sk-minted-1", None)),
        Fault(answer=problem(401, "auth_error", f"Received API Key = {MASTER_KEY}", None)),
        Fault(answer=(502, MASTER_KEY)),
    ],
    ids=["fine", "cut", "400", "401", "502"],
)
async def test_secrets_are_in_no_log_repr_or_traceback(gateway, caplog, fault):
    """No log line and no traceback with variables shows a key, whatever fails."""
    caplog.set_level(logging.DEBUG)
    provisioner = provisioner_of(gateway)
    shown = [repr(provisioner)]
    if fault is None:
        shown.append(repr(await issue(provisioner, an_order())))
    else:
        gateway.faults.extend([fault, fault])
        for attempt in (provisioner.issue(an_order()), provisioner.revoke("cred_1", "hash")):
            with pytest.raises((LiteLlmError, CannotRevoke)) as raised:
                await attempt
            shown.append(shown_with_locals(raised.value))
    assert caplog.records, "nothing was logged: the HTTP library no longer does"
    shown.append(caplog.text)
    for text in shown:
        assert MASTER_KEY not in text
        assert "sk-minted" not in text


@pytest.mark.parametrize("key", ["", "sk-1234\n", "sk 1234", "sk-é"])
def test_a_master_key_that_no_header_can_carry_is_refused_unseen(key):
    """A master key with a newline, or other unusable characters, is refused and not shown."""
    with pytest.raises(ValueError, match="expected a master key") as raised:
        LiteLlmProvisioner("http://gateway", key, models=MODELS)
    assert not key or key.strip() not in str(raised.value)


# --- configuration ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    "url",
    [
        "",
        "gateway:4000",
        "ftp://gateway",
        "http://",
        "http://gateway:99999",
        "http://me:pw@gateway",
        "http://gateway?x=1",
        "http://gateway#x",
    ],
)
def test_a_base_url_is_shown_and_logged(url):
    """A base URL that is malformed, or contains a secret, is refused."""
    with pytest.raises(ValueError, match=r"URL|Port") as raised:
        LiteLlmProvisioner(url, MASTER_KEY, models=MODELS)
    assert "pw" not in str(raised.value)


@pytest.mark.parametrize("name", ["", "openai/*", "all-proxy-models", "all-team-models"])
def test_models_are_named_one_by_one(name):
    """A model name that is a wildcard, or opens a set of models, is refused."""
    with pytest.raises(ValueError, match="expected the name of one model"):
        LiteLlmProvisioner("http://gateway", MASTER_KEY, models=["gpt-4o", name])


def test_without_httpx_the_extra_is_named(monkeypatch):
    """Only the provisioner needs httpx2, and its import error says how to install it."""
    monkeypatch.setitem(sys.modules, "httpx2", None)
    monkeypatch.delitem(sys.modules, "arcp_trio.provisioners.litellm")
    monkeypatch.delitem(sys.modules, "arcp_trio.provisioners.litellm_gateway")
    with pytest.raises(ImportError, match=r"pip install 'httpx2"):
        importlib.import_module("arcp_trio.provisioners.litellm")
