"""Paths of the file tools: what a model writes, as a file of the workspace.

A path is resolved link by link, inside the workspace only. The result is then opened part by part through held folders,
without following links: if a command puts a link there in between, the call fails.
"""

from __future__ import annotations

import os
import posixpath
import re
import stat
from collections.abc import Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from flink_skills.errors import ConfigError
from flink_skills.execution import Limits, Workspace
from flink_skills.execution.workspace.safe_files import pinned
from flink_skills.execution.workspace.workspace_paths import Reach, WorkspacePathError, is_sealed
from flink_skills.tools.arguments import ArgumentError

__all__ = ["ROOTS", "WRITE_ROOTS", "Area", "Names", "Parts", "Target", "cwd_parts"]

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


_MAX_LINKS = 40


@dataclass(frozen=True)
class Target:
    """A place that a path came to, below the workspace, or below ``granted``: a path of the machine that the job lets
    commands read. ``asked`` are the parts as they were asked for."""

    parts: Parts
    asked: Parts
    granted: str = ""


class Area:
    """The workspace of one call. ``skills`` are the folders of those skills that the model has. All of it blocks."""

    def __init__(self, workspace: Workspace, names: Names, skills: Collection[str], limits: Limits) -> None:
        self.workspace = workspace
        self.names = names
        self.skills = skills
        self.limits = limits
        self.reach = Reach(workspace.user)

    @contextmanager
    def held(self) -> Iterator[int]:
        """The workspace, open. Raises :class:`~flink_skills.errors.ExecutionError`."""
        self.workspace.ensure()
        with pinned(self.workspace.root) as root:
            yield root

    def locate(self, root: int, path: str, what: str = "path") -> Target:
        """Where ``path`` leads; raises :class:`ArgumentError`. What is not there yet is a target all the same."""
        asked = self.names.parts(path, what)
        with self.told(asked):
            target = self._follow(root, asked)
        if not target.granted:
            self._check_visible(target.parts, path)
        return target

    def _check_visible(self, parts: Parts, path: str) -> None:
        if parts and parts[0] not in ROOTS:
            raise ArgumentError(f"{path!r} is in none of the folders of the workspace: {', '.join(ROOTS)}.")
        if len(parts) > 1 and parts[0] == "skills" and parts[1] not in self.skills:
            raise ArgumentError(f"{path!r}: there is no skill {parts[1]!r} here. Load it first.")

    def check_writable(self, target: Target, path: str) -> None:
        """Raise :class:`ArgumentError` where file tools change nothing."""
        parts = target.parts
        if target.granted or parts[:1] == ("skills",):
            raise ArgumentError(f"{path!r} is read-only: write to $WORK_DIR or $OUTPUT_DIR.")
        if len(parts) < 2 or parts[0] not in WRITE_ROOTS:
            raise ArgumentError(f"{path!r} is a folder: name a file in it.")
        if parts[:2] == ("work", "inputs") and len(parts) > 2 and parts[2] in self.workspace.input_names:
            raise ArgumentError(f"{path!r} is the event or an input of the job, and read-only: choose another name.")

    @contextmanager
    def folder(self, root: int, target: Target) -> Iterator[int]:
        """Hold the folder that is there open. Raises :class:`ArgumentError`."""
        with self.told(target.asked), self._base(root, target) as base, self.reach.below(base, target.parts) as folder:
            if target.parts:
                yield folder
                return
            # What is held for its path cannot be listed.
            descriptor = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=folder)
            try:
                yield descriptor
            finally:
                os.close(descriptor)

    @contextmanager
    def file(self, root: int, target: Target) -> Iterator[int]:
        """Hold the regular file that is there open for reading. Raises :class:`ArgumentError`."""
        shown = self._quoted(target.asked)
        with self.told(target.asked), ExitStack() as held:
            parts = target.parts
            if not parts and not target.granted:
                raise WorkspacePathError(f"{shown} is a folder. Name a file in it.", "no-file")
            trusted = bool(target.granted) or is_sealed(parts)
            if not parts:
                above, _, name = target.granted.rpartition("/")
                base = held.enter_context(_granted(above or "/", shown))
                parts = (name,)
            else:
                base = held.enter_context(self._base(root, target))
            folder = held.enter_context(self.reach.below(base, parts[:-1]))
            yield held.enter_context(self.reach.file(parts[-1], folder, shown=shown, trusted=trusted))

    def kind(self, root: int, target: Target) -> str:
        """``file``, ``folder``, or ``""`` for what is not there. Raises :class:`ArgumentError`."""
        if not target.parts and not target.granted:
            return "folder"
        try:
            with self.told(target.asked), ExitStack() as held:
                if not target.parts:
                    mode = os.lstat(target.granted).st_mode
                else:
                    base = held.enter_context(self._base(root, target))
                    folder = held.enter_context(self.reach.below(base, target.parts[:-1]))
                    mode = os.stat(target.parts[-1], dir_fd=folder, follow_symlinks=False).st_mode
        except _MissingError:
            return ""
        return "folder" if stat.S_ISDIR(mode) else "file"

    @contextmanager
    def told(self, asked: Parts) -> Iterator[None]:
        """Errors of what is done at a place in words that a model can act on: :class:`ArgumentError`."""
        shown = self.names.shown(asked)
        try:
            yield
        except WorkspacePathError as error:
            raise ArgumentError(str(error)) from None
        except FileNotFoundError:
            raise _MissingError(f"{shown!r} does not exist: list the files first, with Glob.") from None
        except NotADirectoryError:
            raise _MissingError(
                f"{shown!r} is not a folder, or has a file or a link in place of a folder above it."
            ) from None
        except OSError as error:
            raise ArgumentError(f"{shown!r} cannot be used: {error.strerror or error}.") from None

    @contextmanager
    def _base(self, root: int, target: Target) -> Iterator[int]:
        if not target.granted:
            yield root
            return
        with _granted(target.granted, self._quoted(target.asked)) as base:
            yield base

    def _quoted(self, asked: Parts) -> str:
        return repr(self.names.shown(asked))

    def _follow(self, root: int, asked: Parts) -> Target:
        base, top, granted = root, str(self.workspace.root), ""
        shown = self._quoted(asked)
        waiting, done = list(reversed(asked)), list[str]()
        links = 0
        with ExitStack() as held:
            while waiting:
                part = waiting.pop()
                if part in ("", "."):
                    continue
                if part == "..":
                    if not done:
                        raise WorkspacePathError(
                            f"{shown} leads out of the workspace through '..' of a link", "invalid"
                        )
                    done.pop()
                    continue
                text = self._link(base, done, part)
                if text is None:
                    done.append(part)
                    continue
                links += 1
                if links > _MAX_LINKS:
                    raise WorkspacePathError(f"{shown} leads through more than {_MAX_LINKS} links", "invalid")
                if text.startswith("/"):
                    if not granted and [*done, part][:2] == ["work", "inputs"] and text in self.workspace.readable[1:]:
                        granted = top = text
                        done = []
                        if stat.S_ISDIR(os.lstat(text).st_mode):
                            base = held.enter_context(_granted(text, shown))
                        elif any(waiting):
                            raise NotADirectoryError(text)
                        continue
                    if text != top and not text.startswith(f"{top}/"):
                        raise WorkspacePathError(
                            f"{shown} leads out of the workspace through a link. Such links are not followed.",
                            "invalid",
                        )
                    text, done = text[len(top) :], []
                waiting += reversed(text.split("/"))
        return Target(tuple(done), asked, granted)

    def _link(self, base: int, folders: list[str], name: str) -> str | None:
        """What the link ``name`` says; None for anything else, also for what is not there."""
        with suppress(FileNotFoundError, NotADirectoryError), self.reach.below(base, folders) as folder:
            if stat.S_ISLNK(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode):
                return os.readlink(name, dir_fd=folder)
        return None


class _MissingError(ArgumentError):
    """Nothing is there."""


@contextmanager
def _granted(path: str, shown: str) -> Iterator[int]:
    """A folder of the machine that the job grants, by its real path."""
    with pinned(path) as descriptor:
        # What was opened counts: a link on the way may have come a moment ago.
        if os.readlink(f"/proc/self/fd/{descriptor}") != path:
            raise WorkspacePathError(f"the path to {shown} changed: one of its folders is now a link", "invalid")
        yield descriptor
