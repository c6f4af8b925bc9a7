"""What a client may ask of an agent: anything else is refused before a program is started."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest
import trio

from arcp_trio import JobFailed
from tests.proxies.acp.stage import connected, steps, told

pytestmark = pytest.mark.real_tcp

NOT_STARTED = {"never": [sys.executable, "-c", "open('started', 'w')"]}


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (None, "@ $"),
        (5, "@ $"),
        (["x"], "@ $"),
        ({}, "$.prompt"),
        ({"prompt": 5}, "$.prompt"),
        ("", "the prompt is empty"),
        (" \n", "the prompt is empty"),
        ({"prompt": ""}, "the prompt is empty"),
        ({"prompt": []}, "the prompt is empty"),
        ({"prompt": [{"type": "text", "text": ""}]}, "the prompt is empty"),
        ({"prompt": [5]}, "$.prompt[0]"),
        ({"prompt": [{"type": "text", "text": "a"}, {"text": "b"}]}, "$.prompt[1]"),
        ({"prompt": "x", "model": "m"}, "'model'"),
        ({"prompt": "x", "cwd": 5}, "$.cwd"),
        ({"prompt": "x", "cwd": "here"}, "$.cwd"),
        ({"prompt": "x", "cwd": "/a\0"}, "$.cwd"),
        ({"prompt": "x", "session": {}}, "$.session"),
    ],
)
async def test_an_input_that_is_something_else(
    given: Any, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An input of another form is refused, with the path of what is wrong, and starts nothing."""
    monkeypatch.chdir(tmp_path)
    async with connected(NOT_STARTED) as client:
        handle = await client.submit("never", given, lease={"fs.read": ["/**"]})
        with pytest.raises(JobFailed) as caught:
            await handle.result()
        assert caught.value.code == "INVALID_REQUEST"
        assert words in caught.value.message
        assert [event.kind async for event in handle.events()] == []
    assert await trio.to_thread.run_sync(os.listdir, tmp_path) == []


async def test_blocks_are_a_prompt() -> None:
    """A list of content blocks is given to the agent as it is."""
    blocks = [{"type": "text", "text": steps(["say", "x"])}, {"type": "resource_link", "uri": "u"}]
    async with connected() as client:
        assert await (await client.submit("scripted", {"prompt": blocks})).result() == "x"


async def test_its_folder(tmp_path: Path) -> None:
    """The agent is started in the folder of the job, or in an empty one that is gone after it."""
    prompt = steps(["environment"])
    async with connected() as client:
        given = {"prompt": prompt, "cwd": str(tmp_path)}
        handle = await client.submit("scripted", given, lease={"fs.read": [f"{tmp_path}/**"]})
        assert json.loads(await handle.result())["cwd"] == str(tmp_path)
        own = json.loads(await (await client.submit("scripted", prompt)).result())["cwd"]
        assert own not in (str(tmp_path), str(Path.cwd()))


@pytest.mark.parametrize(
    "name", ["outside", "link", "file", "missing", "w/../outside", "w-evil", "to-w"]
)
async def test_a_folder_that_the_lease_does_not_allow(name: str, tmp_path: Path) -> None:
    """A folder has to be in the lease, itself and its real path, and be a folder."""
    for each in ("w", "outside", "w-evil"):
        (tmp_path / each).mkdir()
    (tmp_path / "w" / "link").symlink_to(tmp_path / "outside")
    (tmp_path / "w" / "file").write_text("")
    (tmp_path / "to-w").symlink_to(tmp_path / "w")
    inside = name in ("link", "file", "missing")
    cwd = str(tmp_path / "w" / name) if inside else f"{tmp_path}/{name}"
    async with connected() as client:
        handle = await client.submit(
            "scripted",
            {"prompt": "[]", "cwd": cwd},
            lease={"fs.read": [f"{tmp_path}/w", f"{tmp_path}/w/**"]},
        )
        with pytest.raises(JobFailed) as caught:
            await handle.result()
        assert caught.value.code == "PERMISSION_DENIED"
        assert await told(handle) == []


@pytest.mark.parametrize("name", ["outside", "link"])
async def test_what_a_folder_needs(name: str, tmp_path: Path) -> None:
    """The refusal of a folder names the pattern of all that is in it, and this allows it."""
    (tmp_path / "outside").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "outside")
    asked = {"prompt": steps(["say", "a"]), "cwd": str(tmp_path / name)}
    lease = {"fs.read": [str(tmp_path / "link")]}
    async with connected() as client:
        with pytest.raises(JobFailed) as caught:
            await (await client.submit("scripted", asked, lease=lease)).result()
        needed = f"{tmp_path}/outside/**"
        assert caught.value.details["pattern"] == needed
        lease["fs.read"].append(needed)
        assert await (await client.submit("scripted", asked, lease=lease)).result() == "a"


async def test_its_variables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program gets the variables that say where it runs, and those given to it."""
    monkeypatch.setenv("ARCP_TOKEN", "secret")
    async with connected(environment={"MY_KEY": "k"}, home=str(tmp_path)) as client:
        handle = await client.submit("scripted", steps(["environment"]))
        variables = json.loads(await handle.result())["variables"]
        assert variables["MY_KEY"] == "k"
        assert variables["HOME"] == str(tmp_path)
        assert "PATH" in variables
        assert "ARCP_TOKEN" not in variables
