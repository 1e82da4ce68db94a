"""Policy of the programs of a command line: ``skills.shell.allowed-commands`` and ``denied-commands``.

A policy decides which programs a *command line* starts. It does not limit a program that starts others: a policy that
permits a shell, ``env``, ``find`` or an interpreter permits all that these can run. The sandbox is the boundary.
Entries are paths, because a name says nothing: ``git`` may be a file that the last command wrote.
"""

from __future__ import annotations

import os
import re
import shutil
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from flink_skills.errors import ConfigError, ExecutionError
from flink_skills.options import SkillConfig, SkillOptions

_BLANKS = " \t"
_ADVICE = {
    "\n": "Make one call for each command.",
    "\r": "Make one call for each command.",
    ";": "Make one call for each command.",
    "&": "Make one call for each command; a folder to run in goes into cwd.",
    "|": "Make one call for each program; the argument stdin is its input.",
    "<": "The text for its input goes into the argument stdin.",
    ">": "What it prints comes back in the result; to write a file, use an option of the program.",
    "(": "Make one call for each command.",
    ")": "Make one call for each command.",
    "`": "Run the inner command first and write what it printed.",
}
_AROUND = " \t\r\n"
# A run of characters that mean nothing to a shell.
_PLAIN = re.compile(r"[^ \t\r\n;&|<>()`$'\"\\#]+")
_VARIABLE = re.compile(r"\$(?:\{(\w+)\}|(\w+))")
_EXPANDED_IN_QUOTES = re.compile(r"\$[\w{(@*#?$!-]")


def split_words(text: str, shown: Mapping[str, str]) -> list[str]:
    """The words of ``text``, with quotes, backslashes and comments as in a POSIX shell and nothing expanded.

    ``shown`` are variables whose values the model may be told. Raises :class:`ExecutionError`, which says what to
    write instead, for what only a shell could do: a character outside quotes that means something to it, or a
    variable or a command to be replaced inside of double quotes.

    >>> split_words("grep -c 'a b' \\"x y\\".txt", {})
    ['grep', '-c', 'a b', 'x y.txt']
    """
    text = _stripped(text)
    words: list[str] = []
    word: list[str] | None = None
    at = 0
    while at < len(text):
        sign = text[at]
        if sign in _BLANKS:
            if word is not None:
                words.append("".join(word))
            word, at = None, at + 1
            continue
        if sign == "#" and word is None:
            end = text.find("\n", at)
            at = len(text) if end < 0 else end
            continue
        if sign == "$":
            raise ExecutionError(_no_variables(text, at, shown))
        if sign in _ADVICE:
            raise ExecutionError(_no_shell(sign))
        if sign in "'\"":
            part, at = (_single if sign == "'" else _double)(text, at, shown)
        elif sign == "\\":
            # At the end a shell keeps it. Before a line break it joins the lines.
            part, at = text[at + 1 : at + 2] or sign, at + 2
            if part == "\n":
                continue
        else:
            plain = _PLAIN.match(text, at)
            part = plain.group() if plain else sign
            at += len(part)
        word = word or []
        word.append(part)
    return words if word is None else [*words, "".join(word)]


def _stripped(text: str) -> str:
    """``text`` without the blanks around it, but with the one that a backslash at its end belongs to."""
    text = text.lstrip(_AROUND)
    bare = text.rstrip(_AROUND)
    return text[: len(bare) + 1] if bare.endswith("\\") else bare


def _single(text: str, at: int, shown: Mapping[str, str]) -> tuple[str, int]:
    end = text.find("'", at + 1)
    if end < 0:
        raise ExecutionError("The command has a ' without its second one: close it, or write \\' for the sign itself.")
    return text[at + 1 : end], end + 1


