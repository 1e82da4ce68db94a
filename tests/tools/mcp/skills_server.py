"""A server of skills with faults, on stdio and HTTP. It is the raw protocol: no library corrects what it sends.

``python skills_server.py FOLDER FAULTS LOG``: FAULTS is a file with a JSON object, which is read for each message. Each
skill below FOLDER is served. LOG receives the method and the URI of each request.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import sys
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import yaml

EXTENSION = "io.modelcontextprotocol/skills"


def entry_of(folder: Path, uri: str) -> dict[str, Any]:
    """Return the entry of the skill in a folder."""
    front_matter = yaml.safe_load((folder / "SKILL.md").read_text().split("---\n")[1])
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    root = uri.removesuffix("/SKILL.md")
    resources = [
        {
            "uri": f"{root}/{path.relative_to(folder).as_posix()}",
            "digest": f"sha256:{hashlib.sha256(path.read_bytes()).hexdigest()}",
            "size": path.stat().st_size,
        }
        for path in files
    ]
    return {"uri": uri, "frontmatter": front_matter, "resources": resources}


class SkillsServer:
    """The answers of a server. ``faults`` can change while it runs. ``requests`` has the method and URI of each one."""

    def __init__(self, folder: Path, faults: dict[str, Any] | None = None, log: Path | None = None) -> None:
        self.folder = folder
        self.faults = {} if faults is None else faults
        self.requests: list[tuple[str, str]] = []
        self._log = log

    def entries(self) -> list[dict[str, Any]]:
        found = []
        for path in sorted(self.folder.rglob("SKILL.md")):
            found.append(entry_of(path.parent, f"skill://{path.relative_to(self.folder).as_posix()}"))
        for number in range(self.faults.get("many", 0)):
            uri = f"skill://many/skill-{number}/SKILL.md"
            resource = {"uri": uri, "digest": f"sha256:{number:064x}", "size": 10}
            front_matter = {"name": f"skill-{number}", "description": f"Does task {number}."}
            found.append({"uri": uri, "frontmatter": front_matter, "resources": [resource]})
        for entry in found:
            for key, value in self.faults.get("entry", {}).items():
                entry[key] = value
            if "front_matter" in self.faults:
                entry["frontmatter"] = {**entry["frontmatter"], **self.faults["front_matter"]}
            for resource in entry["resources"] if isinstance(entry["resources"], list) else ():
                if resource["uri"].endswith(self.faults.get("changed_uri", "/SKILL.md")):
                    resource.update(self.faults.get("resource", {}))
                if self.faults.get("no_size"):
                    del resource["size"]
                resource["uri"] = self._out(resource["uri"])
            if isinstance(entry["resources"], list):
                entry["resources"] += self.faults.get("more_resources", [])
            entry["uri"] = self._out(entry["uri"])
        return [*found, *self.faults.get("more_entries", [])]

    def _out(self, uri: str) -> str:
        """Return a URI with the scheme of the server."""
        return uri.replace("skill:", self.faults.get("scheme", "skill:"), 1)

    def answer(self, message: dict[str, Any]) -> dict[str, Any] | None:
        method, params = message.get("method", ""), message.get("params") or {}
        if "id" not in message:
            return None
        self.note(method, params.get("uri", ""))
        time.sleep(self.faults.get("slow", {}).get(method, 0))
        if method in self.faults.get("results", {}):
            return {"jsonrpc": "2.0", "id": message["id"], "result": self.faults["results"][method]}
        result = self._result(method, params)
        if isinstance(result, int):
            return {"jsonrpc": "2.0", "id": message["id"], "error": {"code": result, "message": f"no {method}"}}
        return {"jsonrpc": "2.0", "id": message["id"], "result": result}

    def note(self, method: str, uri: str) -> None:
        """Record a request."""
        self.requests.append((method, uri))
        if self._log is not None:
            with self._log.open("a") as file:
                file.write(f"{method} {uri}\n")

    def _result(self, method: str, params: dict[str, Any]) -> dict[str, Any] | int:
        is_modern = self.faults.get("modern", True)
        extensions = {} if self.faults.get("no_extension") else {EXTENSION: self.faults.get("extension", {})}
        resources = {"listChanged": True} if self.faults.get("reports") else {}
        capabilities = {"resources": resources, "extensions": extensions}
        info = {"name": self.faults.get("server_name", "skills"), "version": "1"}
        fresh = {"resultType": "complete", "ttlMs": 1000, "cacheScope": "public"} if is_modern else {}
        if method == "server/discover" and is_modern:
            return {**fresh, "supportedVersions": ["2026-07-28"], "capabilities": capabilities, "serverInfo": info}
        if method == "initialize":
            return {"protocolVersion": "2025-11-25", "capabilities": capabilities, "serverInfo": info}
        if method == "ping":
            return {}
        if method == "resources/list":
            return {**fresh, "resources": self.faults.get("older", [])}
        if method == "skills/list":
            return {**fresh, **self._page(params.get("cursor"))}
        if method == "skills/get":
            found = [entry for entry in self.entries() if entry["uri"] == params.get("uri")]
            return {**fresh, "skill": found[0]} if found else -32602
        if method == "resources/read":
            return self._read(params["uri"], fresh)
        return -32601

    def _page(self, cursor: str | None) -> dict[str, Any]:
        if self.faults.get("hides"):
            return {"skills": []}
        if "cursors" in self.faults:  # "cycle": the same again, "endless": always another one
            at = int(cursor or 0)
            return {"skills": [], "nextCursor": str(at + 1 if self.faults["cursors"] == "endless" else 1)}
        entries, size, at = self.entries(), self.faults.get("page", 1_000), int(cursor or 0)
        more = {"nextCursor": str(at + size)} if at + size < len(entries) else {}
        return {"skills": entries[at : at + size], **more}

    def _read(self, uri: str, fresh: dict[str, Any]) -> dict[str, Any] | int:
        path = self.folder / uri.partition("://")[2]
        content = self.faults.get("content", {}).get(uri)
        if content is None and not path.is_file():
            return -32602
        data = path.read_bytes() if content is None else content.encode()
        try:
            body = {"text": data.decode()}
        except UnicodeDecodeError:
            body = {"blob": base64.b64encode(data).decode()}
        return {**fresh, "contents": [{"uri": uri, "mimeType": "text/plain", **body}]}


def http_server(server: SkillsServer, port: int = 0) -> ThreadingHTTPServer:
    """Return the server behind streamable HTTP."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        wbufsize = -1  # one packet for head and body

        def do_POST(self) -> None:
            message = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            if self.path != "/mcp":
                self.send_error(404)
                return
            if "redirect" in server.faults:
                self.send_response(307)
                self.send_header("Location", server.faults["redirect"])
                self.send_header("Content-Length", "0")
                self.end_headers()
                return
            if message.get("method") in server.faults.get("cut", ()):
                self.close_connection = True
                self.connection.close()
                return
            answer = server.answer(message)
            data = b"" if answer is None else json.dumps(answer).encode()
            self.send_response(202 if answer is None else 200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def do_GET(self) -> None:
            self.send_response(405)
            self.send_header("Content-Length", "0")
            self.end_headers()

        do_DELETE = do_GET

        def log_message(self, format: str, *args: Any) -> None:
            pass

    return ThreadingHTTPServer(("127.0.0.1", port), Handler)


def serve_program(server: SkillsServer, read_faults: Callable[[], dict[str, Any]]) -> None:
    """Serve stdin and stdout. Report a change of the list when ``announced`` in the faults is raised."""
    listeners: list[Any] = []
    writing = threading.Lock()

    def say(message: dict[str, Any]) -> None:
        with writing:
            print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)

    def report() -> None:
        seen = read_faults().get("announced", 0)
        while True:
            time.sleep(0.02)
            if (count := read_faults().get("announced", 0)) > seen:
                seen = count
                for meta in listeners or [{}]:
                    say({"method": "notifications/resources/list_changed", "params": {"_meta": meta}})

    threading.Thread(target=report, daemon=True).start()
    for line in sys.stdin:
        message = json.loads(line)
        server.faults = read_faults()
        if message.get("method") in server.faults.get("cut", ()):
            os._exit(1)
        if message.get("method") == "subscriptions/listen":
            listeners.append({"io.modelcontextprotocol/subscriptionId": message["id"]})
            honored = {"notifications": {"resourcesListChanged": True}, "_meta": listeners[-1]}
            say({"method": "notifications/subscriptions/acknowledged", "params": honored})
            server.note("subscriptions/listen", "")
        elif (found := server.answer(message)) is not None:
            say(found)


if __name__ == "__main__":
    folder, faults, log = map(Path, sys.argv[1:])
    serve_program(SkillsServer(folder, log=log), lambda: json.loads(faults.read_text()))
