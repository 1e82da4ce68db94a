"""What a skill source is: something that ends as folders on this machine."""

from __future__ import annotations

import json
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar

from flink_skills.errors import ConfigError
from flink_skills.options import SkillConfig, SkillOptions
from flink_skills.skill import Diagnostic, Limits
from flink_skills.sources.secrets import expand_values
from flink_skills.sources.spec import SourceSpec

if TYPE_CHECKING:
    from flink_skills.sources.locking import Lease
    from flink_skills.sources.store import Store, StoredTree

__all__ = ["SkillSource", "SourceContext", "SourceTree"]

_OF_CONFIG = Limits()


@dataclass(frozen=True)
class SourceTree:
    """A folder with skills in or below it.

    ``origin`` names the source in messages, without secrets. ``remote``: the content came over a network.
    ``format`` is that of :class:`SourceSpec`. ``version`` changes with the content where that is known without
    reading it (the sha256 of what the store unpacked), else it is "". ``index`` is the store's index of the folder,
    ``lease`` keeps the folder in the store while it is open, and ``notes`` are what the source itself has to say.
    """

    path: str
    origin: str
    remote: bool = False
    format: str = "skill"
    version: str = ""
    index: str | None = None
    lease: Lease | None = field(default=None, compare=False, repr=False)
    notes: tuple[Diagnostic, ...] = ()

    @classmethod
    def of_store(cls, stored: StoredTree, origin: str, *, remote: bool, format: str) -> SourceTree:
        """What the store has unpacked, for a source."""
        return cls(stored.path, origin, remote, format, stored.sha256, stored.index, stored.lease)


@dataclass
class SourceContext:
    """What sources need from around them: one context for one opening of a job.

    ``resource_paths`` maps names of job-JAR resources to the files or folders that the runtime made of them;
    None where there is no job JAR (on the client). ``store_dir`` wins over ``skills.store.dir``. ``limits`` are
    those of ``skills.limits.*`` unless they are given. ``refresh``: servers are asked whether something changed,
    whatever was answered before (but for ``skills.store.check: never``). ``opened`` is when the opening began (seconds
    since the epoch): with ``skills.store.check: on-open`` an answer that came later than that is good enough, so the
    processes of one opening may all be given the same time.
    """

    config: SkillConfig = field(default_factory=SkillConfig)
    resource_paths: Mapping[str, Sequence[str]] | None = None
    store_dir: str | None = None
    limits: Limits = _OF_CONFIG
    refresh: bool = False
    opened: float = field(default_factory=time.time, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.limits is _OF_CONFIG:
            self.limits = Limits.from_config(self.config)

    @property
    def store(self) -> Store:
        """The content-addressed store; its folder is made when something is put there."""
        from flink_skills.sources.store import Store

        folder = self.store_dir or self.config.get(SkillOptions.STORE_DIR)
        return Store(folder, self.limits, max_size=self.config.get(SkillOptions.STORE_MAX_SIZE))

    def without_options(self) -> SourceContext:
        """The same without ``skills.source.options``, for an address that they were not meant for."""
        return replace(self, config=SkillConfig({SkillOptions.SOURCE_OPTIONS.key: ""}).merged_over(self.config))

    def file_system_options(self, protocol: str, *, expanded: bool = True) -> dict[str, Any]:
        """The options of ``skills.source.options`` for one protocol, with ``${env:…}`` and ``${file:…}`` replaced.

        Raises :class:`ConfigError`.
        """
        text = self.config.get(SkillOptions.SOURCE_OPTIONS)
        key = SkillOptions.SOURCE_OPTIONS.key
        fix = 'write a JSON object by protocol, such as {"s3": {"anon": true}}'
        try:
            options = json.loads(text) if text.strip() else {}
        except ValueError:
            # Neither the text nor the parser's message: both may hold a credential.
            raise ConfigError(f"option {key}: is not valid JSON; {fix}") from None
        chosen = options.get(protocol, {}) if isinstance(options, dict) else None
        if not isinstance(chosen, dict):
            raise ConfigError(f"option {key}: {fix}")
        try:
            return dict(expand_values(chosen) if expanded else chosen)
        except ConfigError as error:
            raise ConfigError(f"option {key}, for {protocol}: {error}") from None


class SkillSource(ABC):
    """One declared source. Making one checks what can be known without reading anything.

    A subclass raises :class:`ConfigError` from its constructor for a location that can never work, and names its
    kind. Its tests can inherit from :class:`flink_skills.testing.SkillSourceContract`.

        class MountSource(SkillSource):
            kind = "mount"

            def resolve(self) -> list[SourceTree]:
                return [SourceTree("/mnt/" + self.location, self.origin, format=self.spec.format)]
    """

    kind: ClassVar[str]

    def __init__(self, spec: SourceSpec, context: SourceContext) -> None:
        self.spec = spec
        self.context = context

    @property
    def location(self) -> str:
        """The location as it was declared, without pins. It may hold secrets."""
        return self.spec.location

    @property
    def origin(self) -> str:
        """The location as it may be shown: no credentials."""
        return self.spec.shown

    @abstractmethod
    def resolve(self) -> list[SourceTree]:
        """Make the source's folders available here, downloading and extracting where needed.

        Called again, it gives the same folders for the same content. Raises
        :class:`~flink_skills.errors.SourceError`, whose ``retryable`` says whether trying again may help and whose
        text and ``source`` hold no secret.
        """
