"""Which submits under one idempotency key have the same parameters (§7.2)."""

from __future__ import annotations

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from arcp_trio.testing import Peer
from arcp_trio.testing.frames import Frame
from arcp_trio.wire.errors import DuplicateKey, InvalidRequest
from arcp_trio.wire.features import ALL_FEATURES
from arcp_trio.wire.json import Json
from tests.flow.support import Flow, same
from tests.inside import store_older_fingerprints


async def submit_raw(peer: Peer, payload: str) -> Frame:
    """Submit a payload of exactly these characters, and return the acceptance's payload.

    Raises:
        ArcpError: the class of the refusal's code.
    """
    request = f"raw {trio.current_time()} {len(peer.seen)}"
    await peer.send_raw(
        f'{{"arcp":"1.1","id":"{request}","type":"job.submit",'
        f'"session_id":"{peer.session_id}","payload":{payload}}}'
    )
    return await peer.answer("job.accepted", request)


FIELDS: Frame = {"agent": "echo@1.0.0", "input": {"a": 1}, "idempotency_key": "k"}


@pytest.mark.spec("7.2-2", "1.0/7.2-4")
@pytest.mark.parametrize(
    "change",
    [
        {"agent": "sleeper"},
        {"agent": "echo@2.0.0"},
        {"input": {"a": 2}},
        {"lease_request": {"tool.call": ["search.*"]}},
        {"max_runtime_sec": 60},
        {"agent": "echo"},
        {"agent": "nobody"},
        {"input": {"a": True}},
        {"input": {"a": "1"}},
        {"input": {"a": 1, "b": None}},
        {"input": None},
    ],
    ids=str,
)
async def test_one_other_field_is_a_conflict(
    flow: Flow, peer: Peer, autojump_clock, change: Frame
) -> None:
    """A known key with another parameter is refused, and the first job is unaffected."""
    first = await submit(peer, FIELDS)
    with pytest.raises(DuplicateKey) as refused:
        await submit(peer, FIELDS | change)
    assert not refused.value.retryable
    other = await flow.welcomed()
    with pytest.raises(DuplicateKey):
        await submit(other, FIELDS | change)
    assert same(first, await submit(peer, FIELDS))
    await wait_all_tasks_blocked()
    assert flow.runs == [{"a": 1}]


async def submit(peer: Peer, fields: Frame) -> Frame:
    """Submit with these fields, and return the acceptance's payload."""
    return await peer.answer("job.accepted", await peer.send("job.submit", fields))


@pytest.mark.spec("7.2-1")
@pytest.mark.parametrize(
    ("one", "other"),
    [
        ('{"a": 1, "b": [2, {"c": 3, "d": 4}]}', '{"b":[2,{"d":4,"c":3}],"a":1}'),
        ("1.0", "1"),
        ("[100, 0, 0.5]", "[1e2, -0.0, 5E-1]"),
        ('"\\u00fc\\ud83d\\ude00/"', '"ü😀\\/"'),
        ("null", None),
        ("1e300", "1.0E+300"),
        ("9007199254740992", "9007199254740992.0"),
    ],
)
async def test_other_words_for_the_same(
    flow: Flow, peer: Peer, autojump_clock, one: str, other: str | None
) -> None:
    """Order of keys, whitespace, escapes and spelling of numbers make no difference."""
    first = await submit_raw(peer, f'{{"agent":"echo","idempotency_key":"k","input":{one}}}')
    rest = "" if other is None else f'"input" : {other},'
    again = await submit_raw(peer, f'{{ {rest} "idempotency_key":"k", "agent":"\\u0065cho" }}')
    assert same(first, again)
    await wait_all_tasks_blocked()
    assert len(flow.runs) == 1


@pytest.mark.parametrize(
    "fields",
    [
        {"lease_request": {}, "lease_constraints": {}},
        {"lease_request": None, "lease_constraints": None, "max_runtime_sec": None},
        {"lease_constraints": {"expires_at": None}},
        {"parent_job_id": "job_1", "delegate_id": "d", "unknown": {"x": 1}},
    ],
    ids=str,
)
async def test_what_is_as_good_as_absent(peer: Peer, autojump_clock, fields: Frame) -> None:
    """Null, empty and unknown fields, and another trace id, make no difference."""
    first = await submit(peer, FIELDS)
    trace_id = "4bf92f3577b34da6a3ce929d0e0e4736"
    request = await peer.send("job.submit", FIELDS | fields, trace_id=trace_id)
    assert same(first, await peer.answer("job.accepted", request))


