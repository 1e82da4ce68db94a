"""Kills under load, for as long as you want: ``python -m tests.faults.soak --minutes 30``.

Without more options it goes through settings that differ in everything: sink, state backend, kind and interval of
checkpoints, parallelism before and after a savepoint. Each option that is given keeps its value.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence

from tests.faults.job import Setting
from tests.faults.plant import plant
from tests.faults.run import Load, go
from tests.passable import passable_folder

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
    parser.add_argument("--minutes", type=float, default=30, help="how long orders are sent, all runs together")
    parser.add_argument("--runs", type=int, default=0, help="how many runs share the time; 0: one in 5 minutes")
    parser.add_argument("--rate", type=float, default=35, help="orders in a second")
    parser.add_argument("--turns", type=int, default=0, help="orders of each run, whatever the rate")
    parser.add_argument("--keys", type=int, default=500)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1_000_000))
    parser.add_argument("--mode", choices=("exactly-once", "upsert"))
    parser.add_argument("--backend", choices=("rocksdb", "hashmap"))
    parser.add_argument("--checkpoints", choices=("aligned", "unaligned"))
    parser.add_argument("--interval", type=int, help="seconds between checkpoints")
    parser.add_argument("--parallelism", help="such as 4, or 1:4 for a rescaling from a savepoint in the middle")
    parser.add_argument(
        "--kill", default="worker:3,TaskManager:2,JobManager:1", help="what, and how often; '': nothing"
    )
    options = parser.parse_args(arguments)
    runs = options.runs or max(1, round(options.minutes / 5))
    _say(f"seed {options.seed}, {runs} runs of {options.minutes / runs:g} minutes")
    broken = 0
    total: Counter[str] = Counter()
    with passable_folder() as folder, plant(folder) as made:
        for number, setting in zip(range(runs), _settings(options), strict=False):
            seconds = options.minutes * 60 / runs
            pauses = (1, 5) if setting.interval < 10 else (5, 25)
            turns = options.turns or round(options.rate * seconds)
            load = Load(turns, min(options.keys, turns), seconds, _weights(options.kill), *pauses, options.kills)
            began = time.monotonic()
            _say(f"run {number + 1}: {setting}; {turns} turns over {load.keys} keys")
            verdict = go(made, setting, load, options.seed + number, _say)
            _say(f"{verdict}\n  in {time.monotonic() - began:.0f} s")
            total.update(verdict.counts)
            for (step, why), count in verdict.repeats.items():
                total[f"repeated {step}: {why}"] += count
            broken += len(verdict.broken)
    _say("all runs\n" + "\n".join(f"  {name:<75}{count:>8}" for name, count in total.items()))
    _say(f"promises broken: {broken} (seed {options.seed})")
    return 1 if broken else 0


def _settings(options: argparse.Namespace) -> Iterator[Setting]:
    parallelism, _, rescaled = (options.parallelism or "").partition(":")
    while True:
        for setting in _SETTINGS:
            yield Setting(
                options.mode or setting.mode,
                options.backend or setting.backend,
                options.checkpoints == "aligned" if options.checkpoints else setting.aligned,
                options.interval or setting.interval,
                int(parallelism or setting.parallelism),
                int(rescaled or 0) if options.parallelism else setting.rescaled,
            )


def _weights(text: str) -> dict[str, float]:
    pairs = (word.partition(":") for word in text.split(",") if word)
    return {kind: float(weight or 1) for kind, _, weight in pairs}


def _say(text: str) -> None:
    sys.stdout.write(f"{time.strftime('%H:%M:%S')} {text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
