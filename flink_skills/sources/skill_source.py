"""Sources of skills: how they are declared, the class that opens them, and the registry of their kinds.

A third party adds a kind with an entry point of the group ``flink_skills.sources`` whose value is a subclass of
:class:`SkillSource`, or with :func:`register_source`. Such a kind can be declared wherever a URL can, as the URL's
scheme: ``mount://team/skills`` opens the kind ``mount``.
"""

from __future__ import annotations

import importlib
import json
import re
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.metadata import EntryPoint, entry_points
from typing import TYPE_CHECKING, Any, ClassVar
from urllib.parse import parse_qsl, urlencode

from flink_skills.endpoint import redact
from flink_skills.errors import ConfigError, UnknownNameError, near_misses
from flink_skills.options import SkillConfig, SkillOptions
from flink_skills.skill import Diagnostic, Limits
from flink_skills.sources.address import protocol_of
from flink_skills.sources.secrets import expand_values

if TYPE_CHECKING:
    from flink_skills.skill import AgentSkill, LoadResult
    from flink_skills.sources.locking import Lease
    from flink_skills.sources.store import Store, StoredTree

FORMATS = ("skill", "heading")

_PINS = re.compile(r"#((?:sha256|format)=[^#]*)\Z", re.DOTALL)
_OF_REPOSITORY = re.compile(r"\Agit\+[^#]*#(?:subdirectory|commit)=[^#]*\Z", re.IGNORECASE | re.DOTALL)
_UNKNOWN_PIN = re.compile(r"#([\w-]+)=[^#/]*\Z")
_SETTINGS = re.compile(r"#([a-z]+=[^#]*)\Z")
_SHA256 = re.compile(r"(?:sha256:)?([0-9A-Fa-f]{64})")
_WORDS = ("sha256", "format")
_OF_CONFIG = Limits()
_GROUP = "flink_skills.sources"


