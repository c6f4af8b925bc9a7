"""Edits that were allowed: one decision covers one, which can be made; others are told."""

from __future__ import annotations

import os
import tracemalloc
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import attrs
import pytest

from arcp_trio import ArcpError, Client, JobHandle, Question
from arcp_trio.testing.frames import Frame
from tests.proxies.acp.asking import ALLOWED, ASK, Asked, asked_in
from tests.proxies.acp.stage import connected, steps

pytestmark = pytest.mark.real_tcp
CONTAINED = pytest.mark.sandbox


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    """Return a folder with two files in it."""
    shop = tmp_path / "shop"
    shop.mkdir()
    (shop / "cart.py").write_text("one\ntwo\n")
    (shop / "other.py").write_text("other\n")
    return shop


def edit(path: Path, old: str = "", new: str = "", call_id: str = "e1") -> Frame:
    """Return the tool call of an edit, as it is shown with a request for permission."""
    content = [{"type": "diff", "path": str(path), "oldText": old, "newText": new}]
    return {
        "toolCallId": call_id,
        "kind": "edit",
        "title": "Edit",
        "locations": [{"path": str(path)}],
        "content": content if new else [],
    }


def told(call: Frame, status: str, **fields: Any) -> list[Any]:
    """Return the step by which an agent tells of a tool call of its own."""
    return ["updates", {"sessionUpdate": "tool_call", **call, "status": status, **fields}]


async def edited(
    client: Client, shop: Path, *script: list[Any], **lease: list[str]
) -> tuple[Asked, JobHandle]:
    """Run a job in the folder that may be read, and written if somebody agrees."""
    terms = {"fs.read": [f"{shop}/**"], f"{ASK}fs.write": [f"{shop}/**"], **lease}
    handle = await client.submit(
        "scripted", {"prompt": steps(*script), "cwd": str(shop)}, lease=terms
    )
    return await asked_in(handle), handle


def answering(client: Client, **terms: Any) -> list[Question]:
    """Agree to all questions, and return those that were asked."""
    seen: list[Question] = []

    @client.on_question
    async def decide(question: Question) -> None:
        seen.append(question)
        await question.answer("allow", **terms)

    return seen


def warnings(done: Asked) -> list[str]:
    """Return what the job has warned of."""
    return [body["message"] for kind, body in done.events if kind == "log"]


@CONTAINED
async def test_an_agent_that_writes_by_itself(shop: Path) -> None:
    """Once it was allowed, the sandbox lets it write that file, until the call ends; asked once.

    What it has the runtime write, too, is covered if it is what was shown.
    """
    path = shop / "cart.py"
    call = edit(path, "two", "2")
    async with connected(sandbox="require") as client:
        seen = answering(client)
        done, _ = await edited(
            client,
            shop,
            ["run", "echo early > cart.py"],
            ["ask", call],
            ["write", str(path), "one\n2\n"],
            ["run", "printf 'one\\n2\\n3\\n' > cart.py; echo x > other.py; rm cart.py; touch new"],
            told(call, "completed"),
            ["read", "/"],  # answered after that
            ["run", "echo late > cart.py"],
        )
    assert len(seen) == 1
    assert done.answers[1:3] == [ALLOWED, {}]
    assert [done.answers[each].count("Read-only") for each in (0, 3, 5)] == [1, 3, 1]
    assert path.read_text() == "one\n2\n3\n"
    assert (shop / "other.py").read_text() == "other\n"
    assert warnings(done) == []


@CONTAINED
async def test_a_new_file_in_a_new_folder(shop: Path) -> None:
    """What is not there yet is made, with its folder, so that the agent can write it."""
    path = shop / "a/b/new.py"
    async with connected(sandbox="require") as client:
        seen = answering(client)
        script = ["run", "mkdir -p a/b && echo new > a/b/new.py; touch a/b/more"]
        done, _ = await edited(client, shop, ["ask", edit(path, "", "new\n")], script)
    assert len(seen) == 1
    assert done.answers[1].count("Read-only") == 1
    assert path.read_text() == "new\n"
    assert warnings(done) == []


