"""The files of a new skill, as ``flink-skills new`` writes them. ``$name`` and its like are replaced."""

from __future__ import annotations

from collections.abc import Collection
from string import Template

__all__ = ["files_of"]

_HEAD = """\
---
# Name and description are all that a model sees before it loads the skill.
name: $name
# Say what the skill does and when to use it, in the words of the events that it is for. Models choose by it.
description: Describes events about $words. Use for each event that mentions $words.
# Lines such as these are optional: compatibility, license, metadata (a map of text to text).
compatibility: $compatibility
---

# $title

"""

_PLAIN = """\
Say what the event is about in one sentence. Then name the fields that it has, and what each of them says.
"""

_SCRIPT_STEP = """\
## Run the script

Pass the event on standard input:

```bash
python3 scripts/describe.py
```

It prints one JSON object with `summary` and `fields`. Exit status 2: there was no event.

"""

_TOOL_STEP = """\
## Call the tool

`count_words` counts the words of a text. Call it for the longest text of the event.

"""

_REFERENCE_STEP = """\
## Look it up

`references/$name.md` says what the fields of an event mean. Read it when a field is not clear from its name.

"""

_ANSWER = """\
## Answer

Answer with the summary in one sentence, and quote the field that it rests on.
"""

_TOOLS_SECTION = """
Tools:
- count_words
"""

_SCRIPT = '''\
"""Describes an event: reads it from standard input, or from inputs/event.json, and prints one JSON object.

This runs in a sandbox on the TaskManager: no network, no files but those of this skill and of the workspace. What
helps when more is needed:

  $$OUTPUT_DIR   files for people or for later steps
  $$WORK_DIR     scratch space of this event's key; inputs/event.json is the event
  $$FLINK_SKILLS_CALL_ID   the same on every retry of this call, so that others can recognise a repetition

Keep to the standard library, or say in SKILL.md (compatibility) what must be installed.
"""

import json
import os
import sys
from pathlib import Path


def describe(event):
    """The answer for one event, as a dict."""
    fields = sorted(event) if isinstance(event, dict) else []
    number = "1 field" if len(fields) == 1 else f"{len(fields)} fields"
    summary = f"an event about $words with {number}" if fields else "an event about $words, as text"
    return {"summary": summary, "fields": fields}


def read_event():
    """What was passed on standard input; models forget it at times, and the runtime keeps the event as a file."""
    text = sys.stdin.read().strip()
    file = Path(os.environ.get("WORK_DIR", "."), "inputs", "event.json")
    return text or (file.read_text(encoding="utf-8").strip() if file.is_file() else "")


def main():
    text = read_event()
    if not text:
        # What stands on standard error is what the model reads when the command fails: say what to do.
        print("pass the event on standard input", file=sys.stderr)
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

A model reads this file only when SKILL.md tells it to, so it may be long.

| field | meaning |
|---|---|
| `id` | what the event is about |
| `text` | what somebody wrote |
"""

_TOOLS = '''\
"""Tools that models get when they load this skill. They run in the sandbox, never in the worker.

Every public function is a tool: its annotations are the schema, its docstring is what the model reads. Models with the
tools "core" do not get them: set skills.tools to full, or skills.bundled-tools to true.
"""


def count_words(text: str) -> int:
    """How many words a text has.

    Args:
        text: The text, as it stands in the event.
    """
    return len(text.split())
'''


def files_of(name: str, parts: Collection[str]) -> dict[str, str]:
    """The content of each file of the skill ``name`` by its path; ``parts`` are some of scripts, references and tools.

    >>> sorted(files_of("late-orders", ["scripts"]))
    ['SKILL.md', 'scripts/describe.py']
    """
    steps = [
        _SCRIPT_STEP if "scripts" in parts else "",
        _TOOL_STEP if "tools" in parts else "",
        _REFERENCE_STEP if "references" in parts else "",
    ]
    body = "".join(steps) + _ANSWER if any(steps) else _PLAIN
    found = {"SKILL.md": _HEAD + body + (_TOOLS_SECTION if "tools" in parts else "")}
    if "scripts" in parts:
        found["scripts/describe.py"] = _SCRIPT
    if "references" in parts:
        found[f"references/{name}.md"] = _REFERENCE
    if "tools" in parts:
        found["tools.py"] = _TOOLS
    words = name.replace("-", " ")
    values = {
        "name": name,
        "words": words,
        "title": words[0].upper() + words[1:],
        "compatibility": "python3, standard library only" if {"scripts", "tools"} & {*parts} else "needs no programs",
    }
    return {path: Template(text).substitute(values) for path, text in found.items()}
