"""Folders behind a URL that ends in '/', in every store: the tree as of an archive, refusals, and requests."""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import re
import subprocess
import sys
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from flink_skills.errors import ConfigError, SourceError
from flink_skills.options import SkillConfig
from flink_skills.sources import SourceContext, open_source
from flink_skills.testing import SkillSourceContract
from tests.sources.object_stores.azurite import azurite
from tests.sources.object_stores.buckets import Endpoint
from tests.sources.object_stores.faults import Fault, faulty_proxy
from tests.sources.object_stores.gcs_server import GcsServer, gcs_server
from tests.sources.object_stores.hadoop import name_node
from tests.sources.object_stores.reading import SKILL, Reader
from tests.sources.object_stores.shelves import BUCKET, Hdfs, Memory, PublicObjects, Shelf

pytestmark = pytest.mark.row("B24")

ALL = ["moto", "swift", "gcs", "azure", "oss", "webhdfs", "memory"]
OBJECTS = ["moto", "swift", "gcs", "azure", "oss"]


@pytest.fixture(scope="module")
def gcs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GcsServer]:
    with gcs_server(tmp_path_factory.mktemp("gcs")) as server:
        server.make_bucket(BUCKET)
        yield server


@pytest.fixture(scope="module")
def azure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[object]:
    with azurite(tmp_path_factory.mktemp("azurite")) as account:
        account.make_container(BUCKET)
        yield account


@contextlib.contextmanager
def opened(kind: str, request: pytest.FixtureRequest) -> Iterator[Shelf]:
    """A folder of a store, behind a proxy that counts."""
    if kind == "memory":
        yield Shelf(f"memory://{BUCKET}/", Memory())
        return
    if kind == "webhdfs":
        with name_node("flink") as node, faulty_proxy(node.url) as proxy:
            options = {"webhdfs": {"endpoint": proxy.url, "key": "flink"}}
            yield Shelf(f"webhdfs:///{BUCKET}/", Hdfs(node), options, proxy, "LISTSTATUS")
        return
    if kind == "gcs":
        server: GcsServer = request.getfixturevalue("gcs")
        with faulty_proxy(server.url) as proxy:
            options = {"gs": {"endpoint": proxy.url, "anonymous": True}}
            yield Shelf(f"gs://{BUCKET}/", server, options, proxy, "/o?")
        return
    if kind == "azure":
        account = request.getfixturevalue("azure")
        with faulty_proxy(f"http://127.0.0.1:{account.port}") as proxy:
            yield Shelf(f"abfs://{BUCKET}/", account, {"abfs": account.options(proxy.url)}, proxy, "comp=list")
        return
    endpoint: Endpoint = request.getfixturevalue("moto" if kind == "oss" else kind)
    with faulty_proxy(endpoint.url) as proxy, pytest.MonkeyPatch.context() as patch:
        if kind == "oss":
            add_what_oss_lists(patch)
            endpoint.client().put_bucket_acl(Bucket=BUCKET, ACL="public-read")
            options = {"oss": {"endpoint": proxy.url, "anonymous": True}}
            try:
                yield Shelf(f"oss://{BUCKET}/", PublicObjects(endpoint.client()), options, proxy, "prefix=")
            finally:
                # Other tests share the server, and ask for what is private.
                endpoint.client().put_bucket_acl(Bucket=BUCKET, ACL="private")
        else:
            yield Shelf(f"s3://{BUCKET}/", endpoint, {"s3": endpoint.at(proxy.url).options()}, proxy, "list-type=2")


def add_what_oss_lists(patch: pytest.MonkeyPatch) -> None:
    """Read listings of the S3 interface that stands in as if they had the elements that only OSS sends."""
    from oss2 import xml_utils

    parse = xml_utils.parse_list_objects

    def parsed(result: Any, body: bytes) -> Any:
        body = re.sub(rb' xmlns="[^"]*"', b"", body).replace(b"</Contents>", b"<Type>Normal</Type></Contents>")
        keys = re.findall(rb"<Key>(.*?)</Key>", body)
        if keys and b"<NextMarker>" not in body:
            body = body.replace(b"<Contents>", b"<NextMarker>" + keys[-1] + b"</NextMarker><Contents>", 1)
        return parse(result, body)

    patch.setattr(xml_utils, "parse_list_objects", parsed)


