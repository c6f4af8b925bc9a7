"""What no lease opens: the runtime's own files, and the folders of the system's insides."""

from __future__ import annotations

from pathlib import Path

import pytest

from arcp_trio import JobContext, Json, PermissionDenied, Policy, SqliteStore
from arcp_trio.testing import open_peer
from arcp_trio.wire.errors import clip
from tests.stage import make_runtime

EVERYTHING = {"fs.read": ["/**"], "fs.write": ["/**"]}
REFUSED = "no lease allows fs.read of "


async def opened(path: str, policy: Policy, store: SqliteStore) -> str:
    """Return what a job that may read everything reads there, or the words of the refusal."""
    async with make_runtime(policy=policy, store=store) as runtime, open_peer(runtime) as peer:

        @runtime.agent("reader")
        async def reader(job: JobContext) -> Json:
            try:
                async with job.open(path) as file:
                    return await file.read()
            except PermissionDenied as error:
                return error.message

        await peer.hello()
        job = await peer.submit("reader", lease_request=EVERYTHING)
        end = await peer.until_terminal(job["job_id"])
        result = end["payload"]["result"]
        assert isinstance(result, str)
        return result


@pytest.fixture
def store(tmp_path: Path) -> SqliteStore:
    """A store in a folder in which there is something else, too."""
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "token").write_text("secret")
    return SqliteStore(tmp_path / "data" / "arcp.db")


@pytest.mark.parametrize(
    "path",
    [
        "/proc/self/environ",
        "/proc/self/root/etc/passwd",
        "/tmp/../proc/self/environ",
        "/%70roc/self/environ",
        "/sys/kernel/uevent_seqnum",
        "/dev/null",
        "/dev/fd/0",
    ],
)
async def test_the_insides_of_the_system_are_leased_to_nobody(
    path: str, store: SqliteStore
) -> None:
    """`/proc`, `/sys` and `/dev` are refused, however they are written."""
    assert await opened(path, Policy(), store) == f"{REFUSED}{path!r}"


@pytest.mark.parametrize("name", ["arcp.db", "arcp.db-wal", "arcp.db.lock"])
async def test_the_files_of_the_store_are_leased_to_nobody(
    name: str, store: SqliteStore, tmp_path: Path
) -> None:
    """No job reads the jobs of others in the store's file, also not through a link."""
    path = tmp_path / "data" / name
    link = tmp_path / "link"
    link.symlink_to(path)
    assert (await opened(str(path), Policy(), store)).startswith(f"{REFUSED}'{tmp_path}")
    words = await opened(str(link), Policy(), SqliteStore(store.path))
    assert words == f"{REFUSED}what {clip(repr(str(link)))} stands for"


async def test_a_folder_is_reserved_with_all_that_is_below(
    store: SqliteStore, tmp_path: Path
) -> None:
    """A reserved folder is refused by its real path, too, and its neighbours are not."""
    token = tmp_path / "data" / "token"
    assert await opened(str(token), Policy(), store) == "secret"
    (tmp_path / "other").symlink_to("data")
    (tmp_path / "data2").mkdir()
    (tmp_path / "data2" / "a").write_text("open")
    policy = Policy(reserved_paths=frozenset({str(tmp_path / "other")}))
    for path in (token, tmp_path / "other" / "token"):
        assert (await opened(str(path), policy, SqliteStore(store.path))).startswith(REFUSED)
    beside = str(tmp_path / "data2" / "a")
    assert await opened(beside, policy, SqliteStore(store.path)) == "open"


async def test_a_refusal_names_no_target_of_a_link(store: SqliteStore, tmp_path: Path) -> None:
    """An agent that may not follow a link does not learn from the refusal where it leads."""
    (tmp_path / "ws").mkdir()
    (tmp_path / "ws" / "link").symlink_to(tmp_path / "elsewhere")
    async with make_runtime(store=store) as runtime, open_peer(runtime) as peer:

        @runtime.agent("reader")
        async def reader(job: JobContext) -> Json:
            async with job.open(tmp_path / "ws" / "link") as file:
                return await file.read()

        await peer.hello()
        job = await peer.submit("reader", lease_request={"fs.read": [f"{tmp_path}/ws/**"]})
        end = (await peer.until_terminal(job["job_id"]))["payload"]
        assert end["code"] == "PERMISSION_DENIED"
        assert "elsewhere" not in str(end)
        assert " stands for" in end["message"]


@pytest.mark.parametrize("other", ["renamed", "linked", "replaced", "through a link"])
async def test_a_file_under_another_name(other: str, store: SqliteStore, tmp_path: Path) -> None:
    """A single file that is reserved is refused when it has been renamed, replaced or linked."""
    (path, beside) = (tmp_path / "tokens", tmp_path / "beside")
    path.write_text("secret")
    named = tmp_path / "named" if other == "through a link" else path
    if named != path:
        named.symlink_to("tokens")
    runtime = make_runtime(policy=Policy(reserved_paths=frozenset({str(named)})), store=store)
    async with runtime, open_peer(runtime) as peer:

        @runtime.agent("writer")
        async def writer(job: JobContext) -> Json:
            refused: list[str] = []
            for each in (path, beside):
                for mode in ("r", "w", "a"):
                    try:
                        async with job.open(each, mode):
                            refused.append("open")
                    except PermissionDenied as error:
                        refused.append(error.message.partition(" of ")[0])
            return refused

        if other == "renamed":
            path.rename(beside)
            path.write_text("new")
        elif other == "linked":
            beside.hardlink_to(path)
        elif other == "replaced":
            beside.write_text("newer")
            beside.rename(path)
            beside.write_text("open")
        else:
            named.unlink()
            named.symlink_to("beside")
            beside.write_text("newer")
        await peer.hello()
        job = await peer.submit("writer", lease_request=EVERYTHING)
        end = await peer.until_terminal(job["job_id"])
        words = [f"no lease allows {each}" for each in ("fs.read", "fs.write", "fs.write")]
        expected = [*words, *(["open"] * 3 if other == "replaced" else words)]
        assert end["payload"]["result"] == expected
        assert (path.read_text(), "" in beside.read_text()) != ("", False)
