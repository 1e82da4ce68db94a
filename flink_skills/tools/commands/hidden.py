"""Variables of skills, and values that are removed from content for models and logs."""

from __future__ import annotations

import json
import logging
import os
import re
from collections import OrderedDict, deque
from collections.abc import Container, Iterator, Mapping
from contextlib import suppress
from typing import Any

from flink_skills.errors import ConfigError, ExecutionError
from flink_skills.execution import Workspace, command_variables
from flink_skills.execution.host import is_within
from flink_skills.options import SkillConfig, SkillOptions
from flink_skills.sources.secrets import expand

HIDDEN = "[hidden]"
_HIDDEN = HIDDEN.encode()

# Shorter ones are found in too many words that are none.
_SHORTEST_VALUE = 4
# Of a value that was cut in two; what is shorter tells nothing, and many words end with it.
_SHORTEST_PART = 3
_LINE_ENDS = ("\n", "\r\n", "\r\r\n")
# A line of a key that has several; shorter ones, such as a brace, are found elsewhere too.
_SHORTEST_LINE = 16
# A token that is renewed every few minutes must not make every search longer for the rest of the job.
_KEPT_PER_NAME = 8


class HiddenValues:
    """Replaces values by ``[hidden]``: as they are, with other line ends, each long line of them, and as JSON.

    What a program encodes, splits or reverses on purpose is not recognised: the sandbox keeps secrets in, this keeps
    them out of conversations and logs that nobody meant to put them in. Values under 4 characters stay visible.

    >>> hidden = HiddenValues()
    >>> hidden.add("skills.env.report.TOKEN", "t0k3n-1")
    >>> hidden.in_text("sent t0k3n-1"), hidden.in_bytes(b"sent t0k3n-1")
    ('sent [hidden]', b'sent [hidden]')
    """

    def __init__(self) -> None:
        self._values: OrderedDict[str, deque[str]] = OrderedDict()
        self._text: re.Pattern[str] | None = None
        self._bytes: re.Pattern[bytes] | None = None
        self._forms: list[bytes] = []

    def add(self, name: str, value: str) -> None:
        """Hide ``value`` from now on; of each ``name`` the latest 8 different values are hidden."""
        values = self._values.setdefault(name, deque(maxlen=_KEPT_PER_NAME))
        if value in values:
            return
        values.append(value)
        forms = {form for kept in self._values.values() for one in kept for form in _forms(one)}
        # The longest first: a value that begins another one must not leave the rest of it.
        longest_first = sorted(forms, key=lambda form: (-len(form), form))
        if longest_first:
            self._text = re.compile("|".join(map(re.escape, longest_first)))
            self._forms = [form.encode("utf-8", "surrogateescape") for form in longest_first]
            self._bytes = re.compile(b"|".join(map(re.escape, self._forms)))

    def in_text(self, text: str) -> str:
        """Return ``text`` without the values."""
        return self._text.sub(HIDDEN, text) if self._text is not None else text

    def in_data(self, value: Any) -> Any:
        """Return JSON-like data without the values, also in keys."""
        if isinstance(value, str):
            return self.in_text(value)
        if isinstance(value, Mapping):
            return {self.in_text(str(key)): self.in_data(item) for key, item in value.items()}
        return [self.in_data(item) for item in value] if isinstance(value, (list, tuple)) else value

    def in_bytes(self, data: bytes, gap: bytes = b"") -> bytes:
        """Return ``data`` without the UTF-8 form of the values.

        ``gap`` replaces a part that was omitted. A value that was divided by it is hidden too.
        """
        if self._bytes is None:
            return data
        before, found, after = data.partition(gap) if gap else (data, b"", b"")
        if not found:
            return self._bytes.sub(_HIDDEN, data)
        begun, ended = self.begun(before), self._ended(after)
        return b"".join(
            (
                self._bytes.sub(_HIDDEN, before[: len(before) - begun]),
                _HIDDEN if begun else b"",
                found,
                _HIDDEN if ended else b"",
                self._bytes.sub(_HIDDEN, after[ended:]),
            )
        )

    def begun(self, data: bytes) -> int:
        """How many bytes at the end of ``data`` may be the beginning of a value, or of a longer one than they are.

        >>> hidden.begun(b"sent t0k3"), hidden.begun(b"sent t0")
        (4, 0)
        """
        start = len(data) - self._longest_begun(data)
        if start == len(data) or self._bytes is None:
            return 0
        for match in self._bytes.finditer(data):
            if match.start() >= start:
                break
            if match.end() > start:
                # It is no beginning what belongs to a value that is there as a whole.
                start = len(data) - self._longest_begun(data[match.end() :])
        return len(data) - start

    def begun_in_text(self, text: str) -> int:
        """How many characters at the end of ``text`` may be the beginning of a value, be it one character: of a text
        that comes in pieces.

        >>> hidden.begun_in_text("sent t0")
        2
        """
        data = text.encode("utf-8", "replace")
        begun = max((_overlap(data, form, 1) for form in self._forms), default=0)
        return len(data[len(data) - begun :].decode("utf-8", "replace"))

    def _longest_begun(self, data: bytes) -> int:
        return max((_overlap(data, form) for form in self._forms), default=0)

    def _ended(self, data: bytes) -> int:
        """How many bytes at the beginning of ``data`` may be the end of a value."""
        end = max((_overlap(form, data) for form in self._forms), default=0)
        if end and self._bytes is not None:
            for match in self._bytes.finditer(data):
                if match.start() >= end:
                    break
                end = max(end, match.end())
        return end


