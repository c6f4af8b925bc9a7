"""How failures of a command's tasks are reported."""

from __future__ import annotations

from itertools import permutations

import pytest
import trio

from arcp_trio.cli.client import runner
from arcp_trio.cli.client.options import ClientOptions
from arcp_trio.cli.client.runner import run_client
from arcp_trio.cli.client.signals import Interrupts
from arcp_trio.cli.errors import CommandError, ExitCode
from arcp_trio.wire.errors import InvalidRequest


def set_up_nothing(*_: object) -> None:
    """Leave the log of this process alone."""


@pytest.mark.parametrize("order", list(permutations(range(3))))
def test_of_several_failures_the_command_error_is_told(
    order: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of several failures a CommandError is reported, however deep in groups it is."""
    monkeypatch.setattr(runner, "set_up", set_up_nothing)  # keeps pytest's log as it is
    told = CommandError("it is like this", exit_code=ExitCode.CANCELLED)
    failures = [OSError("no room"), ExceptionGroup("inner", [told]), InvalidRequest("no")]

    async def work(_: ClientOptions, __: Interrupts) -> int:
        await trio.lowlevel.checkpoint()
        raise ExceptionGroup("all", [failures[index] for index in order])

    with pytest.raises(CommandError) as raised:
        run_client(work, ClientOptions())
    assert raised.value is told
