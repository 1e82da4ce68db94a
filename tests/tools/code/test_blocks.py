"""Examines the internals of tools.skills.shell_tool on purpose."""

from __future__ import annotations

import time

import pytest

from flink_skills.tools.skills.shell_tool import CodeBlock, as_output, code_blocks

pytestmark = pytest.mark.row("J31")


@pytest.mark.parametrize(
    ("answer", "found"),
    [
        ("```python\nprint(1)\n```", [("python", "print(1)\n")]),
        ("a\n\n```tool_code\nx\ny\n```\nb\n   ```bash\nls\n   ```", [("python", "x\ny\n"), ("bash", "ls\n")]),
        ("```Python \r\nprint(1)\r\n```\r\n", [("python", "print(1)\n")]),
        ("``` sh\nls\n```", [("bash", "ls\n")]),
        ("````python\n```\nprint(1)\n```\n````", [("python", "```\nprint(1)\n```\n")]),
        ("```json\n{}\n```\n```\nls\n```\n```tool_output\n1\n```", []),
        ("```python\nprint(1)", []),
        ("```python\n \n```", []),
        ("text ```python\nprint(1)\n```", []),
        ("~~~markdown\n```python\nprint(1)\n```\n~~~", []),
        ("````text\n```python\nprint(1)\n```\n````", []),
        ("```python title=a\nprint(1)\n```", []),
        ("    ```python\nprint(1)\n    ```", []),
        ("`python`", []),
    ],
)
def test_only_closed_blocks_of_known_languages_are_code(answer: str, found: list[tuple[str, str]]) -> None:
    assert code_blocks(answer) == [CodeBlock(*block) for block in found]


def test_what_was_printed_cannot_end_its_block() -> None:
    assert as_output("a\n```\n````python\n") == "`````tool_output\na\n```\n````python\n`````"
    assert code_blocks(as_output("```python\nprint(1)\n```")) == []


def test_long_answers_are_read_in_one_pass() -> None:
    begun = time.process_time()
    assert code_blocks("```python " + " \t" * 500_000 + "x\n" + "```a\n" * 100_000) == []
    assert time.process_time() - begun < 20
