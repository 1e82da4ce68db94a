"""What is measured of skills, each by a process of its own: ``python -m benchmarks.skill_jobs NAME JSON``."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import statistics
import sys
import tempfile
import time
import tracemalloc
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import psutil

from benchmarks import corpus, peers
from flink_skills import AgentSkillManager, SkillConfig
from flink_skills.manager import SkillView
from flink_skills.skill import Limits, Report, load_folder
from flink_skills.skill.frontmatter import find_block, read_front_matter
from flink_skills.skill.yaml_values import read_mapping
from flink_skills.tools import ToolContext, ToolServices
from flink_skills.tools.skills.skill_loading import LoadSkill

ROUNDS = 5
#: Ten thousand skills in one source are more than the default limits allow.
OPTIONS = {
    "skills.limits.tree-directories": 100_000,
    "skills.limits.entries": 200_000,
    "skills.limits.download": "256 mb",
    "skills.limits.total": "512 mb",
}


def catalog(request: dict[str, Any]) -> dict[str, Any]:
    """Seconds from the declared source to the catalog; ``memory`` says what to look at besides."""
    with tempfile.TemporaryDirectory(prefix="flink-skills-bench-") as folder:
        _warm_up(Path(folder), archive=request["source"].endswith(".zip"))
    manager = _manager(request["source"], request["store"])
    gc.collect()
    before = psutil.Process().memory_info().rss
    if request["memory"] == "traced":
        tracemalloc.start()
    began = time.perf_counter()
    skills = manager.load_skills()
    seconds = time.perf_counter() - began
    if len(skills) != request["skills"]:
        raise SystemExit(f"{len(skills)} skills, first of all: {manager.diagnostics[:3]}")
    gc.collect()
    if request["memory"] == "traced":
        current, peak = tracemalloc.get_traced_memory()
        return {"traced_mb": current / 2**20, "traced_peak_mb": peak / 2**20}
    resident = psutil.Process().memory_info().rss - before
    return {"seconds": seconds, "us_per_skill": seconds / len(skills) * 1e6, "resident_mb": resident / 2**20}


def served(request: dict[str, Any]) -> dict[str, Any]:
    """Seconds from a source behind a server to the catalog: with an empty store, and later with the pins of a plan."""
    options = {**OPTIONS, "skills.source.allow-http": True, "skills.source.allow-private": True}
    config = SkillConfig({**options, "skills.source.timeout": "120 s"})
    for url in (request["warm"], request["url"]):
        first = AgentSkillManager(urls=[url], config=config, store_dir=request["store"])
        seconds = _loaded(first)
    if len(first.load_skills()) != request["skills"]:
        raise SystemExit(f"{len(first.load_skills())} skills: {first.failures or first.diagnostics[:3]}")
    later = AgentSkillManager.from_scopes(first.pinned_scopes(), config=config, store_dir=request["store"])
    return {"first_s": seconds, "later_s": _loaded(later)}


def _loaded(manager: AgentSkillManager) -> float:
    began = time.perf_counter()
    manager.load_skills()
    return time.perf_counter() - began


def parse(request: dict[str, Any]) -> dict[str, Any]:
    """µs for one front matter: text to values."""
    limits = Limits()
    files = [(path / "SKILL.md").read_bytes() for path in _folders(request["source"])]
    texts = [data.decode() for data in files]
    blocks = [text.split("\n---\n", 1)[0].removeprefix("---\n") for text in texts]
    odd = [block.replace("Use when", "Use when: even", 1).replace('"', "") for block in blocks]

    def ours(data: bytes) -> Any:
        report = Report()
        block = find_block(data, report, limits)
        fields = read_front_matter(block, report, limits) if block else None
        if fields is None or "description" not in fields:
            raise SystemExit(f"no description: {report.diagnostics}")
        return fields

    def events(text: str) -> Any:
        return read_mapping(text, limits.yaml_depth, lambda *_: None)

    readers: dict[str, Callable[[], Any] | str] = {
        "flink_skills": lambda: _each(ours, files),
        "flink_skills, all through YAML events": _bound(events, blocks),
        "flink_skills, a value to repair": lambda: _each(ours, [f"---\n{block}\n---\n".encode() for block in odd]),
    }
    for name, reader in peers.yaml_readers().items():
        readers[name] = reader if isinstance(reader, str) else _bound(reader, blocks)
    reference = peers.reference()
    readers["skills-ref, parse_frontmatter"] = (
        reference if isinstance(reference, str) else _bound(reference.parse_frontmatter, texts)
    )
    return _side_by_side(readers, len(files))


def entry(request: dict[str, Any]) -> dict[str, Any]:
    """µs from a folder to a catalog entry, the reading of the file alone, and the difference."""
    folders = [str(path) for path in _folders(request["source"])]
    root = os.path.realpath(request["source"])
    size = Limits().front_matter + 64

    def load(folder: str) -> None:
        if load_folder(folder, root=root, skill_file="SKILL.md").skill is None:
            raise SystemExit(f"not loaded: {folder}")

    def read(folder: str) -> None:
        descriptor = os.open(f"{folder}/SKILL.md", os.O_RDONLY | os.O_CLOEXEC)
        os.fstat(descriptor)
        os.read(descriptor, size)
        os.close(descriptor)

    reference = peers.reference()
    readers: dict[str, Callable[[], Any] | str] = {
        "flink_skills, file to entry": lambda: _each(load, folders),
        "reading the file alone": lambda: _each(read, folders),
        "skills-ref, read_properties": reference
        if isinstance(reference, str)
        else _bound(reference.read_properties, [Path(folder) for folder in folders]),
    }
    found = _side_by_side(readers, len(folders))
    found["flink_skills, on top of reading"] = (
        found["flink_skills, file to entry"] - found["reading the file alone"]  # as medians of the same rounds
    )
    return found


def load(request: dict[str, Any]) -> dict[str, Any]:
    """Loading a large skill: by the view, and by the tool as a model calls it."""
    manager = _manager(request["source"], request["store"])
    manager.load_skills()
    found: dict[str, Any] = {}
    if request["inspect"]:
        began = time.perf_counter()
        manager.inspect()
        found["inspect_ms"] = (time.perf_counter() - began) * 1e3
    opened = _Opened()
    view = manager.view()
    view.activate("small")  # whatever is imported then is not what is measured
    found |= _first_and_later(lambda: view.activate("large"), opened, "view")
    manager = _manager(request["source"], request["store"])
    manager.load_skills()
    if request["inspect"]:
        manager.inspect()
    found |= asyncio.run(_by_tool(LoadSkill(ToolServices(manager.view())), opened))
    return found


async def _by_tool(tool: LoadSkill, opened: _Opened) -> dict[str, Any]:
    await tool.call({"name": "small"}, ToolContext())
    times = []
    for number in range(101):
        opened.counting = number == 0
        began = time.perf_counter()
        result = await tool.call({"name": "large"}, ToolContext())
        times.append(time.perf_counter() - began)
        opened.counting = False
        if result.is_error:
            raise SystemExit(result.content)
    return {
        "tool_first_ms": times[0] * 1e3,
        "tool_later_ms": statistics.median(times[1:]) * 1e3,
        "tool_opens": opened.take(),
    }


def menu(request: dict[str, Any]) -> dict[str, Any]:
    """ms for the menu of all skills, within the default budget and without one."""
    found = {}
    skills = _manager(request["source"], request["store"]).load_skills()
    for name, budget in (("default_budget_ms", 16_000), ("no_budget_ms", 10_000_000)):
        times = []
        for _ in range(ROUNDS):
            view = SkillView(skills, max_chars=budget)  # which keeps its menu
            began = time.perf_counter()
            text = view.menu()
            times.append(time.perf_counter() - began)
        found[name] = statistics.median(times) * 1e3
        found[name.replace("_ms", "_chars")] = len(text)
    return found


class _Opened:
    """Counts the files and folders that this process opens, by Python's own audit events."""

    def __init__(self) -> None:
        self.counting = False
        self._paths: list[str] = []
        sys.addaudithook(self._hear)

    def _hear(self, event: str, arguments: tuple[Any, ...]) -> None:
        if self.counting and event in ("open", "os.scandir", "os.listdir"):
            self._paths.append(f"{event} {arguments[0]}")

    def take(self) -> int:
        count = len(self._paths)
        self._paths.clear()
        return count


