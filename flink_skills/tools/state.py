"""Which skills are loaded in a conversation. Changes travel as *effects*, so that a replay ends the same."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from flink_skills.errors import ConfigError

__all__ = ["SkillState", "load_effect", "touch_effect", "unload_effect"]


def load_effect(skill: str, digest: str) -> dict[str, str]:
    """``skill`` was loaded in the version ``digest``."""
    return {"op": "load", "skill": skill, "digest": digest}


def touch_effect(skill: str) -> dict[str, str]:
    """``skill`` was asked for again, unchanged."""
    return {"op": "touch", "skill": skill}


def unload_effect(skill: str) -> dict[str, str]:
    """``skill`` was put away."""
    return {"op": "unload", "skill": skill}


class SkillState:
    """The loaded skills of one conversation, by name, with their digests, in the order of their last use.

    >>> loaded = SkillState()
    >>> loaded.apply({"op": "load", "skill": "a", "digest": "1"})
    >>> loaded.apply({"op": "load", "skill": "b", "digest": "2"})
    >>> loaded.apply({"op": "touch", "skill": "a"})
    >>> loaded.names, loaded.last
    (['b', 'a'], 'a')
    """

    def __init__(self) -> None:
        self._digests: dict[str, str] = {}

    @property
    def names(self) -> list[str]:
        """Names of the loaded skills, the one used last at the end."""
        return list(self._digests)

    @property
    def last(self) -> str | None:
        """The skill that was loaded, or asked for again, last."""
        return next(reversed(self._digests), None)

    def digest(self, skill: str) -> str | None:
        """The digest of a loaded skill; None if it is not loaded."""
        return self._digests.get(skill)

    def apply(self, effect: Mapping[str, Any]) -> None:
        """Apply the change ``effect``; raises :class:`ConfigError` for one that is not known.

        A ``touch`` or ``unload`` of a skill that is not loaded changes nothing: two calls of one response may
        have had the same idea.
        """
        op, skill = effect.get("op"), effect.get("skill")
        if not isinstance(skill, str) or op not in ("load", "touch", "unload"):
            raise ConfigError(f"effect {dict(effect)!r} of a tool: only load, touch and unload of a skill are known")
        digest = self._digests.pop(skill, None)
        if op == "load":
            self._digests[skill] = str(effect.get("digest", ""))
        elif op == "touch" and digest is not None:
            self._digests[skill] = digest

    def to_json(self) -> dict[str, Any]:
        """Plain data for the session."""
        return {"loaded": [{"skill": name, "digest": digest} for name, digest in self._digests.items()]}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> SkillState:
        """The activations of :meth:`to_json`."""
        found = cls()
        for entry in data.get("loaded", ()):
            found.apply(load_effect(entry["skill"], entry["digest"]))
        return found

    def __contains__(self, skill: object) -> bool:
        return skill in self._digests

    def __iter__(self) -> Iterator[str]:
        return iter(self._digests)

    def __len__(self) -> int:
        return len(self._digests)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SkillState) and self.to_json() == other.to_json()

    __hash__ = None  # type: ignore[assignment]
