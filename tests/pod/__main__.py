"""``python -m tests.pod [--profile NAME] COMMAND…``: run a command in the emulated pod, with this Python on its PATH.

python -m tests.pod python -m pytest -p no:cacheprovider tests/execution/escape
"""

from __future__ import annotations

import argparse
import sys

from . import pod


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.pod", description="Run a command in an emulated pod.")
    parser.add_argument("--profile", choices=list(pod.PROFILES), default="kubernetes", help="the seccomp profile")
    parser.add_argument("--timeout", type=float, default=3600.0, help="seconds until the pod is ended")
    parser.add_argument("command", nargs=argparse.REMAINDER, metavar="COMMAND")
    options = parser.parse_args()
    if not options.command:
        parser.error("give the command, for example: sh -c 'grep Seccomp /proc/self/status'")
    if problem := pod.problem():
        print(problem, file=sys.stderr)
        return 1
    return pod.run(*options.command, profile_name=options.profile, timeout=options.timeout, show=True).exit_code


if __name__ == "__main__":
    sys.exit(main())
