"""Files that an agent has its client read and write: what the lease says, and nothing else."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from arcp_trio import Limits
from tests.proxies.acp.asking import asked, asked_of
from tests.proxies.acp.stage import begin, connected, told

pytestmark = pytest.mark.real_tcp

DENIED = -32603
NOT_FOUND = -32002
CANCELLED = -32800


def leased(folder: Path, *capabilities: str) -> dict[str, list[str]]:
    """Return a lease for all that is in a folder."""
    return {each: [f"{folder}/**"] for each in capabilities or ("fs.read", "fs.write")}


async def test_reading_and_writing(tmp_path: Path) -> None:
    """What the lease allows is done; clients are told of paths and sizes, not of contents."""
    old, new = tmp_path / "old", tmp_path / "new"
    old.write_text("grüße\n")
    done = await asked(["read", str(old)], ["write", str(new), "neu\n"], lease=leased(tmp_path))
    assert done.answers == [{"content": "grüße\n"}, {}]
    assert new.read_text() == "neu\n"
    assert done.calls == [
        ("fs/read_text_file", {"path": str(old)}),
        ("fs/write_text_file", {"path": str(new)}),
    ]
    assert done.results == [{"bytes": 8}, {"bytes": 4}]


async def test_lines_of_a_file(tmp_path: Path) -> None:
    """A read may name its first line, counted from 1, and how many lines it wants."""
    path = tmp_path / "lines"
    path.write_bytes(b"one\r\ntwo\nthree\nfour")
    wanted: list[dict[str, Any]] = [
        {"line": 2},
        {"limit": 1},
        {"line": 2, "limit": 2},
        {"line": 4, "limit": 9},
        {"line": 9},
        {"limit": 0},
        {"line": None, "limit": None},
    ]
    done = await asked(*(["read", str(path), each] for each in wanted), lease=leased(tmp_path))
    assert [each["content"] for each in done.answers] == [
        *("two\nthree\nfour", "one\r\n", "two\nthree\n", "four", "", ""),
        "one\r\ntwo\nthree\nfour",
    ]
    bad = await asked(["read", str(path), {"line": -1}], ["read", str(path), {"limit": "x"}])
    assert [each["code"] for each in bad.answers] == [-32602, -32602]


@pytest.mark.parametrize(
    "spelled",
    [
        "{w}/../outside",
        "{w}//..//outside",
        "{w}/./../outside",
        "{w}-evil/file",
        "{w}/%2e%2e/outside",
        "../outside",
        "~/outside",
        "file://{w}/file",
        "{w}/a\0b",
        "",
    ],
)
async def test_paths_out_of_the_lease(tmp_path: Path, spelled: str) -> None:
    """However a path outside of the lease is spelled, it is refused, and nothing is touched."""
    work, evil = tmp_path / "w", tmp_path / "w-evil"
    work.mkdir()
    evil.mkdir()
    (evil / "file").write_text("secret")
    (tmp_path / "outside").write_text("secret")
    path = spelled.format(w=work)
    async with connected() as client:
        lease = leased(work)
        for step in (["read", path], ["write", path, "changed"]):
            done = await asked_of(client, step, lease=lease)
            assert done.answers[0]["code"] == DENIED
            assert done.answers[0]["message"].startswith("PERMISSION_DENIED: ")
            assert done.results == ["PERMISSION_DENIED"]
    assert (evil / "file").read_text() == (tmp_path / "outside").read_text() == "secret"
    assert not list(work.iterdir())


async def test_a_relative_path_counts_from_the_folder_of_the_job(tmp_path: Path) -> None:
    """Relative paths are not those of the server's folder."""
    (tmp_path / "file").write_text("here")
    async with connected() as client:
        handle = await client.submit(
            "scripted",
            {"prompt": '[["read", "file"], ["write", "sub/../new", "x"]]', "cwd": str(tmp_path)},
            lease={"fs.read": [str(tmp_path), f"{tmp_path}/**"], "fs.write": [f"{tmp_path}/new"]},
        )
        assert await handle.result() == '{"content": "here"}{}'
    assert (tmp_path / "new").read_text() == "x"


@pytest.mark.parametrize(("has", "wants"), [("fs.read", "write"), ("fs.write", "read")])
async def test_reading_is_not_writing(tmp_path: Path, has: str, wants: str) -> None:
    """Neither capability has the other in it."""
    path = tmp_path / "file"
    path.write_text("kept")
    step = ["write", str(path), "changed"] if wants == "write" else ["read", str(path)]
    done = await asked(step, lease=leased(tmp_path, has))
    assert done.results == ["PERMISSION_DENIED"]
    assert path.read_text() == "kept"