@dataclass(frozen=True, repr=False)
class SourceSpec:
    """One declared source.

    ``sha256`` pins the bytes of an archive or of a bare ``SKILL.md``. ``format`` is ``"skill"`` for ``SKILL.md``
    files with front matter, ``"heading"`` for those that have only a first heading. ``settings`` are those of a source
    ``mcp+…``, as a query string.

    >>> SourceSpec.parse("path", "/opt/notes#format=heading").format
    'heading'
    """

    kind: str
    location: str
    sha256: str | None = None
    format: str = "skill"
    settings: str = ""

    def __post_init__(self) -> None:
        for name in ("kind", "location"):
            if not isinstance(getattr(self, name), str):
                raise ConfigError(f"skill source: its {name} is a {type(getattr(self, name)).__name__}; give a string")
        if self.sha256 is not None:
            match = _SHA256.fullmatch(self.sha256) if isinstance(self.sha256, str) else None
            if match is None:
                raise ConfigError(f"skill source {self.shown}: sha256 needs 64 hexadecimal digits, as sha256sum prints")
            object.__setattr__(self, "sha256", match.group(1).lower())
        if self.format not in FORMATS:
            message = f"skill source {self.shown}: there is no format {str(self.format)[:40]!r}"
            raise ConfigError(f"{message}; use {' or '.join(repr(name) for name in FORMATS)}")

    @classmethod
    def parse(cls, kind: str, given: str | Mapping[str, Any] | SourceSpec) -> SourceSpec:
        """Read a declaration: ``location#sha256=…&format=…``, a mapping, or a spec.

        A mapping has the location under its kind or ``location``, and the pins:
        ``{"url": "https://…", "sha256": "…"}``. A path can contain ``#``: only text after the last one that begins
        with ``sha256=`` or ``format=`` is a pin. Raises :class:`ConfigError`.
        """
        if isinstance(given, SourceSpec):
            if given.kind != kind:
                raise ConfigError(f"skill source {given.shown}: is declared as {kind}, but it is a {given.kind}")
            return given
        if isinstance(given, Mapping):
            return cls._of_mapping(kind, given)
        if not isinstance(given, str):
            message = f"skill {kind}: a value of type {type(given).__name__} is not a valid source"
            raise ConfigError(f"{message}; give a string or a mapping such as {{'{kind}': …, 'sha256': …}}")
        if kind not in ("path", "resource") and given[:4].lower() == "git+":
            given = _with_pins_last(given)
        if _is_server(kind, given) and (settings := _SETTINGS.search(given)):
            return cls(kind, given[: settings.start()], settings=settings[1])
        found = _PINS.search(given)
        if found is None:
            # A subdirectory and a commit are parts of the address of a repository.
            others = kind not in ("path", "resource") and not _OF_REPOSITORY.search(given)
            unknown = _UNKNOWN_PIN.search(given) if others else None
            if unknown is not None:
                # Otherwise it would be a pin without a check.
                message = f"skill source {_shown(kind, given)}: {unknown[1][:40]!r} after '#' is unknown"
                raise ConfigError(f"{message}{_near(unknown[1], _WORDS)}; write #sha256=…, #format=… or both with '&'")
            return cls(kind, given)
        location = given[: found.start()]
        pins: dict[str, str] = {}
        for part in found.group(1).split("&"):
            word, _, value = part.partition("=")
            if word not in _WORDS or word in pins:
                problem = "is duplicated" if word in pins else f"is unknown{_near(word, _WORDS)}"
                message = f"skill source {_shown(kind, location)}: {word[:40]!r} after '#' {problem}"
                raise ConfigError(f"{message}; write #sha256=…, #format=… or both with '&'")
            pins[word] = value
        return cls(kind, location, pins.get("sha256"), pins.get("format", "skill"))

    @classmethod
    def _of_mapping(cls, kind: str, given: Mapping[str, Any]) -> SourceSpec:
        names = (kind, "location", *_WORDS)
        location = given.get(kind, given.get("location"))
        if isinstance(location, str) and _is_server(kind, location):
            spec = cls.parse(kind, location)
            settings = {name: value for name, value in given.items() if name not in (kind, "location")}
            if settings.get("format") == "skill":
                del settings["format"]
            more = [pair for name, value in settings.items() if value is not None for pair in _pairs(name, value)]
            return replace(spec, settings="&".join(filter(None, (spec.settings, urlencode(more)))))
        for name in given:
            if name not in names:
                known = ", ".join(dict.fromkeys(names))
                raise ConfigError(f"skill {kind}: {str(name)[:40]!r} is unknown{_near(str(name), names)}; use {known}")
        locations = [given[name] for name in dict.fromkeys((kind, "location")) if name in given]
        if len(locations) != 1 or not isinstance(locations[0], str):
            raise ConfigError(f"skill {kind}: the declaration needs one string {kind!r}; write {{'{kind}': …}}")
        spec = cls.parse(kind, locations[0])
        pins = {name: given[name] for name in _WORDS if given.get(name) is not None}
        merged = cls(kind, spec.location, pins.get("sha256", spec.sha256), pins.get("format", spec.format))
        if spec.sha256 not in (None, merged.sha256) or spec.format not in ("skill", merged.format):
            raise ConfigError(f"skill source {spec.shown}: is pinned twice, and differently; keep one of the pins")
        return merged

    @property
    def shown(self) -> str:
        """The location as messages may show it."""
        return _shown(self.kind, self.location)

    @property
    def public(self) -> SourceSpec:
        """The source with the location as messages may show it, and with the same pins.

        >>> str(SourceSpec.parse("url", "https://me:pw@host/a.zip?sig=1#format=heading").public)
        'https://host/a.zip#format=heading'
        """
        settings = [pair for pair in parse_qsl(self.settings) if pair[0] not in ("server", "entries")]
        return replace(self, location=self.shown, settings=urlencode(settings))

    def __str__(self) -> str:
        if self.settings:
            return f"{self.location}#{self.settings}"
        pins = [f"sha256={self.sha256}"] if self.sha256 else []
        # Said although it is the default where the location alone would be read as one with pins.
        ambiguous = _PINS.search(self.location) or _UNKNOWN_PIN.search(_OF_REPOSITORY.sub("", self.location))
        if self.format != "skill" or (not pins and ambiguous):
            pins.append(f"format={self.format}")
        return self.location + (f"#{'&'.join(pins)}" if pins else "")

    def __repr__(self) -> str:
        return f"SourceSpec({self.kind!r}, {self.shown!r}, sha256={self.sha256!r}, format={self.format!r})"


