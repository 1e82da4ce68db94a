"""Take the pictures of docs/images/: pages in headless Chromium, and recordings of commands on a terminal as SVG.

    python -m docs.gen_screenshots                 take all pictures
    python -m docs.gen_screenshots chat top        take only these

Pages need the packages ``chromium`` and ``chromium-driver`` of the system, and selenium (the dependency group
``browser``). ``trace`` needs Phoenix (``make phoenix``), ``top`` and ``approvals`` Java 17 and the extra ``flink``.
"""

from __future__ import annotations

import contextlib
import fcntl
import io
import json
import os
import pty
import re
import select
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich._export_format import CONSOLE_SVG_FORMAT
from rich.console import Console
from rich.text import Text

from examples.refunds.bridge import Bridge, schemas_of
from examples.refunds.demo import HERE as REFUNDS
from examples.refunds.demo import start_job, stop_job
from examples.refunds.records import Files
from flink_skills import Agent, AgentContext, AgentsExecutionEnvironment
from flink_skills.testing import Reply, ScriptedModelServer
from tests.kit.ports import free_ports
from tests.kit.waiting import wait_until

ROOT = Path(__file__).resolve().parent.parent
IMAGES = ROOT / "docs" / "images"
SIZE, SCHEMES = (1200, 1120), ("light", "dark")
DEADLINE = 180.0
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync", "--hide-scrollbars",
)  # fmt: skip
CLI = (sys.executable, "-m", "flink_skills.cli")
# Two models, so that the picture shows that they do not see the same.
AGENT = """\
name: log-triage
chat_model_setups:
  first-look: {clazz: offline.setup, skill_names: [log-triage, slot-shortage]}
  expert: {clazz: offline.setup}
"""
# A job that runs until it is stopped. The model server answers each request after some time.
JOB = """\
name: orders
flink: {{parallelism.default: 1, rest.port: '{port}'}}
options: {{skills.worker.processes: 1}}
models:
  main: {{clazz: openai-compatible.setup, base_url: '{url}', model: qwen3-32b, price: {{input: 0.4, output: 1.2}}}}
agents:
  desk: {{instructions: Answer the customer., input: {{table: orders, key: customer}}, output: {{agent: reviewer}}}}
  reviewer: {{instructions: Review the answer., input: {{agent: desk}}, output: {{table: answers}}}}
tables: |
  CREATE TABLE orders (customer STRING, question STRING)
  WITH ('connector' = 'datagen', 'rows-per-second' = '12', 'fields.question.length' = '80');
  CREATE TABLE answers (customer STRING, answer STRING) WITH ('connector' = 'blackhole');
  CREATE TABLE failures (error STRING, event STRING) WITH ('connector' = 'blackhole');
errors: {{table: failures}}
"""
LOGS = {
    "billing": "Checkpoint 7 expired before completing",
    "payments": "NoResourceAvailableException: Could not acquire the minimum required resources.",
    "orders": "",
}


class Triage(Agent):
    """An agent whose turns have requests, tools, commands, a pause, and a failure."""

    name = "triage"
    model = "offline"

    async def on_event(self, event: Any, ctx: AgentContext) -> str:
        """Triage one log."""
        await ctx.step("parse", self.parse, event["log"])
        await ctx.sleep(0.05)
        return await ctx.chat(event["log"])

    @staticmethod
    def parse(log: str) -> list[str]:
        """Return the lines of a log that is not empty."""
        if not log:
            raise ValueError("the log is empty")
        return log.splitlines()


def run_turns(options: Mapping[str, str]) -> list[Any]:
    """Run three turns, and return their events."""
    agents_env = AgentsExecutionEnvironment.get_execution_environment()
    agents_env.add_skills_from_paths([str(ROOT / "skills")])
    for key, value in options.items():
        agents_env.get_config().set(key, value)
    incidents = [{"job": job, "log": log} for job, log in LOGS.items()]
    return agents_env.from_list(incidents, "job").apply(Triage).to_event_list()


@contextlib.contextmanager
def chromium(folder: Path) -> Iterator[Any]:
    """Start a browser."""
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    driver_path, browser = shutil.which("chromedriver"), shutil.which("chromium")
    if driver_path is None or browser is None:
        raise SystemExit("chromium and chromium-driver are needed: apt install chromium chromium-driver")
    options = webdriver.ChromeOptions()
    options.binary_location = browser
    for flag in (*FLAGS, f"--user-data-dir={folder}/profile"):
        options.add_argument(flag)
    driver = webdriver.Chrome(options=options, service=Service(driver_path))
    try:
        yield driver
    finally:
        driver.quit()


