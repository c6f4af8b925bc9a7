"""Checks that names and prose keep to the house's rules; `make lint` runs it.

- No name of a class or of a type exists twice in the package: wherever it is read, it means one.
  `acp` has the words of its own protocol; outside of it they are written `acp.Session`.
- docs/glossary.md has each word once, in order, and every class and module that it names exists.
- Constants of modules are annotated as Final.
- `Json`, which is Any, is named only where programs meet the package.
- Docstrings, comments, messages and documents avoid phrases that readers stumble over.
"""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

PACKAGE = Path("arcp_trio")
CODE = (PACKAGE, Path("tests"), Path("bench"), Path("examples"), Path("conftest.py"), Path(".ci"))
DOCUMENTS = (Path("docs"), Path("README.md"), Path("bench/README.md"), Path("CHANGELOG.md"))
GLOSSARY = Path("docs/glossary.md")

_AFTER = (
    "it|them|this|that|those|what|whatever|everything|every|each|all|number|another|"
    "the (?:end|last|first|welcome|hello|terminal|acceptance|event|frame|replay|answer|batch|job)s?"
)
PHRASES = {
    re.compile(r"\bwho(?:so)?ever\b", re.IGNORECASE): "name the person or the part",
    re.compile(r"(?<!there )\b(?:is|are|be|was|were) none\b"): "say that there is no such thing",
    re.compile(r"\bthere (?:is|are) none\b"): "name what is missing",
    re.compile(r"(?<=\S )(?<!there )(?:is|are|was|were) no (?!longer\b|more\b)\w", re.IGNORECASE): (
        "say 'is not a'"
    ),
    re.compile(r"\bnot any ?more\b"): "say 'no longer'",
    re.compile(r"\b(?:to become of|none to speak of)\b"): "say what happens, or what is missing",
    re.compile(r"\bwho asks\b"): "name who asks",
    re.compile(r"\bwhat(?:ever)? becomes of\b"): "say what happens",
    re.compile(rf"\bbehind (?:{_AFTER})\b"): "say 'after'",
    re.compile(r"\bc[ao]m(?:e|es|ing) to nothing\b"): "say 'fails'",
    re.compile(r"\bso many (?!that)\w"): "name the number",
}
MEETS_PROGRAMS = {
    PACKAGE / name
    for name in (
        *("__init__.py", "wire/json.py", "testing/frames.py", "testing/peer.py"),
        *("client/client.py", "client/events.py", "client/handles.py", "client/listing.py"),
        "client/questions.py",
        *(
            "runtime/job/agent.py",
            "runtime/job/agents.py",
            "runtime/job/job_view.py",
            "runtime/job/context.py",
        ),
        "runtime/job/awaitable_context.py",
        "runtime/job/durable/calls.py",
        *(f"acp/{name}.py" for name in ("agent", "connecting", "errors", "requests")),
        *(f"acp/{name}.py" for name in ("session", "spawning", "updates")),
        *("runtime/job/blocking.py", "runtime/job/blocks.py"),
        *("runtime/credentials/credential.py", "runtime/credentials/provisioner.py"),
    )
}
"""The modules with signatures that programs use, in which a JSON value may have any type."""
CONSTANT = re.compile(r"_?[A-Z][A-Z0-9_]+")
PRONOUN = re.compile(r"(?:It|They|He|She|This|These|Those|That|Their|Who|Whom|Whose) ")


def main() -> int:
    """Print what breaks a rule, and return the exit status."""
    faults = [
        *_glossary_words(),
        *_class_names(),
        *_constants(),
        *_any_json(),
        *_prose_of_code(),
        *_prose_of_documents(),
    ]
    for fault in faults:
        print(fault)
    return 1 if faults else 0


def _glossary_words() -> Iterator[str]:
    before = ""
    for line, text in enumerate(GLOSSARY.read_text().splitlines(), 1):
        row = re.match(r"\| ([a-z][\w -]*) \| .* \| `", text)
        if row is not None:
            word = row[1]
            if word == before:
                yield f"{GLOSSARY}:{line}: {word} stands here twice"
            elif word < before:
                yield f"{GLOSSARY}:{line}: {word} belongs before {before}"
            before = word


