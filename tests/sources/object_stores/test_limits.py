"""Downloads that are too large, and disks that are full."""

from __future__ import annotations

import contextlib
import errno
import io
import json
import os
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest

from flink_skills.sources import RemoteFile
from tests.kit.exchanges import serving
from tests.sources.object_stores.buckets import Endpoint
from tests.sources.object_stores.faults import FaultyProxy, faulty_proxy
from tests.sources.object_stores.reading import Reader, zip_bytes
from tests.sources.web import Page, Web

LIMIT = 200_000


@pytest.fixture
def proxy(moto: Endpoint) -> Iterator[FaultyProxy]:
    with faulty_proxy(moto.url) as between:
        yield between


@pytest.fixture
def s3(moto: Endpoint, proxy: FaultyProxy, reader: Reader) -> Reader:
    reader.options = {"s3": moto.at(proxy.url).options()}
    return reader


def test_an_object_that_is_too_large_is_not_even_read(s3: Reader, moto: Endpoint, proxy: FaultyProxy) -> None:
    moto.put("skills", "large.bin", bytes(LIMIT + 1))
    error = s3.failure("s3://skills/large.bin", limit=LIMIT)
    assert f"the source exceeds the limit of {LIMIT} bytes; reduce it, or raise skills.limits.download" in str(error)
    assert not error.retryable
    assert proxy.count("GET") == 0
    assert len(s3.fetch("s3://skills/large.bin", limit=LIMIT + 1)) == LIMIT + 1


def test_the_option_sets_the_limit(s3: Reader, moto: Endpoint) -> None:
    moto.put("skills", "skills.zip", zip_bytes({"greet/data.bin": os.urandom(5000)}))
    s3.more = {"skills.limits.download": "4 kb"}
    with pytest.raises(Exception, match="exceeds the limit of 4096 bytes"):
        s3.resolve("s3://skills/skills.zip")
    assert not [path for path in (s3.folder / "store").rglob("*") if path.is_file() and path.stat().st_size > 1000]


class Endless(BaseHTTPRequestHandler):
    """Sends without a word on how much it will be, until the other side hangs up."""

    sent = 0

    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        with contextlib.suppress(OSError):
            while Endless.sent < 1 << 30:
                Endless.sent += self.wfile.write(bytes(1 << 16))

    def log_message(self, *_: object) -> None:
        """Silent."""


def test_a_page_that_says_that_it_is_too_large(web: Web, reader: Reader) -> None:
    web.pages["/large.bin"] = Page(bytes(LIMIT + 1))
    error = reader.failure(f"{web.url}/large.bin", limit=LIMIT)
    assert f"exceeds the limit of {LIMIT} bytes" in str(error)
    assert not (reader.folder / "fetched").exists()
    assert web.count("GET") == 1


def test_a_page_that_does_not_end(reader: Reader) -> None:
    with serving(Endless) as url:
        error = reader.failure(f"{url}/s.zip", limit=LIMIT)
    assert f"exceeds the limit of {LIMIT} bytes" in str(error)
    assert not error.retryable
    # Stopped within the pieces that are read at once and the buffers between, not at what the server would send.
    assert (reader.folder / "fetched").stat().st_size < 20 << 20
    assert Endless.sent < 1 << 30


def test_a_full_disk(s3: Reader, moto: Endpoint, web: Web, proxy: FaultyProxy) -> None:
    """``/dev/full`` is a disk without space."""
    moto.put("skills", "f.bin", bytes(LIMIT))
    web.pages["/f.bin"] = Page(bytes(LIMIT))
    for url in ("s3://skills/f.bin", f"{web.url}/f.bin"):
        error = s3.failure(url, target="/dev/full")
        assert f"cannot be written ({os.strerror(errno.ENOSPC)}); free some space" in str(error)
        assert "skills.store.dir" in str(error)
        assert error.retryable
    assert proxy.count("GET") == web.count("GET") == 1, "a full disk is no reason to ask the server again"