@CONTAINED
async def test_who_owns_what_is_made(shop: Path) -> None:
    """A file and a folder that are made belong to the owner of the folder that they are in."""
    owner = 65_534 if os.geteuid() == 0 else os.geteuid()
    os.chown(shop, owner, -1)
    path = shop / "a/new.py"
    async with connected(sandbox="require") as client:
        answering(client)
        await edited(client, shop, ["ask", edit(path, "", "new\n")], ["run", "echo 1 > a/new.py"])
    assert [each.stat().st_uid for each in (path, path.parent)] == [owner, owner]


@CONTAINED
async def test_no_folder_behind_a_link(shop: Path) -> None:
    """An approval makes no folder in another place than the question names."""
    (shop / "lib").mkdir()
    (shop / "link").symlink_to("lib")
    call = edit(shop / "link/new/f.py", "", "new\n")
    async with connected(sandbox="require") as client:
        answering(client)
        done, _ = await edited(client, shop, ["ask", call])
    assert not (shop / "lib/new").exists()
    (warning, *_) = warnings(done)
    assert warning.startswith(f"the agent cannot write {shop}/link/new/f.py by itself")


@CONTAINED
async def test_for_the_job(shop: Path) -> None:
    """What is allowed for the job can be written to its end, and nobody is asked again."""
    path = shop / "cart.py"
    one, two = edit(path, "two", "2"), edit(path, "2", "3", call_id="e2")
    async with connected(sandbox="require") as client:
        seen = answering(client, scope="job")
        done, _ = await edited(
            client,
            shop,
            ["ask", one],
            ["run", "echo 2 > cart.py"],
            told(one, "completed"),
            ["run", "echo between >> cart.py"],
            ["ask", two],
            ["run", "echo 3 >> cart.py"],
            told(two, "completed"),
        )
    assert len(seen) == 1
    assert path.read_text() == "2\nbetween\n3\n"
    assert warnings(done) == []


@CONTAINED
async def test_two_edits_of_a_file_at_once(shop: Path) -> None:
    """The end of one does not end the other."""
    path = shop / "cart.py"
    one, two = edit(path, "one", "1"), edit(path, "two", "2", call_id="e2")
    async with connected(sandbox="require") as client:
        answering(client)
        done, _ = await edited(
            client,
            shop,
            *(["ask", one], ["ask", two], ["run", "echo 1 > cart.py"], told(one, "completed")),
            *(["read", "/"], ["run", "echo 2 >> cart.py"], told(two, "completed")),
            *(["read", "/"], ["run", "echo 3 >> cart.py"]),
        )
    assert path.read_text() == "1\n2\n"
    assert warnings(done) == []


@CONTAINED
async def test_a_pattern_that_mounts_cannot_say(shop: Path) -> None:
    """What the lease allows by such a pattern can be written after a request for permission."""
    async with connected(sandbox="require") as client:
        script = ["run", "echo 2 > cart.py; echo x > other.txt"]
        lease = {"fs.write": [f"{shop}/*.py"]}
        call = edit(shop / "cart.py", "two", "2")
        done, _ = await edited(client, shop, ["ask", call], script, **lease)
    assert done.answers[1].count("Read-only") == 1
    assert (shop / "cart.py").read_text() == "2\n"


async def test_what_was_not_shown_is_asked_about(shop: Path) -> None:
    """A permission covers one write of what it has shown, and no other content."""
    path = shop / "cart.py"
    in_input = {**edit(path), "rawInput": {"path": str(path), "content": "by input\n"}}
    async with connected() as client:
        seen = answering(client)
        await edited(
            client,
            shop,
            ["ask", edit(path, "one\ntwo\n", "one\n2\n")],
            ["write", str(path), "one\nbad\n"],
            ["write", str(path), "one\ntwo\n"],
            ["ask", edit(path, "two", "2")],
            ["write", str(path), "one\n2\n"],
            ["write", str(path), "one\n2\n"],
            ["ask", in_input],
            ["write", str(path), "by input\n"],
            ["ask", edit(path)],
            ["write", str(path), "unseen\n"],
            ["write", str(path), "last\n"],
        )
    asked = [(each.tool or "").rpartition("/")[2] for each in seen]
    permission, write = "request_permission", "write_text_file"
    assert asked[:6] == [permission, write, write, permission, write, permission]
    assert asked[6:] == [permission, write]
    (change,) = seen[1].shown.changes or []
    assert change.diff == "@@ -1,2 +1,2 @@\n one\n-two\n+bad\n"
    (change,) = seen[5].shown.changes or []
    assert change.diff == "@@ -1,2 +1,1 @@\n-one\n-2\n+by input\n"
    (change,) = seen[6].shown.changes or []
    assert (change.diff, change.note) == ("", "the agent gives no diff of what it will write")
    assert path.read_text() == "last\n"


