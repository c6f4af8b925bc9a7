"""Permissions that an agent asks for are decided by the lease."""

from __future__ import annotations

from typing import Any

import pytest

from arcp_trio import JobFailed
from arcp_trio.proxies.acp.deciding import failure_words
from tests.proxies.acp.asking import ALLOWED, CANCELLED, REFUSED, asked, asked_in
from tests.proxies.acp.stage import begin, connected, told

pytestmark = pytest.mark.real_tcp

READ = {"fs.read": ["/ws/**"]}
WRITE = {"fs.write": ["/ws/**"]}
FETCH = {"net.fetch": ["https://docs.example/**"]}


def edit(*paths: str) -> dict[str, Any]:
    """Return a call that edits files."""
    return {"kind": "edit", "title": "/ws/a", "locations": [{"path": each} for each in paths]}


@pytest.mark.parametrize(
    ("call", "lease", "allowed"),
    [
        (edit("/ws/a"), WRITE, True),
        (edit("/ws/a"), READ, False),
        (edit("/ws/a", "/ws/../etc/passwd"), WRITE, False),
        (edit("/ws/a", "/ws-evil/a"), WRITE, False),
        (edit("/ws/a") | {"rawInput": {"edits": [{"file_path": "/etc/x"}]}}, WRITE, False),
        ({"kind": "read", "rawInput": {"path": "/ws/a"}}, READ, True),
        ({"kind": "search", "rawInput": {"path": "/etc"}}, READ, False),
        ({"kind": "delete", "rawInput": {"path": "/ws/a"}}, WRITE, True),
        ({"kind": "move", "rawInput": {"source": "/ws/a", "destination": "/etc/a"}}, WRITE, False),
        ({"kind": "edit", "title": "/ws/a"}, WRITE, False),
        ({"kind": "edit"}, {"tool.call": ["acp/edit"]}, True),
        ({"kind": "fetch", "rawInput": {"url": "https://docs.example/a"}}, FETCH, True),
        ({"kind": "fetch", "rawInput": {"url": "https://evil.example/"}}, FETCH, False),
        ({"kind": "execute", "name": "Bash"}, {"tool.call": ["Bash"]}, True),
        ({"kind": "execute", "name": "Bash"}, {"tool.call": ["acp/execute"]}, False),
        ({"title": "anything"}, {"tool.call": ["acp/other"]}, True),
        ({"title": "anything"}, {}, False),
    ],
)
async def test_what_the_lease_says(call: Any, lease: dict[str, list[str]], allowed: bool) -> None:  # noqa: FBT001
    """All paths and URLs of a call have to be allowed, or else its tool."""
    done = await asked(["ask", call], lease=lease)
    assert done.answers == [ALLOWED if allowed else REFUSED]
    assert done.results == [{"decision": "allow"} if allowed else "PERMISSION_DENIED"]


async def test_what_is_told() -> None:
    """A pair of its own, with the agent's id and title among the arguments."""
    call = {"toolCallId": "t1", "kind": "execute", "name": "Bash", "title": "Run ls"}
    done = await asked(["ask", call], lease={"tool.call": ["Bash"]})
    args = {"tool": "Bash", "call_id": "t1", "title": "Run ls"}
    assert done.calls == [("session/request_permission", args)]
    (kind, body), _ = done.events
    assert (kind, body["call_id"] != "t1") == ("tool_call", True)


async def test_the_input_is_told() -> None:
    """A title proves nothing, so what the call is about to do is told, too, within bounds."""
    call = {
        "toolCallId": "t1",
        "kind": "execute",
        "name": "Bash",
        "title": "list files",
        "rawInput": {"command": "rm -rf /"},
        "locations": [{"path": "/a"}],
        "content": [{"type": "diff", "path": "/b", "oldText": "", "newText": "x"}],
    }
    long = {**call, "rawInput": {"command": "x" * 100_000}, "locations": [], "content": []}
    done = await asked(["ask", call], ["ask", long], lease={"tool.call": ["Bash"]})
    (_, args), (_, cut) = done.calls
    assert args == {
        "tool": "Bash",
        "call_id": "t1",
        "title": "list files",
        "input": {"command": "rm -rf /"},
        "paths": ["/a", "/b"],
    }
    assert cut["truncated"] is True
    assert 20_000 < len(cut["input"]["command"]) < 32_768


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (FileNotFoundError(2, "not there", "/a"), "/a: not there"),
        (PermissionError(1, "not permitted"), "not permitted"),
        (OSError("no network can be entered"), "no network can be entered"),
    ],
)
def test_words_of_failures(error: OSError, words: str) -> None:
    """A failure is told with its file, if it has one, and with its words in any case."""
    assert failure_words(error) == words


@pytest.mark.parametrize(
    ("kinds", "answer", "result"),
    [
        (["allow_always", "allow_once", "reject_once"], ALLOWED, {"decision": "allow"}),
        (["allow_always", "reject_once"], REFUSED, "PERMISSION_DENIED"),
        (["allow_always"], CANCELLED, "PERMISSION_DENIED"),
        ([], CANCELLED, "PERMISSION_DENIED"),
    ],
)
async def test_never_for_always(kinds: list[str], answer: Any, result: Any) -> None:
    """What would take later decisions away from the lease is not chosen, even if it is all."""
    done = await asked(["ask", {}, kinds], lease={"tool.call": ["*/*"]})
    assert done.answers == [answer]
    assert done.results == [result]


async def test_the_lease_expires() -> None:
    """A lease that expires in the turn: what was asked for before is told, and then the end."""
    async with connected() as client:
        handle = await begin(
            client, ["ask", {}], ["sleep", 90], lease={"tool.call": ["acp/*"]}, expires_in=10.0
        )
        events = await told(handle)
        with pytest.raises(JobFailed) as failed:
            await handle.result()
        assert failed.value.code == "LEASE_EXPIRED"
        (result,) = [body for kind, body in events if kind == "tool_result"]
        assert result["result"] == {"decision": "allow"}


async def test_the_budget_is_used_up() -> None:
    """Once the budget is used up, nothing is allowed any more."""
    async with connected() as client:
        handle = await begin(
            client,
            ["ask", {}],
            ["cost", 2],
            ["ask", {}],
            lease={"tool.call": ["acp/*"]},
            budget={"USD": "1"},
        )
        done = await asked_in(handle)
        assert done.answers == [ALLOWED, REFUSED]
        assert done.results == [{"decision": "allow"}, "BUDGET_EXHAUSTED"]
