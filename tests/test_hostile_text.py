"""What reads the text of a model, a skill, a program or a server comes to an end, whatever stands in it.

Each function gets long texts in a process of its own: a pattern that tries its parts in too many ways keeps the whole
interpreter busy, and neither a thread nor a signal ends it.

Examines the internals of agents, manager, skill on purpose.
"""

from __future__ import annotations

import contextlib
import gc
import multiprocessing
import signal
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from flink_skills.agents import AnswerType
from flink_skills.artifacts import ArtifactError, check_name
from flink_skills.endpoint import redact_text
from flink_skills.errors import ExecutionError
from flink_skills.manager import MenuEntry, parse_menu, render_menu
from flink_skills.manager.activation import safe
from flink_skills.models import Message, ModelRequest, OfflineModel, ToolMessage, UserMessage, named_in_notice
from flink_skills.models.actions import all_actions
from flink_skills.models.json import render_system
from flink_skills.models.native import calls_in_text
from flink_skills.models.offline_rules import features, first_command, first_paragraph
from flink_skills.skill import file_references, find_credential, split_body, without_code
from flink_skills.skill.frontmatter import starts_with_front_matter
from flink_skills.skill.repair import repair, text_in_quotes
from flink_skills.skill.skill_body import first_heading, tools_section
from flink_skills.skill.text import clean, clean_line
from flink_skills.skill.yaml_values import YamlProblemError
from flink_skills.tools import (
    Tool,
    ToolContext,
    ToolResult,
    ToolSet,
    ToolSpec,
    parse_docstring,
    read_docstring,
)
from flink_skills.tools.commands import HiddenValues, split_words
from flink_skills.tools.runs import ShownText, find_interaction

_LENGTH = 200_000
# Seconds of processor time for a text of this length.
_SECONDS = 20.0
_DEADLINE = 240.0

_BEFORE = ("a", "a\n", "```", '"')
_BLANKS = (" ", "\n")
_REPEATED = (
    *(
        " ",
        "\n",
        "\t",
        " \n",
        "a",
        "A",
        "`",
        "~",
        "```",
        "```json\n",
        "```a\n",
        "~~~a\n",
        "``` ",
        "{",
        "[",
        "(",
        "<",
        '"',
    ),
    *(
        "'",
        "\\",
        "- a\n",
        "* ",
        "> ",
        "#",
        "# ",
        "-",
        "[a](",
        "[a]",
        "a ",
        "a:\n",
        "a: ",
        "a, ",
        "a=",
        "a/",
        "::",
        "//",
    ),
    *(
        "<tool_call>",
        '<tool_call>{"name": "a"}',
        '{"name": "a"}\n',
        '{"a":',
        "<skill name=",
        "</",
        "\x1b",
        "\x1b[",
        "\x1b]",
    ),
    *("\r", "<available_skills>\n", "exit code:", "stdout:\n", "enter ", "[y/", "1. a\n", "$", "\u3042", "http://a:b"),
)


class Deaf(Tool):
    """Takes what it is given."""

    @property
    def spec(self) -> Any:
        return ToolSpec("deaf", "Does nothing.", {"type": "object", "properties": {}})

    async def call(self, arguments: Any, context: ToolContext) -> ToolResult:
        return ToolResult("done")


