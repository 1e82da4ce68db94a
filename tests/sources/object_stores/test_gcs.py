"""Google Cloud Storage, as an emulator plays it. It checks no credentials: what a refusal says is not tested here."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.sources.object_stores.faults import Fault, FaultyProxy, faulty_proxy
from tests.sources.object_stores.gcs_server import GcsServer, gcs_server
from tests.sources.object_stores.hadoop import NameNode, name_node
from tests.sources.object_stores.reading import SKILL, Reader, zip_bytes

URL = "gs://skills/team/skills.zip"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GcsServer]:
    with gcs_server(tmp_path_factory.mktemp("gcs")) as gcs:
        gcs.make_bucket("skills")
        yield gcs


@pytest.fixture
def proxy(server: GcsServer) -> Iterator[FaultyProxy]:
    with faulty_proxy(server.url) as between:
        yield between


@pytest.fixture
def gs(server: GcsServer, proxy: FaultyProxy, reader: Reader) -> Reader:
    server.put("skills", "team/skills.zip", zip_bytes())
    reader.options = {"gs": {"endpoint": proxy.url, "anonymous": True}}
    return reader


def test_skills_from_a_bucket(gs: Reader, server: GcsServer, proxy: FaultyProxy) -> None:
    first = gs.resolve(URL)
    assert Path(first.path, "greet/SKILL.md").read_bytes() == SKILL
    asked = proxy.count()
    assert gs.resolve(URL).path == first.path
    assert proxy.count() == asked + 1, "unchanged: one question"
    server.put("skills", "team/skills.zip", zip_bytes({"other/SKILL.md": SKILL.replace(b"greet", b"other")}))
    assert gs.resolve(URL).path != first.path


def test_gcs_takes_the_options_of_gs(gs: Reader) -> None:
    assert gs.fetch("gcs://skills/team/skills.zip") == zip_bytes()


def test_what_is_not_there(gs: Reader) -> None:
    error = gs.failure("gs://skills/none.zip")
    assert "the source does not exist; check the address" in str(error)
    assert not error.retryable
    assert "does not exist" in str(gs.failure("gs://no-such-bucket/x.zip"))
    assert "is a folder" in str(gs.failure("gs://skills/team"))


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize(
    ("fault", "said"),
    [
        (Fault("cut", after=10), "try again"),
        (Fault("status", status=503), "the server returned 503; try again"),
        (Fault("hang"), "the server sent nothing for"),
        (Fault("reset"), "try again"),
    ],
)
def test_faults(gs: Reader, proxy: FaultyProxy, fault: Fault, said: str) -> None:
    gs.seconds = 20
    proxy.plan = lambda number: fault
    error = gs.failure(URL)
    assert said in str(error)
    assert error.retryable
    assert 1 < proxy.count() <= 4 * (2 if fault.kind == "reset" else 1)
    proxy.reset_counts()
    proxy.plan = lambda number: fault if number == 1 else Fault()
    assert gs.fetch(URL) == zip_bytes()


def test_a_refusal_names_the_credentials(gs: Reader, proxy: FaultyProxy) -> None:
    proxy.plan = lambda number: Fault("status", status=403)
    error = gs.failure(URL)
    assert "access without credentials is refused; use GOOGLE_APPLICATION_CREDENTIALS" in str(error)
    assert not error.retryable
    assert proxy.count() == 2, "the object, and a listing for those who may not read objects' metadata"


def test_a_key_file_that_is_not_there(gs: Reader, tmp_path: Path) -> None:
    gs.options["gs"] = {"endpoint": gs.options["gs"]["endpoint"], "key": str(tmp_path / "none.json")}
    error = gs.failure(URL)
    assert str(error).startswith(f"skill source {URL}: ")
    assert "the key file does not exist" in str(error)
    assert not error.retryable


@pytest.fixture
def node() -> Iterator[NameNode]:
    with name_node("flink") as started:
        started.files["/teams/skills.zip"] = (zip_bytes(), 1)
        yield started


def test_skills_over_webhdfs(node: NameNode, reader: Reader) -> None:
    url = f"webhdfs://{node.address}/teams/skills.zip"
    reader.options = {"webhdfs": {"key": "flink"}}
    first = reader.resolve(url)
    assert Path(first.path, "greet/SKILL.md").read_bytes() == SKILL
    opened = node.opened
    assert reader.resolve(url).path == first.path
    assert node.opened == opened, "unchanged"
    node.files["/teams/skills.zip"] = (zip_bytes({"other/SKILL.md": SKILL.replace(b"greet", b"other")}), 2)
    assert reader.resolve(url).path != first.path


def test_the_name_node_may_be_an_option(node: NameNode, reader: Reader) -> None:
    reader.options = {"webhdfs": {"endpoint": node.url, "key": "flink"}}
    assert reader.fetch("webhdfs:///teams/skills.zip") == zip_bytes()


def test_refusals(node: NameNode, reader: Reader) -> None:
    reader.options = {"webhdfs": {"key": "flink"}}
    error = reader.failure(f"webhdfs://{node.address}/teams/none.zip")
    assert "the source does not exist; check the address" in str(error)
    reader.options = {"webhdfs": {"key": "somebody"}}
    error = reader.failure(f"webhdfs://{node.address}/teams/skills.zip")
    assert "access is refused; check 'key' (user) and 'secret' (password)" in str(error)
    assert not error.retryable


@pytest.mark.usefixtures("impatient")
def test_faults_of_hdfs(node: NameNode, reader: Reader) -> None:
    reader.seconds = 20
    with faulty_proxy(node.url) as proxy:
        reader.options = {"webhdfs": {"endpoint": proxy.url, "key": "flink"}}
        proxy.plan = lambda number: Fault("hang")
        error = reader.failure("webhdfs:///teams/skills.zip")
        assert "the server sent nothing for" in str(error)
        assert error.retryable
        assert proxy.count() <= 4
        proxy.reset_counts()
        proxy.plan = lambda number: Fault("status", status=503) if number == 1 else Fault()
        assert reader.fetch("webhdfs:///teams/skills.zip") == zip_bytes()


def test_hdfs_without_hadoop_says_what_is_missing(reader: Reader, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HADOOP_HOME", "CLASSPATH", "ARROW_LIBHDFS_DIR"):
        monkeypatch.delenv(name, raising=False)
    error = reader.failure("hdfs://127.0.0.1:1/teams/skills.zip")
    assert "hdfs needs the libraries of Hadoop on this machine; set JAVA_HOME, HADOOP_HOME and CLASSPATH" in str(error)
    assert "webhdfs://" in str(error)
    assert not error.retryable
