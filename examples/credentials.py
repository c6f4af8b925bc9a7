"""A credential for each job: minted when the job is accepted, revoked when it ends.

    python examples/credentials.py

`Gateway` stands in for a service that sells models. A real provisioner makes the same calls over
HTTP, as `arcp_trio.provisioners.litellm` does. The store must be durable: after a crash, the next
start revokes the keys that are left.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence

import trio

import arcp_trio
from arcp_trio import CredentialOrder, Issued


class Gateway:
    """A service with keys of its own, and the runtime's connection to it."""

    def __init__(self) -> None:
        self.keys: dict[str, str] = {}

    def is_valid(self, key: str) -> bool:
        """Whether a key opens the models."""
        return key in self.keys.values()

    async def issue(self, order: CredentialOrder) -> Sequence[Issued]:
        """Mint a key for one job."""
        self.keys[order.id] = key = secrets.token_hex(16)
        return [Issued(handle=order.id, value=key, endpoint="https://gateway.example/")]

    async def rotate(self, order: CredentialOrder, handle: str) -> Sequence[Issued]:
        """Mint another key; the runtime has the old one revoked afterwards."""
        return await self.issue(order)

    async def revoke(self, order_id: str, handle: str | None) -> None:
        """Make a key worthless. It may be gone already."""
        self.keys.pop(order_id, None)

    def explain(self, error: Exception) -> arcp_trio.ArcpError | None:
        """Say what the gateway's errors mean to a job; this one has no errors of its own."""
        return None


async def main() -> None:
    """Run one job that asks the gateway, and see that its key is worthless afterwards."""
    gateway = Gateway()
    runtime = arcp_trio.Runtime(
        auth=arcp_trio.StaticTokens({"s3cret": "alice"}),
        store=arcp_trio.SqliteStore("credentials.db"),
        provisioner=gateway,
    )

    @runtime.agent("thinker")
    async def thinker(job: arcp_trio.JobContext) -> arcp_trio.Json:
        (credential,) = job.credentials
        return {"answer": 42, "key is valid": gateway.is_valid(credential.value)}

    async with runtime, trio.open_nursery() as nursery:
        (listener,) = await nursery.start(arcp_trio.serve, runtime, "127.0.0.1", 0)
        port = listener.socket.getsockname()[1]
        async with arcp_trio.connect(f"ws://127.0.0.1:{port}/arcp", token="s3cret") as client:
            job = await client.submit("thinker")
            key = job.credentials[0]["value"]  # its submitter may use it, too
            print(f"while the job runs: {await job.result()}")
            print(f"after the end: {gateway.is_valid(key)}")
        nursery.cancel_scope.cancel()


if __name__ == "__main__":
    trio.run(main)
