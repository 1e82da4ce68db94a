"""Passages of prose in Python, Java and Markdown."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from checks.prose.files import package_of, prose_files, read_file
from checks.prose.java_files import read_java
from checks.prose.markdown_files import read_markdown
from checks.prose.passages import Passage
from checks.prose.python_files import read_python
from tests.checks.conftest import WriteTree

# In two parts, so that this file declares no exception.
ALLOW = "prose: " + "allow B07: it quotes a log"
PYTHON = f'''"""A module."""

LIMIT = 5
"""Maximum number of calls."""


class Tool:
    """A tool.

    It runs.
    """

    def run(self, n):
        """Run it."""
        # First line of the comment,
        # second line.

        x = {{"key": "two words"}}  # trailing # comment
        # noqa: E501
        raise ValueError(f"step {{n}} of " + "three has failed")

    def mark(self):
        # {ALLOW}
        return "# the value is no comment" % n


def test_tool_runs(): ...
'''
JAVA = f"""/** A pool of {{@link Worker}}s.
 *
 * <p>It starts workers. */
class Pool {{
  // Two lines
  // of a comment.
  String url = "http://host // not a comment"; // trailing
  char quote = '"';
  // {ALLOW}
  String text = "the worker has "
      + "crashed again";
  /* not documentation */
}}
"""
MARKDOWN = f"""---
name: tool
description: Runs tools.
---
# Run `tools`

A paragraph of
two lines.
- An item

<!-- {ALLOW} -->
| Symptom | Cause |
|---|---|
| slow | load |

<!-- A comment
of two lines -->
!!! note
    Text of a note.

```bash
# no heading
```
"""


def passages(read: Callable[[str], Iterator[Passage]], source: str) -> list[tuple[str, int, int, str]]:
    found = [(passage.kind, passage.line, passage.end, passage.text) for passage in read(source)]
    return sorted(found, key=lambda passage: passage[1])


def test_passages_of_python() -> None:
    assert passages(read_python, PYTHON) == [
        ("docstring", 1, 1, "A module."),
        ("docstring", 4, 4, "Maximum number of calls."),
        ("docstring", 8, 11, "A tool.\n\nIt runs."),
        ("function", 14, 14, "Run it."),
        ("comment", 15, 16, "First line of the comment,\nsecond line."),
        ("comment", 18, 18, "trailing # comment"),
        ("message", 20, 20, "step X of three has failed"),
        ("allowance", 23, 23, ALLOW),
        ("message", 24, 24, "# the value is no comment"),
        ("test-name", 27, 27, "test_tool_runs"),
    ]


def test_passages_of_java() -> None:
    assert passages(read_java, JAVA) == [
        ("docstring", 1, 3, "A pool of `X`s.\n\n<p>It starts workers."),
        ("comment", 5, 6, "Two lines\nof a comment."),
        ("message", 7, 7, "http://host // not a comment"),
        ("comment", 7, 7, "trailing"),
        ("allowance", 9, 9, ALLOW),
        ("message", 10, 11, "the worker has crashed again"),
    ]


def test_passages_of_markdown() -> None:
    assert passages(read_markdown, MARKDOWN) == [
        ("prose", 1, 4, "---\nname: tool\ndescription: Runs tools.\n---"),
        ("heading", 5, 5, "# Run `tools`"),
        ("prose", 7, 8, "A paragraph of\ntwo lines."),
        ("prose", 9, 9, "- An item"),
        ("allowance", 11, 11, ALLOW),
        ("header", 12, 12, "| Symptom | Cause |"),
        ("row", 14, 14, "| slow | load |"),
        ("prose", 18, 19, "!!! note\nText of a note."),
    ]


@pytest.mark.parametrize("comment", [ALLOW, f"{ALLOW}, and more"])
def test_exception_needs_a_reason(write_tree: WriteTree, comment: str) -> None:
    root = write_tree({"a.py": f"# {comment}\nx = 1  # prose: allow B07\n"})

    found = read_file(root, "a.py")

    assert [(allowance.line, allowance.rules) for allowance in found.allowances] == [(1, ("B07",)), (2, ())]


def test_exception_before_a_table_covers_its_rows(write_tree: WriteTree) -> None:
    found = read_file(write_tree({"a.md": MARKDOWN}), "a.md")

    covered = [passage.line for passage in found.passages if found.allowances[0].covers(passage)]

    assert covered == [12, 14]


def test_files_and_their_packages(write_tree: WriteTree) -> None:
    names = ["README.md", "flink_skills/cli/a.py", "flink_skills/lazy.py", "java-bridge/src/main/A.java", "tests/b.md"]
    others = ["docs/features.md", "setup.py", "tests/__pycache__/c.py", "site/page.md", "docs/rows.yaml"]

    found = prose_files(write_tree(dict.fromkeys([*names, *others], "")))

    assert found == names
    assert [package_of(name) for name in found] == ["docs", "cli", "flink_skills", "java", "tests"]
