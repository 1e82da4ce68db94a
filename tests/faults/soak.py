"""Kills under load, for as long as you want: ``python -m tests.faults.soak --minutes 30``.

Without more options it goes through settings that differ in everything: sink, state backend, kind and interval of
checkpoints, parallelism before and after a savepoint. Each option that is given keeps its value.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.faults.job import Setting
from tests.faults.plant import plant
from tests.faults.run import Load, go
from tests.faults.verdict import Verdict
from tests.kit.passable import passable_folder

__all__ = ["main"]

# Pairwise: each value of each with each value of the others.
_SETTINGS = (
    Setting("exactly-once", "rocksdb", True, 1, 1, 4),
    Setting("upsert", "hashmap", False, 1, 4, 1),
    Setting("exactly-once", "hashmap", False, 30, 1, 4),
    Setting("upsert", "rocksdb", True, 30, 4, 1),
    Setting("exactly-once", "rocksdb", False, 30, 4, 1),
    Setting("exactly-once", "hashmap", True, 1, 4, 1),
    Setting("upsert", "rocksdb", False, 1, 1, 4),
    Setting("upsert", "hashmap", True, 30, 1, 4),
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code 1: a promise was broken."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults.soak", description="Kills under load.")
    parser.add_argument("--minutes", type=float, default=30, help="how long it takes, all runs together")
    parser.add_argument("--runs", type=int, default=0, help="how many runs share the time; 0: one in 4 minutes")
    parser.add_argument("--first", type=int, default=1, help="which of the settings comes first")
    parser.add_argument("--rate", type=float, default=35, help="most orders in a second")
    parser.add_argument("--turns", type=int, default=0, help="most orders of each run; 0: as many as the time allows")
    parser.add_argument("--keys", type=int, default=500)
    parser.add_argument("--poison", type=int, default=100, help="one in so many orders breaks its worker; 0: none")
    parser.add_argument("--ahead", type=int, default=500, help="most orders that were sent and are not committed")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1_000_000))
    parser.add_argument("--mode", choices=("exactly-once", "upsert"))
    parser.add_argument("--backend", choices=("rocksdb", "hashmap"))
    parser.add_argument("--checkpoints", choices=("aligned", "unaligned"))
    parser.add_argument("--interval", type=int, help="seconds between checkpoints")
    parser.add_argument("--parallelism", help="such as 4, or 1:4 for a rescaling from a savepoint in the middle")
    parser.add_argument(
        "--kill", default="worker:3,TaskManager:2,JobManager:1,pause:1", help="what, and how often; '': nothing"
    )
    parser.add_argument("--pause", help="seconds between kills, such as 1:5; longer where checkpoints are rare")
    parser.add_argument("--waits", action="store_true", help="people answer two questions of each order")
    parser.add_argument("--held", type=int, default=0, help="people begin to answer when so many turns wait")
    parser.add_argument("--kills", type=int, default=0, help="most kills of each run; 0: no limit")
    parser.add_argument("--patience", type=float, default=300, help="seconds for the last outputs to come")
    parser.add_argument("--keep", type=Path, help="where logs and books of a run that went wrong are kept")
    options = parser.parse_args(arguments)
    runs = options.runs or max(1, round(options.minutes / 4))
    evidence = options.keep or Path(tempfile.mkdtemp(prefix="soak-"))
    _say(f"seed {options.seed}, {runs} runs in {options.minutes:g} minutes; what goes wrong is kept in {evidence}")
    end = time.monotonic() + options.minutes * 60
    broken = 0
    total = Verdict()
    with passable_folder() as folder, plant(folder) as made:
        for number, setting in zip(range(runs), _settings(options), strict=False):
            load = _load(options, setting, (end - time.monotonic()) / (runs - number))
            began = time.monotonic()
            _say(
                f"run {number + 1}: {setting}; over {load.keys} keys, for {load.seconds:.0f} s, a kill after "
                f"{load.shortest:g} to {load.longest:g} s"
            )
            verdict = go(made, setting, load, options.seed + number, _say, evidence)
            _say(f"run {number + 1} took {time.monotonic() - began:.0f} s: {setting}\n{verdict}")
            total.add(verdict)
            broken += len(verdict.broken)
    _say(f"all {runs} runs, seed {options.seed}\n{total}")
    return 1 if broken else 0


def _load(options: argparse.Namespace, setting: Setting, seconds: float) -> Load:
    """What fits into so many seconds: submitting, rescaling and the last outputs take theirs."""
    feed = max(30.0, seconds - 75 - 2 * setting.interval)
    turns = options.turns or round(options.rate * feed)
    if options.pause:
        shortest, _, longest = options.pause.partition(":")
    else:
        # Between two kills there is a checkpoint, mostly, or the job does not get ahead.
        shortest, longest = max(1.0, setting.interval / 3), max(5.0, setting.interval * 2)
    return Load(
        turns,
        min(options.keys, turns),
        feed,
        _weights(options.kill),
        float(shortest),
        float(longest),
        options.kills,
        options.ahead,
        options.patience,
        rate=options.rate,
        poison=turns // options.poison if options.poison else 0,
        held=options.held,
    )


def _settings(options: argparse.Namespace) -> Iterator[Setting]:
    parallelism, _, rescaled = (options.parallelism or "").partition(":")
    while True:
        for place in range(len(_SETTINGS)):
            setting = _SETTINGS[(place + options.first - 1) % len(_SETTINGS)]
            yield Setting(
                options.mode or setting.mode,
                options.backend or setting.backend,
                options.checkpoints == "aligned" if options.checkpoints else setting.aligned,
                options.interval or setting.interval,
                int(parallelism or setting.parallelism),
                int(rescaled or 0) if options.parallelism else setting.rescaled,
                timeout=60 if options.poison else 0,
                waits=options.waits,
            )


def _weights(text: str) -> dict[str, float]:
    pairs = (word.partition(":") for word in text.split(",") if word)
    return {kind: float(weight or 1) for kind, _, weight in pairs}


def _say(text: str) -> None:
    sys.stdout.write(f"{time.strftime('%H:%M:%S')} {text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
