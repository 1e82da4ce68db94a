"""One sandbox: it gets files and a command, and gives back the result and what changed."""

from __future__ import annotations

import asyncio
import base64
import functools
import hashlib
import io
import json
import math
import os
import posixpath
import secrets
import shlex
import tempfile
import time
import zipfile
from collections.abc import Iterator
from dataclasses import replace
from importlib import resources
from pathlib import Path
from typing import IO, Any

from flink_skills.errors import ExecutionError
from flink_skills.execution.request import CommandRequest, CommandResult, CommandUser
from flink_skills.integrations.remote.claims import Claim, ClaimLostError
from flink_skills.integrations.remote.exchange import Folders, Known, Parcel
from flink_skills.integrations.remote.inside.folder_streams import (
    Entry,
    FolderWriter,
    check_path,
    entries_of,
    read_header,
)
from flink_skills.integrations.remote.inside.output import Output
from flink_skills.integrations.remote.inside.paths import inside
from flink_skills.integrations.remote.runtime import Executed, SandboxRuntime

_INSIDE = "flink_skills.integrations.remote.inside"
_LAUNCHER = "flink_skills.execution.launcher"
_START = """import sys
if sys.version_info < (3, 10):
    sys.exit("Python 3.10 or later is needed, this is " + sys.version.split()[0])
from {inside}.main import main
main(sys.argv[1:])
"""
# Archives of the same modules are the same: a sandbox is asked by digest whether it has this one.
_DATE = (2020, 1, 1, 0, 0, 0)


@functools.cache
def program() -> tuple[str, bytes]:
    """The name of the archive, which changes with its content, and the archive."""
    files = {"__main__.py": _START.format(inside=_INSIDE).encode()}
    for package in (_INSIDE, _LAUNCHER):
        parts = package.split(".")
        for depth in range(1, len(parts) + 1):
            # Empty ones: the real ones load what no sandbox has.
            files["/".join([*parts[:depth], "__init__.py"])] = b""
        for module in resources.files(package).iterdir():
            if module.name.endswith(".py") and module.name != "__init__.py":
                files["/".join([*parts, module.name])] = module.read_bytes()
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in sorted(files.items()):
            archive.writestr(zipfile.ZipInfo(name, _DATE), content, zipfile.ZIP_DEFLATED)
    data = buffer.getvalue()
    return f"program-{hashlib.sha256(data).hexdigest()[:16]}", data


_CHUNK = 1 << 20


def take_changes(folders: Folders, stream: IO[bytes], known: Known, user: CommandUser | None) -> list[str]:
    """Write what a sandbox changed to the worker's folders, and bring ``known`` up to date.

    Entries outside the writable folders and links that lead out of the command's folders are left out, and
    returned. Raises :class:`ExecutionError` for a stream that is no such thing, or that holds too much.
    """
    try:
        header = read_header(stream)
        entries = entries_of(header)
        removed = list(_names(header.get("removed")))
    except (ValueError, RecursionError) as error:
        raise ExecutionError(f"the changes that the sandbox sent are not valid: {error}") from error
    _check_room(folders, entries, known)
    owner = (user.uid, user.gid) if user is not None and os.geteuid() == 0 else None
    writers = {
        # The worker goes on reading and writing what a command has closed to itself.
        slot: FolderWriter(top, least_mode=0o600, owner=owner, link_allowed=_LinkRule(folders, slot).allows)
        for slot, top in folders.slots.items()
    }
    removed = [name for name in removed if folders.is_writable(name)]
    for slot, writer in writers.items():
        writer.remove(name[len(slot) + 1 :] for name in removed if name.startswith(slot + "/"))
    for name in removed:
        known.pop(name, None)
    written, left = [], []
    try:
        for name, entry in entries:
            slot, _, path = name.partition("/")
            if _same(entry, known.get(name)):
                # Sent there for a command that ran beside this one, and no change of this one's.
                _skip(stream, entry.size)
            elif not folders.is_writable(name):
                _skip(stream, entry.size)
                left.append(name)
            elif writers[slot].write(path, entry, stream):
                written.append((name, entry))
            else:
                left.append(name)
    except (EOFError, OSError) as error:
        raise ExecutionError(f"writing the changes of the sandbox failed: {error}") from error
    finally:
        for writer in writers.values():
            writer.finish()
    known.update(_as_written(folders, written))
    return left


