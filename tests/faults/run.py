"""One run: orders through a job while things die, and the verdict on it."""

from __future__ import annotations

import itertools
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.faults.chaos import Chaos
from tests.faults.evidence import keep, state
from tests.faults.job import Setting, submit
from tests.faults.ledger import Attempt
from tests.faults.people import People, is_about_answer, unreported, wrong_questions
from tests.faults.plant import Plant
from tests.faults.poison import is_poison, losses, mixed, poisons, problems
from tests.faults.restores import restores
from tests.faults.topics import Feed, Reader, Row, orders
from tests.faults.verdict import Verdict, judge
from tests.kit.cluster import ClusterError, wait_until

__all__ = ["Load", "go"]

_NUMBERS = itertools.count(1)
_TELL_SECONDS = 30


@dataclass(frozen=True)
class Load:
    """``turns`` over ``keys`` within ``seconds``, and what :class:`Chaos` does; without weights: nothing.

    With ``ahead`` no more than so many orders are sent whose output is not committed, and no more are sent after
    ``seconds``: a machine that is slower than the rate gets fewer turns, not a longer run. Kills end then as well.
    Without it all turns are sent, and ``most`` kills are made in any case.
    """

    turns: int
    keys: int
    seconds: float
    weights: Mapping[str, float]
    shortest: float = 1
    longest: float = 5
    most: int = 0
    ahead: int = 0
    # After the last order was sent. Transactions of a job that died hold up readers until the broker ends them.
    patience: float = 600
    # In a second; 0: all turns within the seconds.
    rate: float = 0
    # How many orders are sent besides that break the worker they run in.
    poison: int = 0
    # People begin to answer when so many turns wait. A rescaling is before their first answer.
    held: int = 0


def go(
    plant: Plant,
    setting: Setting,
    load: Load,
    seed: int,
    say: Callable[[str], object] = lambda text: None,
    evidence: Path | None = None,
) -> Verdict:
    """Run it. The job is stopped with a savepoint at the end, and leaves neither process nor folder.

    A run that does not come to its end in time, or whose job fails, has a verdict as well: on what there is, with
    ``unfinished`` for what hangs; its job is cancelled. ``say`` is told every half a minute how far it is. With
    ``evidence``, logs and books are kept in that folder unless all went well.
    """
    name = f"r{next(_NUMBERS)}"
    broker = plant.broker
    broker.topics(*(f"{name}-{topic}" for topic in ("orders", "packed", "failures", "questions", "answers")))
    with (
        Reader(broker.address, f"{name}-packed") as reader,
        Reader(broker.address, f"{name}-failures") as failures,
        Reader(broker.address, f"{name}-questions") as questions,
        People(broker.address, f"{name}-answers", questions) as people,
        Chaos(
            plant.cluster, seed, shortest=load.shortest, longest=load.longest, weights=load.weights, most=load.most
        ) as chaos,
    ):
        run = _Run(name, plant, setting, load, reader, failures, chaos, say, people)
        unfinished: list[str] = []
        try:
            run.send_all()
            run.stop()
        except (ClusterError, AssertionError) as error:
            chaos.end()
            unfinished = [str(error), *state(plant.cluster, run.job, reader)]
        verdict = run.verdict(ended=not unfinished)
        if setting.waits:
            verdict.counts["questions"] = sum(row.value["status"] == "open" for row in questions.rows())
            verdict.broken += wrong_questions(run.sent(), questions.rows())
            verdict.broken += unreported(people.tricks, failures.rows())
            verdict.counts |= {f"{trick} answers": of for trick, of in Counter(people.tricks.values()).items()}
        verdict.unfinished = list(unfinished)
        if unfinished:
            verdict.unfinished += run.missing()
            verdict.broken.append("the run did not come to its end")
        if verdict.broken and evidence is not None:
            keep(evidence / name, verdict, plant, run.job_file, reader.rows(), run.attempts(), chaos.kills)
            verdict.kept = evidence / name
        if unfinished:
            run.give_up()
    return verdict


