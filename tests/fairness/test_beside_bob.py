"""While alice attacks, bob is served as if she were not there.

Each attack is a process of its own. The bar is the delay that 99 of 100 of bob's requests stay
under: three times that of a quiet runtime, or 20 ms. What else the machine does can only add to a
delay, so one measurement below the bar is enough.
"""

from __future__ import annotations

import time

import pytest

from tests.fairness.attacks import ATTACKS
from tests.fairness.beside import attacked, served

TRIES = 6
MEMORY_MIB = 600
"""What the process may have in memory at the end of any attack."""

pytestmark = [pytest.mark.alone, pytest.mark.real_tcp]


@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", ATTACKS)
def test_bob_notices_nothing(name: str) -> None:
    """An attack neither delays bob's requests nor fills the memory."""
    with served(280) as bob:
        bob.delays()  # until everything is imported and warm
        quiet = bob.delays()
        with attacked(name, bob.url):
            time.sleep(2)
            tries = [bob.delays()]
            while not tries[-1].within(quiet) and len(tries) < TRIES:
                tries.append(bob.delays())
            held = bob.memory_mib
    assert tries[-1].within(quiet), (quiet, tries)
    assert held <= MEMORY_MIB
