"""Records the logs in `../data` again: `python record.py [--only JOB …]` with apache-flink 2.3 and a JDK 17.

Each scenario gets a cluster of its own in a scratch folder (1 GB per process, one cluster at a time), breaks
its job, and leaves `data/JOB/PROCESS.log`. A new recording has other times, ids and ports, so
`incidents.jsonl` must be made again afterwards.
"""

from __future__ import annotations

import argparse
import importlib.util
import sys
import tempfile
from pathlib import Path

from cluster import Cluster, compile_jobs
from neutral import cut, neutral, replacements
from scenarios import JOBS, SCENARIOS, Scenario

DATA = Path(__file__).parent.parent / "data"


def find_flink() -> Path:
    """The Flink distribution inside the installed `pyflink` package."""
    found = importlib.util.find_spec("pyflink")
    if found is None or found.origin is None:
        sys.exit("PyFlink is not installed in this Python: pip install 'apache-flink>=2.3,<2.4'")
    return Path(found.origin).parent


def record(scenario: Scenario, flink_home: Path, scratch: Path, jar: Path) -> None:
    """Plays one scenario; its uncut logs are then in `scratch/JOB`."""
    folder = scratch / scenario.job
    folder.mkdir()
    with Cluster(flink_home, folder, scenario.settings) as cluster:
        cluster.start_all(scenario.taskmanagers, scenario.slots)
        scenario.play(cluster, jar)


def store(scenario: Scenario, scratch: Path, data: Path) -> None:
    """Cuts the uncut logs of a scenario into `data/JOB/`."""
    names = replacements(scratch / scenario.job, scratch, JOBS, Path(sys.executable))
    target = data / scenario.job
    target.mkdir(parents=True, exist_ok=True)
    for name in scenario.keep:
        text = (scratch / scenario.job / f"{name}.log").read_text(encoding="utf-8", errors="replace")
        (target / f"{name}.log").write_text(cut(neutral(text, names)), encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="*", metavar="JOB", help="record only these jobs")
    parser.add_argument("--data", type=Path, default=DATA, help="where the logs go (default: %(default)s)")
    parser.add_argument("--scratch", type=Path, help="keep the uncut logs here")
    arguments = parser.parse_args()
    chosen = [s for s in SCENARIOS if not arguments.only or s.job in arguments.only]
    flink_home = find_flink()
    with tempfile.TemporaryDirectory(prefix="flink-record-") as temporary:
        scratch = Path(arguments.scratch or temporary).resolve()
        jar = compile_jobs(flink_home, JOBS, scratch)
        failures = []
        for scenario in chosen:
            print(f"{scenario.job} …", file=sys.stderr, flush=True)
            try:
                record(scenario, flink_home, scratch, jar)
                store(scenario, scratch, arguments.data)
            except TimeoutError as error:
                failures.append(f"{scenario.job}: {error}")
                print(f"  {error}", file=sys.stderr, flush=True)
    sys.exit("\n".join(failures) if failures else 0)


if __name__ == "__main__":
    main()
