"""What is installed elsewhere: the wheel and its page, the container, the service of systemd."""

from __future__ import annotations

import email.message
import email.parser
import json
import re
import shlex
import shutil
import signal
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.cli.processes import ROOT, starter

DOCKERFILE = (ROOT / "Dockerfile").read_text(encoding="utf-8")
UNIT = (ROOT / "docs" / "arcp-trio.service").read_text(encoding="utf-8")


def instruction(name: str) -> str:
    """Return the last instruction of this name in the Dockerfile, on one line."""
    found = re.findall(rf"^{name} (.*)$", DOCKERFILE.replace("\\\n", " "), re.MULTILINE)
    assert found, name
    return str(found[-1])


def copied(folder: Path) -> Path:
    """Copy what the Dockerfile copies into its image, and return the folder of it."""
    for line in re.findall(r"^COPY (.*)$", DOCKERFILE, re.MULTILINE):
        *names, target = line.split()
        for name in names:
            place = folder / target.strip("/") / ("" if target.endswith("/") else ".")
            place.mkdir(parents=True, exist_ok=True)
            if (ROOT / name).is_dir():
                shutil.copytree(ROOT / name, place, dirs_exist_ok=True)
            else:
                shutil.copy(ROOT / name, place)
    return folder / "src"


def metadata(source: Path) -> email.message.Message:
    """Build the wheel of a folder, and return its metadata."""
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", "built"]
    subprocess.run(command, cwd=source, check=True, capture_output=True, timeout=60)
    (wheel,) = (source / "built").iterdir()
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        (name,) = (name for name in names if name.endswith(".dist-info/METADATA"))
        text = archive.read(name).decode()
        assert any(name.endswith("arcp_trio/py.typed") for name in names)
        assert not any(name.endswith(".json") for name in names), "settings of the project's tools"
    return email.parser.Parser().parsestr(text)


def links(found: email.message.Message) -> list[str]:
    """Return where the links of the package's page lead."""
    page = found.get_payload()
    assert isinstance(page, str)
    assert page.startswith("# arcp_trio\n")
    return re.findall(r"\]\(([^)]*)\)", page)


def test_the_page_has_no_link_that_leads_nowhere(tmp_path: Path) -> None:
    """What the Dockerfile copies makes a wheel, whose page names files that are nowhere public."""
    found = metadata(copied(tmp_path))
    assert all(link.startswith(("https://", "#")) for link in links(found))
    assert "docs/operating.md" in str(found.get_payload())
    assert "![" not in str(found.get_payload())
    assert found.get_all("Project-URL") is None


def test_with_a_public_place_the_links_lead_there(tmp_path: Path) -> None:
    """Once pyproject.toml says where the files are, the links are absolute, and so are the URLs."""
    source = copied(tmp_path)
    project = (source / "pyproject.toml").read_text(encoding="utf-8")
    assert project.count('files = ""') == 1
    project = project.replace('files = ""', 'files = "https://code.example/arcp/blob/main/"')
    (source / "pyproject.toml").write_text(project, encoding="utf-8")
    found = metadata(source)
    assert "https://code.example/arcp/blob/main/docs/operating.md" in links(found)
    assert all(link.startswith(("https://", "#")) for link in links(found))
    named = dict(line.split(", ") for line in found.get_all("Project-URL") or [])
    assert named["Changelog"] == "https://code.example/arcp/blob/main/CHANGELOG.md"
    for address in named.values():
        path = address.removeprefix("https://code.example/arcp/blob/main").strip("/")
        assert (ROOT / path).exists()


@pytest.mark.real_tcp
def test_the_container_serves_is_probed_and_stops(tmp_path: Path) -> None:
    """The entry point serves, the health check tells whether it is alive, SIGTERM ends it."""
    program, *arguments = json.loads(instruction("ENTRYPOINT"))
    assert program == "arcp-trio"
    python, *probe = json.loads(instruction("HEALTHCHECK").partition("CMD ")[2])
    assert python == "python"
    with starter(tmp_path) as start:
        served = start(*arguments, "--port=0", "--token=alice=x")
        port = re.fullmatch(r"ws://0\.0\.0\.0:(\d+)/arcp", served.url())
        assert port is not None

        def healthy() -> bool:
            words = [word.replace(":7777/", f":{port[1]}/") for word in probe]
            done = subprocess.run(
                [sys.executable, *words], capture_output=True, timeout=60, check=False
            )
            return done.returncode == 0

        assert healthy()
        served.send_signal(getattr(signal, instruction("STOPSIGNAL")))
        code, *_ = served.end()
        assert code == 0
        assert not healthy()


def test_the_container_does_not_run_as_root() -> None:
    """The user of the image is made by it, owns the data, and is chosen before the entry point."""
    user = instruction("USER")
    made = next(line for line in DOCKERFILE.splitlines() if line.startswith("RUN useradd"))
    assert made.partition(" && ")[0].endswith(f" {user}")
    assert f"install -d -o {user} -g {user} -m 0700 {instruction('VOLUME')}" in made
    assert DOCKERFILE.index("USER ") < DOCKERFILE.index("ENTRYPOINT ")
    assert re.fullmatch(r"python:3\.\d+-slim", instruction("FROM"))


def test_the_service_is_one_that_systemd_accepts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """`systemd-analyze verify` finds nothing; without systemd, the unit's syntax is checked."""
    started = re.search(r"^ExecStart=(\S+) (.*)$", UNIT, re.MULTILINE)
    assert started is not None
    analyze = shutil.which("systemd-analyze")
    if analyze is None:
        with capsys.disabled():
            sys.stderr.write("\nno systemd-analyze here: the unit was not verified by systemd\n")
        assert all(re.fullmatch(r"#.*|\[\w+\]|\w+=.*|", line) for line in UNIT.splitlines())
        return
    unit = tmp_path / "arcp-trio.service"
    program = Path(sys.executable).with_name("arcp-trio")
    unit.write_text(UNIT.replace(started[1], str(program)), encoding="utf-8")
    done = subprocess.run(
        [analyze, "verify", "--man=no", str(unit)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert [line for line in done.stderr.splitlines() if "arcp" in line] == []
    assert done.returncode == 0, done.stderr


def test_the_service_starts_what_there_is(tmp_path: Path) -> None:
    """The command of the unit is one that `serve` accepts, with a configuration file."""
    started = re.search(r"^ExecStart=(\S+) (.*)$", UNIT, re.MULTILINE)
    assert started is not None
    arguments = shlex.split(started[2])
    (tmp_path / "arcp.toml").write_text("[serve]\nport = 0\ndrain = 10\n", encoding="utf-8")
    arguments[arguments.index("--config") + 1] = str(tmp_path / "arcp.toml")
    arguments[arguments.index("--data") + 1] = str(tmp_path / "data")
    with starter(tmp_path) as start:
        served = start(*arguments)
        assert served.url().startswith("ws://127.0.0.1:")
        served.line("token for local: ")
        served.send_signal(signal.SIGTERM)
        assert served.end()[0] == 0
