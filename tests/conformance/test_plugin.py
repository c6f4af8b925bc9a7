"""The conformance record: what counts as evidence, and which marks are refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conformance.plugin import (
    Clause,
    Evidence,
    Question,
    Section,
    Specification,
    read_specification,
    render,
)

Run = Callable[..., tuple[pytest.RunResult, str]]

PASSING = """
    import pytest

    @pytest.mark.spec("5-2")
    def test_a():
        pass
"""
FAILING = {
    "call": """
        import pytest

        @pytest.mark.spec("5-2")
        def test_a():
            assert 0
    """,
    "one parameter": """
        import pytest

        @pytest.mark.spec("5-2")
        @pytest.mark.parametrize("n", [0, 1])
        def test_a(n):
            assert n == 0
    """,
    "teardown": """
        import pytest

        @pytest.fixture
        def fixture():
            yield
            assert 0

        @pytest.mark.spec("5-2")
        def test_a(fixture):
            pass
    """,
    "setup": """
        import pytest

        @pytest.fixture
        def fixture():
            assert 0

        @pytest.mark.spec("5-2")
        def test_a(fixture):
            pass
    """,
}


@pytest.fixture
def run(pytester: pytest.Pytester) -> Run:
    """Run pytest with the plugin over one test file; return its result, and the report or ""."""

    def run_file(source: str, *args: str) -> tuple[pytest.RunResult, str]:
        pytester.makeini("[pytest]\nmarkers = spec(id): a clause\n")
        pytester.makepyfile(source)
        path = pytester.path / "docs" / "report.md"
        options = ("-p", "tests.conformance.plugin", "--conformance-report", str(path))
        result = pytester.runpytest_inprocess(*options, *args)
        return result, path.read_text() if path.exists() else ""

    return run_file


def evidence_for(clause_id: str, report: str) -> str:
    """Return the last cell of a clause's row."""
    (line,) = [line for line in report.splitlines() if line.startswith(f"| {clause_id} |")]
    return line.split("|")[-2].strip()


def test_a_passing_test_shows_its_clause(run: Run) -> None:
    """The row of a clause names the test that passed; others have no test yet."""
    result, report = run(PASSING)
    assert result.ret == pytest.ExitCode.OK
    assert evidence_for("5-2", report).endswith("::test_a`")
    assert evidence_for("5-1", report) == "no test yet"


@pytest.mark.parametrize("phase", FAILING)
def test_a_failure_in_any_phase_fails_the_clause(run: Run, phase: str) -> None:
    """A clause is failed if one of its tests failed in any phase."""
    result, report = run(FAILING[phase])
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    assert evidence_for("5-2", report).startswith("**failed** ")


def test_what_did_not_run_shows_nothing(run: Run) -> None:
    """Skipped tests and expected failures do not count as evidence."""
    _, report = run(
        """
        import pytest

        @pytest.mark.spec("5-1")
        @pytest.mark.skip
        def test_a():
            pass

        @pytest.mark.spec("5-2")
        @pytest.mark.xfail
        def test_b():
            assert 0
        """
    )
    assert evidence_for("5-1", report) == evidence_for("5-2", report) == "no test yet"


@pytest.mark.parametrize("workers", [(), ("-n", "1")], ids=["one process", "workers"])
@pytest.mark.parametrize("mark", ['spec("5-99")', 'spec("5-2", "5-99")', "spec()", "spec"])
def test_a_mark_that_points_nowhere_fails_the_run(
    run: Run, mark: str, workers: tuple[str, ...]
) -> None:
    """A mark with an unknown id, or without one, fails the collection."""
    source = f"""
        import pytest

        @pytest.mark.{mark}
        def test_a():
            pass

        def test_b():
            pass
    """
    result, report = run(source, "-k", "test_b", *workers)
    assert result.ret != pytest.ExitCode.OK
    result.assert_outcomes(errors=1)
    result.stdout.re_match_lines([".*test_a: (there is no clause '5-99'|.* names no clause)"])
    assert not report


def test_the_record_is_the_same_with_workers(run: Run) -> None:
    """One process and several write the same report."""
    _, alone = run(PASSING)
    _, shared = run(PASSING, "-n", "2")
    assert alone == shared


def test_the_report_counts_and_lists() -> None:
    """The report has totals, a row for each clause, and the choices for open questions."""
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


def test_misplaced_clauses_are_refused(tmp_path: Path) -> None:
    """Clauses that are not numbered in the order of the text are refused."""
    path = tmp_path / "clauses.toml"
    clause = '{ id = "1-2", strength = "MUST", binds = "both", text = "" }'
    path.write_text(f'open = []\n[sections."1"]\ntitle = ""\nclauses = [{clause}]\n')
    with pytest.raises(ValueError, match="stands where 1-1 belongs"):
        read_specification(path)


def test_the_clauses_use_the_words_that_their_file_explains() -> None:
    """Strength and addressee of each clause are known words, and its text a sentence."""
    strengths = {"MUST", "MUST NOT", "SHOULD", "SHOULD NOT", "REQUIRED", "MAY", "stated"}
    for clause in read_specification().clauses.values():
        assert clause.strength in strengths
        assert clause.binds in {"both", "runtime", "client", "agent", "deployment"}
        assert clause.text.endswith((".", "?")), clause.id
