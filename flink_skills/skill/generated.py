"""Files that tools write into a skill's folder, and that are therefore not part of the skill."""

from __future__ import annotations

import re
from collections.abc import Collection

__all__ = ["ALWAYS_EXCLUDED", "is_environment", "is_generated"]

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
