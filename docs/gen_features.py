"""Write ``docs/features.md``: what the package does, row by row, and the tests that show it.

python -m docs.gen_features           write the page; rows whose tests are new stand as "not run"
python -m docs.gen_features --run     run the tests of all rows first; exit with 1 when one fails, and write nothing
python -m docs.gen_features --junit FILE…   take outcomes from JUnit reports of pytest; rows that they do not cover stay
python -m docs.gen_features --check   exit with 1 when the page is not what rows and tests say, or has "not run"

The rows are in ``docs/features/rows.yaml``, by sections. A row is a sentence, or a map with the sentence as ``is`` and,
where something is left out or otherwise than elsewhere, the ``reason``. Its tests are those with
``@pytest.mark.row("ID", …)``. A row with neither a test nor a reason is an error, and so is a mark that no row has.
"""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[1]
ROWS = ROOT / "docs" / "features" / "rows.yaml"
PAGE = ROOT / "docs" / "features.md"
TESTS = ROOT / "tests"

_SHOWN = 5
_PASS, _NOT_RUN = "pass", "not run"
_OVER_TURNS = ("tests/features/", "tests/agents/", "tests/flink/")
_HEAD = """\
# Features

<!-- Written by docs/gen_features.py from docs/features/rows.yaml and the marks of the tests: run "make features". -->

Every feature has a row: what it does here, the tests that drive it, and how it stands. *pass* says that all of its
tests passed when this page was written by `make features`; a sentence beside or instead of it says what is left out or
otherwise here, and why.
"""
_ROW = re.compile(r"^\| (?P<id>[A-Z]\d+) \| .* \| (?P<tests>[^|]*) \| (?P<state>[^|]*) \|$", re.MULTILINE)


class FeatureError(Exception):
    """What is wrong with rows, marks or tests, a line each."""


@dataclass(frozen=True)
class Row:
    """A row of a section: what is done, and why something is left out or done otherwise."""

    id: str
    text: str
    reason: str = ""


