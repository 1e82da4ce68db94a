"""Cuts a recorded log to what is needed and takes the names of the recording machine out of it."""

from __future__ import annotations

import re
import socket
from collections.abc import Mapping
from pathlib import Path

MAX_LINES = 400
MAX_BYTES = 60_000

# Everything before the first of these is the banner: class path, environment, options of the machine.
_BANNER_END = re.compile(r"Received (?:application|job|JobGraph) submission|Receive slot request|Traceback")
# What follows the end of the recording is the recorder's own doing.
_END = "RECEIVED SIGNAL 15: SIGTERM"
# Start-up chatter of every healthy process, and lines that only repeat what the next one says.
_NOISE = re.compile(
    r"PekkoRpcService +\[\]|Loading configuration property|^WARNING: |SLF4J|delegation token|tokens update"
    r"|No tokens obtained|LeadershipRunner|AbstractStreamOperator +\[\]|StateBackendLoader|BlobClient"
)


def replacements(scratch: Path, classes: Path, project: Path, python: Path) -> dict[str, str]:
    """What stands for what, the longest first, so that a folder is replaced before its parent."""
    pairs = {
        str(scratch): "/opt/flink-work",
        str(classes): "/opt/jobs",
        str(project): "/opt/jobs",
        str(python.parent.parent): "/opt/venv",
        str(python.resolve().parent.parent): "/usr",
    }
    return dict(sorted(pairs.items(), key=lambda pair: -len(pair[0])))


def neutral(text: str, names: Mapping[str, str]) -> str:
    """`text` without the names of the machine: `names` of paths, and its host name as a whole word."""
    for name, neutral_name in names.items():
        text = text.replace(name, neutral_name)
    return re.sub(rf"(?<![\w.]){re.escape(socket.gethostname())}(?![\w])", "node-1", text)


def cut(text: str) -> str:
    """`text` from the first line about a job, without noise, up to `MAX_LINES` and `MAX_BYTES`."""
    lines = text.splitlines()
    first = next((n for n, line in enumerate(lines) if _BANNER_END.search(line)), 0)
    kept: list[str] = []
    size = 0
    for line in (line.rstrip() for line in lines[first:] if not _NOISE.search(line)):
        size += len(line.encode()) + 1
        if len(kept) == MAX_LINES or size > MAX_BYTES or _END in line:
            break
        kept.append(line)
    return "\n".join(kept) + "\n"
