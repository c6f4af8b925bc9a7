"""What an agent tells of its work becomes the events of its job: one row of the mapping each."""

from __future__ import annotations

from typing import Any

import pytest

from tests.proxies.acp.stage import begin, connected, told

pytestmark = pytest.mark.real_tcp


def content(**block: Any) -> dict[str, Any]:
    """Return a message of one block."""
    return {"sessionUpdate": "agent_message_chunk", "content": block}


def call(**fields: Any) -> dict[str, Any]:
    """Return the announcement of a tool call."""
    return {"sessionUpdate": "tool_call", "toolCallId": "c1", **fields}


def change(**fields: Any) -> dict[str, Any]:
    """Return what has changed of a tool call."""
    return {"sessionUpdate": "tool_call_update", "toolCallId": "c1", **fields}


def usage(**fields: Any) -> dict[str, Any]:
    """Return what the session has used."""
    return {"sessionUpdate": "usage_update", **fields}


BEGUN = ("tool_call", {"tool": "acp/read", "call_id": "c1", "args": {"path": "/a"}})
CALL = call(kind="read", title="Read a", status="pending", rawInput={"path": "/a"})
CANCELLED = {
    "code": "CANCELLED",
    "message": "the job has ended before this call",
    "retryable": False,
}
FAILED = {"code": "INTERNAL_ERROR", "retryable": True}
TEXT = [{"type": "content", "content": {"type": "text", "text": "it is gone"}}]

ROWS: dict[str, tuple[list[dict[str, Any]], list[tuple[str, Any]]]] = {
    "a link": (
        [content(type="resource_link", uri="file:///a.md", mimeType="text/markdown", size=3)],
        [
            (
                "artifact_ref",
                {"uri": "file:///a.md", "content_type": "text/markdown", "byte_size": 3},
            )
        ],
    ),
    "an image": (
        [content(type="image", data="aaaa", mimeType="image/png")],
        [
            (
                "log",
                {
                    "level": "info",
                    "message": "the agent has sent content that is not passed on: image, image/png",
                },
            )
        ],
    ),
    "the user's own words": (
        [{"sessionUpdate": "user_message_chunk", "content": {"type": "text", "text": "hi"}}],
        [],
    ),
    "a call with a result": (
        [CALL, change(status="completed", rawOutput={"n": 1}, content=TEXT)],
        [BEGUN, ("tool_result", {"call_id": "c1", "result": {"n": 1}})],
    ),
    "a call with content": (
        [CALL, change(content=TEXT), change(status="completed")],
        [
            BEGUN,
            (
                "status",
                {"phase": "tool", "call_id": "c1", "message": "Read a", "status": "pending"},
            ),
            ("tool_result", {"call_id": "c1", "result": TEXT}),
        ],
    ),
    "a call that fails": (
        [CALL, change(status="failed", content=TEXT)],
        [
            BEGUN,
            ("tool_result", {"call_id": "c1", "error": {**FAILED, "message": "it is gone"}}),
        ],
    ),
    "a call with a name and without arguments": (
        [call(name="Bash", kind="execute", title="ls", rawInput={}), change(status="completed")],
        [
            ("tool_call", {"tool": "Bash", "call_id": "c1", "args": {"title": "ls"}}),
            ("tool_result", {"call_id": "c1", "result": None}),
        ],
    ),
    "a title that is no text": (
        [call(kind="read", title={"a": [1]}), change(title=5, status="in_progress")],
        [
            ("tool_call", {"tool": "acp/read", "call_id": "c1", "args": {"title": '{"a":[1]}'}}),
            (
                "status",
                {"phase": "tool", "call_id": "c1", "message": "5", "status": "in_progress"},
            ),
            ("tool_result", {"call_id": "c1", "error": CANCELLED}),
        ],
    ),
    "a call of an odd kind": (
        [call(kind="../x", status="completed")],
        [
            ("tool_call", {"tool": "acp/other", "call_id": "c1", "args": {"title": ""}}),
            ("tool_result", {"call_id": "c1", "result": None}),
        ],
    ),
    "arguments that come later": (
        [call(kind="edit", title="Edit"), change(rawInput={"path": "/b"}), change(title="Edit")],
        [
            ("tool_call", {"tool": "acp/edit", "call_id": "c1", "args": {"title": "Edit"}}),
            (
                "status",
                {"phase": "tool", "call_id": "c1", "message": "Edit", "args": {"path": "/b"}},
            ),
            ("tool_result", {"call_id": "c1", "error": CANCELLED}),
        ],
    ),
    "a result of an unknown call": (
        [change(kind="read", status="completed", rawInput={"path": "/a"}, rawOutput="text")],
        [BEGUN, ("tool_result", {"call_id": "c1", "result": "text"})],
    ),
    "a call that ends twice and begins again": (
        [
            {**CALL, "status": "completed"},
            change(status="completed", rawOutput=2),
            change(status="failed"),
            CALL,
        ],
        [BEGUN, ("tool_result", {"call_id": "c1", "result": None})],
    ),
    "a call that never ends": (
        [CALL, change(status="in_progress")],
        [
            BEGUN,
            (
                "status",
                {"phase": "tool", "call_id": "c1", "message": "Read a", "status": "in_progress"},
            ),
            ("tool_result", {"call_id": "c1", "error": CANCELLED}),
        ],
    ),
    "a plan": (
        [
            {
                "sessionUpdate": "plan",
                "entries": [
                    {"content": "read", "status": "completed", "priority": "high"},
                    {"content": "write", "status": "in_progress"},
                    {"content": "test", "status": "pending"},
                ],
            }
        ],
        [("progress", {"current": 1, "total": 3, "units": "steps", "message": "write"})],
    ),
    "tokens": (
        [usage(used=1234, size=200_000)],
        [
            (
                "metric",
                {
                    "name": "acp.context.used",
                    "value": 1234,
                    "unit": "tokens",
                    "dimensions": {"size": 200_000},
                },
            )
        ],
    ),
    "a state": (
        [
            {"sessionUpdate": "current_mode_update", "currentModeId": "plan"},
            {
                "sessionUpdate": "available_commands_update",
                "availableCommands": [{"name": "web"}, {"name": "test"}],
            },
            {"sessionUpdate": "session_info_update", "title": "A title"},
        ],
        [
            ("status", {"phase": "acp.current_mode_update", "message": "plan"}),
            ("status", {"phase": "acp.available_commands_update", "message": "web, test"}),
            ("status", {"phase": "acp.session_info_update", "message": "A title"}),
        ],
    ),
}


