"""The homes of contained agents: kept from job to job, and removed when nobody uses them."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
import trio

from arcp_trio import Limits
from arcp_trio.cli import homes as command
from arcp_trio.cli.errors import CommandError
from arcp_trio.cli.store_options import HomesOptions
from arcp_trio.proxies.acp.homes import Homes, homes_in

DAY = 24 * 3600


def age(data: Path, seconds: float) -> None:
    """Make the last uses of all homes that old."""
    for use in (data / ".uses").glob("*/*"):
        when = use.stat().st_mtime - seconds
        os.utime(use, (when, when))


async def test_a_home_goes_when_nobody_uses_it(tmp_path: Path) -> None:
    """Past its time it goes with all that is in it; not while a job uses it, however old it is."""
    homes = Homes(tmp_path)
    async with homes.using("coder", "alice") as home:
        os.mkdir(f"{home}/deep", mode=0)  # noqa: PTH102
    async with homes.using("coder", "alice") as again, homes.using("coder", "bob"):
        assert again == home
        age(tmp_path, 2 * DAY)
        await homes.sweep(Limits(agent_home_seconds=DAY).agent_home_seconds)
        assert [each.principal for each in homes_in(tmp_path)] == ["alice", "bob"]
    await homes.sweep(DAY)
    assert len(homes_in(tmp_path)) == 2, "they were used just now"
    age(tmp_path, 2 * DAY)
    async with homes.using("coder", "bob"):
        await homes.sweep(DAY)
        assert [each.principal for each in homes_in(tmp_path)] == ["bob"]
    (tmp_path / ".removed" / "cut off" / "x").mkdir(parents=True)
    await homes.sweep(DAY)
    assert list((tmp_path / ".removed").iterdir()) == []
    async with homes.using("coder", "alice") as home:
        assert os.listdir(home) == []  # noqa: PTH208


def test_the_command(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """`arcp-trio homes` lists them, and removes those of a principal that no job uses."""
    data = tmp_path / "agents" / "homes"

    async def use(*, busy: bool) -> None:
        homes = Homes(data)
        for agent, principal in (("coder", "alice"), ("helper", "alice"), ("coder", "bob")):
            async with homes.using(agent, principal):
                pass
        async with homes.using("coder", "alice"):
            if busy:
                with pytest.raises(CommandError, match="a job uses the home of coder"):
                    command.run(HomesOptions(data=str(tmp_path), remove="alice"))

    def listed() -> list[tuple[str, str]]:
        command.run(HomesOptions(data=str(tmp_path), json=True))
        told = map(json.loads, capfd.readouterr().out.splitlines())
        return sorted((each["agent"], each["principal"]) for each in told)

    trio.run(lambda: use(busy=False))
    assert listed() == [("coder", "alice"), ("coder", "bob"), ("helper", "alice")]
    trio.run(lambda: use(busy=True))
    assert command.run(HomesOptions(data=str(tmp_path), remove="alice")) == 0
    assert capfd.readouterr().out == "removed: coder\n"
    assert listed() == [("coder", "bob")]
    with pytest.raises(CommandError, match="alice has no homes"):
        command.run(HomesOptions(data=str(tmp_path), remove="alice"))