def test_a_folder_that_may_not_be_written(s3: Reader, moto: Endpoint, tmp_path: Path) -> None:
    moto.put("skills", "f.bin", bytes(1000))
    error = s3.failure("s3://skills/f.bin", target=str(tmp_path / "none" / "f.bin"))
    assert "cannot be written (No such file or directory)" in str(error)
    assert not error.retryable


_LIMITED = """
import json, resource, sys, time
from flink_skills.errors import SourceError
from flink_skills.options import SkillConfig
from flink_skills.sources import SourceContext, open_source
url, options, store = sys.argv[1:]
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
try:
    open_source("url", url, SourceContext(SkillConfig(json.loads(options)), store_dir=store)).resolve()
except SourceError as error:
    print(error)
"""


def test_a_limit_on_the_size_of_files(web: Web, tmp_path: Path) -> None:
    web.pages["/s.zip"] = Page(zip_bytes({"greet/data.bin": os.urandom(LIMIT)}))
    options = json.dumps({"skills.source.allow-http": True, "skills.source.allow-private": True})
    store = tmp_path / "store"
    command = [sys.executable, "-c", _LIMITED, f"{web.url}/s.zip", options, str(store)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert f"skill source {web.url}/s.zip: the store {store} cannot be written (File too large)" in done.stdout
    assert not [path for path in store.rglob("*") if path.is_file() and path.stat().st_size > 0]


def test_memory_urls_take_the_same_way(reader: Reader) -> None:
    import fsspec

    memory = fsspec.filesystem("memory")
    memory.pipe("/object-stores/s.zip", zip_bytes())
    assert reader.fetch("memory://object-stores/s.zip") == zip_bytes()
    first = reader.version("memory://object-stores/s.zip")
    assert first == reader.version("memory://object-stores/s.zip")
    memory.pipe("/object-stores/s.zip", zip_bytes({"a": b"changed"}))
    assert reader.version("memory://object-stores/s.zip") != first
    assert "exceeds the limit of 10 bytes" in str(reader.failure("memory://object-stores/s.zip", limit=10))
    assert "does not exist" in str(reader.failure("memory://object-stores/none.zip"))
    assert "is a folder" in str(reader.failure("memory://object-stores"))


def test_a_file_in_a_tar_and_what_is_none(reader: Reader) -> None:
    import fsspec

    memory = fsspec.filesystem("memory")
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        entry = tarfile.TarInfo("team/inner.zip")
        entry.size = len(zip_bytes())
        archive.addfile(entry, io.BytesIO(zip_bytes()))
    memory.pipe("/object-stores/all.tgz", buffer.getvalue())
    assert reader.fetch("tar://team/inner.zip::memory://object-stores/all.tgz") == zip_bytes()
    error = reader.failure("zip://team/inner.zip::memory://object-stores/all.tgz")
    assert "the URL after zip:: is not a zip" in str(error)
    assert not error.retryable
    memory.pipe("/object-stores/hostile.zip", zip_bytes({"../../out.zip": b"x", "in.zip": b"x"}))
    error = reader.failure("zip://in.zip::memory://object-stores/hostile.zip")
    assert "leaves the archive; the archive is refused" in str(error)
    assert [path.name for path in reader.folder.iterdir()] == ["fetched"], "nothing but the transfer's own file"


def test_the_name_is_that_of_the_innermost_file(reader: Reader) -> None:
    names = {
        "s3://bucket/team/a.zip?versionId=1": "a.zip",
        "zip://b.tar.gz::s3://bucket/a.zip": "b.tar.gz",
        "zip://greet/SKILL.md::zip://b.zip::memory://a.zip": "SKILL.md",
        "simplecache::memory://x/a%20b.zip": "a b.zip",
    }
    assert {url: RemoteFile(url, reader.context).name for url in names} == names
