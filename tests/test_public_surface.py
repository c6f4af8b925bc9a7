"""The public names: each can be imported, and speaks only of types that are public, too."""

from __future__ import annotations

import ast
import importlib
import inspect
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import attrs
import pytest

import arcp_trio
from arcp_trio import acp, testing

PUBLIC = {name: getattr(arcp_trio, name) for name in arcp_trio.__all__}
TESTING = {name: getattr(testing, name) for name in testing.__all__}
ACP = {name: getattr(acp, name) for name in acp.__all__}
NAMES = {
    **PUBLIC,
    **{f"testing.{name}": value for name, value in TESTING.items()},
    **{f"acp.{name}": value for name, value in ACP.items()},
}
CLASSES = {value for value in NAMES.values() if isinstance(value, type)}
ENDS = ("Reading", "Updating", "Writing")
MODES = [f"Open{kind}" for kind in ("TextMode", *(f"BinaryMode{end}" for end in ENDS))]
"""Types of `open`'s modes, which only type checkers have."""
HANDED_OUT = {
    *("AsyncioContext", "AsyncioFile", "BlockingChild", "BlockingContext", "BlockingResultStream"),
    *(
        "BlockingThoughtStream",
        "BlockingToolCall",
        "Child",
        "Client",
        "JobContext",
        "JobHandle",
        "ObservedJob",
        "Question",
        "ResultStream",
        "ThoughtStream",
        "ToolCall",
    ),
    *("testing.ConnectionRecord", "testing.Subscription"),
    *("acp.Agent", "acp.Session", "acp.Turn"),
    *("acp.FileRequest", "acp.PermissionRequest", "acp.Request", "acp.TerminalRequest"),
}
"""Classes that a program is given and does not make: their constructors are internal."""
FOR_THE_RUNTIME = {"MemoryStore", "PostgresStore", "SqliteStore", "Store", "Transport"}
"""Classes that a program makes and whose methods the runtime calls."""


def namespace(module_name: str) -> dict[str, Any]:
    """Return a module's names, with those that it imports for type checkers only."""
    module = importlib.import_module(module_name)
    names = dict(vars(module))
    source = inspect.getsource(module)
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            for line in node.body:
                if isinstance(line, ast.ImportFrom) and line.module != "_typeshed":
                    exec(ast.unparse(line), names)
    return dict.fromkeys(MODES, str) | names


def hints(thing: Any, module_name: str) -> dict[str, Any]:
    """Return the types that a function or a class names."""
    return typing.get_type_hints(thing, globalns=namespace(module_name))


def named_types(hint: Any) -> Iterator[type]:
    """Yield the classes that a type is made of."""
    if isinstance(hint, type):
        yield hint
    arguments = hint if isinstance(hint, list) else typing.get_args(hint)
    for argument in arguments:
        yield from named_types(argument)
    if isinstance(hint, typing.TypeVar) and hint.__bound__ is not None:
        yield from named_types(hint.__bound__)


def is_public(class_name: str, member: str) -> bool:
    """Return whether programs may use a member of a public class."""
    if member == "__init__":
        return class_name not in HANDED_OUT
    return class_name not in FOR_THE_RUNTIME and (member == "__aenter__" or member[0] != "_")


def functions(name: str, thing: type) -> Iterator[tuple[str, Any, str]]:
    """Yield the functions of a public class that programs may call: name, function, module."""
    for base in thing.__mro__:
        if base.__module__.startswith("arcp_trio"):
            for member_name, member in vars(base).items():
                found: Any = member.fget if isinstance(member, property) else member
                found = inspect.unwrap(getattr(found, "__func__", found))
                if is_public(name, member_name) and inspect.isfunction(found):
                    yield f"{name}.{member_name}", found, found.__module__


def named_annotations(name: str, thing: Any) -> Iterator[tuple[str, Any]]:
    """Yield the types that a public name speaks of, and where."""
    if isinstance(thing, type):
        for where, function, module in functions(name, thing):
            for hint in hints(function, module).values():
                yield where, hint
        if attrs.has(thing):
            found = hints(thing, thing.__module__)
            for field in attrs.fields(thing):
                if not field.name.startswith("_"):
                    yield f"{name}.{field.name}", found[field.name]
    elif inspect.isfunction(function := inspect.unwrap(thing) if callable(thing) else None):
        for hint in hints(function, function.__module__).values():
            yield name, hint
    else:
        yield name, thing


@pytest.mark.parametrize("name", NAMES)
def test_annotations_name_public_types(name: str) -> None:
    """Each class that a public call returns or takes can be imported from where the call is."""
    hidden = {
        f"{where}: {named.__module__}.{named.__qualname__}"
        for where, hint in named_annotations(name, NAMES[name])
        for named in named_types(hint)
        if named.__module__.startswith("arcp_trio") and named not in CLASSES
    }
    assert not hidden


def test_what_is_said_to_be_public_is_typed() -> None:
    """The package says that it has types, and lists each public name once, in order."""
    assert (Path(arcp_trio.__file__).parent / "py.typed").exists()
    assert sorted(set(arcp_trio.__all__)) == sorted(arcp_trio.__all__)
