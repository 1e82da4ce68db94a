"""Sources on this host: directories and archives by path, and resources of the job JAR."""

from __future__ import annotations

import os
import stat
import time

from flink_skills.errors import ConfigError, SourceError, near_misses
from flink_skills.options import SkillOptions
from flink_skills.skill.file_rules import name_problem
from flink_skills.sources.skill_source import SkillSource, SourceContext, SourceSpec, SourceTree


class PathSource(SkillSource):
    """An absolute path of a folder, or of a zip, tar or tar.gz archive."""

    kind = "path"

    def __init__(self, spec: SourceSpec, context: SourceContext) -> None:
        super().__init__(spec, context)
        location = spec.location
        if "\0" in location or not location.strip():
            raise ConfigError(f"skill path {location!r}: cannot be a path; give an absolute one")
        if "://" in location:
            raise ConfigError(f"skill path {spec.shown!r}: is a URL; declare it with the URLs (skills.from.urls)")
        if not os.path.isabs(location):
            absolute = os.path.abspath(os.path.expanduser(location))
            raise ConfigError(
                f"skill path {location!r} is relative, but a job has no current folder on its TaskManagers: "
                f"give {absolute!r}"
            )
        check_pinned_folder(location, spec)

    def resolve(self) -> list[SourceTree]:
        return [local_tree(self.location, self.spec, self.context)]


def local_tree(path: str, spec: SourceSpec, context: SourceContext, *, origin: str | None = None) -> SourceTree:
    """Return the tree for a folder, or for an archive, which is extracted into the store."""
    origin = origin or spec.shown
    try:
        mode = os.stat(path).st_mode
    except (FileNotFoundError, NotADirectoryError):
        fix = "create it, or check the path on every machine that runs the job"
        raise SourceError(f"skill source {origin}: does not exist; {fix}", source=origin) from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "the file name is invalid"
        raise SourceError(f"skill source {origin}: cannot be read: {reason}", source=origin) from None
    if stat.S_ISDIR(mode):
        if spec.sha256:
            raise SourceError(_folder_has_no_pin(origin), source=origin)
        if not os.access(path, os.R_OK | os.X_OK):
            message = f"skill source {origin}: cannot be read: permission denied; allow reading it"
            raise SourceError(message, source=origin)
        return SourceTree(path, origin, format=spec.format)
    if not stat.S_ISREG(mode):
        raise SourceError(f"skill source {origin}: is neither a folder nor a file; give one of them", source=origin)
    if os.path.basename(path).lower() == "skill.md":
        folder = os.path.dirname(path)
        message = f"skill source {origin}: is the file of one skill; give its folder, {folder!r}"
        raise SourceError(message, source=origin)
    deadline = time.monotonic() + context.config.get(SkillOptions.SOURCE_TIMEOUT)
    stored = context.store.add_archive(path, origin, deadline=deadline, pin=spec.sha256)
    return SourceTree.of_store(stored, origin, remote=False, format=spec.format)


def check_pinned_folder(path: str, spec: SourceSpec) -> None:
    """Raise :class:`ConfigError` for a pin on a folder, whose bytes have no one digest."""
    if spec.sha256 and os.path.isdir(path):
        raise ConfigError(_folder_has_no_pin(spec.shown))


def _folder_has_no_pin(origin: str) -> str:
    return (
        f"skill source {origin}: a folder cannot be pinned with sha256; "
        f"pin its skills with {SkillOptions.LOCK.key} ('flink-skills lock' writes the file)"
    )


class ResourceSource(SkillSource):
    """The name of a folder or archive inside the job JAR, such as ``skills`` or ``skills.zip``.

    Several jars may have the same folder: all of them count, in class path order.
    """

    kind = "resource"

    def __init__(self, spec: SourceSpec, context: SourceContext) -> None:
        super().__init__(spec, context)
        location = spec.location
        parts = location.split("/")
        if not location.strip("/") or ".." in parts or "\\" in location or "\0" in location:
            raise ConfigError(f"skill resource {location!r}: give a name inside the job JAR, such as 'skills'")
        for part in filter(None, parts):
            if problem := name_problem(part):
                message = f"skill resource {location!r}: {part!r} is not a valid file name: {problem}"
                raise ConfigError(f"{message}; rename it in the job JAR")
        for path in self._paths():
            check_pinned_folder(path, spec)

    @property
    def origin(self) -> str:
        return f"resource:{self.location}"

    def resolve(self) -> list[SourceTree]:
        known = self.context.resource_paths
        if known is None:
            message = f"skill source {self.origin}: there is no job JAR here; it is read where the job runs"
            raise SourceError(message, source=self.origin)
        paths = self._paths()
        if not paths:
            near = near_misses(self.location.strip("/"), known)
            hint = f" (did you mean {near[0]!r}?)" if near else ""
            message = f"skill source {self.origin}: the job JAR has no such folder or file{hint}; add it to the jar"
            raise SourceError(message, source=self.origin)
        return [local_tree(path, self.spec, self.context, origin=self.origin) for path in paths]

    def _paths(self) -> list[str]:
        """Return the copies that the runtime made, one for each jar that has the resource."""
        wanted, known = self.location.strip("/"), self.context.resource_paths or {}
        return next((list(known[name]) for name in known if name.strip("/") == wanted), [])
