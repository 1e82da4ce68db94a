"""``flink-skills exec --tools`` and ``--tool``: the bundled tools of a skill, listed and called as in a job."""

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
GEO = ("--source", "s/geo")

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
            return flink_skills("exec", *ANY_MACHINE, *words)

        yield call


def test_tools_are_listed_as_models_are_told_of_them(run: FlinkSkills) -> None:
    said = run("--source", "s/geo", "--tools")
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
    data = run("--source", "s", "--skill", "geo", "--tools", "--json").json
    assert (data["skill"], data["problems"], data["error"]) == ("geo", [], None)
    assert [(tool["name"], tool["from"]) for tool in data["tools"]][:2] == [
        ("distance", "tools.py:5"),
        ("route", "tools.py:14"),
    ]
    assert data["tools"][0]["parameters"]["required"] == ["start", "end"]


def test_tools_of_a_schema_and_a_skill_without_any(run: FlinkSkills) -> None:
    said = run("--source", "s/declared", "--tools")
    assert said.stdout.startswith("declared: 1 tool\n\ncount  (schema.json:2, command cat)\n  Count.\n")
    assert (said.code, "the tool 'gone' is left out" in said.stderr) == (1, True)
    plain = run("--source", "s/plain", "--tools")
    assert (plain.code, plain.stdout) == (
        0,
        "plain: 0 tools. The skill has no tools.py and no schema.json with tools.\n",
    )
    broken = run("--source", "s/broken", "--tools")
    assert (broken.code, broken.stdout) == (1, "broken: 0 tools\n")
    assert "skill broken: tools.py: SyntaxError" in broken.stderr


def test_a_call_prints_what_a_model_reads(run: FlinkSkills) -> None:
    said = run(*GEO, "--tool", "distance", "start=Ulm", "end=Bonn", "factor=2")
    assert (said.code, said.stdout, said.stderr) == (0, "14\n", "")
    noted = run(*GEO, "--tool", "note", "text=one", "day=2", "where=here")
    assert noted.stdout == "grün \x1b[31mone{'day': 2, 'where': 'here'}\n\nprinted:\nnoted\n"
    assert (noted.code, noted.stderr) == (0, "file out/note.txt  3 B\n")
    whole = run(*GEO, "--json", "--tool", "route", 'stops=["a", "b"]', "fast=false").json
    assert whole["value"] == {"stops": ["a", "b"], "fast": False, "unit": "km", "most": None}
    assert json.loads(whole["content"]) == whole["value"]
    assert whole["arguments"] == {"stops": ["a", "b"], "fast": False}
    assert (whole["skill"], whole["tool"], whole["is_error"], whole["error"]) == ("geo", "route", False, None)
    assert {"duration_ms", "level", "backend", "files", "notes"} <= set(whole)
    mixed = run(*GEO, "--json", "--json-args", '{"stops": ["a"]}', "--tool", "route", "most=3").json
    assert mixed["arguments"] == {"stops": ["a"], "most": 3}


def test_a_command_gets_its_arguments(run: FlinkSkills) -> None:
    assert run("--source", "s/declared", "--tool", "count", "n=12").stdout == '{"n": 12}\n'
    assert run("--source", "s/declared", "--tool", "count", "n=1x").stdout == '{"n": "1x"}\n'


