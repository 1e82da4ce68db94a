"""Sources: paths, job-JAR resources and URLs."""

import hashlib
import io
import json
import multiprocessing
import os
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fsspec
import pytest
from fsspec.registry import known_implementations

from flink_skills.errors import ConfigError, SourceError, UnknownNameError
from flink_skills.options import SkillConfig
from flink_skills.skill import Limits
from flink_skills.sources import (
    SkillSource,
    SourceContext,
    SourceTree,
    open_source,
    register_source,
    source_kinds,
)
from flink_skills.sources.address import redact
from flink_skills.sources.locking import file_lock
from flink_skills.sources.store import Store
from tests.sources.web import Page, Web

SKILL = b"---\nname: greet\ndescription: Says hello.\n---\nHi\n"
ALLOWED = {"skills.source.allow-http": True, "skills.source.allow-private": True}


def zip_bytes(entries: dict[str, bytes] | None = None) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, data in (entries or {"skills/greet/SKILL.md": SKILL}).items():
            archive.writestr(zipfile.ZipInfo(name), data)
    return buffer.getvalue()


@pytest.fixture
def web() -> Iterator[Web]:
    server = Web()
    yield server
    server.close()


@pytest.fixture
def store(tmp_path: Path) -> str:
    return str(tmp_path / "store")


def context(store: str, **options: object) -> SourceContext:
    return SourceContext(SkillConfig({**ALLOWED, **options}), store_dir=store)


def resolve(url: str, store: str, **options: object) -> SourceTree:
    [tree] = open_source("url", url, context(store, **options)).resolve()
    return tree


def failure(url: str, store: str, **options: object) -> SourceError:
    with pytest.raises(SourceError) as caught:
        resolve(url, store, **options)
    assert Path(store).is_dir()
    assert list((Path(store) / ".work").glob("*")) == []
    return caught.value


# Paths and resources


def test_a_folder_is_used_where_it_is(tmp_path: Path, store: str) -> None:
    assert open_source("path", str(tmp_path), context(store)).resolve() == [SourceTree(str(tmp_path), str(tmp_path))]
    assert not Path(store).exists()


def test_a_relative_path_shows_the_absolute_one(store: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match="is relative") as error:
        open_source("path", "./skills", context(store))
    assert repr(str(tmp_path / "skills")) in str(error.value)


@pytest.mark.parametrize("name", ["missing", "missing/deeper", "file.txt/x"])
def test_a_missing_path(tmp_path: Path, store: str, name: str) -> None:
    (tmp_path / "file.txt").write_text("x")
    with pytest.raises(SourceError, match="does not exist"):
        open_source("path", str(tmp_path / name), context(store)).resolve()


def test_paths_that_are_no_source(tmp_path: Path, store: str) -> None:
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "SKILL.md").write_bytes(SKILL)
    with pytest.raises(SourceError, match="neither a folder nor a file"):
        open_source("path", str(tmp_path / "fifo"), context(store)).resolve()
    with pytest.raises(SourceError, match="give its folder"):
        open_source("path", str(tmp_path / "SKILL.md"), context(store)).resolve()
    with pytest.raises(ConfigError):
        open_source("path", "", context(store))


def test_resources_are_what_the_runtime_made_of_them(tmp_path: Path, store: str) -> None:
    (tmp_path / "one").mkdir()
    (tmp_path / "skills.zip").write_bytes(zip_bytes())
    paths = {"skills": [str(tmp_path / "one"), str(tmp_path / "skills.zip")]}
    given = SourceContext(store_dir=store, resource_paths=paths)
    trees = open_source("resource", "skills/", given).resolve()
    assert [tree.origin for tree in trees] == ["resource:skills/"] * 2
    assert trees[0].path == str(tmp_path / "one")
    assert Path(trees[1].path, "skills/greet/SKILL.md").read_bytes() == SKILL
    with pytest.raises(SourceError, match=r"no such folder or file \(did you mean 'skills'\?\)"):
        open_source("resource", "skill", given).resolve()
    with pytest.raises(SourceError, match="no job JAR here"):
        open_source("resource", "skills", SourceContext()).resolve()
    with pytest.raises(ConfigError):
        open_source("resource", "../x", given)