def _names(listed: object) -> Iterator[str]:
    for name in listed if isinstance(listed, list) else []:
        if not isinstance(name, str):
            raise ValueError("the name of a removed file is malformed")
        check_path(name)
        yield name


def _check_room(folders: Folders, entries: list[tuple[str, Entry]], known: Known) -> None:
    most_bytes, most_files = folders.room
    coming = {name for name, _ in entries}
    staying = [entry.size for name, entry in known.items() if name not in coming and folders.is_writable(name)]
    size = sum(entry.size for _, entry in entries) + sum(staying)
    # The sandbox keeps to the limits. Twice as much is none that another command's files could explain.
    if size > 2 * most_bytes or len(entries) + len(staying) > 2 * most_files:
        raise ExecutionError(
            f"the sandbox returned {len(entries)} files, with which the workspace would contain {size} bytes. This "
            "exceeds workspace_bytes or workspace_files, so the worker discarded the files"
        )


def _same(theirs: Entry, ours: Entry | None) -> bool:
    if ours is None or theirs.kind != ours.kind:
        return False
    if theirs.kind == "folder":
        return True
    # Only the right to execute: the worker's copy may be read and written where the sandbox's may not.
    mine, other = ours[2:5], theirs[2:5]
    return mine == other and (ours.mode ^ theirs.mode) & 0o111 == 0


def _skip(stream: IO[bytes], size: int) -> None:
    while size and (chunk := stream.read(min(_CHUNK, size))):
        size -= len(chunk)


def _as_written(folders: Folders, written: list[tuple[str, Entry]]) -> Known:
    found = {}
    for name, sent in written:
        try:
            entry = Entry.of(Path(folders.path(name)).lstat(), sent.target)
        except OSError:
            continue  # replaced by a later entry of the same stream, or removed in the meantime
        if entry is not None:
            found[name] = entry
    return found


class _LinkRule:
    """Which links may be made: those that cannot lead out of the command's folders, whatever else is linked."""

    def __init__(self, folders: Folders, slot: str) -> None:
        self._tops = list(folders.slots.values())
        self._top = folders.slots[slot]

    def allows(self, path: str, target: str) -> bool:
        parts = [part for part in target.split("/") if part not in {"", "."}]
        climbs = next((index for index, part in enumerate(parts) if part != ".."), len(parts))
        # ``..`` behind a name leads wherever that name, which may be a link, has led.
        if ".." in parts[climbs:]:
            return False
        if target.startswith("/"):
            return not climbs and any(inside("/" + "/".join(parts), top) for top in self._tops)
        reached = posixpath.normpath(posixpath.join(self._top, posixpath.dirname(path), *parts))
        return bool(target) and inside(reached, self._top)


_PLACE = ".flink-skills"
# Routers and load balancers end long requests: a command is waited for in pieces.
_WAIT_SECONDS = 10.0
# While files are on their way no other command of this workspace may start: then only quick ones are waited for.
_WAIT_WITH_FILES_SECONDS = 0.25
# What Python ends with when there is nothing to run at the path.
_NO_PROGRAM = 2
_PART_BYTES = 8 << 20
_ANSWER_BYTES = 1 << 20
_CHANGES_HEADER_BYTES = 32 << 20
_PATIENCE_SECONDS = 20.0
# From the end of the command's time until the sandbox must have said so.
_LATE_SECONDS = 30.0
_STOP_SECONDS = 20.0


class SandboxGoneError(ExecutionError):
    """The sandbox does not answer, or not as this package's program does. Another sandbox must replace it."""


class NotStartedError(SandboxGoneError):
    """The sandbox was lost before the command could start, so the command may run in another one."""


