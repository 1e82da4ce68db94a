"""The Python interpreter of commands: ``python`` and ``python3`` are the worker's, with its packages."""

from __future__ import annotations

import os
import shlex
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from flink_skills.execution.request import CommandUser
from flink_skills.execution.workspace.safe_files import Ownership, can_pass, folder_in, replace_file

PROGRAMS = "bin"
"""The folder of a workspace that contains :attr:`CommandPython.programs`."""

_PYTHONS = ("python", "python3")
_PIPS = ("pip", "pip3")
# Other programs of these folders must not move before those of the other folders of the path.
_SHARED_FOLDERS = frozenset({"/bin", "/usr/bin", "/sbin", "/usr/sbin", "/usr/local/bin", "/usr/local/sbin"})


@dataclass(frozen=True)
class CommandPython:
    """The interpreter of commands and its programs.

    Attributes:
        path: The value of ``PATH``.
        interpreter: The path of the interpreter; empty if there is none.
        programs: Scripts to create in a folder that precedes the path, by name.
        remark: Why the interpreter is not the worker's, for an operator; empty if it is.
    """

    path: str
    interpreter: str = ""
    programs: Mapping[str, str] = field(default_factory=dict)
    remark: str = ""

    @property
    def interpreters(self) -> dict[str, str]:
        """The programs that only start the interpreter, by name, with its path."""
        return {name: self.interpreter for name in _PYTHONS if name in self.programs}


def command_python(path: str, python: str, user: CommandUser | None = None) -> CommandPython:
    """Return how commands of ``user`` (None: the worker's own) with ``path`` find the interpreter ``python``.

    The folder of a virtual environment or of another installation of Python precedes the path, as if it were
    activated. Names that are missing there, or that belong to another interpreter in a folder of the system, become
    scripts, so that ``sys.executable`` is the same for all names. If the user cannot run ``python``, both names are the
    first interpreter of the path.

    >>> command_python("/usr/bin:/bin", "/opt/venv/bin/python").path
    '/opt/venv/bin:/usr/bin:/bin'
    """
    if not python:
        return CommandPython(path)
    if not _can_run(python, user):
        return _without(path, python, user)
    if all(_is_same(_first(name, path, user), python) for name in _PYTHONS):
        return CommandPython(path, python)
    folder = os.path.dirname(python)
    if os.path.realpath(folder) not in _SHARED_FOLDERS:
        path = os.pathsep.join([folder, *(entry for entry in path.split(os.pathsep) if entry != folder)])
    programs = {name: _script(python) for name in _PYTHONS if not _is_same(_first(name, path, user), python)}
    for name in _PIPS:
        found = _first(name, path, user)
        if not found or os.path.dirname(found) != folder:
            programs[name] = _script(python, "-m", "pip")
    return CommandPython(path, python, programs)


def make_programs(root: int, programs: Mapping[str, str], ownership: Ownership) -> None:
    """Write ``programs`` to their folder in the open workspace ``root``. Raises :class:`OSError`."""
    if programs:
        with folder_in(root, PROGRAMS, ownership.closed) as folder:
            for name, script in programs.items():
                replace_file(root, folder, name, script.encode(), ownership.program, force=True)


def _without(path: str, python: str, user: CommandUser | None) -> CommandPython:
    other = next((found for name in reversed(_PYTHONS) if (found := _first(name, path, user))), "")
    who = "the user of the worker" if user is None else f"user {user.uid}"
    denied = f"commands run as {who}, which cannot run the worker's interpreter {python}"
    if not other:
        return CommandPython(
            path, remark=f"{denied}, and their PATH has no other Python; allow that user to access the interpreter"
        )
    remark = (
        f"{denied}; their python and python3 are {other}. To provide the interpreter's packages in commands, allow "
        "that user to access it"
    )
    programs = {name: _script(other) for name in _PYTHONS if not _is_same(_first(name, path, user), other)}
    return CommandPython(path, other, programs, remark)


def _first(name: str, path: str, user: CommandUser | None) -> str:
    """Return the first program ``name`` of ``path`` that ``user`` can run, or an empty text."""
    for folder in path.split(os.pathsep):
        found = shutil.which(name, path=folder) if folder else None
        if found and _can_run(found, user):
            return found
    return ""


def _is_same(found: str, python: str) -> bool:
    """Return True if ``found`` is the interpreter ``python`` with the same packages."""
    try:
        if not found or not os.path.samefile(found, python):
            return False
        # A link from elsewhere to the interpreter of a virtual environment does not have its packages.
        return not _is_virtual(python) or os.path.samefile(os.path.dirname(found), os.path.dirname(python))
    except OSError:
        return False


def _is_virtual(python: str) -> bool:
    return (Path(python).parent.parent / "pyvenv.cfg").is_file()


def _script(*words: str) -> str:
    return f'#!/bin/sh\nexec {shlex.join(words)} "$@"\n'


def _can_run(program: str, user: CommandUser | None) -> bool:
    """Return True if ``user`` can run ``program``, as far as modes tell."""
    if not os.access(program, os.X_OK):
        return False
    if user is None:
        return True
    try:
        real = Path(os.path.realpath(program))
        ways = {*Path(os.path.abspath(program)).parents, *real.parents, real}
        return all(can_pass(user, way.stat()) for way in ways)
    except OSError:
        return False
