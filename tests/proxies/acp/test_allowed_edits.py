"""Edits that were allowed: one decision covers one, which can be made; others are told."""

from __future__ import annotations

import os
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from arcp_trio import Client, JobHandle, Policy, Question
from arcp_trio.sandbox import opening
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


def names(folder: Path) -> list[str]:
    """Return the names of what is in a folder."""
    return sorted(each.name for each in folder.iterdir())


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
async def test_an_agent_that_writes_by_renaming(shop: Path) -> None:
    """It writes a file beside the one that was allowed, and renames it, until the call ends."""
    path = shop / "cart.py"
    path.chmod(0o640)
    call = edit(path, "two", "2")
    script = f"cd {shop}; echo 2 > cart.py.tmp.1 && mv cart.py.tmp.1 cart.py && cat cart.py"
    async with connected(sandbox="require") as client:
        seen = answering(client)
        done, _ = await edited(
            client,
            shop,
            ["ask", call],
            ["run", script],
            told(call, "completed"),
            ["read", str(path)],  # answered after that
            ["run", script],
        )
    assert len(seen) == 1
    assert done.answers[1:3] == ["2\n", {"content": "2\n"}]
    assert "Read-only" in done.answers[3]
    assert path.read_text() == "2\n"
    assert path.stat().st_mode & 0o777 == 0o640
    assert names(shop) == ["cart.py", "other.py"]
    assert warnings(done) == []


@CONTAINED
@pytest.mark.parametrize("name", ["cart.py", "new.py", "sub/new.py"])
@pytest.mark.parametrize(
    "script",
    [
        "echo new > x.tmp; mv x.tmp {name}",
        "echo old > {name}; rm {name}; echo new > {name}",
        "echo old > {name}; mv {name} {name}~; echo new > {name}; rm {name}~",
        "rm -f {name}; echo new > x.tmp; ln x.tmp {name}; rm x.tmp",
        "echo new > {name}",
    ],
)
async def test_ways_to_replace_a_file(shop: Path, script: str, name: str) -> None:
    """A file that is there, or is not, is written or replaced, however that is done."""
    path = shop / name
    script = f"cd {shop}/{Path(name).parent}; {script.format(name=path.name)}"
    async with connected(sandbox="require") as client:
        answering(client)
        done, _ = await edited(client, shop, ["ask", edit(path, "", "new\n")], ["run", script])
    assert done.answers[1] == ""
    assert path.read_text() == "new\n"
    assert names(path.parent) == sorted({*names(path.parent), path.name})
    assert names(shop) == sorted({"cart.py", "other.py", name.partition("/")[0]})
    assert warnings(done) == []


@CONTAINED
async def test_what_is_changed_beside_it(shop: Path) -> None:
    """Nothing but the file that was allowed is changed, whatever the agent has done to others."""
    path, sub, out = shop / "cart.py", shop / "sub", shop / "out"
    for folder in (sub, out):
        folder.mkdir()
        (folder / "kept").write_text("kept\n")
    script = (
        f"cd {shop}; echo x > other.py; rm sub/kept; echo x > sub/new; ln -sf /etc/hosts link;"
        "mv sub/new cart.py; mkdir a; echo x > a/b; echo x > out/mine"
    )
    async with connected(sandbox="require") as client:
        answering(client)
        done, _ = await edited(
            client,
            shop,
            *(["ask", edit(path, "two", "2")], ["run", script]),
            **{"fs.write": [f"{out}/**"]},
        )
    assert path.read_text() == "x\n"
    assert (shop / "other.py").read_text() == "other\n"
    assert [names(each) for each in (shop, sub, out)] == [
        ["cart.py", "other.py", "out", "sub"],
        ["kept"],
        ["kept", "mine"],
    ]
    assert sorted(warnings(done)) == [
        f"a change that was not allowed was dropped: {shop}/{name}"
        for name in ("a/b", "link", "other.py", "sub/kept")
    ]


