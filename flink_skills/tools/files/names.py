"""How models name places: relative to the tool's folder, by a variable, or by the path that commands see."""

from __future__ import annotations

import os
import posixpath
import re
from collections.abc import Mapping
from pathlib import Path

from flink_skills.errors import ConfigError
from flink_skills.execution import Workspace
from flink_skills.tools.arguments import ArgumentError

__all__ = ["ROOTS", "WRITE_ROOTS", "Names", "Parts", "cwd_parts"]

Parts = tuple[str, ...]

#: The folders of a workspace that file tools change, and those that they read.
WRITE_ROOTS = ("work", "out", "runs", "tmp", "home")
ROOTS = (*WRITE_ROOTS, "skills")

_VARIABLES: Mapping[str, Parts] = {
    "WORK_DIR": ("work",),
    "OUTPUT_DIR": ("out",),
    "SKILLS_DIR": ("skills",),
    "WORKSPACE_DIR": (),
    "TMPDIR": ("tmp",),
    "HOME": ("home",),
}
_VARIABLE = re.compile(r"\$(?:\{(\w+)\}|(\w+))(?=/|$)")
_MAX_LENGTH = 4096
_MAX_PART = 255
_MAX_DEPTH = 64
_ADVICE = "Give a path relative to the working folder, or one that begins with $WORK_DIR, $OUTPUT_DIR or $SKILLS_DIR."


class Names:
    """Turns what a model writes into parts below the workspace, and back. Looks at no disk.

    ``cwd`` are the parts of the folder that relative paths start at. ``originals`` maps the folders in which loaded
    skills really live, which their texts name, to their copies in the workspace.
    """

    def __init__(self, workspace: Workspace, cwd: Parts, originals: Mapping[str, Path]) -> None:
        self.cwd = cwd
        # A model may have either from a command: "pwd" and "realpath ." differ where a link leads to the workspace.
        self._tops = tuple(dict.fromkeys((str(workspace.root), os.path.realpath(workspace.root))))
        self._originals = {
            original: Path(copy).relative_to(workspace.root).parts for original, copy in originals.items()
        }

    def parts(self, text: str, what: str = "path") -> Parts:
        """The parts of a path below the workspace; () is the workspace itself. Raises :class:`ArgumentError`.

        >>> names.parts("../out/a.csv")
        ('out', 'a.csv')
        """
        check_path(text, what)
        return self._inside(self._joined(text), text, what)

    def pattern(self, text: str) -> str:
        """A pattern relative to the workspace, with what is a wildcard in the tool's own folder taken literally."""
        check_path(text, "pattern")
        path = text.replace("\\", "/")
        if not path.startswith(("/", "~", "$")):
            path = posixpath.join(*(_literal(part) for part in self.cwd), path)
            return "/".join(self._inside(tuple(path.split("/")), text, "pattern"))
        return "/".join(self._inside(self._joined(path), text, "pattern"))

    def shown(self, parts: Parts) -> str:
        """A path that the model can give back, and a shell command too: it names no folder of the machine.

        >>> names.shown(("work", "a", "b.txt")), names.shown(("out", "c.csv"))
        ('a/b.txt', '$OUTPUT_DIR/c.csv')
        """
        if parts[: len(self.cwd)] == self.cwd:
            return "/".join(parts[len(self.cwd) :]) or "."
        for name, root in _VARIABLES.items():
            if root and parts[:1] == root:
                return "/".join((f"${name}", *parts[1:]))
        return "/".join(("$WORKSPACE_DIR", *parts))

    def _joined(self, text: str) -> Parts:
        path = text.replace("\\", "/")
        if path == "~" or path.startswith("~/"):
            return ("home", *path[2:].split("/"))
        variable = _VARIABLE.match(path)
        if variable is not None:
            return (*_root_of(variable, text), *path[variable.end() :].split("/"))
        if not path.startswith("/"):
            return (*self.cwd, *path.split("/"))
        path = posixpath.normpath(path)
        for top, parts in (*((top, ()) for top in self._tops), *self._originals.items()):
            if path == top or path.startswith(f"{top}/"):
                return (*parts, *path[len(top) :].split("/"))
        raise ArgumentError(f"{text!r} is outside the workspace, and nothing is read or written there. {_ADVICE}")

    def _inside(self, parts: Parts, text: str, what: str) -> Parts:
        found: list[str] = []
        for part in parts:
            if part == ".." and not found:
                raise ArgumentError(f"{what} {text!r} leads out of the workspace by '..'. {_ADVICE}")
            if part == "..":
                found.pop()
            elif part not in ("", "."):
                found.append(part)
        return tuple(found)


def cwd_parts(cwd: str | None, tool: str) -> Parts:
    """The folder that a tool is made for, below the workspace; raises :class:`ConfigError`.

    >>> cwd_parts("reports", "Read"), cwd_parts("$OUTPUT_DIR", "Read")
    (('work', 'reports'), ('out',))
    """
    text = cwd or ""
    variable = _VARIABLE.match(text)
    if text.startswith(("/", "~")) or "\0" in text:
        raise ConfigError(
            f"{tool}(cwd={cwd!r}): expected a directory of the workspace, which every key has for itself: write it "
            "relative to the work directory, or start with $WORK_DIR, $OUTPUT_DIR or $SKILLS_DIR"
        )
    try:
        start = _root_of(variable, text) if variable else ("work",)
    except ArgumentError as error:
        raise ConfigError(f"{tool}(cwd={cwd!r}): {error}") from None
    below = [part for part in text[variable.end() if variable else 0 :].split("/") if part not in ("", ".")]
    parts = (*start, *below)
    if ".." in parts or (parts and parts[0] not in ROOTS):
        raise ConfigError(f"{tool}(cwd={cwd!r}): expected a directory below one of {', '.join(ROOTS)}")
    return parts


def check_path(text: str, what: str) -> None:
    """Raise :class:`ArgumentError` for what no path can be."""
    if not text.strip():
        raise ArgumentError(f"{what} is empty: name a file or a folder.")
    if "\0" in text or any("\ud800" <= sign <= "\udfff" for sign in text):
        raise ArgumentError(f"{what} {text[:80]!r} holds characters that no path can have: write it without them.")
    parts = text.split("/")
    if len(text) > _MAX_LENGTH or len(parts) > _MAX_DEPTH or any(len(part.encode()) > _MAX_PART for part in parts):
        raise ArgumentError(
            f"{what} {text[:80]!r}… is too long: at most {_MAX_LENGTH} characters, {_MAX_DEPTH} folders, and "
            f"{_MAX_PART} bytes for a name."
        )


def _root_of(variable: re.Match[str], text: str) -> Parts:
    name = variable[1] or variable[2]
    if name not in _VARIABLES:
        known = ", ".join(f"${one}" for one in _VARIABLES)
        raise ArgumentError(f"{text!r} begins with a variable that is not known here: use one of {known}.")
    return _VARIABLES[name]


def _literal(part: str) -> str:
    return re.sub(r"[*?\[{]", lambda sign: f"[{sign[0]}]", part)
