"""Faults of the tools that a skill brings are found without running any of its code."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from flink_skills.skill import CODES, AgentSkill, Diagnostic, load_folder
from flink_skills.tools.dynamic import OfferedTools, check_tools, tool_names_of

ADD = """\
def add(a: int, b: int = 0) -> int:
    "Add two numbers."
    return a + b
"""


def schema(*names: str, **parameters: Any) -> str:
    """A ``schema.json`` with an entry on two lines for each name."""
    given = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"], **parameters}
    entries = [f'{{"name": {json.dumps(name)},\n"parameters": {json.dumps(given)}}}' for name in names]
    return f'{{"tools": [\n{",".join(entries)}\n]}}'


def found(
    tools: str | None = None,
    declared: str | None = None,
    *,
    name: str = "geo",
    body: str = "How to.",
    offered: OfferedTools | None = None,
    strict: bool = False,
) -> list[Diagnostic]:
    files = {"tools.py": tools, "schema.json": declared}
    given = {path: text for path, text in files.items() if text is not None}
    return check_tools(AgentSkill(name, "Geography.", body, given), offered=offered, strict=strict)


def told(*given: Any, **named: Any) -> list[tuple[str, str, int]]:
    return [(one.code, one.severity, one.line) for one in found(*given, **named)]


def the_message(*given: Any, **named: Any) -> str:
    (one,) = found(*given, **named)
    return one.message


@pytest.mark.row("K10")
@pytest.mark.parametrize(
    ("tools", "declared"),
    [
        (None, None),
        (ADD, None),
        (ADD, schema("add")),
        (None, '[{"name": "count", "command": ["wc", "-l"]}]'),
        ("import math\n_x = 1\ndef add(a, **more): ...\n", schema("add", properties={"a": {}, "z": {}})),
        ("import functools\n@functools.cache\ndef add(): ...\n", schema("add")),
        ("from somewhere import add\n", schema("add")),
        ("from somewhere import *\n", schema("add")),
        ("for name in 'add', 'sub':\n    globals()[name] = print\n", schema("add")),
        ("try:\n    from fast import add\nexcept ImportError:\n    def add(): ...\n", schema("add")),
        ("class add: ...\n", schema("add")),
        ("add = lambda a: a\n", schema("add")),
        ("def add(a): ...\n", '[{"name": "add", "description": "Adds."}]'),
        ("def f(a): ...\nf2 = f\n", None),
    ],
)
def test_matching_files_have_no_fault(tools: str | None, declared: str | None) -> None:
    assert found(tools, declared, strict=True) == []


@pytest.mark.row("K10")
@pytest.mark.parametrize(
    ("tools", "declared", "code", "severity", "line", "says"),
    [
        (None, '{"tools": [\n{"name": ]}', "T01", "error", 2, "schema.json cannot be read"),
        (None, "3", "T01", "error", 0, "schema.json does not contain a list of tools"),
        (None, '{"tools": NaN}', "T01", "error", 0, "is not JSON"),
        ("def add(:\n", None, "T02", "error", 1, "tools.py, line 1: invalid syntax"),
        ("x = 1\nreturn x\n", None, "T02", "error", 2, "'return' outside function"),
        ("def f(a, a): ...\n", None, "T02", "error", 1, "duplicate argument 'a'"),
        ("1" + "+1" * 30_000, None, "T02", "error", 0, "nested too deep"),
        ("def f(): ...\n\0", None, "T02", "error", 0, "null bytes"),
        (ADD, schema("add", type="string"), "T03", "error", 2, "of type 'string', not an object"),
        (ADD, schema("add", properties={"a b": {}}), "T03", "error", 2, "the name of the argument 'a b'"),
        (None, '[{"name": "x y", "command": ["a"]}]', "T03", "error", 1, "the tool 'x y' is left out"),
        (None, '[{"name": "x",\n "command": "wc"}]', "T03", "error", 1, "is not a list of strings"),
        ("def grün(): ...\n", None, "T03", "error", 1, "the tool 'grün' is left out"),
        (ADD, schema("add", "sub"), "T04", "error", 3, "tools.py has no public function 'sub'"),
        ("def add_up(a): ...\n", schema("add_up", "add_u"), "T04", "error", 3, "did you mean 'add_up'?"),
        (None, schema("add"), "T04", "error", 2, "there is no tools.py with the function"),
        (ADD + "def sub(a): ...\n", schema("add"), "T05", "warning", 4, "defines 'sub', which schema.json does not"),
        (ADD, schema("add", properties={"a": {"type": "whole"}}), "T07", "warning", 2, "'whole' is not valid"),
        (ADD, schema("add", required=["a", "c"]), "T07", "warning", 2, "'required' names 'c'"),
        (ADD, '[{"name": "add", "parameters": [1]}]', "T07", "warning", 1, "are not an object"),
        (ADD, schema("add", "add"), "T08", "warning", 3, "the tool 'add' is declared twice"),
        (ADD + ADD, None, "T08", "warning", 4, "defines 'add' twice"),
        (ADD + "TOOLS = [add, 'add']\n", None, "T08", "warning", 1, "duplicate tool 'add'"),
        ("def geo(a): ...\n", None, "T11", "warning", 1, "'geo' is named like its skill"),
    ],
)
def test_faults_have_a_code_and_a_line(
    tools: str | None, declared: str | None, code: str, severity: str, line: int, says: str
) -> None:
    assert told(tools, declared) == [(code, severity, line)]
    assert says in the_message(tools, declared)


@pytest.mark.row("K10")
def test_numbers_of_tools() -> None:
    def several(number: int) -> str:
        return "".join(f"def f{n}(): ...\n" for n in range(number))

    assert told(several(8)) == []
    assert told(several(9)) == [("T09", "info", 0)]
    assert told(several(64)) == [("T09", "info", 0)]
    assert told(several(65)) == [("T10", "error", 0)]
    assert "T10" in [code for code, *_ in told(several(65), schema(*(f"f{n}" for n in range(65)), required=[]))]
    # Only running the file determines the tools.
    assert told(several(65) + "TOOLS = [f0]\nTOOLS.append(f1)\n") == []
    assert told(several(65) + "TOOLS = [f0]\n") == []


@pytest.mark.row("K10")
def test_paths_are_those_of_the_files(tmp_path: Path) -> None:
    (tmp_path / "geo").mkdir()
    (tmp_path / "geo/SKILL.md").write_text("---\nname: geo\ndescription: Geography.\n---\nTools:\n- far\n")
    (tmp_path / "geo/schema.json").write_text(schema("add"))
    (tmp_path / "geo/tools.py").write_text("def sub(): ...\n")
    skill = load_folder(str(tmp_path / "geo")).skill
    assert skill is not None
    places = {one.code: (one.path, one.line) for one in check_tools(skill, offered=OfferedTools())}
    folder = tmp_path / "geo"
    assert places == {
        "T04": (f"{folder}/schema.json", 2),
        "T05": (f"{folder}/tools.py", 1),
        "T12": (f"{folder}/SKILL.md", 6),
    }


SECTION = "Tools:\n- add\n- get_wether\n- load_skill"


@pytest.mark.row("K10")
@pytest.mark.parametrize(
    ("offered", "severity", "says"),
    [
        (OfferedTools(), "info", "which the skill does not bring"),
        (OfferedTools({"get_weather", "load_skill"}, "shop"), "warning", "neither the skill nor agent shop has"),
        (OfferedTools({"load_skill"}, "shop", ("stock",)), "info", "unless a tool set of the agent (stock) has it"),
    ],
)
def test_names_that_neither_the_skill_nor_the_agent_has(offered: OfferedTools, severity: str, says: str) -> None:
    (one,) = found(ADD, body=SECTION, offered=offered)
    assert (one.code, one.severity) == ("T12", severity)
    assert "names 'get_wether', which" in one.message
    assert says in one.message
    assert ("'get_weather'" in one.fix) is ("get_weather" in offered.names)


@pytest.mark.row("K10")
def test_names_are_not_judged_where_the_tools_are_unknown() -> None:
    assert found("TOOLS = make()\n", body=SECTION, offered=OfferedTools()) == []
    assert [one.code for one in found("def f(:", body=SECTION, offered=OfferedTools())] == ["T02"]
    assert found(ADD, body=SECTION) == []


@pytest.mark.row("K10")
def test_code_of_a_skill_is_not_run(tmp_path: Path) -> None:
    harm = tmp_path / "harm"
    code = f"open({str(harm)!r}, 'w')\ndef add(a=open({str(harm)!r}, 'w')): ...\nTOOLS = [add]\nwhile True: pass\n"
    assert found(code, body=SECTION, offered=OfferedTools())[0].code == "T12"
    assert tool_names_of(AgentSkill("geo", "G.", "H.", {"tools.py": code})) == ["add"]
    assert not harm.exists()


@pytest.mark.row("K10")
@pytest.mark.parametrize(
    "code",
    [
        "-" * 60_000 + "1",
        "(" * 60_000,
        "if a: 0\n" + "elif a: 0\n" * 6_000,
        "a" + "()" * 30_000,
        "\n".join([*(f"{' ' * n}try: pass\n{' ' * n}finally:" for n in range(19)), " " * 20 + "pass"]),
        "# coding: punycode\n" + "a" * 60_000,
        "# coding: none-such\n",
        "def f(): ...\n" * 5_000,
        "def " + "f" * 60_000 + "(): ...",
        "\x0c\r\n\u202e",
    ],
    ids=lambda code: code[:12].encode("ascii", "backslashreplace").decode(),
)
def test_hostile_code_ends_in_diagnostics_of_readable_size(code: str) -> None:
    messages = [one.message for one in found(code)]
    assert all(len(message) < 400 and "\u202e" not in message for message in messages)


@pytest.mark.row("K10")
def test_unreadable_files_are_left_to_the_inspection_of_the_skill(tmp_path: Path) -> None:
    (tmp_path / "geo").mkdir()
    (tmp_path / "geo/SKILL.md").write_text("---\nname: geo\ndescription: Geography.\n---\n")
    (tmp_path / "geo/tools.py").write_text("def f(:\n")
    skill = load_folder(str(tmp_path / "geo")).skill
    assert skill is not None
    assert skill.digest
    # A file that changes after the digest is an error of the files, not of the tools.
    (tmp_path / "geo/tools.py").write_text("def other(:\n")
    assert check_tools(skill, offered=OfferedTools()) == []


@pytest.mark.row("K10")
def test_hostile_schemas_end_in_diagnostics() -> None:
    deep: Any = {}
    for _ in range(200):
        deep = {"properties": {"a": deep}}
    for declared in (
        "[" * 100_000,
        json.dumps([{"name": "x", "command": ["a"], "parameters": deep}]),
        json.dumps([{"name": "<b>\u202e" * 100}] * 64),
        json.dumps([{"name": "x", "command": ["a"], "parameters": {"$schema": 3, "$ref": "http://x/y"}}]),
        " " * 300_000,
    ):
        said = found("def x(): ...", declared)
        assert said
        assert all(one.code in CODES and len(one.message) < 500 and "\u202e" not in one.message for one in said)


MAX_SOURCE_BYTES = 65_536
# The slowest file takes 0.7 s. Python's parser stops the event loop for a third of this time.
_MAX_SECONDS = 2.0
_DEADLINE = 240

# A separate process, because a crash of the parser ends it. A thread as in a worker, because its stack is smaller.
_PARSE = """
import json, sys, threading, time
from flink_skills.skill import AgentSkill
from flink_skills.tools.dynamic import check_tools, tool_names_of

