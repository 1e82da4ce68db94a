"""HDFS: over WebHDFS against a small name node, and what hdfs:// says where Hadoop's libraries are not installed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.sources.object_stores.faults import Fault, faulty_proxy
from tests.sources.object_stores.hadoop import NameNode, name_node
from tests.sources.object_stores.reading import SKILL, Reader, zip_bytes


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
def test_faults(node: NameNode, reader: Reader) -> None:
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