@pytest.fixture(params=ALL)
def shelf(request: pytest.FixtureRequest) -> Iterator[Shelf]:
    with opened(request.param, request) as made:
        yield made


@pytest.fixture
def reading(shelf: Shelf, reader: Reader) -> Reader:
    reader.options = shelf.options
    return reader


@pytest.mark.parametrize("store", ALL)
class TestContract(SkillSourceContract):
    """Every store keeps to what any source keeps to."""

    kind = "url"
    remote = True

    @pytest.fixture(autouse=True)
    def _shelf(self, store: str, request: pytest.FixtureRequest) -> Iterator[None]:
        with opened(store, request) as made:
            self.shelf = made
            yield

    def publish(self, skills: Path) -> str:
        self.shelf.publish(skills)
        return self.shelf.url

    def missing(self) -> str:
        return f"{self.shelf.url}none/"

    def impossible(self) -> list[str]:
        return [f"{self.shelf.scheme}a//b/", f"{self.shelf.scheme}a/../b/", f"{self.shelf.scheme}a/./b/"]

    def context(self, store: Path, *, refresh: bool = False) -> SourceContext:
        options = {"skills.source.options": json.dumps(self.shelf.options)}
        return SourceContext(SkillConfig(options), store_dir=str(store), refresh=refresh)


def test_the_tree_is_that_of_an_archive_of_the_folder(shelf: Shelf, reading: Reader, tmp_path: Path) -> None:
    folder = tmp_path / "team"
    for name in ("greet", "é (2)"):
        (folder / name / "references").mkdir(parents=True)
        (folder / name / "SKILL.md").write_bytes(SKILL.replace(b"greet", name[:1].encode()))
        (folder / name / "references" / "a b.md").write_bytes(b"")
    with tarfile.open(tmp_path / "team.tar", "w", format=tarfile.PAX_FORMAT) as archive:
        for file in sorted(path for path in folder.rglob("*") if path.is_file()):
            entry = tarfile.TarInfo(file.relative_to(folder).as_posix())
            entry.size = file.stat().st_size
            archive.addfile(entry, io.BytesIO(file.read_bytes()))
    sha256 = hashlib.sha256((tmp_path / "team.tar").read_bytes()).hexdigest()
    shelf.publish(folder)
    tree = reading.resolve(shelf.url)
    assert tree.version == sha256
    assert reading.resolve((tmp_path / "team.tar").as_uri()).path == tree.path
    assert reading.resolve(f"{shelf.url}#sha256={sha256}").path == tree.path
    with pytest.raises(SourceError, match=f"the sha256 is {sha256}, which differs from the pinned one"):
        reading.resolve(f"{shelf.url}#sha256={64 * '0'}")


def test_a_pin_of_a_folder_with_generated_files_has_a_reason(shelf: Shelf, reading: Reader, tmp_path: Path) -> None:
    shelf.put("greet/SKILL.md", SKILL)
    sha256 = reading.resolve(shelf.url).version
    pinned = f"{shelf.url}#sha256={64 * '0'}"
    shelf.put("greet/.DS_Store")  # which no release has counted
    with pytest.raises(SourceError) as plain:
        reading.resolve(pinned)
    assert "generated" not in str(plain.value)
    shelf.put("greet/__pycache__/run.cpython-311.pyc")
    shelf.put("greet/scripts/.run.py.swp")
    with pytest.raises(SourceError) as explained:
        reading.resolve(pinned)
    assert f"the sha256 is {sha256}, which differs from the pinned one" in str(explained.value)
    assert "without 2 generated files, such as 'greet/__pycache__/run.cpython-311.pyc'" in str(explained.value)
    assert f"pin #sha256={sha256}" in str(explained.value)
    # Generated files do not change the digest.
    assert reading.resolve(f"{shelf.url}#sha256={sha256}").version == sha256


