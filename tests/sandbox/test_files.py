"""What a contained program can read and write: what is leased to it, and nothing else of others."""

from __future__ import annotations

import ctypes
import os
import socket
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Self

import pytest
import trio

from arcp_trio.reserved import Reserved
from arcp_trio.sandbox import gate
from arcp_trio.sandbox.gate import SandboxFailed
from arcp_trio.sandbox.opening import OpenFolder
from arcp_trio.transport import starting
from arcp_trio.transport.starting import StartedProcess
from tests.sandbox.inside import SYSTEM, Inside

ON_RAMFS = """
import sys, tempfile, trio
from arcp_trio.sandbox.containment import Containment
from arcp_trio.sandbox.gate import SandboxFailed
from tests.sandbox.inside import SYSTEM, Inside
(folder, mode) = sys.argv[1:]
if mode == "probe":  # whether programs are contained at all is tried where temporary files are
    tempfile.tempdir = folder
    sys.exit(print(Containment("auto", ["sh"]).reason))
lease = {"fs.read": [f"{folder}/**"], mode: [f"{folder}/**"]}
try:
    print(trio.run(Inside(lease=lease).run, f"cat {folder}/a"))
except SandboxFailed as error:
    print(error)
"""

pytestmark = [pytest.mark.sandbox, pytest.mark.real_tcp]


def names(folder: Path) -> list[str]:
    """Return the names of what is in a folder."""
    return sorted(path.name for path in folder.iterdir())


@pytest.fixture
def work(tmp_path: Path) -> Path:
    """Return a folder with files in it, and a secret beside it."""
    (tmp_path / "secret").write_text("the secret")
    work = tmp_path / "work"
    (work / "out").mkdir(parents=True)
    (work / "main.py").write_text("the program")
    (work / "key.pem").write_text("the key")
    return work


async def test_another_name_of_a_reserved_file(work: Path) -> None:
    """A hard link to a reserved file is not there, though it is leased, and others are."""
    link = work / "link"
    link.hardlink_to(work.parent / "secret")
    lease = {"fs.read": [str(link), f"{work}/main.py"]}
    inside = Inside(lease=lease, reserved=[str(work.parent / "secret")])
    assert "the secret" not in await inside.run(f"cat {link}")
    assert await inside.run(f"cat {work}/main.py") == "the program"


async def test_what_is_only_read_cannot_be_written(work: Path) -> None:
    """A leased tree is read-only; a part of it that may be written, too, is writable."""
    lease = {"fs.read": [f"{work}/**"], "fs.write": [f"{work}/out/**"]}
    said = await Inside(lease=lease, cwd=work).run(
        "cat main.py; echo changed > main.py; rm main.py; echo new > new; chmod 777 .;"
        "echo new > out/new; cat out/new; mv out o"
    )
    assert said.startswith("the program")
    assert "new\n" in said
    assert names(work) == ["key.pem", "main.py", "out"]
    assert (work / "main.py").read_text() == "the program"
    assert (work / "out/new").read_text() == "new\n"


async def test_writing_without_reading(work: Path) -> None:
    """What may be written and not read is not there: a writable folder could be read."""
    said = await Inside(lease={"fs.write": [f"{work}/**"]}).run(f"echo x > {work}/main.py")
    assert "main.py" in said
    assert (work / "main.py").read_text() == "the program"


async def test_files_beside_a_leased_one(work: Path) -> None:
    """A single file is seen alone, and a pattern within a name shows nothing at all."""
    lease = {"fs.read": [f"{work}/main.py", f"{work}/out/*.py"]}
    said = await Inside(lease=lease).run(
        f"cat {work}/main.py; echo; ls -A {work} {work}/.. /; ls /root"
    )
    assert "the program" in said
    assert "key.pem" not in said
    assert "secret" not in said
    assert "out" not in said
    said = await Inside(lease={"fs.read": [f"{work}/*.py"]}).run(f"ls -A {work}")
    assert "No such file" in said


