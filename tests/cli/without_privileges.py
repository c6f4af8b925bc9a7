"""`python -m tests.cli.without_privileges …` is `python -m arcp_trio …` of a user like any other.

Root may look into any process. Without its capabilities it may not, which needs no other user.
"""

from __future__ import annotations

import ctypes
import os
import sys
from typing import Final

_PR_CAPBSET_DROP: Final = 24
_CAPABILITIES: Final = 64
"""More than there are."""

if __name__ == "__main__":
    for capability in range(_CAPABILITIES):  # another user has none to drop
        ctypes.CDLL(None).prctl(_PR_CAPBSET_DROP, capability, 0, 0, 0)
    os.execv(sys.executable, [sys.executable, "-m", "arcp_trio", *sys.argv[1:]])
