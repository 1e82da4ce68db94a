"""The verdict on a run: which promises broke, and why each repeated call was allowed."""

from __future__ import annotations

import itertools
import re
import statistics
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.faults.chaos import LONGEST_PAUSE, PAUSE, Kill
from tests.faults.ledger import Attempt, steps
from tests.faults.restores import Restore
from tests.faults.topics import Row

__all__ = ["MARGIN", "Verdict", "judge"]

# The next step of a turn shows that the answer to the one before had come into the worker. From there to the journal in
# Flink's state it is a pipe: far less than this, unless the machine has more to do than it can.
MARGIN = 1.0
# Without a next step nobody knows. So long it may take a worker that has just started, on a busy machine.
UNSEEN = 5.0
# What is killed may finish what it was doing, and the time is noted before the kill.
LAST_BREATH = 0.5

# After so long a death is known to all, and a JobManager is back, on a busy machine too.
NOTICED = 60.0
# No death of a TaskManager excuses these.
_OURS = re.compile(r"\borg\.flinkskills\.")
# But for this one: a worker that cannot be started fails the task, and the chooser may hit each that is starting.
_NEVER_READY = re.compile(r"exited (\d+) times in a row before it (?:was ready|had a turn to run): exit code 137\b")

_LOST = "has no output"
_UNDONE = "was never done"

OPEN = "was open when something was killed"
ON_THE_WAY = "answered just before a worker was killed"
NOT_IN_CHECKPOINT = "answered after the checkpoint that the job went on from"
NO_CHECKPOINT = "the job went on from its beginning, there was no checkpoint"


@dataclass
class Verdict:
    """``broken`` has a line for each break of a promise; ``repeats`` counts the repeated calls by step and reason,
    ``causes`` the restores by what failed before them. ``unfinished`` tells of a run that was given up, ``kept`` where
    its logs are."""

    counts: dict[str, int] = field(default_factory=dict)
    repeats: Counter[tuple[str, str]] = field(default_factory=Counter)
    causes: Counter[str] = field(default_factory=Counter)
    outages: dict[str, list[float]] = field(default_factory=dict)
    broken: list[str] = field(default_factory=list)
    unfinished: list[str] = field(default_factory=list)
    kept: Path | None = None

    def add(self, other: Verdict) -> None:
        """Count what another run brought as well."""
        for name, count in other.counts.items():
            self.counts[name] = self.counts.get(name, 0) + count
        self.repeats += other.repeats
        self.causes += other.causes
        for kind, seconds in other.outages.items():
            self.outages.setdefault(kind, []).extend(seconds)
        self.broken += other.broken

    def __str__(self) -> str:
        """A table."""
        lines = [f"  {name:<40}{count:>8}" for name, count in self.counts.items()]
        for (step, why), count in sorted(self.repeats.items()):
            lines.append(f"  repeated {step:<10} {count:>6}  {why}")
        lines += [f"  restored {count:>15}  {why}" for why, count in sorted(self.causes.items())]
        for kind, seconds in sorted(self.outages.items()):
            times = f"{statistics.median(seconds):.1f} s median, {max(seconds):.1f} s at worst"
            lines.append(f"  a {kind} killed, until the job ran again: {times}, of {len(seconds)}")
        lines += [f"  BROKEN: {line}" for line in self.broken[:50]]
        lines += [f"  NOT FINISHED: {line}" for line in self.unfinished]
        lines += [f"  logs and books: {self.kept}"] if self.kept is not None else []
        return "\n".join([*lines, f"  promises broken: {len(self.broken)}"])


def judge(
    orders: Sequence[str],
    rows: Sequence[Row],
    attempts: Sequence[Attempt],
    kills: Sequence[Kill],
    restores: Sequence[Restore],
    *,
    upsert: bool,
    ended: bool = True,
) -> Verdict:
    """Judge one run. ``orders`` are the ids of all that were sent; ``rows`` are the committed outputs.

    In a run that has not ``ended``, orders without an output, and steps that were never done, are none that are lost.
    """
    verdict = Verdict()
    _output(verdict, orders, rows, upsert)
    _steps(verdict, orders, attempts, kills, restores)
    if not ended:
        verdict.counts["not committed yet"] = verdict.counts.pop("lost")
        verdict.broken = [line for line in verdict.broken if not line.endswith((_LOST, _UNDONE))]
    kinds = Counter(kill.kind for kill in kills if kill.chosen)
    verdict.counts |= {f"kills of a {kind}": count for kind, count in sorted(kinds.items())}
    _restores(verdict, kills, restores)
    return verdict