@CONTAINED
@pytest.mark.parametrize(
    "script", ["ln -sf {secret} cart.py", "rm cart.py", "rm cart.py; mkfifo cart.py"]
)
async def test_what_is_no_file_any_more(shop: Path, script: str) -> None:
    """What is put in the place of the file has to be one: a link brings nothing in."""
    secret = shop.parent / "secret"
    secret.write_text("secret")
    path = shop / "cart.py"
    async with connected(sandbox="require") as client:
        answering(client)
        call = edit(path, "two", "2")
        script = f"cd {shop}; {script.format(secret=secret)}"
        done, _ = await edited(client, shop, ["ask", call], ["run", script])
    assert path.read_text() == "one\ntwo\n"
    assert not path.is_symlink()
    assert warnings(done) == [f"an edit was allowed and not made: {path} is as it was"]


@CONTAINED
async def test_what_is_hidden_stays_hidden(shop: Path) -> None:
    """What the sandbox hides below the folder is hidden while a file in it can be edited."""
    hidden, key = shop / "data/own", shop / "a/b/key"
    for folder in (hidden, key.parent):
        folder.mkdir(parents=True)
        (folder / "key").write_text("hush")
    script = (
        f"cd {shop}; cat data/own/key; cat a/b/key; ln a/b/key k; mv data d; cat d/own/key;"
        f"rm -rf a; cat {shop}/a/b/key; echo 2 > t; mv t cart.py; cat k"
    )
    policy = Policy(reserved_paths={str(hidden), str(key)})
    async with connected(sandbox="require", policy=policy) as client:
        answering(client)
        call = edit(shop / "cart.py", "two", "2")
        done, _ = await edited(client, shop, ["ask", call], ["run", script])
    assert "hush" not in done.answers[1]
    assert (shop / "cart.py").read_text() == "2\n"
    assert [each.read_text() for each in (hidden / "key", key)] == ["hush", "hush"]


@CONTAINED
async def test_edits_of_two_files_at_once(shop: Path) -> None:
    """Each has its own end, also in one folder and in a folder below; requests see what is new."""
    cart, other, deep = shop / "cart.py", shop / "other.py", shop / "a/deep.py"
    calls = [edit(each, call_id=each.name) for each in (deep, cart, other)]
    by_rename = "cd {0}; echo {1} > t; mv t {2}"
    async with connected(sandbox="require") as client:
        answering(client)
        done, _ = await edited(
            client,
            shop,
            *(["ask", call] for call in calls),
            *(["run", by_rename.format(shop, 1, name)] for name in ("cart.py", "other.py")),
            ["run", by_rename.format(shop / "a", 1, "deep.py")],
            *(["read", str(each)] for each in (deep, cart, other)),
            told(calls[1], "completed"),
            ["read", "/"],
            *(["run", by_rename.format(shop, 2, name)] for name in ("cart.py", "other.py")),
        )
    assert done.answers[6:9] == [{"content": "1\n"}] * 3
    assert [each.read_text() for each in (cart, other, deep)] == ["1\n", "2\n", "1\n"]
    assert warnings(done) == [f"a change that was not allowed was dropped: {cart}"]


@CONTAINED
async def test_the_runtime_writes_last(shop: Path) -> None:
    """What the runtime has written after the agent has is not undone at the end."""
    path = shop / "cart.py"
    call = edit(path, "one\ntwo\n", "one\n2\n")
    async with connected(sandbox="require") as client:
        answering(client)
        script = f"cd {shop}; printf 'one\\ntwo\\n' > t; mv t cart.py"
        write = ["write", str(path), "one\n2\n"]
        done, _ = await edited(client, shop, ["ask", call], ["run", script], write)
    assert done.answers[2] == {}
    assert path.read_text() == "one\n2\n"
    assert warnings(done) == []


@CONTAINED
async def test_a_file_that_is_leased_alone(shop: Path) -> None:
    """It can be replaced, too, though nothing else of its folder can be seen."""
    path = shop / "cart.py"
    script = f"cd {shop}; ls; echo 2 > t; mv t cart.py"
    async with connected(sandbox="require") as client:
        answering(client)
        lease = {"fs.read": [str(path), f"{shop}/sub/**"], f"{ASK}fs.write": [str(path)]}
        (shop / "sub").mkdir()
        prompt = steps(["ask", edit(path, "two", "2")], ["run", script])
        handle = await client.submit(
            "scripted", {"prompt": prompt, "cwd": f"{shop}/sub"}, lease=lease
        )
        done = await asked_in(handle)
    assert done.answers[1] == "cart.py\nsub\n"
    assert path.read_text() == "2\n"
    assert warnings(done) == []