class _Loader(yaml.SafeLoader):
    """Refuses a key that is there twice, of which YAML would keep one without a word."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        keys = [self.construct_object(key, deep=True) for key, _ in node.value]
        if twice := {str(key) for key in keys if keys.count(key) > 1}:
            raise FeatureError(f"rows: {', '.join(sorted(twice))} is there twice")
        return super().construct_mapping(node, deep)


def read_rows(path: Path) -> dict[str, list[Row]]:
    """Return the rows of each section by its title.

    An id is the section's letter and a number. The number of a removed row stays free.
    """
    data = yaml.load(path.read_text(encoding="utf-8"), _Loader)  # noqa: S506 - a SafeLoader
    sections = {title: [_row(id_, said) for id_, said in rows.items()] for title, rows in data.items()}
    for title, rows in sections.items():
        if others := [row.id for row in rows if not re.fullmatch(rf"{title[0]}[1-9]\d*", row.id)]:
            wanted = f"{title[0]}1, {title[0]}2, …"
            raise FeatureError(f"{path.name}: {title!r} has the row {others[0]}: its rows are {wanted}")
        sections[title] = sorted(rows, key=lambda row: int(row.id[1:]))
    return sections


def _row(id_: str, said: str | Mapping[str, str]) -> Row:
    if isinstance(said, str):
        return Row(id_, said)
    if unknown := set(said) - {"is", "reason"}:
        raise FeatureError(f"row {id_} has {', '.join(sorted(unknown))}: write is and reason")
    return Row(id_, said["is"], said.get("reason", ""))


@dataclass(frozen=True)
class Marked:
    """A test function with the rows that it is marked with."""

    test: str
    rows: tuple[str, ...]


def marked_tests(folder: Path) -> list[Marked]:
    """Return all marked tests below ``folder``. The marks are read from the source, no test module is imported.

    A mark of a parameter counts for the test. Raises :class:`FeatureError` if a module cannot be parsed, or if a mark
    is neither on a test nor in the ``pytestmark`` of a class or module.
    """
    found: list[Marked] = []
    for path in sorted(folder.rglob("test_*.py"), key=lambda path: path.parts):
        name = path.relative_to(folder.parent).as_posix()
        text = path.read_text(encoding="utf-8")
        if "mark.row" not in text:
            continue
        try:
            module = ast.parse(text, name)
        except SyntaxError as error:
            raise FeatureError(f"{name}, line {error.lineno} cannot be parsed: {error.msg}") from error
        seen: set[ast.AST] = set()
        found += _marked(module, name, (), seen)
        if lost := [mark for mark in _marks([module]) if mark not in seen]:
            raise FeatureError(f"{name}, line {lost[0].lineno}: this mark is on no test: put it on the test function")
    return found


def _marked(
    scope: ast.Module | ast.ClassDef, name: str, outer: tuple[str, ...], seen: set[ast.AST]
) -> Iterator[Marked]:
    for node in scope.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "pytestmark":
            outer += _rows_of([node.value], seen)
    for node in scope.body:
        if isinstance(node, ast.ClassDef) and node.name.startswith("Test"):
            yield from _marked(node, f"{name}::{node.name}", outer + _rows_of(node.decorator_list, seen), seen)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test"):
            rows = dict.fromkeys(_rows_of(node.decorator_list, seen) + outer)
            if rows:
                yield Marked(f"{name}::{node.name}", tuple(rows))


def _rows_of(nodes: Iterable[ast.AST], seen: set[ast.AST]) -> tuple[str, ...]:
    marks = list(_marks(nodes))
    seen.update(marks)
    return tuple(str(ast.literal_eval(argument)) for mark in marks for argument in mark.args)


def _marks(nodes: Iterable[ast.AST]) -> Iterator[ast.Call]:
    for node in (inner for outer in nodes for inner in ast.walk(outer)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "row":
            yield node


@dataclass(eq=False)  # pytest keeps plugins in sets
class Outcomes:
    """Plugin that runs only the marked tests of a pytest session, and records the outcome of each."""

    of: dict[str, list[str]] = field(default_factory=dict)
    why: dict[str, str] = field(default_factory=dict)

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        config.hook.pytest_deselected(items=[item for item in items if not item.get_closest_marker("row")])
        items[:] = [item for item in items if item.get_closest_marker("row")]
        self.of = {_function(item.nodeid): [] for item in items}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call" or report.outcome != "passed":
            test = _function(report.nodeid)
            self.of[test].append(report.outcome)
            if report.outcome == "skipped" and isinstance(report.longrepr, tuple):
                self.why[test] = str(report.longrepr[2])


def _function(node: str) -> str:
    return node.partition("[")[0]


def run_tests(folder: Path) -> Outcomes:
    """Run the marked tests below ``folder`` by pytest in another process. Raises :class:`FeatureError` if one fails."""
    with tempfile.TemporaryDirectory() as scratch:
        found = Path(scratch) / "found.json"
        command = [sys.executable, str(Path(__file__)), "--session", str(found), str(folder)]
        done = subprocess.run(command, cwd=folder.parent, stdin=subprocess.DEVNULL, check=False)
        if done.returncode not in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED) or not found.is_file():
            raise FeatureError("the tests failed")
        return Outcomes(**json.loads(found.read_text(encoding="utf-8")))


def read_reports(reports: Iterable[Path], marked: Iterable[Marked]) -> Outcomes:
    """Return the outcomes of the marked tests in JUnit reports of pytest. Raise :class:`FeatureError` for a failure."""
    names = {one.test.replace("/", ".").replace(".py::", ".").replace("::", "."): one.test for one in marked}
    outcomes = Outcomes()
    for case in (case for report in reports for case in ElementTree.parse(report).iter("testcase")):  # noqa: S314
        test = names.get(f"{case.get('classname')}.{_function(case.get('name') or '')}")
        if test is None:
            continue
        if case.find("failure") is not None or case.find("error") is not None:
            raise FeatureError(f"{test} failed")
        skipped = case.find("skipped")
        outcomes.of.setdefault(test, []).append("passed" if skipped is None else "skipped")
        if skipped is not None:
            outcomes.why[test] = skipped.get("message") or ""
    return outcomes


def _session(found: str, folder: str) -> int:
    """Run a pytest session and write the outcomes to a file: the work of the other process."""
    outcomes = Outcomes()
    code = pytest.main(["-q", "-p", "no:cacheprovider", folder], plugins=[outcomes])
    Path(found).write_text(json.dumps(asdict(outcomes)), encoding="utf-8")
    return int(code)


def by_row(sections: Mapping[str, Sequence[Row]], marked: Iterable[Marked]) -> dict[str, list[Marked]]:
    """The tests of each row: first those over whole turns, and of these first those that are about fewer rows.

    Raises :class:`FeatureError` with all rows that have neither test nor reason, and all marks without a row.
    """
    tests: dict[str, list[Marked]] = {row.id: [] for rows in sections.values() for row in rows}
    wrong = []
    for one in marked:
        for id_ in one.rows:
            if id_ in tests:
                tests[id_].append(one)
            else:
                wrong.append(f"{one.test} is marked with the row {id_!r}, which does not exist")
    for row in (row for rows in sections.values() for row in rows):
        if not tests[row.id] and not row.reason:
            wrong.append(f'row {row.id} has no test (@pytest.mark.row("{row.id}")) and no reason in {ROWS.name}')
    if wrong:
        raise FeatureError("\n".join(wrong))
    return {id_: sorted(found, key=_order) for id_, found in tests.items()}


def _order(one: Marked) -> tuple[bool, int]:
    return not one.test.startswith(_OVER_TURNS), len(one.rows)


def states_of_run(tests: Mapping[str, Sequence[Marked]], outcomes: Outcomes) -> dict[str, str]:
    """Return the state of each row with tests after a run.

    Raises :class:`FeatureError` if none of the tests of a row passed, or if pytest saw marks that the source does not
    show.
    """
    read = {one.test for found in tests.values() for one in found}
    wrong = [
        f"{test} has a mark that its module does not show: write it on the test" for test in outcomes.of.keys() - read
    ]
    for id_, found in tests.items():
        if found and not any("passed" in outcomes.of.get(one.test, ()) for one in found):
            reasons = "; ".join(dict.fromkeys(outcomes.why[one.test] for one in found if one.test in outcomes.why))
            wrong.append(f"row {id_}: none of its tests could be run here: {reasons or 'no outcome'}")
    if wrong:
        raise FeatureError("\n".join(wrong))
    return {id_: _PASS for id_, found in tests.items() if found}


def states_of_page(tests: Mapping[str, Sequence[Marked]], page: str) -> dict[str, str]:
    """How each row with tests stood when the page was written; what has other tests since then was not run."""
    known = {match["id"]: (match["tests"], match["state"]) for match in _ROW.finditer(page)}
    states = {}
    for id_, found in tests.items():
        cell, state = known.get(id_, ("", ""))
        if found:
            states[id_] = _PASS if cell == _tests_cell(found) and state.startswith(_PASS) else _NOT_RUN
    return states


def render(
    sections: Mapping[str, Sequence[Row]], tests: Mapping[str, Sequence[Marked]], states: Mapping[str, str]
) -> str:
    """The page as text."""
    parts = [_HEAD]
    for title, rows in sections.items():
        parts.append(f"\n## {title}\n\n| row | here | tests | result |\n|---|---|---|---|\n")
        for row in rows:
            result = ". ".join(filter(None, (states.get(row.id, ""), row.reason)))
            cells = (row.id, _escaped(row.text), _tests_cell(tests[row.id]), _escaped(result))
            parts.append(f"| {' | '.join(cells)} |\n")
    return "".join(parts)


def _tests_cell(tests: Sequence[Marked]) -> str:
    shown = ", ".join(f"`{one.test}`" for one in tests[:_SHOWN])
    more = len(tests) - _SHOWN
    return f"{shown} and {more} more" if more > 0 else shown or "none"


def _escaped(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def main(arguments: list[str]) -> int:
    """Write or check the page; returns the exit code."""
    if arguments[:1] == ["--session"]:
        return _session(*arguments[1:])
    reports = [Path(file) for file in arguments[1:]] if arguments[:1] == ["--junit"] else []
    if arguments not in ([], ["--run"], ["--check"]) and not reports:
        sys.stderr.write(f"{__doc__}")
        return 2
    before = PAGE.read_text(encoding="utf-8") if PAGE.is_file() else ""
    run = arguments == ["--run"]
    try:
        sections = read_rows(ROWS)
        marked = marked_tests(TESTS)
        tests = by_row(sections, marked)
        if run:
            states = states_of_run(tests, run_tests(TESTS))
        else:
            outcomes = read_reports(reports, marked)
            reported = {id_: found for id_, found in tests.items() if any(one.test in outcomes.of for one in found)}
            states = states_of_page(tests, before) | states_of_run(reported, outcomes)
    except FeatureError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    text = render(sections, tests, states)
    not_run = [id_ for id_, state in states.items() if state == _NOT_RUN]
    if arguments == ["--check"]:
        if text == before and not not_run:
            return 0
        what = f"its tests changed for {', '.join(not_run)}" if not_run else "rows.yaml says something else"
        sys.stderr.write(f"{PAGE.name} is not current, {what}: run make features\n")
        return 1
    PAGE.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