def _is_server(kind: str, location: str) -> bool:
    return kind not in ("path", "resource") and location.startswith("mcp+")


def _pairs(name: str, value: Any) -> list[tuple[str, str]]:
    if isinstance(value, Mapping):
        return [(name, json.dumps(dict(value)))]
    values = value if isinstance(value, (list, tuple)) else [value]
    return [(name, str(one).lower() if isinstance(one, bool) else str(one)) for one in values]


def _shown(kind: str, location: str) -> str:
    if kind not in ("path", "resource") and location.startswith("mcp+stdio:"):
        return " ".join(location.split()[:1])  # arguments may be secret
    return location if kind in ("path", "resource") and "://" not in location else redact(location)


def _with_pins_last(location: str) -> str:
    """Return the address of a repository with ``#sha256=…`` and ``#format=…`` behind its other parts."""
    base, _, rest = location.partition("#")
    words = re.split("[#&]", rest) if rest else []
    pins = [word for word in words if word.partition("=")[0] in _WORDS]
    others = [word for word in words if word not in pins]
    return base + "".join("#" + "&".join(part) for part in (others, pins) if part)


def _near(word: str, known: tuple[str, ...]) -> str:
    near = near_misses(word, known, limit=1)
    return f" (did you mean {near[0]!r}?)" if near else ""


@dataclass(frozen=True)
class SourceTree:
    """A folder with skills in or below it.

    ``origin`` names the source in messages, without secrets. ``remote``: the content came over a network.
    ``format`` is that of :class:`SourceSpec`. ``version`` changes with the content where that is known without
    reading it (the sha256 of what the store unpacked), else it is "". ``index`` is the store's index of the folder,
    ``lease`` keeps the folder in the store while it is open, and ``notes`` are what the source itself has to say.
    ``results`` are the skills if the source lists them itself: nothing is read from the folder. ``pinned`` declares the
    source with this content, for a plan.
    """

    path: str
    origin: str
    remote: bool = False
    format: str = "skill"
    version: str = ""
    index: str | None = None
    lease: Lease | None = field(default=None, compare=False, repr=False)
    notes: tuple[Diagnostic, ...] = ()
    results: tuple[LoadResult, ...] | None = field(default=None, compare=False, repr=False)
    pinned: SourceSpec | None = field(default=None, compare=False, repr=False)

    @classmethod
    def of_store(cls, stored: StoredTree, origin: str, *, remote: bool, format: str) -> SourceTree:
        """Return the tree that the store unpacked for a source."""
        return cls(stored.path, origin, remote, format, stored.sha256, stored.index, stored.lease)


