"""The skills that one model may use. Every tool goes through a view, so that a filter holds everywhere."""

from __future__ import annotations

import json
import logging
import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import NamedTuple, TypeVar

from flink_skills.endpoint import redact
from flink_skills.errors import ResourceError, UnknownNameError, near_misses
from flink_skills.manager.activation import Activation, ResourceText, activation_text, doc_text, page_of, with_base_dir
from flink_skills.manager.menu import INTRODUCTION, Menu, MenuEntry, render_menu
from flink_skills.skill import AgentSkill, Limits
from flink_skills.skill.credentials import (
    Credential,
    credential_in_file,
    credential_message,
    find_credential,
    without_credential_names,
)
from flink_skills.skill.file_rules import inside, resource_parts
from flink_skills.skill.skill_files import FolderFiles
from flink_skills.skill.text import clean, clean_line, not_text
from flink_skills.telemetry import emit

_log = logging.getLogger("flink_skills.audit")
_MAX_LENGTH = 256
T = TypeVar("T")

_CACHED_ACTIVATIONS = 256
_CACHED_DOC_CHARS = 4 << 20


@dataclass(frozen=True)
class AuditEvent:
    """One use of a skill.

    ``action`` is ``"activate"``, ``"read"`` or ``"command"``; ``outcome`` is ``"ok"``, ``"unknown"`` (no such skill
    for this model) or ``"error"``. ``key`` is the stream key where it is known, ``path`` the file that was read.
    """

    action: str
    skill: str
    outcome: str
    digest: str = ""
    origin: str = ""
    key: str = ""
    path: str = ""


AuditHook = Callable[[AuditEvent], None]


