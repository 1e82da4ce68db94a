"""Lines and commits since the last change of the baseline."""

from __future__ import annotations

import re
import subprocess
from collections import defaultdict
from collections.abc import Mapping, Set
from pathlib import Path

__all__ = ["added_lines", "subjects"]

_HUNK = re.compile(r"@@ -\S+ \+(\d+)(?:,(\d+))? @@")


def added_lines(root: Path, since: str) -> Mapping[str, Set[int]] | None:
    """Return the lines of each file that are newer than the last commit of the file ``since``.

    Return None if Git does not have that commit.
    """
    revision = _git(root, "log", "-1", "--format=%H", "--", since)
    if not revision:
        return None
    diff = _git(root, "diff", "--unified=0", "--no-color", "--no-ext-diff", "--no-prefix", revision.strip())
    lines: defaultdict[str, set[int]] = defaultdict(set)
    path = ""
    for line in (diff or "").splitlines():
        if line.startswith("+++ "):
            path = line[4:]
        elif hunk := _HUNK.match(line):
            lines[path].update(range(int(hunk[1]), int(hunk[1]) + int(hunk[2] or 1)))
    for path in (_git(root, "ls-files", "--others", "--exclude-standard") or "").splitlines():
        lines[path].update(range(1, (root / path).read_bytes().count(b"\n") + 2))
    return lines


def subjects(root: Path, revision: str) -> list[str]:
    """Return the subjects of the commits since ``revision``, without merges."""
    log = ["log", "--no-merges", "--format=%s", f"{revision}..HEAD"]
    return subprocess.run(["git", *log], cwd=root, capture_output=True, text=True, check=True).stdout.splitlines()


def _git(root: Path, *arguments: str) -> str | None:
    """Return the output of Git, or None if it fails or is not installed."""
    try:
        return subprocess.run(["git", *arguments], cwd=root, capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return None