@pytest.mark.parametrize("shelf", [kind for kind in ALL if kind != "memory"], indirect=True)
def test_a_refresh_costs_one_listing(shelf: Shelf, reading: Reader) -> None:
    for number in range(4):
        shelf.put(f"s{number}.md")
    shelf.put("SKILL.md", SKILL)
    reading.resolve(shelf.url)
    listings, others = shelf.requests()
    assert listings == 2, "one before the files, and one after them"
    assert others >= 5
    reading.resolve(shelf.url)
    assert shelf.requests() == (1, 0)
    shelf.put("s0.md", b"changed")
    assert Path(reading.resolve(shelf.url).path, "greet/s0.md").read_bytes() == b"changed"


@pytest.mark.parametrize("shelf", OBJECTS, indirect=True)
def test_each_file_is_asked_for_once(shelf: Shelf, reading: Reader) -> None:
    for number in range(4):
        shelf.put(f"s{number}.md")
    reading.resolve(shelf.url)
    assert shelf.requests() == (2, 4)


@pytest.mark.parametrize("shelf", OBJECTS, indirect=True)
def test_markers_of_directories_are_no_files(shelf: Shelf, reading: Reader) -> None:
    for key in (
        "",
        "greet/",
        "greet_$folder$",
        "greet/scripts_$folder$",
        ".git/config",
        "greet/.DS_Store",
        "greet/a.pyc",
    ):
        shelf.put(key, b"")
    shelf.put("greet/SKILL.md", SKILL)
    tree = Path(reading.resolve(shelf.url).path)
    assert sorted(path.relative_to(tree).as_posix() for path in tree.rglob("*")) == ["greet", "greet/SKILL.md"]


@pytest.mark.parametrize("shelf", ["moto", "swift", "gcs"], indirect=True)
@pytest.mark.parametrize(
    ("keys", "said"),
    [
        (["a/../../x"], "leaves the archive"),
        (["a//b"], "has '//' or '.' in it"),
        (["/a"], "has '//' or '.' in it"),
        (["a/./b"], "has '//' or '.' in it"),
        (["a\\..\\b"], "has a backslash"),
        (["a\x01b"], "has control characters"),
        (["C:a"], "is absolute"),
        (["a", "a/b"], "is duplicated"),
        (["a/x", "A/x"], "differ in upper and lower case or Unicode form only"),
        (["a/b."], "ends with a dot or a space"),
        (["a/\u202etxt.sh"], "hidden characters or characters that change the direction of text (U+202E)"),
        (["/".join(40 * ["a"])], "too long or too deep"),
    ],
)
def test_keys_that_are_refused(shelf: Shelf, reading: Reader, keys: list[str], said: str) -> None:
    for key in ["greet/SKILL.md", *keys]:
        shelf.put(key, SKILL)
    shelf.requests()
    with pytest.raises(SourceError) as caught:
        reading.resolve(shelf.url)
    assert said in str(caught.value)
    assert str(caught.value).endswith("; the folder is refused")
    assert not caught.value.retryable
    assert shelf.requests() == (1, 0), "nothing is read of a folder that is refused"


def test_links_are_refused(reader: Reader) -> None:
    with name_node("flink") as node:
        node.files["/team/greet/SKILL.md"] = (SKILL, 1)
        node.links.add("/team/greet/passwords")
        reader.options = {"webhdfs": {"endpoint": node.url, "key": "flink"}}
        with pytest.raises(SourceError, match="'greet/passwords' is neither a file nor a directory, but a symlink"):
            reader.resolve("webhdfs:///team/")
        assert node.opened == 0


