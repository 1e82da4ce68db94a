"""An order as it lies in a sandbox: its files, its command, its result."""

from __future__ import annotations

import contextlib
import glob
import io
import json
import os
import posixpath
from typing import Any

from flink_skills.execution.launcher.process_tree import stat_fields
from flink_skills.integrations.remote.inside.command import order_of, run_order
from flink_skills.integrations.remote.inside.folder_streams import (
    Entry,
    FolderWriter,
    entries_of,
    pack,
    read_header,
    scan,
)
from flink_skills.integrations.remote.inside.paths import PathMap, inside

# Below the folder that the sandbox's runtime works in.
PLACE = ".flink-skills"


class StoredOrder:
    """The files of one order by its id: parts, process id, result, and what goes back."""

    def __init__(self, name: str) -> None:
        self._stem = os.path.join(PLACE, os.path.basename(name))
        # Next to the folder: the runtime does not create folders for uploads, and a restarted container has none.
        self._uploaded = f"{PLACE}-{os.path.basename(name)}"

    @property
    def parcel(self) -> str:
        """The path of the stream of changed files, for the worker to fetch."""
        return self._stem + ".changes"

    def take(self) -> bool:
        """Whether the order is the caller's to run. True once."""
        try:
            os.close(os.open(self._stem + ".process", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
        except FileExistsError:
            return False
        self.set_process(os.getpid())
        return True

    def set_process(self, number: int) -> None:
        self._write(".process", str(number).encode())

    def process(self) -> int:
        """The process that watches over the command; 0 when there is none."""
        try:
            with open(self._stem + ".process", "rb") as file:
                return int(file.read() or b"0")
        except (OSError, ValueError):
            return 0

    def alive(self) -> bool:
        process = self.process()
        # A runtime that is the first process of its pod does not reap processes that it did not start.
        return bool(process) and stat_fields(process)[:1] not in ([], [b"Z"])

    def result(self) -> dict[str, Any] | None:
        try:
            with open(self._stem + ".result", "rb") as file:
                found: dict[str, Any] = json.loads(file.read())
                return found
        except FileNotFoundError:
            return None

    def end(self, result: dict[str, Any]) -> None:
        self._write(".result", json.dumps({"state": "ended", **result}).encode("ascii"))

    def give_up(self, reason: str) -> None:
        self._write(".result", json.dumps({"state": "lost", "reason": reason}).encode("ascii"))

    def open_parts(self, count: int) -> io.BufferedReader:
        return io.BufferedReader(_Parts([f"{self._uploaded}.{number}" for number in range(count)]), 1 << 20)

    def forget(self) -> None:
        """Remove all that is left of the order."""
        for stem in (self._stem, self._uploaded):
            for path in glob.glob(glob.escape(stem) + ".*"):
                with contextlib.suppress(OSError):
                    os.unlink(path)

    def _write(self, suffix: str, data: bytes) -> None:
        building = f"{self._stem}{suffix}.new"
        with open(building, "wb") as file:
            file.write(data)
        os.replace(building, self._stem + suffix)


class _Parts(io.RawIOBase):
    """Files one after the other, each removed as soon as it is read: they may hold secrets."""

    def __init__(self, paths: list[str]) -> None:
        self._paths = paths
        self._file: io.BufferedReader | None = None

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while True:
            if self._file is None:
                if not self._paths:
                    return 0
                self._file = open(self._paths[0], "rb")  # noqa: SIM115 - closed at its end
                os.unlink(self._paths.pop(0))
            count = self._file.readinto(buffer)
            if count:
                return count
            self._file.close()
            self._file = None


class Order:
    """What the worker sent, unpacked, with the names of the worker's folders replaced by the sandbox's."""

    def __init__(self, header: dict[str, Any], stdin: bytes) -> None:
        self._command = header
        self._stdin = stdin
        base = os.path.realpath(os.path.join(PLACE, "files"))
        self._folders = {slot: os.path.join(base, slot) for slot in header["folders"]}
        self._paths = PathMap({theirs: self._folders[slot] for slot, theirs in header["folders"].items()})
        self._writable = [self._paths.text(folder) for folder in header["writable"]]
        self._before: dict[str, Entry] = {}

    @classmethod
    def unpack(cls, stored: StoredOrder, parts: int) -> Order:
        """Put the files of the order in place. Raises :class:`OSError`, :class:`ValueError` or :class:`EOFError`."""
        source = stored.open_parts(parts)
        header = read_header(source)
        for name in header["forget"]:
            StoredOrder(name).forget()
        order = cls(header, b"")
        order._place(header, source)
        order._stdin = source.read(header["stdin"])
        order._before = order._seen()
        return order

    def _place(self, header: dict[str, Any], source: io.BufferedReader) -> None:
        writers = {}
        for slot, folder in self._folders.items():
            _make_folder(folder)
            writers[slot] = FolderWriter(folder)
        for slot, writer in writers.items():
            writer.remove(path[len(slot) + 1 :] for path in header["removed"] if path.startswith(slot + "/"))
        refused = []
        for path, entry in entries_of(header):
            slot, _, name = path.partition("/")
            if not writers[slot].write(name, entry._replace(target=self._paths.text(entry.target)), source):
                refused.append(path)
        for writer in writers.values():
            writer.finish()
        if refused:
            raise OSError(f"{len(refused)} files cannot be put in their place, such as {refused[0]}")
        for folder in (*self._writable, self._cwd()):
            # A folder of the sandbox itself, such as /, is there or is the command's mistake.
            if any(inside(folder, known) for known in self._folders.values()):
                _make_folder(folder)

    def _cwd(self) -> str:
        return self._paths.text(self._command["cwd"])

    def run(self, stored: StoredOrder) -> dict[str, Any]:
        """Run the command; the result holds what the worker makes a ``CommandResult`` of."""
        command = {**self._command, "argv": [self._paths.text(word) for word in self._command["argv"]]}
        order = order_of(command, self._env(), self._cwd(), tuple(self._writable))
        began = os.times().elapsed
        report, out, err = run_order(order, self._stdin, command["limits"]["output"])
        duration = os.times().elapsed - began
        theirs = self._paths.backwards()
        return {
            "report": report._asdict(),
            "stdout": out._replace(head=theirs.data(out.head), tail=theirs.data(out.tail)).to_json(),
            "stderr": err._replace(head=theirs.data(err.head), tail=theirs.data(err.tail)).to_json(),
            "duration": duration,
            **self._send_back(stored),
        }

    def _env(self) -> dict[str, str]:
        """The worker's environment, with the sandbox's own path in place of the worker's system folders."""
        env = {name: self._paths.text(value) for name, value in self._command["env"].items()}
        path: list[str] = []
        for folder in env.get("PATH", "").split(os.pathsep):
            if any(inside(folder, known) for known in self._folders.values()):
                path.append(folder)
            elif os.environ.get("PATH", os.defpath) not in path:
                path.append(os.environ.get("PATH", os.defpath))
        return {**env, "PATH": os.pathsep.join(path)}

    def _seen(self) -> dict[str, Entry]:
        """What is in the writable folders, by slot and path."""
        found = {}
        for folder in self._writable:
            slot = next(slot for slot, known in self._folders.items() if inside(folder, known))
            prefix = posixpath.join(slot, os.path.relpath(folder, self._folders[slot])).removesuffix("/.")
            found.update({f"{prefix}/{path}": entry for path, entry in scan(folder).items()})
        return found

    def _send_back(self, stored: StoredOrder) -> dict[str, Any]:
        after = self._seen()
        changed = {path: entry for path, entry in after.items() if self._before.get(path) != entry}
        removed = [path for path in self._before if path not in after]
        if not changed and not removed:
            return {"changes": 0, "left": []}
        most_bytes, most_files = self._command["room"]
        most_bytes -= sum(entry.size for path, entry in after.items() if path not in changed)
        most_files -= len(after) - len(changed)
        kept: dict[str, Entry] = {}
        left: list[str] = []
        for path, entry in changed.items():
            if len(kept) >= most_files or entry.size > most_bytes:
                left.append(path)
                continue
            most_bytes -= entry.size
            kept[path] = entry._replace(target=self._paths.backwards().text(entry.target))
        with open(stored.parcel, "wb") as file:
            for chunk in pack({"removed": removed}, kept, self._located):
                file.write(chunk)
            size = file.tell()
        return {"changes": size, "left": left[:5], "left_count": len(left)}

    def _located(self, path: str) -> str:
        slot, _, name = path.partition("/")
        return os.path.join(self._folders[slot], name)


def _make_folder(path: str) -> None:
    if os.path.islink(path) or (os.path.exists(path) and not os.path.isdir(path)):
        os.unlink(path)  # an earlier command put something else there
    os.makedirs(path, mode=0o700, exist_ok=True)
