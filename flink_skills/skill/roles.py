"""Roles of the files in a skill's folder: for models, for people, tests, proofs, and generated files.

| Role | Part of the skill and its digest | Models and commands read it | Listed to models |
|---|---|---|---|
| model | yes | yes | yes |
| person | yes | yes | no |
| test | no | no | no |
| proof | no | no | no |
| generated | no | no | no |
"""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Literal

__all__ = ["ALWAYS_EXCLUDED", "Role", "is_environment", "is_excluded", "is_generated", "role_of"]

Role = Literal["model", "person", "test", "proof", "generated"]

#: Names that no release has counted as part of a skill.
ALWAYS_EXCLUDED = frozenset({".git", "__MACOSX", ".DS_Store"})
# Names that an author can choose for content, such as .vscode, build, dist, target, *.bak and *.log, are not here.
_NAMES = ALWAYS_EXCLUDED | {
    # Version control.
    ".hg", ".svn", ".bzr", ".jj", "CVS",
    # Operating systems and editors.
    "Thumbs.db", "ehthumbs.db", "desktop.ini", "Desktop.ini", ".Trashes", ".idea", ".vs",
    # Python.
    "__pycache__", "__pypackages__", ".venv", ".eggs", ".tox", ".nox", ".pytest_cache", ".mypy_cache", ".dmypy.json",
    ".ruff_cache", ".pytype", ".pyre", ".hypothesis", ".ipynb_checkpoints", ".coverage", ".cache",
    # JavaScript and other languages.
    "node_modules", "bower_components", ".pnpm-store", ".parcel-cache", ".turbo", ".next", ".nuxt", ".svelte-kit",
    ".nyc_output", ".sass-cache", ".eslintcache", ".stylelintcache", "npm-debug.log", "yarn-error.log",
    ".gradle", ".terraform", ".Rhistory",
}  # fmt: skip
_ENDS = (".pyc", ".pyo", "$py.class", ".egg-info", ".tsbuildinfo", "~")
_STARTS = frozenset(".#~")
_PATTERN = re.compile(
    r"\.coverage\..+|\._.+|\..+\.sw[a-p]|\.#.+|#.+#|~\$.+|\.~lock\..+#|\.nfs[0-9a-f]{8,}|\.fuse_hidden.+", re.DOTALL
)
# Names next to the skill file, as the Agent Skills site and signing tools write them. Deeper files are for models.
_TESTS = re.compile(r"evals?|evals?\.(?:json|jsonl|ya?ml|md)", re.IGNORECASE)
_PROOFS = re.compile(
    r".+\.(?:sig|asc|minisig|sigstore|sigstore\.json|intoto\.jsonl)|sha256sums(?:\.txt)?", re.IGNORECASE
)
# In lower case, the other names can be content, such as security.md of a skill for audits.
_PEOPLE = re.compile(
    r"(?:(?i:licen[cs]e|copying|changelog|readme|contributing|code_of_conduct|skill-card)"
    r"|NOTICE|AUTHORS|CONTRIBUTORS|CODEOWNERS|MAINTAINERS|SECURITY|SUPPORT|CHANGES|HISTORY|BENCHMARK)"
    r"(?:[-_.][A-Za-z0-9_.-]*)?"
)


def role_of(path: str) -> Role:
    """Return the role of a file or folder by its path relative to the skill's folder.

    >>> [role_of(path) for path in ("SKILL.md", "LICENSE.txt", "evals/evals.json", "skill.oms.sig", "run.pyc")]
    ['model', 'person', 'test', 'proof', 'generated']
    """
    parts = path.split("/")
    if any(map(is_generated, parts)):
        return "generated"
    if _TESTS.fullmatch(parts[0]):
        return "test"
    if len(parts) > 1:
        return "model"
    return "proof" if _PROOFS.fullmatch(path) else "person" if _PEOPLE.fullmatch(path) else "model"


def is_excluded(path: str) -> bool:
    """Return True if a file or folder at ``path`` is not part of a skill: generated, a test or a proof."""
    return role_of(path) in ("generated", "test", "proof")


def is_generated(name: str) -> bool:
    """Return True if a tool writes files or folders of this name, and an author does not.

    >>> [name for name in ("__pycache__", "run.pyc", ".run.py.swp", "run.py", ".vscode") if is_generated(name)]
    ['__pycache__', 'run.pyc', '.run.py.swp']
    """
    if name in _NAMES:
        return True
    if name.endswith(_ENDS):
        return name not in _ENDS
    return name[:1] in _STARTS and _PATTERN.fullmatch(name) is not None


def is_environment(names: Collection[str]) -> bool:
    """Return True if a folder with these entries is a virtual environment of Python, whatever its name.

    >>> is_environment(["bin", "lib", "pyvenv.cfg"])
    True
    """
    return "pyvenv.cfg" in names