# The registry


class MadeSource(SkillSource):
    kind = "made"

    def resolve(self) -> list[SourceTree]:
        return [SourceTree(f"/made/{self.location}", "made")]


def test_kinds_can_be_added_but_not_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    from flink_skills.sources import registry

    monkeypatch.setattr(registry, "_KINDS", dict(registry._KINDS))
    register_source("made", f"{__name__}:MadeSource")
    assert open_source("made", "x", SourceContext()).resolve()[0].path == "/made/x"
    assert "made" in source_kinds()
    with pytest.raises(ConfigError, match="already"):
        register_source("url", f"{__name__}:MadeSource")
    with pytest.raises(UnknownNameError, match="did you mean 'path'"):
        open_source("paths", "x", SourceContext())


# Where URLs may lead


@pytest.mark.parametrize(
    ("url", "options", "said"),
    [
        ("http://example.org/s.zip", {}, "skills.source.allow-http"),
        ("http://127.0.0.1/s.zip", {"skills.source.allow-http": True}, "skills.source.allow-private"),
        ("https://localhost/s.zip", {}, "skills.source.allow-private"),
        ("https://10.1.2.3/s.zip", {}, "skills.source.allow-private"),
        ("https://169.254.169.254/latest", {}, "skills.source.allow-private"),
        ("https://[::1]/s.zip", {}, "skills.source.allow-private"),
        ("https://[::ffff:127.0.0.1]/s.zip", {}, "skills.source.allow-private"),
        ("https://0x7f000001/s.zip", {}, "skills.source.allow-private"),
        ("https://127.1/s.zip", {}, "skills.source.allow-private"),
        ("simplecache::http://example.org/s.zip", {}, "skills.source.allow-http"),
        ("HTTP://example.org/s.zip", {}, "skills.source.allow-http"),
        ("https:///s.zip", {}, "no host"),
        ("foo://x/s.zip", {}, "nothing here knows the protocol 'foo'"),
        ("hdfs2", {}, "is no URL"),
        ("file://host/s.zip", {}, "three slashes"),
        ("https://example.org/s.zip#sha256=12", {}, "64 hexadecimal"),
        ("memory://s.zip", {"skills.source.options": "{"}, "is no JSON"),
        ("memory://s.zip", {"skills.source.options": '{"memory": 1}'}, "write a JSON object by protocol"),
    ],
)
def test_urls_that_are_refused_before_anything_is_read(url: str, options: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match="(?s)" + said):
        open_source("url", url, SourceContext(SkillConfig(options)))


def test_a_protocol_whose_package_is_missing_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(known_implementations, "oss", {"class": "not_there.OSS", "err": "Install ossfs"})
    with pytest.raises(ConfigError, match="pip install ossfs"):
        open_source("url", "oss://bucket/s.zip", SourceContext())