@pytest.mark.parametrize(
    ("option", "value", "said"),
    [
        ("skills.limits.entries", 4, "the folder contains more than 4 files (skills.limits.entries)"),
        ("skills.limits.file", "1 kb", "has 2000 bytes. The limit for a file is 1024 (skills.limits.file)"),
        ("skills.limits.total", "4 kb", "the files of the folder exceed 4096 bytes (skills.limits.total)"),
        ("skills.limits.download", "4 kb", "the source exceeds the limit of 4096 bytes"),
    ],
)
def test_limits(shelf: Shelf, reading: Reader, option: str, value: object, said: str) -> None:
    for number in range(5):
        shelf.put(f"file-{number}", bytes(2000))
    if shelf.proxy:
        shelf.requests()
    reading.more = {option: value}
    with pytest.raises(SourceError) as caught:
        reading.resolve(shelf.url)
    assert said in str(caught.value)
    if shelf.proxy:
        assert shelf.requests() == (1, 0)


@pytest.mark.parametrize("shelf", OBJECTS, indirect=True)
def test_a_listing_in_pages_ends_at_the_limit(shelf: Shelf, reading: Reader, monkeypatch: pytest.MonkeyPatch) -> None:
    """Examines the internals of sources.listings: no store has a small page of its own."""
    monkeypatch.setattr("flink_skills.sources.listings._PAGE", 2)
    for number in range(7):
        shelf.put(f"file-{number}")
    assert len(list(Path(reading.resolve(shelf.url).path).iterdir())) == 7
    assert shelf.requests() == (8, 7)
    reading.more = {"skills.limits.entries": 3, "skills.store.check": "always"}
    with pytest.raises(SourceError, match="more than 3 files"):
        reading.resolve(shelf.url)
    assert shelf.requests() == (2, 0)


@pytest.mark.parametrize("shelf", [kind for kind in ALL if kind != "memory"], indirect=True)
def test_a_change_during_the_download_gives_the_new_tree(shelf: Shelf, reading: Reader) -> None:
    shelf.put("greet/SKILL.md", SKILL)
    shelf.put("greet/a.md", b"old")
    shelf.put("greet/z.md", b"old")

    def new() -> None:
        shelf.put("greet/a.md", b"new!")
        shelf.put("greet/b.md", b"new!")
        shelf.remove("greet/z.md")

    change_after_the_listing(shelf, lambda number: new() if number == 1 else None)
    tree = Path(reading.resolve(shelf.url).path)
    found = {path.name: path.read_bytes() for path in (tree / "greet").iterdir()}
    assert found == {"SKILL.md": SKILL, "a.md": b"new!", "b.md": b"new!"}


@pytest.mark.parametrize("shelf", ["swift", "gcs", "azure", "webhdfs"], indirect=True)
def test_a_folder_that_changes_all_the_time_is_a_retryable_error(shelf: Shelf, reading: Reader) -> None:
    shelf.put("greet/SKILL.md", SKILL)
    change_after_the_listing(shelf, lambda number: shelf.put("greet/SKILL.md", SKILL + bytes(number)))
    with pytest.raises(
        SourceError, match="changes while it is read; try again, or write new skills to another"
    ) as caught:
        reading.resolve(shelf.url)
    assert caught.value.retryable
    assert not list((reading.folder / "store").glob("*/greet"))


def change_after_the_listing(shelf: Shelf, change: Callable[[int], None]) -> None:
    """Call ``change`` with the number of the read, before the store answers it."""
    proxy = shelf.proxy
    assert proxy is not None
    reads = 0
    listings = -1

    def plan(_number: int) -> Fault:
        nonlocal reads, listings
        now = sum(shelf.listing in path for _, path in proxy.requests)
        if shelf.listing not in proxy.requests[-1][1] and now != listings:  # the first read after each listing
            listings, reads = now, reads + 1
            change(reads)
        return Fault()

    proxy.plan = plan


