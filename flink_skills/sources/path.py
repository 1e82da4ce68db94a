"""Skills in a folder or an archive on this machine."""

# Paths are text here: they come from listings and descriptors by the thousand, where pathlib costs more than
# the calls themselves.
# ruff: noqa: PTH100, PTH111, PTH116, PTH117, PTH119, PTH120

from __future__ import annotations

import os
import stat

from flink_skills.errors import ConfigError, SourceError
from flink_skills.sources.base import SkillSource, SourceContext, SourceTree

__all__ = ["PathSource", "local_tree"]


class PathSource(SkillSource):
    """An absolute path of a folder, or of a zip, tar or tar.gz archive."""

    kind = "path"

    def __init__(self, location: str, context: SourceContext) -> None:
        super().__init__(location, context)
        if "\0" in location or not location:
            raise ConfigError(f"skill path {location!r}: cannot be a path; give an absolute one")
        if not os.path.isabs(location):
            absolute = os.path.abspath(os.path.expanduser(location))
            raise ConfigError(
                f"skill path {location!r} is relative, but a job has no current folder on its TaskManagers: "
                f"give {absolute!r}"
            )

    def resolve(self) -> list[SourceTree]:
        return [local_tree(self.location, self.location, self.context)]


def local_tree(path: str, origin: str, context: SourceContext) -> SourceTree:
    """The tree of a folder, or of an archive, which is extracted into the store."""
    try:
        mode = os.stat(path).st_mode
    except (FileNotFoundError, NotADirectoryError):
        mend = "create it, or check the path on every machine that runs the job"
        raise SourceError(f"skill source {origin}: does not exist; {mend}", source=origin) from None
    except OSError as error:
        raise SourceError(f"skill source {origin}: cannot be read: {error.strerror}", source=origin) from None
    if stat.S_ISDIR(mode):
        if not os.access(path, os.R_OK | os.X_OK):
            message = f"skill source {origin}: cannot be read: permission denied; allow reading it"
            raise SourceError(message, source=origin)
        return SourceTree(path, origin)
    if not stat.S_ISREG(mode):
        raise SourceError(f"skill source {origin}: is neither a folder nor a file; give one of them", source=origin)
    if os.path.basename(path).lower() == "skill.md":
        folder = os.path.dirname(path)
        message = f"skill source {origin}: is the file of one skill; give its folder, {folder!r}"
        raise SourceError(message, source=origin)
    return SourceTree(context.store.add_archive(path, origin), origin)