def _double(text: str, at: int, shown: Mapping[str, str]) -> tuple[str, int]:
    part: list[str] = []
    at += 1
    while at < len(text):
        sign, after = text[at], text[at + 1 : at + 2]
        if sign == '"':
            return "".join(part), at + 1
        if sign == "`":
            raise ExecutionError(_no_shell(sign))
        if sign == "$" and _EXPANDED_IN_QUOTES.match(text, at):
            raise ExecutionError(_no_variables(text, at, shown))
        if sign == "\\" and after and after in '"\\$`\n':
            part.append("" if after == "\n" else after)
            at += 2
        else:
            part.append(sign)
            at += 1
    raise ExecutionError('The command has a " without its second one: close it, or write \\" for the sign itself.')


def _no_shell(sign: str) -> str:
    name = {"\n": "a line break", "\r": "a line break"}.get(sign, sign)
    return (
        f"There is no shell here: a command is one program with its arguments, so {name} cannot be used. "
        f"{_ADVICE[sign]} For the sign itself, put it in single quotes."
    )


def _no_variables(text: str, at: int, shown: Mapping[str, str]) -> str:
    found = _VARIABLE.match(text, at)
    name = (found[1] or found[2]) if found else ""
    value = f" {name} is {shown[name]}" if name in shown else ""
    return (
        "There is no shell here: nothing that begins with $ is replaced. Write the value itself."
        f"{value}{'.' if value else ''} For the sign itself, put it in single quotes."
    )


#: Words in a tool's description if its commands run without a shell.
NO_SHELL = "There is no shell"

_MAX_LINKS = 40
_SHOWN = 20
_SHOWN_VARIABLES = ("WORK_DIR", "OUTPUT_DIR", "SKILLS_DIR", "RUN_DIR", "WORKSPACE_DIR", "HOME", "TMPDIR")
_BUILTINS = {"cd": "Give the folder as cwd.", "export": "Variables cannot be set.", "source": "", ".": "", "exec": ""}


@dataclass(frozen=True)
class CommandPlace:
    """Where a command is to run, and for whom.

    Attributes:
        skill: Whose command it is; None outside of skills.
        cwd: The folder that it runs in.
        env: The variables of the command: ``PATH``, and the folders that a refusal may name.
        skill_folder: A skill's copy in the workspace, by name; it need not be there.
        writable: The folders that commands can write.
        interpreters: Interpreters by name, which precede the programs of that name on the path.
    """

    skill: str | None
    cwd: Path
    env: Mapping[str, str]
    skill_folder: Callable[[str], Path]
    writable: tuple[str, ...] = ()
    interpreters: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class _Entry:
    """``path`` is absolute, or relative to the folder of ``skill``; without ``skill`` it is for all."""

    text: str
    skill: str | None
    path: str

    @classmethod
    def parse(cls, option: str, text: str) -> _Entry:
        skill, sign, path = (None, "", text) if text.startswith("/") else text.partition("=")
        if not sign and skill is not None:
            raise ConfigError(f"option {option}: {text!r} is not a path. {_fix(text)}")
        if skill == "":
            raise ConfigError(f"option {option}: {text!r} has no skill name before '=': write SKILL=PATH")
        if not path.strip("/") or path.endswith("/") or "\0" in path or ".." in path.split("/"):
            raise ConfigError(
                f"option {option}: {text!r} is not a valid path of a program: write /PATH or SKILL=PATH, without '..'"
            )
        return cls(text, skill, path)

    @property
    def of_skill(self) -> bool:
        """Whether it is a file of its skill."""
        return not self.path.startswith("/")

    def locate(self, place: CommandPlace) -> Path:
        """Its path with the links of its folder resolved, but not those of the file."""
        if self.of_skill and self.skill is not None:
            return _located(place.skill_folder(self.skill) / self.path)
        return _located(Path(self.path))