class Sandbox:
    """A sandbox that belongs to one workspace. Commands may run in it at the same time."""

    def __init__(self, claim: Claim, runtime: SandboxRuntime, user: CommandUser | None) -> None:
        self.claim = claim
        self.running = 0
        self.last_used = time.monotonic()
        self._runtime = runtime
        self._user = user
        self._known: Known = {}
        self._forget: list[str] = []
        # Workspaces that are over a limit of theirs, and which: commands may make room there and nothing else.
        self._full: dict[tuple[str, ...], str] = {}
        self._files = asyncio.Lock()

    async def prepare(self, patience: float) -> None:
        """Put the program there, as soon as the sandbox answers. Raises :class:`ExecutionError`."""
        name, archive = program()
        # Runtimes up to agent-sandbox v0.5.6 reject an upload into a folder that does not exist.
        await self._runtime.upload(f"{_PLACE}-{name}.zip", archive, patience=patience)
        # Unpacked, it is compiled once and not with every call.
        unpack = shlex.join(["python3", "-m", "zipfile", "-e", f"{_PLACE}-{name}.zip", f"{_PLACE}/{name}"])
        done = await self._runtime.execute(
            unpack, seconds=_WAIT_SECONDS, most=_ANSWER_BYTES, patience=_PATIENCE_SECONDS
        )
        if done.exit_code != 0:
            raise SandboxGoneError(self._unable(done))
        await self.about()

    async def about(self, addresses: tuple[str, ...] = ()) -> dict[str, Any]:
        """What the sandbox is. ``reachable`` in it are those of ``addresses`` that it can connect to."""
        return await self._ask("about", *addresses, seconds=_WAIT_SECONDS)

    async def run(self, request: CommandRequest) -> CommandResult:
        """Run a command to its end. Raises :class:`ExecutionError`; cancellation ends the command."""
        began = time.monotonic()
        name = secrets.token_hex(8)
        folders = Folders(request)
        most = _ANSWER_BYTES + 3 * request.limits.output
        try:
            answer = await self._start(name, folders, most)
            deadline = began + request.limits.wall_time + _LATE_SECONDS
            while answer.get("state") == "running":
                if time.monotonic() > deadline:
                    answer = await self._stop(name, most)
                    break
                answer = await self._ask("wait", name, _WAIT_SECONDS, seconds=_WAIT_SECONDS, most=most)
        except asyncio.CancelledError:
            await asyncio.shield(self._stop_and_forget(name, most))
            raise
        if answer.get("state") != "ended":
            self._known.clear()
            raise ExecutionError(str(answer.get("reason") or "the command did not finish within its time limit")[:2000])
        result = _result(answer, time.monotonic() - began)
        self._full[request.writable] = str(answer["report"].get("full") or "")
        left = await self._take(name, folders, answer)
        return replace(result, stderr=result.stderr + _note(left)) if left else result

    async def _start(self, name: str, folders: Folders, most: int) -> dict[str, Any]:
        await self._files.acquire()
        try:
            now = await asyncio.to_thread(folders.scan)
            forget, self._forget = self._forget, []
            full = self._full.get(folders.request.writable, "")
            parcel = Parcel.make(folders, now, self._known, {"forget": forget, "full": full})
            if parcel.moves:
                # Until the sandbox says that it has them, it may have any of them.
                known, self._known = self._known, {}
                answer = await self._send(name, parcel, _WAIT_WITH_FILES_SECONDS, most)
                kept = {path: entry for path, entry in known.items() if not folders.covers(path)}
                self._known = {**kept, **now} if answer.get("state") != "lost" else {}
                return answer
        finally:
            self._files.release()
        return await self._send(name, parcel, _WAIT_SECONDS, most)

    async def _send(self, name: str, parcel: Parcel, wait: float, most: int) -> dict[str, Any]:
        count = 0
        parts = parcel.parts(_PART_BYTES)
        try:
            while (part := await asyncio.to_thread(next, parts, None)) is not None:
                await self._runtime.upload(f"{_PLACE}-{name}.{count}", part, patience=_PATIENCE_SECONDS)
                count += 1
        except ClaimLostError as error:
            raise NotStartedError(str(error)) from error
        return await self._ask("start", name, count, wait, seconds=wait, most=most)

    async def _ask(self, *words: object, seconds: float, most: int = _ANSWER_BYTES) -> dict[str, Any]:
        """Call the program in the sandbox; its answer."""
        command = shlex.join(["python3", "-I", "-S", f"{_PLACE}/{program()[0]}", *map(str, words)])
        done = await self._runtime.execute(command, seconds=seconds, most=most, patience=_PATIENCE_SECONDS)
        try:
            answer = json.loads(done.stdout)
        except (ValueError, RecursionError):
            answer = None
        if done.exit_code == _NO_PROGRAM and not done.stdout:
            # A new container or pod has replaced the one that received the files. A repeated request may have started
            # the command in the old one.
            starts = words[0] == "start" and not done.repeated
            raise (NotStartedError if starts else SandboxGoneError)(self._replaced())
        if done.exit_code != 0 or not isinstance(answer, dict):
            await self._runtime.check()
            raise SandboxGoneError(self._unable(done))
        return answer

    def _replaced(self) -> str:
        return (
            f"sandbox {self.claim.sandbox!r} was replaced while a command ran in it: run the command again, and look "
            "for an eviction or a lost node in the events of the pod"
        )

    def _unable(self, done: Executed) -> str:
        if done.exit_code < 0 or done.exit_code > 128:
            return (
                f"the program that runs commands in sandbox {self.claim.sandbox!r} was killed (exit code "
                f"{done.exit_code}): give the pods of the SandboxTemplate more memory than skills.shell.max-memory"
            )
        output = (done.stderr.strip() or done.stdout.strip())[-300:]
        return (
            f"sandbox {self.claim.sandbox!r} cannot run commands (exit code {done.exit_code}: {output}): its image "
            "needs python3 of version 3.10 or later, and a writable working folder of the runtime"
        )

    async def _stop(self, name: str, most: int) -> dict[str, Any]:
        return await asyncio.wait_for(self._ask("stop", name, seconds=_STOP_SECONDS, most=most), 2 * _STOP_SECONDS)

    async def _stop_and_forget(self, name: str, most: int) -> None:
        try:
            await self._stop(name, most)
        except (ExecutionError, asyncio.TimeoutError):
            self.last_used = -math.inf  # nobody knows what runs there: not to be used again
        self._known.clear()
        self._forget.append(name)

    @property
    def doubtful(self) -> bool:
        """Whether something may run there that nobody waits for."""
        return self.last_used == -math.inf

    async def _take(self, name: str, folders: Folders, answer: dict[str, Any]) -> list[str]:
        """Fetch what the command changed; what stayed there, for one reason or another."""
        self._forget.append(name)
        listed = answer.get("left")
        left = [str(path)[:300] for path in listed[:5]] if isinstance(listed, list) else []
        if not answer.get("changes"):
            return left
        async with self._files:
            try:
                with tempfile.TemporaryFile() as parcel:
                    most = 2 * folders.room[0] + _CHANGES_HEADER_BYTES
                    path = f"{_PLACE}/{name}.changes"
                    await self._runtime.download(path, parcel, most, patience=_PATIENCE_SECONDS)
                    parcel.seek(0)
                    return left + await asyncio.to_thread(take_changes, folders, parcel, self._known, self._user)
            except BaseException:
                self._known.clear()
                raise


