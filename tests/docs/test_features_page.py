"""``docs/features.md``: every row has a test or a reason, and the page says what tests and rows say."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from docs.gen_features import FeatureError, Marked, read_reports
from tests.docs.pages import ROOT

ROWS = """\
A. First things:
  A2: Does it.
  A1:
    is: Does it | otherwise.
    reason: Because.
"""
TESTS = """\
import pytest

@pytest.mark.row("A2")
@pytest.mark.parametrize("n", [1, 2])
def test_two(n):
    pass

@pytest.mark.row("A2", "A1")
def test_both():
    pass

def test_other():
    raise AssertionError("is not run")
"""


@pytest.fixture
def features() -> Iterator[ModuleType]:
    spec = importlib.util.spec_from_file_location("gen_features", ROOT / "docs/gen_features.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["gen_features"] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    yield module
    del sys.modules["gen_features"]


@pytest.fixture
def page(features: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The page of a small project."""
    monkeypatch.setattr(features, "ROWS", tmp_path / "rows.yaml")
    monkeypatch.setattr(features, "PAGE", tmp_path / "features.md")
    monkeypatch.setattr(features, "TESTS", tmp_path / "tests")
    # The sessions of "--run" need no plugin, and importing those that are installed takes seconds.
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    (tmp_path / "rows.yaml").write_text(ROWS)
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests/test_a.py").write_text(TESTS)
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers = row(*ids): rows\n")
    return tmp_path / "features.md"


def rows_of(page: Path) -> list[str]:
    return [line for line in page.read_text().splitlines() if line.startswith("| A")]


