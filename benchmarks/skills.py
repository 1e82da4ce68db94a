"""Skills: the catalog, parsing beside other readers, loading a large skill, the menu."""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Callable
from contextlib import ExitStack, contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from benchmarks import corpus, peers, report
from tests.sources.publishers import KINDS
from tests.tools.mcp.skills_site import Site

JOBS = "benchmarks.skill_jobs"
SIZES = (1_000, 10_000)
#: Name and request of a measurement; the request may make what it needs.
Measurement = Callable[[], tuple[str, dict[str, Any]]]


def measure(repeat: int, only: str, *, quick: bool = False) -> None:
    """Run all measurements ``repeat`` times, and write and print the medians."""
    machine = report.machine(pyyaml=yaml.__version__, filesystem="a folder below the temporary one, in the page cache")
    problem = peers.install()
    if problem:
        print(f"peers are not installed: {problem}", file=sys.stderr)
    sizes = tuple(size // 100 for size in SIZES) if quick else SIZES
    with tempfile.TemporaryDirectory(prefix="flink-skills-bench-") as folder:
        servers = ExitStack()
        try:
            setup = _Setup(Path(folder), sizes, quick, servers)
            chosen = {name: m for name, m in setup.measurements().items() if only in name}
            runs: dict[str, list[dict[str, Any]]] = {name: [] for name in chosen}
            for number in range(repeat):
                for name, make in chosen.items():
                    print(f"round {number + 1}: {name}", file=sys.stderr)
                    runs[name].append(report.run_job(JOBS, *make()))
        finally:
            servers.close()
            corpus.make_writable(Path(folder))
    results = {name: report.medians(of, 3) for name, of in runs.items()}
    print(tables(results))
    if not only and not quick:
        setting = {
            "sizes": sizes,
            "repeat": repeat,
            "peers": problem or peers.installed(peers.REQUIREMENTS),
        }
        content = {"machine": machine, "setting": setting, "medians": results, "runs": runs}
        report.write("skills", content, tables(results))


class _Setup:
    """The generated skills, and what is asked of each measurement."""

    def __init__(self, folder: Path, sizes: tuple[int, ...], quick: bool, servers: ExitStack) -> None:
        self._folder = folder
        self._servers = servers
        self._sizes = sizes
        self._stores = 0
        for size in sizes:
            corpus.write_skills(folder / f"{size}", size)
            corpus.pack(folder / f"{size}", folder / f"{size}.zip")
        corpus.write_skills(folder / "one", 1)
        corpus.write_large_skill(folder / "large", size=1_000 if quick else 100_000)
        corpus.pack(folder / "large", folder / "large.zip")
        for archive, count in [*((f"{size}.zip", size) for size in sizes), ("large.zip", 2)]:
            report.run_job(JOBS, "catalog", self._request(archive, "filled", skills=count, memory=""))

    def measurements(self) -> dict[str, Measurement]:
        found: dict[str, Measurement] = {}
        for size in self._sizes:
            for how, source, store in (
                ("from a folder", f"{size}", "unused"),
                ("from an archive, empty store", f"{size}.zip", ""),
                ("from the store's index", f"{size}.zip", "filled"),
            ):
                request = {"source": source, "store": store, "skills": size}
                found[f"catalog of {size:,} {how}"] = self._catalog(request)
                if how != "from an archive, empty store":
                    found[f"catalog of {size:,} {how}, traced"] = self._catalog({**request, "memory": "traced"})
        for kind in ("git", "oci", "mcp"):
            found[f"served {self._sizes[0]:,} from {kind}"] = self._served(kind)
        first = f"{self._sizes[0]}"
        found["parse a front matter"] = lambda: ("parse", self._request(first))
        found["file to catalog entry"] = lambda: ("entry", self._request(first))
        found["load_skill of 40 MB from the store"] = lambda: (
            "load",
            self._request("large.zip", store="filled", inspect=False),
        )
        found["load_skill of 40 MB from a folder, inspected"] = lambda: ("load", self._request("large", inspect=True))
        found["load_skill of 40 MB from a folder, unknown digest"] = lambda: (
            "load",
            self._request("large", inspect=False),
        )
        found[f"menu of {self._sizes[0]:,}"] = lambda: ("menu", self._request(first))
        return found

    def _served(self, kind: str) -> Measurement:
        """Publish skills behind a server of this process."""
        urls = []
        for skills in ("one", f"{self._sizes[0]}"):
            place = self._folder / f"{kind}-{skills}"
            place.mkdir()
            if kind == "mcp":
                site = Site(self._folder / skills, place)
                self._servers.callback(site.close)
                site.server.entries = cache(site.server.entries)  # type: ignore[method-assign]
                urls.append(f"{site.url}#label={skills}-skills")
            else:
                publish = self._servers.enter_context(contextmanager(KINDS[kind])(place))
                urls.append(publish(self._folder / skills))
        request = {"warm": urls[0], "url": urls[1], "skills": self._sizes[0]}
        return lambda: ("served", self._request("", store="", **request))

    def _catalog(self, request: dict[str, Any]) -> Measurement:
        return lambda: ("catalog", self._request(**{"memory": "", **request}))

    def _request(self, source: str, store: str = "unused", **more: Any) -> dict[str, Any]:
        """``store`` is the name of a store; without one it is new and empty, and the last such one is removed."""
        if not store:
            last = self._folder / f"store-{self._stores}"
            if last.exists():
                corpus.make_writable(last)
                shutil.rmtree(last)
            self._stores += 1
            store = f"{self._stores}"
        return {"source": str(self._folder / source), "store": str(self._folder / f"store-{store}"), **more}


def tables(results: dict[str, dict[str, Any]]) -> str:
    """The medians as Markdown tables."""
    parts = []
    rows = _catalog_rows(results)
    if rows:
        head = "| catalog | seconds | µs per skill | resident, MB | traced, MB | traced peak, MB |"
        parts.append("\n".join([head, "|---|---|---|---|---|---|", *rows]))
    rows = [
        f"| {name.removeprefix('served ')} | {of['first_s']:.2f} | {of['later_s']:.3f} |"
        for name, of in results.items()
        if name.startswith("served")
    ]
    if rows:
        head = "| skills behind a local server | empty store, seconds | later, seconds |"
        parts.append("\n".join([head, "|---|---|---|", *rows]))
    for name in ("parse a front matter", "file to catalog entry"):
        if name in results:
            head = f"| {name} | µs | ratio to flink_skills |"
            parts.append("\n".join([head, "|---|---|---|", *_peer_rows(results[name])]))
    rows = [
        f"| {name} | {of['view_first_ms']:.2f} | {of['view_later_ms']:.3f} | {of['view_opens']:.0f} "
        f"| {of['tool_first_ms']:.2f} | {of['tool_later_ms']:.3f} | {of['tool_opens']:.0f} |"
        for name, of in results.items()
        if name.startswith("load_skill")
    ]
    if rows:
        head = "| load_skill | view, first ms | later | files opened | tool, first ms | later | files opened |"
        parts.append("\n".join([head, "|---|---|---|---|---|---|---|", *rows]))
    for name, of in results.items():
        if name.startswith("menu"):
            rows = [
                f"| {name}, {label} | {of[f'{key}_ms']:.2f} | {of[f'{key}_chars']:,.0f} |"
                for key, label in (("default_budget", "default budget"), ("no_budget", "no budget"))
            ]
            parts.append("\n".join(["| menu | ms | characters |", "|---|---|---|", *rows]))
    return "\n\n".join(parts)


def _catalog_rows(results: dict[str, dict[str, Any]]) -> list[str]:
    rows = []
    for name, of in results.items():
        if name.startswith("catalog") and not name.endswith("traced"):
            traced = results.get(f"{name}, traced")
            memory = f"{traced['traced_mb']:.1f} | {traced['traced_peak_mb']:.1f}" if traced else " | "
            rows.append(
                f"| {name.removeprefix('catalog of ')} | {of['seconds']:.3f} | {of['us_per_skill']:.0f} "
                f"| {of['resident_mb']:.1f} | {memory} |"
            )
    return rows


def _peer_rows(of: dict[str, Any]) -> list[str]:
    ours = next(iter(of.values()))
    return [
        f"| {name} | {value} | |" if isinstance(value, str) else f"| {name} | {value:.1f} | {value / ours:.2f} |"
        for name, value in of.items()
    ]
