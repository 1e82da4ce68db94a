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

What loading has to say about skills and sources. Each diagnostic has a code, a severity, a place and a mend. They are
in `AgentSkillManager.diagnostics`, in what `flink-skills validate` prints, and in the log of the TaskManager when an
agent opens. Codes do not change their meaning.

- An `error` means that the skill or the source is not used. A `warning` is something to mend; an `info` is advice.
- The column *lenient* counts by default, *strict* with `skills.strict` and `flink-skills validate --strict`. In strict
  loading any error fails the job.
"""

_TABLE = "| code | meaning | lenient | strict | usual mend |\n|---|---|---|---|---|\n"

#: First letter of the codes: the group's heading.
_GROUPS = {
    "F": "The format",
    "L": "Repairs",
    "D": "Search and sources",
    "S": "Safety",
    "T": "Tools that a skill brings",
    "U": "What this runtime does not do",
    "P": "Prompt",
}


def render() -> str:
    """The page as text."""
    order = list(_GROUPS)
    parts = [_HEAD]
    codes = sorted(CODES, key=lambda code: (order.index(code[0]), code))
    for letter, members in groupby(codes, key=lambda code: code[0]):
        parts.append(f"\n## {_GROUPS[letter]}\n\n{_TABLE}")
        for code in members:
            cells = (code, CODES[code].meaning, CODES[code].lenient, CODES[code].strict, CODES[code].mend)
            parts.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |\n")
    return "".join(parts)


def main(arguments: list[str]) -> int:
    """Write or check the page; returns the exit code."""
    return write_or_check(PAGE, lambda _: render(), arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
