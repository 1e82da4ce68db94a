"""Ways to publish the same skills: one for each kind of source."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import fsspec

from tests.sources.git_server import GitServer, Repository
from tests.sources.oci_server import CONTENT_TYPE, OciServer, tar_of
from tests.sources.web import zip_of
from tests.tools.mcp.skills_site import Site

SKILLS = {
    "odd/SKILL.md": "---\nname: odd\ndescription: Does odd things.\nlevel: 3\nallowed-tools: Bash(git *) Task\n---\n"
    "# Odd\n\nRead [more](references/missing.md), then run `python scripts/broken.py`.\n",
    "odd/scripts/broken.py": "def (:\n",
    "odd/references/more.md": "More.\n",
    "odd/evals/evals.json": "[]",
    "plain/SKILL.md": "---\nname: plain\ndescription: Does plain things.\n---\n# Plain\n",
}

#: Publishes a folder of skills, and returns how it is declared.
Publish = Callable[[Path], str]


def folder_source(place: Path) -> Iterator[Publish]:
    yield str


def archive_source(place: Path) -> Iterator[Publish]:
    def publish(skills: Path) -> str:
        (place / "skills.zip").write_bytes(zip_of(skills))
        return (place / "skills.zip").as_uri()

    yield publish


def prefix_source(place: Path) -> Iterator[Publish]:
    def publish(skills: Path) -> str:
        system = fsspec.filesystem("memory")
        for file in (path for path in skills.rglob("*") if path.is_file()):
            system.pipe(f"/same/{file.relative_to(skills)}", file.read_bytes())
        return "memory://same/"

    yield publish


def plugin_source(place: Path) -> Iterator[Publish]:
    (place / "plugin.json").write_text(
        json.dumps({"$schema": "https://agent-plugins.org/schemas/1.0.0/plugin.schema.json", "name": "ops"})
    )

    def publish(skills: Path) -> str:
        for file in (path for path in skills.rglob("*") if path.is_file()):
            copy = place / "skills" / file.relative_to(skills)
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_bytes(file.read_bytes())
        return str(place)

    yield publish


def git_source(place: Path) -> Iterator[Publish]:
    repository, server = Repository(place), GitServer(place)

    def publish(skills: Path) -> str:
        repository.publish(skills)
        return f"{server.url()}@main"

    yield publish
    server.close()


def oci_source(place: Path) -> Iterator[Publish]:
    registry = OciServer()

    def publish(skills: Path) -> str:
        files = [file for file in sorted(skills.rglob("*")) if file.is_file()]
        layer = tar_of({f"all/{file.relative_to(skills)}": file.read_bytes() for file in files})
        registry.artifact("team/all", "1", [registry.blob(layer, CONTENT_TYPE)])
        return f"oci://{registry.place}/team/all:1"

    yield publish
    registry.close()


def mcp_source(place: Path) -> Iterator[Publish]:
    sites: list[Site] = []

    def publish(skills: Path) -> str:
        sites[:] = sites or [Site(skills, place / "store")]
        return f"{sites[0].url}#label=acme&prefetch=true"

    yield publish
    sites[0].close()


KINDS = {
    "folder": folder_source,
    "archive": archive_source,
    "prefix": prefix_source,
    "plugin": plugin_source,
    "git": git_source,
    "oci": oci_source,
    "mcp": mcp_source,
}


def write_skills(folder: Path) -> Path:
    """Write two skills, one of which has many diagnostics."""
    for name, text in SKILLS.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder
