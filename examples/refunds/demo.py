"""Demo: refunds that a person approves on a page, between files.

python -m examples.refunds.demo [--scripted] [--port PORT]
"""

from __future__ import annotations

import http.client
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import urlsplit

import typer
from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from examples.refunds.bridge import PAGE_HEADER, Bridge, schemas_of
from examples.refunds.records import Files

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
#: Maximum width of the table, in columns.
MAX_WIDTH = 98
#: Maximum time without a terminal, in seconds.
DEADLINE = 180
#: Time for an open page to receive the end of the job, in seconds.
LAST_POLL = 3


def main(
    scripted: Annotated[
        bool, typer.Option("--scripted", help="Answer with decisions.jsonl, without a person.")
    ] = False,
    port: Annotated[int, typer.Option(help="Port of the page on 127.0.0.1. 0 means a free one.")] = 8733,
) -> None:
    """Run the job, and let a person decide about refunds until all orders have a result."""
    scripted = scripted or not sys.stdin.isatty()
    folder = Path(os.environ.get("REFUNDS_DIR", ROOT / "build" / "refunds"))
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "orders").mkdir(parents=True)
    records = Files(folder / "questions", folder / "decisions", folder / "failures")
    shutil.copy(HERE / "orders.jsonl", folder / "orders")
    orders = list(lines(HERE / "orders.jsonl"))
    port = 0 if scripted else port
    try:
        server = Bridge(records, port, schemas=schemas_of("examples.refunds.agent:Refunds"))
    except OSError as error:
        say(f"The page cannot be served on port {port}: {error.strerror}. Choose another one with --port.")
        raise typer.Exit(1) from error
    with server as bridge:
        job = start_job(folder)
        bridge.job = partial(state_of, job, folder)
        threading.Thread(target=bridge.serve_forever, daemon=True).start()
        say(f"The job starts. Its questions are at {bridge.url}")
        try:
            wait_for_results(job, bridge, folder, len(orders), scripted=scripted)
        except KeyboardInterrupt:
            say("demo: interrupted")
        finally:
            stop_job(job)
            show_end(bridge)
        show(orders, list(rows(folder / "refunds")), bridge.questions.all()["ended"])
        bridge.shutdown()


def start_job(folder: Path) -> subprocess.Popen[bytes]:
    """Start the job in a separate process group."""
    log = (folder / "job.log").open("wb")
    return subprocess.Popen(
        [sys.executable, "-m", "flink_skills.cli", "run", str(HERE / "job.yaml")],
        cwd=ROOT,
        env={**os.environ, "REFUNDS_DIR": str(folder.resolve())},
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=log,
        start_new_session=True,
    )


def state_of(job: subprocess.Popen[bytes], folder: Path) -> tuple[str, str]:
    """Return the state of the job, and details for the page."""
    code = job.poll()
    if code is None:
        # The first order needs no person, and its result is the job's first file.
        is_running = any(any((folder / name).glob("*")) for name in ("questions", "refunds", "failures"))
        return ("running" if is_running else "starting"), ""
    if code in (0, -signal.SIGINT, 128 + signal.SIGINT):
        return "ended", "Read the results in the terminal of the demo."
    return "failed", f"Its exit code is {code}. Its log is {folder / 'job.log'}"


def show_end(bridge: Bridge) -> None:
    """Return when an open page has received the last state of the job. Pages ask each second."""
    state, at = bridge.shown
    end = time.monotonic() + LAST_POLL
    while time.monotonic() < end and end - at < 2 * LAST_POLL and bridge.shown[0] == state:
        time.sleep(0.1)


def stop_job(job: subprocess.Popen[bytes]) -> None:
    """End the job, and wait for its processes."""
    if job.poll() is None:
        job.send_signal(signal.SIGINT)
        try:
            job.wait(30)
        except subprocess.TimeoutExpired:
            os.killpg(job.pid, signal.SIGKILL)
            job.wait()


def wait_for_results(job: subprocess.Popen[bytes], bridge: Bridge, folder: Path, count: int, *, scripted: bool) -> None:
    """Return when all orders have a result. With ``scripted``, answer each question once."""
    answered: set[str] = set()
    end = time.monotonic() + DEADLINE
    while len(list(rows(folder / "refunds"))) < count:
        if job.poll() is not None:
            say(f"demo: the job ended with exit code {job.returncode}; its log is {folder / 'job.log'}")
            raise typer.Exit(1)
        if scripted:
            if time.monotonic() > end:
                say(f"demo: no result within {DEADLINE} s; the log of the job is {folder / 'job.log'}")
                stop_job(job)
                raise typer.Exit(1)
            for question in bridge.questions.all()["open"]:
                if question["wait_id"] not in answered:
                    answered.add(question["wait_id"])
                    post(bridge, question)
        time.sleep(0.2)


def post(bridge: Bridge, question: dict[str, Any]) -> None:
    """Answer a question as the page does."""
    for decision in lines(HERE / "decisions.jsonl"):
        if decision.pop("order") == question["key"]:
            say(f"{decision['by']} answers: {question['question']} {'yes' if decision['approved'] else 'no'}")
            body = json.dumps({"wait_id": question["wait_id"], "version": question["version"], **decision}).encode()
            connection = http.client.HTTPConnection(urlsplit(bridge.url).netloc, timeout=30)
            headers = {"Content-Type": "application/json", PAGE_HEADER: bridge.token}
            connection.request("POST", "/answers", body, headers)
            response = connection.getresponse()
            if response.status != HTTPStatus.OK:
                raise OSError(f"the bridge rejected the answer of {decision['by']}: {response.read().decode()}")
            connection.close()


def rows(folder: Path) -> Iterator[dict[str, Any]]:
    """Yield the rows that the job has written to a directory."""
    for file in sorted(folder.rglob("*")):
        if file.is_file() and not file.name.startswith("."):
            yield from lines(file)


def lines(file: Path) -> Iterator[dict[str, Any]]:
    """Yield the objects of a file with JSON lines. In JSON, only a line feed separates lines."""
    with file.open("rb") as data:
        for line in data:
            if line.strip():
                yield json.loads(line)


def show(orders: list[dict[str, Any]], results: list[dict[str, Any]], ended: list[dict[str, Any]]) -> None:
    """Print one row for each order."""
    answers = {row["order"]: row["answer"] for row in results}
    people = {question["key"]: question.get("by") or question["status"] for question in ended}
    table = Table(box=box.ROUNDED, show_lines=True, title="Refunds", title_justify="left")
    for name in ("Order", "Amount", "Reason", "Decided by", "Answer of the agent"):
        table.add_column(name, overflow="fold")
    for order in orders:
        by = people.get(order["order"], "no question" if order["order"] in answers else "open")
        cells = (order["order"], f"{order['cents'] / 100:.2f}", order["reason"], by, answers.get(order["order"], ""))
        table.add_row(*map(escape, cells))
    console = Console()
    console.width = min(console.width, MAX_WIDTH) if console.is_terminal else MAX_WIDTH
    console.print(table)


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    typer.run(main)