class CommandPolicy:
    """The programs that may be started. Raises :class:`ConfigError` for an entry that is no path.

    An entry is an absolute path, for all; ``SKILL=/path``, while commands of that skill run; or ``SKILL=path``, a file
    in that skill's folder. A program is permitted when its path, or a link on the way from its path to the file, is
    that of an entry of ``allowed``, and it is then started under the entry's own path. Without ``allowed`` (None) all
    programs are permitted. A program is denied when it is the same file as one of ``denied``, whatever it is called;
    that wins.

    >>> policy = CommandPolicy(allowed=["/bin/ls", "report=scripts/run.sh"])
    >>> policy.resolve("ls -l 'a b'", place)
    ('/usr/bin/ls', '-l', 'a b')
    """

    def __init__(self, allowed: Sequence[str] | None = None, denied: Sequence[str] = ()) -> None:
        self._permits_all = allowed is None
        self._allowed = [_Entry.parse(SkillOptions.SHELL_ALLOWED_COMMANDS.key, text) for text in allowed or ()]
        self._denied = [_Entry.parse(SkillOptions.SHELL_DENIED_COMMANDS.key, text) for text in denied]

    @classmethod
    def of(cls, config: SkillConfig) -> CommandPolicy:
        """Return a job's policy. A list of permitted programs that is set and empty permits none."""
        allowed: tuple[str, ...] = config.get(SkillOptions.SHELL_ALLOWED_COMMANDS)
        denied: tuple[str, ...] = config.get(SkillOptions.SHELL_DENIED_COMMANDS)
        return cls(allowed if config.is_set(SkillOptions.SHELL_ALLOWED_COMMANDS) else None, denied)

    def __bool__(self) -> bool:
        """Whether there is anything to hold commands to; without, a shell may run them."""
        return bool(not self._permits_all or self._denied)

    @property
    def permits_none(self) -> bool:
        """True if no program may be started."""
        return not self._permits_all and not self._allowed

    @property
    def permitted(self) -> tuple[str, ...]:
        """The entries of ``allowed`` as written, without programs that are denied to all."""
        denied = [entry for entry in self._denied if entry.skill is None]
        return tuple(
            entry.text
            for entry in self._allowed
            if entry.text not in {other.text for other in self._denied}
            and not (not entry.of_skill and any(_same_file(Path(entry.path), Path(other.path)) for other in denied))
        )

    @property
    def permitted_text(self) -> str:
        """The permitted programs for the description of a tool, so that a model does not try others."""
        if self.permits_none:
            return " This job permits no programs."
        shown = ", ".join(self.permitted[:_SHOWN])
        more = len(self.permitted) - _SHOWN
        return f" Permitted: {shown}{f' and {more} more' if more > 0 else ''}." if shown else ""

    def remarks(self) -> list[str]:
        """What an operator should know of these lists on this machine."""
        allowed, denied = SkillOptions.SHELL_ALLOWED_COMMANDS.key, SkillOptions.SHELL_DENIED_COMMANDS.key
        found = [
            f"option {allowed}: {entry.text} is not an executable program on this machine"
            for entry in self._allowed
            if not entry.of_skill and not _is_program(Path(entry.path))
        ]
        if self.permits_none:
            found.append(f"option {allowed} is empty, so no command can run: remove the option to allow all programs")
        if self._denied and self._permits_all:
            found.append(
                f"option {denied} alone does not stop a program that another program starts or copies (a shell, env, "
                f"an interpreter): list the allowed programs in {allowed}"
            )
        return found

    def resolve(self, command: str | Sequence[str], place: CommandPlace) -> tuple[str, ...]:
        """The program and arguments of ``command``, a line or words; raises :class:`ExecutionError` with a refusal.

        Looks files up: call it from a thread.
        """
        if isinstance(command, str):
            shown = {name: place.env[name] for name in _SHOWN_VARIABLES if name in place.env}
            words = split_words(command, shown)
        else:
            words = list(command)
        if not words or not words[0]:
            raise ExecutionError(f"The command names no program. {self._advice(place)}")
        return (str(self._program(words[0], place)), *words[1:])

    def _program(self, word: str, place: CommandPlace) -> Path:
        candidates = list(_candidates(word, place))
        if not candidates:
            raise ExecutionError(f"{_not_found(word, place)} {self._advice(place)}")
        for path in candidates:
            if self._is_denied(path, place):
                raise ExecutionError(f"This job does not permit {word!r} ({path}). {self._advice(place)}")
            if self._permits_all:
                return path
            for entry in self._allowed:
                if entry.skill in (None, place.skill) and _permits(entry, path, place):
                    return entry.locate(place)
        others = [e.skill for e in self._allowed if e.skill and any(_permits(e, path, place) for path in candidates)]
        hint = f" Skill {others[0]} may: load it again first." if others else ""
        raise ExecutionError(f"This job does not permit {word!r} ({candidates[0]}) here.{hint} {self._advice(place)}")

    def _is_denied(self, path: Path, place: CommandPlace) -> bool:
        return any(
            # A file in a skill is denied to all: another skill's commands can reach it too.
            (entry.of_skill or entry.skill in (None, place.skill)) and _same_file(entry.locate(place), path)
            for entry in self._denied
        )

    def _advice(self, place: CommandPlace) -> str:
        names = [
            entry.path
            for entry in self._allowed
            if entry.skill in (None, place.skill) and not self._is_denied(entry.locate(place), place)
        ]
        if self._permits_all:
            return "Use another program."
        if self.permits_none:
            return f"This job permits no programs: its option {SkillOptions.SHELL_ALLOWED_COMMANDS.key} is empty."
        more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
        whose = f"for skill {place.skill}" if place.skill else "without a skill"
        return f"Programs {whose}: {', '.join(names[:_SHOWN]) or 'none'}{more}."


