"""Classes and functions of a main script arrive whole in other processes, and the script keeps its own."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.each_python

SCRIPT = Path(__file__).with_name("main_script.py")

# Reads what another process pickled, and pickles the events again: as PyFlink's own processes do, without an import
# of the package.
READER = """
import json, pickle, sys, traceback
import cloudpickle

pickled = pickle.loads(open(sys.argv[1], "rb").read())
results, again = {}, {}
for name, (check, events) in pickled.items():
    try:
        check, first, second = pickle.loads(check), *map(pickle.loads, events)
        results[name] = [type(first) is type(second), check(first), check(second)]
        again[name] = (cloudpickle.dumps(check), [cloudpickle.dumps(first), cloudpickle.dumps(second)])
    except Exception:
        results[name] = traceback.format_exc()
open(sys.argv[2], "wb").write(pickle.dumps(again))
print(json.dumps(results, default=repr))
"""

CASES = (
    "dataclass",
    "frozen",
    "slots",
    "frozen slots",
    "keyword only",
    "inheritance",
    "generic dataclass",
    "pydantic dataclass",
    "pydantic model",
    "discriminated union",
    "generic model",
    "enum",
    "enum with attributes",
    "enum with a constructor",
    "flag",
    "typed dict",
    "named tuple",
    "old named tuple",
    "class",
    "abstract class",
    "exception",
    "closure",
    "partial",
    "cached function",
    "cached function of a module",
    "annotations",
)


@pytest.fixture(scope="module", params=["", "from __future__ import annotations\n"], ids=["", "future"])
def processes(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """Results of the script, of a process that reads its pickles, and of one that reads the pickles of the second."""
    folder = tmp_path_factory.mktemp("by_value")
    script, reader = folder / "script.py", folder / "reader.py"
    script.write_text(request.param + SCRIPT.read_text())
    reader.write_text(READER)
    return [
        run(script, folder / "first"),
        run(reader, folder / "first", folder / "second"),
        run(reader, folder / "second", folder / "third"),
    ]


def run(*command: Path) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, *map(str, command)], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize("case", CASES)
def test_it_arrives_whole_and_as_one_class(processes: list[dict[str, Any]], case: str) -> None:
    script, worker, later = processes
    result = script["results"][case]
    assert worker.get(case) == [True, result, result]
    assert later.get(case) == [True, result, result]


def test_all_cases_are_here(processes: list[dict[str, Any]]) -> None:
    assert sorted(processes[0]["results"]) == sorted(CASES)


def test_the_process_that_declares_the_classes_keeps_them_as_they_are(processes: list[dict[str, Any]]) -> None:
    script = processes[0]
    assert (script["changed"], script["made again"], script["shapes"]) == ([], [], ["Square"])
