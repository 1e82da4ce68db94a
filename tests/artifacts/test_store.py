"""Artifacts are kept once, found again by version, and survive what happens in the middle of a save.

Examines the internals of artifacts.location on purpose.
"""

from __future__ import annotations

import hashlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from flink_skills.artifacts import (
    Artifact,
    ArtifactError,
    ArtifactStore,
    Reference,
    artifact_ref,
    owner_of,
    parse_reference,
)
from flink_skills.artifacts.artifact_store import open_location
from flink_skills.errors import ConfigError
from flink_skills.options import SkillConfig
from tests.artifacts.conftest import OWNER, Watched, open_store

Place = Callable[[], ArtifactStore]


def version_of(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:16]


def test_what_is_saved_is_found(store: ArtifactStore, place: Place) -> None:
    saved = store.save(OWNER, "reports/may.csv", b"a,b\n", "text/csv")
    version = version_of(b"a,b\n")
    ref = f"artifact://reports/may.csv@{version}"
    assert saved == Artifact("reports/may.csv", version, ref, "text/csv", 4)
    for other in (store, place()):
        assert other.load(OWNER, "reports/may.csv", version) == (saved, b"a,b\n")
        assert other.load(OWNER, "reports/may.csv") == (saved, b"a,b\n")
        assert other.load(OWNER, "reports/may.csv", "latest") == (saved, b"a,b\n")
        assert other.versions(OWNER, "reports/may.csv") == (version,)


def test_versions(store: ArtifactStore, place: Place) -> None:
    contents = [b"one", b"two", b"", b"one"]
    saved = [store.save(OWNER, "a", data) for data in contents]
    assert saved[0] == saved[3]
    assert sorted(place().versions(OWNER, "a")) == sorted({version_of(data) for data in contents})
    assert place().load(OWNER, "a")[1] == b"one"
    for artifact, data in zip(saved, contents, strict=True):
        assert place().load(OWNER, "a", artifact.version) == (artifact, data)


def test_owners_do_not_see_each_other(store: ArtifactStore) -> None:
    pairs = [("a", '"b"'), ('a"b', '"'), ("a", '"c"'), ("", 'a"b"')]
    pairs += [("A", '"b"'), ("a", '"b "'), ("a\u200b", '"b"'), ("a", '"\u00e9"'), ("a", '"e\u0301"'), ("a", '"\uff42"')]
    assert len({owner_of(*pair) for pair in pairs}) == len(pairs)
    for agent, key in pairs:
        store.save(owner_of(agent, key), "same", f"{agent} {key}".encode())
    for agent, key in pairs:
        assert store.load(owner_of(agent, key), "same")[1] == f"{agent} {key}".encode()
        assert len(store.versions(owner_of(agent, key), "same")) == 1


@pytest.mark.row("K18")
def test_all_versions_of_an_erased_owner_are_gone_and_others_stay(store: ArtifactStore, place: Place) -> None:
    other = owner_of("agent", '"other"')
    for content in (b"first", b"second"):
        store.save(OWNER, "a/report.txt", content)
        store.save(OWNER, "b.txt", content)
        store.save(other, "b.txt", content)
    for _ in range(2):
        # A repetition finds nothing.
        store.forget(OWNER)
    for found in (store, place()):
        assert found.newest(OWNER, "b.txt") is None
        assert found.versions(OWNER, "a/report.txt") == ()
        assert found.load(other, "b.txt")[1] == b"second"


@pytest.mark.parametrize(
    "name",
    [
        *("ü/ñ 😀.txt", "a b.csv", "50%.txt", "%2e%2e/x", "a?b#c&d=e", "mail@example.org", "a@1", "x@0123456789abcde"),
        *(".hidden", "-rf", "$(id)`id`;'\"", "latest.json", "a/b/c/d/e/f", "CON", "name.", "*?[x]{y}", "~x~"[1:]),
        *(
            "x" * 255,
            "/".join(["y" * 100] * 5),
            "s3:/odd"[3:].strip("/"),
            "NAME",
            "name",
            "\u00e9",
            "e\u0301",
            "\uff45",
        ),
    ],
)
def test_names(store: ArtifactStore, name: str) -> None:
    saved = store.save(OWNER, name, name.encode(), "text/plain")
    assert saved.name == name
    assert store.load(OWNER, name) == (saved, name.encode())
    assert store.versions(OWNER, name) == (saved.version,)


