"""Write ``docs/reference/job.schema.json`` from the models of :mod:`flink_skills.job.job_model`.

python -m docs.gen_job_schema           write the file
python -m docs.gen_job_schema --check   exit with 1 when the file is not what the models say
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from docs.generated import write_or_check
from flink_skills.job.job_model import job_schema

PAGE = Path(__file__).resolve().parent / "reference" / "job.schema.json"


def render() -> str:
    """The file as text."""
    return json.dumps(job_schema(), indent=1, ensure_ascii=False) + "\n"


def main(arguments: list[str]) -> int:
    """Write or check the file; returns the exit code."""
    return write_or_check(PAGE, lambda _: render(), arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
