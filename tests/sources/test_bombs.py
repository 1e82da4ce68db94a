"""Hostile archives, each opened by a process with little memory and time (format.md, section 4).

``python -m tests.sources.test_bombs`` prints what each of them took.
"""

from __future__ import annotations

import contextlib
import itertools
import multiprocessing
import re
import resource
import socket
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.pool import Pool
from pathlib import Path
from typing import NamedTuple

import pytest

from flink_skills.errors import SourceError
from flink_skills.options import SkillConfig
from flink_skills.skill import Limits
from flink_skills.sources import SourceContext, Store, open_source
from tests.sources import bombs
from tests.sources.web import ALLOWED, zip_bytes

MEMORY = 224 << 20  # most address space on top of what the process has; zstd's largest window is 128 MiB
SECONDS = 20  # of processor time; the slowest takes about two

CASES: dict[str, tuple[str, Callable[[Path], None], str]] = {
    "zip ratio": ("s.zip", bombs.zip_ratio, "200 times the archive"),
    "zip overlap": ("s.zip", bombs.zip_overlap, "overlaps"),
    "zip quoted overlap": ("s.zip", bombs.zip_quoted_overlap, "overlaps"),
    "tar.gz ratio": ("s.tar.gz", bombs.gz_ratio, "200 times the archive"),
    "tar.gz 8 GiB file": ("s.tar.gz", bombs.gz_one_large_file, "limit for a file"),
    "tar.gz endless padding": ("s.tar.gz", bombs.gz_zeros_after_the_end, "the content is larger than"),
    "gz in gz": ("s.tar.gz", bombs.gz_in_gz, "damaged"),
    "tar.bz2 ratio": ("s.tar.bz2", bombs.bz2_ratio, "200 times the archive"),
    "tar.xz ratio": ("s.tar.xz", bombs.xz_ratio, "200 times the archive"),
    "tar.xz dictionary": ("s.tar.xz", bombs.xz_memory, "damaged .*[Mm]emory"),
    "tar.zst ratio": ("s.tar.zst", bombs.zst_ratio, "200 times the archive"),
    "tar.zst window": ("s.tar.zst", bombs.zst_memory, "damaged .*memory"),
    "zip 100,000 entries": ("s.zip", bombs.zip_100_000, "more than 10000 entries"),
    "zip 90,000 hidden entries": ("s.zip", bombs.zip_100_000_hidden, "another number of entries"),
    "tar.gz 100,000 entries": ("s.tar.gz", bombs.tar_100_000, "more than 1000 entries"),
    "tar.gz implied folders": ("s.tar.gz", bombs.tar_implied_folders, "more than 400 files and directories"),
    "tar.gz long names": ("s.tar.gz", bombs.tar_long_names, "too long or too deep"),
    "zip lying size": ("s.zip", bombs.zip_lying_size, "larger than the 10 bytes"),
    "zip two headers": ("s.zip", bombs.zip_two_headers, "two headers"),
    "zip64 two directories": ("s.zip", bombs.zip64_two_directories, "two contradictory directories"),
    "zip64 entry": ("s.zip", bombs.zip64_entry, "two headers|limit for a file"),
    "zip two ends": ("s.zip", bombs.zip_two_ends, "leaves the archive"),
    "zip and garbage": ("s.zip", bombs.zip_garbage_after, "continues after its end"),
    "garbage and zip": ("s.zip", bombs.zip_garbage_before, "other data precedes it"),
    "zip and tar, as tar": ("s.tar", bombs.zip_and_tar, "truncated|damaged"),
    "zip and tar, as zip": ("s.zip", bombs.zip_and_tar, "the file is named like a zip but is a tar"),
    "tar huge header": ("s.tar", bombs.tar_huge_header, "65536 bytes of headers"),
    "tar.gz long name": ("s.tar.gz", bombs.tar_long_name, "65536 bytes of headers"),
    "tar chained headers": ("s.tar", bombs.tar_chained_headers, "65536 bytes of headers"),
    "tar slow header": ("s.tar", bombs.tar_slow_header, "extended header"),
    "tar.gz global headers": ("s.tar.gz", bombs.tar_global_headers, "headers for one entry, or too many"),
    "tar.gz sparse": ("s.tar.gz", bombs.tar_sparse, "65536 bytes of headers"),
    "tar old sparse": ("s.tar", bombs.tar_old_sparse, "65536 bytes of headers"),
    "tar and garbage": ("s.tar", bombs.tar_garbage_after, "continues after its end"),
    "tar.gz and garbage": ("s.tar.gz", bombs.gz_garbage_after, "damaged"),
    "tar.gz wrong checksum": ("s.tar.gz", bombs.gz_wrong_checksum, "damaged"),
}
# Smaller than the defaults where the archive is good up to its limit: what comes before is written, which takes time.
LIMITS = {
    "tar.gz implied folders": Limits(entries=200),
    "tar.gz 100,000 entries": Limits(entries=1000),
    "tar.gz endless padding": Limits(total=32 << 20),
}
HARMLESS: dict[str, tuple[str, Callable[[Path], None]]] = {
    "zip in zip in zip": ("s.zip", bombs.zip_nested),
}


