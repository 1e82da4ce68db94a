# What paths are, and which call is made on them, is the point here.
"""Try to reach paths in every way, and print as one line of JSON what was reached and how often that failed.

``read PATH ...`` reads files and lists folders. ``harm PATH ...`` writes, truncates, moves and removes.
"""

from __future__ import annotations

import errno
import json
import os
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from typing import Any

MAX_NAMES = 64  # there is a limit to what a command may say
WORK = os.environ["WORK_DIR"]
reached: list[dict[str, Any]] = []
stopped: Counter[str] = Counter()


def attempt(path: str, way: str, action: Callable[[], object]) -> None:
    os.chdir(WORK)
    try:
        found = action()
    except OSError as error:
        stopped[errno.errorcode.get(error.errno or 0, "?")] += 1
        return
    reached.append({"path": path, "way": way, **(found if isinstance(found, dict) else {})})


def listing(folder: str, known_as: str) -> dict[str, object]:
    return {"folder": known_as, "names": os.listdir(folder)[:MAX_NAMES]}


def content(path: str, known_as: str) -> dict[str, object]:
    if os.path.isdir(path):
        return listing(path, known_as)
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    try:
        return {"text": os.read(descriptor, 65_536).decode("utf-8", "replace")[:500]}
    finally:
        os.close(descriptor)


def through(make: Callable[..., object], path: str) -> dict[str, object]:
    own = os.path.join(tempfile.mkdtemp(dir=WORK), "own")
    make(path, own)
    return content(own, path)


def held(path: str) -> dict[str, object]:
    """Through a descriptor that grants nothing by itself."""
    descriptor = os.open(path, os.O_PATH)
    try:
        return content(f"/proc/self/fd/{descriptor}", path)
    finally:
        os.close(descriptor)


def go_there(path: str) -> dict[str, object]:
    os.chdir(path)
    return listing(".", path)


def read(path: str) -> None:
    above = os.path.dirname(path)
    attempt(path, "open", lambda: content(path, path))
    attempt(path, "link", lambda: through(os.symlink, path))
    attempt(path, "hard link", lambda: through(os.link, path))
    attempt(path, "copy", lambda: through(shutil.copyfile, path))
    attempt(path, "root", lambda: content("/proc/self/root" + path, path))
    attempt(path, "held", lambda: held(path))
    attempt(path, "relative", lambda: content(os.path.relpath(path, WORK), path))
    attempt(path, "folder", lambda: listing(above, above))
    attempt(path, "go there", lambda: go_there(path))


def create(path: str) -> None:
    name = os.path.join(path if os.path.isdir(path) else os.path.dirname(path), "intruder")
    os.close(os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL))


def append(path: str) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND)
    try:
        os.write(descriptor, b"intruder\n")
    finally:
        os.close(descriptor)


def harm(path: str) -> None:
    with open(os.path.join(WORK, "bait"), "w") as file:
        file.write("bait")
    attempt(path, "append", lambda: append(path))
    attempt(path, "create", lambda: create(path))
    attempt(path, "truncate", lambda: os.truncate(path, 0))
    attempt(path, "move away", lambda: os.rename(path, os.path.join(WORK, "stolen")))
    attempt(path, "move over", lambda: os.replace(os.path.join(WORK, "bait"), path))
    attempt(path, "remove", lambda: os.rmdir(path) if os.path.isdir(path) else os.unlink(path))


if __name__ == "__main__":
    for target in sys.argv[2:]:
        {"read": read, "harm": harm}[sys.argv[1]](target)
    print("pried=" + json.dumps({"reached": reached, "stopped": stopped, "environment": dict(os.environ)}))
