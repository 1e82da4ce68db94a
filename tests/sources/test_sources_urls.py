"""Skills behind URLs: what is fetched, when it is asked for again, and where it may lead.

Examines the internals of sources.http on purpose.
"""

import gzip
import hashlib
import json
import logging
import multiprocessing
import os
import re
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import fsspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from yarl import URL

from flink_skills.errors import ConfigError, SourceError
from flink_skills.options import SkillConfig
from flink_skills.skill import Limits
from flink_skills.sources import AddressPolicy, FetchRecord, SourceContext, SourceTree, open_source, remove_tree
from flink_skills.sources.remote_system import GuardedClient
from tests.kit.waiting import MARGIN
from tests.sources.web import ALLOWED, SKILL, Page, Web, zip_bytes

pytestmark = pytest.mark.usefixtures("no_waits")

OTHER = zip_bytes({"b/SKILL.md": SKILL})


@pytest.fixture
def store(tmp_path: Path) -> str:
    return str(tmp_path / "store")


def context(store: str, *, refresh: bool = False, **options: object) -> SourceContext:
    config = SkillConfig({**ALLOWED, **{f"skills.{name}": value for name, value in options.items()}})
    return SourceContext(config, store_dir=store, refresh=refresh)


def resolve(url: Any, store: str, **options: Any) -> SourceTree:
    [tree] = open_source("url", url, context(store, **options)).resolve()
    return tree


def failure(url: str, store: str, **options: Any) -> SourceError:
    with pytest.raises(SourceError) as caught:
        resolve(url, store, **options)
    assert list((Path(store) / ".work").glob("*")) == []
    # Tracebacks do not show a context, but those who collect errors may walk through it.
    assert caught.value.__cause__ is None and caught.value.__context__ is None
    return caught.value


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def tagged(data: bytes, **more: Any) -> Page:
    return Page(data, headers={"ETag": f'"{sha256(data)}"'}, **more)


# What is fetched


@pytest.mark.row("B7")
@pytest.mark.parametrize("name", ["s.zip", "unnamed", "my%20skills.zip", "deep/s.zip"])
def test_an_archive_behind_a_url(web: Web, store: str, name: str) -> None:
    web.pages[f"/{name}"] = Page(zip_bytes())
    tree = resolve(f"{web.url}/{name}", store)
    assert (tree.remote, tree.version, tree.origin) == (True, sha256(zip_bytes()), f"{web.url}/{name}")
    assert tree.path == f"{store}/{tree.version}"
    assert tree.index is not None
    assert tree.lease is not None
    assert not tree.lease.closed
    assert Path(tree.path, "skills/greet/SKILL.md").read_bytes() == SKILL


def test_spaces_and_other_letters_in_a_url_are_encoded(web: Web, store: str) -> None:
    web.pages["/my%20sk%C3%AFlls.zip"] = Page(zip_bytes())
    assert resolve(f"{web.url}/my sk\u00eflls.zip", store).remote


@pytest.mark.row("B6")
def test_a_bare_skill_file(web: Web, store: str) -> None:
    web.pages["/some/skill.md"] = Page(SKILL)
    tree = resolve(f"{web.url}/some/skill.md?raw=1", store)
    assert [str(p.relative_to(tree.path)) for p in Path(tree.path).rglob("*.md")] == ["greet/SKILL.md"]
    web.pages["/long/SKILL.md"] = Page(SKILL * 10)
    given = context(store)
    given.limits = Limits(skill_file=100)
    with pytest.raises(SourceError, match=r"the limit for a SKILL.md is 100 \(skills\.limits\.skill-file\)"):
        open_source("url", f"{web.url}/long/SKILL.md", given).resolve()


@pytest.mark.row("B4")
def test_other_file_systems(store: str) -> None:
    memory = fsspec.filesystem("memory")
    memory.pipe("/skills-test/s.zip", zip_bytes())
    assert Path(resolve("memory://skills-test/s.zip", store).path, "skills/greet").is_dir()
    assert "is a folder" in str(failure("memory://skills-test", store))
    memory.pipe("/skills-test/all.zip", zip_bytes({"in/inner.zip": OTHER}))
    inner = "zip://in/inner.zip::memory://skills-test/all.zip"
    assert Path(resolve(inner, store).path, "b/SKILL.md").read_bytes() == SKILL


