"""Skills inside the job's jars, read on the client: the same lookup as on the TaskManager, for checks at submit."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath

__all__ = ["client_resources"]


@contextlib.contextmanager
def client_resources(jars: Sequence[Path], names: Sequence[str]) -> Iterator[Mapping[str, list[str]]]:
    """Folders and zips of these resource names, copied out of the jars while the context lasts.

    A name that no jar has is left out.
    """
    if not names:
        yield {}
        return
    with tempfile.TemporaryDirectory(prefix="flink-skills-resources-") as scratch:
        found: dict[str, list[str]] = {}
        for number, jar in enumerate(jars):
            for name in names:
                path = _copy(jar, name.strip("/"), Path(scratch) / f"{number}-{len(found)}")
                if path is not None:
                    found.setdefault(name, []).append(str(path))
        yield found


def _copy(jar: Path, name: str, target: Path) -> Path | None:
    try:
        archive = zipfile.ZipFile(jar)
    except (OSError, zipfile.BadZipFile):
        return None
    with archive:
        files = [
            info
            for info in archive.infolist()
            if not info.is_dir() and (info.filename == name or info.filename.startswith(name + "/"))
        ]
        for info in files:
            relative = PurePosixPath(info.filename)
            if ".." in relative.parts or "\\" in info.filename:
                continue
            place = target / relative
            place.parent.mkdir(parents=True, exist_ok=True)
            with archive.open(info) as source, place.open("wb") as copy:
                shutil.copyfileobj(source, copy)
    return target / name if files else None
