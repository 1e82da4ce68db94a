"""A registry in this process for the tests of OCI sources: keeps what is pushed, and can misbehave."""

from __future__ import annotations

import base64
import gzip
import hashlib
import io
import json
import re
import tarfile
import threading
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from flink_skills.options import SkillConfig
from flink_skills.sources import SourceContext, SourceTree
from tests.sources.web import ALLOWED

SKILL_TYPE = "application/vnd.agentskills.skill.v1"
CONTENT_TYPE = "application/vnd.agentskills.skill.content.v1.tar+gzip"
EMPTY_TYPE = "application/vnd.oci.empty.v1+json"
IMAGE_CONFIG = "application/vnd.oci.image.config.v1+json"
IMAGE_LAYER = "application/vnd.oci.image.layer.v1.tar"
MANIFEST = "application/vnd.oci.image.manifest.v1+json"
INDEX = "application/vnd.oci.image.index.v1+json"
TITLE = "org.opencontainers.image.title"


def digest_of(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def tar_of(files: Mapping[str, bytes | str | None], *, packed: bool = True) -> bytes:
    """Return a tar. None is a folder, and a text is the target of a symbolic link."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name, data in files.items():
            entry = tarfile.TarInfo(name)
            if data is None:
                entry.type, entry.mode = tarfile.DIRTYPE, 0o755
            elif isinstance(data, str):
                entry.type, entry.linkname = tarfile.SYMTYPE, data
            else:
                entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data) if isinstance(data, bytes) else None)
    return gzip.compress(buffer.getvalue(), mtime=0) if packed else buffer.getvalue()


class OciServer:
    """Serves ``blobs`` (digest -> bytes) and ``manifests`` ((repository, tag or digest) -> (type, bytes)).

    ``answers`` replaces an answer: path -> function that gets the request's handler. ``requests`` has method, path and
    header ``Authorization`` of each request. ``login`` is required if it is set. ``scheme`` is ``basic``, or ``bearer``
    with the token server ``realm``.
    """

    def __init__(self, host: str = "127.0.0.1") -> None:
        self.host = host
        self.blobs: dict[str, bytes] = {}
        self.manifests: dict[tuple[str, str], tuple[str, bytes]] = {}
        self.answers: dict[str, Callable[[Any], None]] = {}
        self.requests: list[tuple[str, str, str]] = []
        self.login, self.scheme, self.realm = "", "basic", ""
        self.sends_digest = True
        self.closing = threading.Event()
        registry = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def _handle(self) -> None:
                registry.requests.append((self.command, self.path, self.headers.get("Authorization", "")))
                self.body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                answer = registry.answers.get(urlsplit(self.path).path)
                (answer or registry.answer)(self)

            do_GET = do_HEAD = do_POST = do_PUT = _handle

            def log_message(self, *_: Any) -> None:
                """Silent."""

        self._server = ThreadingHTTPServer((host, 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01})
        self._thread.start()

    @property
    def place(self) -> str:
        return f"{self.host}:{self._server.server_port}"

    @property
    def url(self) -> str:
        return f"http://{self.place}"

    def close(self) -> None:
        self.closing.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def paths(self, method: str = "GET") -> list[str]:
        return [path for seen, path, _ in self.requests if seen == method]

    def blob(self, data: bytes, media_type: str, **more: Any) -> dict[str, Any]:
        """Keep a blob. Return its descriptor."""
        self.blobs[digest_of(data)] = data
        return {"mediaType": media_type, "digest": digest_of(data), "size": len(data), **more}

    def file(self, path: str, data: bytes, media_type: str = "text/markdown") -> dict[str, Any]:
        return self.blob(data, media_type, annotations={TITLE: path})

    def put(self, repository: str, tag: str, document: dict[str, Any]) -> dict[str, Any]:
        """Keep a manifest or an index. Return its descriptor."""
        document = {"schemaVersion": 2, **document}
        data, media_type = json.dumps(document).encode(), document["mediaType"]
        for reference in (tag, digest_of(data)):
            self.manifests[repository, reference] = (media_type, data)
        return {"mediaType": media_type, "digest": digest_of(data), "size": len(data)}

    def artifact(self, repository: str, tag: str, layers: list[Any], kind: str = SKILL_TYPE) -> dict[str, Any]:
        config = self.blob(b"{}", EMPTY_TYPE)
        return self.put(
            repository, tag, {"mediaType": MANIFEST, "artifactType": kind, "config": config, "layers": layers}
        )

    def image(self, repository: str, tag: str, layers: list[bytes]) -> dict[str, Any]:
        config = self.blob(json.dumps({"architecture": "amd64", "os": "linux"}).encode(), IMAGE_CONFIG)
        kept = [self.blob(layer, f"{IMAGE_LAYER}+gzip") for layer in layers]
        return self.put(repository, tag, {"mediaType": MANIFEST, "config": config, "layers": kept})

    def index(self, repository: str, tag: str, members: list[Any], **more: Any) -> dict[str, Any]:
        return self.put(repository, tag, {"mediaType": INDEX, "manifests": members, **more})

    def send(self, handler: Any, status: int, data: bytes = b"", **headers: str) -> None:
        handler.send_response(status)
        for name, value in headers.items():
            handler.send_header(name.replace("_", "-"), value)
        handler.send_header("Content-Length", str(len(data)))
        handler.end_headers()
        if handler.command != "HEAD":
            handler.wfile.write(data)

    def answer(self, handler: Any) -> None:
        path, given = handler.path.partition("?")[0], handler.headers.get("Authorization", "")
        if path == "/token":
            self._send_token(handler, given)
            return
        basic = "Basic " + base64.b64encode(self.login.encode()).decode()
        if self.login and given != (basic if self.scheme == "basic" else "Bearer t0ken-of-registry"):
            challenge = 'Basic realm="r"'
            if self.scheme == "bearer":
                challenge = (
                    f'Bearer realm="{self.realm or self.url + "/token"}",service="s",scope="repository:other:push"'
                )
            self.send(handler, 401, WWW_Authenticate=challenge)
            return
        found = re.fullmatch(r"/v2/(.+)/(manifests|blobs)/([^/]+)/?", path)
        if handler.command in ("POST", "PUT"):
            self._take(handler, path)
        elif found and found[2] == "blobs" and found[3] in self.blobs:
            self.send(handler, 200, self.blobs[found[3]])
        elif found and found[2] == "manifests" and (found[1], found[3]) in self.manifests:
            media_type, data = self.manifests[found[1], found[3]]
            more = {"Docker_Content_Digest": digest_of(data)} if self.sends_digest else {}
            self.send(handler, 200, data, Content_Type=media_type, **more)
        else:
            self.send(handler, 404)

    def _send_token(self, handler: Any, given: str) -> None:
        asked = {**parse_qs(urlsplit(handler.path).query), **parse_qs(handler.body.decode())}
        identity = asked.get("refresh_token", [""])[0]
        basic = "Basic " + base64.b64encode(self.login.encode()).decode()
        if given == basic or identity == self.login:
            self.send(handler, 200, json.dumps({"token": "t0ken-of-registry"}).encode())
        else:
            self.send(handler, 401)

    def _take(self, handler: Any, path: str) -> None:
        query = parse_qs(urlsplit(handler.path).query)
        if handler.command == "POST":
            self.send(handler, 202, Location=f"{path}session?state=1")
        elif "digest" in query:
            assert digest_of(handler.body) == query["digest"][0]
            self.blobs[query["digest"][0]] = handler.body
            self.send(handler, 201, Location=path)
        else:
            repository, reference = re.fullmatch(r"/v2/(.+)/manifests/([^/]+)", path).groups()  # type: ignore[union-attr]
            for one in (reference, digest_of(handler.body)):
                self.manifests[repository, one] = (handler.headers["Content-Type"], handler.body)
            self.send(handler, 201)


def address(registry: OciServer, name: str) -> str:
    return f"oci://{registry.place}/{name}"


def context(folder: Path, *, refresh: bool = False, **options: Any) -> SourceContext:
    named = {f"skills.{name.replace('__', '.').replace('_', '-')}": value for name, value in options.items()}
    return SourceContext(SkillConfig({**ALLOWED, **named}), store_dir=str(folder / "store"), refresh=refresh)


def files_of(tree: SourceTree) -> dict[str, bytes]:
    root = Path(tree.path)
    return {file.relative_to(root).as_posix(): file.read_bytes() for file in root.rglob("*") if file.is_file()}
