"""Paths and names of files: which of them belong to a skill, their roles, and whether a path stays inside its source.

| Role | Part of the skill and its digest | Models and commands read it | Listed to models |
|---|---|---|---|
| model | yes | yes | yes |
| person | yes | yes | no |
| test | no | no | no |
| proof | no | no | no |
| generated | no | no | no |
"""

from __future__ import annotations

import errno
import os
import re
import stat
import unicodedata
from collections.abc import Collection, Iterator
from typing import Literal

from flink_skills.skill.text import hidden_characters

MAX_NAME_BYTES = 255
# Windows opens a device for these, with any extension.
_DEVICE = re.compile(r"(con|prn|aux|nul|conin\$|conout\$|(com|lpt)[0-9\u00b9\u00b2\u00b3])[ ]*(\..*)?", re.IGNORECASE)
_CONTROL = ("Cc", "Cs", "Zl", "Zp")
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
_READ_FLAGS = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
_ENCODED = re.compile(r"%[0-9A-Fa-f]{2}")


def name_problem(name: str, *, portable: bool = True) -> str:
    """Return why ``name``, one part of a path, cannot be the name of a file. Return "" if it can.

    Args:
        name: The part, without ``/``.
        portable: False for a name that is shown, and is not made into a file of that name.

    >>> name_problem("a.")
    'the name ends with a dot or a space, which some systems omit'
    >>> name_problem("report.csv")
    ''
    """
    if any(unicodedata.category(char) in _CONTROL for char in name):
        return "the name has control characters or is not text"
    if hidden := hidden_characters(name):
        return f"the name has hidden characters or characters that change the direction of text ({', '.join(hidden)})"
    if len(name.encode()) > MAX_NAME_BYTES:
        return f"the name has more than {MAX_NAME_BYTES} bytes in one part"
    if portable and name.endswith((".", " ")):
        return "the name ends with a dot or a space, which some systems omit"
    if portable and _DEVICE.fullmatch(name):
        return "the name is a device on some systems"
    return ""


def comparison_key(path: str) -> str:
    """Return what is equal for two paths that some file system takes for one: in another case or Unicode form.

    >>> comparison_key("Caf\\u00e9") == comparison_key("cafe\\u0301")
    True
    """
    return unicodedata.normalize("NFC", unicodedata.normalize("NFD", path).casefold())


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


def skill_file_in(names: Collection[str]) -> str | None:
    """Return the skill file among a folder's names: ``SKILL.md`` in exact case before any other.

    >>> skill_file_in(["skill.md", "SKILL.md"])
    'SKILL.md'
    """
    found = [name for name in names if len(name) == 8 and name.lower() == "skill.md"]
    return None if not found else "SKILL.md" if "SKILL.md" in found else min(found)


def is_foreign(names: Collection[str]) -> bool:
    """Return True if a folder below a skill is not part of it: a nested skill or a virtual environment.

    ``names`` are the entries of the folder.

    >>> is_foreign(["SKILL.md"]), is_foreign(["pyvenv.cfg"]), is_foreign(["a.md"])
    (True, True, False)
    """
    return skill_file_in(names) is not None or is_environment(names)


def inside(path: str, root: str) -> bool:
    """Return True if ``path`` is ``root`` or below it. Both are real paths."""
    return path == root or path.startswith(root if root.endswith(os.sep) else root + os.sep)


def link_problem(path: str) -> tuple[str, str]:
    """Return why a link is skipped, and the fix: it points to nothing, or to a place outside its source."""
    if os.path.exists(path):
        return "the link leaves its source and was skipped", "copy what it points to"
    try:
        target = os.readlink(path)
    except OSError:  # a link on the way to it
        target = os.path.realpath(path)
    return f"the link points to {target!r}, which does not exist, and was skipped", "correct the link, or remove it"


def open_inside(path: str, root: str) -> int | None:
    """Open a file for reading. Return its descriptor, or None if it is outside the real path ``root``.

    Links on the way are followed. The opened file's location decides, so that nothing can change between the
    check and the reading. Raises :class:`OSError`.
    """
    try:
        descriptor = os.open(path, _READ_FLAGS)
    except OSError as error:
        if error.errno != errno.ELOOP:
            raise
        real = os.path.realpath(path)
        if not inside(real, root):
            return None
        descriptor = os.open(real, _READ_FLAGS)
    try:
        if inside(_real_path(descriptor, path), root):
            return descriptor
    except OSError:
        os.close(descriptor)
        raise
    os.close(descriptor)
    return None