class Outcome(NamedTuple):
    """What came of an archive: the refusal or "", processor seconds, peak memory in MiB beyond the start's."""

    refusal: str
    seconds: float
    mebibytes: float


def open_archive(path: str, store: str, limits: Limits) -> Outcome:
    start = time.process_time()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    now = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (now + MEMORY, now + MEMORY))
    resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))
    try:
        Store(store, limits).add_archive(path, path).lease.close()
        refusal = ""
    except SourceError as error:
        refusal = str(error)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    return Outcome(refusal, time.process_time() - start, peak / 1024)


def limited(pool: Pool, path: Path, store: Path, limits: Limits) -> Outcome:
    return pool.apply_async(open_archive, (str(path), str(store), limits)).get(120)


@contextmanager
def one_process_each() -> Iterator[Pool]:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(bombs.PRELOADED)
    with context.Pool(1, maxtasksperchild=1) as made:
        yield made


@pytest.fixture(scope="module")
def pool() -> Iterator[Pool]:
    with one_process_each() as made:
        yield made


def files_in(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if not path.is_dir()]


@pytest.mark.parametrize("case", CASES)
def test_is_refused(case: str, tmp_path: Path, pool: Pool) -> None:
    name, make, reason = CASES[case]
    if ".zst" in name:
        pytest.importorskip("zstandard")
    path = tmp_path / name
    make(path)
    outcome = limited(pool, path, tmp_path / "store", LIMITS.get(case, Limits()))
    assert outcome.refusal.startswith(f"skill source {path}: ")
    assert re.search(reason, outcome.refusal), outcome.refusal
    assert len(outcome.refusal) < 500
    assert files_in(tmp_path) == [path]
    assert {found.name for found in (tmp_path / "store").iterdir()} <= {".work", ".locks"}


@pytest.mark.parametrize("case", HARMLESS)
def test_does_no_harm(case: str, tmp_path: Path, pool: Pool) -> None:
    name, make = HARMLESS[case]
    path = tmp_path / name
    make(path)
    outcome = limited(pool, path, tmp_path / "store", LIMITS.get(case, Limits()))
    assert outcome.refusal == ""
    assert sum(found.stat().st_size for found in files_in(tmp_path / "store")) < 4 << 20


def main() -> None:
    """Print a table of all cases."""
    print(f"{'case':28} {'bytes':>10} {'s':>6} {'MiB':>6}  refusal")
    with one_process_each() as made:
        for case, (name, make, *_) in {**CASES, **HARMLESS}.items():
            with tempfile.TemporaryDirectory() as folder:
                path = Path(folder, name)
                make(path)
                outcome = limited(made, path, Path(folder, "store"), LIMITS.get(case, Limits()))
                why = outcome.refusal.partition(": ")[2][:90]
                size = path.stat().st_size
                print(f"{case:28} {size:>10} {outcome.seconds:>6.2f} {outcome.mebibytes:>6.1f}  {why}", flush=True)


if __name__ == "__main__":
    main()


