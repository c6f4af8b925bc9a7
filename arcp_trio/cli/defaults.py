"""Where `serve` and the other commands find what they need when no option says it."""

from __future__ import annotations

from typing import Final

from arcp_trio.addresses import WEBSOCKET_PATH

HOST: Final = "127.0.0.1"
PORT: Final = 7777
URL: Final = f"ws://{HOST}:{PORT}{WEBSOCKET_PATH}"
DATA: Final = ".arcp"
"""The folder of the store and the token, below the current folder."""
NEAREST: Final = f"the nearest {DATA}, here or above"
"""The folder that commands look for, in words."""
STORE_VARIABLE: Final = "ARCP_STORE"
"""The environment variable with the address of a store in PostgreSQL."""
