"""``python -m tests.kernel [--user] [--no-namespaces] COMMAND…``: run a command on another kernel, with this Python.

KERNEL=linux-image.deb python -m tests.kernel --user flink-skills doctor
"""

from __future__ import annotations

import argparse
import sys

from . import machine
from .packages import KernelError


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.kernel", description="Run a command on the kernel that KERNEL names."
    )
    parser.add_argument("--user", action="store_true", help=f"run as user {machine.USER} without capabilities")
    parser.add_argument("--no-namespaces", action="store_true", help="deny user namespaces to unprivileged users")
    parser.add_argument("--timeout", type=float, default=7200.0, help="seconds until the machine is terminated")
    parser.add_argument("command", nargs=argparse.REMAINDER, metavar="COMMAND")
    options = parser.parse_args()
    if not options.command:
        parser.error("give the command, for example: uname -a")
    if problem := machine.problem():
        print(problem, file=sys.stderr)
        return 1
    setting = machine.Setting(machine.USER if options.user else 0, not options.no_namespaces)
    try:
        return machine.run(*options.command, setting=setting, timeout=options.timeout, show=True).exit_code
    except (KernelError, machine.MachineError) as error:
        print(error, file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