def _result(answer: dict[str, Any], duration: float) -> CommandResult:
    """The answer of a sandbox, which may say anything, as a result. Raises :class:`ExecutionError`."""
    try:
        report = answer["report"]
        out, err = _output(answer["stdout"]), _output(answer["stderr"])
        code, signal, error = report["exit_code"], report["signal"], report["error"]
        if [code, signal, error].count(None) != 2:
            raise ValueError("exactly one of exit_code, signal and error must be set")
        limit = report["limit"]
        return CommandResult(
            exit_code=None if code is None else int(code),
            signal=None if signal is None else int(signal),
            timed_out=bool(report["timed_out"]),
            stdout=out.text(),
            stderr=err.text(),
            stdout_dropped=out.dropped,
            stderr_dropped=err.dropped,
            duration=duration,
            error=None if error is None else str(error)[:2000],
            limit=None if limit is None else str(limit)[:40],
            cpu_time=float(report["cpu_time"]),
            memory=int(report["memory"]),
        )
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise ExecutionError(f"the sandbox sent an invalid report about the end of the command: {error}") from error


def _output(found: list[Any]) -> Output:
    head, tail, dropped = found
    return Output(base64.b64decode(head), base64.b64decode(tail), max(0, int(dropped)))


def _note(left: list[str]) -> bytes:
    names = ", ".join(name.partition("/")[2] or name for name in left[:5])
    return f"\n[not copied back from the sandbox: {names}; too large, or links out of the workspace]\n".encode(
        "utf-8", "surrogateescape"
    )
