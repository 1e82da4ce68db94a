"""A hostile ``tools.py`` is read within a bound of CPU time, or is not read."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from flink_skills.skill import AgentSkill
from flink_skills.tools.dynamic import tool_names_of

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
