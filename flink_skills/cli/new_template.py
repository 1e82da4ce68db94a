"""Template files of ``flink-skills new``. Placeholders such as ``$name`` are replaced."""

from __future__ import annotations

from collections.abc import Collection
from string import Template

__all__ = ["render_template"]

_HEAD = """\
---
# Before a model loads the skill, it sees only the name and the description.
name: $name
# State what the skill does and when to use it, with terms from its events. Models select skills by description.
description: Describes events about $words. Use for each event that mentions $words.
# Optional fields: compatibility, license, metadata (a map of strings to strings).
compatibility: $compatibility
---

# $title

"""

_PLAIN = """\
Summarize the event in one sentence. Then list its fields and their values.
"""

_SCRIPT_STEP = """\
## Run the script

Pass the event on standard input:

```bash
python3 scripts/describe.py
```

It prints one JSON object with `summary` and `fields`. Exit code 2 means that there was no event.

"""

_TOOL_STEP = """\
## Call the tool

`count_words` counts the words of a string. Call it for the longest string of the event.

"""

_REFERENCE_STEP = """\
## Look up fields

`references/$name.md` describes the fields of an event. Read it if the name of a field is unclear.

"""

_ANSWER = """\
## Answer

Answer with the summary in one sentence, and quote the field that supports it.
"""

_TOOLS_SECTION = """
Tools:
- count_words
"""

_SCRIPT = '''\
"""Describe an event from standard input or from inputs/event.json, and print one JSON object.

This script runs in a sandbox on the TaskManager. It has no network, and it sees only the files of this skill and of the
workspace. Environment variables:

  $$OUTPUT_DIR             directory for output files
  $$WORK_DIR               workspace of the event's key; inputs/event.json is the event
  $$FLINK_SKILLS_CALL_ID   ID of this call, which is the same on every retry (use it as an idempotency key)

Use only the standard library, or list the required packages in SKILL.md (compatibility).
"""

import json
import os
import sys
from pathlib import Path


def describe(event):
    """Return the summary and the fields of one event."""
    fields = sorted(event) if isinstance(event, dict) else []
    number = "1 field" if len(fields) == 1 else f"{len(fields)} fields"
    summary = f"an event about $words with {number}" if fields else "an event about $words, as text"
    return {"summary": summary, "fields": fields}


def read_event():
    """Return the event from standard input, or from the file that the runtime writes if the input is empty."""
    text = sys.stdin.read().strip()
    file = Path(os.environ.get("WORK_DIR", "."), "inputs", "event.json")
    return text or (file.read_text(encoding="utf-8").strip() if file.is_file() else "")


def main():
    text = read_event()
    if not text:
        # If a command fails, the model reads standard error. Tell it what to do.
        print("Pass the event on standard input.", file=sys.stderr)
        return 2
    try:
        event = json.loads(text)
    except ValueError:
        event = text
    print(json.dumps(describe(event)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
'''

_REFERENCE = """\
# Fields of events about $words

A model reads this file only if SKILL.md refers to it, so it can be long.

| Field | Meaning |
|---|---|
| `id` | Identifier of the event |
| `text` | Message of the event |
"""

_TOOLS = '''\
"""Tools that models receive when they load this skill. They run in the sandbox, never in the worker.

Each public function is a tool. Its annotations define the schema, and the model reads its docstring.
"""


def count_words(text: str) -> int:
    """Count the words of a string.

    Args:
        text: String from the event, verbatim.
    """
    return len(text.split())
'''


def render_template(name: str, parts: Collection[str]) -> dict[str, str]:
    """Return the content of each file of the skill ``name`` by path.

    ``parts`` can contain ``scripts``, ``references`` and ``tools``.

    >>> sorted(render_template("late-orders", ["scripts"]))
    ['SKILL.md', 'scripts/describe.py']
    """
    steps = [
        _SCRIPT_STEP if "scripts" in parts else "",
        _TOOL_STEP if "tools" in parts else "",
        _REFERENCE_STEP if "references" in parts else "",
    ]
    body = "".join(steps) + _ANSWER if any(steps) else _PLAIN
    files = {"SKILL.md": _HEAD + body + (_TOOLS_SECTION if "tools" in parts else "")}
    if "scripts" in parts:
        files["scripts/describe.py"] = _SCRIPT
    if "references" in parts:
        files[f"references/{name}.md"] = _REFERENCE
    if "tools" in parts:
        files["tools.py"] = _TOOLS
    words = name.replace("-", " ")
    values = {
        "name": name,
        "words": words,
        "title": words[0].upper() + words[1:],
        "compatibility": "python3, standard library only"
        if {"scripts", "tools"} & {*parts}
        else "requires no programs",
    }
    return {path: Template(text).substitute(values) for path, text in files.items()}
