"""Results of jobs that have ended, read back from the store."""

from __future__ import annotations

from typing import TYPE_CHECKING

from arcp_trio.runtime.job.result_chunks import decoded_chunk, stored_chunks
from arcp_trio.wire.envelope import payload_of
from arcp_trio.wire.errors import ArcpError, InternalError, error_from_payload
from arcp_trio.wire.json import JsonObject, JsonValue, loads_object

if TYPE_CHECKING:
    from collections.abc import Callable

    from arcp_trio.runtime.core import Core
    from arcp_trio.store.records import JobRow, Status


async def stored_result(
    core: Core, job_id: str, failure: Callable[[Status, ArcpError], ArcpError]
) -> JsonValue | bytes:
    """Return what the agent of a job that has ended returned, or streamed.

    Args:
        failure: makes the error to raise of the job's own.

    Raises:
        ArcpError: the job did not succeed.
        InternalError: its result is no longer stored.
    """
    row = await core.store.job(job_id)
    if row is None:
        raise InternalError("the result of the delegated job is no longer stored")
    payload = await _terminal(core, row)
    if "code" in payload:
        raise failure(row.status, error_from_payload(payload))
    result_id = payload.get("result_id")
    if result_id is None:
        return payload["result"]
    chunks = await stored_chunks(core, row.principal, job_id, str(result_id))
    data = b"".join(map(decoded_chunk, chunks))
    return data.decode() if all(chunk.encoding == "utf8" for chunk in chunks) else data


async def _terminal(core: Core, row: JobRow) -> JsonObject:
    reads = core.store.for_principal(row.principal)
    ((_, entry),) = await reads.owed({row.job_id: row.length - 1}, 1, 0)
    return loads_object(payload_of(entry.tail))
