"""`arcp-trio homes`: what contained agents keep for each principal, listed and removed."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import Final

import trio

from arcp_trio.cli.client.columns import write_list
from arcp_trio.cli.client.output import json_line, stderr, stdout
from arcp_trio.cli.data_folder import agents_path, find_folder
from arcp_trio.cli.errors import CommandError, ExitCode
from arcp_trio.cli.store_options import HomesOptions
from arcp_trio.proxies.acp.homes import Home, homes_in, remove_home
from arcp_trio.wire.timestamps import rfc3339

_HEADING: Final = ("AGENT", "PRINCIPAL", "LAST USED", "HOME")


def run(options: HomesOptions) -> int:
    """List the homes, or remove those of a principal, and return the exit code."""
    data = agents_path(find_folder(options.data, os.environ)) / "homes"
    found = homes_in(data)
    if options.remove is not None:
        return _remove(data, [each for each in found if each.principal == options.remove], options)
    with suppress(BrokenPipeError):
        trio.run(_list, found, options)
    return ExitCode.SUCCESS


def _remove(data: Path, homes: list[Home], options: HomesOptions) -> int:
    if not homes:
        raise CommandError(f"{options.remove} has no homes in {data}", exit_code=ExitCode.FAILED)
    used: list[str] = []
    for home in homes:
        try:
            if not remove_home(data, home):
                used.append(home.agent)
        except OSError as error:
            words = f"not all of {home.path} can be removed: {error}"
            raise CommandError(words, exit_code=ExitCode.FAILED) from error
    if used:
        words = f"a job uses the home of {', '.join(used)}: try again when it has ended"
        raise CommandError(words, exit_code=ExitCode.FAILED)
    print(f"removed: {', '.join(home.agent for home in homes)}")
    return ExitCode.SUCCESS


async def _list(homes: list[Home], options: HomesOptions) -> None:
    if options.json:
        for home in homes:
            named = {"agent": home.agent, "principal": home.principal or None}
            used = {"used_at": rfc3339(home.used_at), "path": str(home.path)}
            await stdout().write(json_line({**named, **used}))
    elif not homes:
        await stderr().write("there are no homes\n")
    else:
        rows = [
            (home.agent, home.principal or "?", rfc3339(home.used_at), str(home.path))
            for home in homes
        ]
        await write_list([_HEADING, *rows], stdout())
