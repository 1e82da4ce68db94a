"""Rows 1 to 11: files outside the workspace."""

# Attempts are system calls: what a library does around them would be in the way.
from __future__ import annotations

import ctypes
import fcntl
import os
import struct

from tests.execution.escape.probes.kit import UPPER_BITS, Target, attempt, syscall

LAUNCHER = os.getppid()

FILES = "NLP"  # levels that close files


def _read(path: str) -> str:
    with open(path, encoding="utf-8", errors="replace") as file:
        return file.read(4096)


def _finds(text: str, path: str) -> str:
    found = _read(path)
    return found if text in found else ""


@attempt(1, FILES)
def read_canary(target: Target) -> object:
    return _finds(target.canary_text, target.canary)


@attempt(1, FILES)
def read_token(target: Target) -> object:
    return _finds(target.canary_text, target.token)


@attempt(1, "NLPH", needs=("root",))
def read_shadow(target: Target) -> object:
    return _read("/etc/shadow")


@attempt(1, FILES, needs=("/etc/hostname",))
def read_an_entry_of_etc_that_is_not_granted(target: Target) -> object:
    return _read("/etc/hostname")


@attempt(1, FILES, needs=("/var/lib/dpkg/status",))
def read_below_var(target: Target) -> object:
    return _read("/var/lib/dpkg/status")


@attempt(1, FILES)
def list_outside(target: Target) -> object:
    return os.listdir(target.outside)


@attempt(1, FILES)
def run_a_program_from_outside(target: Target) -> object:
    program = target.files["run_a_program_from_outside"]
    child = os.fork()
    if child == 0:
        try:
            os.execv(program, [program])
        except OSError:
            os._exit(99)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


@attempt(2, FILES)
def read_other_workspace(target: Target) -> object:
    return _finds(target.other_text, target.other_file)


@attempt(2, FILES)
def list_other_workspace(target: Target) -> object:
    return os.listdir(target.other_work)


@attempt(2, FILES, of_worker=True)
def list_all_workspaces(target: Target) -> object:
    # The name of another's folder is what the listing would give away.
    names = os.listdir(os.path.dirname(target.workspace))
    return len(names) > 1 and names


@attempt(2, FILES)
def write_other_workspace(target: Target) -> object:
    with open(os.path.join(target.other_work, "planted"), "w") as file:
        return file.write("x")


@attempt(3, FILES)
def traverse_upwards(target: Target) -> object:
    os.chdir(target.work)
    return _finds(target.canary_text, os.path.relpath(target.canary, os.path.realpath(target.work)))


@attempt(3, FILES)
def traverse_by_descriptor(target: Target) -> object:
    folder = os.open(target.work, os.O_PATH)
    relative = os.path.relpath(target.canary, os.path.realpath(target.work))
    return os.read(os.open(relative, os.O_RDONLY, dir_fd=folder), 100)


@attempt(3, FILES)
def change_folder_out(target: Target) -> object:
    os.chdir(target.outside)
    return _finds(target.canary_text, os.path.basename(target.canary))


def _link_to(target: Target, name: str, to: str) -> str:
    link = os.path.join(target.work, name)
    os.symlink(to, link)
    return link


@attempt(4, FILES)
def read_through_a_link(target: Target) -> object:
    return _finds(target.canary_text, _link_to(target, "link-r", target.canary))


@attempt(4, FILES)
def read_through_a_link_to_a_folder(target: Target) -> object:
    link = _link_to(target, "link-d", target.outside)
    return _finds(target.canary_text, os.path.join(link, os.path.basename(target.canary)))


@attempt(4, FILES, proof="changed")
def write_through_a_link(target: Target) -> object:
    with open(_link_to(target, "link-w", target.files["write_through_a_link"]), "a") as file:
        return file.write("x")


@attempt(4, FILES, proof="made")
def create_through_a_link(target: Target) -> object:
    with open(_link_to(target, "link-c", target.new["create_through_a_link"]), "w") as file:
        return file.write("x")


@attempt(5, FILES)
def link_a_file_in(target: Target) -> object:
    inside = os.path.join(target.work, "hard")
    os.link(target.canary, inside)
    return _finds(target.canary_text, inside)


@attempt(5, FILES, proof="changed")
def move_a_file_in(target: Target) -> object:
    os.rename(target.files["move_a_file_in"], os.path.join(target.work, "moved"))
    return True


@attempt(5, FILES, proof="made")
def move_a_file_out(target: Target) -> object:
    inside = os.path.join(target.work, "leaving")
    with open(inside, "w") as file:
        file.write("x")
    os.rename(inside, target.new["move_a_file_out"])
    return True


@attempt(5, FILES, proof="made")
def link_a_file_out(target: Target) -> object:
    inside = os.path.join(target.work, "linked")
    with open(inside, "w") as file:
        file.write("x")
    os.link(inside, target.new["link_a_file_out"])
    return True


@attempt(6, FILES)
def read_below_own_root(target: Target) -> object:
    return _finds(target.canary_text, "/proc/self/root" + target.canary)


@attempt(6, FILES, of_worker=True)
def read_below_the_root_of_the_worker(target: Target) -> object:
    return _finds(target.canary_text, f"/proc/{target.worker}/root{target.canary}")


@attempt(6, FILES, of_worker=True)
def read_below_the_folder_of_the_worker(target: Target) -> object:
    return _finds(target.canary_text, f"/proc/{target.worker}/cwd/{os.path.basename(target.canary)}")


@attempt(6, FILES, of_worker=True)
def read_a_descriptor_of_the_worker(target: Target) -> object:
    return _finds(target.canary_text, f"/proc/{target.worker}/fd/{target.worker_fd}")


