"""Write ``docs/reference/job.schema.json`` from the models of :mod:`flink_skills.job.model`.

python docs/gen_job_schema.py            write the file
python docs/gen_job_schema.py --check    exit with 1 when the file is not what the models say
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from flink_skills.job.schema import job_schema

PAGE = Path(__file__).resolve().parent / "reference" / "job.schema.json"


def render() -> str:
    """The file as text."""
    return json.dumps(job_schema(), indent=1, ensure_ascii=False) + "\n"


def main(arguments: list[str]) -> int:
    """Write or check the file; returns the exit code."""
    text = render()
    if arguments == ["--check"]:
        if PAGE.is_file() and PAGE.read_text(encoding="utf-8") == text:
            return 0
        sys.stderr.write(f"{PAGE.name} is not current: run python docs/gen_job_schema.py\n")
        return 1
    PAGE.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
