"""Runs a skill's own command block the way an agent does: in a shell, in its folder, in a clean environment."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
SKILLS = ROOT / "skills"
EXAMPLE = ROOT / "examples" / "log_triage"
DATA = EXAMPLE / "data"
NAMES = sorted(path.name for path in SKILLS.iterdir() if (path / "SKILL.md").is_file())
LOGS = sorted(path.relative_to(DATA).as_posix() for path in DATA.rglob("*.log"))


def load_module(path: Path) -> ModuleType:
    """A module by its file, whatever is on the import path."""
    spec = importlib.util.spec_from_file_location(f"tested_{path.stem}", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def command_of(name: str) -> str:
    """The first fenced block of a skill's instructions, which has to be a shell command."""
    block = re.search(r"^```(\w*)\n(.*?)^```", (SKILLS / name / "SKILL.md").read_text("utf-8"), re.M | re.S)
    assert block is not None, f"{name} has no fenced block"
    assert block[1] == "bash", f"the first block of {name} is not bash"
    return block[2].strip()


def run(name: str, stdin: bytes, skill_folder: Path | None = None) -> subprocess.CompletedProcess[bytes]:
    """The result of a skill's command on `stdin`."""
    folder = skill_folder or SKILLS / name
    # `python3` has to be this interpreter, so that the scripts are tested on every supported version.
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    environment = {"PATH": path, "SKILLS_DIR": str(folder.parent), "SKILL_NAME": name, "LANG": "C.UTF-8"}
    return subprocess.run(
        ["bash", "-c", command_of(name)],
        input=stdin,
        cwd=folder,
        env=environment,
        capture_output=True,
        timeout=60,
        check=False,
    )


def diagnose(name: str, event: str | dict[str, Any]) -> dict[str, Any]:
    """The parsed result of a skill on a log (text) or an event; fails unless the command succeeds."""
    text = event if isinstance(event, str) else json.dumps(event)
    done = run(name, text.encode())
    assert done.returncode == 0, done.stderr.decode()
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def log(name: str) -> str:
    return (DATA / name).read_text(encoding="utf-8")