async def test_a_twin_path_and_other_kinds(shop: Path) -> None:
    """A diff of another path says nothing of this one; to delete or move covers no write."""
    twin = f"{shop}/a/x/%2E%2E/../cart.py"
    call = {**edit(shop / "a/x/cart.py"), "content": edit(Path(twin), "one", "1")["content"]}
    path = shop / "cart.py"
    async with connected() as client:
        seen = answering(client)
        await edited(
            client,
            shop,
            ["ask", call],
            *(["ask", {**edit(path), "kind": "delete"}], ["write", str(path), "1\n"]),
            *(["ask", {**edit(path), "kind": "move"}], ["write", str(path), "2\n"]),
        )
    clear, unclear = sorted(seen[0].shown.changes or [], key=lambda each: each.diff, reverse=True)
    assert clear.path == twin
    assert (unclear.path, unclear.diff) == (f"{shop}/a/x/cart.py", "")
    assert unclear.note == "the agent gives no diff of what it will write"
    tools = [(each.tool or "").rpartition("/")[2] for each in seen[1:]]
    assert tools == ["request_permission", "write_text_file"] * 2


@pytest.mark.parametrize(
    ("kind", "field"), [("edit", "toolCallId"), ("execute", "toolCallId"), ("edit", "content")]
)
async def test_long_requests_are_not_kept(shop: Path, kind: str, field: str) -> None:
    """What a lease allows or refuses by itself takes no memory until the call ends."""
    tool = {"kind": kind, "title": "t", "rawInput": {"path": f"{shop}/a/f"}}
    kept: list[int] = []
    async with connected() as client:

        @client.on_question
        async def decide(question: Question) -> None:
            kept.append(tracemalloc.get_traced_memory()[0])
            await question.answer("allow")

        tracemalloc.start()
        try:
            long = ["ask_long", 40, 1_000_000, tool, field]
            call = edit(shop / "cart.py", "two", "2")
            await edited(client, shop, long, ["ask", call], **{"fs.write": [f"{shop}/a/**"]})
        finally:
            tracemalloc.stop()
    assert len(kept) == 1
    assert kept[0] < 20_000_000


