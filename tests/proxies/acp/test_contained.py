"""Agents that do what they like: the operating system holds them to the lease of their job."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from arcp_trio import Client, acp_agent
from arcp_trio.sandbox.containment import NoSandbox
from tests.proxies.acp.stage import command, connected, steps

pytestmark = [pytest.mark.real_tcp, pytest.mark.sandbox]


async def ran(client: Client, script: str, **terms: Any) -> str:
    """Have the agent run a script by itself, and return what the script says."""
    cwd = terms.pop("cwd", None)
    prompt = steps(["run", script])
    input_ = prompt if cwd is None else {"prompt": prompt, "cwd": str(cwd)}
    result = await (await client.submit("scripted", input_, **terms)).result()
    return str(json.loads(str(result)))


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    """Return a folder with files in it, and a key beside one of them."""
    shop = tmp_path / "shop"
    (shop / "out").mkdir(parents=True)
    (shop / "main.py").write_text("the program")
    (shop / "key.pem").write_text("the key")
    (tmp_path / "secret").write_text("the secret")
    (shop / "link").symlink_to(tmp_path / "secret")
    return shop


def content(path: Path) -> str:
    """Return what is in a file."""
    return path.read_text()


@pytest.mark.parametrize("sandbox", ["auto", "require", "off"])
async def test_each_job_says_whether_it_is_contained(sandbox: str) -> None:
    """The first event of a job says whether the operating system holds its agent."""
    async with connected(sandbox=sandbox) as client:
        job = await client.submit("scripted", steps(["say", "a"]))
        events = [event async for event in job.events()]
        message = "not contained" if sandbox == "off" else "contained"
        assert events[0].body == {"phase": "starting", "message": message}


async def test_writing_where_only_reading_is_leased(shop: Path) -> None:
    """An agent that writes without asking meets a read-only folder; what it may write, it writes.

    Outside of that nothing can be written, nor at the root.
    """
    lease = {"fs.read": [f"{shop}/**"], "fs.write": [f"{shop}/out/**"]}
    async with connected(sandbox="require") as client:
        said = await ran(
            client,
            "cat main.py; for each in main.py /new /usr/new /etc/passwd; do echo bad > $each; done;"
            "echo good > out/new",
            cwd=shop,
            lease=lease,
        )
    assert said.startswith("the program")
    assert said.count("Read-only") + said.count("cannot create") >= 4
    assert content(shop / "main.py") == "the program"
    assert content(shop / "out/new") == "good\n"


async def test_reading_beside_what_is_leased(shop: Path) -> None:
    """Links out of the folder lead nowhere, and a pattern does not show the key beside its file."""
    async with connected(sandbox="require") as client:
        lease = {"fs.read": [f"{shop}/**"]}
        said = await ran(client, "cat link ../secret", cwd=shop, lease=lease)
        assert "the secret" not in said
        lease = {"fs.read": [str(shop), f"{shop}/*.py"]}
        said = await ran(client, "cat key.pem; ls -A", cwd=shop, lease=lease)
        assert said.count("No such file") == 1
        assert "key.pem\n" not in said


@pytest.mark.parametrize(("below", "warned"), [("", True), ("/*.py", True), ("/**", False)])
async def test_a_folder_that_is_not_shown(shop: Path, below: str, *, warned: bool) -> None:
    """A job whose folder is allowed, but not in the sandbox with all its files, warns of that."""
    async with connected(sandbox="require") as client:
        lease = {"fs.read": [str(shop), f"{shop}{below}"]}
        input_ = {"prompt": steps(["say", "a"]), "cwd": str(shop)}
        job = await client.submit("scripted", input_, lease=lease)
        logs = [event.body async for event in job.events() if event.kind == "log"]
    words = (
        f"the sandbox does not show all of {shop}: for that the lease needs fs.read of {shop}/**"
    )
    assert logs == ([{"level": "warn", "message": words}] if warned else [])


async def test_an_agent_without_a_lease(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a lease, an agent has a folder and a home of its own, and sees nobody else's files.

    The server's variables and processes are not there, either.
    """
    monkeypatch.setenv("SECRET_OF_THE_SERVER", "1")
    async with connected(sandbox="require") as client:
        said = await ran(
            client,
            "touch file && touch ~/file && touch /tmp/file && echo can write; env;"
            f"ls -d {Path.cwd()}/pyproject.toml /var /proc/{os.getpid()}; kill -9 {os.getpid()}",
        )
    assert said.startswith("can write\n")
    assert "SECRET" not in said
    assert said.count("No such file") == 3
    assert "No such process" in said


async def test_one_home_for_each_principal(tmp_path: Path) -> None:
    """A home is kept from job to job, and is not that of another principal; /tmp is of one job."""
    async with connected(sandbox="require", data=tmp_path) as client:
        await ran(client, "echo transcript > ~/mine; echo x > /tmp/mine")
        assert (
            await ran(client, "cat ~/mine; test -e /tmp/mine || echo gone") == "transcript\ngone\n"
        )
        homes = list_of(tmp_path / "homes/scripted")
        assert [list_of(home) for home in homes] == [[homes[0] / "mine"]]
        assert homes[0].stat().st_mode & 0o777 == 0o700


