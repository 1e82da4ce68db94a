"""The cgroup of a worker is found where the kernel shows it."""

from __future__ import annotations

from pathlib import Path

import pytest

from flink_skills.execution.cgroups import NotDelegatedError, Place, own_place

_MOUNT = "41 31 0:38 {root} {mounted} rw,relatime shared:4 - cgroup2 cgroup2 rw\n"
_OTHER = "30 23 0:26 / / rw,relatime - ext4 /dev/vda rw\n"


def place(tmp_path: Path, groups: str, *mounts: tuple[str, str]) -> Place:
    (tmp_path / "cgroup").write_text(groups)
    lines = [_MOUNT.format(root=root, mounted=mounted) for root, mounted in mounts]
    (tmp_path / "mountinfo").write_text(_OTHER + "".join(lines))
    return own_place(tmp_path)


@pytest.mark.parametrize(
    ("groups", "mount", "found"),
    [
        ("0::/\n", ("/", "/sys/fs/cgroup"), Place(Path("/sys/fs/cgroup"), "/")),
        ("5:pids:/a\n0::/b/c\n", ("/", "/sys/fs/cgroup"), Place(Path("/sys/fs/cgroup/b/c"), "/b/c")),
        ("0::/b/c\n", ("/b", "/mnt/a\\040b"), Place(Path("/mnt/a b/c"), "/b/c")),
    ],
    ids=["container", "below", "part of the tree"],
)
def test_own_cgroup(groups: str, mount: tuple[str, str], found: Place, tmp_path: Path) -> None:
    assert place(tmp_path, groups, mount) == found


@pytest.mark.parametrize(
    ("groups", "mounts", "reason"),
    [
        ("5:pids:/a\n", [("/", "/sys/fs/cgroup")], "no cgroup v2"),
        ("0::/\n", [], "no cgroup v2"),
        ("0::/../x\n", [("/", "/sys/fs/cgroup")], "outside the mounted"),
        ("0::/\n", [("/..", "/sys/fs/cgroup")], "outside the mounted"),
        ("0::/a\n", [("/b", "/sys/fs/cgroup")], "outside the mounted"),
    ],
)
def test_no_visible_cgroup(groups: str, mounts: list[tuple[str, str]], reason: str, tmp_path: Path) -> None:
    with pytest.raises(NotDelegatedError, match=reason):
        place(tmp_path, groups, *mounts)


def test_no_proc(tmp_path: Path) -> None:
    with pytest.raises(NotDelegatedError, match="cannot be read"):
        own_place(tmp_path)
