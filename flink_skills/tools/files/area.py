"""The files of a workspace as file tools reach them: links are followed by hand, and never out of it.

A path is first resolved, link by link. Then what it came to is opened part by part through held folders, without
following anything: a link that a command puts there in between makes the call fail, and leads nowhere.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Collection, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass

from flink_skills.execution import Limits, Workspace
from flink_skills.execution.workspace.safe_files import pinned
from flink_skills.execution.workspace.workspace_paths import Reach, WorkspacePathError, is_sealed
from flink_skills.tools.arguments import ArgumentError
from flink_skills.tools.files.names import ROOTS, WRITE_ROOTS, Names, Parts

__all__ = ["Area", "Target"]

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
