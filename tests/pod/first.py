"""The first process of the pod: runs a command, ends with its exit code, and takes in orphans.

The pod ends with it. It ends when its input does, so a pod never outlives the tests that made it, however these end.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading

_LEFT_ALONE = 143  # like a process that was asked to end


def end_with_input() -> None:
    while os.read(0, 4096):
        pass
    os._exit(_LEFT_ALONE)


def main(command: list[str]) -> int:
    os.makedirs(os.environ["HOME"], mode=0o700, exist_ok=True)
    threading.Thread(target=end_with_input, daemon=True).start()
    child = subprocess.Popen(command, stdin=subprocess.DEVNULL)
    while True:
        pid, status = os.wait()  # orphans too, or they would fill the pod's limit of processes
        if pid == child.pid:
            code = os.waitstatus_to_exitcode(status)
            return code if code >= 0 else 128 - code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
