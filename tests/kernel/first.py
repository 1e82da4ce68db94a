"""First process of the virtual machine: runs a command as root or as an unprivileged user, and turns the machine off.

It reads ``/results/machine.json``, and writes the exit code of the command to ``/results/exit_code``. It imports only
the standard library: the packages may be unreadable until it has opened the directories above them.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import termios
import traceback
import tty
from pathlib import Path
from typing import Any, NoReturn

_POWER_OFF = 0x4321FEDC
_CAPBSET_DROP, _SET_NO_NEW_PRIVS = 24, 38
_RESULTS = Path("/results")
_NAMESPACES = ("kernel/unprivileged_userns_clone", "user/max_user_namespaces")


def set_user_namespaces(allowed: bool) -> None:
    """Allow or deny user namespaces, by Debian's setting if the kernel has it, else by their maximum number."""
    for name in _NAMESPACES:
        path = Path("/proc/sys", name)
        if path.exists():
            if not allowed:
                path.write_text("0")
                return
            if int(path.read_text()) < 1:
                path.write_text("1" if name.startswith("kernel") else "10000")


def let_pass(folders: list[str]) -> None:
    """Make the directories above Python and the checkout accessible to all users. The host is not modified."""
    for folder in map(Path, folders):
        mode = folder.stat().st_mode
        if not mode & 0o001:
            folder.chmod(mode | 0o001)


def without_rights(uid: int) -> None:
    """Switch to a user without capabilities and without new privileges, as in a restricted pod."""
    libc = ctypes.CDLL(None, use_errno=True)
    for capability in range(64):
        if libc.prctl(_CAPBSET_DROP, capability, 0, 0, 0) != 0:
            break
    os.setgroups([])
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)
    if libc.prctl(_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "no new privileges")


def run(given: dict[str, Any], output: int) -> int:
    set_user_namespaces(given["user_namespaces"])
    let_pass(given["passable"])
    child = os.fork()
    if child == 0:
        become(given, output)
    while True:
        pid, status = os.wait()  # includes orphans
        if pid == child:
            code = os.waitstatus_to_exitcode(status)
            return code if code >= 0 else 128 - code


def become(given: dict[str, Any], output: int) -> NoReturn:
    """Replace this process with the command."""
    try:
        os.setsid()
        for descriptor, source in ((0, os.open(os.devnull, os.O_RDONLY)), (1, output), (2, output)):
            os.dup2(source, descriptor)
        os.chdir(given["cwd"])
        if given["uid"]:
            without_rights(given["uid"])
        os.execvpe(given["command"][0], given["command"], given["environment"])
    except BaseException:
        traceback.print_exc()
        os._exit(127)


def main() -> None:
    try:
        output = os.open("/dev/ttyS1", os.O_RDWR | os.O_NOCTTY)
        tty.setraw(output)
        code = run(json.loads((_RESULTS / "machine.json").read_text()), output)
        with contextlib.suppress(OSError):
            termios.tcdrain(output)
        (_RESULTS / "exit_code").write_text(str(code))
    except BaseException:
        (_RESULTS / "problem").write_text(traceback.format_exc())
    os.sync()
    ctypes.CDLL(None).reboot(_POWER_OFF)


if __name__ == "__main__":
    main()
