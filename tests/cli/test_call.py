"""``flink-skills tools`` and ``flink-skills call``: the tools that a skill brings, described and called as in a job."""

from __future__ import annotations

import json
import signal
import subprocess
import uuid
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.cli.conftest import FlinkSkills, Said
from tests.cli.passable import passable_folder
from tests.cli.test_process import command
from tests.kit.skills import write_skill
from tests.kit.waiting import wait_until

pytestmark = pytest.mark.row("K10")

# Tests that are not about isolation also run on kernels without Landlock.
ANY_MACHINE = ("--set", "skills.shell.min-isolation=HYGIENE")

TOOLS = '''\
import os
from typing import Literal, Optional


def distance(start: str, end: str, factor: float = 1.0) -> int:
    """Kilometres between two towns.

    Args:
        start: A town.
    """
    return round(len(start + end) * factor)


def route(stops: list[str], fast: bool = True, unit: Literal["km", "mi"] = "km", most: Optional[int] = None) -> dict:
    "Plan a route."
    return {"stops": stops, "fast": fast, "unit": unit, "most": most}


def note(text, **more):
    print("noted")
    with open(os.path.join(os.environ["OUTPUT_DIR"], "note.txt"), "w") as file:
        file.write(text)
    return "grün \\x1b[31m" + text + repr(more)


def loop():
    while True:
        pass


def fails():
    raise KeyError("Rome")


def huge():
    return {"text": "x" * 5_000_000}


def inputs():
    return sorted(os.listdir(os.path.join(os.environ["WORK_DIR"], "inputs")))
'''
SCHEMA = """\
{"tools": [
 {"name": "count", "description": "Count.", "command": ["cat"],
  "parameters": {"properties": {"n": {"type": ["integer", "string"]}}, "required": ["n"]}},
 {"name": "gone"}
]}
"""


@pytest.fixture
def geo(tmp_path: Path) -> Path:
    write_skill(tmp_path / "s/plain")
    write_skill(tmp_path / "s/declared", **{"schema.json": SCHEMA})
    write_skill(tmp_path / "s/broken", **{"tools.py": "def f(:\n"})
    return write_skill(tmp_path / "s/geo", **{"tools.py": TOOLS})


@pytest.fixture
def run(flink_skills: FlinkSkills, geo: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FlinkSkills]:
    with passable_folder() as folder:
        monkeypatch.setattr("tempfile.tempdir", str(folder))

        def call(*words: object) -> Said:
            return flink_skills(*words, *ANY_MACHINE)

        yield call


def test_tools_are_listed_as_models_are_told_of_them(run: FlinkSkills) -> None:
    said = run("tools", "s/geo")
    assert (said.code, said.stderr) == (0, "")
    lines = said.stdout.splitlines()
    assert lines[:7] == [
        "geo: 7 tools",
        "",
        "distance  (tools.py:5)",
        "  Kilometres between two towns.",
        "  PARAMETER  TYPE    VALUE        DESCRIPTION",
        "  start      string  required     A town.",
        "  end        string  required",
    ]
    assert '  unit       string   default "km"' in lines
    assert "  text       any   required" in lines
    for words in (("--json",), ("--format", "json")):
        data = run("tools", "s", "--skill", "geo", *words).json
        assert (data["skill"], data["problems"], data["error"]) == ("geo", [], None)
        assert [(tool["name"], tool["from"]) for tool in data["tools"]][:2] == [
            ("distance", "tools.py:5"),
            ("route", "tools.py:14"),
        ]
        assert data["tools"][0]["parameters"]["required"] == ["start", "end"]


def test_tools_of_a_schema_and_a_skill_without_any(run: FlinkSkills) -> None:
    said = run("tools", "s/declared")
    assert said.stdout.startswith("declared: 1 tool\n\ncount  (schema.json:2, command cat)\n  Count.\n")
    assert (said.code, "the tool 'gone' is left out" in said.stderr) == (1, True)
    plain = run("tools", "s/plain")
    assert (plain.code, plain.stdout) == (
        0,
        "plain: 0 tools. The skill has no tools.py and no schema.json with tools.\n",
    )
    broken = run("tools", "s/broken")
    assert (broken.code, broken.stdout) == (1, "broken: 0 tools\n")
    assert "skill broken: tools.py: SyntaxError" in broken.stderr


def test_a_call_prints_what_a_model_reads(run: FlinkSkills) -> None:
    said = run("call", "s/geo", "distance", "start=Ulm", "end=Bonn", "factor=2")
    assert (said.code, said.stdout, said.stderr) == (0, "14\n", "")
    noted = run("call", "s/geo", "note", "text=one", "day=2", "where=here")
    assert noted.stdout == "grün \x1b[31mone{'day': 2, 'where': 'here'}\n\nprinted:\nnoted\n"
    assert (noted.code, noted.stderr) == (0, "file out/note.txt  3 B\n")
    whole = run("call", "s/geo", "route", 'stops=["a", "b"]', "fast=false", "--json").json
    assert whole["value"] == {"stops": ["a", "b"], "fast": False, "unit": "km", "most": None}
    assert json.loads(whole["content"]) == whole["value"]
    assert whole["arguments"] == {"stops": ["a", "b"], "fast": False}
    assert (whole["skill"], whole["tool"], whole["is_error"], whole["error"]) == ("geo", "route", False, None)
    assert {"duration_ms", "level", "backend", "files", "notes"} <= set(whole)
    mixed = run("call", "s/geo", "route", "--json-args", '{"stops": ["a"]}', "most=3", "--json").json
    assert mixed["arguments"] == {"stops": ["a"], "most": 3}