def test_inputs_and_limits_are_those_of_exec(run: FlinkSkills, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("a")
    assert json.loads(run(*GEO, "--input", "a.txt", "--tool", "inputs").stdout) == ["a.txt"]
    late = run(*GEO, "--timeout", "5", "--tool", "loop")
    assert (late.code, "the program ran longer than 5 s" in late.stdout) == (1, True)
    assert "limit wall_time is" in run(*GEO, "--timeout", "9 h", "--tool", "distance", "start=a", "end=b").stderr
    huge = run(*GEO, "--limit", "output=64kb", "--tool", "huge")
    assert (huge.code, "the result has 5000" in huge.stdout) == (1, True)


def test_an_exception_of_a_tool_is_a_result(run: FlinkSkills) -> None:
    said = run(*GEO, "--tool", "fails")
    assert (said.code, said.stdout, said.stderr) == (1, "fails failed: KeyError: 'Rome' (tools.py, line 32)\n", "")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((*GEO, "--tool", "distanc"), "unknown tool 'distanc' in skill geo: did you mean 'distance'?"),
        ((*GEO, "--tool", "distance", "strat=Ulm"), "strat is unknown: did you mean start?"),
        ((*GEO, "--tool", "distance", "end=Bonn"), "start is missing"),
        ((*GEO, "--tool", "route", "stops=Ulm"), 'stops must be an array (given: "Ulm")'),
        ((*GEO, "--tool", "route", "stops=[]", "fast=[]"), "fast must be true or false (given: [])"),
        ((*GEO, "--tool", "route", "stops=[]", "unit=yd"), 'unit must be one of "km", "mi"'),
        ((*GEO, "--tool", "distance", "Ulm"), "expected KEY=VALUE, such as start=…, got 'Ulm'"),
        ((*GEO, "--tool", "distance", "start=a", "start=b"), "argument start is set twice"),
        ((*GEO, "--json-args", '{"start": 1}', "--tool", "distance", "start=a"), "argument start is set twice"),
        ((*GEO, "--json-args", "{", "--tool", "distance"), "--json-args is not valid JSON"),
        ((*GEO, "--json-args", "[]", "--tool", "distance"), "--json-args is not a JSON object. Write an object"),
        ((*GEO, "--json-args", '{"strat": 1}', "--tool", "distance"), "did you mean start?"),
        (("--source", "s/declared", "--tool", "gone"), "the tool 'gone' is left out"),
        (("--source", "s/plain", "--tool", "f"), "skill plain bundles no tools"),
        (("--source", "s", "--tool", "f"), "s contains 4 skills. Select one, for example --skill broken"),
        (("--source", "s", "--skill", "goe", "--tool", "f"), "unknown skill 'goe': did you mean 'geo'?"),
        (("--source", "nowhere", "--tool", "f"), "nowhere: does not exist"),
        ((*GEO, "--limit", "memery=1mb", "--tool", "loop"), "did you mean 'memory'?"),
        ((*GEO, "--set", "skills.shell.enabled=false", "--tool", "loop"), "skills.shell.enabled is false"),
        ((*GEO, "--backend", "bwrp", "--tool", "loop"), "did you mean 'bwrap'?"),
        (("--tool", "loop"), "--tool requires --skills SOURCE"),
        (("--tools",), "--tools requires --skills SOURCE"),
        ((*GEO, "--tools", "id"), "--tools cannot be combined with --tool or a command"),
        ((*GEO, "--stdin", "-", "--tools"), "--stdin cannot be combined with --tool or --tools"),
        (("--json-args", "{}", "--", "id"), "--json-args requires --tool NAME"),
    ],
)
def test_invalid_calls_are_rejected(words: tuple[str, ...], message: str, run: FlinkSkills) -> None:
    said = run(*words)
    assert (said.code, said.stdout) == (2, "")
    assert message in said.stderr


def test_a_skill_whose_tools_cannot_be_loaded_has_no_tool(run: FlinkSkills) -> None:
    said = run("--source", "s/broken", "--tool", "f")
    assert (said.code, said.stdout) == (1, "")
    assert "tool f cannot be used: tools.py: SyntaxError" in said.stderr


@pytest.mark.parametrize("name", ["call", "tools"])
def test_removed_commands_name_the_form_of_exec(name: str, flink_skills: FlinkSkills) -> None:
    said = flink_skills(name, "s/geo", "distance", "start=Ulm")
    assert (said.code, said.stdout) == (2, "")
    assert said.stderr.startswith(f"flink-skills: flink-skills {name} does not exist: exec runs the tools of a skill.")
    assert "flink-skills exec --skills SKILL --tool NAME KEY=VALUE" in said.stderr


def test_a_machine_that_cannot_isolate_is_an_error(flink_skills: FlinkSkills, geo: Path) -> None:
    safe = ("--backend", "hygiene", "--set", "skills.shell.min-isolation=LANDLOCK")
    for words in (("--tools",), ("--tool", "fails")):
        said = flink_skills("exec", *GEO, *safe, *words)
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
        line, environment = command(
            "exec", *ANY_MACHINE, "--source", geo, "--tool", "nap", cwd=tmp_path, TMPDIR=str(folder)
        )
        process = subprocess.Popen(line, cwd=tmp_path, env=environment, stderr=subprocess.PIPE, text=True)
        wait_until(lambda: processes_with(seconds) or process.poll() is not None, "the process of the tool")
        process.send_signal(signal.SIGINT)
        _, stderr = process.communicate(timeout=60)
    assert (process.returncode, "SIGINT arrived before" in stderr) == (130, True)
    assert processes_with(seconds) == []
