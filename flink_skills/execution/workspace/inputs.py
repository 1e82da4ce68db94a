"""What the worker puts into ``work/inputs``, where commands may have put anything: links, pipes, folders."""

# Files are made in held folders here, which pathlib cannot work with.
from __future__ import annotations

import errno
import os
import secrets
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from flink_skills.errors import ConfigError, ExecutionError
from flink_skills.execution.workspace.removal import remove_tree
from flink_skills.execution.workspace.rights import Rights

__all__ = ["EVENT_FILE", "Input", "move_in", "name_inputs", "put_file", "put_link", "unfinished_name"]

EVENT_FILE = "event.json"
_TRIES = 20
_IN_THE_WAY = frozenset({errno.EISDIR, errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR})
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


@dataclass(frozen=True)
class Input:
    """A file or folder of the machine that the job lets commands read, and its name in ``work/inputs``."""

    source: str
    name: str

    @property
    def resolved(self) -> str:
        """Where it really is at the moment: mounted configuration moves when it is updated."""
        return os.path.realpath(self.source)


def name_inputs(paths: tuple[str, ...]) -> tuple[Input, ...]:
    """Names for the paths of ``skills.workspace.inputs``: the last part, with a number where it is taken.

    Raises :class:`ConfigError` for one that does not exist on this machine.

    >>> [given.name for given in name_inputs(("/usr/lib", "/lib"))]
    ['lib', 'lib-2']
    """
    taken = {EVENT_FILE}
    named = []
    for path in paths:
        if not os.path.lexists(path) or not os.path.lexists(os.path.realpath(path)):
            raise ConfigError(
                f"option skills.workspace.inputs: {path!r} does not exist on this machine: create it on every "
                "TaskManager, or remove it from the list"
            )
        base = Path(path).name or "root"
        stem, dot, suffix = base.partition(".") if not base.startswith(".") else (base, "", "")
        name, number = base, 1
        while name in taken:
            number += 1
            name = f"{stem}-{number}{dot}{suffix}"
        taken.add(name)
        named.append(Input(path, name))
    return tuple(named)


def put_file(root: int, folder: int, name: str, data: bytes, rights: Rights) -> None:
    """Write ``name`` in the open ``folder``, at once or not at all; it is built in ``root``, where no command writes.

    Raises :class:`OSError`, and :class:`ExecutionError` where somebody keeps putting folders in its place.
    """
    building = unfinished_name()
    descriptor = os.open(building, _NEW, 0o600, dir_fd=root)
    try:
        try:
            rest = memoryview(data)
            while rest:
                rest = rest[os.write(descriptor, rest) :]
            rights.apply(descriptor)
        finally:
            os.close(descriptor)
        move_in(root, building, folder, name)
    except BaseException:
        with suppress(OSError):
            os.unlink(building, dir_fd=root)
        raise


def put_link(root: int, folder: int, name: str, target: str) -> bool:
    """Make ``name`` in the open ``folder`` a link to ``target``; False if it is one already. Raises as above."""
    with suppress(OSError):  # nothing there, or something else
        if os.readlink(name, dir_fd=folder) == target:
            return False
    building = unfinished_name()
    os.symlink(target, building, dir_fd=root)
    try:
        move_in(root, building, folder, name)
    except BaseException:
        with suppress(OSError):
            os.unlink(building, dir_fd=root)
        raise
    return True


def unfinished_name() -> str:
    """A name in the workspace's root for what is not complete yet."""
    return f".input-{secrets.token_hex(8)}"


def move_in(root: int, building: str, folder: int, name: str) -> None:
    """Move ``building`` in the open ``root`` to ``name`` in the open ``folder``, whatever is there. Raises as above."""
    for _ in range(_TRIES):
        try:
            os.rename(building, name, src_dir_fd=root, dst_dir_fd=folder)
        except OSError as error:
            if error.errno not in _IN_THE_WAY:
                raise
            remove_tree(name, dir_fd=folder)
        else:
            return
    raise ExecutionError(f"writing the input {name!r} failed: a command repeatedly creates a directory of this name")