@pytest.mark.parametrize(
    "name",
    [
        *("", "/", "/etc/passwd", "../x", "a/../b", "a//b", "a/", "./a", "a/.", "..", "C:\\x", "C:x", "a\\b", "~/x"),
        *("a\0b", "a\nb", "\x7f", "\ud800", "x" * 256, "a/" * 300 + "b", "a@0123456789abcdef", "a@latest"),
        "\u202ereversed",
    ],
)
def test_names_that_are_refused(tmp_path: Path, name: str) -> None:
    store = open_store(str(tmp_path / "store"))
    for attempt in (
        lambda: store.save(OWNER, name, b""),
        lambda: store.load(OWNER, name),
        lambda: store.versions(OWNER, name),
    ):
        with pytest.raises(ArtifactError) as refused:
            attempt()
        assert refused.value.reason == "invalid"
        str(refused.value).encode()
    assert not (tmp_path / "store").exists()


def test_everything_stays_in_the_folder(tmp_path: Path) -> None:
    store = open_store(str(tmp_path / "store"))
    for owner in ("../../up", "/etc", "", "a\0b", "\ud800", "x" * 5000):
        store.save(owner, "a.txt", owner.encode("utf-8", "replace"))
        assert store.load(owner, "a.txt")[1] == owner.encode("utf-8", "replace")
    assert [path.name for path in tmp_path.iterdir()] == ["store"]
    modes = {path.stat().st_mode & 0o777 for path in (tmp_path / "store").rglob("*")}
    assert modes == {0o700, 0o600}


@pytest.mark.parametrize(
    ("name", "version"), [("none", None), ("a", "0" * 16), ("a", "1"), ("a", "../x"), ("a", "f" * 17), ("b", "latest")]
)
def test_what_is_missing(store: ArtifactStore, name: str, version: str | None) -> None:
    known = store.save(OWNER, "a", b"1").version
    with pytest.raises(ArtifactError) as missing:
        store.load(OWNER, name, version)
    assert missing.value.reason == "missing"
    assert (known if name == "a" else "save it first") in str(missing.value)
    assert store.versions(OWNER, "none") == ()


def test_the_largest_artifact(tmp_path: Path) -> None:
    small = open_store(str(tmp_path), **{"skills.artifacts.max-size": "10b"})
    assert small.max_size == 10
    small.save(OWNER, "a", bytes(10))
    with pytest.raises(ArtifactError, match=r"11 bytes; the limit is 10.*skills.artifacts.max-size") as refused:
        small.save(OWNER, "a", bytes(11))
    assert refused.value.reason == "too-large"
    saved = open_store(str(tmp_path)).save(OWNER, "a", bytes(11))
    with pytest.raises(ArtifactError) as refused:
        small.load(OWNER, "a", saved.version)
    assert refused.value.reason == "too-large"


def watched(tmp_path: Path) -> tuple[ArtifactStore, Watched]:
    location = Watched(open_location(str(tmp_path / "store"), SkillConfig()))
    return ArtifactStore(location, 1 << 20), location


def test_a_retry_writes_nothing(tmp_path: Path) -> None:
    store, location = watched(tmp_path)
    first = store.save(OWNER, "a", b"1", "text/plain")
    assert [name.rpartition("/")[2] for name in location.written] == ["a", f"{first.version}.json", "latest.json"]
    for _ in range(3):
        assert store.save(OWNER, "a", b"1", "text/plain") == first
    assert len(location.written) == 3
    store.save(OWNER, "a", b"2")
    assert len(location.written) == 6
    assert store.save(OWNER, "a", b"1", "text/plain") == first
    assert [name.rpartition("/")[2] for name in location.written[6:]] == ["latest.json"]


