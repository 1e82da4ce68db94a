"""The skills that one model may use. Every tool goes through a view, so that a filter holds everywhere."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple

from flink_skills.errors import ResourceError, UnknownNameError, near_misses
from flink_skills.manager.activation import Activation, activation_text, with_base_dir
from flink_skills.manager.audit import AuditEvent, AuditHook, log_event
from flink_skills.manager.menu import Menu, MenuEntry, render_menu
from flink_skills.manager.paging import ResourceText, page_of
from flink_skills.skill import AgentSkill, Limits
from flink_skills.skill.files import FolderFiles
from flink_skills.skill.text import clean
from flink_skills.sources.address import redact

__all__ = ["SkillView"]

_CACHED_ACTIVATIONS = 256


class _Cached(NamedTuple):
    stamp: tuple[int, ...]
    activation: Activation


class SkillView:
    """The effective set of one model, of one generation of the manager's skills.

    A name outside of it does not exist: no method says otherwise, and near names come from the set alone.
    Threads may share a view.

    ``bind`` gives a skill's digest and fails where it is no longer what was loaded; ``audit`` is told of each
    activation and resource read.

    >>> view = SkillView([AgentSkill("greet", "Says hello.", "Say hello.")])
    >>> "greet" in view, view.get("other")
    (True, None)
    """

    def __init__(
        self,
        skills: Iterable[AgentSkill],
        *,
        max_chars: int = 16_000,
        limits: Limits | None = None,
        bind: Callable[[AgentSkill], str] = lambda skill: skill.digest,
        audit: AuditHook = log_event,
    ) -> None:
        self._skills: Mapping[str, AgentSkill] = {
            skill.name: skill for skill in sorted(skills, key=lambda skill: skill.name)
        }
        self.names: tuple[str, ...] = tuple(self._skills)
        self._max_chars = max_chars
        self._limits = limits or Limits()
        self._bind = bind
        self._audit = audit
        self._menu: Menu | None = None
        self._lock = threading.Lock()
        self._activated: OrderedDict[str, _Cached] = OrderedDict()

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
        return self.rendered().text

    def rendered(self) -> Menu:
        """The menu, and what its budget did to it."""
        if self._menu is None:
            self._menu = render_menu(
                [
                    MenuEntry(skill.name, skill.description, redact(skill.origin) if skill.remote else "")
                    for skill in self._skills.values()
                    if not skill.hidden
                ],
                self._max_chars,
            )
        return self._menu

    def activate(self, name: str, *, key: str = "") -> Activation:
        """Load a skill for a model; ``key`` is the stream key, for the audit trail.

        Raises :class:`UnknownNameError` for a name outside of the view, and :class:`ResourceError` where the
        files cannot be read or are not those that were loaded.
        """
        skill = self._skill("activate", name, key)
        try:
            activation = self._activate(skill)
        except ResourceError as error:
            self._audit(AuditEvent("activate", name, "error", "", skill.origin, key))
            raise _of_skill(name, error) from None
        self._audit(AuditEvent("activate", name, "ok", activation.digest, skill.origin, key))
        return activation

    def read_resource(
        self, name: str, path: str, offset: int = 0, limit: int | None = None, *, key: str = ""
    ) -> ResourceText:
        """Read part of a text file of a skill, at most ``limit`` bytes (1 MiB at the most).

        A page never ends inside a character. Raises :class:`UnknownNameError` for the skill and
        :class:`ResourceError`, with near file names, for the file.
        """
        skill = self._skill("read", name, key, path)
        digest = ""
        try:
            digest = self._bind(skill)
            page = self._read(skill, path, offset, limit)
        except ResourceError as error:
            self._audit(AuditEvent("read", name, "error", digest, skill.origin, key, path))
            raise _of_skill(name, error) from None
        self._audit(AuditEvent("read", name, "ok", digest, skill.origin, key, path))
        return page

    def _activate(self, skill: AgentSkill) -> Activation:
        files = skill.files
        stamp = files.skill_file_stamp() if isinstance(files, FolderFiles) else ()
        with self._lock:
            cached = self._activated.get(skill.name)
            if cached is not None and cached.stamp == stamp:
                self._activated.move_to_end(skill.name)
                return cached.activation
        digest = self._bind(skill)  # before the body is read: from here on a change is an error
        text = activation_text(skill, skill.instructions, files.paths())
        activation = Activation(skill.name, digest, text, skill.path)
        with self._lock:
            self._activated[skill.name] = _Cached(stamp, activation)
            if len(self._activated) > _CACHED_ACTIVATIONS:
                self._activated.popitem(last=False)
        return activation

    def _read(self, skill: AgentSkill, path: str, offset: int, limit: int | None) -> ResourceText:
        largest = self._limits.resource_read
        size = largest if limit is None else min(limit, largest)
        if offset < 0 or size < 4:
            raise ResourceError(f"cannot read {path!r}: the offset is at least 0 and the limit at least 4 bytes")
        data, total = skill.files.read(path, offset, size)
        if offset > total:
            raise ResourceError(f"{path!r} has {total} bytes; offset {offset} is behind its end")
        if b"\0" in data:
            raise ResourceError(f"{path!r} is a binary file of {total} bytes; use it through a command")
        page = page_of(data, offset, total)
        return page._replace(text=with_base_dir(clean(page.text), skill.path))

    def _skill(self, action: str, name: str, key: str, path: str = "") -> AgentSkill:
        skill = self._skills.get(name)
        if skill is None:
            self._audit(AuditEvent(action, name, "unknown", key=key, path=path))
            raise UnknownNameError("skill", name, self.names)
        return skill


def _of_skill(name: str, error: ResourceError) -> ResourceError:
    """The error with the skill's name in front."""
    place = f"skill {name!r}: "
    return error if str(error).startswith(place) else ResourceError(f"{place}{error}")