def _real_path(descriptor: int, path: str) -> str:
    try:
        real = os.readlink(f"/proc/self/fd/{descriptor}")
    except OSError:  # no /proc: the path once more
        return os.path.realpath(path)
    return real if real.startswith("/") else os.path.realpath(path)


def resource_parts(path: str) -> tuple[str, ...]:
    """The parts of a relative path inside a skill. Raises :class:`ValueError` saying what is wrong with it.

    >>> resource_parts("./references/a.md")
    ('references', 'a.md')
    """
    if "\0" in path or "\\" in path:
        raise ValueError("a path has neither backslashes nor NUL; write it with '/'")
    if _ENCODED.search(path):
        raise ValueError("a path is not percent-encoded")
    if path.startswith(("/", "~")) or re.match(r"[A-Za-z]:", path):
        raise ValueError("the path must be relative to the skill's folder")
    parts = tuple(part for part in path.split("/") if part not in ("", "."))
    if ".." in parts:
        raise ValueError("a path must not contain '..'")
    if not parts:
        raise ValueError("the path is empty")
    return parts


def walk_files(
    folder: str,
    root: str,
    limit: int,
    skipped_links: list[str],
    excluded: list[str] | None = None,
    *,
    also: Collection[Role] = (),
) -> Iterator[tuple[str, str, os.stat_result]]:
    """Yield the relative path, the real path and the status of the regular files of a skill, sorted in each folder.

    Nested skills are separate skills and omitted. A link is followed if its target is inside ``root``. Generated
    files, virtual environments, tests and proofs are not part of a skill, and neither are links to them.

    Args:
        folder: The folder of the skill.
        root: The real path that links must not leave.
        limit: Maximum number of files.
        skipped_links: Receives the relative paths of the links that leave ``root`` or point to nothing.
        excluded: Receives the relative paths of files and folders that are not part of the skill, the topmost only.
        also: Roles of files that are yielded although they are not part of a skill.
    """
    real_folder = os.path.realpath(folder)
    seen = {real_folder}
    pending = [("", folder, real_folder)]
    count = 0
    while pending:
        prefix, current, real_current = pending.pop()
        try:
            with os.scandir(current) as scanned:
                entries = sorted(scanned, key=lambda entry: entry.name)
        except OSError:
            continue  # the files of a directory that this process cannot read
        if prefix:
            names = [entry.name for entry in entries]
            if skill_file_in(names):
                continue
            if "generated" not in also and is_environment(names):
                _note(excluded, prefix[:-1])
                continue
        below: list[tuple[str, str, str]] = []
        for entry in entries:
            if entry.name in ALWAYS_EXCLUDED:
                continue
            relative, real = prefix + entry.name, entry.path
            # Below the first level only the name matters: other roles are those of the first part.
            if is_generated(entry.name) and "generated" not in also if prefix else _is_left_out(relative, also):
                _note(excluded, relative)
                continue
            is_link = _is_link(entry)
            if is_link:
                real = os.path.realpath(entry.path)
                if not inside(real, root):
                    skipped_links.append(relative)
                    continue
                if inside(real, real_folder) and _is_left_out(real[len(real_folder) + 1 :], also):
                    _note(excluded, relative)
                    continue
            try:
                status = os.stat(real)
            except OSError:
                if is_link and not os.path.lexists(real):
                    skipped_links.append(relative)
                continue
            if stat.S_ISREG(status.st_mode):
                count += 1
                if count > limit:
                    return
                yield relative, real, status
            elif stat.S_ISDIR(status.st_mode):
                target = real if is_link else os.path.join(real_current, entry.name)
                if target not in seen:
                    seen.add(target)
                    below.append((relative + "/", entry.path, target))
        pending.extend(reversed(below))


def _is_link(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_symlink()
    except OSError:  # a file system without types of entries, and a directory that can only be listed
        return False


def _note(excluded: list[str] | None, path: str) -> None:
    if excluded is not None:
        excluded.append(path)


def _is_left_out(path: str, also: Collection[Role]) -> bool:
    role = role_of(path)
    return role not in ("model", "person") and role not in also
