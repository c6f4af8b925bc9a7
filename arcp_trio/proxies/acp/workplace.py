"""Where the program of a job works: its folder, its variables, and its sandbox."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext, suppress
from functools import partial
from pathlib import Path
from typing import Final

import attrs
import trio

from arcp_trio.acp.spawning import own_environment
from arcp_trio.authority.patterns import URLS, Pattern
from arcp_trio.authority.sites import at_and_below
from arcp_trio.proxies.acp.homes import Homes
from arcp_trio.runtime.job.context import JobContext, authority_behind, reserved_behind
from arcp_trio.runtime.job.fitting import MOST_NAME
from arcp_trio.runtime.limits import Limits
from arcp_trio.sandbox.containment import Containment
from arcp_trio.sandbox.network.network import Network
from arcp_trio.sandbox.network.reach import Reach
from arcp_trio.sandbox.plan import Mount, is_writable
from arcp_trio.transport.starting import Start
from arcp_trio.wire.errors import ArcpError, PermissionDenied, clip

MOST_REFUSED: Final = 100
"""URLs of which a job tells that its sandbox has refused them, each once."""


@attrs.frozen(kw_only=True)
class Workplace:
    """Where an agent and its commands start: in which folder, with which variables, and how."""

    cwd: str
    environment: Mapping[str, str]
    start: Start
    """Starts them, in a sandbox if they are contained."""
    network: Network | None
    """What the contained ones reach."""
    mounts: Sequence[Mount] = ()
    """What the contained ones see."""

    def writes(self, path: str) -> bool:
        """Return whether programs that are started here can write a path by themselves."""
        return not self.contained or is_writable(path, self.mounts)

    @property
    def contained(self) -> bool:
        """Whether the operating system holds them to the job's lease."""
        return self.network is not None

    def serving(self) -> AbstractAsyncContextManager[None]:
        """Return the block in which the network of what is started here is served."""
        return nullcontext() if self.network is None else self.network.serving()


class Workplaces:
    """The workplaces of one agent's jobs."""

    def __init__(
        self,
        containment: Containment,
        *,
        added: Mapping[str, str],
        data: Path | None,
        home: str | None,
        net: Sequence[Pattern],
    ) -> None:
        """Contain jobs, or not.

        Args:
            containment: says whether.
            added: variables that programs get beside those that say where and for whom they run.
            data: where contained jobs have their homes, one for each agent and principal; without
                it, in a temporary folder that goes with this process.
            home: the only home, in place of those.
            net: what contained jobs can reach beside what is leased to them.
        """
        self._containment: Final = containment
        self._added: Final = added
        self._homes: Final = Homes(data)
        self._home: Final = home
        self._net: Final = net

    @property
    def contained(self) -> bool:
        """Whether what is started in them is contained."""
        return self._containment.reason is None

    @asynccontextmanager
    async def of(self, job: JobContext, cwd: str, *, own_folder: bool) -> AsyncGenerator[Workplace]:
        """Provide the workplace of a job for the block.

        Args:
            job: the job.
            cwd: the folder that it works in.
            own_folder: whether the folder is the job's own, so that no lease has to open it.

        Raises:
            OSError: the job's home cannot be made.
        """
        if self.contained and self._home is None:
            async with self._homes.using(job.agent, job.principal) as home:
                yield await self._with_home(job, cwd, home, own_folder=own_folder)
        else:
            yield await self._with_home(job, cwd, self._home, own_folder=own_folder)

    async def sweep(self, limits: Limits) -> None:
        """Remove the homes that nobody has used for long."""
        await self._homes.sweep(limits.agent_home_seconds)

    async def _with_home(
        self, job: JobContext, cwd: str, home: str | None, *, own_folder: bool
    ) -> Workplace:
        own = [cwd] if own_folder else []
        environment = own_environment()
        if self.contained:
            # A link on the way to the folder is not in the sandbox.
            cwd = await trio.to_thread.run_sync(os.path.realpath, cwd)
            assert home is not None, "a contained program has one"
            own = [*map(os.path.realpath, own), home]
        if home is not None:
            environment["HOME"] = home
        authority = authority_behind(job)
        reserved = reserved_behind(job)
        if not self._containment.shows(cwd, authority.lease, reserved, own):
            await job.log(
                f"the sandbox does not show all of {cwd}: for that the lease needs fs.read of"
                f" {_all_of(cwd)}",
                "warn",
            )
        network = Network(self._reach(job)) if self.contained else None
        return Workplace(
            cwd=cwd,
            environment={**environment, **self._added},
            start=self._containment.starter(authority.lease, reserved, own, network),
            network=network,
            mounts=self._containment.mounts(authority.lease, reserved, own),
        )

    def _reach(self, job: JobContext) -> Reach:
        def added() -> Sequence[Pattern]:
            endpoints = [each.endpoint for each in job.credentials]
            return [*self._net, *(pattern for url in endpoints for pattern in at_and_below(url))]

        told: set[str] = set()

        async def refused(url: str, why: str) -> None:
            scheme, _, rest = url.partition("?")[0].partition("://")
            shown = f"{scheme}://{rest.rpartition('@')[2]}"  # and no secrets in it
            if shown not in told and len(told) < MOST_REFUSED:
                told.add(shown)
                reason = f": {clip(why)}" if shown == url else ""  # which repeats the URL
                with suppress(ArcpError):  # the job is over
                    words = f"the sandbox has refused {clip(shown, MOST_NAME)}{reason}"
                    await job.log(words, "warn")

        return Reach(
            lease=authority_behind(job).lease,
            authorize=partial(job.authorize, URLS),
            added=added,
            approved=partial(job.approved, URLS),
            refused=refused,
        )


def _authorize(job: JobContext, folder: str) -> None:
    try:
        job.authorize("fs.read", folder)
    except PermissionDenied as error:
        # With a lease of the folder alone, a sandbox would not show what is in it.
        error.details["pattern"] = _all_of(folder)
        raise


def _all_of(folder: str) -> str:
    """Return the pattern of a folder and all that is in it."""
    return f"{folder.rstrip('/')}/**"


async def check_folder(job: JobContext, cwd: str) -> None:
    """Return if an agent may work in a folder.

    Raises:
        LeaseExpired, BudgetExhausted, PermissionDenied: the lease does not allow it.
    """
    _authorize(job, cwd)
    real = await trio.to_thread.run_sync(os.path.realpath, cwd)
    _authorize(job, real)
    if not await trio.Path(real).is_dir():
        raise PermissionDenied(f"{cwd} is not a folder that the agent can work in")
