"""Skills inside the job's jars, read on the client: the same lookup as on the TaskManager, for checks at submit.

The Java side is ``org.flinkskills.bridge.plan.JobResources``; both must change together.
"""

from __future__ import annotations

import contextlib
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO

from flink_skills.errors import SourceError
from flink_skills.options import SkillOptions
from flink_skills.skill import Limits

_BLOCK = 1 << 16
Content = Callable[[], IO[bytes]]


@contextlib.contextmanager
def client_resources(
    places: Sequence[Path], names: Sequence[str], limits: Limits | None = None
) -> Iterator[Mapping[str, list[str]]]:
    """Copy the folders (as zips) and files of these resource names from ``places`` while the context lasts.

    ``places`` are the jars and folders of the class path in its order. A name that none of them has is left out.
    Raises :class:`SourceError` for a jar that cannot be read or passes a limit.
    """
    if not names:
        yield {}
        return
    with tempfile.TemporaryDirectory(prefix="flink-skills-resources-") as scratch:
        found: dict[str, list[str]] = {}
        for number, name in enumerate(names):
            for place in dict.fromkeys(path.resolve() for path in places if path.exists()):
                target = Path(scratch) / f"{number}-{len(found.get(name, ()))}"
                copy = _Copier(name, place, limits or Limits()).copy_to(target)
                if copy is not None:
                    found.setdefault(name, []).append(str(copy))
        yield found


class _Copier:
    """Copies one resource out of one jar or folder of the class path."""

    def __init__(self, name: str, place: Path, limits: Limits) -> None:
        self._name, self._place, self._limits = name, place, limits
        self._wanted = name.rstrip("/")
        self._last_part = self._wanted.rpartition("/")[2]
        self._files: dict[str, Content] = {}
        self._total = 0

    def copy_to(self, folder: Path) -> Path | None:
        """Return the copy below ``folder``. Return None if this jar or folder does not have the resource."""
        if self._place.is_dir():
            return self._from_folder(folder)
        try:
            jar = zipfile.ZipFile(self._place)
        except (OSError, zipfile.BadZipFile):
            # Not every file on a class path is an archive.
            return None
        with jar:
            try:
                return self._from_jar(jar, folder)
            except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError) as error:
                raise self._refused(f"the archive is damaged: {error}") from error

    def _from_folder(self, folder: Path) -> Path | None:
        source = self._place / self._wanted
        if source.is_file():
            return self._copy_file(lambda: source.open("rb"), folder)
        if not source.is_dir():
            return None
        for path in source.rglob("*"):
            if path.is_file():
                self._add(path.relative_to(source).as_posix(), _opener(path))
        return self._write_zip(folder)

    def _from_jar(self, jar: zipfile.ZipFile, folder: Path) -> Path | None:
        prefix = f"{self._wanted}/"
        for info in jar.infolist():
            if info.filename == self._wanted:
                return self._copy_file(_entry_opener(jar, info), folder)
        for info in jar.infolist():
            if info.filename.startswith(prefix) and not info.is_dir():
                self._add(info.filename.removeprefix(prefix), _entry_opener(jar, info))
        return self._write_zip(folder)

    def _add(self, relative: str, content: Content) -> None:
        name = f"{self._last_part}/{relative}"
        if name in self._files:
            raise self._refused(f"the entry {relative!r} occurs twice")
        self._files[name] = content
        if len(self._files) > self._limits.entries:
            raise self._refused(
                f"the resource has more than {self._limits.entries} files ({SkillOptions.LIMIT_ENTRIES.key})"
            )

    def _copy_file(self, content: Content, folder: Path) -> Path:
        folder.mkdir(parents=True)
        copy = folder / self._last_part
        with copy.open("wb") as out:
            self._copy_bounded(content, out)
        return copy

    def _write_zip(self, folder: Path) -> Path | None:
        if not self._files:
            return None
        folder.mkdir(parents=True)
        copy = folder / f"{self._last_part}.zip"
        with zipfile.ZipFile(copy, "w", zipfile.ZIP_STORED) as archive:
            for name, content in sorted(self._files.items()):
                with archive.open(zipfile.ZipInfo(name), "w") as out:
                    self._copy_bounded(content, out)
        return copy

    def _copy_bounded(self, content: Content, out: IO[bytes]) -> None:
        """Copy one file within the limits. The size in the entry of an archive is not trusted."""
        size = 0
        with content() as source:
            while data := source.read(_BLOCK):
                size += len(data)
                self._total += len(data)
                if size > self._limits.file:
                    raise self._refused(
                        f"a file has more than {self._limits.file} bytes ({SkillOptions.LIMIT_FILE.key})"
                    )
                if self._total > self._limits.total:
                    raise self._refused(
                        f"the files have more than {self._limits.total} bytes ({SkillOptions.LIMIT_TOTAL.key})"
                    )
                out.write(data)

    def _refused(self, problem: str) -> SourceError:
        return SourceError(
            f"skill resource {self._name!r}: reading {self._place} failed: {problem}", source=f"resource:{self._name}"
        )


def _opener(path: Path) -> Content:
    return lambda: path.open("rb")


def _entry_opener(jar: zipfile.ZipFile, info: zipfile.ZipInfo) -> Content:
    return lambda: jar.open(info)
