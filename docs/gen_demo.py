"""Write some rows of the demo's table into ``README.md``, from a run without Flink.

python -m docs.gen_demo           run it and write the rows
python -m docs.gen_demo --check   exit with 1 if the demo prints other rows
"""

from __future__ import annotations

import contextlib
import io
import json
import subprocess
import sys
import tempfile
from pathlib import Path

from docs.generated import fill, write_or_check

ROOT = Path(__file__).resolve().parents[1]

PAGE = ROOT / "README.md"
INCIDENTS = ROOT / "examples/log_triage/incidents.jsonl"
#: One incident of each of these jobs, the first one.
JOBS = ("inventory-sync", "nightly-backfill")


def render(page: str) -> str:
    """``page`` with the rows."""
    return fill(page, {"demo": lambda: f"```text\n{_rows()}\n```"})


def _rows() -> str:
    from examples.log_triage.demo import show

    first: dict[str, str] = {}
    for line in filter(None, INCIDENTS.read_text(encoding="utf-8").split("\n")):
        first.setdefault(json.loads(line)["job"], line)
    with tempfile.TemporaryDirectory() as folder:
        events, records = Path(folder) / "incidents.jsonl", Path(folder) / "records.jsonl"
        events.write_text("".join(f"{first[job]}\n" for job in JOBS), encoding="utf-8")
        words = [
            "run",
            "examples.log_triage.agent:LogTriageAgent",
            "--model",
            "offline",
            "--skills",
            "skills",
            "--local",
        ]
        words += ["--input", str(events), "--key", "job", "--output", str(records)]
        done = subprocess.run(
            [sys.executable, "-m", "flink_skills.cli", *words], cwd=ROOT, capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise SystemExit(f"the demo failed:\n{done.stderr}")
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            show(events, records)
    _, _, table = printed.getvalue().partition("\n")  # without the title
    return "\n".join(line.rstrip() for line in table.rstrip().split("\n"))


def main(arguments: list[str]) -> int:
    """Write or check the page; returns the exit code."""
    return write_or_check(PAGE, render, arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
