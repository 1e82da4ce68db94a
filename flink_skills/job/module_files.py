"""Modules next to a job file, which travel to a cluster with the job."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

__all__ = ["copy_modules"]

_OWN = __name__.partition(".")[0]


def copy_modules(source: Path, target: Path) -> bool:
    """Copy the imported modules and packages of the folder ``source`` to ``target``.

    Return False, and create no folder, if there are none. Modules that nothing has imported are not copied.
    """
    paths = _imported_from(source)
    if paths:
        target.mkdir()
    for path in paths:
        if path.is_dir():
            shutil.copytree(path, target / path.name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy2(path, target)
    return bool(paths)


def _imported_from(source: Path) -> list[Path]:
    """Return the files and the folders of packages directly below ``source`` that hold imported modules."""
    folder, found = source.resolve(), []
    for name, module in list(sys.modules.items()):
        spec = getattr(module, "__spec__", None)
        if "." in name or name in (_OWN, "__main__") or spec is None:
            continue
        places = [Path(place) for place in spec.submodule_search_locations or ()]
        if not places and spec.has_location and spec.origin is not None:
            places = [Path(spec.origin)]
        # The files of a mounted ConfigMap are links to another folder.
        found += [place for place in places if place.parent.resolve() == folder]
    return sorted(set(found))
