"""OCI image archives from folders, without an engine: what ``ctr images import`` and ``docker load`` take."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import stat
import tarfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, cast

_MEDIA = "application/vnd.oci.image"
#: What lstat says of a file, as far as a layer keeps it.
Mark = tuple[int, int, int, int, int]
#: The marks of all files below a folder, by relative path.
Snapshot = Mapping[str, Mark]


@dataclass(frozen=True)
class Layer:
    """A layer as a file on disk. ``size`` is that of the compressed file, ``unpacked`` of the files in it, in bytes."""

    title: str
    path: Path
    digest: str
    diff_id: str
    size: int
    unpacked: int


def snapshot(root: Path) -> Snapshot:
    """What is below ``root`` now; a later snapshot shows what a step changed."""
    return {relative: _mark(root / relative) for relative in _walk(root)}


def write_layer(title: str, root: Path, before: Snapshot, target: Path, prefix: str = "") -> Layer:
    """Write what differs from ``before``, and whiteouts for what is gone, to ``target`` (tar, gzip)."""
    now = snapshot(root)
    changed = [name for name, mark in now.items() if before.get(name) != mark]
    gone = [name for name in before if name not in now and str(Path(name).parent) in {*now, "."}]
    unpacked = 0
    with target.open("wb") as file:
        zipped = _Digesting(file)
        with gzip.GzipFile(fileobj=cast(IO[bytes], zipped), mode="wb", compresslevel=1, mtime=0, filename="") as stream:
            plain = _Digesting(stream)
            with tarfile.open(fileobj=cast(IO[bytes], plain), mode="w|", format=tarfile.PAX_FORMAT) as tar:
                for name in sorted(changed):
                    tar.add(root / name, arcname=f"{prefix}{name}", recursive=False, filter=_anonymous)
                    unpacked += now[name][3] if stat.S_ISREG(now[name][0]) else 0
                for name in sorted(gone):
                    mark = tarfile.TarInfo(f"{prefix}{Path(name).parent}/.wh.{Path(name).name}")
                    tar.addfile(mark)
    return Layer(title, target, zipped.digest, plain.digest, target.stat().st_size, unpacked)


def write_archive(target: Path, images: Mapping[str, tuple[list[Layer], dict[str, Any]]], architecture: str) -> None:
    """Write the images, by reference, with their layers and their configuration (``User``, ``Env`` …) to ``target``."""
    documents: dict[str, bytes] = {}
    layers: dict[str, Layer] = {}
    manifests = []
    for reference, (parts, config) in images.items():
        layers.update({layer.digest: layer for layer in parts})
        image = {
            "architecture": architecture,
            "os": "linux",
            "config": config,
            "rootfs": {"type": "layers", "diff_ids": [layer.diff_id for layer in parts]},
            "history": [{"created_by": layer.title} for layer in parts],
        }
        described = [
            {"mediaType": f"{_MEDIA}.layer.v1.tar+gzip", "digest": layer.digest, "size": layer.size} for layer in parts
        ]
        manifest = {
            "schemaVersion": 2,
            "mediaType": f"{_MEDIA}.manifest.v1+json",
            "config": _described(documents, "config", image),
            "layers": described,
        }
        names = {"io.containerd.image.name": reference, "org.opencontainers.image.ref.name": reference}
        manifests.append({**_described(documents, "manifest", manifest), "annotations": names})
    with tarfile.open(target, "w") as tar:
        _add(tar, "oci-layout", _json({"imageLayoutVersion": "1.0.0"}))
        _add(tar, "index.json", _json({"schemaVersion": 2, "manifests": manifests}))
        for digest, content in documents.items():
            _add(tar, f"blobs/{digest.replace(':', '/')}", content)
        for digest, layer in layers.items():
            tar.add(layer.path, f"blobs/{digest.replace(':', '/')}", filter=_anonymous)


def _described(documents: dict[str, bytes], kind: str, document: Any) -> dict[str, Any]:
    content = _json(document)
    digest = f"sha256:{hashlib.sha256(content).hexdigest()}"
    documents[digest] = content
    return {"mediaType": f"{_MEDIA}.{kind}.v1+json", "digest": digest, "size": len(content)}


def _walk(root: Path) -> Iterator[str]:
    for folder, folders, files in os.walk(root):
        for name in (*folders, *files):
            yield os.path.relpath(Path(folder, name), root)


def _mark(path: Path) -> Mark:
    found = path.lstat()
    size = 0 if stat.S_ISDIR(found.st_mode) else found.st_size
    return found.st_mode, found.st_uid, found.st_gid, size, 0 if stat.S_ISDIR(found.st_mode) else found.st_mtime_ns


def _anonymous(info: tarfile.TarInfo) -> tarfile.TarInfo:
    info.uname = info.gname = ""
    return info


def _json(document: Any) -> bytes:
    return json.dumps(document, separators=(",", ":")).encode()


def _add(tar: tarfile.TarFile, name: str, content: bytes) -> None:
    info = tarfile.TarInfo(name)
    info.size = len(content)
    tar.addfile(info, io.BytesIO(content))


class _Digesting:
    """Passes on what is written, and knows its digest."""

    def __init__(self, target: IO[bytes] | gzip.GzipFile) -> None:
        self._target = target
        self._hash = hashlib.sha256()

    @property
    def digest(self) -> str:
        return f"sha256:{self._hash.hexdigest()}"

    def write(self, data: bytes) -> int:
        self._hash.update(data)
        return self._target.write(data)

    def flush(self) -> None:
        self._target.flush()
