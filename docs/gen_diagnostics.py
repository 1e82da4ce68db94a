"""Write ``docs/reference/diagnostics.md`` from :data:`flink_skills.skill.CODES`.

python -m docs.gen_diagnostics           write the page
python -m docs.gen_diagnostics --check   exit with 1 when the page is not what the codes say
"""

from __future__ import annotations

import sys
from itertools import groupby
from pathlib import Path

from docs.generated import write_or_check
from flink_skills.skill import CODES

PAGE = Path(__file__).resolve().parent / "reference" / "diagnostics.md"

_HEAD = """\
# Diagnostics

<!-- Written by docs/gen_diagnostics.py from flink_skills.skill.CODES. Change it there, then run the script. -->

Look up the code of a problem in a skill or a source, and its fix. Each diagnostic has a code, a severity, a location
and a fix. It is in `AgentSkillManager.diagnostics`, in the output of `flink-skills validate`, and in the log of the
TaskManager when an agent opens. Codes do not change their meaning.

- An `error` means that the skill or the source is not used. A `warning` is something to fix. An `info` is advice.
- The column *lenient* counts by default, *strict* with `skills.strict` and `flink-skills validate --strict`. In strict
  loading any error fails the job.
"""

_TABLE = "| code | meaning | lenient | strict | usual fix |\n|---|---|---|---|---|\n"

_TABLE_U = "| code | meaning | lenient | strict | usual fix | `skills.unsupported` |\n|---|---|---|---|---|---|\n"
_UNSUPPORTED = """\
The last column says whether a skill needs what the job does not have, so that the option
[`skills.unsupported`](../skills.md#unsupported-skills) hides or refuses it. The others are advice.

"""

#: First letter of the codes: the group's heading.
_GROUPS = {
    "F": "The format",
    "L": "Repairs",
    "D": "Search and sources",
    "G": "Plugins",
    "S": "Safety",
    "X": "Scripts",
    "E": "Tests of a skill",
    "T": "Bundled tools",
    "U": "Unsupported features",
    "M": "MCP servers",
    "P": "Prompt",
}


def render() -> str:
    """The page as text."""
    order = list(_GROUPS)
    parts = [_HEAD]
    codes = sorted(CODES, key=lambda code: (order.index(code[0]), code))
    for letter, members in groupby(codes, key=lambda code: code[0]):
        decided = letter == "U"
        parts.append(f"\n## {_GROUPS[letter]}\n\n{_UNSUPPORTED + _TABLE_U if decided else _TABLE}")
        for code in members:
            known = CODES[code]
            cells = [code, known.meaning, known.lenient, known.strict, known.fix]
            cells += ["yes" if known.unsupported else "no"] if decided else []
            parts.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |\n")
    return "".join(parts)


def main(arguments: list[str]) -> int:
    """Write or check the page; returns the exit code."""
    return write_or_check(PAGE, lambda _: render(), arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