async def test_homes_of_two_principals(tmp_path: Path) -> None:
    """Two principals have two homes, and neither sees the other's."""
    terms: dict[str, Any] = {"sandbox": "require", "data": tmp_path}
    async with connected(**terms) as alice:
        assert "mine" in await ran(alice, "touch ~/mine; ls -A ~")
    async with connected(token="bob-tok", **terms) as bob:
        assert "mine" not in await ran(bob, "ls -A ~; ls -A ~/.. ~/../..")
    assert len(list_of(tmp_path / "homes/scripted")) == 2


async def test_a_home_that_the_operator_names(tmp_path: Path) -> None:
    """A home that is named is everybody's, contained or not."""
    home = tmp_path / "home"
    home.mkdir()
    for sandbox in ("require", "off"):
        async with connected(sandbox=sandbox, home=home) as client:
            await ran(client, f"echo $HOME > ~/{sandbox}")
        assert content(home / sandbox) == f"{home}\n"


async def test_what_the_operator_lets_agents_read(shop: Path) -> None:
    """Files that the operator adds can be read, and not written."""
    async with connected(sandbox="require", read=[shop / "main.py"]) as client:
        said = await ran(client, f"cat {shop}/main.py; echo x > {shop}/main.py; ls {shop}")
    assert said.startswith("the program")
    assert content(shop / "main.py") == "the program"
    assert "key.pem" not in said


async def test_a_folder_behind_a_link(shop: Path, tmp_path: Path) -> None:
    """A job whose folder is named through a link works in the real one."""
    (tmp_path / "linked").symlink_to(shop)
    async with connected(sandbox="require") as client:
        lease = {"fs.read": [f"{tmp_path}/**"]}
        said = await ran(client, "pwd; ls -A", cwd=tmp_path / "linked", lease=lease)
    assert said == f"{shop}\nkey.pem\nlink\nmain.py\nout\n"


async def test_nothing_is_left_of_a_contained_job() -> None:
    """A process that an agent has hidden in a session of its own ends with the job."""
    seconds = 1000 + os.getpid()
    async with connected(sandbox="require") as client:
        await ran(client, f"setsid sleep {seconds} >/dev/null 2>&1 &")
        assert not any(f"sleep\0{seconds}" in line for line in command_lines())


async def test_terminals_are_contained(shop: Path, tmp_path: Path) -> None:
    """A command that the agent has run for it sees what the agent sees, and nothing more.

    Paths in the command are not shown for being named there, and variables do not load code.
    """
    lease = {"fs.read": [f"{shop}/**"], "tool.call": ["terminal/*"]}
    script = f"cat main.py {tmp_path}/secret; echo x > main.py; ls /proc | grep -c '^[0-9]'; env"
    env = [{"name": "LD_PRELOAD", "value": "/x.so"}, {"name": "KEY", "value": "v"}]
    async with connected(sandbox="require") as client:
        step = ["terminal", "sh", ["-c", script, f"{tmp_path}/secret"], {"env": env}]
        input_ = {"prompt": steps(step), "cwd": str(shop)}
        job = await client.submit("scripted", input_, lease=lease)
        said = str(await job.result())
    assert "the program" in said
    assert "the secret" not in said
    assert "KEY=v" in said
    assert "LD_PRELOAD" not in said
    assert content(shop / "main.py") == "the program"


async def test_what_a_terminal_leaves_behind() -> None:
    """A command's process that has left its group ends with the job."""
    seconds = 2000 + os.getpid()
    lease = {"tool.call": ["terminal/*"]}
    async with connected(sandbox="require") as client:
        script = f"setsid sleep {seconds} >/dev/null 2>&1 &"
        job = await client.submit(
            "scripted", steps(["terminal", "sh", ["-c", script]]), lease=lease
        )
        await job.result()
        assert not any(f"sleep\0{seconds}" in line for line in command_lines())


async def test_an_approval_mounts_nothing(shop: Path) -> None:
    """What may only be asked for cannot be written by the agent itself."""
    lease = {"fs.read": [f"{shop}/**"], "x-vendor.arcp-trio.ask.fs.write": [f"{shop}/**"]}
    async with connected(sandbox="require") as client:
        await ran(client, "echo x > main.py", cwd=shop, lease=lease)
    assert content(shop / "main.py") == "the program"


def test_a_sandbox_that_is_required(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Where no sandbox can be built, an agent that requires one is refused."""
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(NoSandbox, match="bwrap"):
        acp_agent(command(), sandbox="require")


def list_of(folder: Path) -> list[Path]:
    """Return what is in a folder."""
    return sorted(folder.iterdir())


def command_lines() -> list[str]:
    """Return the command lines of all processes."""
    found: list[str] = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            found.append(path.read_text())
        except (FileNotFoundError, ProcessLookupError):
            continue
    return found
