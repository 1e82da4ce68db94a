"""The view of a command is made by these mount operations, in this order.

Examines the internals of execution.backends.bwrap_view on purpose.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from flink_skills.execution import CommandRequest
from flink_skills.execution.backends.bwrap import Operation, View


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for name in ("work/inputs", "out", "tmp", "skills"):
        (tmp_path / name).mkdir(parents=True)
    return tmp_path


def operations(view: View, root: Path, *writable: str, readable: tuple[str, ...] = ()) -> list[Operation]:
    return view.operations(
        CommandRequest(
            ("true",),
            cwd="/",
            root=str(root),
            writable=tuple(str(root / name) for name in writable),
            readable=tuple(str(root / name) for name in readable),
        )
    )


def destinations(found: list[Operation], kind: str) -> list[str]:
    return [operation[-1] for operation in found if operation[0] == kind]


def test_links_are_made_and_what_they_lead_to_is_mounted(root: Path) -> None:
    (root / "first").symlink_to("second")
    (root / "second").symlink_to(root / "real")
    (root / "real" / "deep").mkdir(parents=True)
    found = operations(View((), (str(root / "first" / "deep"),)), root)
    assert ("--symlink", "second", str(root / "first")) in found
    assert ("--symlink", str(root / "real"), str(root / "second")) in found
    assert destinations(found, "--ro-bind") == [str(root / "real" / "deep")]


def test_links_that_go_round_and_paths_that_lead_nowhere_grant_nothing(root: Path) -> None:
    (root / "round").symlink_to("round")
    (root / "dangling").symlink_to("/no/such/place")
    view = View((), (str(root / "round"), str(root / "dangling"), "/no/such/path"))
    assert destinations(operations(view, root), "--ro-bind") == []


def test_a_link_upwards_leads_where_the_kernel_says(root: Path) -> None:
    (root / "skills" / "up").symlink_to("../out")
    found = operations(View((), ()), root, readable=("skills/up",))
    assert destinations(found, "--ro-bind") == [str(root / "out")]


def test_what_lies_in_something_granted_is_not_mounted_again(root: Path) -> None:
    (root / "skills" / "link").symlink_to("a")
    (root / "skills" / "a").mkdir()
    found = operations(View((str(root / "skills"),), (str(root / "skills" / "link"),)), root, readable=("skills/a",))
    assert destinations(found, "--ro-bind") == [str(root / "skills")]
    assert str(root / "skills" / "link") not in destinations(found, "--symlink")


def test_nothing_is_mounted_or_linked_where_a_command_may_write(root: Path) -> None:
    (root / "work" / "link").symlink_to("inputs")
    view = View((), (str(root / "work" / "link"),))
    found = operations(view, root, "work", "work/inputs", "tmp", readable=("work/inputs", "tmp"))
    assert destinations(found, "--bind") == [str(root / "tmp"), str(root / "work")]
    assert destinations(found, "--ro-bind") == []
    assert not any(path.startswith(str(root / "work")) for path in destinations(found, "--symlink"))


def test_a_folder_to_write_in_one_to_read_is_mounted_later(root: Path) -> None:
    found = operations(View((), (str(root),)), root, "work")
    mounts = [operation for operation in found if operation[0] in ("--bind", "--ro-bind")]
    assert mounts == [("--ro-bind", str(root), str(root)), ("--bind", *[str(root / "work")] * 2)]


def test_processes_and_devices_of_the_machine_are_not_granted(root: Path) -> None:
    found = operations(View(("/proc/meminfo", "/dev/shm", "/proc"), ("/dev",)), root)
    assert destinations(found, "--ro-bind") == []
    everything = operations(View((), ("/",)), root)
    assert destinations(everything, "--ro-bind") == ["/"]
    assert everything.index(("--tmpfs", "/dev")) > everything.index(("--ro-bind", "/", "/"))


def test_the_temporary_folder_is_the_workspaces_unless_something_is_made_in_it(tmp_path: Path) -> None:
    # A workspace that has nothing to do with /tmp.
    request = CommandRequest(("true",), cwd="/", root="/usr", writable=("/usr/tmp",))
    found = View((), ("/usr/lib",)).operations(request)
    assert ("--bind", "/usr/tmp", "/tmp") in found
    if tmp_path.is_relative_to("/tmp"):
        deep = tmp_path / "deep"
        deep.mkdir()
        found = View((), (str(deep),)).operations(request)
        assert destinations(found, "--bind") == []
        way = f"/tmp/{tmp_path.parts[2]}"
        assert [operation[-1] for operation in found if "--tmpfs" in operation] == ["/tmp", way, "/dev/shm"]
        assert found.index(("--remount-ro", way)) > found.index(("--ro-bind", str(deep), str(deep)))


def test_what_is_made_for_the_view_is_closed_at_the_end(root: Path) -> None:
    assert operations(View((), ()), root, "work")[-1] == ("--remount-ro", "/")


def test_small_settings_are_copied_and_programs_mounted(root: Path) -> None:
    found = operations(View(("/etc/passwd", "/usr/bin"), ()), root)
    assert ("--perms", "0444", "--file", "/etc/passwd", "/etc/passwd") in found
    assert destinations(found, "--ro-bind") == ["/usr/bin"]


def test_tmp_lasts_if_it_is_the_folder_of_the_workspace(root: Path) -> None:
    def request(root: str) -> CommandRequest:
        return CommandRequest(("true",), cwd="/", root=root, writable=(f"{root}/tmp",))

    assert View(("/usr",), ()).temporary_folders(request("/data/ws_1")) == ("/dev/shm",)
    assert View(("/usr",), (str(root),)).temporary_folders(request(str(root))) == ("/tmp", "/dev/shm")