async def test_everything_else_is_read_only() -> None:
    """Nothing can be written at the root, nor the system's folders; /tmp is the sandbox's own."""
    said = await Inside().run(
        "for each in / /usr /etc /dev /dev/shm /tmp;"
        "do touch $each/new && echo wrote $each; done; rm /tmp/new;"
        "ls -A /tmp; df --output=size -B1 /tmp | tail -1; cat /etc/shadow; ls -d /home /var /sys"
    )
    assert said.count("Read-only") == 4
    assert "wrote /dev/shm\nwrote /tmp\n1073741824\n" in said
    assert said.count("No such file") == 4


async def test_certificates_without_keys() -> None:
    """A program finds the certificates that the machine trusts, and no folder of private keys."""
    said = await Inside().run(
        "ls -A /etc/ssl /etc/pki /etc/pki/tls 2>/dev/null; echo; ls /etc/ssl/certs | head -1"
    )
    (folders, _, first) = said.rstrip().rpartition("\n\n")
    assert first
    known = "certs cert.pem ca-bundle.pem openssl.cnf openssl.d tls ca-trust java"
    assert {line for line in folders.split() if ":" not in line} <= {*known.split()}


async def test_each_sandbox_has_a_tmp_of_its_own() -> None:
    """What one program writes to /tmp, another one does not see."""
    inside = Inside()
    assert await inside.run("echo a > /tmp/a; ls -A /tmp") == "a\n"
    assert await inside.run("ls -A /tmp") == ""


async def test_links_out_of_a_leased_folder(work: Path) -> None:
    """A leased path that is a link, or has one on it, is not mounted; links inside lead nowhere."""
    (work / "link").symlink_to(work.parent / "secret")
    (work.parent / "linked").symlink_to(work.parent)
    lease = {
        "fs.read": [f"{work}/link", f"{work.parent}/linked/**", f"{work.parent}/linked/work/**"]
    }
    said = await Inside(lease=lease).run(
        f"cat {work}/link {work.parent}/linked/secret {work.parent}/linked/work/main.py; ls {work}"
    )
    assert said.count("No such file") == 4
    for path, read in ((work, "link"), (work.parent / "linked/work", "main.py")):
        said = await Inside(lease={"fs.read": [f"{path}/**"]}).run(f"cat {path}/{read}")
        assert "No such file" in said


async def test_a_path_that_is_replaced_meanwhile(
    work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If a leased path is another one by the time it is mounted, the program does not run."""
    inside = Inside(lease={"fs.read": [f"{work}/**"]})
    assert "the program" in await inside.run(f"cat {work}/main.py")

    def replace() -> None:
        work.rename(work.parent / "moved")
        work.symlink_to(work.parent)

    async def start(command: Sequence[str], **options: Any) -> StartedProcess:
        if command[-1] != "true":  # with which sandboxes are tried
            replace()
        return await starting.start(command, **options)

    monkeypatch.setattr(gate, "start", start)
    with pytest.raises(SandboxFailed, match="was replaced while it was mounted"):
        await inside.run(f"cat {work}/secret")


async def test_what_is_reserved(work: Path) -> None:
    """What no lease opens is hidden below what is leased; a job's own folder in it is seen."""
    data = work / "data"
    (data / "home").mkdir(parents=True)
    (data / "arcp.db").write_text("everything")
    lease = {"fs.read": ["/**"], "fs.write": [f"{work}/**"]}
    inside = Inside(lease=lease, reserved=[str(data), f"{work}/key.pem"], own=[f"{data}/home"])
    said = await inside.run(
        f"cat {data}/arcp.db; echo a > {data}/new; echo b > {data}/home/kept; cat {data}/home/kept;"
        f"ls -A {data}; cat {work}/key.pem; cat {work}/main.py; ls -A /sys; ls /proc/1/root/sys"
    )
    assert "everything" not in said
    assert "the key" not in said
    assert "b\nhome\n" in said
    assert said.endswith("the program")
    assert (data / "home/kept").read_text() == "b\n"
    assert names(data) == ["arcp.db", "home"]


async def test_a_reserved_file_under_other_names(work: Path) -> None:
    """It is hidden where links lead by now, where it was renamed to, and as another name of it."""
    (work / "tokens").write_text("the first")
    (work / "named").symlink_to(work / "tokens")
    (work / "also").hardlink_to(work / "tokens")
    lease = {"fs.read": [f"{work}/**"], "fs.write": [f"{work}/**"]}
    reserved = Reserved([*SYSTEM, str(work / "named")])
    inside = Inside(lease=lease, reserved=reserved, cwd=work)
    said = await inside.run("cat named tokens also; mv tokens b 2>/dev/null || echo busy")
    assert said.count("denied") == 3
    assert said.endswith("busy\n")
    (work / "tokens").rename(work / "renamed")
    (work / "named").unlink()
    (work / "named").symlink_to("next")
    (work / "next").write_text("the next")
    said = await inside.run("cat named also renamed next main.py")
    assert said.count("denied") == 4
    assert said.endswith("the program")


async def test_a_reserved_socket(work: Path) -> None:
    """A socket that is reserved cannot be connected to from a folder that is leased."""
    python = await trio.Path(sys.executable).resolve()
    script = "import socket, sys; socket.socket(socket.AF_UNIX).connect(sys.argv[1])"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(work / "door"))
        listener.listen()
        lease, read = {"fs.read": [f"{work}/**"]}, [str(python.parent.parent)]
        for reserved, expected in (([], ""), ([str(work / "door")], "ConnectionRefused")):
            inside = Inside(lease=lease, reserved=reserved, read=read)
            said = await inside.run(f"{python} -I -S -c '{script}' {work}/door")
            assert expected in said
            assert bool(said) == bool(expected)