def test_a_command_gets_its_arguments(run: FlinkSkills) -> None:
    assert run("call", "s/declared", "count", "n=12").stdout == '{"n": 12}\n'
    assert run("call", "s/declared", "count", "n=1x").stdout == '{"n": "1x"}\n'


def test_inputs_and_limits_are_those_of_exec(run: FlinkSkills, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("a")
    assert json.loads(run("call", "s/geo", "inputs", "--input", "a.txt").stdout) == ["a.txt"]
    late = run("call", "s/geo", "loop", "--timeout", "4")
    assert (late.code, "the program ran longer than 4 s" in late.stdout) == (1, True)
    assert "limit wall_time is" in run("call", "s/geo", "distance", "start=a", "end=b", "--timeout", "9 h").stderr
    huge = run("call", "s/geo", "huge", "--limit", "output=64kb")
    assert (huge.code, "the result has 5000" in huge.stdout) == (1, True)


def test_an_exception_of_a_tool_is_a_result(run: FlinkSkills) -> None:
    said = run("call", "s/geo", "fails")
    assert (said.code, said.stdout, said.stderr) == (1, "fails failed: KeyError: 'Rome' (tools.py, line 32)\n", "")
    unfit = run("call", "s/geo", "route", "stops=[]", "unit=yd")
    assert (unfit.code, "unit: Input should be 'km' or 'mi'" in unfit.stdout) == (1, True)


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (("s/geo", "distanc"), 2, "unknown tool 'distanc' in skill geo: did you mean 'distance'?"),
        (("s/geo", "distance", "strat=Ulm"), 2, "unknown argument 'strat' in tool distance: did you mean 'start'?"),
        (("s/geo", "distance", "end=Bonn"), 2, "tool distance: missing arguments: start. Add start=…"),
        (("s/geo", "route", "stops=Ulm"), 2, 'stops=Ulm is not JSON, expected type array. Write the value as JSON'),
        (("s/geo", "route", "stops=[]", "fast=1"), 2, "fast=1 is integer, expected type boolean."),
        (("s/geo", "route", "stops=[NaN]"), 2, "stops=[NaN] is not JSON, expected type array"),
        (("s/geo", "distance", "Ulm"), 2, "expected KEY=VALUE, such as start=…, got 'Ulm'"),
        (("s/geo", "distance", "start=a", "start=b"), 2, "argument start is set twice"),
        (("s/geo", "distance", "start=a", "--json-args", '{"start": 1}'), 2, "argument start is set twice"),
        (("s/geo", "distance", "--json-args", "{"), 2, "--json-args is not valid JSON"),
        (("s/geo", "distance", "--json-args", "[]"), 2, "--json-args is array, expected object. Write an object"),
        (("s/geo", "distance", "--json-args", '{"strat": 1}'), 2, "did you mean 'start'?"),
        (("s/declared", "gone"), 2, "the tool 'gone' is left out"),
        (("s/plain", "f"), 2, "skill plain bundles no tools"),
        (("s/broken", "f"), 1, "tool f cannot be used: tools.py: SyntaxError"),
        (("s", "f"), 2, "s contains 4 skills. Select one, for example --skill broken"),
        (("s", "f", "--skill", "goe"), 2, "unknown skill 'goe': did you mean 'geo'?"),
        (("nowhere", "f"), 2, "nowhere: does not exist"),
        (("s/geo", "loop", "--limit", "memery=1mb"), 2, "did you mean 'memory'?"),
        (("s/geo", "loop", "--set", "skills.shell.enabled=false"), 2, "skills.shell.enabled is false"),
        (("s/geo", "loop", "--backend", "bwrp"), 2, "did you mean 'bwrap'?"),
    ],
)  # fmt: skip
def test_invalid_calls_are_rejected(words: tuple[str, ...], code: int, message: str, run: FlinkSkills) -> None:
    said = run("call", *words)
    assert (said.code, said.stdout) == (code, "")
    assert message in said.stderr


def test_a_machine_that_cannot_isolate_is_an_error(flink_skills: FlinkSkills, geo: Path) -> None:
    safe = ("--backend", "hygiene", "--set", "skills.shell.min-isolation=LANDLOCK")
    for words in (("tools", "s/geo"), ("call", "s/geo", "fails")):
        said = flink_skills(*words, *safe)
        assert (said.code, "LANDLOCK" in said.stderr) == (1, True)


def processes_with(word: str) -> list[psutil.Process]:
    found = []
    for process in psutil.process_iter():
        try:
            if process.cmdline()[:2] == ["sleep", word]:
                found.append(process)
        except (psutil.AccessDenied, psutil.NoSuchProcess):
            continue
    return found


def test_a_signal_ends_the_tool_and_what_it_started(geo: Path, tmp_path: Path) -> None:
    seconds = str(100_000 + uuid.uuid4().int % 100_000)
    sleeps = f"def nap():\n    import subprocess\n    subprocess.run(['sleep', '{seconds}'])\n"
    (geo / "tools.py").write_text(sleeps)
    with passable_folder() as folder:
        line, environment = command("call", geo, "nap", *ANY_MACHINE, cwd=tmp_path, TMPDIR=str(folder))
        process = subprocess.Popen(line, cwd=tmp_path, env=environment, stderr=subprocess.PIPE, text=True)
        wait_until(lambda: processes_with(seconds) or process.poll() is not None, "the process of the tool")
        process.send_signal(signal.SIGINT)
        _, stderr = process.communicate(timeout=60)
    assert (process.returncode, "SIGINT arrived before" in stderr) == (130, True)
    assert processes_with(seconds) == []