def _overlap(text: bytes, following: bytes, shortest: int = _SHORTEST_PART) -> int:
    """How many bytes at the end of ``text`` are the beginning of ``following``, and not all of it; 0 below
    ``shortest``."""
    if len(following) <= shortest:
        return 0
    head = following[:shortest]
    start = text.find(head, max(0, len(text) - len(following) + 1))
    while start >= 0:
        if following.startswith(text[start:]):
            return len(text) - start
        start = text.find(head, start + 1)
    return 0


def _forms(value: str) -> Iterator[str]:
    if len(value) < _SHORTEST_VALUE:
        return
    # Outputs are often stripped, and a value may end with blanks that no program repeats.
    for whole in (value, value.strip()):
        if len(whole) >= _SHORTEST_VALUE:
            yield whole
            # A terminal writes a carriage return before each line feed, also where there is one already.
            plain = whole.replace("\r\n", "\n")
            yield from (plain.replace("\n", line_end) for line_end in _LINE_ENDS)
    for ascii_only in (True, False):
        yield json.dumps(value, ensure_ascii=ascii_only)[1:-1]
    for line in value.splitlines():
        if len(line.strip()) >= _SHORTEST_LINE:
            yield line.strip()


_log = logging.getLogger("flink_skills.shell")

# The workspace gives commands these, so that another value would be lost or would lead them elsewhere.
_RESERVED = frozenset(
    {
        *("PATH", "HOME", "TMPDIR", "VIRTUAL_ENV", "FLINK_SKILLS_CALL_ID"),
        *("WORKSPACE_DIR", "SKILLS_DIR", "WORK_DIR", "OUTPUT_DIR", "RUN_DIR", "SKILL_NAME"),
    }
)
_OUTPUT_DIR = "OUTPUT_DIR"