def _restores(verdict: Verdict, kills: Sequence[Kill], restores: Sequence[Restore]) -> None:
    """A job is restored only because a TaskManager or the JobManager died, never by a fault of the agent's operator;
    or because workers were killed again and again while they started."""
    for kill in kills:
        if kill.stops_job and kill.back is not None:
            verdict.outages.setdefault(kill.kind, []).append(kill.back - kill.at)
    restarts = [restore for restore in restores if not restore.planned]
    unexplained = 0
    for restore in restarts:
        cause = restore.cause or "no task had failed: the JobManager was started"
        verdict.causes[_without_names(cause)] += 1
        at = restore.failed or restore.at
        near = [kill for kill in kills if at - NOTICED <= kill.at <= at + LAST_BREATH]
        if match := _NEVER_READY.search(restore.cause):
            killed = sum(kill.kind == "worker" for kill in near) >= int(match[1])
        else:
            killed = any(kill.stops_job for kill in near) and not _OURS.search(restore.cause)
        if not killed:
            unexplained += 1
            story = _story(at - NOTICED, restore.at, kills, ())
            verdict.broken.append(
                f"the job was restored at {restore.at:.3f} without a kill as its reason: {cause}; {story}"
            )
    verdict.counts["restores from a checkpoint"] = sum(restore.number > 0 for restore in restarts)
    verdict.counts["restores from the beginning"] = sum(restore.number == 0 for restore in restarts)
    verdict.counts["restores without a kill"] = unexplained


def _without_names(cause: str) -> str:
    """The same for all failures of a kind: without numbers and ids."""
    return re.sub(r"[0-9a-f]{32}\w*|\d+", "#", cause)[:150]


def _output(verdict: Verdict, orders: Sequence[str], rows: Sequence[Row], upsert: bool) -> None:
    made = Counter(row.value["id"] for row in rows)
    lost = [order for order in orders if order not in made]
    twice = [order for order, count in made.items() if count > 1]
    strange = made.keys() - set(orders)
    verdict.counts |= {
        "turns": len(orders),
        "committed rows": len(rows),
        "lost": len(lost),
        "rows written again (upsert)" if upsert else "twice": sum(made[order] - 1 for order in twice),
    }
    verdict.broken += [f"order {order} {_LOST}" for order in lost]
    verdict.broken += [f"an output of order {order}, which nobody sent" for order in sorted(strange)]
    if not upsert:
        verdict.broken += [f"order {order} has {made[order]} outputs" for order in twice]
    _order_per_key(verdict, orders, rows, upsert)


def _order_per_key(verdict: Verdict, orders: Sequence[str], rows: Sequence[Row], upsert: bool) -> None:
    of_key: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        of_key[row.value["customer"]].append(row)
        order, place = row.value["id"], int(row.value["id"].rpartition("-")[2])
        done = f"{order} is in stock" if "command" in steps(order) else f"reserved {order}"
        # The runtime's number of the turn, and the agent's own count in its state.
        if (row.value["turn"], row.value["number"]) != (place, place) or done not in row.value["answer"]:
            verdict.broken.append(f"order {order} has the output {row.value}")
    disordered = 0
    last = {order.rpartition("-")[0]: order for order in orders}
    for customer, found in of_key.items():
        if len({row.partition for row in found}) > 1:
            verdict.broken.append(f"customer {customer} is in more than one partition")
        written = [row.value["id"] for row in sorted(found, key=lambda row: row.offset)]
        places = [int(order.rpartition("-")[2]) for order in written]
        if upsert:
            # What is written again begins anew at an earlier place, and goes on one by one from there.
            in_order = all(after <= before + 1 for before, after in itertools.pairwise([0, *places]))
            in_order = in_order and written[-1] == last.get(customer)
        else:
            in_order = places == list(range(1, len(places) + 1))
        if not in_order:
            disordered += 1
            verdict.broken.append(f"outputs of customer {customer} are in the order {places}")
    verdict.counts["keys"] = len(of_key)
    verdict.counts["keys out of order"] = disordered


