"""Without its cures, each attack is felt: what shows that bob notices nothing is able to fail."""

from __future__ import annotations

import pytest

from tests.fairness.attacks import ATTACKS
from tests.fairness.beside import Noticed, assert_nothing_noticed
from tests.fairness.uncured import UNCURED

pytestmark = [pytest.mark.soak, pytest.mark.real_tcp]


@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", ATTACKS)
def test_bob_notices_an_attack_without_its_cures(name: str) -> None:
    """What holds an attack off in `test_beside_bob.py` are the cures in the table."""
    with pytest.raises(Noticed):
        assert_nothing_noticed(name, cured=False)


def test_each_attack_has_a_cure() -> None:
    """The table of cures is complete."""
    assert UNCURED.keys() == ATTACKS.keys()
