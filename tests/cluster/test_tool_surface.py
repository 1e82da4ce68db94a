"""The whole tool surface on a real cluster: workers die in the middle of it, and jobs go on from a savepoint."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from flink_skills.testing import ScriptedModelServer
from tests.flink.desk_model import (
    DESK,
    LIBRARIAN,
    NOTES,
    Asked,
    DeskModel,
    desk_cases,
    session_of,
    value_of,
    write_desk_skills,
)
from tests.kit.cluster import StandaloneCluster, wait_until
from tests.kit.passable import passable_folder
from tests.kit.walking import files_below

pytestmark = pytest.mark.cluster

HERE = Path(__file__).parent
FRONT_DESK = HERE.parent / "flink" / "front_desk.py"

Point = tuple[str, str, int]
"""A request of a model: of which agent, in which case, the how manieth of the turn."""

# The arrivals that are cut in two, by the request that nobody gets an answer to. Before it, in this order: a skill is
# listed; loaded with a document; another document chosen; a file made and saved as an artifact; tools of the pool and
# of the skill called; another agent in the middle of its own work; a process left running.
CUT: dict[str, Point] = {
    "ada": (DESK, "arrival of ada", 2),
    "bob": (DESK, "arrival of bob", 4),
    "cyd": (DESK, "arrival of cyd", 5),
    "dan": (LIBRARIAN, "law for: arrival of dan", 1),
    "eve": (DESK, "arrival of eve", 7),
}


class Desk:
    """The job, what it is told, and what it says."""

    def __init__(self, cluster: StandaloneCluster, folder: Path) -> None:
        self.cluster = cluster
        self.folder = folder
        self.model = DeskModel(desk_cases("x"), self._before)
        self.server = ScriptedModelServer(self.model)
        self.skills, self.books = write_desk_skills(folder)
        self.job = ""
        self._placed = 0
        self._lock = threading.Lock()
        self._holds: set[Point] = set()
        self._held: set[Point] = set()
        for name in ("events", "new"):
            (folder / name).mkdir()

    def submit(self, savepoint: str | None = None) -> None:
        """Start the job."""
        self.job = self.cluster.submit(
            HERE / "job_desk.py",
            *("--events", str(self.folder / "events"), "--results", str(self.folder / "results")),
            *("--model-url", self.server.url, "--skills", str(self.skills), "--books", str(self.books)),
            *("--set", f"skills.artifacts.dir={(self.folder / 'artifacts').as_uri()}"),
            *("--set", "skills.worker.processes=1"),
            python_files=[FRONT_DESK],
            savepoint=savepoint,
        )
        self.cluster.wait(self.job, "RUNNING", 120)

    def place(self, case: str, names: Sequence[str]) -> list[str]:
        """One event for each name; returns the cases."""
        cases = [f"{case} of {name}" for name in names]
        files = {"files": [NOTES]} if case == "arrival" else {}
        lines = [json.dumps({"k": name, "case": of, **files}) for name, of in zip(names, cases, strict=True)]
        self._placed += 1
        new = self.folder / "new" / f"{self._placed}.txt"
        new.write_text("".join(f"{line}\n" for line in lines))
        new.rename(self.folder / "events" / new.name)
        return cases

    def answers(self) -> dict[str, dict[str, Any]]:
        """The committed records by case."""
        files = [file for file in (self.folder / "results").glob("*/part-*") if not file.name.startswith(".")]
        records = [json.loads(line) for file in files for line in file.read_text().splitlines()]
        assert [record["error"] for record in records if "error" in record] == []
        found = {record["case"]: record for record in records}
        assert len(found) == len(records), "an event was answered twice"
        return found

    def await_answers(self, cases: Sequence[str], deadline: float = 60) -> None:
        """Wait until all these cases have a committed answer."""
        wait_until(lambda: set(cases) <= set(self.answers()), deadline, f"the answers to {cases}")

    async def _before(self, asked: Asked) -> None:
        point = (asked.agent, asked.case, asked.step)
        with self._lock:
            if point not in self._holds:
                return
            self._held.add(point)
        await asyncio.Event().wait()  # until the client is gone

    def hold(self, points: Sequence[Point]) -> None:
        """Leave the next of these requests without an answer."""
        with self._lock:
            self._holds, self._held = set(points), set()

    def kill_worker(self) -> None:
        """Wait until all held requests are there and a checkpoint has what came before them, and end the worker."""
        wait_until(lambda: self._held == self._holds, 60, "the turns to come where they are cut in two")
        held_since = time.time()
        wait_until(
            lambda: any(checkpoint.triggered > held_since for checkpoint in self.cluster.checkpoints(self.job)),
            30,
            "a checkpoint in the middle of the turns",
        )
        with self._lock:
            self._holds = set()
        (worker,) = self.cluster.worker_pids()
        os.kill(worker, signal.SIGKILL)

    def results(self, case: str) -> list[Any]:
        """What the tools said in a turn, but for what no two turns have in common."""
        name = case.rpartition(" ")[2]
        said = [text.replace(f"of {name}", "of X") for text in self.model.of(DESK, case)[-1].results]
        same = [re.sub(r'"(duration_ms|session_id)": ?[^,}]+', r'"\1": "…"', text) for text in said]
        return [json.loads(text) if text.startswith(("{", "[")) else text for text in same]

    def saved(self) -> Counter[str]:
        """The artifacts: how often each path below its owner is there, with its content."""
        root = self.folder / "artifacts"
        return Counter(
            f"{'/'.join(path.relative_to(root).parts[1:])}: {path.read_text()}" for path in files_below(root)
        )

    def repeated(self) -> dict[Point, int]:
        """The requests that were made more than once."""
        made = Counter((asked.agent, asked.case, asked.step) for asked in self.model.asked)
        return {point: count for point, count in made.items() if count > 1}


@pytest.fixture(scope="module")
def desk(cluster: StandaloneCluster) -> Iterator[Desk]:
    with passable_folder() as folder:
        desk = Desk(cluster, folder)
        with desk.server:
            desk.submit()
            yield desk
            if cluster.state(desk.job) == "RUNNING":
                cluster.cancel(desk.job)


@pytest.mark.row("D6")
def test_a_worker_killed_after_any_step_changes_nothing_and_asks_nothing_again(desk: Desk) -> None:
    desk.await_answers(desk.place("arrival", ["calm"]))
    desk.await_answers(desk.place("return", ["calm"]))
    restarts = desk.cluster.restarts(desk.job)

    desk.hold(list(CUT.values()))
    cases = desk.place("arrival", list(CUT))
    desk.kill_worker()
    desk.await_answers(cases)
    for case in cases:
        assert desk.results(case) == desk.results("arrival of calm"), case
        assert desk.answers()[case]["turns"] == 1
    assert desk.repeated() == dict.fromkeys(CUT.values(), 2)

    # And in the next turn, which begins with what is loaded and saved: before anything, and after a tool.
    cut = [(DESK, "return of ada", 0), (DESK, "return of bob", 1), (DESK, "return of cyd", 2)]
    desk.hold(cut)
    cases = desk.place("return", ["ada", "bob", "cyd", "eve"])
    desk.kill_worker()
    desk.await_answers(cases)
    calm = desk.results("return of calm")
    for case in cases:
        wrote, *rest = desk.results(case)
        assert rest == calm[1:], case
        assert desk.answers()[case]["turns"] == 2
        # The process went with its worker: before the question of ada and eve, after that of bob and cyd.
        if case in ("return of ada", "return of eve"):
            session = session_of(desk.model.of(DESK, case)[0].told)
            assert value_of(json.dumps(wrote))["error"] == (
                f"unknown session_id '{session}': the process ended long ago, or its worker was restarted since: "
                "start it again."
            )
        else:
            assert wrote == calm[0]
    assert desk.repeated() == dict.fromkeys((*CUT.values(), *cut), 2)
    assert desk.cluster.restarts(desk.job) == restarts

    # Each version once for everybody, whatever was saved again.
    saved = desk.saved()
    assert set(saved.values()) == {1 + len(CUT)}
    assert any(name.endswith(": SOME NOTES\n") for name in saved)


@pytest.mark.row("D9")
def test_what_is_loaded_is_in_a_savepoint(desk: Desk) -> None:
    if "arrival of dan" not in desk.answers():
        desk.await_answers(desk.place("arrival", ["dan"]))
    savepoint = desk.cluster.stop_with_savepoint(desk.job)
    desk.submit(savepoint)
    (case,) = desk.place("return", ["dan"])
    desk.await_answers([case])
    first = desk.model.of(DESK, case)[0]
    assert {"weigh", "total", "find_city", "double", "whose"} <= first.tools
    for text in ("Body of the ledger.", "Guide to the ledger.", "Other things about the ledger."):
        assert text in first.system
    wrote, ran = desk.results(case)
    assert "start it again" in wrote["error"]
    assert ran["stdout"] == "SOME NOTES\n"
    assert desk.answers()[case]["turns"] == 2
