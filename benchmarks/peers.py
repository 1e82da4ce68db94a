"""What is measured beside ours, in folders of its own, so that no environment has to have it."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parent.parent
#: Readers of front matter.
REQUIREMENTS = Path(__file__).with_name("peers.txt")
#: Libraries that run commands in a sandbox.
SANDBOXES = Path(__file__).with_name("sandboxes.txt")


def install(requirements: Path = REQUIREMENTS) -> str:
    """Put the peers below ``build/``, once; what went wrong, or ""."""
    folder = _folder(requirements)
    stamp = folder / "peers.txt"
    if stamp.is_file() and stamp.read_bytes() == requirements.read_bytes():
        return ""
    command = [sys.executable, "-m", "pip", "install", "-q", "--disable-pip-version-check", "--upgrade"]
    done = subprocess.run(
        [*command, "--target", str(folder), "-r", str(requirements)], capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        return (done.stderr.strip().splitlines() or ["pip failed"])[-1]
    stamp.write_bytes(requirements.read_bytes())
    return ""


def installed(requirements: Path) -> list[str]:
    """The peers that are asked for, with their versions."""
    return [line for line in requirements.read_text().splitlines() if not line.startswith("#")]


def unpacked(requirement: str) -> str:
    """Unpack the source of a package whose wheel needs more than Python, and append its folder to the path.

    Return the error, or an empty string.
    """
    folder = ROOT / "build" / f"bench-{requirement}"
    if not folder.is_dir():
        with tempfile.TemporaryDirectory() as temporary:
            command = [sys.executable, "-m", "pip", "download", "-q", "--disable-pip-version-check", "--no-deps"]
            words = [*command, "--no-binary", ":all:", "-d", temporary, requirement]
            done = subprocess.run(words, capture_output=True, text=True, check=False)
            archives = list(Path(temporary).glob("*.tar.gz"))
            if done.returncode != 0 or not archives:
                return (done.stderr.strip().splitlines() or ["pip found no source"])[-1]
            shutil.unpack_archive(archives[0], folder, filter="data")
    sys.path.append(str(next(folder.iterdir())))
    return ""


def yaml_readers() -> dict[str, Callable[[str], Any] | str]:
    """Functions that read the text of a front matter by name; a text says why one is not there."""
    readers: dict[str, Callable[[str], Any] | str] = {
        "PyYAML, pure Python": lambda text: yaml.load(text, yaml.SafeLoader),
        "PyYAML, libyaml": "PyYAML was built without libyaml",
    }
    if hasattr(yaml, "CSafeLoader"):
        readers["PyYAML, libyaml"] = lambda text: yaml.load(text, yaml.CSafeLoader)
    strictyaml = _module("strictyaml", REQUIREMENTS)
    readers["strictyaml"] = strictyaml if isinstance(strictyaml, str) else lambda text: strictyaml.load(text).data
    return readers


def reference() -> Any:
    """The parser of the reference library, or a text that says why it is not there."""
    return _module("skills_ref.parser", REQUIREMENTS)


def sandbox(name: str) -> Any:
    """The module ``name`` of a library that runs commands in a sandbox, or a text that says why it is not there."""
    return _module(name, SANDBOXES)


def _folder(requirements: Path) -> Path:
    return ROOT / "build" / f"bench-{requirements.stem}-{sys.version_info[0]}.{sys.version_info[1]}"


def _module(name: str, requirements: Path) -> Any:
    # At the end of the path: nothing that is measured as ours may come from there.
    folder = str(_folder(requirements))
    if folder not in sys.path:
        sys.path.append(folder)
    try:
        return import_module(name)
    except ImportError as error:
        return f"not installed: {error}"
