"""A streamed result (§8.4), written to standard output chunk by chunk, as it comes."""

from __future__ import annotations

import binascii
from base64 import b64decode
from hashlib import sha256

from arcp_trio.cli.client.output import Output
from arcp_trio.cli.client.screen import Screen
from arcp_trio.cli.text import SafeText
from arcp_trio.wire.event_bodies import ResultChunkBody
from arcp_trio.wire.events import InvalidEvent, read_body
from arcp_trio.wire.json import JsonValue


class StreamedResult:
    """Writes text and bytes to a file or a pipe as they are, and safe text to a terminal.

    What cannot be written when its chunk comes is written when the whole result is known: chunks
    that are not in order, and those of a result that the agent begins anew.
    """

    def __init__(self, out: Output, screen: Screen) -> None:
        self._out = out
        self._screen = screen
        self._safe = SafeText()
        self._result_id: str | None = None
        self._next = 0
        self._written = 0  # characters to a terminal, else bytes
        self._digest = sha256()
        """The digest of what is written."""
        self._stopped = False
        """Whether the rest waits for the end."""

    @property
    def on_screen(self) -> bool:
        """Whether a part of the result is on the terminal."""
        return self._out.is_terminal and self._written > 0

    def wait_for_the_end(self) -> None:
        """Write nothing before the whole result is known."""
        self._stopped = True

    async def add(self, body: JsonValue) -> None:
        """Write a chunk, if it is the next one."""
        if self._stopped:
            return
        try:
            chunk = read_body("result_chunk", body)
            assert isinstance(chunk, ResultChunkBody)
            data = chunk.data if chunk.encoding == "utf8" else b64decode(chunk.data, validate=True)
        except (InvalidEvent, binascii.Error, ValueError):
            self._stopped = True
            return
        if chunk.result_id != (self._result_id or chunk.result_id) or chunk.chunk_seq > self._next:
            self._stopped = True
        elif chunk.chunk_seq == self._next:
            self._result_id = chunk.result_id
            self._next += 1
            await self._write(data)

    async def _write(self, data: str | bytes) -> None:
        if self._out.is_terminal:
            if isinstance(data, str):
                self._note(data.encode(), len(data))
                await self._screen.pass_on(self._out, self._safe.add(data))
            else:
                self._stopped = True
            return
        encoded = data.encode() if isinstance(data, str) else data
        self._note(encoded, len(encoded))
        await self._out.write(encoded)

    def _note(self, written: bytes, length: int) -> None:
        self._written += length
        self._digest.update(written)

    def _is_begun(self, value: str | bytes) -> bool:
        """Return whether what is written is the beginning of this result."""
        if self._out.is_terminal and isinstance(value, bytes):
            return True  # of bytes, a terminal is told only how many they are
        if isinstance(value, str) and not self._out.is_terminal:
            value = value.encode()
        begun = value[: self._written]
        encoded = begun.encode() if isinstance(begun, str) else begun
        return sha256(encoded).digest() == self._digest.digest()

    async def finish(self, value: str | bytes) -> bool:
        """Write the part of the whole result that is not written yet.

        Of a result that does not begin with what is written, a terminal is shown the whole.

        Returns:
            False if a file or a pipe has the beginning of another result: nothing more is written.
        """
        if not self._is_begun(value):
            if not self._out.is_terminal:
                return False
            self._safe, self._written = SafeText(), 0
            await self._screen.add(["the agent has begun its result anew:"], "")
        await self._write_rest(value)
        return True

    async def _write_rest(self, value: str | bytes) -> None:
        if not self._out.is_terminal:
            encoded = value.encode() if isinstance(value, str) else value
            await self._out.write(encoded[self._written :])
        elif isinstance(value, str):
            rest = self._safe.add(value[self._written :]) + self._safe.end()
            end = "" if value.endswith(("\n", "\r")) else "\n"
            await self._screen.pass_on(self._out, rest + end)
        else:
            notice = f"the result is {len(value):,} bytes and not text; send the output to a file"
            await self._screen.add([notice], "")
