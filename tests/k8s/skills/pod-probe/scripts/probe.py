"""Tries to get at what belongs to the pod and not to a skill; prints how each attempt ended, as JSON.

Standard input is the event, whose second line is JSON: ``files`` to read, ``folders`` to list and to write into,
``addresses`` to connect to, and ``variable``, the name of a secret that must not be seen.
"""

import errno
import json
import os
import socket
import sys
import tempfile
from pathlib import Path


def outcome(action):
    try:
        found = action()
    except OSError as error:
        return errno.errorcode.get(error.errno or 0, type(error).__name__)
    return f"done: {found}"


def read(path):
    return f"{len(Path(path).read_bytes())} bytes"


def write(folder):
    Path(folder, "planted").write_text("planted")
    return "written"


def connect(address):
    host, _, port = address.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=3):
        return "connected"


def environments(variable):
    """Processes in whose environment the variable can be seen, this one among them."""
    seen = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            content = path.read_bytes()
        except OSError:
            continue
        if f"{variable}=".encode() in content:
            seen.append(str(path))
    return seen


event = json.load(sys.stdin)
asked = json.loads(event["lines"][1])
result = {
    "read": {path: outcome(lambda path=path: read(path)) for path in asked["files"]},
    "list": {path: outcome(lambda path=path: len(list(Path(path).iterdir()))) for path in asked["folders"]},
    "write": {path: outcome(lambda path=path: write(path)) for path in asked["folders"]},
    "connect": {address: outcome(lambda address=address: connect(address)) for address in asked["addresses"]},
    "environments": environments(asked["variable"]),
    "uid": os.getuid(),
    # The control: what a command may do, so that a refusal above says something.
    "own": outcome(lambda: write(tempfile.mkdtemp())),
}
print(json.dumps(result))
