"""A directory that jobs may use, one outside of it, and an agent that opens files."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path

from arcp_trio import ArcpError, JobContext, Runtime
from arcp_trio.testing import Peer
from arcp_trio.testing.frames import Frame
from arcp_trio.wire.json import Json

DENIED = "PERMISSION_DENIED"
SECRET = "secret"

Act = Callable[[JobContext], Awaitable[Json]]


async def attempt(job: JobContext, path: str | Path, mode: str, text: str | None = None) -> str:
    """Write the text or read the file; return what was read, or the error in one word."""
    try:
        async with job.open(path, mode) as file:  # type: ignore[call-overload]  # any mode
            if text is not None:
                await file.write(text if "b" not in mode else text.encode())
                return "written"
            found = await file.read()
            return found if isinstance(found, str) else found.decode()
    except ArcpError as error:
        return error.code
    except (OSError, ValueError) as error:
        return type(error).__name__


class Workspace:
    """A directory that jobs may use, beside one that they may not use, and an agent."""

    def __init__(self, runtime: Runtime, peer: Peer, root: Path) -> None:
        self.inside = root / "ws"
        self.outside = root / "out"
        for each, text in ((self.inside, "inside"), (self.outside, SECRET)):
            (each / "deep").mkdir(parents=True)
            (each / "a.txt").write_text(text)
            (each / "deep" / "a.txt").write_text(text)
        self.lease: Frame = {
            "fs.read": [f"{self.inside}/**"],
            "fs.write": [f"{self.inside}/**"],
        }
        self.peer = peer
        self._act: Act

        @runtime.agent("opener")
        async def opener(job: JobContext) -> Json:
            return await self._act(job)

    async def start(self, act: Act, **fields: Json) -> str:
        """Have the agent do this, and return the job's id."""
        self._act = act
        accepted = await self.peer.submit("opener", **({"lease_request": self.lease} | fields))
        job_id: str = accepted["job_id"]
        return job_id

    async def run(self, act: Act, **fields: Json) -> Frame:
        """Have the agent do this, and return the payload of its terminal."""
        end = await self.peer.until_terminal(await self.start(act, **fields))
        payload: Frame = end["payload"]
        return payload

    async def attempt(
        self,
        path: str | Path,
        mode: str = "r",
        text: str | None = None,
        *,
        lease: Mapping[str, Sequence[str]] | None = None,
    ) -> str:
        """Return the outcome of one attempt to open a file; `lease` replaces grants."""
        asked: Frame = self.lease | dict(lease or {})
        payload = await self.run(lambda job: attempt(job, path, mode, text), lease_request=asked)
        result = payload["result"]
        assert isinstance(result, str)
        return result

    def untouched(self) -> bool:
        """Return whether the directory outside is unchanged."""
        found = [path.read_text() for path in self.outside.rglob("*.txt")]
        return found == [SECRET, SECRET]
