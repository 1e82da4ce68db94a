"""A cgroup is used only if it is delegated, and only if the kernel does what its files promise."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from flink_skills.execution.cgroups import Place, open_folder

_FILES = {
    "cgroup.controllers": "cpu memory pids",
    "cgroup.type": "domain",
    "cgroup.procs": "",
    "cgroup.subtree_control": "",
    "cgroup.kill": "",
}


def cgroup(folder: Path, **files: str | None) -> Place:
    """A folder with the files of a cgroup and nothing behind them. ``None`` leaves a file out."""
    folder.mkdir()
    for name, text in {**_FILES, **{name.replace("_", "."): text for name, text in files.items()}}.items():
        if text is not None:
            (folder / name).write_text(text)
    return Place(folder, "/")


@pytest.mark.parametrize(
    ("files", "reason"),
    [
        ({"cgroup_controllers": "hugetlb pids"}, "does not have the controllers memory"),
        ({"cgroup_type": None}, "is the root cgroup of the machine"),
        ({"cgroup_type": "threaded"}, "is a threaded cgroup"),
        ({"cgroup_kill": None}, "needs Linux 5.14 or newer"),
        ({"cgroup_procs": "0\n"}, "has processes that the worker cannot see"),
    ],
)
def test_reasons(files: dict[str, str | None], reason: str, tmp_path: Path) -> None:
    folder, found = open_folder(cgroup(tmp_path / "pod", **files))
    assert folder is None
    assert reason in found


def test_processes_of_others_are_not_moved(tmp_path: Path) -> None:
    place = cgroup(tmp_path / "pod", cgroup_procs="1\n")._replace(path="/user.slice/pod")
    folder, found = open_folder(place)
    assert folder is None
    assert "has other processes" in found
    assert not list(place.folder.glob("flink-skills*"))


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_no_right_to_write(tmp_path: Path) -> None:
    place = cgroup(tmp_path / "pod")
    (place.folder / "cgroup.procs").chmod(0o444)
    assert "has no right to write" in open_folder(place)[1]


def test_a_folder_that_looks_like_a_cgroup_is_rejected(tmp_path: Path) -> None:
    """All its files can be written, and the kernel knows nothing of it."""
    place = cgroup(tmp_path / "pod")
    (place.folder / "cgroup.subtree_control").write_text("memory pids")
    folder, reason = open_folder(place)
    assert folder is None
    assert "flink-skills.worker." in reason