def test_bytes_are_taken_as_they_are(web: Web, store: str) -> None:
    """A server that says that a tar.gz is a tar in transit must not change its digest."""
    import io
    import tarfile

    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        info = tarfile.TarInfo("greet/SKILL.md")
        info.size = len(SKILL)
        archive.addfile(info, io.BytesIO(SKILL))
    data = gzip.compress(buffer.getvalue(), mtime=0)
    web.pages["/s.tar.gz"] = Page(data, headers={"Content-Encoding": "gzip"})
    tree = resolve(f"{web.url}/s.tar.gz#sha256={sha256(data)}", store)
    assert tree.version == sha256(data)
    assert web.seen[0]["accept-encoding"] == "identity"


@pytest.mark.parametrize(
    ("name", "data"), [("s.zip", zip_bytes()), ("SKILL.md", SKILL), ("deeper/skill.md", SKILL), ("s", zip_bytes())]
)
def test_what_comes_compressed_though_nobody_asked_is_the_file_itself(
    web: Web, store: str, name: str, data: bytes
) -> None:
    web.pages[f"/{name}"] = Page(gzip.compress(data), headers={"Content-Encoding": "GZIP"})
    tree = resolve(f"{web.url}/{name}#sha256={sha256(data)}", store)
    assert tree.version == sha256(data)


@pytest.mark.parametrize(
    ("body", "encoding", "said"),
    [
        (gzip.compress(b"x" * 5000), "gzip", "exceeds the limit of 4000 bytes"),
        (gzip.compress(zip_bytes())[:-9], "gzip", "the server declares gzip"),
        (zip_bytes(), "x-gzip", "the server declares gzip"),
        (zip_bytes(), "br", r"unrequested encoding \(br\)"),
        (zip_bytes(), "s3cret 1", r"unrequested encoding \(\?\)"),
    ],
    ids=["large", "cut", "not-gzip", "br", "no-token"],
)
def test_what_comes_encoded_and_cannot_be_read(web: Web, store: str, body: bytes, encoding: str, said: str) -> None:
    web.pages["/s.zip"] = Page(body, headers={"Content-Encoding": encoding})
    error = failure(f"{web.url}/s.zip", store, **{"limits.download": 4000})
    assert re.search(said, str(error)) and not error.retryable


@pytest.mark.parametrize("host", ["127.1", "2130706433", "1.2.3.4.5"])
def test_a_host_that_only_some_programs_understand(web: Web, store: str, host: str) -> None:
    error = failure(f"{web.url_as(host)}/s.zip", store)
    assert "the address is invalid; check its host" in str(error) and not error.retryable


@pytest.mark.parametrize("status", [204, 206, 302, 304])
def test_an_answer_without_the_file_is_no_empty_file(web: Web, store: str, status: int) -> None:
    web.pages["/s.zip"] = Page(zip_bytes() if status == 206 else b"", status=status)
    error = failure(f"{web.url}/s.zip", store)
    assert f"the server returned {status} instead of the file" in str(error) and not error.retryable


@pytest.mark.parametrize(
    "body",
    [
        b"<!DOCTYPE html><html>sign in</html>",
        b"\xef\xbb\xbf\n <HTML lang=en>",
        b"<?xml version='1.0'?><!DOCTYPE html PUBLIC ''><html>",
    ],
)
@pytest.mark.parametrize("name", ["s.zip", "page", "SKILL.md"])
def test_a_web_page_is_called_one(web: Web, store: str, body: bytes, name: str) -> None:
    web.pages[f"/{name}"] = Page(body)
    error = failure(f"{web.url}/{name}", store)
    assert "is a web page, not an archive or a SKILL.md; give the address of the file itself" in str(error)
    assert not error.retryable


def test_a_skill_with_html_in_it_is_no_web_page(web: Web, store: str) -> None:
    web.pages["/SKILL.md"] = Page(SKILL + b"<html><head>")
    assert resolve(f"{web.url}/SKILL.md", store).remote


# Pins


