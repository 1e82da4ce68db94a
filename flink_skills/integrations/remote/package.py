"""The archive that a sandbox runs: the program for sandboxes with the supervisor of the launcher."""

from __future__ import annotations

import functools
import hashlib
import io
import zipfile
from importlib import resources

__all__ = ["program"]

_INSIDE = "flink_skills.integrations.remote.inside"
_LAUNCHER = "flink_skills.execution.launcher"
_START = """import sys
if sys.version_info < (3, 10):
    sys.exit("Python 3.10 or later is needed, this is " + sys.version.split()[0])
from {inside}.main import main
main(sys.argv[1:])
"""
# Archives of the same modules are the same: a sandbox is asked by digest whether it has this one.
_DATE = (2020, 1, 1, 0, 0, 0)


@functools.cache
def program() -> tuple[str, bytes]:
    """The name of the archive, which changes with its content, and the archive."""
    files = {"__main__.py": _START.format(inside=_INSIDE).encode()}
    for package in (_INSIDE, _LAUNCHER):
        parts = package.split(".")
        for depth in range(1, len(parts) + 1):
            # Empty ones: the real ones load what no sandbox has.
            files["/".join([*parts[:depth], "__init__.py"])] = b""
        for module in resources.files(package).iterdir():
            if module.name.endswith(".py") and module.name != "__init__.py":
                files["/".join([*parts, module.name])] = module.read_bytes()
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in sorted(files.items()):
            archive.writestr(zipfile.ZipInfo(name, _DATE), content, zipfile.ZIP_DEFLATED)
    data = buffer.getvalue()
    return f"program-{hashlib.sha256(data).hexdigest()[:16]}", data
