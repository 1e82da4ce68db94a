"""Cold start: a fresh virtual environment as in the image, and a job in it from nothing to its first answer."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks import report

CHECKOUT = Path(__file__).resolve().parents[1]
JOB = CHECKOUT / "benchmarks" / "cold_start_job.py"
#: The job's phases: what begins when the mark before is reached, and ends with this one.
PHASES = {
    "imports": "Python and its imports",
    "jvm": "JVM of the client",
    "plan": "compile the plan",
    "worker": "mini cluster and job graph, until the worker is started",
    "open": "worker opens: imports, skills, sandbox proof",
    "answer": "first answer",
}
EVENT = {
    "job": "orders",
    "incident": "1",
    "lines": [
        "2026-01-01 00:00:00,000 WARN  Task [] - map (1/1) switched from RUNNING to FAILED with failure cause:",
        "java.lang.NumberFormatException: For input string: 'x'",
    ],
}
#: What the image has, and the least that a fresh environment can have.
BYTE_CODE = {"byte code in the image": True, "no byte code": False}


def measure(repeat: int, only: str, *, quick: bool = False) -> None:
    """Make the environment, start the job ``repeat`` times in each way, and print and write the medians."""
    machine = report.machine()
    with tempfile.TemporaryDirectory(prefix="flink-skills-cold-") as name:
        folder = Path(name)
        # A trial takes the environment that is there: making one takes a minute and the package index.
        python, install = (Path(sys.executable), 0.0) if quick else _environment(folder)
        results: dict[str, Any] = {}
        for title, compiled in BYTE_CODE.items():
            if only not in title or (quick and compiled):
                continue
            if not quick:
                _byte_code(python, compiled)
            runs = []
            for number in range(repeat):
                print(f"round {number + 1}: {title}", file=sys.stderr)
                runs.append({**_phases(_run(python, folder, "job")), **_run(python, folder, "parts")})
            results[title] = {"medians": report.medians(runs), "runs": runs}
    content = {"machine": machine, "seconds to install": round(install, 1), "event": "one", "results": results}
    print(json.dumps(content, indent=2))
    if not only and not quick:
        report.write("cold_start", content, table(results))


def _environment(folder: Path) -> tuple[Path, float]:
    """A virtual environment with a wheel of this checkout, under the constraints of this Flink; how long it took."""
    from importlib.metadata import version

    pinned = f"apache-flink=={version('apache-flink')}"
    constraints = next(path for path in CHECKOUT.glob("constraints*.txt") if pinned in path.read_text().split())
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
    subprocess.run([*pip, "wheel", "-q", "--no-deps", "-w", str(folder), str(CHECKOUT)], check=True)
    wheel = next(folder.glob("*.whl"))
    began = time.monotonic()
    subprocess.run([sys.executable, "-m", "venv", str(folder / "venv")], check=True)
    python = folder / "venv" / "bin" / "python"
    install = [str(python), "-m", "pip", "install", "-q", "--no-compile", "--disable-pip-version-check"]
    subprocess.run([*install, "-c", str(constraints), f"{wheel}[flink,models,cli]"], check=True)
    return python, time.monotonic() - began


def _byte_code(python: Path, wanted: bool) -> None:
    library = python.parents[1] / "lib"
    for path in list(library.rglob("__pycache__")):
        shutil.rmtree(path)
    if wanted:
        compiling = ["compileall", "-q", "-j", "0", "--invalidation-mode", "unchecked-hash", str(library)]
        subprocess.run([str(python), "-m", *compiling], check=False, stdout=subprocess.DEVNULL)


def _run(python: Path, folder: Path, what: str) -> dict[str, float]:
    logs = Path(tempfile.mkdtemp(dir=folder))
    environment = {
        **{name: value for name, value in os.environ.items() if name in ("PATH", "JAVA_HOME", "LANG", "TMPDIR")},
        # As in a pod, whose file system nobody writes to.
        "PYTHONDONTWRITEBYTECODE": "1",
        "FLINK_LOG_DIR": str(logs),
        "HOME": str(logs),
    }
    request = json.dumps({"skills": str(CHECKOUT / "skills"), "event": EVENT})
    began = time.time()
    done = subprocess.run(
        [str(python), str(JOB), what, request],
        env=environment,
        cwd=logs,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    for line in done.stdout.splitlines():
        if line.startswith("RESULT "):
            found: dict[str, float] = json.loads(line.removeprefix("RESULT "))
            return {"began": began, **found} if what == "job" else found
    raise SystemExit(f"the job did not end well:\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}")


def _phases(marks: dict[str, float]) -> dict[str, float]:
    ends = [marks["began"], *(marks[name] for name in PHASES)]
    found = {title: end - start for title, start, end in zip(PHASES.values(), ends, ends[1:], strict=False)}
    return {**found, "in all": marks["answer"] - marks["began"]}


def table(results: dict[str, Any]) -> str:
    """The medians as a Markdown table."""
    rows = [f"| phase, s | {' | '.join(results)} |", f"|---|{'---|' * len(results)}"]
    for name in next(iter(results.values()))["medians"]:
        values = " | ".join(f"{of['medians'][name]:.2f}" for of in results.values())
        rows.append(f"| {name} | {values} |")
    return "\n".join(rows)
