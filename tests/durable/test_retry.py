"""What says how a step is tried again, and cannot mean anything."""

from __future__ import annotations

import math
from typing import Any

import pytest

from arcp_trio import Retry


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"attempts": 0}, ValueError),
        ({"first": -1}, ValueError),
        ({"first": math.nan}, ValueError),
        ({"factor": 0}, ValueError),
        ({"most": -1}, ValueError),
        ({"on": ConnectionError}, TypeError),
        ({"on": [ConnectionError]}, TypeError),
        ({"on": ("ConnectionError",)}, TypeError),
        ({"on": (ConnectionError, KeyboardInterrupt)}, TypeError),
    ],
)
def test_a_retry_that_means_nothing(options: Any, error: type[Exception]) -> None:
    """It is refused when it is made, and not when a step has failed."""
    with pytest.raises(error, match=next(iter(options))):
        Retry(**options)
