"""Revoking the gateway's keys, whatever requests and answers are lost (§9.8)."""

from __future__ import annotations

import pytest
import trio
from trio.testing import MockClock

from arcp_trio import CannotRevoke
from arcp_trio.provisioners.litellm import LiteLlmError, LiteLlmProvisioner
from tests.ports import refusing_port
from tests.provisioners.gateway import MASTER_KEY, Fault, problem
from tests.provisioners.orders import MODELS, an_order, issue, provisioner_of, shown_with_locals

pytestmark = pytest.mark.real_tcp


# --- revoking --------------------------------------------------------------------------------


@pytest.mark.spec("9.8.2-4")
@pytest.mark.parametrize("by_handle", [True, False])
async def test_revoking_again_is_success(gateway, by_handle):
    """A key is deleted by its handle or its order, and one that does not exist is revoked."""
    provisioner = provisioner_of(gateway)
    issued = await issue(provisioner, an_order())
    handle = issued.handle if by_handle else None
    await provisioner.revoke("cred_1", handle)
    assert gateway.keys == []
    await provisioner.revoke("cred_1", handle)
    await provisioner.revoke("cred_never", None)


async def test_a_lost_answer_leaves_nothing_live(gateway):
    """A key whose answer was lost is found by its order, and deleted."""
    provisioner = provisioner_of(gateway)
    gateway.faults.append(Fault(cut=True))
    with pytest.raises(LiteLlmError, match="/key/generate: RemoteProtocolError"):
        await provisioner.issue(an_order())
    assert len(gateway.keys) == 1
    await provisioner.revoke("cred_1", None)
    assert gateway.keys == []


@pytest.mark.parametrize("how", ["timeout", "cancellation"])
async def test_a_key_that_may_yet_appear_is_not_taken_for_revoked(
    gateway, mock_clock: MockClock, how
):
    """As long as a lost request may still mint a key, not finding it is not proof of revocation."""
    provisioner = provisioner_of(gateway)
    release = trio.Event()
    gateway.faults.append(Fault(hold=release))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_issue_in_vain, provisioner)
        await gateway.arrived.wait()
        if how == "timeout":
            mock_clock.jump(10)
        else:
            nursery.cancel_scope.cancel()
    with pytest.raises(LiteLlmError, match="no key yet for cred_1, but one may appear"):
        await provisioner.revoke("cred_1", None)
    release.set()
    await gateway.minted.wait()
    await provisioner.revoke("cred_1", None)
    assert gateway.keys == []
    await provisioner.revoke("cred_1", None)


async def _issue_in_vain(provisioner: LiteLlmProvisioner) -> None:
    with pytest.raises(LiteLlmError, match="no answer within 10 s"):
        await provisioner.issue(an_order())


async def test_a_key_that_never_appears_is_given_up(gateway, mock_clock: MockClock):
    """After an answer of a proxy, a missing key counts as revoked once the timeout has passed."""
    provisioner = provisioner_of(gateway)
    gateway.faults.append(Fault(answer=(502, "<html>Bad Gateway</html>")))
    with pytest.raises(LiteLlmError, match="502: no reason given"):
        await provisioner.issue(an_order())
    with pytest.raises(LiteLlmError, match="one may appear"):
        await provisioner.revoke("cred_1", None)
    mock_clock.jump(10)
    await provisioner.revoke("cred_1", None)


@pytest.mark.parametrize(
    "answer",
    [
        problem(500, "internal_server_error", "Not connected to DB!", None),
        problem(429, "throttling_error", "Too many requests", None),
        problem(400, "bad_request_error", "No", None),
        (503, "<html>Service Unavailable</html>"),
        (404, {"detail": "Not Found"}),
        (404, "<html>Not Found</html>"),
        (307, {}),
    ],
    ids=["500", "429", "400", "503", "no such route", "no such page", "elsewhere"],
)
async def test_trouble_passes(gateway, answer):
    """A failed revocation raises an error, and the key can be revoked later."""
    provisioner = provisioner_of(gateway)
    issued = await issue(provisioner, an_order())
    for handle in (issued.handle, None):
        gateway.faults.append(Fault(answer=answer))
        with pytest.raises(LiteLlmError, match=f"/key/delete: {answer[0]}"):
            await provisioner.revoke("cred_1", handle)
    gateway.faults.append(Fault(answer=answer))
    with pytest.raises(LiteLlmError, match=f"/key/generate: {answer[0]}"):
        await provisioner.issue(an_order("cred_2"))
    await provisioner.revoke("cred_1", issued.handle)
    assert gateway.keys == []


@pytest.mark.parametrize(
    "answer", [{"key": "sk-minted-x"}, {"token_id": "x"}, {"key": 1, "token_id": "x"}, [], "sk-x"]
)
async def test_an_answer_without_a_key_is_trouble(gateway, answer):
    """An answer of 200 without key and hash raises an error."""
    gateway.faults.append(Fault(answer=(200, answer)))
    with pytest.raises(LiteLlmError, match="200 without key and token_id") as raised:
        await provisioner_of(gateway).issue(an_order())
    assert "sk-minted" not in shown_with_locals(raised.value)


async def test_a_gateway_that_is_gone():
    """A gateway that does not answer raises an error that may pass."""
    with refusing_port() as port:
        provisioner = LiteLlmProvisioner(f"http://127.0.0.1:{port}", MASTER_KEY, models=MODELS)
        with pytest.raises(LiteLlmError, match="/key/delete: ConnectError"):
            await provisioner.revoke("cred_1", None)


async def test_revoking_without_an_answer_is_trouble(gateway, mock_clock: MockClock):
    """A revocation that takes too long, or loses its answer, can be repeated."""
    provisioner = provisioner_of(gateway)
    issued = await issue(provisioner, an_order())
    gateway.faults.append(Fault(hold=trio.Event()))
    gateway.arrived = trio.Event()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_revoke_in_vain, provisioner, issued.handle)
        await gateway.arrived.wait()
        mock_clock.jump(10)
    gateway.faults.append(Fault(cut=True))
    with pytest.raises(LiteLlmError, match="RemoteProtocolError"):
        await provisioner.revoke("cred_1", issued.handle)
    await provisioner.revoke("cred_1", issued.handle)
    assert gateway.keys == []


async def _revoke_in_vain(provisioner: LiteLlmProvisioner, handle: str) -> None:
    with pytest.raises(LiteLlmError, match="/key/delete: no answer within 10 s"):
        await provisioner.revoke("cred_1", handle)


@pytest.mark.parametrize("status", [401, 403])
async def test_a_master_key_that_is_not_accepted_cannot_revoke(gateway, status):
    """A master key that is not accepted raises CannotRevoke; issuing raises an ordinary error."""
    answer = problem(status, "auth_error", "Authentication Error", None)
    gateway.faults.extend([Fault(answer=answer), Fault(answer=answer)])
    provisioner = provisioner_of(gateway)
    with pytest.raises(CannotRevoke, match=f"{status}: master key not accepted"):
        await provisioner.revoke("cred_1", "hash")
    with pytest.raises(LiteLlmError, match=f"/key/generate: {status}"):
        await provisioner.issue(an_order())


async def test_the_wrong_master_key(gateway):
    """With another master key than the gateway's, a revocation fails and the key stays."""
    await issue(provisioner_of(gateway), an_order())
    with pytest.raises(CannotRevoke):
        await provisioner_of(gateway, "sk-wrong").revoke("cred_1", None)
    assert len(gateway.keys) == 1