def test_pinned_content_that_is_there_is_never_asked_for(web: Web, store: str) -> None:
    web.pages["/s.zip"] = Page(zip_bytes())
    url = f"{web.url}/s.zip#sha256={sha256(zip_bytes()).upper()}"
    tree = resolve(url, store)
    assert web.requests == [("GET", "/s.zip")]
    for options in ({}, {"store.check": "always"}, {"refresh": True}):
        assert resolve(url, store, **options) == tree
    web.close()
    assert resolve(url, store) == tree
    # Not even under another address: the pin says what it is.
    assert resolve(f"{web.url}/gone.zip#sha256={tree.version}", store).path == tree.path
    assert len(web.requests) == 1


def test_other_content_than_the_pinned_is_refused(web: Web, store: str) -> None:
    web.pages["/s.zip"] = tagged(zip_bytes())
    resolve(f"{web.url}/s.zip", store)
    web.pages["/s.zip"] = tagged(OTHER)
    pinned = f"{web.url}/s.zip#sha256={'0' * 64}"
    # What is noted for the URL, and the server's word that it is unchanged, say nothing about the pin.
    assert "differs from the pinned one" in str(failure(pinned, store, **{"store.check": "never"}))
    error = failure(pinned, store)
    assert f"the sha256 is {sha256(OTHER)}, which differs from the pinned one; check what changed" in str(error)
    assert not error.retryable
    assert not Path(store, sha256(OTHER)).exists()
    assert resolve({"url": f"{web.url}/s.zip", "sha256": sha256(OTHER)}, store).version == sha256(OTHER)


def test_a_pin_replaces_what_was_noted_for_the_url(web: Web, store: str) -> None:
    web.pages["/s.zip"] = tagged(zip_bytes())
    first = resolve(f"{web.url}/s.zip", store)
    assert resolve(f"{web.url}/s.zip#sha256={first.version}", store) == first
    web.pages["/s.zip"] = tagged(OTHER)
    assert resolve(f"{web.url}/s.zip#sha256={sha256(OTHER)}", store).version == sha256(OTHER)
    assert resolve(f"{web.url}/s.zip", store).version == sha256(OTHER)


# When a server is asked again


def test_on_open_asks_once_for_each_opening(web: Web, store: str) -> None:
    web.pages["/s.zip"] = tagged(zip_bytes())
    url = f"{web.url}/s.zip"
    first = resolve(url, store)
    assert resolve(url, store) == first
    assert web.requests == [("GET", "/s.zip"), ("HEAD", "/s.zip")]
    one = context(store)
    for _ in range(3):
        assert open_source("url", url, one).resolve() == [first]
    assert web.count("HEAD") == 2
    web.pages["/s.zip"] = tagged(OTHER)
    assert resolve(url, store) != first
    assert (web.count("GET"), web.count("HEAD")) == (2, 3)


def test_processes_of_one_opening_may_share_its_time(web: Web, store: str) -> None:
    web.pages["/s.zip"] = Page(zip_bytes())  # nothing to tell versions by
    began = time.time()
    for _ in range(3):
        given = SourceContext(SkillConfig(ALLOWED), store_dir=store, opened=began)
        open_source("url", f"{web.url}/s.zip", given).resolve()
    assert web.requests == [("GET", "/s.zip")]


def test_a_refresh_asks(web: Web, store: str) -> None:
    web.pages["/s.zip"] = tagged(zip_bytes())
    one = context(store, refresh=True)
    source = open_source("url", f"{web.url}/s.zip", one)
    first = source.resolve()
    assert source.resolve() == first
    web.pages["/s.zip"] = tagged(OTHER)
    assert source.resolve()[0].version == sha256(OTHER)
    assert (web.count("GET"), web.count("HEAD")) == (2, 2)


def test_always_asks_each_time(web: Web, store: str) -> None:
    web.pages["/s.zip"] = tagged(zip_bytes())
    one = context(store, **{"store.check": "always"})
    for _ in range(3):
        open_source("url", f"{web.url}/s.zip", one).resolve()
    assert (web.count("GET"), web.count("HEAD")) == (1, 2)


