"""An agent that asks for things, and what it is answered and what clients are told."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from attrs import frozen

from arcp_trio import Client, JobHandle
from tests.proxies.acp.stage import begin, connected, told

ASK: Final = "x-vendor.arcp-trio.ask."
REFUSED: Final = {"outcome": {"outcome": "selected", "optionId": "o-reject_once"}}
ALLOWED: Final = {"outcome": {"outcome": "selected", "optionId": "o-allow_once"}}
CANCELLED: Final = {"outcome": {"outcome": "cancelled"}}


@frozen
class Asked:
    """What has become of what an agent has asked for."""

    answers: list[Any]
    """To the agent."""
    events: list[tuple[str, Any]]
    """Bodies of events with their kinds, but for the chunks of the result."""

    @property
    def results(self) -> list[Any]:
        """The results of tool calls, and the codes of their errors."""
        return [outcome(body) for kind, body in self.events if kind == "tool_result"]

    @property
    def calls(self) -> list[tuple[str, Any]]:
        """The tools of tool calls, with their arguments."""
        return [(body["tool"], body["args"]) for kind, body in self.events if kind == "tool_call"]


def outcome(body: Any) -> Any:
    """Return the result of a tool call, or the code of its error."""
    return body["error"]["code"] if "error" in body else body["result"]


def values_in(text: str) -> list[Any]:
    """Return the JSON values that an agent has said one after the other."""
    values: list[Any] = []
    at = 0
    while at < len(text):
        value, at = json.JSONDecoder().raw_decode(text, at)
        values.append(value)
    return values


async def asked(
    *steps: list[Any], lease: Mapping[str, Sequence[str]] | None = None, **terms: Any
) -> Asked:
    """Run a job whose agent asks for something, each step of which says its answer."""
    async with connected(**terms) as client:
        return await asked_of(client, *steps, lease=lease or {})


async def asked_of(client: Client, *steps: list[Any], **terms: Any) -> Asked:
    """Run a job of a client."""
    handle = await begin(client, *steps, **terms)
    return await asked_in(handle)


async def asked_in(handle: JobHandle) -> Asked:
    """Wait for the end of a job."""
    events = [each for each in await told(handle) if each[0] != "result_chunk"]
    return Asked(values_in(str(await handle.result())), events)
