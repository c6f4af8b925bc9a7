"""Errors of the upstream, in the codes of the protocol (§9.6, §13.7)."""

from __future__ import annotations

import pytest
from trio.testing import MockClock

from arcp_trio import ArcpError
from arcp_trio.testing import open_peer
from arcp_trio.wire.features import ALL_FEATURES, Feature
from tests.credentials.runtimes import LEASE, provided, providing_runtime
from tests.credentials.upstream import Upstream

CODES = {"spent": "BUDGET_EXHAUSTED", "model": "PERMISSION_DENIED", "odd": "INTERNAL_ERROR"}


@pytest.mark.parametrize("error", CODES)
async def test_a_tool_call_that_the_upstream_refused(error: str, autojump_clock: MockClock) -> None:
    """A tool call that the upstream refused has the code of §12, and the job goes on."""
    async with provided(Upstream()) as (_, peer):
        accepted = await peer.submit("caller", {"error": error}, lease_request=LEASE)
        result = await peer.expect("job.event", kind="tool_result")
        told = result["payload"]["body"]["error"]
        assert told["code"] == CODES[error]
        assert told["retryable"] is (error == "odd")
        end = await peer.until_terminal(accepted["job_id"])
        assert end["payload"]["result"] == "went on"


@pytest.mark.logs_error("agent failed .*agent=caller@1.0.0")
async def test_an_error_of_something_else(autojump_clock: MockClock) -> None:
    """An exception that the provisioner cannot explain ends the job like any other."""
    async with provided(Upstream()) as (_, peer):
        job = {"error": "odd", "dies": True}
        accepted = await peer.submit("caller", job, lease_request=LEASE)
        end = await peer.until_terminal(accepted["job_id"])
        assert end["payload"]["code"] == "INTERNAL_ERROR"


@pytest.mark.parametrize("error", ["spent", "model"])
async def test_a_job_that_ends_of_what_was_refused(error: str, autojump_clock: MockClock) -> None:
    """An uncaught error of the upstream ends the job with the explained code."""
    async with provided(Upstream()) as (_, peer):
        job = {"error": error, "dies": True}
        accepted = await peer.submit("caller", job, lease_request=LEASE)
        end = await peer.until_terminal(accepted["job_id"])
        assert (end["payload"]["code"], end["payload"]["final_status"]) == (CODES[error], "error")


@pytest.mark.logs_error("agent failed .*agent=caller@1.0.0")
async def test_without_credentials_nothing_is_explained(autojump_clock: MockClock) -> None:
    """In a job without credentials the provisioner is not asked to explain."""
    features = tuple(f for f in ALL_FEATURES if f != Feature.PROVISIONED_CREDENTIALS)
    async with providing_runtime(Upstream()) as runtime, open_peer(runtime) as peer:
        await peer.hello(features=features)
        job = {"error": "spent", "dies": True}
        accepted = await peer.submit("caller", job, lease_request=LEASE)
        end = await peer.until_terminal(accepted["job_id"])
        assert end["payload"]["code"] == "INTERNAL_ERROR"


@pytest.mark.logs_error("agent failed .*agent=caller@1.0.0")
async def test_nor_where_none_were_needed(autojump_clock: MockClock) -> None:
    """Nor is it asked in a job that could have had credentials and has none."""
    async with provided(Upstream(mints=0)) as (_, peer):
        job = {"error": "spent", "dies": True}
        accepted = await peer.submit("caller", job, lease_request=LEASE)
        end = await peer.until_terminal(accepted["job_id"])
        assert end["payload"]["code"] == "INTERNAL_ERROR"


@pytest.mark.logs_error("error cannot be explained|agent failed .*agent=caller@1.0.0")
async def test_a_provisioner_that_fails_to_explain(autojump_clock: MockClock) -> None:
    """If `explain` fails, that is logged and the error stays unchanged."""

    class Speechless(Upstream):
        def explain(self, error: Exception) -> ArcpError | None:
            raise RuntimeError("no words")

    async with provided(Speechless()) as (_, peer):
        job = {"error": "spent", "dies": True}
        accepted = await peer.submit("caller", job, lease_request=LEASE)
        end = await peer.until_terminal(accepted["job_id"])
        assert end["payload"]["code"] == "INTERNAL_ERROR"