async def test_links_that_lead_out(tmp_path: Path) -> None:
    """A link to a file, through a folder, or to what is not there yet leads nowhere."""
    work, outside = tmp_path / "w", tmp_path / "out"
    work.mkdir()
    outside.mkdir()
    (outside / "secret").write_text("secret")
    (work / "file").symlink_to(outside / "secret")
    (work / "folder").symlink_to(outside)
    (work / "dangling").symlink_to(outside / "new")
    paths = [str(work / each) for each in ("file", "folder/secret", "dangling")]
    steps = [["read", each] for each in paths[:2]] + [["write", each, "x"] for each in paths]
    done = await asked(*steps, lease=leased(work))
    assert done.results == ["PERMISSION_DENIED"] * 5
    assert str(outside) not in str(done)
    assert sorted(each.name for each in outside.iterdir()) == ["secret"]
    assert (outside / "secret").read_text() == "secret"


async def test_a_link_that_stays_inside(tmp_path: Path) -> None:
    """A link may lead to what the lease allows by itself."""
    (tmp_path / "file").write_text("here")
    (tmp_path / "link").symlink_to(tmp_path / "file")
    done = await asked(["read", str(tmp_path / "link")], lease=leased(tmp_path))
    assert done.answers == [{"content": "here"}]


@pytest.mark.parametrize("kind", ["FIFO", "directory", "device"])
async def test_only_regular_files(tmp_path: Path, kind: str) -> None:
    """A FIFO holds nothing up, and neither it nor a folder nor a device is read or written."""
    path = tmp_path / "it"
    lease = leased(tmp_path)
    if kind == "FIFO":
        os.mkfifo(path)
    elif kind == "directory":
        path.mkdir()
    else:
        path = Path("/dev/null")
        lease = {"fs.read": ["/dev/null"], "fs.write": ["/dev/null"]}
    done = await asked(["read", str(path)], ["write", str(path), "x"], lease=lease)
    assert done.results == ["PERMISSION_DENIED"] * 2


async def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    """The agent is told so by the protocol's own code, and within the lease only."""
    done = await asked(
        ["read", str(tmp_path / "none")],
        ["write", str(tmp_path / "no" / "folder"), "x"],
        lease=leased(tmp_path),
    )
    assert [each["code"] for each in done.answers] == [NOT_FOUND, NOT_FOUND]
    assert done.results == ["INTERNAL_ERROR"] * 2


async def test_files_without_end(tmp_path: Path) -> None:
    """No more of a file is read, or written, than `agent_file_bytes`."""
    sparse, small = tmp_path / "sparse", tmp_path / "small"
    with sparse.open("wb") as file:
        file.truncate(400 * 1024 * 1024)
    small.write_bytes(b"a\n" * 5_000)
    done = await asked(
        ["read", str(sparse)],
        ["read", str(sparse), {"line": 2, "limit": 1}],
        ["read", str(small)],
        ["read", str(small), {"line": 5_000, "limit": 1}],
        ["write", str(tmp_path / "new"), "x" * 10_001],
        ["write", str(tmp_path / "new"), "x" * 10_000],
        lease=leased(tmp_path),
        limits=Limits(agent_file_bytes=10_000),
    )
    message = "INTERNAL_ERROR: the limit agent_file_bytes is reached"
    assert [each.get("message") for each in done.answers] == [
        *(message, message, None, None, message, None)
    ]
    assert done.answers[3] == {"content": "a\n"}
    assert (tmp_path / "new").stat().st_size == 10_000


async def test_what_is_not_text(tmp_path: Path) -> None:
    """A file that is not UTF-8 is refused, so that nothing is written back mended."""
    (tmp_path / "image").write_bytes(b"\xff\xd8\xff")
    done = await asked(["read", str(tmp_path / "image")], lease=leased(tmp_path))
    assert "is not UTF-8 text" in done.answers[0]["message"]
    bad = await asked(["call", "fs/write_text_file", {"path": "/x", "content": 3}])
    assert bad.answers[0]["code"] == -32602
    assert not bad.calls


async def test_nothing_is_allowed_without_a_lease(tmp_path: Path) -> None:
    """An empty lease refuses everything."""
    (tmp_path / "file").write_text("x")
    done = await asked(["read", str(tmp_path / "file")], ["ask", {"kind": "think"}])
    assert done.results == ["PERMISSION_DENIED"] * 2


async def test_an_agent_that_does_not_wait(tmp_path: Path) -> None:
    """Requests that nobody waits for have their results told before the end of the job."""
    async with connected() as client:
        params = {"path": str(tmp_path / "file"), "content": "x"}
        handle = await begin(
            client, ["send", "fs/write_text_file", params, 20], lease=leased(tmp_path)
        )
        await handle.result()
        events = [kind for kind, _ in await told(handle)]
        assert events.count("tool_call") == events.count("tool_result") == 20
    assert (tmp_path / "file").read_text() == "x"
