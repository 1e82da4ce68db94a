"""Rule about the exceptions from the linter's rules for docstrings: they name only folders with violations."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from fnmatch import fnmatchcase
from pathlib import Path

from checks.findings import Finding

__all__ = ["RULES", "obsolete_exceptions"]

RULES = frozenset({"D205", "D401"})
_IGNORES = re.compile(r'^"([^"]+)" = (\[.*\])', re.MULTILINE)


def obsolete_exceptions(root: Path) -> list[Finding]:
    """Return the exceptions from ``RULES`` in pyproject.toml that no file needs."""
    settings = (root / "pyproject.toml").read_text(encoding="utf-8")
    ignores = settings.partition("[tool.ruff.lint.per-file-ignores]\n")[2].partition("\n[")[0]
    excepted = {
        (pattern, rule) for pattern, rules in _IGNORES.findall(ignores) for rule in RULES & set(json.loads(rules))
    }
    needed = _violations(root)
    return [
        Finding(
            "docstring-exceptions",
            f"{pattern} {rule}",
            f"docstring-exceptions failed: no docstring in {pattern} breaks {rule} (pyproject.toml, per-file-ignores). "
            "Remove the exception.",
        )
        for pattern, rule in sorted(excepted)
        if not any(found == rule and fnmatchcase(path, pattern) for path, found in needed)
    ]


def _violations(root: Path) -> set[tuple[str, str]]:
    """Return the paths and rules of all violations, with the exceptions switched off."""
    options = ["--select", ",".join(sorted(RULES)), "--config", "lint.per-file-ignores = {}", "--output-format", "json"]
    command = [sys.executable, "-m", "ruff", "check", "--exit-zero", "--no-cache", *options, "."]
    output = subprocess.run(command, cwd=root, stdout=subprocess.PIPE, check=True).stdout
    top = root.resolve()
    return {(Path(found["filename"]).relative_to(top).as_posix(), found["code"]) for found in json.loads(output)}
