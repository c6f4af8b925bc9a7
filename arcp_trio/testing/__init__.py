"""Tools to test agents and runtimes: clients in the same process, and a record of the wire.

The fixtures `arcp_runtime` and `arcp_client` for pytest are there once the root `conftest.py` says
`pytest_plugins = ["arcp_trio.testing.fixtures"]`; the extra `testing` installs what they need.
"""

from __future__ import annotations

from arcp_trio.testing.clock import TrioClock
from arcp_trio.testing.pair import PeerFactory, open_pair, open_peer, open_peers
from arcp_trio.testing.peer import Peer
from arcp_trio.testing.recorder import ConnectionRecord, WireRecorder
from arcp_trio.testing.session_record import Subscription

__all__ = [
    "ConnectionRecord",
    "Peer",
    "PeerFactory",
    "Subscription",
    "TrioClock",
    "WireRecorder",
    "open_pair",
    "open_peer",
    "open_peers",
]
