"""One runtime is attacked in every way, one after the other, for minutes."""

from __future__ import annotations

import time

import pytest

from tests.fairness.attacks import ATTACKS
from tests.fairness.beside import MIB, Delays, attacked, served

ATTACK_SECONDS = 60
SETTLE_SECONDS = 20
"""A time after the last attack in which what was given up is deleted."""
STORED_MIB = 200
"""What a principal may keep in the store."""
MEMORY_MIB = 600

pytestmark = [pytest.mark.soak, pytest.mark.real_tcp]


@pytest.mark.timeout(3_600)
def test_bob_notices_nothing_for_minutes() -> None:
    """Bob is below the bar most of the time; memory and disk stay within totals in each attack."""
    late: dict[str, list[Delays]] = {}
    with served(3_500, stored_bytes_per_principal=STORED_MIB * MIB) as bob:
        bob.delays()
        quiet = bob.delays()
        for name in ATTACKS:
            with attacked(name, bob.url):
                measured = [bob.delays()]
                end = time.monotonic() + ATTACK_SECONDS
                while time.monotonic() < end:
                    measured.append(bob.delays())
                assert bob.memory_mib <= MEMORY_MIB, name
            within = sum(each.within(quiet) for each in measured)
            if within <= len(measured) / 2:
                late[name] = measured
        time.sleep(SETTLE_SECONDS)
        assert bob.delays().within(quiet)
        assert bob.stored_mib <= 2 * STORED_MIB
    assert not late, (quiet, late)
