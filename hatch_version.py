"""The version of this checkout or sdist, from its repository."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

#: The next release. Its commit has the tag ``v`` and this number.
RELEASE = "0.1.0"
ROOT = Path(__file__).resolve().parent


def version_of(release: str, root: Path = ROOT) -> str:
    """Return the version of the files in ``root``.

    It is ``release`` for the tagged commit, and ``0.1.0.dev12+g1a2b3c4`` for the twelfth commit since the release
    before. Changed files add ``.dirty``. An sdist has the version with which it was made. ``FLINK_SKILLS_VERSION``
    states it for files without their repository, such as those of an image.
    """
    given = os.environ.get("FLINK_SKILLS_VERSION")
    if given:
        return given
    made = root / "PKG-INFO"
    if made.is_file():
        return re.findall(r"^Version: (\S+)$", made.read_text(encoding="utf-8"), re.MULTILINE)[0]
    described = _git(root, "describe", "--tags", "--long", "--match", "v*", "--always", "--dirty=.dirty", "--abbrev=8")
    # The files may lie in the repository of another project.
    if described is None or not (root / ".git").exists():
        return f"{release}.dev0"
    tagged = re.fullmatch(r"v(.+)-(\d+)-g([0-9a-f]+(?:\.dirty)?)", described)
    if tagged is None:
        return f"{release}.dev{_git(root, 'rev-list', '--count', 'HEAD')}+g{described}"
    if tagged[2] == "0" and tagged[1] == release and not described.endswith(".dirty"):
        return release
    return f"{release}.dev{tagged[2]}+g{tagged[3]}"


def _git(root: Path, *words: str) -> str | None:
    try:
        done = subprocess.run(["git", "-C", root, *words], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return done.stdout.strip()