class SkillVariables:
    """The references of a job's ``skills.env`` options. Values are read at each use and stored only to be hidden.

    Every value is added to ``hidden`` before it is returned. Raises :class:`ConfigError`, which names the option, for a
    reserved variable.

    >>> config = SkillConfig({"skills.env.report.API_TOKEN": "${env:REPORT_TOKEN}"})
    >>> variables = SkillVariables(config, HiddenValues())
    >>> os.environ["REPORT_TOKEN"] = "t0k3n-1"
    >>> variables.values("report"), variables.values("other")
    ({'API_TOKEN': 't0k3n-1'}, {})
    """

    def __init__(self, config: SkillConfig, hidden: HiddenValues) -> None:
        self._hidden = hidden
        self._references: dict[str, dict[str, str]] = {}
        family = SkillOptions.SKILL_ENV
        problems = []
        for key, reference in config.family(family).items():
            skill, _, name = key.rpartition(".")
            if problem := name_problem(name) or (_of_workspace(name) if name == _OUTPUT_DIR else ""):
                problems.append(f"option {family.prefix + key}: {problem}")
            self._references.setdefault(skill, {})[name] = reference
        if problems:
            raise ConfigError("; ".join(problems))

    def __contains__(self, skill: object) -> bool:
        return skill in self._references

    def names(self, skill: str | None) -> Container[str]:
        """Return the variable names of ``skill``."""
        return self._references.get(skill or "", {}).keys()

    def learn(self) -> None:
        """Read all values that can be read, to hide them. Blocks.

        This includes values that a command of another worker or of an earlier one wrote to a file. A reference that
        cannot be read is an error where it is used.
        """
        for skill in self._references:
            with suppress(ConfigError):
                self.values(skill)

    def values(self, skill: str | None) -> Mapping[str, str]:
        """Read and return the variables of ``skill``. Blocks.

        Raises :class:`ConfigError`, which names the option and the problem of its reference, and never a value.
        """
        found: dict[str, str] = {}
        for name, reference in self._references.get(skill or "", {}).items():
            option = f"{SkillOptions.SKILL_ENV.prefix}{skill}.{name}"
            try:
                value = expand(reference)
            except ConfigError as error:
                _log.error("option %s: %s", option, error)
                raise ConfigError(f"option {option}: {error}") from None
            if "\0" in value:
                raise ConfigError(f"option {option}: the value of {reference} contains a NUL character: remove it")
            self._hidden.add(option, value)
            found[name] = value
        return found


def name_problem(name: str, taken: Container[str] = ()) -> str:
    """Return why a call cannot set the variable ``name``. Return an empty string if it can.

    >>> name_problem("HOME")
    'HOME is set for every command to a value of its workspace: leave it out, or choose another name'
    """
    if problem := command_variables.name_problem(name):
        return problem
    if name in taken:
        return f"{name} is set for this skill by the job: leave it out"
    return _of_workspace(name) if name in _RESERVED and name != _OUTPUT_DIR else ""


def _of_workspace(name: str) -> str:
    return f"{name} is set for every command to a value of its workspace: leave it out, or choose another name"


def call_variables(env: Mapping[str, str], workspace: Workspace, taken: Container[str] = ()) -> dict[str, str]:
    """Check and return the variables that a model requests for one call.

    ``taken`` are names that the job sets for the skill. ``OUTPUT_DIR`` can be another folder in the workspace that
    commands can write, also relative to the workspace. Raises :class:`ExecutionError`, which has all problems.

    >>> call_variables({"MODE": "fast", "OUTPUT_DIR": "out/today"}, workspace)
    {'MODE': 'fast', 'OUTPUT_DIR': '/tmp/job-7/ws_4f2a/out/today'}
    """
    problems = [problem for name in env if (problem := name_problem(name, taken))]
    problems += [f"the value of {name} contains a NUL character: remove it" for name in env if "\0" in env[name]]
    if problems:
        raise ExecutionError(f"env: {'; '.join(problems)}")
    found = dict(env)
    if _OUTPUT_DIR in found:
        value = found[_OUTPUT_DIR]
        found[_OUTPUT_DIR] = os.path.normpath(workspace.root / value)
        if not is_within(found[_OUTPUT_DIR], frozenset(workspace.writable)):
            raise ExecutionError(
                f"env: OUTPUT_DIR {value!r} is none of the folders that commands may write: choose one in out/ or work/"
            )
    return found
