"""Skills on disk, in archives and behind a web server, for the tests of the manager."""

from __future__ import annotations

import hashlib
import io
import zipfile

from tests.sources.web import Page

ALLOWED = {"skills.source.allow-http": True, "skills.source.allow-private": True}


def zip_bytes(files: dict[str, str | bytes]) -> bytes:
    """An archive with these files, the same bytes for the same files."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, data in files.items():
            archive.writestr(zipfile.ZipInfo(name), data)
    return buffer.getvalue()


def page(data: bytes) -> Page:
    """A page that a client can ask about without fetching it."""
    return Page(data, headers={"ETag": f'"{hashlib.sha256(data).hexdigest()[:16]}"'})