def test_a_name_that_leads_to_a_private_address_is_refused(
    web: Web, store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    import socket

    port = web.url.rpartition(":")[2]
    look_up = socket.getaddrinfo

    def resolve_to_loopback(host: Any, *arguments: Any, **named: Any) -> Any:
        return look_up("127.0.0.1" if host == "skills.example" else host, *arguments, **named)

    monkeypatch.setattr(socket, "getaddrinfo", resolve_to_loopback)
    web.pages["/s.zip"] = Page(zip_bytes())
    url = f"http://skills.example:{port}/s.zip"
    error = failure(url, store, **{"skills.source.allow-private": False})
    assert "skills.source.allow-private" in str(error)
    assert not error.retryable
    assert web.requests == []
    resolve(url, store)
    assert web.requests == [("GET", "/s.zip")]


def test_redirects_are_checked_like_urls(web: Web, store: str) -> None:
    web.pages["/a.zip"] = Page(status=302, headers={"Location": f"{web.url}/s.zip"})
    web.pages["/s.zip"] = Page(zip_bytes())
    assert resolve(f"{web.url}/a.zip", store).remote
    web.pages["/b.zip"] = Page(status=302, headers={"Location": "https:///nowhere"})
    assert "redirects to an address that is not allowed" in str(failure(f"{web.url}/b.zip", store))


# What is fetched


@pytest.mark.parametrize("name", ["s.zip", "unnamed"])
def test_an_archive_behind_a_url(web: Web, store: str, name: str) -> None:
    web.pages[f"/{name}"] = Page(zip_bytes())
    tree = resolve(f"{web.url}/{name}", store)
    assert tree.remote
    assert tree.path == f"{store}/{hashlib.sha256(zip_bytes()).hexdigest()}"
    assert Path(tree.path, "skills/greet/SKILL.md").read_bytes() == SKILL


def test_a_bare_skill_file(web: Web, store: str) -> None:
    web.pages["/some/skill.md"] = Page(SKILL)
    tree = resolve(f"{web.url}/some/skill.md", store)
    assert [str(p.relative_to(tree.path)) for p in Path(tree.path).rglob("*.md")] == ["greet/SKILL.md"]


def test_memory_and_file_urls(tmp_path: Path, store: str) -> None:
    fsspec.filesystem("memory").pipe("/skills-test/s.zip", zip_bytes())
    assert Path(resolve("memory://skills-test/s.zip", store).path, "skills/greet").is_dir()
    (tmp_path / "my skills.zip").write_bytes(zip_bytes())
    assert Path(resolve(f"file://{tmp_path}/my%20skills.zip", store).path, "skills/greet").is_dir()
    assert resolve(f"file://localhost{tmp_path}", store).path == str(tmp_path)
    assert "is a folder" in str(failure("memory://skills-test", store))


def test_pins(web: Web, tmp_path: Path, store: str) -> None:
    sha256 = hashlib.sha256(zip_bytes()).hexdigest()
    web.pages["/s.zip"] = Page(zip_bytes())
    assert resolve(f"{web.url}/s.zip#sha256={sha256.upper()}", store).path.endswith(sha256)
    web.pages["/s.zip"] = Page(zip_bytes({"b/SKILL.md": SKILL}))
    assert "not the pinned one" in str(failure(f"{web.url}/s.zip#sha256={sha256}", str(tmp_path / "other")))
    (tmp_path / "s.zip").write_bytes(b"x")
    with pytest.raises(SourceError, match="not the pinned one"):
        resolve(f"file://{tmp_path}/s.zip#sha256={sha256}", store)


def test_unchanged_content_is_not_fetched_again(web: Web, store: str) -> None:
    web.pages["/s.zip"] = Page(zip_bytes(), headers={"ETag": '"1"'})
    first = resolve(f"{web.url}/s.zip", store)
    assert resolve(f"{web.url}/s.zip", store) == first
    assert web.requests == [("GET", "/s.zip"), ("HEAD", "/s.zip")]
    web.pages["/s.zip"] = Page(zip_bytes({"b/SKILL.md": SKILL}), headers={"ETag": '"2"'})
    assert resolve(f"{web.url}/s.zip", store) != first
    assert web.count("GET") == 2


def test_a_server_that_says_nothing_of_versions_is_asked_for_the_file(web: Web, store: str) -> None:
    web.pages["/s.zip"] = Page(zip_bytes())
    first = resolve(f"{web.url}/s.zip", store)
    assert resolve(f"{web.url}/s.zip", store) == first
    assert web.count("GET") == 2


def test_a_store_that_was_emptied_is_filled_again(web: Web, store: str) -> None:
    from flink_skills.sources.store import remove_tree

    web.pages["/s.zip"] = Page(zip_bytes(), headers={"ETag": '"1"'})
    first = resolve(f"{web.url}/s.zip", store)
    remove_tree(first.path)
    assert resolve(f"{web.url}/s.zip", store) == first
    assert Path(first.path).is_dir()


# What goes wrong


@pytest.mark.parametrize(
    ("page", "said", "retryable"),
    [
        (Page(status=404), "does not exist", False),
        (Page(status=403), "access is refused", False),
        (Page(status=503), "answered 503; try again", True),
        (Page(body=b"x" * 100, cut=10), "the transfer failed", True),
        (Page(body=b"hello"), "no complete zip", False),
    ],
)
def test_failures_have_one_type_and_no_secrets(
    web: Web, store: str, page: Page, said: str, retryable: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("flink_skills.sources.download._FIRST_WAIT", 0.001)
    web.pages["/s.zip"] = page
    url = web.url.replace("//", "//user:s3cret@") + "/s.zip?token=s3cret"
    error = failure(url, store)
    assert said in str(error)
    assert error.retryable == retryable
    assert "s3cret" not in str(error) + error.source
    assert f"{web.url}/s.zip" in str(error)
    assert web.count("GET") == (4 if retryable else 1)
    assert error.__cause__ is None


def test_a_transient_failure_is_tried_again(web: Web, store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("flink_skills.sources.download._FIRST_WAIT", 0.001)
    web.pages["/s.zip"] = lambda number: Page(status=503) if number < 3 else Page(zip_bytes())
    assert resolve(f"{web.url}/s.zip", store).remote
    assert web.count("GET") == 3


def test_one_deadline_whatever_hangs(web: Web, store: str) -> None:
    web.pages["/s.zip"] = Page(hang=True)
    began = time.monotonic()
    error = failure(f"{web.url}/s.zip", store, **{"skills.source.timeout": "300 ms"})
    assert "not read within 0.3 s" in str(error)
    assert "skills.source.timeout" in str(error)
    assert error.retryable
    assert time.monotonic() - began < 10


def test_a_download_that_is_too_large(web: Web, store: str) -> None:
    web.pages["/s.zip"] = Page(os.urandom(3000))
    given = SourceContext(SkillConfig(ALLOWED), store_dir=store, limits=Limits(download=1000))
    with pytest.raises(SourceError, match="larger than the limit of 1000"):
        open_source("url", f"{web.url}/s.zip", given).resolve()
    assert web.count("GET") == 1


def test_a_store_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    (tmp_path / "s.zip").write_bytes(zip_bytes())
    with pytest.raises(SourceError, match=r"cannot be written .*skills\.store\.dir"):
        Store(str(tmp_path / "file")).add_archive(str(tmp_path / "s.zip"), "s.zip")


def test_the_default_store_is_nobody_elses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    (tmp_path / "s.zip").write_bytes(zip_bytes())
    folder = Path(Store("").folder)
    assert folder.parent == tmp_path
    folder.mkdir(mode=0o700)
    folder.chmod(0o777)
    with pytest.raises(SourceError, match=r"others can write to it.*skills\.store\.dir"):
        Store("").add_archive(str(tmp_path / "s.zip"), "s.zip")
    folder.chmod(0o755)
    assert Path(Store("").add_archive(str(tmp_path / "s.zip"), "s.zip")).parent == folder


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("https://host/a.zip", "https://host/a.zip"),
        ("https://u:p@host:8443/a.zip?X-Amz-Signature=1#x", "https://host:8443/a.zip"),
        ("https://u:p/w@host/a.zip", "https://host/a.zip"),
        ("https://u:p@w@host/a.zip", "https://host/a.zip"),
        ("s3://bucket/key@2.zip", "s3://bucket/key@2.zip"),
        ("https://host:8443/a@b.zip", "https://host:8443/a@b.zip"),
        ("https://u:p@[::1]:8443/a.zip?t=1", "https://[::1]:8443/a.zip"),
        ("simplecache::https://u:p@host/a.zip?t=1", "simplecache::https://host/a.zip"),
        ("zip://a?b::s3://k:s@bucket/x.zip", "zip://a::s3://bucket/x.zip"),
    ],
)
def test_what_of_a_url_is_shown(url: str, shown: str) -> None:
    assert redact(url) == shown


# Several processes


def _open_once(url: str, store: str, ready: Any, go: Any, results: Any) -> None:
    ready.release()
    go.wait(30)
    results.put(resolve(url, store).path)


def test_processes_that_open_at_once_download_once(web: Web, store: str) -> None:
    web.pages["/s.zip"] = Page(zip_bytes())
    spawn = multiprocessing.get_context("spawn")
    ready, go, results = spawn.Semaphore(0), spawn.Event(), spawn.Queue()
    arguments = (f"{web.url}/s.zip", store, ready, go, results)
    processes = [spawn.Process(target=_open_once, args=arguments) for _ in range(3)]
    with file_lock_held(store, f"{web.url}/s.zip"):
        for process in processes:
            process.start()
        for _ in processes:
            assert ready.acquire(timeout=60)
        go.set()
        # All of them have asked before any may begin: each is served by the first download after its question.
        wait_until(lambda: all(_waits_for_lock(process.pid) for process in processes))
    paths = {results.get(timeout=60) for _ in processes}
    for process in processes:
        process.join(60)
        assert process.exitcode == 0
    assert len(paths) == 1
    assert web.requests == [("GET", "/s.zip")]


def file_lock_held(store: str, url: str) -> Any:
    key = hashlib.sha256(url.encode()).hexdigest()
    return file_lock(Store(store).lock_path(key), time.monotonic() + 10, "test")


def _waits_for_lock(pid: int | None) -> bool:
    try:
        return any("/.locks/" in str(file.readlink()) for file in Path(f"/proc/{pid}/fd").iterdir())
    except FileNotFoundError:
        return False


def wait_until(condition: Any, seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "the condition was not reached in time"
        time.sleep(0.01)


def _unpack_and_die(archive: str, store: str) -> None:
    from flink_skills.sources import store as module

    def die(*_: object) -> None:
        Path(store, "died").touch()
        os._exit(9)

    module.Store._finish = die  # type: ignore[method-assign,assignment]
    Store(store).add_archive(archive, "x")


def test_a_process_that_is_killed_leaves_nothing_that_counts(tmp_path: Path, store: str) -> None:
    (tmp_path / "s.zip").write_bytes(zip_bytes())
    process = multiprocessing.get_context("spawn").Process(
        target=_unpack_and_die, args=(str(tmp_path / "s.zip"), store)
    )
    process.start()
    process.join(60)
    assert process.exitcode == 9
    assert list((Path(store) / ".work").iterdir())  # half a skill, where nobody looks
    folder = Store(store).add_archive(str(tmp_path / "s.zip"), "x")
    assert Path(folder, "skills/greet/SKILL.md").read_bytes() == SKILL
    assert list((Path(store) / ".work").iterdir()) == []


def test_a_lock_is_not_waited_for_beyond_the_deadline(tmp_path: Path) -> None:
    path = str(tmp_path / "lock")
    with (
        file_lock(path, time.monotonic() + 1, "a"),
        pytest.raises(SourceError, match="another process") as error,
        file_lock(path, time.monotonic() + 0.1, "b"),
    ):
        raise AssertionError("two hold the lock")
    assert error.value.retryable


def test_records_survive_nonsense(web: Web, store: str) -> None:
    web.pages["/s.zip"] = Page(zip_bytes(), headers={"ETag": '"1"'})
    url = f"{web.url}/s.zip"
    resolve(url, store)
    [record] = (Path(store) / ".urls").iterdir()
    for text in (
        "",
        "[]",
        "{}",
        json.dumps({"fetched": 1e18, "folder": "x", "version": None}),
        '{"fetched": 1.0}',
    ):
        record.write_text(text)
        assert Path(resolve(url, store).path, "skills/greet/SKILL.md").is_file()
