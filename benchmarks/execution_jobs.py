"""What is measured of commands, each by a process of its own: ``python -m benchmarks.execution_jobs NAME JSON``."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks import ways
from flink_skills import SkillConfig
from flink_skills.errors import SkillsError
from flink_skills.execution import WorkspaceManager, create_backend
from flink_skills.execution.backend_registry import settings_from
from flink_skills.execution.isolation.backend_choice import open_backend
from flink_skills.execution.workspace import Workspace
from flink_skills.execution.workspace.safe_files import remove_tree
from flink_skills.skill import load_folder

_WARM_UP = 3
_COMPUTES = "i=0; while [ $i -lt {turns} ]; do i=$((i+1)); done"


async def commands(request: dict[str, Any]) -> dict[str, Any]:
    """ms for one command, in rounds in which all ways take their turn; ``program`` says which command."""
    wanted = tuple(request["ways"])
    words = _words(request["program"])
    if not words:
        return dict.fromkeys(wanted, f"there is no {request['program']} that every user may run")
    with _folder() as folder:
        setting = ways.Ways(folder)
        try:
            found, skipped = await setting.open(wanted)
            times: dict[str, list[float]] = {name: [] for name in found}
            for number in range(request["rounds"] + _WARM_UP):
                for name, way in found.items():
                    began = time.perf_counter()
                    said = await ways.run(way, words)
                    took = time.perf_counter() - began
                    if said != 0:
                        raise SystemExit(f"{name}: {words}: {said}")
                    if number >= _WARM_UP:
                        times[name].append(took * 1e3)
        finally:
            await setting.close()
    return {name: skipped.get(name) or _beside(times[name], times[ways.PLAIN]) for name in wanted}


def _beside(times: list[float], plain: list[float]) -> dict[str, float]:
    """What is added is the median over the rounds, so that what disturbs a round counts for both."""
    middle = statistics.median(times)
    return {
        "ms": middle,
        "best_ms": min(times),
        "added_ms": statistics.median(ours - theirs for ours, theirs in zip(times, plain, strict=True)),
        "ratio": middle / statistics.median(plain),
    }


def _words(program: str) -> tuple[str, ...]:
    if program == "python":
        python = ways.program("python3")
        return (python, "-c", "pass") if python else ()
    if program == "shell loop":
        return ("sh", "-c", f"for i in 1 2 3 4 5 6 7 8 9 10; do {ways.program('true')}; done")
    return ("true",)


async def parallel(request: dict[str, Any]) -> dict[str, Any]:
    """Seconds for ``count`` commands at once that only compute, beside what all processors could do at best."""
    count, cores = request["count"], len(os.sched_getaffinity(0))
    words = ("sh", "-c", _COMPUTES.format(turns=request["turns"]))
    result: dict[str, Any] = {}
    with _folder() as folder:
        setting = ways.Ways(folder)
        try:
            found, skipped = await setting.open(tuple(request["ways"]))
            result.update(skipped)
            for name, way in found.items():
                began = time.perf_counter()
                await ways.run(found[ways.PLAIN], words)
                alone = time.perf_counter() - began
                began = time.perf_counter()
                said = await asyncio.gather(*(ways.run_beside(way, words) for _ in range(count)))
                took = time.perf_counter() - began
                if any(said):
                    raise SystemExit(f"{name}: {said}")
                ideal = max(alone, count * alone / cores)
                result[name] = {"seconds": took, "ideal_seconds": ideal, "share_of_ideal": ideal / took}
        finally:
            await setting.close()
    return {name: result[name] for name in request["ways"]}


async def concurrent(request: dict[str, Any]) -> dict[str, Any]:
    """ms of elapsed time for each of many commands, ``count`` of which run at the same time.

    In rounds of ``commands`` commands in which all ways take their turn.
    """
    count, rounds = request["count"], request["rounds"]
    each = request["commands"] // count
    words = ("true",)
    with _folder() as folder:
        setting = ways.Ways(folder)
        try:
            found, skipped = await setting.open(tuple(request["ways"]))
            times: dict[str, list[float]] = {name: [] for name in found}

            async def run(name: str) -> None:
                for _ in range(each):
                    said = await ways.run_beside(found[name], words)
                    if said != 0:
                        raise SystemExit(f"{name}: {said}")

            for number in range(rounds + 1):
                for name in found:
                    began = time.perf_counter()
                    await asyncio.gather(*(run(name) for _ in range(count)))
                    took = (time.perf_counter() - began) * 1e3 / (each * count)
                    if number:  # the first one warms up
                        times[name].append(took)
        finally:
            await setting.close()
    return {name: skipped.get(name) or _beside(times[name], times[ways.PLAIN]) for name in request["ways"]}


async def opening(request: dict[str, Any]) -> dict[str, Any]:
    """ms from nothing to a backend that has proved its level, and of that the start alone."""
    result: dict[str, Any] = {}
    with _folder() as folder:
        for name in request["backends"]:
            config = SkillConfig({"skills.shell.backend": name, "skills.shell.min-isolation": "HYGIENE"})
            workspaces = WorkspaceManager(folder / name, user=ways.USER)
            proved, started = [], []
            try:
                for _ in range(request["rounds"]):
                    began = time.perf_counter()
                    backend, report = await open_backend(config, workspaces)
                    proved.append((time.perf_counter() - began) * 1e3)
                    await backend.close()
                    if name != "auto":
                        backend = create_backend(name, settings_from(config))
                        began = time.perf_counter()
                        await backend.start()
                        started.append((time.perf_counter() - began) * 1e3)
                        await backend.close()
            except SkillsError as error:
                result[name] = str(error)[:300]
                continue
            finally:
                await asyncio.to_thread(workspaces.close)
            result[name] = {"level": report.level.name, "ms": statistics.median(proved)}
            if started:
                result[name]["start_ms"] = statistics.median(started)
    return result


async def staging(request: dict[str, Any]) -> dict[str, Any]:
    """ms to have a skill in a workspace, and how much disk all of them take together."""
    skill = load_folder(request["skill"]).skill
    if skill is None or not skill.digest:  # taken once, when a source is loaded
        raise SystemExit(f"{request['skill']} is no skill")
    keys = request["keys"]
    result: dict[str, Any] = {}
    with _folder() as folder:
        copied = []
        for number in range(request["rounds"]):
            began = time.perf_counter()
            shutil.copytree(request["skill"], folder / f"copy-{number}")
            copied.append((time.perf_counter() - began) * 1e3)
        result["shutil.copytree"] = {"first_ms": statistics.median(copied)}
        for name, share in (("views of one copy", True), ("a copy for each key", False)):
            first, later, other = [], [], []
            for number in range(request["rounds"]):
                manager = WorkspaceManager(folder / f"{share}-{number}", user=ways.USER, share_files=share)
                found = [manager.for_key(f"{key}") for key in range(keys)]
                for workspace in found:
                    workspace.ensure()
                first.append(_ms(partial(found[0].stage, skill)))
                other += [_ms(partial(workspace.stage, skill)) for workspace in found[1:]]
                later += [_ms(partial(workspace.stage, skill)) for workspace in found]
                size = _bytes_on_disk(manager.root)
                manager.close()
            result[name] = {
                "first_ms": statistics.median(first),
                "later_ms": statistics.median(later),
                "other_key_ms": statistics.median(other),
                "disk_mb": size / 1e6,
            }
    return result


async def workspaces(request: dict[str, Any]) -> dict[str, Any]:
    """µs for what a turn does with its workspace."""
    event = json.dumps({"reading": list(range(150))}).encode()
    with _folder() as folder:
        manager = WorkspaceManager(folder / "workspaces", user=ways.USER)
        times: dict[str, list[float]] = {}

        def take(name: str, action: Callable[[], Any]) -> None:
            times.setdefault(name, []).append(_ms(action) * 1e3)

        for number in range(request["rounds"]):
            workspace = manager.for_key(f"{number}")
            take("make it", workspace.ensure)
            take("find it made", workspace.ensure)
            take("write an event of 1 KB", partial(workspace.write_event, event))
            take("write another", partial(workspace.write_event, event))
            take("folder and variables of a command", partial(_run, workspace))
            take("remove it", workspace.remove)
            take("nine folders, by mkdir alone", partial(_plain_folders, folder / f"plain-{number}"))
        manager.close()
    return {name: statistics.median(of) for name, of in times.items()}


def _run(workspace: Workspace) -> None:
    run_dir = workspace.new_run()
    workspace.env(None, "call", run_dir)
    workspace.end_run(run_dir)


def _plain_folders(root: Path) -> None:
    for name in ("", "skills", "work", "work/inputs", "out", "runs", "tmp", "home", "runs/run"):
        (root / name).mkdir()


def _ms(action: Callable[[], Any]) -> float:
    began = time.perf_counter()
    action()
    return (time.perf_counter() - began) * 1e3


def _bytes_on_disk(folder: Path) -> int:
    found = {}
    for path in folder.rglob("*"):
        about = path.lstat()
        found[about.st_ino] = about.st_blocks * 512
    return sum(found.values())


@contextmanager
def _folder() -> Iterator[Path]:
    """A new folder that the user of commands can pass through."""
    folder = Path(tempfile.mkdtemp(prefix="flink-skills-bench-"))
    folder.chmod(0o711)
    try:
        yield folder
    finally:
        remove_tree(folder)


JOBS = {
    "commands": commands,
    "parallel": parallel,
    "concurrent": concurrent,
    "opening": opening,
    "staging": staging,
    "workspaces": workspaces,
}

if __name__ == "__main__":
    print("RESULT " + json.dumps(asyncio.run(JOBS[sys.argv[1]](json.loads(sys.argv[2])))))
