"""How the turn of an agent ends, as the end of its job."""

from __future__ import annotations

import signal
from collections.abc import Sequence
from typing import Final

from arcp_trio import acp
from arcp_trio.acp.errors import LOG_IN_FIRST
from arcp_trio.wire.errors import AgentNotAvailable, ArcpError, InternalError, clip
from arcp_trio.wire.json import JsonObject, text_in

_GOOD: Final = ("end_turn", "max_tokens")
MOST_WORDS: Final = 500
"""Characters of an agent's own words in an error."""


def end_of_turn(agent: str, reason: str) -> ArcpError | None:
    """Return why a turn with this stop reason is not a success; None if it is one."""
    if reason in _GOOD:
        return None
    words = f"agent {agent} has ended its turn: {clip(reason)}"
    return InternalError(words, details={"stop_reason": clip(reason)})


def end_of_agent(agent: str, failure: Exception, logins: Sequence[JsonObject] = ()) -> ArcpError:
    """Return the error of a job whose agent has failed like this.

    Args:
        agent: its name.
        failure: what has happened.
        logins: the ways in which it lets people log in.
    """
    match failure:
        case acp.AgentError(code=code) if code == LOG_IN_FIRST:
            names = [text_in(each.get("name")) or text_in(each.get("id")) for each in logins]
            ways = ", ".join(filter(None, names))
            offered = f"; it offers: {clip(ways, MOST_WORDS)}" if ways else ""
            return AgentNotAvailable(f"agent {agent} wants a login{offered}")
        case acp.AgentError():
            words = clip(failure.message, MOST_WORDS)
            details = {"code": failure.code}
            return InternalError(f"agent {agent} answered with an error: {words}", details=details)
        case acp.Unsupported():
            return InternalError(f"agent {agent}: it neither resumes sessions nor loads them")
        case acp.VersionMismatch():
            return AgentNotAvailable(f"agent {agent} speaks another version of ACP")
        case OSError():
            return AgentNotAvailable(f"agent {agent} cannot be started")
        case acp.LineTooLong():
            words = f"a line that its process writes has more than {failure.most:,} bytes"
            limit: JsonObject = {"limit": "agent_line_bytes"}
            return InternalError(f"agent {agent}: {words}", details=limit)
        case acp.NotAcp():
            return InternalError(f"agent {agent}: what its process writes is not ACP")
        case acp.AgentGone():
            return _gone(agent, failure.exit_status)
        case _:
            return InternalError(f"agent {agent} cannot be spoken with")


def late(agent: str, method: str) -> ArcpError:
    """Return the error of a job whose agent has not answered in time."""
    return InternalError(f"agent {agent} has not answered {method} in time")


def _gone(agent: str, status: int | None) -> ArcpError:
    if status is None:
        return InternalError(f"agent {agent}: its process no longer reads or writes")
    details = {"exit_status": status}
    if status >= 0:
        words = f"its process ended with exit status {status}"
    else:
        known = -status in {each.value for each in signal.Signals}
        words = (
            f"its process ended by {signal.Signals(-status).name if known else f'signal {-status}'}"
        )
    said = f"agent {agent}: {words}; the runtime's log has what it said"
    return InternalError(said, details=details)
