"""The skill state of a conversation: loaded skills, selected documents and tools, saved artifacts.

Tools change it by *effects*, small JSON objects in their results. The journal stores them with the result. A turn that
is restarted after a failure therefore has the same state without calling the tool again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from flink_skills.errors import ConfigError, ExecutionError

if TYPE_CHECKING:
    from flink_skills.manager.view import SkillView

#: Selects everything, instead of a list of names.
ALL: Literal["*"] = "*"

# Names of documents or tools, in the order of their selection. "*" selects everything in the skill.
Selection = tuple[str, ...] | Literal["*"]

# An endless conversation must not fill its state with the names of files.
_MAX_ARTIFACTS = 256

#: Maximum number of tool names from skills that a conversation stores.
MAX_TOOL_NAMES = 512


@dataclass(frozen=True)
class LoadedSkill:
    """A loaded skill.

    Attributes:
        digest: Its version.
        docs: The selected documents.
        tools: The selected tools. None: those in the ``Tools:`` section of the skill.
        bundled: Descriptions of the tools that the skill brings. ``exposed`` is the name in this conversation.
        shown: True if a request to the model had its content. With the lifetime ``once``, the skill is then unloaded.
        server: The label of the MCP server that it is from, or an empty string.
    """

    digest: str
    docs: Selection = ()
    tools: Selection | None = None
    bundled: tuple[Mapping[str, Any], ...] = ()
    shown: bool = False
    server: str = ""

    def to_json(self, skill: str) -> dict[str, Any]:
        found: dict[str, Any] = {"skill": skill, "digest": self.digest}
        if self.docs:
            found["docs"] = _to_json(self.docs)
        if self.tools is not None:
            found["tools"] = _to_json(self.tools)
        if self.bundled:
            found["bundled"] = [dict(spec) for spec in self.bundled]
        if self.shown:
            found["shown"] = True
        if self.server:
            found["server"] = self.server
        return found

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> LoadedSkill:
        return cls(
            str(data.get("digest", "")),
            _selection(data.get("docs", ())),
            None if data.get("tools") is None else _selection(data["tools"]),
            tuple(data.get("bundled", ())),
            bool(data.get("shown", False)),
            str(data.get("server", "")),
        )


def load_effect(
    skill: str,
    digest: str,
    *,
    docs: Selection = (),
    tools: Selection | None = None,
    bundled: Sequence[Mapping[str, Any]] = (),
    server: str = "",
) -> dict[str, Any]:
    """Return the effect that loads ``skill`` in the version ``digest``, with a selection of documents and tools."""
    return {"op": "load", **LoadedSkill(digest, docs, tools, tuple(bundled), server=server).to_json(skill)}


def touch_effect(skill: str) -> dict[str, Any]:
    """Return the effect that marks ``skill`` as used last."""
    return {"op": "touch", "skill": skill}


def unload_effect(skill: str) -> dict[str, Any]:
    """Return the effect that unloads ``skill``."""
    return {"op": "unload", "skill": skill}


def docs_effect(skill: str, docs: Selection, *, digest: str = "") -> dict[str, Any]:
    """Return the effect that replaces the selected documents of ``skill``.

    ``digest`` is its version if the result has the instructions.
    """
    return {"op": "docs", "skill": skill, "docs": _to_json(docs), **({"digest": digest} if digest else {})}


def tools_effect(skill: str, tools: Selection | None) -> dict[str, Any]:
    """Return the effect that replaces the selected tools of ``skill``. None selects those that it names itself."""
    return {"op": "tools", "skill": skill, "tools": None if tools is None else _to_json(tools)}


def artifacts_effect(call_id: str, artifacts: Iterable[tuple[str, str]]) -> dict[str, Any]:
    """Return the effect that stores saved artifacts, as pairs (name, version)."""
    return {"op": "artifacts", "call_id": call_id, "artifacts": [list(pair) for pair in artifacts]}


def pin_effect(place: str, name: str, version: str) -> dict[str, Any]:
    """Return the effect that fixes the version of artifact ``name`` for the input ``place`` of a workspace."""
    return {"op": "pin", "place": place, "name": name, "version": version}


class SkillState:
    """The loaded skills of one conversation in the order of their last use, and the artifacts that it saved.

    >>> state = SkillState()
    >>> state.apply(load_effect("a", "1", docs=("guide.md",)))
    >>> state.apply(load_effect("b", "2"))
    >>> state.apply(touch_effect("a"))
    >>> state.names, state.last, state["a"].docs
    (['b', 'a'], 'a', ('guide.md',))
    """

    def __init__(self) -> None:
        self._loaded: dict[str, LoadedSkill] = {}
        self._artifacts: dict[str, str] = {}
        self._last_saved: tuple[str, tuple[tuple[str, str], ...]] | None = None
        self._pins: dict[str, tuple[str, str]] = {}
        self._tool_names: dict[str, tuple[str, str]] = {}
        self._revision = 0

    @property
    def revision(self) -> int:
        """A number that changes when a skill is loaded or unloaded, or a selection changes."""
        return self._revision

    @property
    def names(self) -> list[str]:
        """The names of the loaded skills, in the order of their last use."""
        return list(self._loaded)

    @property
    def last(self) -> str | None:
        """The skill that was used last."""
        return next(reversed(self._loaded), None)

    def get(self, skill: str) -> LoadedSkill | None:
        """Return a loaded skill, None if it is not loaded."""
        return self._loaded.get(skill)

    def digest(self, skill: str) -> str | None:
        """Return the digest of a loaded skill, None if it is not loaded."""
        found = self._loaded.get(skill)
        return None if found is None else found.digest

    @property
    def tool_names(self) -> Mapping[str, tuple[str, str]]:
        """Skill and tool by the name that a tool from a skill has in this conversation.

        A name stays after its skill is unloaded, so that it never refers to another skill's code. The first
        ``MAX_TOOL_NAMES`` names are stored. Later names do not replace them.
        """
        return self._tool_names

    @property
    def artifacts(self) -> Mapping[str, str]:
        """The last version of each artifact that this conversation saved, by name."""
        return self._artifacts

    @property
    def last_saved(self) -> dict[str, Any] | None:
        """Return the last saved artifacts: ``tool_call_id``, and ``artifacts`` with name, version and ref."""
        if self._last_saved is None:
            return None
        call_id, saved = self._last_saved
        refs = [{"name": name, "version": version, "ref": f"artifact://{name}@{version}"} for name, version in saved]
        return {"tool_call_id": call_id, "artifacts": refs}

    def pinned(self, place: str, name: str) -> str | None:
        """Return the first version of artifact ``name`` in the input ``place``, None for a new one."""
        found = self._pins.get(place)
        return found[1] if found is not None and found[0] == name else None

    def apply(self, effect: Mapping[str, Any]) -> None:
        """Apply an effect. Raises :class:`ConfigError` for an unknown one.

        Except for a load, an effect on a skill that is not loaded changes nothing: two calls of one response may have
        the same effect.
        """
        op = effect.get("op")
        if op in ("artifacts", "pin"):
            self._apply_artifacts(effect)
            return
        # The tools do not depend on how recently a skill was used.
        self._revision += op != "touch"
        skill = effect.get("skill")
        if not isinstance(skill, str) or op not in ("load", "touch", "unload", "docs", "tools"):
            raise ConfigError(
                f"effect {dict(effect)!r} of a tool is not known: load, touch, unload, docs and tools are about a "
                "skill, artifacts and pin about artifacts"
            )
        before = self._loaded.pop(skill, None)
        if op == "load":
            self._loaded[skill] = LoadedSkill.from_json(effect)
            self._note_tool_names(skill, self._loaded[skill].bundled)
        elif before is not None and op == "docs":
            self._loaded[skill] = replace(before, docs=_selection(effect["docs"]), shown=False)
        elif before is not None and op == "tools":
            tools = effect["tools"]
            self._loaded[skill] = replace(before, tools=None if tools is None else _selection(tools), shown=False)
        elif before is not None and op == "touch":
            self._loaded[skill] = before

    def _note_tool_names(self, skill: str, bundled: Iterable[Mapping[str, Any]]) -> None:
        for spec in bundled:
            if "exposed" in spec and len(self._tool_names) < MAX_TOOL_NAMES:
                self._tool_names.setdefault(str(spec["exposed"]), (skill, str(spec["name"])))

    def _apply_artifacts(self, effect: Mapping[str, Any]) -> None:
        if effect["op"] == "pin":
            place = str(effect["place"])
            self._pins.pop(place, None)
            self._pins[place] = (str(effect["name"]), str(effect["version"]))
            _cut(self._pins)
            return
        saved = tuple((str(name), str(version)) for name, version in effect["artifacts"])
        for name, version in saved:
            self._artifacts.pop(name, None)
            self._artifacts[name] = version
        _cut(self._artifacts)
        if saved:
            self._last_saved = (str(effect.get("call_id", "")), saved[-_MAX_ARTIFACTS:])

    def clear(self) -> None:
        """Unload all skills. Artifacts and the names of tools stay."""
        self._revision += bool(self._loaded)
        self._loaded.clear()

    def evict(self, most: int) -> list[str]:
        """Unload all skills except the ``most`` used last. Return the names of the unloaded skills.

        0 or less means no limit.
        """
        gone = self.names[:-most] if most > 0 else []
        for skill in gone:
            del self._loaded[skill]
            self._revision += 1
        return gone

    def note_shown(self) -> None:
        """Mark the content of all loaded skills as included in a request."""
        self._loaded = {skill: replace(loaded, shown=True) for skill, loaded in self._loaded.items()}

    def forget_shown(self) -> None:
        """Unload the skills whose content a request already had."""
        kept = {skill: loaded for skill, loaded in self._loaded.items() if not loaded.shown}
        self._revision += len(kept) != len(self._loaded)
        self._loaded = kept

    def to_json(self) -> dict[str, Any]:
        """Return the state as plain data for the session."""
        found: dict[str, Any] = {"loaded": [loaded.to_json(skill) for skill, loaded in self._loaded.items()]}
        if self._artifacts:
            found["artifacts"] = self._artifacts.copy()
        if self._last_saved is not None:
            found["last_saved"] = [self._last_saved[0], [list(pair) for pair in self._last_saved[1]]]
        if self._pins:
            found["pins"] = {place: list(pair) for place, pair in self._pins.items()}
        if self._tool_names:
            found["tool_names"] = {name: list(of) for name, of in self._tool_names.items()}
        return found

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> SkillState:
        """Return the state of :meth:`to_json`. Earlier releases stored fewer fields."""
        found = cls()
        for entry in data.get("loaded", ()):
            found._loaded[str(entry["skill"])] = LoadedSkill.from_json(entry)
        found._artifacts = {str(name): str(version) for name, version in data.get("artifacts", {}).items()}
        if data.get("last_saved"):
            call_id, saved = data["last_saved"]
            found._last_saved = (str(call_id), tuple((str(name), str(version)) for name, version in saved))
        found._pins = {str(place): (str(pair[0]), str(pair[1])) for place, pair in data.get("pins", {}).items()}
        found._tool_names = {str(name): (str(of[0]), str(of[1])) for name, of in data.get("tool_names", {}).items()}
        return found

    def __getitem__(self, skill: str) -> LoadedSkill:
        return self._loaded[skill]

    def __contains__(self, skill: object) -> bool:
        return skill in self._loaded

    def __iter__(self) -> Iterator[str]:
        return iter(list(self._loaded))

    def __len__(self) -> int:
        return len(self._loaded)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SkillState) and self.to_json() == other.to_json()

    __hash__ = None  # type: ignore[assignment]


def check_commands(view: SkillView | None, state: SkillState | None, *names: str) -> None:
    """Raise :class:`ExecutionError` if a skill of an MCP server without approval is in context, or among ``names``.

    The approval is valid for the version that the job approved.
    """
    loaded = {name: state[name] for name in state} if state is not None else {}
    for name in dict.fromkeys((*loaded, *names)):
        skill, before = view.get(name) if view is not None else None, loaded.get(name)
        server = skill.server if skill is not None else before.server if before is not None else ""
        reason = "the job no longer has the skill" if skill is None else skill.refusal
        if server and not reason and before is not None and skill is not None and before.digest != skill.digest:
            reason = "the skill has changed since the model loaded it"
        if server and reason:
            raise ExecutionError(
                f"Commands are refused while skill {name!r} of the MCP server {server} is in use: {reason}. Continue "
                "without commands, or unload the skill. The operator of the job approves it with 'scripts' of the "
                "server's skills."
            )


def united(before: Selection, more: Selection) -> Selection:
    """Return both selections in order.

    >>> united(("a.md",), ("b.md", "a.md")), united(("a.md",), "*")
    (('a.md', 'b.md'), '*')
    """
    if ALL in (before, more):
        return ALL
    return tuple(dict.fromkeys((*before, *more)))


def names_of(selection: Selection, there: Iterable[str]) -> list[str]:
    """Return the names of a selection among those of ``there``."""
    return list(there if selection == ALL else selection)


def _selection(value: Any) -> Selection:
    return ALL if value == ALL else tuple(str(name) for name in value)


def _to_json(selection: Selection) -> str | list[str]:
    return ALL if selection == ALL else list(selection)


def _cut(values: dict[str, Any]) -> None:
    while len(values) > _MAX_ARTIFACTS:
        del values[next(iter(values))]
