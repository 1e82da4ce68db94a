"""A sandbox pod as the runtime image of agent-sandbox shows it: commands as processes in a folder of their own."""

from __future__ import annotations

import asyncio
import errno
import os
import shlex
import shutil
import signal
import socket
import sys
from pathlib import Path
from urllib.parse import unquote

import pyseccomp as seccomp
from aiohttp import web

# What a network policy without egress rules does to a pod: nothing can be connected to.
_NO_NETWORK = seccomp.SyscallFilter(seccomp.ALLOW)
for _family in (socket.AF_INET, socket.AF_INET6):
    _NO_NETWORK.add_rule(seccomp.ERRNO(errno.ENETUNREACH), "socket", seccomp.Arg(0, seccomp.EQ, _family))


class Pod:
    """Serves ``execute``, ``upload``, ``download``, ``list`` and ``exists`` for one folder."""

    def __init__(self, folder: Path, *, connected: bool, image: dict[str, str]) -> None:
        self.folder = folder
        self.connected = connected
        self.image = image
        self.calls: list[tuple[str, str]] = []
        self.ended = False
        folder.mkdir(parents=True)

    async def answer(self, request: web.Request, rest: str) -> web.StreamResponse:
        verb, _, encoded = rest.partition("/")
        self.calls.append((verb, encoded))
        if request.method == "POST" and verb == "execute":
            return await self._execute((await request.json())["command"])
        if request.method == "POST" and verb == "upload":
            return await self._upload(request)
        path = (self.folder / unquote(unquote(encoded)).lstrip("/")).resolve()
        if not path.is_relative_to(self.folder.resolve()):
            return web.json_response({"message": "Access denied"}, status=403)
        if verb == "download":
            if not path.is_file():
                return web.json_response({"message": "File not found"}, status=404)
            return web.FileResponse(path)
        if verb == "exists":
            return web.json_response({"path": encoded, "exists": path.exists()})
        if verb == "list" and path.is_dir():
            return web.json_response([{"name": item.name, "size": item.stat().st_size} for item in path.iterdir()])
        return web.json_response({"detail": "Not Found"}, status=404)

    async def _upload(self, request: web.Request) -> web.Response:
        part = await (await request.multipart()).next()
        assert part is not None and part.filename is not None and part.name == "file"
        path = (self.folder / part.filename).resolve()
        if not path.is_relative_to(self.folder.resolve()):
            return web.json_response({"message": "Access denied"}, status=403)
        try:
            path.write_bytes(await part.read())
        except OSError as error:  # releases of agent-sandbox up to v0.5.6 create no folders
            return web.json_response({"message": f"File upload failed: {error}"}, status=500)
        return web.json_response({"message": f"File '{part.filename}' uploaded successfully."})

    async def _execute(self, command: str) -> web.Response:
        argv = shlex.split(command)
        if argv[0] == "python3":
            argv[0] = self.image.get("python3", sys.executable)
        try:
            process = await asyncio.create_subprocess_exec(
                *argv,
                cwd=self.folder,
                env={"PATH": os.defpath, "HOME": str(self.folder), "POD": str(self.folder)},
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                start_new_session=True,
                preexec_fn=None if self.connected else _NO_NETWORK.load,
            )
        except OSError as error:
            message = f"Failed to execute command: {error}"
            return web.json_response({"stdout": "", "stderr": message, "exit_code": 1})
        out, err = await process.communicate()
        if self.ended:
            return web.json_response({"detail": f"Could not connect to the backend sandbox: {self.folder}"}, status=502)
        return web.json_response({"stdout": out.decode(), "stderr": err.decode(), "exit_code": process.returncode})

    def processes(self) -> list[int]:
        """Processes that work in the pod's folder, or were started by it."""
        found = []
        for process in Path("/proc").iterdir():
            if not process.name.isdecimal() or int(process.name) == os.getpid():
                continue
            try:
                # Defunct ones have neither.
                environ = (process / "environ").read_bytes().split(b"\0")
                cwd = (process / "cwd").readlink()
            except OSError:
                continue
            if f"POD={self.folder}".encode() in environ or cwd.is_relative_to(self.folder):
                found.append(int(process.name))
        return found

    def end(self) -> None:
        """Kill the processes and remove the files. Requests that wait for a command get the router's error."""
        self.ended = True
        for pid in self.processes():
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        shutil.rmtree(self.folder, ignore_errors=True)
