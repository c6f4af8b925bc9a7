"""`python -m arcp_trio` is the same as the console script `arcp-trio`."""

from __future__ import annotations

import sys

from arcp_trio.cli import main

if __name__ == "__main__":
    sys.exit(main())
