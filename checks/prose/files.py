"""Files of the project whose prose is checked."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from fnmatch import fnmatchcase
from pathlib import Path

from checks.prose.java_files import read_java
from checks.prose.markdown_files import read_markdown
from checks.prose.passages import File, Passage, split_allowances
from checks.prose.python_files import read_python
from checks.text import CHECKED

__all__ = ["package_of", "prose_files", "read_file"]

READERS: Mapping[str, Callable[[str], Iterator[Passage]]] = {
    ".py": read_python,
    ".java": read_java,
    ".md": read_markdown,
}
#: A generated list of the names of all tests, and files that quote faults.
_NO_PROSE = ("docs/features.md", "tests/checks/test_prose_*.py")


def prose_files(root: Path) -> list[str]:
    """Return the paths below ``root`` of the files to check, sorted."""
    found = {path.name for path in root.glob("*.md")}
    for folder in CHECKED:
        for path, folders, names in os.walk(root / folder):
            folders[:] = [name for name in folders if name != "__pycache__"]
            relative = Path(path).relative_to(root).as_posix()
            found.update(f"{relative}/{name}" for name in names if os.path.splitext(name)[1] in READERS)
    return sorted(path for path in found if not any(fnmatchcase(path, pattern) for pattern in _NO_PROSE))


def read_file(root: Path, path: str) -> File:
    """Return the passages of the file ``path`` below ``root``."""
    source = (root / path).read_text(encoding="utf-8")
    return split_allowances(path, READERS[os.path.splitext(path)[1]](source))


def package_of(path: str) -> str:
    """Return the package or folder whose hits are counted together.

    >>> package_of("flink_skills/tools/web/search.py"), package_of("README.md"), package_of("tests/kit/waiting.py")
    ('tools', 'docs', 'tests')
    """
    parts = path.split("/")
    if parts[0] == "flink_skills":
        return parts[1] if len(parts) > 2 else "flink_skills"
    return "docs" if len(parts) == 1 else "java" if parts[0] == "java-bridge" else parts[0]
