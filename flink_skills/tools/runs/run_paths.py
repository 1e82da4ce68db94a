"""Paths of a run in the workspace: those that a model writes, and those that a run needs for itself."""

from __future__ import annotations

import os
import posixpath
import re
import stat
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from flink_skills.errors import ExecutionError
from flink_skills.execution import Workspace
from flink_skills.execution.workspace.safe_files import Ownership, folder_in, pinned, remove_tree
from flink_skills.tools.arguments import ArgumentError
from flink_skills.tools.commands.folders import real_path, with_copies

_VARIABLE = re.compile(r"\$(?:\{(\w+)\}|(\w+))(?=/|$)")


@dataclass(frozen=True)
class Places:
    """The directories of a run.

    ``home`` is the default working directory, the skill's copy. ``output_dir`` is the output directory of the run.
    ``originals`` maps the original directories of skills, which their texts name, to the copies.
    """

    workspace: Workspace
    home: Path
    run_dir: Path
    output_dir: Path
    originals: Mapping[str, Path] = field(default_factory=dict)

    def expand(self, what: str, text: str) -> str:
        """Return ``text`` with its leading variable replaced. Raises :class:`ArgumentError` for an unknown variable.

        >>> places.expand("cwd", "${WORK_DIR}/a")
        '/tmp/job/ws_1/work/a'
        """
        if "\0" in text or any("\ud800" <= sign <= "\udfff" for sign in text):
            raise ArgumentError(f"{what} {text!r} holds characters that no path can have: write it without them.")
        match = _VARIABLE.match(text)
        if match is None:
            return text
        roots = self._roots()
        name = match.group(1) or match.group(2)
        if name not in roots:
            known = ", ".join(f"${root}" for root in roots)
            raise ArgumentError(f"{what} {text!r} begins with a variable that is not known here: use one of {known}.")
        return str(roots[name]) + text[match.end() :]

    def cwd(self, text: str | None) -> tuple[Path, str]:
        """Return the folder that ``cwd`` names, and a warning or an empty text.

        A path that leads out of the skill or the workspace stands for the skill's folder. Reads the disk. Raises
        :class:`ArgumentError` for a folder that does not exist.
        """
        asked = (text or "").strip()
        if asked in ("", "."):
            return self.home, ""
        path = self.expand("cwd", asked)
        if not path.startswith("/"):
            path = posixpath.normpath(posixpath.join(str(self.home), path))
            inside = Path(path).is_relative_to(self.home)
        else:
            path = self._copy_of(path)
            inside = True
        try:
            real = real_path(path)
            # Compared on real paths: a link that leads out of the workspace is no way out of it.
            if not inside or not real.is_relative_to(os.path.realpath(self.workspace.root)):
                return self.home, f"cwd {asked!r} leads out of the skill, so the command ran in the skill's folder"
            mode = real.stat().st_mode
        except OSError as error:  # also what a command has closed, or made deeper than a path can be long
            raise ArgumentError(
                f"cwd {asked!r} cannot be entered ({error.strerror}). Leave cwd out for the skill's folder, or make "
                "the folder first."
            ) from None
        if not stat.S_ISDIR(mode):
            raise ArgumentError(f"cwd {asked!r} is not a folder. Leave cwd out for the skill's folder.")
        return real, ""

    def relative(self, what: str, text: str) -> str | None:
        """Return ``text`` as a path or pattern relative to the workspace. Return None if it is outside."""
        path = self.expand(what, text.strip().removeprefix("workspace://").replace("\\", "/"))
        root = str(self.workspace.root)
        if path.startswith("/"):
            path = self._copy_of(path)
            if path != root and not path.startswith(f"{root}/"):
                return None
            path = path[len(root) :].lstrip("/")
        path = posixpath.normpath(path) if path else "."
        return None if path.split("/", 1)[0] == ".." else path

    def with_copies(self, command: str) -> str:
        """See :func:`flink_skills.tools.commands.folders.with_copies`."""
        return with_copies(command, self.originals)

    def _copy_of(self, path: str) -> str:
        for original, copy in self.originals.items():
            if path == original or path.startswith(f"{original}/"):
                return str(copy) + path[len(original) :]
        return path

    def _roots(self) -> dict[str, Path]:
        return {
            "WORK_DIR": self.workspace.work_dir,
            "OUTPUT_DIR": self.output_dir,
            "SKILLS_DIR": self.workspace.skills_dir,
            "WORKSPACE_DIR": self.workspace.root,
            "RUN_DIR": self.run_dir,
        }


# Files are made in held folders here, which pathlib cannot work with.


_OWN = ".flink_skills"
_TEXT, _EDITOR = "editor-text", "editor"
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC

# The file to edit is the last argument. Programs such as "crontab -e" and "git commit" put options before it.
_SCRIPT = f"""#!/bin/sh
for target; do :; done
cat -- "${{0%/*}}/{_TEXT}" > "${{target:?no file to edit}}"
"""


def write_editor(workspace: Workspace, run: str, text: str) -> Path:
    """Create an editor program for ``run`` that writes ``text`` to the edited file. Return its path.

    Each run has a separate program, because calls of one response may run at the same time. Raises
    :class:`ExecutionError`.
    """
    ownership = Ownership(workspace.user)
    with _failing(workspace, "the text for the editor"), _opened(workspace, ("work", _OWN, run)) as folder:
        for name, content, rights in (
            (_TEXT, text.encode("utf-8", "replace"), ownership.handed),
            (_EDITOR, _SCRIPT.encode(), ownership.open),
        ):
            with suppress(FileNotFoundError):
                os.unlink(name, dir_fd=folder)
            descriptor = os.open(name, _NEW, 0o600, dir_fd=folder)
            try:
                rest = memoryview(content)
                while rest:
                    rest = rest[os.write(descriptor, rest) :]
                rights.apply(descriptor)
            finally:
                os.close(descriptor)
    return workspace.work_dir / _OWN / run / _EDITOR


def remove_editor(workspace: Workspace, run: str) -> None:
    """Remove the files of :func:`write_editor`. Files that a command protected stay, because only it uses them."""
    with suppress(OSError), ExitStack() as stack:
        folder = stack.enter_context(pinned(workspace.root))
        work = stack.enter_context(pinned("work", folder))
        own = stack.enter_context(pinned(_OWN, work))
        remove_tree(run, dir_fd=own)


def make_output_dir(workspace: Workspace, parts: Sequence[str]) -> Path:
    """Create the directory ``parts`` of the workspace. Raises :class:`ArgumentError` if it is not a directory."""
    path = "/".join(parts)
    for end in range(1, len(parts) + 1):
        with suppress(FileNotFoundError):
            found = workspace.root.joinpath(*parts[:end]).lstat()
            if not stat.S_ISDIR(found.st_mode):
                raise ArgumentError(f"OUTPUT_DIR {path!r}: {'/'.join(parts[:end])!r} is not a folder: name another.")
    with _failing(workspace, f"the folder {path!r}"), _opened(workspace, parts):
        return workspace.root.joinpath(*parts)


@contextmanager
def _opened(workspace: Workspace, parts: Sequence[str]) -> Iterator[int]:
    """Open a directory below the workspace. Missing directories are created, and links are replaced."""
    rights = Ownership(workspace.user).open
    with ExitStack() as stack:
        folder = stack.enter_context(pinned(workspace.root))
        for part in parts:
            folder = stack.enter_context(folder_in(folder, part, rights))
        yield folder


@contextmanager
def _failing(workspace: Workspace, what: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise ExecutionError(f"{what} cannot be put into workspace {workspace.root}: {error}") from error