def _class_names() -> Iterator[str]:
    places: dict[str, list[str]] = defaultdict(list)
    for path in sorted(PACKAGE.rglob("*.py")):
        prefix = "acp." if path.is_relative_to(PACKAGE / "acp") else ""
        for node in ast.walk(ast.parse(path.read_text())):
            name = _name_of_type(node)
            if name is not None:
                places[prefix + name.lstrip("_")].append(f"{path}:{node.lineno}")
    for name, found in sorted(places.items()):
        if len(found) > 1:
            yield f"{found[-1]}: the type {name} exists already, at {found[0]}"
    for line, text in enumerate(GLOSSARY.read_text().splitlines(), 1):
        for where in re.findall(r"`([\w/.]+)` \|$", text):
            if where not in places and not (PACKAGE / where).is_file():
                yield f"{GLOSSARY}:{line}: there is no class or module {where}"


def _name_of_type(node: ast.AST) -> str | None:
    """Return the name of a class, or of a public alias such as `Name: TypeAlias = …`."""
    match node:
        case ast.ClassDef(name=name):
            return name
        case ast.AnnAssign(target=ast.Name(id=name), annotation=ast.Name(id="TypeAlias")):
            return None if name.startswith("_") else name
        case ast.Assign(targets=[ast.Name(id=name)], value=ast.Subscript(value=ast.Name(id=of))):
            return name if of == "Annotated" and not name.startswith("_") else None
        case _:
            return None


def _constants() -> Iterator[str]:
    for path in sorted(PACKAGE.rglob("*.py")):
        for node in ast.parse(path.read_text()).body:
            match node:
                case ast.Assign(targets=targets, value=value) if not isinstance(value, ast.Call):
                    names = [each.id for each in targets if isinstance(each, ast.Name)]
                case ast.AnnAssign(target=ast.Name(id=name), annotation=kind):
                    names = [] if ast.unparse(kind).startswith("Final") else [name]
                case _:
                    names = []
            for name in filter(CONSTANT.fullmatch, names):
                yield f"{path}:{node.lineno}: a constant is Final: {name}"


def _any_json() -> Iterator[str]:
    for path in sorted(PACKAGE.rglob("*.py")):
        if path not in MEETS_PROGRAMS:
            for line, text in enumerate(path.read_text().splitlines(), 1):
                if re.search(r"\bJson\b", text):
                    yield f"{path}:{line}: Json is for signatures that programs use: JsonValue"


def _prose_of_code() -> Iterator[str]:
    for path in _files(CODE, ".py"):
        if path == Path(__file__).resolve().relative_to(Path.cwd()):
            continue
        text = path.read_text()
        for line, prose in (*_docstrings(text), *_comments(text)):
            yield from _faults(path, line, prose)
        if path.is_relative_to(PACKAGE):
            for line, message in _messages(text):
                yield from _faults(path, line, message)
            for line, prose in _docstrings(text):
                if PRONOUN.match(prose):
                    yield f"{path}:{line}: a docstring begins with its subject: {_first(prose)}"


def _prose_of_documents() -> Iterator[str]:
    for path in _files(DOCUMENTS, ".md"):
        for line, prose in enumerate(path.read_text().splitlines(), 1):
            yield from _faults(path, line, prose)


def _faults(path: Path, line: int, prose: str) -> Iterator[str]:
    for pattern, advice in PHRASES.items():
        if found := pattern.search(prose):
            at = line + prose.count("\n", 0, found.start())
            yield f"{path}:{at}: {found.group()!r}: {advice}"


def _files(roots: tuple[Path, ...], suffix: str) -> Iterator[Path]:
    for root in roots:
        yield from sorted(root.rglob(f"*{suffix}")) if root.is_dir() else [root]


def _docstrings(text: str) -> Iterator[tuple[int, str]]:
    """Yield the strings that stand as statements: of modules, classes, functions, attributes."""
    for node in ast.walk(ast.parse(text)):
        if (
            isinstance(node, ast.Expr)
            and isinstance(node.value, ast.Constant)
            and isinstance(node.value.value, str)
        ):
            yield node.lineno, node.value.value


def _messages(text: str) -> Iterator[tuple[int, str]]:
    """Yield the strings that the program uses, such as its log lines and the texts of errors."""
    tree = ast.parse(text)
    documentation = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Constant)
            and isinstance(node.value, str)
            and id(node) not in documentation
        ):
            yield node.lineno, node.value


def _comments(text: str) -> Iterator[tuple[int, str]]:
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string


def _first(prose: str) -> str:
    return prose.splitlines()[0][:60]


if __name__ == "__main__":
    sys.exit(main())