async def test_sockets_of_the_machine() -> None:
    """A lease of everything does not show /run, where services listen; one of /run does."""
    everything = {"fs.read": ["/**"]}
    assert await Inside(lease=everything).run("ls -A /run") == ""
    assert await Inside(lease={"fs.read": ["/run/**"]}).run("ls -A /run") != ""


async def test_what_is_above_something_reserved(work: Path) -> None:
    """No folder above it can be renamed: the next sandbox would show it under the new name."""
    data = work / "a/b/data"
    data.mkdir(parents=True)
    (data / "token").write_text("the token")
    (work / "near").symlink_to("a")
    lease = {"fs.read": [f"{work}/**"], "fs.write": [f"{work}/**"]}
    reserved = [str(data), f"{data}/token", f"{work}/near/b/data", f"{work}/a/b/later/data"]
    inside = Inside(lease=lease, reserved=reserved, cwd=work)
    said = await inside.run(
        "mv a c; cd a; mv b d; cd b; mv data e; echo kept > new; mv ../../out ../../o"
    )
    assert said.count("busy") == 3
    assert names(work) == ["a", "key.pem", "main.py", "near", "o"]
    assert names(work / "a/b") == ["data", "new"]
    said = await inside.run("cat */token */*/token */*/*/token; true")
    assert "the token" not in said


async def test_the_root_and_the_sandboxs_own_tmp(work: Path) -> None:
    """If all is leased, what is reserved in /tmp does not bring the machine's /tmp in."""
    lease = {"fs.read": ["/**"], "fs.write": ["/**"]}
    with TemporaryDirectory(dir="/tmp") as folder:
        (Path(folder) / "a/data").mkdir(parents=True)
        (Path(folder) / "beside").touch()
        inside = Inside(lease=lease, reserved=[f"{folder}/a/data", str(work / "out")])
        assert await inside.run(f"ls -A {folder}; ls -A {folder}/a") == "a\ndata\n"


async def test_where_the_program_starts(work: Path) -> None:
    """The folder that a program starts in is empty if it is not leased as a tree."""
    assert await Inside(lease={"fs.read": [str(work)]}, cwd=work).run("pwd; ls -A") == f"{work}\n"
    assert "Read-only" in await Inside(cwd="/home/agent").run("touch x")


async def test_what_the_operator_adds(work: Path) -> None:
    """Files that the operator shows to an agent are read-only."""
    said = await Inside(read=[work]).run(f"cat {work}/main.py; echo x > {work}/main.py")
    assert said.startswith("the program")
    assert "Read-only" in said


async def test_many_patterns(work: Path) -> None:
    """A lease of very many files shows some of them, and costs no more than those."""
    for number in range(400):
        (work / f"{number}.txt").write_text("x")
    lease = {"fs.read": [f"{work}/{number}.txt" for number in range(400)]}
    with trio.fail_after(60):
        said = await Inside(lease=lease).run(f"ls {work} | wc -l")
    assert said == "256\n"


