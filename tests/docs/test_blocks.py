"""Each block of code on a page runs, or its page says why not; each block that prints shows its output."""

from __future__ import annotations

import ast
import json
import re

import pytest

from tests.docs.pages import ROOT, Fence, all_pages, blocks_of, fences_of, name_of

CODE = {"python", "bash", "sh", "console", "shell"}
MARK = re.compile(r"^<!-- (?P<kind>run|file|output|not run)(?:: (?P<argument>[^>]*))? -->$")
#: Why a block is not run, in the words of its mark. Another reason needs a line here.
REASONS = {
    "needs a Kubernetes cluster",
    "needs a model server",
    "needs a package index",
    "needs a package of yours",
    "needs a tracing backend",
    "needs an object store of yours",
    "needs Docker",
    "needs the savepoint of a job",
    "needs the events of a job",
    "needs Flink's own command line",
    "starts a server that stays",
}
#: Requirements of blocks that only run these programs. Such a block has no mark.
PROGRAMS = {
    ".": "the environment of the reader",
    "docker": "Docker",
    "git": "a remote repository",
    "helm": "a cluster",
    "kubectl": "a cluster",
    "make": "the checkout that runs these tests",
    "mvn": "the checkout that runs these tests",
    "pip": "a package index",
    "python3 -m venv": "a package index",
}
_NO_COMMAND = re.compile(r"^(#.*|\s.*|)$")


def reason_not_to_run(fence: Fence) -> str | None:
    """Return the reason why the block is not run. Return None for one that must run."""
    if (mark := MARK.match(fence.above)) and mark["kind"] == "not run":
        assert mark["argument"] in REASONS, (
            f"{mark['argument']!r} is not one of the reasons in tests/docs/test_blocks.py"
        )
        return mark["argument"]
    # A line that goes on belongs to the command above it.
    lines = re.sub(r"\\\n", " ", fence.text).split("\n")
    commands = [line for line in lines if not _NO_COMMAND.match(line)]

    def need_of(line: str) -> str:
        return next((need for program, need in PROGRAMS.items() if line.startswith(f"{program} ")), "")

    needs = {need_of(line) for line in commands}
    return " and ".join(sorted(needs)) if needs and "" not in needs else None


@pytest.mark.parametrize("name", [name_of(page) for page in all_pages()])
def test_every_block_of_code_is_run_or_says_why_not(name: str) -> None:
    for fence in fences_of(ROOT / name):
        mark = MARK.match(fence.above)
        if fence.language in CODE and not (mark and mark["kind"] != "not run"):
            said = reason_not_to_run(fence)
            assert said, f"{name}:{fence.line}: mark it with <!-- run --> or <!-- not run: REASON -->\n{fence.text}"


@pytest.mark.parametrize("name", [name_of(page) for page in all_pages()])
def test_json_is_json(name: str) -> None:
    for fence in fences_of(ROOT / name):
        if fence.language == "json":
            try:
                json.loads(fence.text)
            except ValueError:  # a record on each line
                for line in filter(None, fence.text.split("\n")):
                    json.loads(line)


def test_reasons_are_used() -> None:
    given = {
        mark["argument"]
        for page in all_pages()
        for fence in fences_of(page)
        if (mark := MARK.match(fence.above)) and mark["kind"] == "not run"
    }
    assert REASONS - given == set(), "remove what no page needs"


#: Pages with a block whose output depends on the number of CPUs.
ANY_OUTPUT = {"README.md"}


def prints(source: str) -> bool:
    calls = [node.func for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call)]
    return any(getattr(call, "id", None) == "print" or getattr(call, "attr", None) == "print" for call in calls)


@pytest.mark.parametrize("name", [name_of(page) for page in all_pages() if name_of(page) not in ANY_OUTPUT])
def test_a_block_that_prints_shows_its_output(name: str) -> None:
    for block in blocks_of(ROOT / name):
        if block.kind == "run" and block.argument in ("", "flink") and block.language == "python":
            assert block.output is not None or not prints(block.text), f"{name}: add <!-- output --> to\n{block.text}"
