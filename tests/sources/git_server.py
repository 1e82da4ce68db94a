"""Real git repositories, and a web server for them: the program ``git http-backend`` behind :mod:`http.server`."""

from __future__ import annotations

import base64
import os
import shutil
import subprocess
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

GIT = shutil.which("git")
needs_git = pytest.mark.skipif(GIT is None, reason="the program git is missing; install it to run a git server")

_ENVIRONMENT = {
    "GIT_AUTHOR_NAME": "a", "GIT_AUTHOR_EMAIL": "a@example.org", "GIT_COMMITTER_NAME": "a",
    "GIT_COMMITTER_EMAIL": "a@example.org", "GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_AUTHOR_DATE": "2026-01-01T00:00:00Z", "GIT_COMMITTER_DATE": "2026-01-01T00:00:00Z",
}  # fmt: skip


class Repository:
    """A bare repository in ``path``, and a work tree in ``tree`` whose commits it gets."""

    def __init__(self, folder: Path, name: str = "skills.git", *, object_format: str = "sha1") -> None:
        self.path, self.tree = folder / name, folder / f"{name}.tree"
        for path, bare in ((self.path, ["--bare"]), (self.tree, [])):
            self.git("init", "-q", "-b", "main", f"--object-format={object_format}", *bare, str(path), where=folder)
        self.git("config", "http.receivepack", "false", where=self.path)

    def git(self, *arguments: str, where: Path | None = None, stdin: bytes = b"") -> str:
        """Run the program git. Return its output."""
        done = subprocess.run(
            [GIT or "git", *arguments], cwd=where or self.tree, env={**os.environ, **_ENVIRONMENT}, input=stdin,
            capture_output=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr.decode()
        return done.stdout.decode().strip()

    def commit(self, message: str = "a change") -> str:
        """Commit the work tree to main, and publish it. Return the commit."""
        self.git("add", "-A")
        self.git("commit", "-q", "--allow-empty", "-m", message)
        self.git("push", "-q", str(self.path), "HEAD:main", "--tags")
        return self.git("rev-parse", "HEAD")

    def publish(self, skills: Path) -> str:
        """Replace all files by those of a folder. Return the commit."""
        for entry in self.tree.iterdir():
            if entry.name != ".git":
                shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
        shutil.copytree(skills, self.tree, dirs_exist_ok=True)
        return self.commit()

    def objects(self, *blobs: bytes) -> list[str]:
        """Store files in the bare repository. Return their ids."""
        return [self.git("hash-object", "-w", "--stdin", where=self.path, stdin=blob) for blob in blobs]

    def raw_tree(self, entries: list[tuple[str, bytes, str]]) -> str:
        """Store a tree of (mode, name, id) in the bare repository without any check. Return its id."""
        data = b"".join(b"%s %s\0%s" % (mode.encode(), name, bytes.fromhex(sha)) for mode, name, sha in entries)
        return self.git("hash-object", "-w", "-t", "tree", "--literally", "--stdin", where=self.path, stdin=data)

    def point(self, tree: str, branch: str = "main") -> str:
        """Commit a tree of the bare repository to a branch. Return the commit."""
        commit = self.git("commit-tree", tree, "-m", "raw", where=self.path)
        self.git("update-ref", f"refs/heads/{branch}", commit, where=self.path)
        return commit


class GitServer:
    """Serves the repositories below ``root`` on a free loopback port.

    ``requests`` has method and path of each request, ``seen`` its headers. ``login`` is the user and password that are
    required. ``fault`` gets the handler first, and returns True if it answered. ``protocol`` "0" hides the newer one.
    """

    def __init__(self, root: Path, host: str = "127.0.0.1") -> None:
        self.login: str | None = None
        self.fault: Callable[[Any], bool] | None = None
        self.protocol = "2"
        self.requests: list[tuple[str, str]] = []
        self.seen: list[dict[str, str]] = []
        self.closing = threading.Event()
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self._answer()

            def do_POST(self) -> None:
                self._answer()

            def _answer(self) -> None:
                server.requests.append((self.command, self.path))
                server.seen.append({name.lower(): value for name, value in self.headers.items()})
                wanted = f"Basic {base64.b64encode((server.login or '').encode()).decode()}"
                if server.login and self.headers.get("Authorization") != wanted:
                    self.send_error(401)
                elif not (server.fault and server.fault(self)):
                    self.backend()

            def backend(self) -> None:
                url = urlsplit(self.path)
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                environment = {
                    **os.environ, **_ENVIRONMENT, "GIT_PROJECT_ROOT": str(root), "GIT_HTTP_EXPORT_ALL": "1",
                    "REQUEST_METHOD": self.command, "PATH_INFO": url.path, "QUERY_STRING": url.query,
                    "CONTENT_TYPE": self.headers.get("Content-Type", ""), "CONTENT_LENGTH": str(len(body)),
                    "GIT_PROTOCOL": self.headers.get("Git-Protocol", "") if server.protocol == "2" else "",
                }  # fmt: skip
                command = [GIT or "git", "http-backend"]
                answer = subprocess.run(command, env=environment, input=body, capture_output=True, check=False).stdout
                head, _, content = answer.partition(b"\r\n\r\n")
                headers = dict(line.split(": ", 1) for line in head.decode().split("\r\n"))
                self.send_response(int(headers.pop("Status", "200").split()[0]))
                for name, value in headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, *_: Any) -> None:
                """Silent."""

        class Server(ThreadingHTTPServer):
            daemon_threads = True

        self._server = Server((host, 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01})
        self._thread.start()

    @property
    def port(self) -> int:
        return self._server.server_port

    def url(self, repository: str = "skills.git", host: str = "127.0.0.1", login: str = "") -> str:
        return f"git+http://{login and login + '@'}{host}:{self.port}/{repository}"

    def count(self, method: str) -> int:
        return sum(1 for seen, _ in self.requests if seen == method)

    def close(self) -> None:
        self.closing.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