def shoot(
    folder: Path,
    url: str,
    name: str,
    *,
    ready: str = "true",
    size: tuple[int, int] = SIZE,
    schemes: Sequence[str] = SCHEMES,
) -> None:
    """Take a picture of a page in each color scheme, as soon as the script ``ready`` is true."""
    with chromium(folder) as driver:
        metrics = {"width": size[0], "height": size[1], "deviceScaleFactor": 1, "mobile": False}
        driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
        for scheme in schemes:
            feature = {"name": "prefers-color-scheme", "value": scheme}
            driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [feature]})
            driver.get(url)
            wait_until(
                lambda: driver.execute_script(f"return {ready}"),
                lambda: f"{ready}: {driver.execute_script('return document.body.innerText')}",
                within=DEADLINE,
            )
            driver.execute_script("window.scrollTo(0, 0)")
            target = IMAGES / f"{name}-{scheme}.png"
            if not driver.save_screenshot(str(target)):
                raise SystemExit(f"{target} could not be written")


def catalog(folder: Path) -> None:
    """Take pictures of the page of skills."""
    agent, page = folder / "agent.yaml", folder / "catalog.html"
    agent.write_text(AGENT, encoding="utf-8")
    subprocess.run([*CLI, "catalog", "skills", "--agent", str(agent), "--html", str(page)], cwd=ROOT, check=True)
    shoot(folder, f"{page.as_uri()}#skill-checkpoint-diagnosis", "catalog")


def turns(folder: Path) -> None:
    """Take pictures of the page of turns, with one timeline open."""
    events, page = folder / "events.jsonl", folder / "turns.html"
    found = run_turns({"skills.events.content": "full"})
    events.write_text("".join(json.dumps(event) + "\n" for event in found), encoding="utf-8")
    subprocess.run([*CLI, "turns", str(events), "--html", str(page)], cwd=ROOT, check=True)
    turn = next(event["turn_id"] for event in found if event["key"] == "billing")
    shoot(folder, f"{page.as_uri()}#turn-{turn}", "turns")


def approvals(folder: Path) -> None:
    """Take pictures of the page on which people approve refunds."""
    (folder / "orders").mkdir()
    shutil.copy(REFUNDS / "orders.jsonl", folder / "orders")
    records = Files(folder / "questions", folder / "decisions", folder / "failures")
    with Bridge(
        records, 0, schemas=schemas_of("examples.refunds.agent:Refunds"), job=lambda: ("running", "")
    ) as bridge:
        threading.Thread(target=bridge.serve_forever, daemon=True).start()
        job = start_job(folder)
        try:
            wait_until(lambda: len(bridge.questions.all()["open"]) == 3, "three questions", within=DEADLINE)
            cards = "document.querySelectorAll('article').length >= 3"
            shoot(folder, bridge.url, "approvals", ready=cards, size=(1000, 900))
        finally:
            stop_job(job)
            bridge.shutdown()


def trace(folder: Path) -> None:
    """Take a picture of a turn in Phoenix, a viewer of traces."""
    python = ROOT / ".venv-phoenix/bin/python"
    if not python.is_file():
        raise SystemExit("trace needs Phoenix: run make phoenix, or name the other pictures")
    port, other = free_ports(2)
    url = f"http://127.0.0.1:{port}"
    settings = {
        "PHOENIX_WORKING_DIR": str(folder), "PHOENIX_HOST": "127.0.0.1", "PHOENIX_PORT": str(port),
        "PHOENIX_GRPC_PORT": str(other), "PHOENIX_TELEMETRY_ENABLED": "false",
    }  # fmt: skip
    with (folder / "phoenix.log").open("wb") as log:
        words = [str(python), "-m", "phoenix.server.main", "serve"]
        viewer = subprocess.Popen(words, env={**os.environ, **settings}, stdout=log, stderr=log)
    try:
        wait_until(lambda: _answers(f"{url}/healthz"), "Phoenix to answer", within=DEADLINE)
        os.environ |= {"OTEL_EXPORTER_OTLP_ENDPOINT": url, "OTEL_SERVICE_NAME": "triage"}
        run_turns({"skills.trace.exporter": "otlp", "skills.trace.content": "full"})
        roots = wait_until(lambda: _roots(url) or {}, "three traces", within=DEADLINE)
        project = json.loads(_read(f"{url}/v1/projects"))["data"][0]["id"]
        # The details of the turn follow its tree.
        ready = "['load_skill', 'Attributes'].every(text => document.body.innerText.includes(text))"
        page = f"{url}/projects/{project}/traces/{roots['billing']}"
        shoot(folder, page, "trace", ready=ready, size=(1400, 800), schemes=["dark"])
    finally:
        viewer.terminate()
        viewer.wait()


def _read(url: str) -> bytes:
    with urllib.request.urlopen(url, timeout=30) as response:  # noqa: S310 - a server of this script
        return bytes(response.read())


def _answers(url: str) -> bool:
    with contextlib.suppress(OSError):
        return bool(_read(url)) or True
    return False


def _roots(url: str) -> dict[str, str] | None:
    """Return the trace of each key, as soon as all turns have one."""
    with contextlib.suppress(OSError):
        spans = json.loads(_read(f"{url}/v1/projects/default/spans?limit=500"))["data"]
        roots = [span for span in spans if span["parent_id"] is None]
        found = {
            str(span["attributes"].get("gen_ai.conversation.id")).strip('"'): span["context"]["trace_id"]
            for span in roots
        }
        return found if len(found) == len(LOGS) else None
    return None


