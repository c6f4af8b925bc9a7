"""While alice attacks, bob is served as if she were not there.

Each attack is a process of its own. The bar is the delay that 99 of 100 of bob's requests stay
under: three times that of a quiet runtime, or 20 ms.
"""

from __future__ import annotations

import pytest

from tests.fairness.attacks import ATTACKS
from tests.fairness.beside import assert_nothing_noticed

pytestmark = [pytest.mark.alone, pytest.mark.real_tcp]


@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", ATTACKS)
def test_bob_notices_nothing(name: str) -> None:
    """An attack neither delays bob's requests nor fills the memory or the disk."""
    assert_nothing_noticed(name)