@pytest.mark.parametrize("row", ROWS)
async def test_each_kind_has_its_event(row: str) -> None:
    """An update becomes the events that the mapping says; calls say whose they are."""
    sent, rows = ROWS[row]
    own = {"x-vendor.arcp-trio.from": "agent"}
    expected = [(kind, body | own if kind == "tool_call" else body) for kind, body in rows]
    async with connected() as client:
        handle = await begin(client, ["updates", *sent])
        assert await handle.result() == ""
        assert await told(handle) == expected


async def test_thoughts_are_not_the_result() -> None:
    """What the agent thinks is an event of its own kind."""
    async with connected() as client:
        handle = await begin(client, ["think", "hm, ", "well"], ["say", "x"])
        assert await handle.result() == "x"
        thoughts = [body["text"] for kind, body in await told(handle) if kind == "thought"]
        assert "".join(thoughts) == "hm, well"


async def test_thoughts_are_told_by_the_sentence() -> None:
    """An agent that thinks in tokens has an event for each sentence, before what it does next."""
    thoughts = [["think", token] for token in ["It is", " ", "late. ", "Sleep"]]
    async with connected() as client:
        handle = await begin(client, *thoughts, ["say", "x"])
        assert await handle.result() == "x"
        events = [body.get("text", body.get("data")) for _, body in await told(handle)]
        assert events == ["It is late. ", "Sleep", "x", ""]


STRANGE: list[Any] = [
    {"sessionUpdate": "no_such_kind", "x": 1},
    {"sessionUpdate": "no_such_kind", "x": 2},
    {"sessionUpdate": "agent_message_chunk"},
    {"sessionUpdate": "agent_message_chunk", "content": [1]},
    {"sessionUpdate": "agent_thought_chunk", "content": {"type": "text", "text": 5}},
    {"sessionUpdate": "tool_call", "toolCallId": 7},
    {"sessionUpdate": "tool_call_update"},
    {"sessionUpdate": "plan", "entries": "none"},
    {"sessionUpdate": "usage_update", "used": "many", "cost": {"amount": "1", "currency": 5}},
    {"sessionUpdate": 5},
    {},
    None,
]


async def test_what_is_not_understood_is_passed_over() -> None:
    """Unknown kinds and wrong fields cost one line of the log for each kind, and nothing else."""
    async with connected() as client:
        handle = await begin(client, ["updates", *STRANGE], ["say", "x"])
        assert await handle.result() == "x"
        events = await told(handle)
        assert {body["level"] for kind, body in events if kind == "log"} == {"warn"}
        named = [body["message"].split(": ")[1] for kind, body in events if kind == "log"]
        assert sorted(named) == [
            "agent_message_chunk",
            "agent_thought_chunk",
            "no_such_kind",
            "plan",
            "tool_call",
            "tool_call_update",
            "usage_update",
        ]
        assert [kind for kind, _ in events if kind != "log"] == ["result_chunk", "result_chunk"]


@pytest.mark.parametrize("field", ["rawInput", "rawOutput", "title", "name"])
async def test_what_is_too_large_is_shortened(field: str) -> None:
    """A tool call of 3 MB is told in part, and says so; a text of 3 MB is whole."""
    large = {"status": "completed", "kind": "read", "title": "t"}
    async with connected() as client:
        handle = await begin(
            client,
            ["large", call(**large), field, 1_500_000],
            ["large", content(type="text"), "text", 1_500_000],
        )
        assert await handle.result() == "é" * 1_500_000
        events = await told(handle)
        assert [kind for kind, _ in events[:2]] == ["tool_call", "tool_result"]
        shortened = [kind for kind, body in events if body.get("truncated")]
        assert shortened == {"rawInput": ["tool_call"], "rawOutput": ["tool_result"]}.get(field, [])
