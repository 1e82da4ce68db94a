"""Demo: recorded incidents of real Flink jobs, diagnosed by the triage agent in a Flink job, as a table.

python -m examples.log_triage.demo [--model offline|PROVIDER:NAME] [--base-url URL] [--parallelism N] [--local]
"""

from __future__ import annotations

import json
import re
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer
from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from flink_skills.cli.run.run_events import DONE, FAILED, RunRequest, run_agent
from flink_skills.errors import SkillsError

HERE = Path(__file__).resolve().parent
SKILLS = HERE.parent.parent / "skills"
NEXT = """
Next:
  . .venv/bin/activate                   # use the commands of this checkout
  flink-skills chat --skills skills      # describe an incident yourself
  make demo MODEL=openai:NAME            # ask a real model: set OPENAI_API_KEY first
  docs/tutorial.md                       # write a skill, and run it in a job"""
#: Maximum width of the table, in columns.
MAX_WIDTH = 98
LOG_LINE = re.compile(r"^[\d-]+ (?P<time>[\d:]+),\d+ (?P<level>\w+)\s+\S+\s+\[.*?\] - (?P<message>.*)$", re.DOTALL)


def main(
    model: Annotated[str, typer.Option(help="Chat model: offline, or PROVIDER:NAME.")] = "offline",
    base_url: Annotated[str | None, typer.Option(help="URL of the provider's API.")] = None,
    parallelism: Annotated[int, typer.Option(help="Parallelism of the Flink job.")] = 2,
    local: Annotated[bool, typer.Option("--local", help="Run the agent in this process, without Flink.")] = False,
) -> None:
    """Diagnose recorded Flink incidents, and print a table."""
    incidents = HERE / "incidents.jsonl"
    with tempfile.TemporaryDirectory(prefix="log-triage-") as folder:
        records = Path(folder) / "records.jsonl"
        request = RunRequest(
            agent="examples.log_triage.agent:LogTriageAgent",
            input=incidents,
            key="job",
            output=records,
            errors=None,
            skills=(str(SKILLS),),
            model=model,
            base_url=base_url,
            instructions="",
            parallelism=parallelism,
            assignments=(),
            local=local,
        )
        print(f"The agent diagnoses {incidents.name} with {SKILLS.name}/ and the model {model}.", file=sys.stderr)
        try:
            code = run_agent(request)
        except SkillsError as error:
            print(f"demo: {error}", file=sys.stderr)
            raise typer.Exit(2) from None
        if code == FAILED:
            raise typer.Exit(code)  # The job did not run, and its error is the last line.
        show(incidents, records)
    if code == DONE:
        print(NEXT, file=sys.stderr)
    raise typer.Exit(code)


def read_lines(file: Path) -> Iterator[dict[str, Any]]:
    """Yield the objects of a file with JSON lines. Only a line feed separates lines: logs contain other separators."""
    with file.open("rb") as data:
        for line in data:
            yield json.loads(line)


def show(incidents: Path, records: Path) -> None:
    """Print one row per incident, in the order of the input."""
    found: dict[tuple[str, int], dict[str, Any]] = {}
    for record in read_lines(records):
        found[record["key"], record["turn"]] = record
    errors = {record["error"] for record in found.values()}
    if len(errors) == 1 and None not in errors and len(found) > 1:
        print(f"All {len(found)} incidents failed: {errors.pop()}", file=sys.stderr)
        return
    table = Table(box=box.ROUNDED, show_lines=True, title="Incidents of recorded Flink jobs", title_justify="left")
    table.add_column("Incident", style="bold", overflow="fold")
    table.add_column("Skill", style="cyan", no_wrap=True)
    table.add_column("Diagnosis and evidence", overflow="fold")
    turns: dict[str, int] = {}
    for incident in read_lines(incidents):
        job = incident["job"]
        turns[job] = turns.get(job, 0) + 1
        record = found.get((job, turns[job]))
        table.add_row(f"[bold]{escape(job)}[/]\n{escape(incident['incident'])}", *cells(record))
    console = Console()
    console.width = min(console.width, MAX_WIDTH) if console.is_terminal else MAX_WIDTH
    console.print(table)


def cells(record: dict[str, Any] | None) -> tuple[str, str]:
    """Return the skill of a record, and its diagnosis with the evidence below it."""
    if record is None:
        return "", "[red]no record[/]"
    if record["error"] is not None:
        return ", ".join(record["skills"]), f"[red]{escape(record['error'])}[/]"
    skills = ", ".join(record["skills"]) or "none"
    try:
        answer = json.loads(record["output"])
        diagnosis, line = str(answer["diagnosis"]), str(answer["evidence"])
    except (ValueError, KeyError, TypeError):
        return skills, escape(short(str(record["output"]), 180))
    return skills, f"{escape(short(diagnosis, 180))}\n[dim]{escape(evidence(line))}[/]"


def evidence(line: str) -> str:
    """Return a log line without its date and logger, truncated to fit a cell."""
    match = LOG_LINE.match(line)
    return short(f"{match['time']} {match['level']} {match['message']}" if match else line, 150)


def short(text: str, limit: int) -> str:
    return text if len(text) <= limit else text[: limit - 1].rstrip() + "…"


if __name__ == "__main__":
    typer.run(main)