@pytest.mark.row("B7")
def test_never_asks_for_what_is_in_the_store(web: Web, store: str) -> None:
    web.pages["/s.zip"] = tagged(zip_bytes())
    url, never = f"{web.url}/s.zip", {"store.check": "never"}
    first = resolve(url, store, **never)
    web.pages["/s.zip"] = tagged(OTHER)
    assert resolve(url, store, **never) == first
    assert resolve(url, store, refresh=True, **never) == first
    assert web.requests == [("GET", "/s.zip")]
    remove_tree(first.path)
    assert resolve(url, store, **never).version == sha256(OTHER)


def test_a_server_that_says_nothing_of_versions_is_asked_for_the_file(web: Web, store: str) -> None:
    web.pages["/s.zip"] = Page(zip_bytes())
    first = resolve(f"{web.url}/s.zip", store)
    assert resolve(f"{web.url}/s.zip", store) == first
    assert web.count("GET") == 2


def test_a_server_without_head_is_asked_for_the_file(web: Web, store: str) -> None:
    web.pages["/s.zip"] = lambda number: tagged(zip_bytes())
    first = resolve(f"{web.url}/s.zip", store)
    web.pages["/s.zip"] = lambda number: tagged(zip_bytes()) if number > 1 else Page(status=405)
    assert resolve(f"{web.url}/s.zip", store) == first
    assert web.requests == [("GET", "/s.zip"), ("HEAD", "/s.zip"), ("GET", "/s.zip")]


def test_a_store_that_was_emptied_is_filled_again(web: Web, store: str) -> None:
    web.pages["/s.zip"] = tagged(zip_bytes())
    first = resolve(f"{web.url}/s.zip", store)
    remove_tree(first.path)
    assert resolve(f"{web.url}/s.zip", store) == first
    assert Path(first.path).is_dir()


def _open_once(url: str, store: str, ready: Any, go: Any, results: Any) -> None:
    given = context(store)
    ready.release()
    go.wait(60)
    results.put(open_source("url", url, given).resolve()[0].path)


def test_processes_that_open_at_once_download_once(web: Web, store: str) -> None:
    gate = threading.Event()
    web.pages["/s.zip"] = Page(zip_bytes(), gate=gate)  # nothing to tell versions by
    spawn = multiprocessing.get_context("spawn")
    ready, go, results = spawn.Semaphore(0), spawn.Event(), spawn.Queue()
    arguments = (f"{web.url}/s.zip", store, ready, go, results)
    processes = [spawn.Process(target=_open_once, args=arguments) for _ in range(3)]
    for process in processes:
        process.start()
    for _ in processes:
        assert ready.acquire(timeout=60)
    go.set()
    gate.set()  # all of them have begun to open before the server answers any
    paths = {results.get(timeout=60) for _ in processes}
    for process in processes:
        process.join(60)
        assert process.exitcode == 0
    assert len(paths) == 1
    assert web.requests == [("GET", "/s.zip")]


# The record of what was fetched


def record_of(store: str) -> Path:
    [record] = (Path(store) / ".urls").iterdir()
    return record


def test_a_record_is_a_note_and_no_authority(web: Web, store: str, tmp_path: Path) -> None:
    url = f"{web.url}/s.zip"
    web.pages["/s.zip"] = tagged(zip_bytes())
    tree = resolve(url, store)
    record = record_of(store)
    good = json.loads(record.read_text())
    assert good["sha256"] == sha256(zip_bytes())
    assert record.stat().st_mode & 0o077 == 0 or record.parent.stat().st_mode & 0o077 == 0
    (tmp_path / "outside" / "evil").mkdir(parents=True)
    (tmp_path / "outside" / "evil" / "SKILL.md").write_bytes(SKILL)
    (Path(store) / ("a" * 64)).symlink_to(tmp_path / "outside")
    for text in (
        "",
        record.read_text()[:20],
        "[]",
        "{}",
        "null",
        "[" * 100_000,
        "\udcff".encode(errors="surrogateescape"),
        *(
            json.dumps({**good, **wrong})
            for wrong in (
                {"format": 1},
                {"format": "2"},
                {"sha256": "../../outside"},
                {"sha256": str(tmp_path / "outside")},
                {"sha256": "a" * 64},
                {"sha256": "b" * 64},
                {"sha256": sha256(zip_bytes()).upper()},
                {"sha256": None},
                {"checked": "now"},
                {"checked": True},
                {"checked": float("inf")},
                {"checked": float("nan")},
                {"checked": 10**400},
                {"version": 7},
                {"text": []},
                {"more": 1},
            )
        ),
        json.dumps({name: good[name] for name in good if name != "version"}),
    ):
        record.write_bytes(text if isinstance(text, bytes) else text.encode())
        read = FetchRecord.read(str(record))
        assert read is None or read.sha256 in ("a" * 64, "b" * 64), "well formed, but nothing in the store"
        web.requests.clear()
        assert resolve(url, store, **{"store.check": "never"}) == tree
        assert web.requests == [("GET", "/s.zip")], text
        assert json.loads(record.read_text())["sha256"] == good["sha256"]


