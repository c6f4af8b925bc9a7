"""Which clauses of the specification the suite shows: the `spec` marker and the report.

The clauses are in `clauses.toml` beside this file. A marker without an id, or with an unknown id,
is an error: a claim of conformance that points nowhere is worse than no claim. The ids travel in
each test's report, so the record is complete when several processes run tests.
"""

from __future__ import annotations

import tomllib
from collections import defaultdict
from collections.abc import Generator, Iterator
from functools import cache
from pathlib import Path

import pytest
from attrs import define, field, frozen

CLAUSES = Path(__file__).with_name("clauses.toml")
_PROPERTY = "spec"
_EVIDENCE = pytest.StashKey["Evidence"]()


@frozen(kw_only=True)
class Clause:
    """One clause, in the project's own words."""

    id: str
    strength: str
    binds: str
    text: str


@frozen(kw_only=True)
class Section:
    """The clauses of one section."""

    title: str
    clauses: list[Clause]


@frozen(kw_only=True)
class Question:
    """A place where the specification is open, and the choice that was made."""

    where: str
    question: str
    choice: str
    reason: str
    departs: bool = False


@frozen(kw_only=True)
class Specification:
    """Everything in `clauses.toml`."""

    sections: dict[str, Section]
    questions: list[Question]

    @property
    def clauses(self) -> dict[str, Clause]:
        """Every clause by its id, in the order of the text."""
        return {clause.id: clause for s in self.sections.values() for clause in s.clauses}


@cache
def read_specification(path: Path = CLAUSES) -> Specification:
    """Read the clauses; an id in the wrong section, or given twice, is a ValueError."""
    document = tomllib.loads(path.read_text())
    sections: dict[str, Section] = {}
    for number, content in document["sections"].items():
        clauses = [Clause(**clause) for clause in content["clauses"]]
        for n, clause in enumerate(clauses, start=1):
            if clause.id != f"{number}-{n}":
                raise ValueError(f"clause {clause.id!r} stands where {number}-{n} belongs")
        sections[number] = Section(title=content["title"], clauses=clauses)
    return Specification(sections=sections, questions=[Question(**q) for q in document["open"]])


@define
class Evidence:
    """The verdicts of this run's tests about each clause."""

    verdicts: defaultdict[str, dict[str, bool]] = field(factory=lambda: defaultdict(dict))
    """By clause id and test: whether the test passed."""
    complete: bool = True
    """Whether all files could be collected: workers go on without those that could not."""

    def add(self, clause_id: str, test: str, *, passed: bool) -> None:
        """Add one verdict; a test that failed once, in any phase or parametrization, has failed."""
        tests = self.verdicts[clause_id]
        tests[test] = passed and tests.get(test, True)

    def state(self, clause_id: str) -> str:
        """Return `shown`, `failed` or `no test yet`."""
        tests = self.verdicts.get(clause_id)
        if not tests:
            return "no test yet"
        return "shown" if all(tests.values()) else "failed"

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Note whether tests are missing."""
        self.complete &= not report.failed

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note the outcome of a test that has clause ids."""
        if not (report.failed or (report.when == "call" and report.passed)):
            return
        test = report.nodeid.partition("[")[0]
        for name, value in report.user_properties:
            if name == _PROPERTY:
                self.add(str(value), test, passed=report.passed)


def render(specification: Specification, evidence: Evidence) -> str:
    """Return the report, which is the same for the same outcomes: no dates, no durations."""
    states = {clause_id: evidence.state(clause_id) for clause_id in specification.clauses}
    count = list(states.values()).count
    untested = [clause_id for clause_id, state in states.items() if state == "no test yet"]
    lines = [
        "# Conformance to ARCP 1.1",
        "",
        "`make conformance` writes this file from the results of the tests. The clauses, in the",
        "project's own words, are in `tests/conformance/clauses.toml`. Sections whose number has",
        "1.0 before it are wire detail of ARCP 1.0 that 1.1 builds on. The strength of a clause is",
        'its key word, or "stated" if its text states a fact without a key word.',
        "",
        "| clauses | shown by a test | failed | no test yet |",
        "| ---: | ---: | ---: | ---: |",
        f"| {len(states)} | {count('shown')} | {count('failed')} | {len(untested)} |",
    ]
    for number, section in specification.sections.items():
        lines += ["", f"## {number}. {section.title}", ""]
        lines += ["| id | strength | binds | clause | tests |", "| --- | --- | --- | --- | --- |"]
        lines += [_row(clause, evidence) for clause in section.clauses]
    lines += ["", "## Clauses without a test", ""]
    lines += [", ".join(untested) or "None."]
    lines += ["", "## Where the specification leaves a choice", ""]
    for question in specification.questions:
        lines += [f"**{question.where}: {question.question}**", "", question.choice]
        lines += ["*Departs from the letter of a clause.*"] if question.departs else []
        lines += [f"Why: {question.reason}", ""]
    return "\n".join(lines)


def _row(clause: Clause, evidence: Evidence) -> str:
    tests = evidence.verdicts.get(clause.id, {})
    cells = [f"`{t}`" if passed else f"**failed** `{t}`" for t, passed in sorted(tests.items())]
    shown_by = "<br>".join(cells) or "no test yet"
    text = clause.text.replace("|", r"\|")
    return f"| {clause.id} | {clause.strength} | {clause.binds} | {text} | {shown_by} |"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option that asks for the report."""
    parser.addoption(
        "--conformance-report",
        type=Path,
        metavar="PATH",
        help="write which clauses of the specification the tests of this run have shown",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Start the record, in the process that gets all reports."""
    if config.getoption("conformance_report") and not hasattr(config, "workerinput"):
        evidence = Evidence()
        config.stash[_EVIDENCE] = evidence
        config.pluginmanager.register(evidence)


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Give each test the ids of its clauses; a file with an unknown id cannot be collected."""
    report = yield
    wrong = [
        w for node in report.result or () if isinstance(node, pytest.Item) for w in _claim(node)
    ]
    if wrong:
        report.outcome = "failed"
        report.longrepr = "\n".join(wrong)
        report.result = []
    return report


def _claim(item: pytest.Item) -> Iterator[str]:
    """Put the ids of a test's clauses where its reports carry them; yield the errors."""
    known = read_specification().clauses
    for mark in item.iter_markers(_PROPERTY):
        if not mark.args:
            yield f"{item.nodeid}: the spec marker names no clause"
        for clause_id in mark.args:
            item.user_properties.append((_PROPERTY, clause_id))
            if clause_id not in known:
                yield f"{item.nodeid}: there is no clause {clause_id!r} in {CLAUSES.name}"


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Write the report, unless the run was interrupted: tests would seem to be missing."""
    evidence = session.config.stash.get(_EVIDENCE, None)
    ended = exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED)
    if evidence and evidence.complete and ended:
        path: Path = session.config.getoption("conformance_report")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(render(read_specification(), evidence))