@CONTAINED
async def test_a_new_file_in_a_new_folder(shop: Path) -> None:
    """What is not there yet is made, with its folder, so that the agent can write it."""
    path = shop / "a/b/new.py"
    async with connected(sandbox="require") as client:
        seen = answering(client)
        script = ["run", "mkdir -p a/b && echo new > a/b/new.py; touch a/more"]
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
    """What is allowed for the job is asked for again by the agent, and nobody has to answer."""
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
            ["read", "/"],
            ["run", "echo between >> cart.py"],
            ["ask", two],
            ["run", "echo 3 >> cart.py"],
            told(two, "completed"),
        )
    assert len(seen) == 1
    assert path.read_text() == "2\n3\n"
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
            ["run", f"echo 2 > cart.py; echo 2 > other.py; echo 2 > {new}"],
        )
    assert [path.read_text() for path in (cart, other, new)] == ["1\n", "2\n", "2\n"]
    assert warnings(done) == [f"a change that was not allowed was dropped: {cart}"]


@CONTAINED
async def test_the_oldest_of_many_folders_is_closed(
    shop: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No more folders than a bound can be changed at once."""
    monkeypatch.setattr("arcp_trio.proxies.acp.allowed.MOST_FOLDERS", 2)
    paths = [shop / name / "new.py" for name in ("a", "b", "c")]
    async with connected(sandbox="require") as client:
        answering(client)
        first, second, third = (["ask", edit(path, call_id=str(path))] for path in paths)
        done, _ = await edited(
            client,
            shop,
            *(first, second, ["run", "echo 1 > a/new.py"], third),
            ["run", "for each in a b c; do echo 2 > $each/new.py; done"],
        )
    assert [path.read_text() for path in paths] == ["1\n", "2\n", "2\n"]
    assert done.answers[-1].count("Read-only") == 1
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
async def test_a_folder_that_is_moved_away(shop: Path) -> None:
    """An edit of a file that is no longer where it was is lost, and the job says so."""
    folder = shop / "a"
    folder.mkdir()
    path = folder / "f"
    path.write_text("one\n")
    call = edit(path, "one", "1")
    async with connected(sandbox="require") as client:

        @client.on_question
        async def decide(question: Question) -> None:
            if question.tool and "write_text_file" in question.tool:
                folder.rename(shop / "b")
            await question.answer("allow")

        done, _ = await edited(
            client,
            shop,
            *(["ask", call], ["write", f"{shop}/other.py", "x"], ["run", "echo 1 > b/f"]),
            *(told(call, "completed"), ["read", "/"], ["run", "echo 2 > b/f"]),
        )
    assert "Read-only" in done.answers[4]
    assert (shop / "b/f").read_text() == "one\n"
    (lost,) = warnings(done)
    assert lost.startswith(f"an edit is lost: {path}: ")


@CONTAINED
async def test_a_kernel_without_layers(shop: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a sandbox can have none, the file stays read-only, and the job says why."""
    program = opening._PROGRAM.replace("overlay", "nosuch")  # pyright: ignore[reportPrivateUsage]
    monkeypatch.setattr(opening, "_PROGRAM", program)
    path = shop / "cart.py"
    async with connected(sandbox="require") as client:
        answering(client)
        done, _ = await edited(client, shop, ["ask", edit(path)], ["run", f"echo 1 > {path}"])
    assert "Read-only" in done.answers[1]
    why, as_it_was = warnings(done)
    words = "by itself: the sandbox cannot be changed: No such device"
    assert why == f"the agent cannot write {path} {words}"
    assert as_it_was == f"an edit was allowed and not made: {path} is as it was"


@CONTAINED
async def test_edits_that_are_not_read_in_time(shop: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the agent has written at the end of its turn is waited for within a bound."""
    monkeypatch.setattr("arcp_trio.proxies.acp.life.CLOSE_SECONDS", 0)
    path = shop / "cart.py"
    async with connected(sandbox="require") as client:
        answering(client)
        done, _ = await edited(client, shop, ["ask", edit(path)], ["run", "echo 1 > cart.py"])
    assert path.read_text() == "one\ntwo\n"
    assert warnings(done) == [f"an edit may be lost: {path}: there was no time"]