def _fix(text: str) -> str:
    path = shutil.which(text) if "/" not in text else None
    written = repr(path) if path else "'/PATH'" if "/" not in text else f"'SKILL={text}' for a file of a skill"
    return f"Another file may have the same name, so write its path: {written}"


def _located(path: Path) -> Path:
    return Path(os.path.realpath(path.parent), path.name)


def _permits(entry: _Entry, path: Path, place: CommandPlace) -> bool:
    path_of_entry = entry.locate(place)
    if entry.of_skill and entry.skill is not None:
        # A skill's folder leads to where commands may write: what lies there is no file in the skill.
        real = Path(os.path.realpath(path_of_entry))
        if not real.is_relative_to(os.path.realpath(place.skill_folder(entry.skill))):
            return False
        if any(real.is_relative_to(os.path.realpath(folder)) for folder in place.writable):
            return False
    return path_of_entry in _links(path)


def _links(path: Path) -> list[Path]:
    """``path`` and what each link on the way to the file leads to."""
    found = [path]
    for _ in range(_MAX_LINKS):
        try:
            to = found[-1].readlink()
        except OSError:
            break
        found.append(_located(found[-1].parent / to))
    return found


def _same_file(one: Path, other: Path) -> bool:
    try:
        # Hard links are the same file under names of equal right.
        return one.samefile(other)
    except OSError:
        return False


def _candidates(word: str, place: CommandPlace) -> Iterator[Path]:
    """The programs that ``word`` may mean, in the order of PATH, with the links of their folders resolved."""
    if word in place.interpreters:
        # The script of this name in the workspace only starts the interpreter, and lists are about programs.
        yield _located(Path(place.interpreters[word]))
        return
    folders = [""] if "/" in word else place.env.get("PATH", "").split(os.pathsep)
    for folder in folders:
        path = _located(place.cwd / folder / word)
        if _is_program(path):
            yield path


def _is_program(path: Path) -> bool:
    try:
        mode = path.stat().st_mode
    except OSError:
        return False
    return stat.S_ISREG(mode) and bool(mode & 0o111)


def _not_found(word: str, place: CommandPlace) -> str:
    if word in _BUILTINS:
        return f"{word!r} is a command of shells, and there is no shell here. {_BUILTINS[word]}".rstrip()
    name, sign, _ = word.partition("=")
    if sign and name.isidentifier():
        return f"{word!r} is not a program: no shell sets variables here."
    if "/" not in word:
        return f"There is no program {word!r} on the PATH."
    if (place.cwd / word).is_file():
        return f"{word!r} is not executable, so it cannot be started by its path."
    return f"There is no program {word!r} (cwd is {place.cwd})."