@attempt(6, FILES, of_worker=True)
def read_below_the_root_of_the_launcher(target: Target) -> object:
    if LAUNCHER <= 1:
        return False
    return _finds(target.canary_text, f"/proc/{LAUNCHER}/root{target.canary}")


@attempt(7, FILES, proof="made")
def create_outside(target: Target) -> object:
    with open(target.new["create_outside"], "w") as file:
        return file.write("x")


@attempt(7, FILES, proof="made")
def make_a_folder_outside(target: Target) -> object:
    os.mkdir(target.new["make_a_folder_outside"])
    return True


@attempt(7, FILES, proof="made")
def make_a_link_outside(target: Target) -> object:
    os.symlink("/", target.new["make_a_link_outside"])
    return True


@attempt(7, FILES, proof="made")
def make_a_fifo_outside(target: Target) -> object:
    os.mkfifo(target.new["make_a_fifo_outside"])
    return True


@attempt(7, FILES, proof="changed")
def append_outside(target: Target) -> object:
    with open(target.files["append_outside"], "a") as file:
        return file.write("x")


@attempt(7, FILES, proof="changed")
def unlink_outside(target: Target) -> object:
    os.unlink(target.files["unlink_outside"])
    return True


@attempt(7, FILES, proof="changed")
def append_to_bashrc(target: Target) -> object:
    with open(target.files["append_to_bashrc"], "a") as file:
        return file.write("x")


@attempt(7, FILES, proof="made")
def make_a_profile(target: Target) -> object:
    with open(target.new["make_a_profile"], "w") as file:
        return file.write("x")


@attempt(7, FILES, proof="made")
def make_an_ssh_key(target: Target) -> object:
    with open(target.new["make_an_ssh_key"], "w") as file:
        return file.write("x")


@attempt(8, FILES, proof="changed")
def truncate_by_path(target: Target) -> object:
    os.truncate(target.files["truncate_by_path"], 0)
    return True


@attempt(8, FILES, proof="changed")
def truncate_by_opening(target: Target) -> object:
    os.open(target.files["truncate_by_opening"], os.O_WRONLY | os.O_TRUNC)
    return True


@attempt(8, FILES, proof="changed")
def truncate_by_opening_to_read(target: Target) -> object:
    os.open(target.files["truncate_by_opening_to_read"], os.O_RDONLY | os.O_TRUNC)
    return True


@attempt(8, FILES, proof="changed")
def truncate_by_opening_for_nothing(target: Target) -> object:
    # A mode that allows neither to read nor to write.
    os.open(target.files["truncate_by_opening_for_nothing"], os.O_ACCMODE | os.O_TRUNC)
    return True


@attempt(8, FILES, proof="changed")
def truncate_by_creating_to_read(target: Target) -> object:
    os.open(target.files["truncate_by_creating_to_read"], os.O_RDONLY | os.O_CREAT | os.O_TRUNC)
    return True


@attempt(8, FILES, proof="changed")
def truncate_with_upper_bits(target: Target) -> object:
    path = target.files["truncate_with_upper_bits"].encode()
    return syscall("openat", -100, path, os.O_RDONLY | os.O_TRUNC | UPPER_BITS, 0) >= 0


@attempt(8, FILES, needs=("openat2",), proof="changed")
def truncate_by_openat2(target: Target) -> object:
    path = target.files["truncate_by_openat2"].encode()
    return syscall("openat2", -100, path, struct.pack("=3Q", os.O_RDONLY | os.O_TRUNC, 0, 0), 24) >= 0


@attempt(9, "N", proof="changed")
def change_mode(target: Target) -> object:
    os.chmod(target.files["change_mode"], 0o644)
    return True


@attempt(9, "N", proof="changed")
def change_times(target: Target) -> object:
    os.utime(target.files["change_times"], (1, 1))
    return True


@attempt(9, "NLPH", needs=("xattr",), proof="changed")
def set_an_attribute(target: Target) -> object:
    os.setxattr(target.files["set_an_attribute"], "user.planted", b"x")
    return True


@attempt(9, "N", proof="changed")
def change_owner(target: Target) -> object:
    os.chown(target.files["change_owner"], os.getuid(), os.getgid())
    return True


@attempt(10, "N")
def read_metadata(target: Target) -> object:
    return os.stat(target.canary).st_size


@attempt(10, "N")
def tell_what_exists(target: Target) -> object:
    return os.access(target.canary, os.F_OK)


@attempt(10, "N")
def read_a_link(target: Target) -> object:
    return os.readlink(target.paths["link"])


@attempt(10, "NLPH")
def watch_names(target: Target) -> object:
    libc = ctypes.CDLL(None, use_errno=True)
    watcher = libc.inotify_init()
    if libc.inotify_add_watch(watcher, target.outside.encode(), 0x100) < 0:  # IN_CREATE
        raise OSError(ctypes.get_errno(), "inotify_add_watch")
    return True


@attempt(10, "NLPH")
def watch_names_with_upper_bits(target: Target) -> object:
    folder = os.open(target.outside, os.O_RDONLY)
    return syscall("fcntl", folder, fcntl.F_NOTIFY | UPPER_BITS, fcntl.DN_CREATE) == 0


@attempt(11, FILES, proof="made")
def write_to_tmp(target: Target) -> object:
    with open(target.new["write_to_tmp"], "w") as file:
        return file.write("x")


@attempt(11, FILES, needs=("shared-memory-folder",), proof="made")
def write_to_shared_memory(target: Target) -> object:
    with open(target.new["write_to_shared_memory"], "w") as file:
        return file.write("x")