def test_a_clock_that_was_set_back_does_not_make_a_record_new_for_good(web: Web, store: str) -> None:
    web.pages["/s.zip"] = tagged(zip_bytes())
    resolve(f"{web.url}/s.zip", store)
    record = record_of(store)
    record.write_text(json.dumps({**json.loads(record.read_text()), "checked": time.time() + 1000}))
    resolve(f"{web.url}/s.zip", store)
    assert web.count("HEAD") == 1


def test_a_record_that_cannot_be_written_is_no_failure(
    web: Web, store: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    web.pages["/s.zip"] = tagged(zip_bytes())

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(FetchRecord, "write", full)
    assert resolve(f"{web.url}/s.zip", store).remote
    assert "cannot be noted (No space left on device)" in caplog.text


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.binary(max_size=200) | st.recursive(st.none() | st.floats() | st.text(), st.lists).map(repr))
def test_any_bytes_are_a_record_or_none(tmp_path: Path, data: bytes | str) -> None:
    path = tmp_path / "record.json"
    path.write_bytes(data if isinstance(data, bytes) else data.encode(errors="replace"))
    assert FetchRecord.read(str(path)) is None


@given(st.text(), st.none() | st.text(), st.floats(0, 1e12))
def test_a_record_survives_writing(text: str, version: str | None, checked: float) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        record = FetchRecord("a" * 64, version, checked, text)
        record.write(f"{folder}/r.json")
        assert FetchRecord.read(f"{folder}/r.json") == record
        assert [path.name for path in Path(folder).iterdir()] == ["r.json"]


# What goes wrong


@pytest.mark.parametrize(
    ("page", "said", "retryable"),
    [
        (Page(status=404), "does not exist", False),
        (Page(status=403), "access is refused", False),
        (Page(status=503), "503; try again", True),
        (Page(body=b"x" * 100, cut=10), "try again", True),
        (Page(body=b"hello"), "the zip archive is incomplete", False),
    ],
)
@pytest.mark.parametrize("chain", ["", "zip://a.zip::"])
def test_failures_have_one_type_and_no_secrets(
    web: Web, store: str, page: Page, said: str, retryable: bool, chain: str
) -> None:
    web.pages["/s.zip"] = page
    url = chain + web.url.replace("//", "//user:s3cret@") + "/s.zip?token=s3cret"
    error = failure(url, store)
    assert said in str(error) or (chain and page.body == b"hello")
    assert error.retryable == retryable
    assert "s3cret" not in str(error) + error.source
    assert f"{chain}{web.url}/s.zip" in str(error)
    assert web.count("GET") == (4 if retryable else 1)
    assert "s3cret" in web.requests[0][1]
    assert web.seen[0]["authorization"].startswith("Basic ")


# fsspec logs a URL before anything else happens, so the first one of a process counts.
_FIRST_IN_A_PROCESS = """
import logging, sys
from flink_skills.options import SkillConfig
from flink_skills.sources import SourceContext, open_source
logging.basicConfig(level=logging.DEBUG, format="%(name)s %(message)s")
options = {"skills.source.allow-http": True, "skills.source.allow-private": True}
open_source("url", sys.argv[1], SourceContext(SkillConfig(options), store_dir=sys.argv[2] + "-first")).resolve()
"""