@CONTAINED
async def test_the_oldest_of_many_permissions_ends(
    shop: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No more files than a bound stay writable at once."""
    monkeypatch.setattr("arcp_trio.proxies.acp.allowed.MOST_ALLOWED", 2)
    cart, other, new = shop / "cart.py", shop / "other.py", shop / "new.py"
    async with connected(sandbox="require") as client:
        answering(client)
        done, _ = await edited(
            client,
            shop,
            *(["ask", edit(cart, call_id="a")], ["run", "echo 1 > cart.py"]),
            *(["ask", edit(path, call_id=path.name)] for path in (other, new)),
            ["run", "echo 2 > cart.py; echo 2 > other.py; echo 2 > new.py"],
        )
    assert [path.read_text() for path in (cart, other, new)] == ["1\n", "2\n", "2\n"]
    assert warnings(done) == []


async def test_a_diff_that_is_not_of_the_file(shop: Path) -> None:
    """People are told when the agent describes another file than there is; it covers nothing."""
    path = shop / "cart.py"
    async with connected() as client:
        seen = answering(client)
        call = edit(path, "bad\none\n", "bad\n1\n")
        await edited(client, shop, ["ask", call], ["write", str(path), "bad\n1\n"])
    (change,) = seen[0].shown.changes or []
    assert change.note == "the file has something else now than the agent says"
    assert len(seen) == 2


@CONTAINED
async def test_edits_that_were_not_made(shop: Path) -> None:
    """Whatever the agent says at its end, the job warns of each edit that it has not made."""
    cart, other, new = shop / "cart.py", shop / "other.py", shop / "new.py"
    failure = [{"type": "content", "content": {"type": "text", "text": "EROFS: read-only"}}]
    async with connected(sandbox="require") as client:
        seen = answering(client)
        done, handle = await edited(
            client,
            shop,
            told(edit(cart, call_id="a"), "failed", content=failure),
            told(edit(other, call_id="b"), "completed"),
            ["ask", edit(new, "", "new\n", call_id="c")],
            told(edit(new, call_id="c"), "completed"),
            ["ask", edit(shop.parent / "secret", "", "x", call_id="d")],
            ["write", "/etc/hosts", "x"],
        )
    assert await handle.result()
    assert len(seen) == 1
    denied = "PERMISSION_DENIED: the lease does not allow fs.write of"
    assert warnings(done) == [
        f"an edit has failed: {cart}: EROFS: read-only",
        f"the agent says that it has edited {other}, which it could not write",
        f"an edit was allowed and not made: {new} is as it was",
        f"an edit was refused: {shop.parent}/secret: {denied} '{shop.parent}/secret'",
        f"an edit was refused: /etc/hosts: {denied} '/etc/hosts'",
    ]
    assert not new.exists()


async def test_an_edit_that_was_not_made_without_a_sandbox(shop: Path) -> None:
    """Without a sandbox, what was allowed is looked at all the same."""
    async with connected() as client:
        answering(client)
        call = edit(shop / "cart.py", "two", "2")
        done, _ = await edited(client, shop, ["ask", call], told(call, "completed"))
    assert warnings(done) == [
        f"an edit was allowed and not made: {shop}/cart.py is as it was",
    ]


@CONTAINED
async def test_a_file_that_cannot_be_closed_again(shop: Path) -> None:
    """The agent ends at once: it could go on writing what it was allowed to write once."""
    folder = shop / "a"
    folder.mkdir()
    path = folder / "f"
    path.write_text("one\n")
    call = edit(path, "one", "1")
    with deep(shop) as below:
        async with connected(sandbox="require") as client:

            @client.on_question
            async def decide(question: Question) -> None:
                if question.tool and "write_text_file" in question.tool:
                    os.rename("a", "a", src_dir_fd=below.top, dst_dir_fd=below.fd)
                await question.answer("allow")

            with pytest.raises(ArcpError, match=r"could go on writing .*, and was killed"):
                await edited(
                    client,
                    shop,
                    *(["ask", call], ["run", "echo 1 > a/f"], ["write", f"{shop}/other.py", "x"]),
                    *(told(call, "completed"), ["read", "/"], ["say", "alive"]),
                )


@CONTAINED
async def test_files_that_are_not_closed_in_time(
    shop: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The agent, whose turn is over, is killed: it cannot write any more, and the job succeeds."""
    monkeypatch.setattr("arcp_trio.proxies.acp.life.CLOSE_SECONDS", 0)
    path = shop / "cart.py"
    async with connected(sandbox="require") as client:
        answering(client)
        done, _ = await edited(client, shop, ["ask", edit(path)], ["run", "echo 1 > cart.py"])
    assert done.answers[0] == ALLOWED
    assert path.read_text() == "1\n"


@attrs.frozen
class Deep:
    """A folder in another one whose path no call of the kernel takes."""

    top: int
    fd: int


@contextmanager
def deep(folder: Path) -> Generator[Deep]:
    """Make such a folder for the block."""
    with ExitStack() as stack:
        first = at = os.open(folder, os.O_RDONLY)
        stack.callback(os.close, first)
        for _ in range(20):
            name = "d" * 250
            os.mkdir(name, dir_fd=at)
            at = os.open(name, os.O_RDONLY, dir_fd=at)
            stack.callback(os.close, at)
        yield Deep(first, at)