def until(year: int) -> Frame:
    """Return the field of a submit whose lease expires in this year."""
    return {"lease_constraints": {"expires_at": f"{year}-01-01T00:00:00Z"}}


@pytest.mark.spec("7.2-1")
async def test_another_expiry_is_the_same_job(flow: Flow, autojump_clock) -> None:
    """Submits that differ in the expiry lead to one job; the acceptance has its expiry."""
    peer, other = [await flow.welcomed(features=ALL_FEATURES) for _ in range(2)]
    first = await submit(peer, FIELDS | until(2100))
    for each, fields in ((peer, until(2101)), (other, until(2102)), (other, {})):
        assert same(first, await submit(each, FIELDS | fields))
    assert first["lease_constraints"] == until(2100)["lease_constraints"]
    with pytest.raises(DuplicateKey):
        await submit(peer, FIELDS | until(2101) | {"input": 2})
    await wait_all_tasks_blocked()
    assert flow.runs == [{"a": 1}]


@pytest.mark.parametrize("again", [until(2100), until(2101), {}], ids=str)
async def test_a_key_that_an_older_version_has_stored(
    flow: Flow, autojump_clock, monkeypatch: pytest.MonkeyPatch, again: Frame
) -> None:
    """A key whose stored digest has the expiry in it leads to its job all the same."""
    peer = await flow.welcomed(features=ALL_FEATURES)
    expires_at = until(2100)["lease_constraints"]["expires_at"]
    with monkeypatch.context() as older:
        store_older_fingerprints(older, expires_at)
        first = await submit(peer, FIELDS | until(2100))
    assert same(first, await submit(peer, FIELDS | again))
    with pytest.raises(DuplicateKey):
        await submit(peer, FIELDS | again | {"input": 2})


@pytest.mark.parametrize(
    "number",
    [
        "1e300",
        "-1.7976931348623157e308",
        "5e-324",
        "1e19",
        "-1e19",
        "9223372036854775807",
        "-9223372036854775808",
        "1e22",
        "123456789012345678e5",
    ],
)
async def test_every_number_there_is_can_be_submitted_with_a_key(
    flow: Flow, peer: Peer, autojump_clock, number: str
) -> None:
    """Numbers at the edges of floats and of 64-bit integers can be compared."""
    text = f'{{"agent":"echo","idempotency_key":"k","input":{{"n":[{number}]}}}}'
    first = await submit_raw(peer, text)
    assert same(first, await submit_raw(peer, text))
    with pytest.raises(DuplicateKey):
        await submit_raw(peer, text.replace(number, "1"))
    await peer.until_terminal(first["job_id"])
    await wait_all_tasks_blocked()
    assert len(flow.runs) == 1


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (9007199254740993, 9007199254740992.0),
        ("Aa", "BB"),  # the same in 31-polynomial string hashes
        ([-1], [-2]),  # the same to Python's hash
        ([0], [False]),
        ([[]], [{}]),
        ("a\u0000", "a"),
    ],
)
@pytest.mark.spec("7.2-2")
async def test_nearly_the_same_is_another(
    peer: Peer, autojump_clock, one: Json, other: Json
) -> None:
    """Values that weak hashes or loose comparison take for equal are a conflict."""
    await peer.submit("echo", one, idempotency_key="k")
    with pytest.raises(DuplicateKey):
        await peer.submit("echo", other, idempotency_key="k")


@pytest.mark.parametrize("key", ["", 5, True, [], {}])
async def test_what_is_no_key(flow: Flow, peer: Peer, autojump_clock, key: Json) -> None:
    """A key that is not a non-empty string is refused, not ignored."""
    with pytest.raises(InvalidRequest, match="idempotency_key"):
        await peer.submit("echo", idempotency_key=key)
    await wait_all_tasks_blocked()
    assert flow.runs == []


async def test_without_a_key_every_submit_is_a_job(flow: Flow, peer: Peer, autojump_clock) -> None:
    """Without a key, or with null, every submit makes a job."""
    jobs = [
        await peer.submit("echo", 1),
        await peer.submit("echo", 1),
        await peer.submit("echo", 1, idempotency_key=None),
    ]
    assert len({job["job_id"] for job in jobs}) == 3