@pytest.mark.parametrize("ends_at", [0, 1, 2])
def test_a_save_that_ends_in_the_middle(tmp_path: Path, ends_at: int) -> None:
    store, _ = watched(tmp_path)
    before = store.save(OWNER, "a", b"before")
    dying, location = watched(tmp_path)
    location.ends_at = ends_at
    with pytest.raises(KeyboardInterrupt):
        dying.save(OWNER, "a", b"after", "text/x-after")
    version = version_of(b"after")
    assert store.load(OWNER, "a") == (before, b"before")
    complete = ends_at == 2
    assert (version in store.versions(OWNER, "a")) == complete
    if not complete:
        with pytest.raises(ArtifactError, match="no version"):
            store.load(OWNER, "a", version)
    saved = store.save(OWNER, "a", b"after", "text/x-after")
    assert (saved.version, saved.mime_type) == (version, "text/x-after")
    assert store.load(OWNER, "a") == (saved, b"after")


_KILLED = """
import os, signal, sys
from flink_skills.artifacts import ArtifactStore
from flink_skills.options import SkillConfig

calls = 0
for name in ("fsync", "replace"):
    def counted(*arguments, real=getattr(os, name)):
        global calls
        calls += 1
        if calls == int(sys.argv[2]):
            os.kill(os.getpid(), signal.SIGKILL)
        return real(*arguments)
    setattr(os, name, counted)
ArtifactStore.open(SkillConfig({"skills.artifacts.dir": sys.argv[1]})).save("o", "a", b"content", "text/plain")
"""


@pytest.mark.parametrize("call", [1, 2, 4, 5, 7, 8])
def test_a_process_that_is_killed(tmp_path: Path, call: int) -> None:
    """Before and after each file appears under its name: what is there is right, and a retry makes it complete."""
    command = [sys.executable, "-c", _KILLED, str(tmp_path), str(call)]
    done = subprocess.run(command, cwd=Path(__file__).parents[2], check=False, timeout=60)
    assert done.returncode == -signal.SIGKILL
    store = open_store(str(tmp_path))
    for version in store.versions("o", "a"):
        assert store.load("o", "a", version)[1] == b"content"
    saved = store.save("o", "a", b"content", "text/plain")
    assert store.load("o", "a") == (saved, b"content")
    assert store.versions("o", "a") == (saved.version,)


@pytest.mark.parametrize("damage", [b"", b"{", b"[]", b"\xff", b'{"size": -1}', b'{"size": "x"}', b"null"])
def test_records_that_were_damaged(tmp_path: Path, damage: bytes) -> None:
    store = open_store(str(tmp_path))
    saved = store.save(OWNER, "a", b"1")
    for record in tmp_path.rglob("*.json"):
        record.write_bytes(damage)
    with pytest.raises(ArtifactError, match="no version"):
        store.load(OWNER, "a")
    assert store.save(OWNER, "a", b"1") == saved
    assert store.load(OWNER, "a") == (saved, b"1")


@pytest.mark.parametrize("damage", [b"", b"2", b"11", None])
def test_content_that_was_changed_is_never_given(tmp_path: Path, damage: bytes | None) -> None:
    store = open_store(str(tmp_path))
    saved = store.save(OWNER, "a.bin", b"1")
    [content] = tmp_path.rglob("*/a.bin")
    content.unlink() if damage is None else content.write_bytes(damage)
    with pytest.raises(ArtifactError, match="is not what was saved") as refused:
        store.load(OWNER, "a.bin")
    assert refused.value.reason == "changed"
    assert store.save(OWNER, "a.bin", b"1") == saved
    assert store.load(OWNER, "a.bin") == (saved, b"1")


def test_many_save_at_once(store: ArtifactStore, place: Place) -> None:
    stores = [store, place()]
    start = threading.Barrier(8)

    def save(number: int) -> Artifact:
        start.wait(30)
        return stores[number % 2].save(OWNER, "a", b"same" if number < 4 else f"other {number}".encode())

    with ThreadPoolExecutor(8) as pool:
        saved = list(pool.map(save, range(8)))
    assert len({artifact.version for artifact in saved}) == 5
    for artifact in saved:
        assert version_of(store.load(OWNER, "a", artifact.version)[1]) == artifact.version
    assert store.load(OWNER, "a")[0] in saved