def _steps(
    verdict: Verdict,
    orders: Sequence[str],
    attempts: Sequence[Attempt],
    kills: Sequence[Kill],
    restores: Sequence[Restore],
) -> None:
    made: dict[tuple[str, str], list[Attempt]] = defaultdict(list)
    for attempt in attempts:
        made[attempt.order, attempt.step].append(attempt)
    for kind, prefix in (("model calls", "model"), ("tool calls", "reserve"), ("commands", "command")):
        verdict.counts[kind] = sum(attempt.step.startswith(prefix) for attempt in attempts)
    for order in orders:
        verdict.broken += [
            f"step {step} of order {order} {_UNDONE}" for step in steps(order) if (order, step) not in made
        ]
    ends = _ends(attempts)
    repeated = 0
    for (order, step), tries in made.items():
        if len({attempt.call_id for attempt in tries}) > 1:
            verdict.broken.append(f"step {step} of order {order} had call ids {[t.call_id for t in tries]}")
        for before, again in itertools.pairwise(tries):
            repeated += 1
            why = _allowed(before, ends[id(before)], again, kills, restores)
            if why is not None:
                verdict.repeats[step.split()[0], why] += 1
                continue
            near = _story(before.received, again.received, kills, restores)
            verdict.broken.append(
                f"step {step} of order {order} again: asked {before.received:.3f}, "
                f"answered {before.answered or 0:.3f}, asked again {again.received:.3f}; between: {near}"
            )
    verdict.counts["repeated calls"] = repeated


def _ends(attempts: Iterable[Attempt]) -> dict[int, float | None]:
    """When the answer of each attempt had come into the worker, at the latest; None: nobody knows that it did.

    That is when the next step of the turn was asked for. Without one, some time after a model's answer was sent.
    """
    ends: dict[int, float | None] = {}
    last: dict[tuple[str, str], Attempt] = {}
    for attempt in attempts:
        ends[id(attempt)] = None if attempt.answered is None else attempt.answered + UNSEEN
        if not attempt.step.startswith("model"):
            ends[id(attempt)] = None
        last[attempt.order, attempt.step] = attempt
        place = steps(attempt.order).index(attempt.step)
        if place > 0 and (before := last.pop((attempt.order, steps(attempt.order)[place - 1]), None)):
            end = ends[id(before)]
            ends[id(before)] = attempt.received if end is None else min(end, attempt.received)
    return ends


def _allowed(
    before: Attempt, end: float | None, again: Attempt, kills: Sequence[Kill], restores: Sequence[Restore]
) -> str | None:
    """Why a step may have been asked for once more; None: it may not."""
    between = [restore for restore in restores if before.received < restore.at <= again.received]
    killed = [kill.at for kill in kills if before.received - LAST_BREATH <= kill.at <= again.received]
    if end is None or before.answered is None or before.answered >= again.received:
        return OPEN if killed or between else None
    if any(restore.number == 0 for restore in between):
        return NO_CHECKPOINT
    if any(restore.triggered - MARGIN <= end for restore in between):
        return NOT_IN_CHECKPOINT
    workers = {kill.at for kill in kills if kill.ends_worker}
    if any(at <= end + MARGIN for at in killed if at in workers):
        return ON_THE_WAY
    # A process that was stopped then has read the answer only after it continued.
    pauses = [kill.at for kill in kills if kill.kind == PAUSE and before.received <= kill.at <= end + MARGIN]
    cuts = [at for at in killed if at in workers] + [restore.triggered for restore in between]
    if any(pause < cut <= pause + LONGEST_PAUSE + MARGIN for pause in pauses for cut in cuts):
        return ON_THE_WAY
    return None


def _story(begin: float, end: float, kills: Sequence[Kill], restores: Sequence[Restore]) -> str:
    """What happened between, for a person to read."""
    events: Mapping[float, str] = {
        **{kill.at: f"{kill.kind} {kill.name} killed" for kill in kills},
        **{r.at: f"restored from checkpoint {r.number}, triggered {r.triggered:.3f}" for r in restores},
    }
    told = [f"{at:.3f} {what}" for at, what in sorted(events.items()) if begin - MARGIN <= at <= end]
    return "; ".join(told) or "nothing"
