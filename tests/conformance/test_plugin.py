"""The conformance record: what it takes as evidence and what it refuses."""

from __future__ import annotations

import pytest

from tests.conformance.plugin import Clause, Evidence, Question, Section, Specification
from tests.conformance.plugin import read_specification, render

PLUGIN = ("-p", "tests.conformance.plugin")
A_PASS = "@pytest.mark.spec('5-2')\ndef test_a(): pass\n"


@pytest.fixture
def run(pytester: pytest.Pytester):
    """Run pytest with the plugin over one test file; returns its result and the report, if one was written."""

    def run_file(source: str, *args: str) -> tuple[pytest.RunResult, str | None]:
        pytester.makeini("[pytest]\nmarkers = spec(id): a clause\n")
        pytester.makepyfile("import pytest\n" + source)
        path = pytester.path / "docs" / "report.md"
        result = pytester.runpytest_inprocess(*PLUGIN, "--conformance-report", str(path), *args)
        return result, path.read_text() if path.exists() else None

    return run_file


def row(report: str | None, clause_id: str) -> str:
    """The last cell of a clause's row."""
    assert report is not None
    (line,) = [line for line in report.splitlines() if line.startswith(f"| {clause_id} |")]
    return line.split("|")[-2].strip()


def test_a_passing_test_shows_its_clause(run):
    """The row of a clause names the test that passed; others have no test yet."""
    result, report = run(A_PASS)
    assert result.ret == pytest.ExitCode.OK
    assert row(report, "5-2").endswith("test_a`")
    assert row(report, "5-1") == "no test yet"


@pytest.mark.parametrize(
    "source",
    [
        "@pytest.mark.spec('5-2')\ndef test_a(): assert 0",
        "@pytest.mark.spec('5-2')\n@pytest.mark.parametrize('n', [0, 1])\ndef test_a(n): assert n == 0",
        "@pytest.fixture\ndef f():\n    yield\n    assert 0\n@pytest.mark.spec('5-2')\ndef test_a(f): pass",
        "@pytest.fixture\ndef f():\n    assert 0\n@pytest.mark.spec('5-2')\ndef test_a(f): pass",
    ],
    ids=["call", "one parameter", "teardown", "setup"],
)
def test_a_failure_in_any_phase_fails_the_clause(run, source):
    """A clause whose test failed anywhere is shown as failed, whatever passed beside it."""
    result, report = run(source)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    assert row(report, "5-2").startswith("**failed** ")


def test_what_did_not_run_shows_nothing(run):
    """A skipped and an expectedly failing test are no evidence."""
    source = (
        "@pytest.mark.spec('5-1')\n@pytest.mark.skip\ndef test_a(): pass\n"
        "@pytest.mark.spec('5-2')\n@pytest.mark.xfail\ndef test_b(): assert 0\n"
    )
    _, report = run(source)
    assert row(report, "5-1") == row(report, "5-2") == "no test yet"


@pytest.mark.parametrize("workers", [(), ("-n", "1")], ids=["one process", "workers"])
@pytest.mark.parametrize("mark", ["spec('5-99')", "spec('5-2', '5-99')", "spec()", "spec"])
def test_a_mark_that_points_nowhere_stops_the_run(run, mark, workers):
    """An unknown id, or none at all, fails the collection, even of a test that was not asked for."""
    result, report = run(
        f"@pytest.mark.{mark}\ndef test_a(): pass\ndef test_b(): pass", "-k", "test_b", *workers
    )
    assert result.ret != pytest.ExitCode.OK
    result.assert_outcomes(errors=1)
    result.stdout.re_match_lines(
        [".*test_a: (there is no clause '5-99'|the spec marker names no clause)"]
    )
    assert report is None


def test_the_record_is_the_same_with_workers(run):
    """Several processes, or one: the same report."""
    _, alone = run(A_PASS)
    _, shared = run(A_PASS, "-n", "2")
    assert alone == shared


def test_the_report_counts_and_lists():
    """The head counts, each section has its rows, and open questions say what was chosen."""
    clauses = [Clause(id=f"1-{n}", strength="MUST", binds="both", text="a | b") for n in (1, 2, 3)]
    question = Question(where="§1", question="Why?", choice="So.", reason="Simple.", departs=True)
    specification = Specification(
        sections={"1": Section(title="One", clauses=clauses)}, questions=[question]
    )
    evidence = Evidence()
    evidence.add("1-1", "t.py::a", passed=True)
    evidence.add("1-2", "t.py::a", passed=True)
    evidence.add("1-2", "t.py::b", passed=False)
    report = render(specification, evidence)
    assert "| 3 | 1 | 1 | 1 |" in report
    assert r"| 1-1 | MUST | both | a \| b | `t.py::a` |" in report
    assert "| `t.py::a`<br>**failed** `t.py::b` |" in report
    assert "\n## Clauses without a test\n\n1-3\n" in report
    assert "So.\n*Departs from the letter of a clause.*\nWhy: Simple." in report


def test_misplaced_clauses_are_refused(tmp_path):
    """Ids are numbered in the order of the text, so that none is given twice."""
    path = tmp_path / "clauses.toml"
    path.write_text(
        'open = []\n[sections."1"]\ntitle = ""\n[[sections."1".clauses]]\nid = "1-2"\n'
        'strength = "MUST"\nbinds = "both"\ntext = ""\n'
    )
    with pytest.raises(ValueError, match="stands where 1-1 belongs"):
        read_specification(path)


def test_every_clause_is_one_line_and_says_whom_it_binds():
    """The clauses use the words that the head of their file explains."""
    for clause in read_specification().clauses.values():
        assert clause.strength in {
            "MUST",
            "MUST NOT",
            "SHOULD",
            "SHOULD NOT",
            "REQUIRED",
            "MAY",
            "stated",
        }
        assert clause.binds in {"both", "runtime", "client", "agent", "deployment"}
        assert clause.text.endswith((".", "?")), clause.id