@pytest.mark.parametrize("shelf", ["moto", "gcs", "azure", "oss", "webhdfs"], indirect=True)
@pytest.mark.parametrize("kind", ["cut", "status", "hang", "reset"])
@pytest.mark.usefixtures("impatient")
def test_faults_that_end_in_time(shelf: Shelf, reading: Reader, kind: str) -> None:
    shelf.put("greet/SKILL.md", SKILL)
    shelf.put("greet/data.bin", bytes(5000))
    assert shelf.proxy is not None
    shelf.proxy.plan = lambda number: Fault(kind, after=20) if number in (1, 3) else Fault()  # type: ignore[arg-type]
    assert Path(reading.resolve(shelf.url).path, "greet/data.bin").stat().st_size == 5000


@pytest.mark.parametrize("shelf", ["moto", "gcs", "azure"], indirect=True)
@pytest.mark.usefixtures("impatient")
def test_a_fault_that_stays(shelf: Shelf, reading: Reader) -> None:
    shelf.put("greet/SKILL.md", SKILL)
    assert shelf.proxy is not None
    shelf.proxy.plan = lambda number: Fault("status", status=503)
    with pytest.raises(SourceError, match="the server returned 503; try again") as caught:
        reading.resolve(shelf.url)
    assert caught.value.retryable
    assert 1 < shelf.proxy.count() <= 4


_OPEN = """
import json, sys
from flink_skills.options import SkillConfig
from flink_skills.sources import SourceContext, open_source
url, options, store = sys.argv[1:]
input()
context = SourceContext(SkillConfig({"skills.source.options": options}), store_dir=store)
[tree] = open_source("url", url, context).resolve()
print(tree.version)
"""


@pytest.mark.parametrize("shelf", ["moto"], indirect=True)
def test_processes_that_open_together_read_each_file_once(shelf: Shelf, tmp_path: Path) -> None:
    for number in range(6):
        shelf.put(f"file-{number}")
    command = [sys.executable, "-c", _OPEN, shelf.url, json.dumps(shelf.options), str(tmp_path / "store")]
    pipe = subprocess.PIPE
    opening = [subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) for _ in range(4)]
    for process in opening:
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()
    versions = {process.communicate(timeout=60)[0] for process in opening}
    assert len(versions) == 1
    assert versions != {""}
    assert shelf.requests()[1] == 6


@pytest.mark.parametrize("shelf", ["moto", "swift", "gcs", "memory"], indirect=True)
def test_a_folder_without_a_slash_names_the_fix(shelf: Shelf, reading: Reader) -> None:
    shelf.put("greet/SKILL.md", SKILL)
    with pytest.raises(SourceError, match="the address is a folder; append '/' to load everything below it"):
        reading.resolve(shelf.url.rstrip("/"))


def test_what_is_stored_is_read_without_the_store(shelf: Shelf, reading: Reader) -> None:
    shelf.put("SKILL.md", SKILL)
    first = reading.resolve(shelf.url)
    for scheme in reading.options.values():
        scheme["endpoint"] = "http://127.0.0.1:1"
    reading.more = {"skills.store.check": "never"}
    assert reading.resolve(shelf.url).path == first.path


def test_a_refusal_names_the_folder_and_no_secret(swift: Endpoint, reader: Reader) -> None:
    reader.options = {"s3": swift.options(secret="wr0ng-s3cret")}
    with pytest.raises(SourceError, match=r"skill source s3://skills/team/: access is refused") as caught:
        reader.resolve("s3://skills/team/")
    assert "s3cret" not in str(caught.value)
    reader.options = {"s3": swift.options()}
    with pytest.raises(SourceError, match="the bucket does not exist"):
        reader.resolve("s3://no-such-bucket/team/")


def test_an_address_that_can_never_work(reader: Reader) -> None:
    with pytest.raises(ConfigError, match=r"has '//', '\.' or '\.\.' in its path; write it as in s3"):
        open_source("url", "s3://skills//team/", reader.context)
