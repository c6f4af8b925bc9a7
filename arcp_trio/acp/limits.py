"""The bounds of a client session with an agent."""

from __future__ import annotations

from typing import Final

from attrs import frozen

MIB: Final = 1024 * 1024


@frozen(kw_only=True)
class Limits:
    """How much an agent may send, and how long it may take."""

    line_bytes: int = 32 * MIB
    """The longest line; a longer one ends the connection, as it may have been an answer."""
    depth: int = 128
    """Levels of nesting in a line; a deeper one is passed over."""
    values: int = 200_000
    """Values in a line: a line of many small ones takes seconds to read; it is passed over."""
    bad_lines: int = 1000
    """Lines that are not ACP and are passed over, such as banners; one more ends the connection."""
    queue_items: int = 1024
    """Updates and requests of one session that wait for the program. Then the agent waits."""
    queue_bytes: int = 8 * MIB
    """The same in bytes; a single larger update passes."""
    early_updates: int = 100
    """Updates of unknown sessions that are kept while a new session is being opened."""
    requests: int = 64
    """Requests of the agent that have no answer yet; further ones are refused."""
    request_bytes: int = 64 * MIB
    """The same in bytes."""
    unsent_bytes: int = 64 * MIB
    """Bytes that wait because the agent does not read; more end the connection."""
    start_seconds: float = 60.0
    """For the answer to `initialize`."""
    request_seconds: float = 60.0
    """For the answer to any other request but a prompt; when loading, for each sign of life."""
    cancel_seconds: float = 10.0
    """For the end of a turn that is cancelled."""
    leave_seconds: float = 2.0
    """For what is unsent, and then for the process to exit, once the program is done with it."""
    terminate_seconds: float = 2.0
    """Between SIGTERM and SIGKILL."""

    def __attrs_post_init__(self) -> None:
        for name in type(self).__annotations__:
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} must be more than 0")
