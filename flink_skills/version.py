"""The release and commit of this package, and whether another build fits it."""

from __future__ import annotations

import importlib
import importlib.metadata

__all__ = ["__version__", "mismatch"]


def _version() -> str:
    try:
        # The build of a wheel writes it. Files on the path can come before an installed package of another version.
        return str(importlib.import_module("flink_skills._version").VERSION)
    except ModuleNotFoundError:
        try:
            return importlib.metadata.version("flink-skills")
        except importlib.metadata.PackageNotFoundError:
            return "0.dev0"


#: A release such as ``0.1.0``, or a commit between releases such as ``0.1.0.dev12+g1a2b3c4``.
__version__ = _version()


def mismatch(other: object, own: str = __version__) -> bool:
    """Return true if a job of the version ``other`` must not run with the version ``own``.

    The part behind ``+`` names a commit or the build of a distributor, and makes no difference.

    >>> mismatch("0.1.0+vendor.2", "0.1.0"), mismatch("0.1.0", "0.1.1"), mismatch(None, "0.1.0")
    (False, True, True)
    """
    return not isinstance(other, str) or other.partition("+")[0] != own.partition("+")[0]
