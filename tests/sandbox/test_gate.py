"""What is left of a program that could not be started in a sandbox: nothing."""

from __future__ import annotations

import gc
import os
import resource
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from arcp_trio.authority.lease import Lease
from arcp_trio.reserved import Reserved
from arcp_trio.sandbox.containment import Containment
from tests.footprint import descriptors

pytestmark = [pytest.mark.sandbox, pytest.mark.real_tcp]


@contextmanager
def few_descriptors(spare: int) -> Generator[None]:
    """Leave `spare` descriptors to be opened in the block, and no more."""
    (soft, hard) = resource.getrlimit(resource.RLIMIT_NOFILE)
    taken = [os.open(os.devnull, os.O_RDONLY)]
    highest = max(int(each.name) for each in Path("/dev/fd").iterdir())
    resource.setrlimit(resource.RLIMIT_NOFILE, (highest + 20, hard))
    try:
        with suppress(OSError):
            while True:
                taken.append(os.dup(taken[0]))
        for _ in range(spare):
            os.close(taken.pop())
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        for each in taken:
            os.close(each)


@pytest.mark.parametrize("spare", range(9))
async def test_too_few_descriptors(spare: int) -> None:
    """Wherever descriptors run out, those that were opened before are closed."""
    start = Containment("require", ["true"]).starter(Lease(), Reserved(()), ())
    gc.collect()  # what earlier tests have left is not closed meanwhile
    before = descriptors()
    with few_descriptors(spare), pytest.raises(OSError, match="Too many open files"):
        await start(["true"], cwd=None, environment=None)
    assert descriptors() == before