Answer = Callable[[], Iterator[bytes]]
OK = b"HTTP/1.1 200 OK\r\n"
SKILLS = zip_bytes()


class RawServer:
    """Sends ``answer`` to each request, byte by byte as it is, until the client has gone."""

    def __init__(self, answer: Answer) -> None:
        self._answer = answer
        self._socket = socket.create_server(("127.0.0.1", 0))
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._socket.getsockname()[1]}/s.zip"

    def _serve(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self._socket.accept()
                with connection, contextlib.suppress(OSError):
                    connection.settimeout(5)
                    connection.recv(65_536)
                    for data in self._answer():
                        connection.sendall(data)

    def close(self) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self._thread.join()


def fields() -> Iterator[bytes]:
    """Yield header fields without end."""
    return (b"X-%d: %s\r\n" % (number, b"a" * 4_000) for number in itertools.count())


def once(*parts: bytes) -> Answer:
    return lambda: iter(parts)


@pytest.mark.usefixtures("no_waits")
@pytest.mark.parametrize(
    ("answer", "told"),
    [
        pytest.param(lambda: itertools.chain([OK], fields()), "is not valid HTTP", id="endless header"),
        pytest.param(
            lambda: itertools.chain([OK, b"Transfer-Encoding: chunked\r\n\r\n0\r\n"], fields()),
            "is not valid HTTP",
            id="endless trailer",
        ),
        pytest.param(
            lambda: itertools.repeat(b"HTTP/1.1 103 Early Hints\r\n\r\n" * 1_000), "within 2 s", id="endless hints"
        ),
        pytest.param(
            lambda: itertools.chain([OK, b"Transfer-Encoding: chunked\r\n\r\n1;"], itertools.repeat(b"a" * 65_536)),
            "within 2 s",
            id="endless extension of a chunk",
        ),
        pytest.param(once(OK, b"Content-Length: 999999\r\n\r\n", SKILLS), "transfer failed", id="too long"),
        pytest.param(
            once(OK, b"Content-Length: 20\r\n\r\n", SKILLS),
            "is not valid HTTP|zip archive is incomplete|transfer failed",
            id="too short",
        ),
        pytest.param(
            once(OK, b"Content-Length: 20\r\nContent-Length: %d\r\n\r\n" % len(SKILLS), SKILLS),
            "is not valid HTTP",
            id="two lengths",
        ),
        pytest.param(once(OK, b"Content-Length: -5\r\n\r\n", SKILLS), "is not valid HTTP", id="negative length"),
        pytest.param(
            once(b"HTTP/1.1 206 Partial Content\r\nContent-Range: bytes 0-19/20\r\n\r\n", SKILLS[:20]),
            "the server returned 206",
            id="part",
        ),
        pytest.param(
            once(b'HTTP/1.1 304 Not Modified\r\nETag: "x"\r\n\r\n'), "the server returned 304", id="not modified"
        ),
        pytest.param(once(b"\0\xff" * 50_000), "is not valid HTTP", id="garbage"),
        pytest.param(
            once(b"HTTP/1.1 302 Found\r\nLocation: file:///etc/passwd\r\nContent-Length: 0\r\n\r\n"),
            "redirects to an address that is not allowed",
            id="redirect to a file",
        ),
        pytest.param(
            once(b"HTTP/1.1 302 Found\r\nLocation: //[::ffff:169.254.169.254]/\r\nContent-Length: 0\r\n\r\n"),
            "redirects to an address that is not allowed",
            id="redirect to metadata",
        ),
    ],
)
def test_an_answer_that_breaks_the_rules_is_an_error(tmp_path: Path, answer: Answer, told: str) -> None:
    server = RawServer(answer)
    store = tmp_path / "store"
    config = SkillConfig({**ALLOWED, "skills.source.timeout": "2 s"})
    try:
        with pytest.raises(SourceError, match=told):
            open_source("url", server.url, SourceContext(config, store_dir=str(store))).resolve()
    finally:
        server.close()
    assert [path for path in store.iterdir() if not path.name.startswith(".")] == []
    assert list((store / ".work").glob("*")) == []
