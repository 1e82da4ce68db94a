"""The skills that one model may use. Every tool goes through a view, so that a filter holds everywhere."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from flink_skills.errors import ResourceError, UnknownNameError, near_misses
from flink_skills.manager.activation import Activation, activation_text
from flink_skills.manager.menu import MenuEntry, render_menu
from flink_skills.skill import AgentSkill, Limits
from flink_skills.skill.files import FolderFiles

__all__ = ["ResourceText", "SkillView"]

_CACHED_ACTIVATIONS = 256


class ResourceText(NamedTuple):
    """Part of a file: ``next_offset`` is where the rest begins, None at the end; offsets are in bytes."""

    text: str
    offset: int
    next_offset: int | None
    total_bytes: int


class SkillView:
    """The effective set of one model.

    A name outside of it does not exist: no method says otherwise, and near names come from the set alone.

    >>> view = SkillView([AgentSkill("greet", "Says hello.", "Say hello.")])
    >>> "greet" in view, view.get("other")
    (True, None)
    """

    def __init__(self, skills: Iterable[AgentSkill], *, max_chars: int = 16_000, limits: Limits | None = None) -> None:
        self._skills: Mapping[str, AgentSkill] = {
            skill.name: skill for skill in sorted(skills, key=lambda skill: skill.name)
        }
        self.names: tuple[str, ...] = tuple(self._skills)
        self._max_chars = max_chars
        self._limits = limits or Limits()
        self._menu: str | None = None
        self._lock = threading.Lock()
        self._activated: OrderedDict[str, tuple[tuple[int, ...], Activation]] = OrderedDict()

    def __contains__(self, name: object) -> bool:
        return name in self._skills

    def __iter__(self) -> Iterator[str]:
        return iter(self.names)

    def __len__(self) -> int:
        return len(self.names)

    def get(self, name: str) -> AgentSkill | None:
        """The skill, or None where it does not exist or is not permitted."""
        return self._skills.get(name)

    def near(self, name: str) -> list[str]:
        """The permitted names most like ``name``, best first."""
        return near_misses(name, self.names)

    def menu(self) -> str:
        """The menu for the system prompt; "" where there is nothing to offer. Rendered once."""
        if self._menu is None:
            offered = [MenuEntry(s.name, s.description) for s in self._skills.values() if not s.hidden]
            self._menu = render_menu(offered, self._max_chars).text
        return self._menu

    def activate(self, name: str) -> Activation:
        """Load a skill for a model.

        Raises :class:`UnknownNameError` for a name outside of the view, and :class:`ResourceError` where the
        files cannot be read or are not those that the digest was taken of.
        """
        skill = self._skill(name)
        files = skill.files
        stamp = files.skill_file_stamp() if isinstance(files, FolderFiles) else ()
        with self._lock:
            cached = self._activated.get(name)
            if cached is not None and cached[0] == stamp:
                self._activated.move_to_end(name)
                return cached[1]
        digest = skill.digest  # before the body is read: from here on a change is an error
        activation = Activation(name, digest, activation_text(skill, skill.instructions, files.paths()), skill.path)
        with self._lock:
            self._activated[name] = (stamp, activation)
            if len(self._activated) > _CACHED_ACTIVATIONS:
                self._activated.popitem(last=False)
        return activation

    def read_resource(self, name: str, path: str, offset: int = 0, limit: int | None = None) -> ResourceText:
        """Read part of a text file of a skill, at most ``limit`` bytes (1 MiB at the most).

        A page never ends inside a character. Raises :class:`UnknownNameError` for the skill and
        :class:`ResourceError`, with near file names, for the file.
        """
        skill = self._skill(name)
        largest = self._limits.resource_read
        size = largest if limit is None else min(limit, largest)
        if offset < 0 or size < 4:
            raise ResourceError(f"cannot read {path!r}: the offset is at least 0 and the limit at least 4 bytes")
        try:
            data, total = skill.files.read(path, offset, size)
        except ResourceError as error:
            raise ResourceError(f"skill {name!r}: {error}") from None
        if offset > total:
            raise ResourceError(f"skill {name!r}: {path!r} has {total} bytes; offset {offset} is behind its end")
        if b"\0" in data:
            mend = "use it through a command"
            raise ResourceError(f"skill {name!r}: {path!r} is a binary file of {total} bytes; {mend}")
        end = offset + len(data)
        if end < total:
            whole = _whole_characters(data)
            end, data = offset + whole, data[:whole]
        text = data.decode(errors="replace").removeprefix("\ufeff")
        return ResourceText(text, offset, end if end < total else None, total)

    def _skill(self, name: str) -> AgentSkill:
        skill = self._skills.get(name)
        if skill is None:
            raise UnknownNameError("skill", name, self.names)
        return skill


def _whole_characters(data: bytes) -> int:
    """Length of ``data`` without a character that is cut at its end."""
    for back in range(1, min(4, len(data)) + 1):
        byte = data[-back]
        if byte < 0x80:
            break
        if byte >= 0xC0:
            needed = 2 if byte < 0xE0 else 3 if byte < 0xF0 else 4
            return len(data) - back if needed > back else len(data)
    return len(data)
