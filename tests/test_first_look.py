"""What a person finds who looks around in the package: completion, help, and hints."""

from __future__ import annotations

import ast
import re
import shlex
import subprocess
import sys
import textwrap

import pytest

import arcp_trio


def python(script: str) -> str:
    """Run a script in a fresh interpreter, and return what it prints."""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_completion_lists_the_public_names() -> None:
    """`dir` has every public name before any of them is loaded."""
    assert set(python("import arcp_trio; print(*dir(arcp_trio))").split()) == set(arcp_trio.__all__)


@pytest.mark.parametrize("prelude", ["", "import sys; sys.modules['jwt'] = None\n"])
def test_help_describes_the_public_names(prelude: str) -> None:
    """`help` has what one imports first, and the calls of classes; also without the extras."""
    script = "import pydoc, arcp_trio; print(pydoc.render_doc(arcp_trio, renderer=pydoc.plaintext))"
    text = python(prelude + script)
    for name in ("Runtime", "JobContext", "serve", "StaticTokens", "connect"):
        assert f"- `{name}`" in text
    assert "class Runtime(" in text
    assert re.search(r"^ {4}async serve\(runtime", text, re.MULTILINE)
    assert re.search(r"^ {4}connect\(", text, re.MULTILINE)


def test_the_examples_of_the_module_are_python() -> None:
    """The programs in the module's text compile, and use public names only."""
    assert arcp_trio.__doc__ is not None
    blocks = re.findall(r"\n\n((?:(?: {4}.*)?\n)+)", arcp_trio.__doc__)
    sources = [textwrap.dedent(block) for block in blocks if block.strip()]
    assert len(sources) == 2
    for source in sources:
        tree = ast.parse(f"async def example():\n{textwrap.indent(source, '    ')}")
        used = {
            node.attr
            for node in ast.walk(tree)
            if isinstance(node, ast.Attribute)
            and isinstance(node.value, ast.Name)
            and node.value.id == "arcp_trio"
        }
        assert used
        assert used <= set(arcp_trio.__all__)


@pytest.mark.parametrize(
    ("missing", "module", "package"),
    [
        ("jwt", "arcp_trio.authenticators.jwt", "pyjwt[crypto]>="),
        ("psycopg", "arcp_trio.store.postgres", "psycopg[binary]>="),
        ("httpx2", "arcp_trio.provisioners.litellm", "httpx2>="),
        ("opentelemetry", "arcp_trio.telemetry.opentelemetry", "opentelemetry-api>="),
        ("pytest_trio", "arcp_trio.testing.fixtures", "pytest-trio>="),
    ],
)
def test_a_missing_extra_is_named_by_a_command_that_works(
    missing: str, module: str, package: str
) -> None:
    """The hint installs the extra's packages beside this package, wherever that came from."""
    said = python(
        f"import sys; sys.modules[{missing!r}] = None\n"
        f"try: import {module}\n"
        "except ImportError as error: print(error)"
    )
    command = shlex.split(said.partition(": ")[2])
    assert command[:4] == [sys.executable, "-m", "pip", "install"]
    assert any(each.lower().startswith(package) for each in command[4:])
    assert not any("arcp" in each for each in command[4:])
    dry = [*command[:4], "--dry-run", "--no-index", "--quiet", *command[4:]]
    assert subprocess.run(dry, capture_output=True, timeout=60, check=False).returncode == 0


def test_a_package_that_is_only_on_the_path_names_the_extra() -> None:
    """Where nothing says what the extra needs, the hint has its name."""
    script = (
        "from importlib import metadata\n"
        "def absent(name): raise metadata.PackageNotFoundError(name)\n"
        "metadata.requires = absent\n"
        "from arcp_trio.extras import how_to_install\n"
        "print(how_to_install('jwt'))"
    )
    assert python(script) == "install what the extra jwt of arcp-trio names\n"