def hostile(length: int) -> Iterator[str]:
    for repeated in _REPEATED:
        for before in ("", *_BEFORE) if repeated in _BLANKS else ("",):
            yield before + repeated * (length // len(repeated)) + "x"


def run(coroutine: Any) -> None:
    with contextlib.suppress(StopIteration):
        while True:
            coroutine.send(None)


def arguments(text: str) -> None:
    run(ToolSet([Deaf()]).call("deaf", text, ToolContext()))


def words(text: str) -> None:
    with contextlib.suppress(ExecutionError):
        split_words(text, {})


def file_name(text: str) -> None:
    with contextlib.suppress(ArtifactError):
        check_name(text[:1000])


def offline(text: str) -> None:
    messages: list[Message] = [UserMessage("go"), ToolMessage("1", "execute_shell_command", text)]
    run(OfflineModel().request(ModelRequest("", messages)))


def shown(text: str) -> None:
    stream = ShownText(HiddenValues())
    stream.add(text.encode())
    stream.end()


def repaired(text: str) -> None:
    with contextlib.suppress(YamlProblemError):
        repair(text, 8, lambda *note: None)


def system_text(text: str) -> None:
    parameters = {"type": "object", "properties": {"a": {"type": "string", "description": text}}}
    render_system("", all_actions(ModelRequest("", (), [ToolSpec("a", text, parameters)])))


FUNCTIONS: dict[str, Callable[[str], object]] = {
    "calls of a model": lambda text: calls_in_text(text, ["a"]),
    "arguments of a call": arguments,
    "answer": AnswerType.of(dict[str, int]).read,
    "words of a command": words,
    "first command": first_command,
    "first paragraph": first_paragraph,
    "matching": features,
    "offline model": offline,
    "names of files": file_name,
    "system text": system_text,
    "notice": lambda text: named_in_notice(UserMessage(f"<skills_changed>{text}</skills_changed>")),
    "menu read": parse_menu,
    "menu written": lambda text: render_menu([MenuEntry(text, text, text)], 1000),
    "tags": safe,
    "credentials": lambda text: find_credential("a.txt", text.encode()),
    "code": without_code,
    "references": lambda text: list(file_references(text)),
    "tools section": lambda text: tools_section(f"Tools:\n{text}"),
    "tool of a tools section": lambda text: tools_section(f"Tools:\n- {text}"),
    "heading": first_heading,
    "quoted text": lambda text: text_in_quotes(f"'{text}", []),
    "repaired front matter": repaired,
    "body": lambda text: split_body(f"---\r\n{text}".encode()),
    "front matter": lambda text: starts_with_front_matter(text.encode()),
    "clean text": clean,
    "clean line": clean_line,
    "docstring": parse_docstring,
    "description of a docstring": lambda text: read_docstring(f"Add:\n{text}"),
    "docstring with arguments": lambda text: parse_docstring(f"Add.\n\nArgs:\n    {text}"),
    "docstring of numpy": lambda text: parse_docstring(f"Add.\n\nParameters\n---\n{text}"),
    "docstring of reST": lambda text: parse_docstring(f"Add.\n\n:param {text}"),
    "interaction": find_interaction,
    "shown text": shown,
    "redaction": redact_text,
}


def read_in_time(function: Callable[[str], object], *texts: str, seconds: float = _SECONDS) -> bool:
    """Return whether ``function`` ends for each string, without an error and within the seconds of processor time."""
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe(duplex=False)

    def read() -> None:
        # A collection would walk all objects of the tests before, and copy their pages.
        gc.freeze()
        for text in texts:
            signal.setitimer(signal.ITIMER_PROF, seconds)  # the signal ends the process
            function(text)
            theirs.send(True)

    process = context.Process(target=read)
    process.start()
    theirs.close()
    try:
        return all(ours.poll(_DEADLINE) and ours.recv() for _ in texts)
    except EOFError:  # it has failed
        return False
    finally:
        process.kill()
        process.join()
        ours.close()


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("part", [4, pytest.param(1, marks=pytest.mark.nightly)])
def test_a_long_text_is_read_in_time(name: str, part: int) -> None:
    # For a quarter of the text, quadratic work takes a sixteenth of the time.
    assert read_in_time(FUNCTIONS[name], *hostile(_LENGTH // part), seconds=_SECONDS / part**2)


# What made each of the patterns that stood there before endless.
@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("calls of a model", "```" + " " * _LENGTH + "x"),
        ("calls of a model", "<tool_call>" * (_LENGTH // 10)),
        ("calls of a model", '<tool_call>{"name": "a"}' * 20_000),
        ("calls of a model", "{}" * (_LENGTH // 2)),
        ("calls of a model", '{"tool": "a"}' * 50_000),
        ("calls of a model", '{"function":' * 900 + "{}" + "}" * 900),
        ("arguments of a call", "```json " + " " * _LENGTH + "x"),
        ("answer", "```" + "\n" * _LENGTH + "x"),
        ("words of a command", "a" + " " * _LENGTH + "b"),
        ("words of a command", '"' + "a" * _LENGTH + '"'),
        ("words of a command", "\\a" * (_LENGTH // 2)),
        ("first command", "".join("`" * (length + 3) + "\n" for length in range(600, 0, -1))),
        ("first command", "```" + "a" * _LENGTH + "`\n```"),
        ("first command", "~" * _LENGTH + "`\n~~~"),
        ("offline model", "\n" * _LENGTH),
        ("menu read", "<available_skills>\n" * (_LENGTH // 10)),
        ("docstring with arguments", "a" + " " * _LENGTH + "x"),
        ("docstring of reST", " " * _LENGTH + "x"),
        ("docstring of numpy", ", ".join(f"a{n}" for n in range(20_000)) + "\n  b" * 20_000),
        ("tags", "<" + " " * _LENGTH),
        ("credentials", "-----BEGIN RSA PRIVATE KEY-----" + "Comment:" * (_LENGTH // 8)),
        ("redaction", "a" * _LENGTH),
        ("redaction", "a://" + "::" * _LENGTH),
    ],
)
def test_texts_that_once_took_for_ever(name: str, text: str) -> None:
    assert read_in_time(FUNCTIONS[name], text)


def test_a_function_that_does_not_end_is_noticed() -> None:
    def endless(text: str) -> None:
        while True:
            pass

    def failing(text: str) -> None:
        raise SystemExit(1)

    assert not read_in_time(endless, "a", seconds=0.2)
    assert not read_in_time(failing, "a")
    assert read_in_time(len, "a", "b")
