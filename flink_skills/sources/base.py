"""What a skill source is: something that ends as folders on this machine."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

from flink_skills.errors import ConfigError
from flink_skills.options import SkillConfig, SkillOptions
from flink_skills.skill import Limits

if TYPE_CHECKING:
    from flink_skills.sources.store import Store

__all__ = ["SkillSource", "SourceContext", "SourceTree"]


@dataclass(frozen=True)
class SourceTree:
    """A folder with skills in or below it.

    ``origin`` names the source in messages, without secrets. ``remote``: the content came over a network.
    """

    path: str
    origin: str
    remote: bool = False


@dataclass
class SourceContext:
    """What sources need from around them.

    ``resource_paths`` maps names of job-JAR resources to the files or folders that the runtime made of them;
    None where there is no job JAR (on the client). ``store_dir`` wins over ``skills.store.dir``.
    """

    config: SkillConfig = field(default_factory=SkillConfig)
    resource_paths: Mapping[str, Sequence[str]] | None = None
    store_dir: str | None = None
    limits: Limits = field(default_factory=Limits)

    @property
    def store(self) -> Store:
        """The content-addressed store; its folder is made when something is put there."""
        from flink_skills.sources.store import Store

        return Store(self.store_dir or self.config.get(SkillOptions.STORE_DIR), self.limits)

    def file_system_options(self, protocol: str) -> dict[str, Any]:
        """The options of ``skills.source.options`` for one protocol. Raises :class:`ConfigError`."""
        text = self.config.get(SkillOptions.SOURCE_OPTIONS)
        mend = 'write a JSON object by protocol, such as {"s3": {"anon": true}}'
        try:
            options = json.loads(text) if text.strip() else {}
        except ValueError:
            # Neither the text nor the parser's message: both may hold a credential.
            raise ConfigError(f"option {SkillOptions.SOURCE_OPTIONS.key}: is no JSON; {mend}") from None
        chosen = options.get(protocol, {}) if isinstance(options, dict) else None
        if not isinstance(chosen, dict):
            raise ConfigError(f"option {SkillOptions.SOURCE_OPTIONS.key}: {mend}")
        return dict(chosen)


class SkillSource(ABC):
    """One declared source. Making one checks what can be known without reading anything.

    A subclass raises :class:`ConfigError` from its constructor for a location that can never work.
    """

    kind: ClassVar[str]

    def __init__(self, location: str, context: SourceContext) -> None:
        self.location = location
        self.context = context

    @property
    def origin(self) -> str:
        """The location as it may be shown: no credentials."""
        return self.location

    @abstractmethod
    def resolve(self) -> list[SourceTree]:
        """Make the source's folders available here, downloading and extracting where needed.

        Called again, it gives the same folders for the same content. Raises
        :class:`~flink_skills.errors.SourceError`.
        """
