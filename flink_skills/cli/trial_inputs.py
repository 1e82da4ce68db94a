"""What a user hands to a command that is tried: files, standard input, a skill."""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import BinaryIO

from flink_skills.cli.output import diagnostic_line, print_line
from flink_skills.cli.places import source_word
from flink_skills.errors import ConfigError, UnknownNameError
from flink_skills.execution import Workspace
from flink_skills.manager import AgentSkillManager
from flink_skills.options import SkillConfig
from flink_skills.skill import AgentSkill

__all__ = ["loaded_skill", "named_inputs", "one_skill", "put_inputs", "read_stdin"]


def named_inputs(words: Sequence[str]) -> dict[str, str]:
    """The files of ``--input`` by the names that they get in ``work/inputs``: the last part of each.

    Raises :class:`ConfigError` for what is no file that can be read, and for two of one name.
    """
    inputs: dict[str, str] = {}
    for word in words:
        name = os.path.basename(word)
        with _opened("--input", word):
            pass  # it can be read
        if name in inputs:
            raise ConfigError(
                f"--input {word}: {inputs[name]} has the same name, and both go to one folder: rename one of them"
            )
        inputs[name] = word
    return inputs


def put_inputs(inputs: Mapping[str, str], workspace: Workspace) -> None:
    """Copy files to ``work/inputs`` of a workspace in which no command has run yet; they are the command's then.

    Raises :class:`ConfigError` for one that cannot be copied.
    """
    for name, word in inputs.items():
        with _opened("--input", word) as source:
            try:
                with (workspace.inputs_dir / name).open("xb") as copy:
                    shutil.copyfileobj(source, copy, 1 << 20)
                    os.fchmod(copy.fileno(), 0o700 if os.fstat(source.fileno()).st_mode & 0o111 else 0o600)
                    if workspace.user is not None:
                        os.fchown(copy.fileno(), workspace.user.uid, workspace.user.gid)
            except FileExistsError:
                raise ConfigError(f"--input {word}: skills.workspace.inputs has that name already: rename it") from None
            except OSError as error:
                raise ConfigError(f"--input {word}: cannot be copied: {error.strerror or error}") from error


def read_stdin(word: str | None) -> bytes:
    """What ``--stdin`` names: a file, ``-`` for this process's own, or nothing. Raises :class:`ConfigError`."""
    if word is None:
        return b""
    if word == "-":
        return sys.stdin.buffer.read()
    with _opened("--stdin", word) as file:
        return file.read()


@contextlib.contextmanager
def loaded_skill(name: str | None, sources: Sequence[str], config: SkillConfig) -> Iterator[AgentSkill | None]:
    """The skill of this name as a job with these sources would have it; None without a name.

    Raises :class:`SkillsError` where a source cannot be read or none has the skill; what is wrong with the skills
    that were skipped is told on stderr.
    """
    if name is None:
        yield None
        return
    with one_skill(name, sources, config) as skill:
        yield skill


@contextlib.contextmanager
def one_skill(name: str | None, sources: Sequence[str], config: SkillConfig) -> Iterator[AgentSkill]:
    """Provide the skill ``name`` as a job with these sources has it. Without a name, provide the only skill.

    Raises as :func:`loaded_skill`, and :class:`ConfigError` if ``name`` is None and there are several skills.
    """
    places = [source_word(word) for word in sources]
    manager = AgentSkillManager(
        [place for kind, place in places if kind == "path"],
        urls=[place for kind, place in places if kind == "url"],
        config=config,
    )
    with manager:
        manager.check_sources()
        names = [skill.name for skill in manager.get_skills()]
        if name is None and len(names) > 1:
            raise ConfigError(f"{sources[0]} has {len(names)} skills: name one of them, such as --skill {names[0]}")
        wanted = name if name is not None else next(iter(names), "")
        if wanted not in names:
            for said in manager.diagnostics:
                if said.severity == "error":
                    print_line(*diagnostic_line(said), stream=sys.stderr)
            if name is None:
                raise ConfigError(f"{sources[0]} has no skill: a skill is a folder with a SKILL.md")
            raise UnknownNameError("skill", name, names)
        if wanted in manager.hidden:
            raise ConfigError(f"{manager.hidden[wanted]}")
        manager.inspect([wanted])  # takes the digest: a file that changes from now on is refused
        skill = manager.view([wanted]).get(wanted)
        if skill is None:
            raise UnknownNameError("skill", wanted, names)
        yield skill


@contextlib.contextmanager
def _opened(option: str, word: str) -> Iterator[BinaryIO]:
    try:
        # A FIFO would wait for somebody who writes.
        descriptor = os.open(word, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise ConfigError(f"{option} {word}: cannot be read: {reason}") from error
    mode = os.fstat(descriptor).st_mode
    if not stat.S_ISREG(mode):
        os.close(descriptor)
        what = "a folder: name its files" if stat.S_ISDIR(mode) else "no regular file: save it as one"
        raise ConfigError(f"{option} {word}: is {what}")
    with os.fdopen(descriptor, "rb") as file:
        yield file