async def test_whose_files_they_are(work: Path) -> None:
    """What a program writes belongs to the owner of what is leased, as does what it may read."""
    theirs = work.parent / "theirs"
    theirs.mkdir(mode=0o700)
    (work / "key.pem").chmod(0o600)
    owner = os.geteuid()
    if owner == 0:
        owner = 1234
        os.chown(theirs, owner, owner)
    lease = {"fs.read": [f"{work}/**", f"{theirs}/**"], "fs.write": [f"{work}/**", f"{theirs}/**"]}
    said = await Inside(lease=lease, cwd=work).run(
        "echo a > mine; echo b > ../theirs/new; cat key.pem; ls -ln mine | cut -d' ' -f3; id -u"
    )
    assert said.startswith("the key")
    (shown, own) = said.removeprefix("the key").split()
    assert shown == own
    assert (work / "mine").stat().st_uid == os.geteuid()
    assert (theirs / "new").stat().st_uid == owner


@pytest.mark.skipif(os.geteuid() != 0, reason="only root runs programs as another user")
async def test_a_file_system_without_owners_to_change(work: Path) -> None:
    """Where files cannot be the other user's, they are read at best, and a job is told why."""
    words = b"lets no other user write as its owner"
    for mode, expected in (("fs.read", b"kept\n"), ("fs.write", words), ("probe", words)):
        script = f'mount -t ramfs none {work}/out && echo kept > {work}/out/a && exec "$@"'
        command = ["unshare", "-m", "sh", "-c", script, "sh", sys.executable, "-c", ON_RAMFS]
        done = await trio.run_process(
            [*command, f"{work}/out", mode], capture_stdout=True, capture_stderr=True
        )
        assert expected in done.stdout


async def test_a_folder_that_is_open_for_a_time_and_renamed_meanwhile(tmp_path: Path) -> None:
    """What was opened is closed, and nothing else, while a folder and a link change places."""
    secret, folder, link = tmp_path / "key", tmp_path / "a", tmp_path / "b"
    folder.mkdir()
    secret.write_text("secret")
    (folder / "key").write_text("data")
    link.symlink_to(".")
    inside = Inside(lease={"fs.read": [f"{tmp_path}/**"]}, reserved=[str(secret)])
    with trio.fail_after(90):
        async with inside.started("sleep", "100") as process, Swaps(folder, link) as swaps:
            assert process.sandbox is not None
            mounts = Path(f"/proc/{pid_of(process.sandbox)}/mountinfo")
            before = mounted(mounts)
            for _ in range(40):
                opened = await OpenFolder.open(process.sandbox, str(folder), "key")
                await opened.add("key")
                assert len(mounted(mounts)) == len(before) + 2
                swaps.go()
                try:
                    assert await opened.read("key") is None
                    assert await opened.close() == []
                finally:
                    await trio.to_thread.run_sync(swaps.rest)  # noqa: ASYNC102 - it ends at once
                assert mounted(mounts) == before


def pid_of(pidfd: int) -> int:
    """Return the process id for a descriptor of a process."""
    lines = Path(f"/proc/self/fdinfo/{pidfd}").read_text().splitlines()
    return int(dict(line.split(":", 1) for line in lines)["Pid"])


def mounted(mounts: Path) -> list[str]:
    """Return the ids of the mounts of a process."""
    return [line.split()[0] for line in mounts.read_text().splitlines()]


class Swaps:
    """A thread that has a folder and a link change places, over and over."""

    def __init__(self, folder: Path, link: Path) -> None:
        self._paths = os.fsencode(folder), os.fsencode(link)
        self._going = threading.Event()
        self._resting = threading.Event()
        self._over = False
        self._thread = threading.Thread(target=self._run)

    async def __aenter__(self) -> Self:
        self._resting.set()
        self._thread.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        self._over = True
        self._going.set()
        self._thread.join()

    def go(self) -> None:
        """Begin."""
        self._resting.clear()
        self._going.set()

    def rest(self) -> None:
        """Have both where they were."""
        self._going.clear()
        self._resting.wait()

    def _run(self) -> None:
        libc = ctypes.CDLL(None)
        while self._going.wait() and not self._over:
            while self._going.is_set() and not self._over:
                for _ in range(200):  # an even number
                    libc.renameat2(-100, self._paths[0], -100, self._paths[1], 2)
            self._resting.set()