def test_debug_logs_hold_no_secret(web: Web, store: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    web.pages["/s.zip"] = tagged(zip_bytes())
    url = web.url.replace("//", "//user:s3cret@") + "/s.zip?token=s3cret"
    for _ in range(2):
        resolve(url, store)
    failure(url.replace("s.zip", "gone.zip"), store)
    [*_, first] = subprocess.run(
        [sys.executable, "-c", _FIRST_IN_A_PROCESS, url, store], check=True, capture_output=True, text=True
    ).stderr.splitlines()
    assert "fsspec.http" in first and "s3cret" not in first
    assert [record for record in caplog.records if record.name == "fsspec.http"], "nothing was logged to be checked"
    assert "s3cret" not in caplog.text


@pytest.mark.parametrize(
    ("url", "options"),
    [
        ("http://u:s3/cret#s3cret@127.0.0.1/a.zip", {}),
        ("http://127.0.0.1:noport/a.zip?s3cret", {}),
        ("http://u:s3cret@[nohost]:1/a.zip?s3cret", {}),
        ("https://host/a.zip?s3cret", {"source.options": '{"https": {"token": "s3cret"'}),
    ],
)
def test_what_is_refused_at_once_keeps_no_secret_either(store: str, url: str, options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError) as caught:
        open_source("url", url, context(store, **options))
    assert caught.value.__context__ is None and caught.value.__cause__ is None
    assert "s3cret" not in repr(caught.value)


def test_a_transient_failure_is_tried_again(web: Web, store: str) -> None:
    web.pages["/s.zip"] = lambda number: Page(status=503) if number < 3 else Page(zip_bytes())
    assert resolve(f"{web.url}/s.zip", store).remote
    assert web.count("GET") == 3


def test_one_deadline_whatever_hangs(web: Web, store: str) -> None:
    web.pages["/s.zip"] = Page(hang=True)
    began = time.monotonic()
    error = failure(f"{web.url}/s.zip", store, **{"source.timeout": "300 ms"})
    assert "not read within 0.3 s" in str(error) and "skills.source.timeout" in str(error)
    assert error.retryable
    assert time.monotonic() - began < 0.3 + MARGIN


@pytest.mark.row("B10")
def test_a_download_that_is_too_large(web: Web, store: str) -> None:
    web.pages["/s.zip"] = Page(os.urandom(3000))
    error = failure(f"{web.url}/s.zip", store, **{"limits.download": 1000})
    assert "exceeds the limit of 1000" in str(error)
    assert web.count("GET") == 1


# References to secrets


def test_references_are_replaced_when_it_is_fetched(
    web: Web, store: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PASSWORD", "s3cret-word")
    (tmp_path / "part").write_text("s3cret-part\n")
    web.pages["/s3cret-part/s.zip"] = tagged(zip_bytes())
    place = web.url.replace("//", "//me:${env:PASSWORD}@") + "/${file:" + str(tmp_path / "part") + "}"
    tree = resolve(f"{place}/s.zip?t=${{env:PASSWORD}}", store)
    assert tree.origin == f"{web.url}/${{file:{tmp_path}/part}}/s.zip"
    assert web.requests == [("GET", "/s3cret-part/s.zip?t=s3cret-word")]
    assert not [path for path in Path(store).rglob("*.json") if "s3cret" in path.read_text() + path.name]
    # A path may be a secret as well: messages have the reference.
    web.pages["/s3cret-part/moved.zip"] = Page(status=302, headers={"Location": "http://10.0.0.1/s3cret-part/x"})
    for name, said in (("gone.zip", "does not exist"), ("moved.zip", "on another host")):
        error = failure(f"{place}/{name}", store)
        assert said in str(error)
        assert "s3cret" not in str(error) + error.source
        assert error.source == f"{web.url}/${{file:{tmp_path}/part}}/{name}"


def test_a_reference_that_is_missing_is_an_error_of_the_source(web: Web, store: str) -> None:
    error = failure(f"{web.url}/s.zip?t=${{env:NOT_SET_HERE}}", store)
    assert "the environment variable 'NOT_SET_HERE'" in str(error)
    assert not error.retryable
    assert web.requests == []


def test_a_host_by_reference_is_checked_where_it_is_known(
    web: Web, store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOST", f"127.0.0.1:{web.port}")
    web.pages["/s.zip"] = Page(zip_bytes())
    url = "http://${env:HOST}/s.zip"
    error = failure(url, store, **{"source.allow-private": False})
    assert "skills.source.allow-private" in str(error)
    assert "127.0.0.1" not in str(error)
    assert web.requests == []
    assert resolve(url, store).origin == url


# Where it may lead


def test_names_are_judged_by_the_addresses_that_are_connected_to(
    web: Web, store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    look_up = socket.getaddrinfo

    def resolve_to_loopback(host: Any, *arguments: Any, **named: Any) -> Any:
        return look_up("127.0.0.1" if host == "skills.example" else host, *arguments, **named)

    monkeypatch.setattr(socket, "getaddrinfo", resolve_to_loopback)
    web.pages["/s.zip"] = Page(zip_bytes())
    url = web.url_as("skills.example") + "/s.zip"
    error = failure(url, store, **{"source.allow-private": False})
    assert "skills.source.allow-private" in str(error)
    assert not error.retryable
    assert web.requests == []
    resolve(url, store)
    assert web.requests == [("GET", "/s.zip")]


def test_a_redirect_on_the_same_host_is_followed(web: Web, store: str) -> None:
    web.pages["/a.zip"] = Page(status=302, headers={"Location": "/b.zip"})
    web.pages["/b.zip"] = Page(status=307, headers={"Location": f"{web.url}/s.zip"})
    web.pages["/s.zip"] = tagged(zip_bytes())
    assert resolve(f"{web.url}/a.zip", store).remote
    assert resolve(f"{web.url}/a.zip", store).remote
    assert web.count("GET") == 3  # the second time by HEAD


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_redirect_to_another_host_needs_an_option(web: Web, store: str, status: int) -> None:
    web.pages["/a.zip"] = Page(status=status, headers={"Location": web.url_as("localhost") + "/s.zip?sig=s3cret"})
    web.pages["/s.zip"] = tagged(zip_bytes())
    url = f"{web.url}/a.zip"
    error = failure(url, store)
    assert f"redirects to an address that is not allowed: {web.url_as('localhost')}/s.zip is on another" in str(error)
    assert "add the host to skills.source.allowed-hosts or set skills.source.allow-redirects: true" in str(error)
    assert "s3cret" not in str(error)
    assert not error.retryable
    assert web.requests == [("GET", "/a.zip")]
    error = failure(url, store, **{"source.allow-redirects": True, "source.allowed-hosts": ["127.0.0.1"]})
    assert "the host localhost is not one of skills.source.allowed-hosts" in str(error)
    assert resolve(url, store, **{"source.allow-redirects": True}).remote
    assert resolve(url, store, **{"source.allowed-hosts": ["127.0.0.1", "localhost"]}).remote


@pytest.mark.parametrize(
    ("location", "options", "said"),
    [
        ("https:///nowhere", {}, "not allowed"),
        ("file:///etc/passwd", {}, "the redirect is not an http(s) URL"),
        ("ftp://127.0.0.1/x", {}, "the redirect is not an http(s) URL"),
        ("http://[::1/", {}, "not allowed"),
        ("http://169.254.169.254/latest", {"source.allow-private": False}, "skills.source.allow-private"),
        ("http://0x7f000001:{port}/s.zip", {"source.allow-private": False}, "skills.source.allow-private"),
        ("http://127\u3002\uff10.0.1:{port}/s.zip", {"source.allow-private": False}, "skills.source.allow-private"),
        ("http://private.example:{port}/s.zip", {"source.allow-private": False}, "skills.source.allow-private"),
    ],
)
def test_each_step_of_a_redirect_is_checked(
    web: Web, store: str, monkeypatch: pytest.MonkeyPatch, location: str, options: dict[str, object], said: str
) -> None:
    """The first host counts as public here: its name alone is taken for one that is."""
    look_up = socket.getaddrinfo

    def name(host: Any, *arguments: Any, **named: Any) -> Any:
        return look_up("127.0.0.1" if host in ("public.example", "private.example") else host, *arguments, **named)

    monkeypatch.setattr(socket, "getaddrinfo", name)
    from flink_skills.sources import remote_system as module

    first = iter([True])
    check = module.AddressPolicy.check_addresses

    def all_but_the_first(self: Any, addresses: list[str], shown: str) -> None:
        if not next(first, False):
            check(self, addresses, shown)

    monkeypatch.setattr(module.AddressPolicy, "check_addresses", all_but_the_first)
    target = location.replace("{port}", str(web.port)).encode().decode("latin-1")
    web.pages["/a.zip"] = Page(status=302, headers={"Location": target})
    web.pages["/s.zip"] = Page(zip_bytes())
    url = web.url_as("public.example") + "/a.zip"
    error = failure(url, store, **{"source.allow-redirects": True, **options})
    assert said in str(error)
    assert not error.retryable
    assert web.requests == [("GET", "/a.zip")]


def test_a_redirect_without_end(web: Web, store: str) -> None:
    web.pages["/a.zip"] = Page(status=302, headers={"Location": "/a.zip"})
    error = failure(f"{web.url}/a.zip", store)
    assert f"{web.url}/a.zip: the server redirects repeatedly" in str(error)
    assert web.count("GET") <= 15 and not error.retryable


def test_what_the_options_send_is_for_the_first_host_only(web: Web, store: str) -> None:
    other = Web("::1") if _has_ipv6() else None
    if other is None:
        pytest.skip("no IPv6 here")
    try:
        other.pages["/s.zip"] = Page(zip_bytes())
        web.pages["/a.zip"] = Page(status=302, headers={"Location": "/b.zip"})
        web.pages["/b.zip"] = Page(status=302, headers={"Location": f"{other.url}/s.zip"})
        headers = {"Authorization": "Bearer s3cret", "X-Api-Key": "s3cret", "Cookie": "a=s3cret"}
        options = json.dumps({"http": {"headers": headers, "client_kwargs": {"headers": {"Private-Token": "s3cret"}}}})
        given = {"source.allow-redirects": True, "source.options": options}
        assert resolve(web.url + "/a.zip", store, **given).remote
        for seen in web.seen:
            assert {name for name in seen if "s3cret" in seen[name]} == {
                "authorization",
                "x-api-key",
                "cookie",
                "private-token",
            }
        [seen] = other.seen
        assert "s3cret" not in json.dumps(seen)
        assert seen["host"] == f"[::1]:{other.port}"
    finally:
        other.close()


@pytest.mark.parametrize(
    ("url", "kept"),
    [
        ("https://home.example/b", {"Accept": "*/*", "X-Api-Key": "s3cret"}),
        ("https://home.example:8443/b", {"Accept": "*/*", "X-Api-Key": "s3cret"}),
        ("http://home.example/b", {"Accept": "*/*"}),
        ("https://other.example/b", {"Accept": "*/*"}),
    ],
)
async def test_a_step_to_elsewhere_carries_no_secret(url: str, kept: dict[str, str]) -> None:
    client = await _client_at_home({"skills.source.allow-redirects": True, "skills.source.allow-http": True})
    request = client._step(URL(url), {"headers": {"Accept": "*/*", "X-Api-Key": "s3cret"}, "auth": "s3cret"})
    assert request["headers"] == kept
    assert (request["auth"] is None) == ("X-Api-Key" not in kept)


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("https://other.example/b?t=s3cret", "on another host than home.example"),
        ("http://home.example/b", "skills.source.allow-http"),
        ("https://10.0.0.1/b", "skills.source.allow-private"),
    ],
)
async def test_a_step_is_checked_whoever_asks_for_it(url: str, said: str) -> None:
    client = await _client_at_home({})
    with pytest.raises(SourceError) as caught:
        client._step(URL(url), {})
    assert said in str(caught.value)
    assert "s3cret" not in str(caught.value)


async def _client_at_home(options: dict[str, object]) -> GuardedClient:
    client = GuardedClient(AddressPolicy(SkillConfig(options)), "https://home.example/a")
    await client._on_start(None, None, SimpleNamespace(url=URL("https://home.example/a"), method="GET"))
    return client


def _has_ipv6() -> bool:
    try:
        with socket.socket(socket.AF_INET6) as sock:
            sock.bind(("::1", 0))
    except OSError:
        return False
    return True