def test_no_store_without_a_folder() -> None:
    assert ArtifactStore.open(SkillConfig()) is None
    assert ArtifactStore.open(SkillConfig({"skills.artifacts.dir": " "})) is None


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("artifacts", "absolute path"),
        ("file://host/artifacts", "absolute path"),
        ("file://me:pw/x@host/artifacts", "absolute path"),
        ("file://[me:pw/artifacts", "absolute path"),
        ("https://me:pw@example.org/artifacts", "cannot be written to"),
        ("zip://x::s3://bucket/a.zip", "cannot be written to"),
        ("nosuch://bucket", "nothing here knows"),
    ],
)
def test_folders_that_can_never_work(url: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said) as refused:
        open_store(url)
    assert "skills.artifacts.dir" in str(refused.value)
    assert "pw" not in str(refused.value)


def test_opening_makes_nothing(tmp_path: Path) -> None:
    open_store(str(tmp_path / "store")).versions(OWNER, "a")
    assert not (tmp_path / "store").exists()


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    store = open_store(str(tmp_path / "file" / "store"))
    with pytest.raises(ArtifactError, match=r"cannot be .*check its rights") as refused:
        store.save(OWNER, "a", b"1")
    assert refused.value.reason == "unavailable"


def test_a_disk_that_is_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = open_store(str(tmp_path))

    def full(_descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched, pytest.raises(ArtifactError, match="No space left"):
        patched.setattr(os, "fsync", full)
        store.save(OWNER, "a", b"1")
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []
    assert store.versions(OWNER, "a") == ()


VERSION = "0123456789abcdef"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("artifact://a.txt", Reference("artifact", "a.txt")),
        ("artifact://dir/ü b.txt", Reference("artifact", "dir/ü b.txt")),
        (f"artifact://a.txt@{VERSION}", Reference("artifact", "a.txt", VERSION)),
        ("artifact://a.txt@latest", Reference("artifact", "a.txt")),
        ("artifact://me@example.org", Reference("artifact", "me@example.org")),
        (f"artifact://me@example.org@{VERSION}", Reference("artifact", "me@example.org", VERSION)),
        ("artifact://a.txt@3", Reference("artifact", "a.txt@3")),
        ("ARTIFACT://a.txt", Reference("artifact", "a.txt")),
        (" workspace://out/a.txt\n", Reference("workspace", "out/a.txt")),
        ("skill://log-triage/assets/a.csv", Reference("skill", "assets/a.csv", skill="log-triage")),
        ("skill://log-triage", Reference("skill", "", skill="log-triage")),
        ("host:///data/a.csv", Reference("host", "/data/a.csv")),
    ],
)
def test_references(text: str, expected: Reference) -> None:
    assert parse_reference(text) == expected
    assert parse_reference(str(expected)) == expected


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a.txt", "not a valid reference"),
        ("", "not a valid reference"),
        ("https://example.org/a", "unsupported input: https://"),
        ("file:///etc/passwd", "unsupported input: file://"),
        ("artifact://", "the name is empty"),
        ("artifact:///etc/passwd", "relative path"),
        ("artifact://../x", "'..'"),
        (f"artifact://@{VERSION}", "empty"),
        ("skill://", "names no skill"),
        ("host://data", "absolute"),
        ("host://", "absolute"),
        ("workspace://", "names nothing"),
    ],
)
def test_what_is_no_reference(text: str, said: str) -> None:
    with pytest.raises(ArtifactError, match=said) as refused:
        parse_reference(text)
    assert refused.value.reason == "invalid"


def test_refs_of_artifacts() -> None:
    assert artifact_ref("a") == "artifact://a"
    assert artifact_ref("a", VERSION) == f"artifact://a@{VERSION}"