def chat(folder: Path) -> None:
    """Record a conversation with the offline model."""
    keys = [
        ("> ", "My job fails: java.lang.OutOfMemoryError: Java heap space\n"),
        ("> ", "/usage\n"),
        ("> ", "\x04"),
    ]
    words = ["chat", "--skills", str(ROOT / "skills")]
    write_recording("chat", record(words, keys, folder), "flink-skills chat --skills skills")


def top(folder: Path) -> None:
    """Record the live view of a job with two agents."""
    number = [0]

    def reply(_: Any) -> Reply:
        number[0] += 1
        status = 400 if number[0] % 60 == 0 else 200
        return Reply("An answer.", input_tokens=900, output_tokens=120, latency=0.8, status=status)

    (port,) = free_ports(1)
    with ScriptedModelServer(reply) as server:
        file = folder / "job.yaml"
        file.write_text(JOB.format(port=port, url=server.url), encoding="utf-8")
        with (folder / "job.log").open("wb") as log:
            job = subprocess.Popen([*CLI, "run", str(file)], cwd=ROOT, stdout=log, stderr=log, start_new_session=True)
        try:
            url = f"http://127.0.0.1:{port}"
            wait_until(lambda: number[0] > 1200, lambda: (folder / "job.log").read_text()[-2000:], within=DEADLINE)
            text = record(["top", url, "--once"], [], folder)
            write_recording("top", text.replace(url, "http://localhost:8081"), "flink-skills top http://localhost:8081")
        finally:
            job.send_signal(signal.SIGINT)
            try:
                job.wait(30)
            except subprocess.TimeoutExpired:
                os.killpg(job.pid, signal.SIGKILL)


def record(words: Sequence[str], keys: Sequence[tuple[str, str]], folder: Path, columns: int = 118) -> str:
    """Return the text of a command on a terminal. ``keys`` are pairs of expected output and typed text."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 60, columns, 0, 0))
    settings = {"TERM": "xterm-256color", "PYTHONPATH": str(ROOT), "COLUMNS": str(columns)}
    command = subprocess.Popen(
        ["setsid", "--ctty", *CLI, *words],
        cwd=folder, env={**os.environ, **settings}, stdin=theirs, stdout=theirs, stderr=theirs,
    )  # fmt: skip
    os.close(theirs)
    written, seen, left = "", 0, list(keys)
    end = time.monotonic() + DEADLINE
    with contextlib.suppress(OSError):  # The command has closed the terminal.
        while time.monotonic() < end:
            if select.select([ours], [], [], 0.2)[0]:
                written += os.read(ours, 1 << 16).decode()
            elif left and written.endswith(left[0][0]) and len(written) > seen:
                seen = len(written)
                os.write(ours, left.pop(0)[1].encode())
    if command.wait(30):
        raise SystemExit(f"{' '.join(words)} failed:\n{written}")
    os.close(ours)
    return _without_erased_lines(re.sub(r"\x1b\[\?\d+[hl]|\r", "", written))


def _without_erased_lines(written: str) -> str:
    """Return the text that a terminal shows at the end: without a status that was erased."""
    lines = [""]
    for part in re.split(r"(\n|\x1b\[1A|\x1b\[2K)", written):
        if part == "\n":
            lines.append("")
        elif part == "\x1b[1A":
            lines.pop()
        elif part == "\x1b[2K":
            lines[-1] = ""
        else:
            lines[-1] += part
    return "\n".join(lines)


def write_recording(name: str, text: str, title: str, columns: int = 118) -> None:
    """Write a recording as SVG that loads no font from elsewhere."""
    console = Console(record=True, width=columns, file=io.StringIO(), force_terminal=True, color_system="truecolor")
    for line in text.rstrip().splitlines():
        shown = Text.from_ansi(line)
        shown.truncate(columns, overflow="ellipsis")
        console.print(shown, soft_wrap=True)
    template = re.sub(r"@font-face \{\{.*?\}\}\n", "", CONSOLE_SVG_FORMAT, flags=re.DOTALL)
    svg = console.export_svg(title=title, code_format=template, unique_id=name)
    (IMAGES / f"{name}.svg").write_text(svg, encoding="utf-8")


PICTURES: dict[str, Callable[[Path], None]] = {
    "catalog": catalog, "turns": turns, "approvals": approvals, "trace": trace, "chat": chat, "top": top,
}  # fmt: skip


def main(names: Sequence[str]) -> int:
    """Take pictures, and return the exit code."""
    if unknown := [name for name in names if name not in PICTURES]:
        sys.stderr.write(f"there is no picture {unknown[0]!r}: the pictures are {', '.join(PICTURES)}\n")
        return 2
    for name in names or PICTURES:
        with tempfile.TemporaryDirectory(prefix="flink-skills-pictures-", ignore_cleanup_errors=True) as folder:
            PICTURES[name](Path(folder))
        sys.stdout.write(f"{name}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