def test_the_page_is_current(features: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    assert features.main(["--check"]) == 0, capsys.readouterr().err


def test_rows_have_their_tests_the_most_direct_first(features: ModuleType, page: Path) -> None:
    assert features.main([]) == 0
    one, two = rows_of(page)
    assert one == "| A1 | Does it \\| otherwise. | `tests/test_a.py::test_both` | not run. Because. |"
    assert two == "| A2 | Does it. | `tests/test_a.py::test_two`, `tests/test_a.py::test_both` | not run |"
    assert features.main(["--check"]) == 1


def test_only_a_run_says_pass_and_only_of_these_tests(features: ModuleType, page: Path) -> None:
    assert features.main(["--run"]) == 0
    assert [line.split(" | ")[-1] for line in rows_of(page)] == ["pass. Because. |", "pass |"]
    assert features.main(["--check"]) == 0
    (page.parent / "rows.yaml").write_text(ROWS.replace("Does it.", "Does it well."))
    assert features.main(["--check"]) == 1
    assert features.main([]) == 0
    assert features.main(["--check"]) == 0
    more = '\n@pytest.mark.row("A1")\ndef test_new():\n    pass\n'
    (page.parent / "tests/test_a.py").write_text(TESTS + more)
    assert features.main(["--check"]) == 1
    assert features.main([]) == 0
    assert [line.split(" | ")[-1] for line in rows_of(page)] == ["not run. Because. |", "pass |"]


def test_a_report_of_some_tests_changes_only_their_rows(features: ModuleType, page: Path, tmp_path: Path) -> None:
    report = tmp_path / "report.xml"
    report.write_text('<testsuite><testcase classname="tests.test_a" name="test_two"/></testsuite>')
    assert features.main(["--junit", str(report)]) == 0
    assert [line.split(" | ")[-1] for line in rows_of(page)] == ["not run. Because. |", "pass |"]
    report.write_text('<testsuite><testcase classname="tests.test_a" name="test_both"/></testsuite>')
    assert features.main(["--junit", str(report)]) == 0
    assert [line.split(" | ")[-1] for line in rows_of(page)] == ["pass. Because. |", "pass |"]


def test_many_tests_are_counted(features: ModuleType, page: Path) -> None:
    many = "".join(f'\n@pytest.mark.row("A2")\ndef test_{n}():\n    pass\n' for n in range(9))
    (page.parent / "tests/test_a.py").write_text(TESTS + many)
    assert features.main([]) == 0
    assert rows_of(page)[1].count("::") == 5
    assert " and 6 more |" in rows_of(page)[1]


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('"A2", "A1"', '"A2", "A3"', "tests/test_a.py::test_both is marked with the row 'A3', which does not exist"),
        ("import pytest", "import", "tests/test_a.py, line 1 cannot be parsed: "),
        ("def test_two", "def two", "tests/test_a.py, line 3: this mark is on no test: put it on the test function"),
        ("def test_other", 'both = pytest.mark.row("A1")\n\ndef test_other', "line 12: this mark is on no test"),
        ('"A2"', '"A1"', "row A2 has no test"),
    ],
)
def test_wrong_marks(
    old: str, new: str, said: str, features: ModuleType, page: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (page.parent / "tests/test_a.py").write_text(TESTS.replace(old, new))
    for arguments in ([], ["--check"]):
        assert features.main(arguments) == 1
        assert said in capsys.readouterr().err
    assert not page.exists()


def test_marks_of_modules_classes_and_parameters_count(features: ModuleType, page: Path) -> None:
    (page.parent / "tests/test_b.py").write_text(
        """\
import pytest

pytestmark = [pytest.mark.slow, pytest.mark.row("A1")]

class TestAll:
    pytestmark = pytest.mark.row("A2")

    def test_method(self):
        pass

@pytest.mark.parametrize("n", [1, pytest.param(2, marks=pytest.mark.row("A2"))])
async def test_parameter(n):
    pass

def test_module():
    pass
"""
    )
    marked = {one.test: set(one.rows) for one in features.marked_tests(page.parent / "tests")}
    assert marked == {
        "tests/test_a.py::test_two": {"A2"},
        "tests/test_a.py::test_both": {"A1", "A2"},
        "tests/test_b.py::TestAll::test_method": {"A1", "A2"},
        "tests/test_b.py::test_parameter": {"A1", "A2"},
        "tests/test_b.py::test_module": {"A1"},
    }


def test_a_run_finds_marks_that_the_source_does_not_show(
    features: ModuleType, page: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (page.parent / "tests/test_b.py").write_text("from tests.test_a import test_both as test_again\n")
    (page.parent / "tests/__init__.py").touch()
    assert features.main(["--run"]) == 1
    assert "tests/test_b.py::test_again has a mark that its module does not show" in capsys.readouterr().err
    assert not page.exists()


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("  A2:", "  B2:", "has the row B2: its rows are A1, A2"),
        ("  A2:", "  A1:", "A1 is there twice"),
        ("reason:", "why:", "row A1 has why: write is and reason"),
    ],
)
def test_wrong_rows(
    old: str, new: str, said: str, features: ModuleType, page: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (page.parent / "rows.yaml").write_text(ROWS.replace(old, new))
    assert features.main([]) == 1
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    ("body", "said"),
    [("assert not 1", "the tests failed"), ("pytest.skip('no such thing here')", "A2: none of its tests could be run")],
)
def test_a_run_that_does_not_pass_writes_nothing(
    body: str, said: str, features: ModuleType, page: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    text = TESTS.replace("    pass", f"    {body}")
    (page.parent / "tests/test_a.py").write_text(text)
    assert features.main(["--run"]) == 1
    assert said in capfd.readouterr().err
    assert not page.exists()


def test_usage(features: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    assert features.main(["--chekc"]) == 2
    assert "--check" in capsys.readouterr().err


def report(folder: Path, *cases: str) -> Path:
    path = folder / "report.xml"
    path.write_text(f"<testsuites><testsuite>{''.join(cases)}</testsuite></testsuites>")
    return path


def test_outcomes_of_reports_are_those_of_the_marked_tests(tmp_path: Path) -> None:
    marked = [Marked("tests/a/test_b.py::test_c", ("A1",)), Marked("tests/test_d.py::TestE::test_f", ("A2",))]
    path = report(
        tmp_path,
        '<testcase classname="tests.a.test_b" name="test_c[1]"/>',
        '<testcase classname="tests.a.test_b" name="test_c[2]"><skipped message="no root"/></testcase>',
        '<testcase classname="tests.test_d.TestE" name="test_f"/>',
        '<testcase classname="tests.test_d" name="test_unmarked"><failure/></testcase>',
    )
    outcomes = read_reports([path], marked)
    assert outcomes.of == {marked[0].test: ["passed", "skipped"], marked[1].test: ["passed"]}
    assert outcomes.why == {marked[0].test: "no root"}


def test_a_failure_in_a_report_is_an_error(tmp_path: Path) -> None:
    path = report(tmp_path, '<testcase classname="tests.test_d" name="test_g[x]"><error/></testcase>')
    with pytest.raises(FeatureError, match=r"tests/test_d\.py::test_g failed"):
        read_reports([path], [Marked("tests/test_d.py::test_g", ("A1",))])