@dataclass
class SourceContext:
    """Context for sources while a job opens.

    ``resource_paths`` maps names of job-JAR resources to the files or folders that the runtime copied them to. It is
    None without a job JAR (on the client). ``store_dir`` overrides ``skills.store.dir``, and ``limits`` override
    ``skills.limits.*``. With ``refresh``, servers are queried for changes regardless of earlier responses, except with
    ``skills.store.check: never``. ``opened`` is its start in seconds since the epoch: with
    ``skills.store.check: on-open`` a later response is sufficient, so the processes of one opening can share the time.
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
        """The content-addressed store. Its folder is created with the first content."""
        from flink_skills.sources.store import Store

        folder = self.store_dir or self.config.get(SkillOptions.STORE_DIR)
        return Store(folder, self.limits, max_size=self.config.get(SkillOptions.STORE_MAX_SIZE))

    def without_options(self) -> SourceContext:
        """Return the context without ``skills.source.options``, for addresses of other hosts."""
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
    #: The name of a server in the job. No other source may have it.
    label: str = ""

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

    def pinned(self) -> SourceSpec:
        """Return the declaration that all TaskManagers of a job use. Raises what :meth:`resolve` raises."""
        return self.spec

    def watch(self, changed: Callable[[], None]) -> Callable[[], None]:
        """Call ``changed``, in any thread, when the source reports other content. Return a function that ends this."""
        return lambda: None


class CodeSource(SkillSource):
    """A skill object. The store keeps its files under its digest, as it keeps an unpacked archive.

    No text can declare it, so it is not one of the kinds that :func:`open_source` opens.
    """

    kind = "code"

    def __init__(self, skill: AgentSkill, context: SourceContext) -> None:
        super().__init__(SourceSpec(self.kind, skill.name, format=skill.form), context)
        self._skill = skill

    @property
    def origin(self) -> str:
        return self._skill.origin or "code"

    def resolve(self) -> list[SourceTree]:
        deadline = time.monotonic() + self.context.config.get(SkillOptions.SOURCE_TIMEOUT)
        stored = self.context.store.add_skill(self._skill, self.origin, deadline=deadline)
        return [SourceTree.of_store(stored, self.origin, remote=self._skill.remote, format=self._skill.form)]


@dataclass(frozen=True)
class _Kind:
    target: str
    install: str = ""


# Schemes that no third party can take over: what they mean in a job must not depend on what else is installed.
_OURS = frozenset({"path", "resource", "url", "file", "local", "http", "https"})
_OURS |= {"git+https", "git+http", "git+file", "git+ssh"}
_OURS |= {"s3", "s3a", "oss", "gs", "gcs", "abfs", "abfss", "az", "hdfs", "webhdfs"}
_OWN = {
    "path": _Kind("flink_skills.sources.path:PathSource"),
    "resource": _Kind("flink_skills.sources.path:ResourceSource"),
    "url": _Kind("flink_skills.sources.url:UrlSource"),
    "oci": _Kind("flink_skills.sources.oci:OciSource"),
    **dict.fromkeys(("mcp+https", "mcp+http", "mcp+stdio"), _Kind("flink_skills.tools.mcp.served_skills:McpSource")),
}
_registered: dict[str, _Kind] = {}


def register_source(kind: str, target: str, *, install: str = "") -> None:
    """Add a kind: ``target`` is ``module:Class``, imported when the kind is first opened.

    ``install`` is what to install where that import fails, such as ``"pip install mount-skills"``. A kind that
    exists is never replaced silently.
    """
    known = _known(kind)
    if known is not None and known.target != target:
        raise ConfigError(f"skill source kind {kind!r} is {known.target} already; choose another name")
    _registered[kind] = _Kind(target, install)


def unregister_source(kind: str) -> None:
    """Remove the kind that :func:`register_source` added, if there is one."""
    _registered.pop(kind, None)


def source_kinds() -> list[str]:
    """Names of all kinds, those of installed packages included."""
    return sorted({*_OWN, *_registered, *(point.name for point in entry_points(group=_GROUP))})


def open_source(kind: str, location: str | Mapping[str, Any] | SourceSpec, context: SourceContext) -> SkillSource:
    """The source for a declaration (see :meth:`SourceSpec.parse`).

    Raises :class:`UnknownNameError` for a kind that nothing provides and :class:`ConfigError` for a location
    that can never work.
    """
    spec = SourceSpec.parse(kind, location)
    if kind == "url":
        scheme = spec.location.partition(":")[0] if _is_server(kind, spec.location) else protocol_of(spec.location)
        if scheme and scheme not in _OURS and (_known(scheme) or _entry_point(scheme)):
            spec = replace(spec, kind=scheme)
    made = _class_of(spec.kind)(spec, context)
    if not isinstance(made, SkillSource):
        raise ConfigError(
            f"skill source kind {spec.kind!r}: {type(made).__name__} is not a SkillSource; derive it from SkillSource"
        )
    return made


def _known(kind: str) -> _Kind | None:
    return _registered.get(kind) or _OWN.get(kind)


def _class_of(kind: str) -> Any:
    known = _known(kind)
    point = None if known else _entry_point(kind)
    if known is None and point is None:
        raise UnknownNameError("skill source kind", kind, source_kinds())
    target = known.target if known else point.value if point else ""
    try:
        if point:
            return point.load()
        module, _, name = target.partition(":")
        return getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as error:
        install = known.install if known and known.install else "install or fix the package that provides it"
        reason = f"{target} cannot be imported ({error})"
        raise ConfigError(f"skill source kind {kind!r}: {reason}; {install}") from error


def _entry_point(kind: str) -> EntryPoint | None:
    return next((point for point in entry_points(group=_GROUP) if point.name == kind), None)
