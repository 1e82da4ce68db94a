"""Inputs of a command: files, standard input and the skill."""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import BinaryIO

from flink_skills.cli.printing import diagnostic_line, print_line
from flink_skills.cli.source_args import skill_sources
from flink_skills.errors import ConfigError, UnknownNameError
from flink_skills.execution import Workspace
from flink_skills.manager import AgentSkillManager
from flink_skills.options import SkillConfig
from flink_skills.skill import AgentSkill

__all__ = ["copy_inputs", "open_optional_skill", "open_skill", "parse_inputs", "read_stdin"]


def parse_inputs(paths: Sequence[str]) -> dict[str, str]:
    """Return the paths of ``--input`` by their name in ``work/inputs``, which is the last component.

    Raises:
        ConfigError: A path is not a readable file, or two paths have the same name.
    """
    inputs: dict[str, str] = {}
    for path in paths:
        name = os.path.basename(path)
        with _open_regular_file("--input", path):
            pass  # Check that the file can be read.
        if name in inputs:
            raise ConfigError(
                f"--input {path}: {inputs[name]} has the same name, and both are copied to one directory. Rename one."
            )
        inputs[name] = path
    return inputs


def copy_inputs(inputs: Mapping[str, str], workspace: Workspace) -> None:
    """Copy files to ``work/inputs`` of a workspace and make the user of the commands their owner.

    No command may have run in the workspace before.

    Raises:
        ConfigError: A file cannot be copied.
    """
    for name, path in inputs.items():
        with _open_regular_file("--input", path) as source:
            try:
                with (workspace.inputs_dir / name).open("xb") as copy:
                    shutil.copyfileobj(source, copy, 1 << 20)
                    os.fchmod(copy.fileno(), 0o700 if os.fstat(source.fileno()).st_mode & 0o111 else 0o600)
                    if workspace.user is not None:
                        os.fchown(copy.fileno(), workspace.user.uid, workspace.user.gid)
            except FileExistsError:
                raise ConfigError(
                    f"--input {path}: skills.workspace.inputs also contains a file of this name. Rename one."
                ) from None
            except OSError as error:
                raise ConfigError(f"--input {path}: the file cannot be copied: {error.strerror or error}") from error


def read_stdin(path: str | None) -> bytes:
    """Return the content that ``--stdin`` names: a file, or ``-`` for the stdin of this process.

    Raises:
        ConfigError: The file cannot be read.
    """
    if path is None:
        return b""
    if path == "-":
        return sys.stdin.buffer.read()
    with _open_regular_file("--stdin", path) as file:
        return file.read()


@contextlib.contextmanager
def open_optional_skill(name: str | None, sources: Sequence[str], config: SkillConfig) -> Iterator[AgentSkill | None]:
    """Open the skill ``name`` as :func:`open_skill` does. Yield None if ``name`` is None."""
    if name is None:
        yield None
        return
    with open_skill(name, sources, config) as skill:
        yield skill


@contextlib.contextmanager
def open_skill(name: str | None, sources: Sequence[str], config: SkillConfig) -> Iterator[AgentSkill]:
    """Open the skill ``name`` as a job with these sources loads it, or the only skill if ``name`` is None.

    Errors of skipped skills are printed on stderr if the skill is missing.

    Raises:
        SkillsError: A source cannot be read, or no source contains the skill.
        ConfigError: ``name`` is None and there are several skills, or the job does not support the skill.
    """
    paths, urls = skill_sources(sources)
    manager = AgentSkillManager(paths, urls=urls, config=config)
    with manager:
        manager.check_sources()
        names = [skill.name for skill in manager.get_skills()]
        if name is None and len(names) > 1:
            raise ConfigError(f"{sources[0]} contains {len(names)} skills. Select one, for example --skill {names[0]}")
        selected = name if name is not None else next(iter(names), "")
        if selected not in names:
            for diagnostic in manager.diagnostics:
                if diagnostic.severity == "error":
                    print_line(*diagnostic_line(diagnostic), stream=sys.stderr)
            if name is None:
                raise ConfigError(f"{sources[0]} contains no skill. A skill is a folder with a SKILL.md.")
            raise UnknownNameError("skill", name, names)
        if selected in manager.hidden:
            raise ConfigError(f"{manager.hidden[selected]}")
        manager.inspect([selected])  # Records the digest. Files that change later are rejected.
        skill = manager.view([selected]).get(selected)
        if skill is None:
            raise UnknownNameError("skill", selected, names)
        yield skill


@contextlib.contextmanager
def _open_regular_file(option: str, path: str) -> Iterator[BinaryIO]:
    try:
        # Do not block on a FIFO that has no writer.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise ConfigError(f"{option} {path}: the file cannot be read: {reason}") from error
    mode = os.fstat(descriptor).st_mode
    if not stat.S_ISREG(mode):
        os.close(descriptor)
        if stat.S_ISDIR(mode):
            raise ConfigError(f"{option} {path}: the path is a directory. Name each file.")
        raise ConfigError(f"{option} {path}: the path is not a regular file. Save the content to a file.")
    with os.fdopen(descriptor, "rb") as file:
        yield file