def parse(text):
    skill = AgentSkill("geo", "Geography.", "How to.", {"tools.py": text})
    skill.digest
    began = time.thread_time()
    problems = check_tools(skill)
    seconds = time.thread_time() - began
    if any(problem.code == "T02" for problem in problems):
        return problems[0].message, seconds
    return "read" if tool_names_of(skill) else "skipped", seconds

def parse_all():
    for name, text in json.load(sys.stdin).items():
        print(json.dumps([name, *parse(text)]), flush=True)

thread = threading.Thread(target=parse_all)
thread.start()
thread.join()
"""


TOOL = "def tool(): ...\n"


def filled(unit: str, before: str = "", after: str = "") -> str:
    """Return a file of the maximum size with a tool, and many times ``unit``."""
    before = TOOL + before
    count = (MAX_SOURCE_BYTES - len(before) - len(after)) // len(unit)
    return (before + unit * count + after).ljust(MAX_SOURCE_BYTES, "\n")


def nested(*lines: str) -> str:
    """Return blocks with ``lines`` as their headers, nested as deep as Python allows."""
    blocks = [f"{' ' * depth}{line}\n" for depth in range(95) for line in lines]
    return TOOL + "".join(blocks) + " " * 95 + "pass\n"


HOSTILE = {
    "expressions": (filled("x;"), "read"),
    "lines": (filled("x\n"), "read"),
    "lists in lists": (filled("[" * 190 + "]" * 190 + "\n"), "read"),
    "functions": (filled("def f(a): 0\n"), "read"),
    "context managers": (filled("x,", "with (", "x): 0\n"), "read"),
    "alternatives of a pattern": (filled("1|", "match x:\n case ", "1: 0\n"), "read"),
    "finally in finally": (nested("try: pass", "finally:"), "read"),
    "a missing comma at the end": (filled("x,", "[", "y z]"), "invalid syntax"),
    "f-strings": (filled("f'{x}';"), "skipped"),
    "a long f-string": (filled("{x}", "x = f'", "'"), "skipped"),
    "open parentheses": ("(" * MAX_SOURCE_BYTES, "too many nested parentheses"),
    "branches": (filled("elif x: 0\n", "if x: 0\n"), "nested too deeply"),
    "signs": (filled("-", "x = ", "1"), "nested too deeply"),
    "calls of calls": (filled("()", "x"), "nested too deeply"),
    "a sum": (filled("+1", "1"), "nested too deeply"),
    "a long number": (filled("9", "x = "), "digits"),
    "a larger file": (filled("x\n") + "\n", "skipped"),
}


@pytest.fixture(scope="module")
def outcomes() -> dict[str, tuple[str, float]]:
    """Return the outcome and the CPU seconds of each file, up to the first that crashes the process."""
    texts = json.dumps({name: text for name, (text, _) in HOSTILE.items()})
    done = subprocess.run(
        [sys.executable, "-c", _PARSE], input=texts, stdout=subprocess.PIPE, text=True, timeout=_DEADLINE, check=False
    )
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    return {name: (outcome, seconds) for name, outcome, seconds in lines}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_file_is_read_within_the_bound(name: str, outcomes: dict[str, tuple[str, float]]) -> None:
    assert name in outcomes, "the process crashed"
    outcome, seconds = outcomes[name]
    assert HOSTILE[name][1] in outcome
    assert seconds < _MAX_SECONDS


def names(text: str) -> list[str]:
    return tool_names_of(AgentSkill("geo", "Geography.", "How to.", {"tools.py": text}))


def test_the_number_of_braces_is_limited() -> None:
    assert names(TOOL + "{};" * 4_000) == ["tool"]
    assert names(TOOL + "{};" * 4_001) == []


def test_the_size_is_limited() -> None:
    assert names(TOOL.ljust(MAX_SOURCE_BYTES, "\n")) == ["tool"]
    assert names(TOOL.ljust(MAX_SOURCE_BYTES + 1, "\n")) == []
