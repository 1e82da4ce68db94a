"""Other readers of front matter, in a folder of their own, so that no environment has to have them."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parent.parent
REQUIREMENTS = Path(__file__).with_name("peers.txt")
FOLDER = ROOT / "build" / f"bench-peers-{sys.version_info[0]}.{sys.version_info[1]}"


def install() -> str:
    """Put the peers below ``build/``, once; what went wrong, or ""."""
    stamp = FOLDER / "peers.txt"
    if stamp.is_file() and stamp.read_bytes() == REQUIREMENTS.read_bytes():
        return ""
    command = [sys.executable, "-m", "pip", "install", "-q", "--disable-pip-version-check", "--upgrade"]
    done = subprocess.run(
        [*command, "--target", str(FOLDER), "-r", str(REQUIREMENTS)], capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        return (done.stderr.strip().splitlines() or ["pip failed"])[-1]
    stamp.write_bytes(REQUIREMENTS.read_bytes())
    return ""


def yaml_readers() -> dict[str, Callable[[str], Any] | str]:
    """Functions that read the text of a front matter by name; a text says why one is not there."""
    readers: dict[str, Callable[[str], Any] | str] = {
        "PyYAML, pure Python": lambda text: yaml.load(text, yaml.SafeLoader),
        "PyYAML, libyaml": "PyYAML was built without libyaml",
    }
    if hasattr(yaml, "CSafeLoader"):
        readers["PyYAML, libyaml"] = lambda text: yaml.load(text, yaml.CSafeLoader)
    strictyaml = _module("strictyaml")
    readers["strictyaml"] = strictyaml if isinstance(strictyaml, str) else lambda text: strictyaml.load(text).data
    return readers


def reference() -> Any:
    """The parser of the reference library, or a text that says why it is not there."""
    return _module("skills_ref.parser")


def _module(name: str) -> Any:
    # At the end of the path: nothing that is measured as ours may come from there.
    if str(FOLDER) not in sys.path:
        sys.path.append(str(FOLDER))
    try:
        return import_module(name)
    except ImportError as error:
        return f"not installed: {error}"