def log_event(event: AuditEvent) -> None:
    """Write ``event`` as one line of JSON to the logger ``flink_skills.audit``, at level ``INFO``, and tell those who
    observe the turn."""
    # Names and paths may be a model's own words: one line each, and not endless.
    shown = {name: clean_line(text)[:_MAX_LENGTH] for name, text in asdict(event).items() if text}
    if _log.isEnabledFor(logging.INFO):
        _log.info("%s", json.dumps(shown), extra={"skill": shown.get("skill", "")})
    emit("skill", **shown)


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
        # The full names of skills of plugins.
        self._full = {skill.full_name: skill for skill in self._skills.values() if skill.full_name != skill.name}
        self._max_chars = max_chars
        self._limits = limits or Limits()
        self._bind = bind
        self._audit = audit
        self._menus: dict[str, Menu] = {}
        self._lock = threading.Lock()
        self._activated: OrderedDict[str, _Cached] = OrderedDict()
        self._docs: OrderedDict[tuple[str, str], str] = OrderedDict()
        self._doc_chars = 0
        self._declared: dict[str, tuple[str, ...]] = {}
        self._with_tools: dict[str, bool] = {}

    def __contains__(self, name: object) -> bool:
        return name in self._skills or name in self._full

    def __iter__(self) -> Iterator[str]:
        return iter(self.names)

    def __len__(self) -> int:
        return len(self.names)

    def get(self, name: str) -> AgentSkill | None:
        """The skill, or None where it does not exist or is not permitted."""
        return self._skills.get(name) or self._full.get(name)

    def near(self, name: str) -> list[str]:
        """The permitted names most like ``name``, best first."""
        return near_misses(name, self.names)

    def only(self, names: Container[str]) -> SkillView:
        """Return a view of the skills that are in ``names``."""
        view = SkillView(
            [skill for skill in self._skills.values() if skill.name in names or skill.full_name in names],
            max_chars=self._max_chars,
            limits=self._limits,
            bind=self._bind,
            audit=self._audit,
        )
        # The skills are the same objects, and a turn may need a new view.
        view._with_tools = self._with_tools
        return view

    def menu(self, introduction: str = INTRODUCTION) -> str:
        """The menu for the system prompt, after ``introduction``; "" where there is nothing to offer."""
        return self.rendered(introduction).text

    def rendered(self, introduction: str = INTRODUCTION) -> Menu:
        """The menu, and what its budget did to it. Rendered once."""
        menu = self._menus.get(introduction)
        if menu is None:
            entries = [
                MenuEntry(skill.name, skill.description, redact(skill.origin) if skill.remote else "")
                for skill in self._skills.values()
                if not skill.hidden
            ]
            menu = self._menus[introduction] = render_menu(entries, self._max_chars, introduction)
        return menu

    def docs(self, name: str) -> list[str]:
        """The documents of a skill: its ``.md`` and ``.txt`` files, sorted. Not audited: nothing is read.

        Raises :class:`UnknownNameError`.
        """
        return list(self._known(name).docs)

    def doc_text(self, name: str, path: str) -> str:
        """The text of a document for a request to a model, read once. Not audited: see :meth:`note_docs`.

        Raises :class:`UnknownNameError` for the skill and :class:`ResourceError` for a document that is not there,
        cannot be read, or is not what it was when the skill was loaded.
        """
        skill = self._known(name)
        with self._lock:
            kept = self._docs.get((name, path))
            if kept is not None:
                self._docs.move_to_end((name, path))
                return kept
        with _named(name):
            self._bind(skill)
            text = doc_text(skill, path, self._limits)
        with self._lock:
            self._doc_chars += len(text) - len(self._docs.pop((name, path), ""))
            self._docs[name, path] = text
            while self._doc_chars > _CACHED_DOC_CHARS:
                _, gone = self._docs.popitem(last=False)
                self._doc_chars -= len(gone)
        return text

    def note_docs(self, name: str, paths: Iterable[str], *, key: str = "") -> None:
        """Tell the audit trail that a model gets these documents, however often requests have them.

        Raises as :meth:`activate` does.
        """
        skill = self._known(name, "read", key)
        with _named(name):
            digest = self._bind(skill)
        for path in paths:
            self._audit(AuditEvent("read", name, "ok", digest, skill.origin, key, path))

    def declared_tools(self, name: str) -> list[str]:
        """Return the tools that the ``Tools:`` section of a skill names, in its order.

        Raises :class:`UnknownNameError` for the skill and :class:`ResourceError` where it cannot be read, or is not
        what it was when the skill was loaded.
        """
        declared = self._declared.get(name)
        if declared is None:
            skill = self._known(name)
            with _named(name):
                self._bind(skill)
                declared = self._declared[name] = tuple(skill.tools)
        return list(declared)

    def has_tools(self, files: frozenset[str]) -> bool:
        """Return whether a skill names tools or has one of ``files``, which bring tools.

        Skills are read up to the first that does, and each once, also for the views that :meth:`only` returns. A skill
        that cannot be read counts as one that does: its tools report the error.
        """
        return any(self._has_tools(skill, files) for skill in self._skills.values())

    def _has_tools(self, skill: AgentSkill, files: frozenset[str]) -> bool:
        known = self._with_tools.get(skill.name)
        if known is None:
            try:
                known = not files.isdisjoint(skill.files.paths()) or (not skill.files.on_demand and bool(skill.tools))
            except ResourceError:
                return True
            self._with_tools[skill.name] = known
        return known

    def content(self, name: str) -> Activation:
        """What :meth:`activate` gives, for a skill that a model has loaded already: not audited again."""
        skill = self._known(name)
        with _named(name):
            return self._activate(skill)

    def activate(self, name: str, *, key: str = "") -> Activation:
        """Load a skill for a model; ``key`` is the stream key, for the audit trail.

        Raises :class:`UnknownNameError` for a name outside the view, and :class:`ResourceError` where the
        files cannot be read or are not those that were loaded.
        """
        skill = self._known(name, "activate", key)
        try:
            with _named(name):
                activation = self._activate(skill)
        except ResourceError:
            self._audit(AuditEvent("activate", name, "error", "", skill.origin, key))
            raise
        self._audit(AuditEvent("activate", name, "ok", activation.digest, skill.origin, key))
        return activation

    def read_resource(
        self, name: str, path: str, offset: int = 0, limit: int | None = None, *, key: str = ""
    ) -> ResourceText:
        """Read part of a text file of a skill, at most ``limit`` bytes (1 MiB at the most).

        A page never ends inside a character. Raises :class:`UnknownNameError` for the skill and
        :class:`ResourceError`, with near file names, for the file.
        """
        return self._audited(name, path, key, lambda skill: self._read(skill, path, offset, limit))

    def read_bytes(self, name: str, path: str, limit: int, *, key: str = "") -> bytes | None:
        """Read a file of a skill as bytes. Return None if it has more than ``limit`` bytes.

        Raises as :meth:`read_resource`.
        """

        def read(skill: AgentSkill) -> bytes | None:
            data, total = skill.files.read(path, 0, limit)
            if found := self._credential(skill, path, data, 0, total):
                raise ResourceError(f"{credential_message(path, found)}, and models do not read it.")
            return data if total <= limit else None

        return self._audited(name, path, key, read)

    def _audited(self, name: str, path: str, key: str, read: Callable[[AgentSkill], T]) -> T:
        """Return the result of ``read``, and pass the event to the audit trail."""
        skill = self._known(name, "read", key, path)
        digest = ""
        try:
            with _named(name):
                digest = self._bind(skill)
                result = read(skill)
        except ResourceError as error:
            self._audit(AuditEvent("read", name, "error", digest, skill.origin, key, path))
            raise self._of_other_skill(skill, path) or error from None
        self._audit(AuditEvent("read", name, "ok", digest, skill.origin, key, path))
        return result

    def _activate(self, skill: AgentSkill) -> Activation:
        files = skill.files
        stamp = files.skill_file_stamp() if isinstance(files, FolderFiles) else ()
        with self._lock:
            cached = self._activated.get(skill.name)
            if cached is not None and cached.stamp == stamp:
                self._activated.move_to_end(skill.name)
                return cached.activation
        digest = self._bind(skill)  # before the body is read: from here on a change is an error
        text = activation_text(skill, skill.instructions, without_credential_names(files.paths()))
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
            raise ResourceError(
                f"reading {path!r} failed: the offset must be at least 0 and the limit at least 4 bytes"
            )
        data, total = skill.files.read(path, offset, size)
        if found := self._credential(skill, path, data, offset, total):
            raise ResourceError(f"{credential_message(path, found)}, and models do not read it. Use it in a command.")
        if offset > total:
            raise ResourceError(f"{path!r} has {total} bytes; offset {offset} is behind its end")
        if b"\0" in data:
            raise ResourceError(not_text(path, data, total))
        page = page_of(data, offset, total)
        origin = skill.origin if skill.server else ""
        return page._replace(text=with_base_dir(clean(page.text), skill.path), origin=origin)

    def _credential(self, skill: AgentSkill, path: str, data: bytes, offset: int, total: int) -> Credential | None:
        """Return what looks like a secret in the file, of which ``data`` is the part at ``offset``."""
        plain = "/".join(resource_parts(path))
        if plain == skill.files.skill_file:
            return None  # a model that loads the skill has its text
        return find_credential(plain, data) if len(data) == total else credential_in_file(skill.files, plain)

    def _of_other_skill(self, skill: AgentSkill, path: str) -> ResourceError | None:
        """Return the error for a path that leads from ``skill`` into another skill of the view."""
        if not skill.path or path.startswith("/"):
            return None
        wanted = os.path.normpath(f"{skill.path}/{path}")
        for other in self._skills.values():
            if other is skill or not other.path or not inside(wanted, other.path) or inside(skill.path, other.path):
                continue
            below = os.path.relpath(wanted, other.path)
            fix = f"load it with the name {other.name!r}"
            if below not in (".", other.files.skill_file):
                fix = f"load it, and read {below!r} with the name {other.name!r}"
            return ResourceError(
                f"{path!r} is not a file of skill {skill.name!r}: this is the skill {other.name!r}: {fix}"
            )
        return None

    def _known(self, name: str, action: str = "", key: str = "", path: str = "") -> AgentSkill:
        """Return the skill. The audit trail receives an ``action`` with an unknown name."""
        skill = self.get(name)
        if skill is None:
            if action:
                self._audit(AuditEvent(action, name, "unknown", key=key, path=path))
            raise unknown_skill(name, self.names)
        return skill


def unknown_skill(name: str, known: Iterable[str], *, place: str = "") -> UnknownNameError:
    """Return the error for an unknown name. It names the skills of plugins that have this name."""
    known = list(known)
    full = [repr(other) for other in known if other.endswith(f":{name}")]
    advice = f"several plugins have it: write {' or '.join(full)}" if full else ""
    return UnknownNameError("skill", name, known, place=place, advice=advice)


@contextmanager
def _named(name: str) -> Iterator[None]:
    """Prefix the errors of a skill with its name."""
    try:
        yield
    except ResourceError as error:
        place = f"skill {name!r}: "
        raise error if str(error).startswith(place) else ResourceError(f"{place}{error}") from None
