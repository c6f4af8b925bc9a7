"""What is told of a job in a few words, and what of it restarts may change."""

from __future__ import annotations

from collections.abc import Mapping

from arcp_trio import Json

FROM_INSIDE = ("in outer", "cost.inner 1")
"""What is emitted inside of a step, and is told again if the step was interrupted."""


def outside(told: list[str], *, ordered: bool = False) -> list[str]:
    """Return what is emitted outside of steps; `ordered`: by the agent's first task alone."""
    return [
        text
        for text in told
        if text not in (*FROM_INSIDE, "result_chunk")
        and not text.startswith(("resumed", "cost.budget.remaining"))
        and not (ordered and text.startswith(("side", "call", "result")))
    ]


def in_short(kind: str, body: Mapping[str, Json]) -> str:
    """Return an event in a few words."""
    match kind:
        case "log":
            return str(body["message"])
        case "status":
            return f"{body['phase']} {body['run']}" if "run" in body else str(body["phase"])
        case "tool_call":
            return f"call {body['tool']}"
        case "tool_result":
            return f"result {body.get('result', body.get('error', {}).get('code'))}"
        case "metric":
            return f"{body['name']} {body['value']}"
        case "delegate":
            return f"delegate {body['agent']}"
        case _:
            return kind
