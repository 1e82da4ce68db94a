"""Files that an event names by address: fetched by the worker, and compared with what the journal has of them."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import hashlib
import logging
import os
import shutil
import tempfile
import threading
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from flink_skills.agents.state.files import EventFile, Fetched
from flink_skills.agents.state.fingerprints import fingerprint
from flink_skills.agents.state.journal import Asked
from flink_skills.errors import ConfigError, SourceError, TurnError
from flink_skills.execution import Workspace
from flink_skills.execution.workspace import WorkspacePathError, media_type
from flink_skills.options import SkillConfig, SkillOptions
from flink_skills.sources import RemoteFile, SourceContext
from flink_skills.sources.archive import file_sha256
from flink_skills.sources.prefixes import AllowedPrefixes, PrefixPolicy
from flink_skills.sources.transfer_failures import DiskError
from flink_skills.telemetry import observe

_log = logging.getLogger("flink_skills.files")

_STEP = "files#1"
_AT_ONCE = 8
_BLOCK = 1 << 20
_S3 = ("s3://", "s3a://")

T = TypeVar("T")
Durable = Callable[[str, Callable[[], Awaitable[Any]], Asked], Awaitable[Any]]


class NamedFiles:
    """Fetches files that events name. At most eight downloads run at once in an open agent.

    Raises :class:`ConfigError` for prefixes of ``skills.files.allowed`` that cannot be used.
    """

    def __init__(self, config: SkillConfig, scratch_dir: str) -> None:
        self._config = config
        prefixes = config.get(SkillOptions.FILES_ALLOWED)
        self._policy = PrefixPolicy(config, AllowedPrefixes(prefixes))
        self._context = SourceContext(config, store_dir=scratch_dir)
        self._scratch_dir = scratch_dir
        self._places = asyncio.Semaphore(_AT_ONCE)

    def refusal(self, file: EventFile) -> str:
        """Return why the options reject the address of a file. Return "" if they allow it.

        An artifact needs no option, because it belongs to the key of the event.
        """
        try:
            if file.url:
                self._policy.check_url(file.url)
        except ConfigError as error:
            return _told(error)
        return ""

    def allowed(self, files: Sequence[EventFile]) -> tuple[EventFile, ...]:
        """Return the files. A file whose address is rejected has the reason as its problem, and no address."""
        reasons = [self.refusal(file) for file in files]
        for reason in filter(None, reasons):
            _log.warning("%s", reason)
        return tuple(
            EventFile("", file.original_name, file.mime_type, uri=file.uri, problem=reason) if reason else file
            for file, reason in zip(files, reasons, strict=True)
        )

    async def stage(
        self,
        files: Sequence[EventFile],
        workspace: Workspace,
        durable: Durable,
        call_id: str,
        place: Callable[[Sequence[EventFile]], Awaitable[None]],
    ) -> None:
        """Fetch the files in one durable step, and pass all ``files`` to ``place``.

        A file that the journal has is taken from the workspace if that has the same bytes, else it is fetched again.
        Raises :class:`TurnError` for a file that cannot be had, or has changed since the journal got its digest.
        """
        named = [file for file in files if file.url]
        folder = await asyncio.to_thread(self._make_folder)
        given_up = threading.Event()
        fresh: dict[str, str] = {}

        async def fetch() -> list[dict[str, Any]]:
            found, total = [], 0
            for file in named:
                record, fresh[file.name] = await self._fetched(file, folder, given_up, call_id)
                total += record["size"]
                self._check_total(total, file)
                found.append(record)
            return found

        try:
            records = await durable(_STEP, fetch, Asked(fingerprint([[file.name, file.uri] for file in named])))
            fetched = {}
            for file, record in zip(named, records, strict=True):
                path = fresh.get(file.name)
                if path is None and not await asyncio.to_thread(_has, workspace, file.name, record):
                    path = await self._again(file, record, folder, given_up, call_id)
                fetched[file.name] = Fetched(path or "", record["size"], record["sha256"], record["mime_type"])
            await place([replace(file, fetched=fetched[file.name]) if file.url else file for file in files])
        finally:
            # A download that was given up may still write there, and then removes the folder itself.
            given_up.set()
            asyncio.get_running_loop().run_in_executor(None, _remove, folder)

    async def read(self, file: EventFile, most: int, call_id: str) -> bytes:
        """Return the content of a file that the event names.

        ``most`` is the maximum number of bytes, 0 for that of ``skills.limits.download``. Raises :class:`TurnError` for
        a file that cannot be read.
        """
        limit: int = self._config.get(SkillOptions.LIMIT_DOWNLOAD)
        is_lower = 0 < most < limit
        folder = await asyncio.to_thread(self._make_folder)
        given_up = threading.Event()
        try:
            _, path = await self._fetched(file, folder, given_up, call_id, most if is_lower else limit)
            return await asyncio.to_thread(Path(path).read_bytes)
        except TurnError as error:
            if not is_lower:
                raise
            text = str(error).replace(SkillOptions.LIMIT_DOWNLOAD.key, SkillOptions.CONTENT_MAX_BYTES.key)
            raise TurnError(text) from None
        finally:
            given_up.set()
            asyncio.get_running_loop().run_in_executor(None, _remove, folder)

    async def _again(
        self, file: EventFile, record: dict[str, Any], folder: str, given_up: threading.Event, call_id: str
    ) -> str:
        """Fetch once more a file that the journal has, in the version that it has."""
        url, version = file.url, record.get("version")
        if version and url.lower().startswith(_S3) and "?versionId=" not in url:
            url = f"{url}?versionId={version}"
        found, path = await self._fetched(replace(file, url=url), folder, given_up, call_id)
        if found["sha256"] != record["sha256"]:
            raise TurnError(
                f"event file {file.uri}: the file changed after the turn started: its sha256 was "
                f"{record['sha256']} and is now {found['sha256']}; the turn cannot continue with other bytes. "
                "Send the event again to use the new file"
            )
        return path

    async def _fetched(
        self, file: EventFile, folder: str, given_up: threading.Event, call_id: str, limit: int = 0
    ) -> tuple[dict[str, Any], str]:
        started = time.monotonic()
        with observe("stage", "event", skill="", call_id=call_id) as activity:
            record, path = await self._in_thread(lambda: self._download(file, folder, given_up, limit))
            activity.attributes.update(files=1, bytes=record["size"])
        _log.info("fetched event file %s: %d bytes in %.2f s", file.uri, record["size"], time.monotonic() - started)
        return record, path

    def _download(
        self, file: EventFile, folder: str, given_up: threading.Event, limit: int = 0
    ) -> tuple[dict[str, Any], str]:
        limit = limit or self._config.get(SkillOptions.LIMIT_DOWNLOAD)
        # From here on, and not while it waits for its place.
        deadline = time.monotonic() + self._config.get(SkillOptions.SOURCE_TIMEOUT)
        try:
            if given_up.is_set():
                raise TurnError(f"event file {file.uri}: the turn ended before it was fetched")
            descriptor, path = tempfile.mkstemp(dir=folder)
            os.close(descriptor)
            remote = RemoteFile(file.url, self._context, policy=self._policy)
            remote.fetch(path, limit, deadline)
            sha256, head, size = file_sha256(path)
        except DiskError:
            message = f"event file {file.uri}: the disk of {self._scratch_dir} does not take it"
            raise TurnError(f"{message}; free space there") from None
        except (SourceError, ConfigError) as error:
            raise TurnError(_told(error)) from None
        except OSError as error:
            message = f"event file {file.uri}: cannot be written below {self._scratch_dir} ({error.strerror})"
            raise TurnError(f"{message}; free space there") from None
        finally:
            if given_up.is_set():
                _remove(folder)
        if file.sha256 and sha256 != file.sha256:
            raise TurnError(
                f"event file {file.uri}: its sha256 is {sha256}, and the event asks for {file.sha256}; "
                "correct the event, or put the file there that it means"
            )
        kind = file.mime_type or media_type(file.name, head)
        record = {"uri": file.uri, "size": size, "sha256": sha256, "mime_type": kind, "version": remote.version_id}
        return record, path

    def _check_total(self, total: int, file: EventFile) -> None:
        limit = self._config.get(SkillOptions.LIMIT_TOTAL)
        if total > limit:
            key = SkillOptions.LIMIT_TOTAL.key
            raise TurnError(
                f"event file {file.uri}: the files that the event names have more than {limit} bytes together; "
                f"name fewer or smaller files, or raise {key}"
            )

    def _make_folder(self) -> str:
        try:
            os.makedirs(self._scratch_dir, exist_ok=True)
            return tempfile.mkdtemp(prefix="event-files-", dir=os.path.realpath(self._scratch_dir))
        except OSError as error:
            message = f"files of the event cannot be written below {self._scratch_dir} ({error.strerror})"
            raise TurnError(f"{message}; free space there") from None

    async def _in_thread(self, work: Callable[[], T]) -> T:
        """Run ``work`` on a daemon thread, which keeps its place until it ends, also after the turn has ended."""
        loop = asyncio.get_running_loop()
        await self._places.acquire()
        future: concurrent.futures.Future[T] = concurrent.futures.Future()
        future.set_running_or_notify_cancel()

        def release(_: object) -> None:
            with contextlib.suppress(RuntimeError):  # the loop is closed, so no download waits for a place
                loop.call_soon_threadsafe(self._places.release)

        def run() -> None:
            try:
                future.set_result(work())
            except BaseException as error:
                future.set_exception(error)

        future.add_done_callback(release)
        threading.Thread(target=run, name="flink-skills-event-file", daemon=True).start()
        return await asyncio.wrap_future(future)


def _has(workspace: Workspace, name: str, record: dict[str, Any]) -> bool:
    """Return whether the workspace has the file with the bytes of the journal."""
    digest, offset = hashlib.sha256(), 0
    try:
        while True:
            part = workspace.read_part(f"work/inputs/{name}", offset, _BLOCK)
            if part.total != record["size"]:
                return False
            digest.update(part.data)
            offset += len(part.data)
            if offset >= part.total or not part.data:
                return bool(digest.hexdigest() == record["sha256"])
    except WorkspacePathError:
        return False


def _remove(folder: str) -> None:
    shutil.rmtree(folder, ignore_errors=True)


def _told(error: Exception) -> str:
    """Return the message of an error of sources, about a file of an event."""
    return "event file " + str(error).replace("skill source ", "event file ").removeprefix("event file ")
