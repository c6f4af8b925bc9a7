"""A strict reader of the metrics in Prometheus' text format 0.0.4."""

from __future__ import annotations

import re
from collections.abc import Mapping

import attrs

from arcp_trio import Runtime

NAMING_PRINCIPALS = ("arcp_held_most", "arcp_used_most_total")
"""The metrics that name principals."""

_NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
_COMMENT = re.compile(rf"# (HELP|TYPE) ({_NAME}) (.+)")
_SAMPLE = re.compile(rf"({_NAME})(?:\{{(.*)\}})? (\S+)")
_LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\["\\n])*)"(?:,|$)')
_ESCAPE = re.compile(r"\\(.)")
_SUFFIXES = {"histogram": ("_bucket", "_sum", "_count"), "gauge": ("",), "counter": ("",)}

Labels = frozenset[tuple[str, str]]


@attrs.frozen
class Family:
    """One metric: its type, and its samples by name and labels."""

    name: str
    kind: str
    samples: dict[tuple[str, Labels], float] = attrs.field(factory=dict[tuple[str, Labels], float])


def parse(text: str) -> dict[str, Family]:
    """Return all families; an AssertionError says which rule of the format is broken."""
    assert text.endswith("\n")
    families: dict[str, Family] = {}
    lines = iter(text.removesuffix("\n").split("\n"))
    family: Family | None = None
    for line in lines:
        if line.startswith("#"):
            # Each family begins with both comments, and is not interrupted.
            about, name, words = _comment(line)
            assert about == "HELP", line
            assert "\\" not in words
            assert name not in families, f"a second time: {name}"
            about, again, kind = _comment(next(lines))
            assert (about, again) == ("TYPE", name)
            assert kind in _SUFFIXES, kind
            family = families[name] = Family(name, kind)
        else:
            assert family is not None, line
            _add(family, line)
    for family in families.values():
        if family.kind == "histogram":
            _check_histogram(family)
    return families


def _comment(line: str) -> tuple[str, str, str]:
    match = _COMMENT.fullmatch(line)
    assert match is not None, line
    about, name, words = match.groups()
    return about, name, words


def _add(family: Family, line: str) -> None:
    match = _SAMPLE.fullmatch(line)
    assert match is not None, line
    name, inside, number = match.groups()
    assert name in {family.name + suffix for suffix in _SUFFIXES[family.kind]}, line
    key = name, _labels(inside or "")
    assert key not in family.samples, line
    value = float(number)
    assert value >= 0 or family.kind == "gauge", line
    family.samples[key] = value


def _labels(text: str) -> Labels:
    labels: dict[str, str] = {}
    at = 0
    while at < len(text):
        match = _LABEL.match(text, at)
        assert match is not None, text
        name, value = match.groups()
        assert name not in labels, text
        labels[name] = _ESCAPE.sub(lambda found: "\n" if found[1] == "n" else found[1], value)
        at = match.end()
    return frozenset(labels.items())


def _check_histogram(family: Family) -> None:
    counted: dict[Labels, list[tuple[float, float]]] = {}
    for (name, labels), value in family.samples.items():
        if name.endswith("_bucket"):
            written = dict(labels)["le"]
            counted.setdefault(labels - {("le", written)}, []).append((float(written), value))
    for labels, buckets in counted.items():
        assert buckets == sorted(buckets), "bounds and counts go up"
        bound, count = buckets[-1]
        assert bound == float("inf")
        assert count == family.samples[f"{family.name}_count", labels]


@attrs.frozen
class Metrics:
    """The metrics of one moment."""

    families: Mapping[str, Family]

    def __call__(self, name: str, **labels: str) -> float:
        """Return the value of a sample, by its name without `arcp_`."""
        full = f"arcp_{name}"
        family = self.families.get(full) or self.families[full.rpartition("_")[0]]
        return family.samples[full, frozenset(labels.items())]


def scrape(runtime: Runtime) -> Metrics:
    """Return the runtime's metrics."""
    return Metrics(parse(runtime.exposition()))
