"""Skills in the job JAR, which the runtime has copied to local files already."""

from __future__ import annotations

from flink_skills.errors import ConfigError, SourceError, near_misses
from flink_skills.skill.skill_paths import name_problem
from flink_skills.sources.base import SkillSource, SourceContext, SourceTree
from flink_skills.sources.path import check_pinned_folder, local_tree
from flink_skills.sources.spec import SourceSpec

__all__ = ["ResourceSource"]


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
        """Where the runtime has put it: one place for each jar that has it."""
        wanted, known = self.location.strip("/"), self.context.resource_paths or {}
        return next((list(known[name]) for name in known if name.strip("/") == wanted), [])