class _Run:
    """What belongs to one run."""

    def __init__(
        self,
        name: str,
        plant: Plant,
        setting: Setting,
        load: Load,
        reader: Reader,
        failures: Reader,
        chaos: Chaos,
        say: Callable[[str], object],
        people: People,
    ) -> None:
        self.job: str | None = None
        self.job_file = plant.folder / f"{name}.yaml"
        self._name = name
        self._plant = plant
        self._setting = setting
        self._load = load
        self._reader = reader
        self._failures = failures
        self._chaos = chaos
        self._say = say
        self._people = people
        self._jobs: set[str] = set()
        self._todo = mixed(orders(name, load.turns, load.keys), poisons(name, load.poison))
        # A cluster has one log for all its runs.
        self._log_from = len(plant.cluster.log())
        seconds = load.seconds if load.ahead else None
        rate = load.rate or load.turns / load.seconds
        self._feed = Feed(plant.broker.address, f"{name}-orders", self._todo, rate, seconds)
        self._told = time.monotonic()

    def send_all(self) -> None:
        """Returns when the output of every order is committed and the chooser has ended."""
        self._submit(self._setting.parallelism)
        self._plant.cluster.wait(str(self.job), "RUNNING", 120)
        self._aim()
        patience = self._load.seconds + self._load.patience
        with self._feed as feed:
            if self._load.held:
                wait_until(lambda: self._held() >= self._load.held, patience, f"{self._load.held} turns that wait")
                if self._setting.rescaled:
                    self._rescale()
            self._people.release()
            if self._setting.rescaled and not self._load.held:
                half, middle = len(self._todo) // 2, time.monotonic() + self._load.seconds / 2
                wait_until(
                    lambda: self._committed() >= half or (self._load.ahead and time.monotonic() > middle),
                    patience,
                    f"half of {len(self._todo)} outputs",
                )
                self._rescale()
            wait_until(
                lambda: self._committed() >= self._wanted() and self._struck(), patience, "the outputs of all orders"
            )
            feed.end()
            wait_until(
                lambda: not unreported(dict(self._people.tricks), self._failures.rows()),
                patience,
                "the error records of answers",
            )
        self._chaos.end()
        self._chaos.check()

    def _wanted(self) -> int:
        """How many outputs there must be; while it is not known how many are sent, more than there can be."""
        if not self._feed.is_alive():
            if self._load.ahead:
                self._chaos.pause()
            return self._feed.sent
        return len(self._todo)

    def _struck(self) -> bool:
        """Whether all kills were made that a run with a fixed number of orders is to have."""
        return self._load.ahead > 0 or len(self._chaos.kills) >= self._load.most

    def stop(self) -> None:
        """Stop the job with a savepoint: nothing of it is left."""
        cluster = self._plant.cluster
        self._chaos.job = self.job
        self._chaos.await_running()
        cluster.stop_with_savepoint(str(self.job), deadline=120)
        wait_until(lambda: not cluster.worker_pids(), 30, "the agent workers to end with the job")
        wait_until(lambda: not cluster.temporary_folders(), 30, "the temporary folders to go with the job")
        wait_until(
            lambda: self._reader.at_end() and self._failures.at_end(),
            self._load.patience,
            "the readers to be at the end",
        )

    def give_up(self) -> None:
        """Cancel the job, so that the next run has the cluster for itself."""
        try:
            if self.job is not None:
                self._plant.cluster.cancel(self.job, 60)
        except ClusterError as error:
            self._say(f"job {self.job} could not be cancelled: {error}")

    def sent(self) -> list[str]:
        """Return the orders that were sent, without those that break a worker."""
        return [order for order, _ in self._todo[: self._feed.sent] if not is_poison(order)]

    def verdict(self, *, ended: bool) -> Verdict:
        """On what there is."""
        sent = [order for order, _ in self._todo[: self._feed.sent]]
        # What a worker that ended by itself had not sent is repeated, as after a kill.
        lost = losses(self._plant.cluster.folder / "logs", self._jobs) if self._load.poison else []
        kills = sorted([*self._chaos.kills, *lost], key=lambda kill: kill.at)
        verdict = judge(
            self.sent(),
            self._reader.rows(),
            self.attempts(),
            kills,
            restores(self._plant.cluster.log()[self._log_from :], self._jobs),
            upsert=self._setting.mode == "upsert",
            ended=ended,
        )
        failures = [row.value for row in self._ended_in_errors()]
        found = problems(sent if ended else [row["id"] for row in failures], failures)
        verdict.broken += found
        verdict.counts["poison"] = sum(map(is_poison, sent))
        verdict.counts["ends of workers, with kills"] = len(lost)
        return verdict

    def _ended_in_errors(self) -> list[Row]:
        """Return the error records of turns."""
        return [row for row in self._failures.rows() if not is_about_answer(row)]

    def attempts(self) -> list[Attempt]:
        """What the far end was asked."""
        return self._plant.ledger.attempts(self._name)

    def missing(self) -> list[str]:
        """Where the first orders without an output are, by what the far end saw of them last."""
        there = {row.value["id"] for row in self._reader.rows()}
        last = {attempt.order: attempt for attempt in self.attempts()}
        there |= {row.value["id"] for row in self._ended_in_errors()}
        found = [order for order, _ in self._todo[: self._feed.sent] if order not in there]
        firsts = list({order.rpartition("-")[0]: order for order in reversed(found)}.values())
        lines = [f"{self._feed.sent} orders sent, {len(found)} without an output, of {len(firsts)} customers"]
        for order in firsts[:-11:-1]:
            if (attempt := last.get(order)) is None:
                lines.append(f"  {order}: the far end has seen nothing of it")
            else:
                answered = "no answer" if attempt.answered is None else "answered"
                lines.append(f"  {order}: {attempt.step} at {_clock(attempt.received)}, {answered}")
        return lines

    def _submit(self, parallelism: int, savepoint: str | None = None) -> None:
        self.job = submit(
            self._plant.cluster,
            self.job_file,
            self._setting,
            self._plant.broker.address,
            self._name,
            parallelism=parallelism,
            savepoint=savepoint,
        )
        self._jobs.add(self.job)

    def _aim(self) -> None:
        self._chaos.job = self.job if any(self._load.weights.values()) else None

    def _rescale(self) -> None:
        self._chaos.job = self.job
        with self._chaos.quiet():
            savepoint = self._plant.cluster.stop_with_savepoint(str(self.job), deadline=120)
            self._submit(self._setting.rescaled, savepoint)
            self._chaos.job = self.job
            self._chaos.await_running()
            self._aim()

    def _held(self) -> int:
        self._committed()
        return self._people.open()

    def _committed(self) -> int:
        self._chaos.check()
        # Also an error record is an end of a turn.
        ends = (*self._reader.rows(), *self._ended_in_errors())
        found = len({row.value["id"] for row in ends})
        if self._load.ahead:
            self._feed.limit = found + self._load.ahead
        if time.monotonic() > self._told + _TELL_SECONDS:
            self._told = time.monotonic()
            waiting = f", {self._people.open()} turns wait" if self._setting.waits else ""
            self._say(f"{self._feed.sent} sent, {found} committed, {len(self._chaos.kills)} kills so far{waiting}")
        return found


def _clock(at: float) -> str:
    return time.strftime("%H:%M:%S", time.localtime(at))