def _first_and_later(call: Callable[[], Any], opened: _Opened, name: str) -> dict[str, Any]:
    opened.counting = True
    began = time.perf_counter()
    call()
    first = time.perf_counter() - began
    opened.counting = False
    later = []
    for _ in range(100):
        began = time.perf_counter()
        call()
        later.append(time.perf_counter() - began)
    return {
        f"{name}_first_ms": first * 1e3,
        f"{name}_later_ms": statistics.median(later) * 1e3,
        f"{name}_opens": opened.take(),
    }


def _side_by_side(readers: dict[str, Callable[[], Any] | str], count: int) -> dict[str, Any]:
    """µs for each item: the median of rounds in which all take their turn."""
    times: dict[str, list[float]] = {name: [] for name in readers}
    for number in range(ROUNDS + 1):
        for name, reader in readers.items():
            if not isinstance(reader, str):
                began = time.perf_counter()
                reader()
                if number:  # the first round warms up
                    times[name].append((time.perf_counter() - began) / count * 1e6)
    return {
        name: reader if isinstance(reader, str) else statistics.median(times[name]) for name, reader in readers.items()
    }


def _each(function: Callable[[Any], Any], items: Iterable[Any]) -> None:
    for item in items:
        function(item)


def _bound(function: Callable[[Any], Any], items: list[Any]) -> Callable[[], None]:
    return lambda: _each(function, items)


def _folders(source: str) -> list[Path]:
    return sorted(Path(source).iterdir())[:1000]


def _manager(source: str, store: str) -> AgentSkillManager:
    return AgentSkillManager(paths=[source], config=SkillConfig(OPTIONS), store_dir=store)


def _warm_up(folder: Path, *, archive: bool) -> None:
    """Import what loading imports."""
    corpus.write_skills(folder / "skills", 1)
    source = folder / "skills"
    if archive:
        source = folder / "skills.zip"
        corpus.pack(folder / "skills", source)
    for _ in range(2):  # into the store, and from it
        _manager(str(source), str(folder / "store")).load_skills()
    corpus.make_writable(folder)


JOBS = {"catalog": catalog, "served": served, "parse": parse, "entry": entry, "load": load, "menu": menu}

if __name__ == "__main__":
    print("RESULT " + json.dumps(JOBS[sys.argv[1]](json.loads(sys.argv[2]))))
