"""The plain words of ``skills.source.options`` as each library's own, and what is wrong with them.

Examines the internals of sources.protocols on purpose.
"""

from __future__ import annotations

import json
from importlib import import_module
from typing import Any

import pytest
from fsspec.registry import known_implementations

from flink_skills.errors import ConfigError
from flink_skills.sources.protocols import check_here, is_anonymous, library_options
from tests.sources.object_stores.reading import Reader

_ACCOUNT = {"type": "service_account", "client_email": "a@b"}


@pytest.mark.parametrize(
    ("protocol", "words", "options"),
    [
        ("s3", {}, {}),
        ("s3", {"anonymous": "true"}, {"anon": True}),
        ("s3", {"anonymous": False, "key": "k", "secret": "s"}, {"key": "k", "secret": "s"}),
        ("s3a", {"region": "eu-1"}, {"client_kwargs": {"region_name": "eu-1"}}),
        (
            "s3",
            {"region": "eu-1", "client_kwargs": {"verify": False}},
            {"client_kwargs": {"region_name": "eu-1", "verify": False}},
        ),
        ("s3", {"endpoint_url": "https://x", "anon": True}, {"endpoint_url": "https://x", "anon": True}),
        ("gs", {"anonymous": True, "endpoint": "https://g"}, {"token": "anon", "endpoint_url": "https://g"}),
        ("gcs", {"key": "/etc/key.json"}, {"token": "/etc/key.json"}),
        ("gs", {"key": json.dumps(_ACCOUNT)}, {"token": _ACCOUNT}),
        ("abfs", {"key": "account", "secret": "k"}, {"account_name": "account", "account_key": "k"}),
        ("abfss", {"secret": "k"}, {"account_key": "k"}),
        ("az", {"anonymous": True, "account_name": "a"}, {"anon": True, "account_name": "a"}),
        (
            "abfs",
            {"endpoint": "https://a.blob.example/", "key": "a", "secret": "k"},
            {"connection_string": "AccountName=a;AccountKey=k;BlobEndpoint=https://a.blob.example"},
        ),
        (
            "abfs",
            {"endpoint": "https://a.blob.example"},
            {"account_host": "a.blob.example", "account_name": "a"},
        ),
        (
            "oss",
            {"region": "cn-hangzhou", "key": "k", "secret": "s"},
            {"endpoint": "https://oss-cn-hangzhou.aliyuncs.com", "key": "k", "secret": "s"},
        ),
        ("oss", {"endpoint": "https://o", "region": "eu", "anonymous": True}, {"endpoint": "https://o"}),
        ("hdfs", {"endpoint": "node:8020", "key": "flink"}, {"host": "node", "port": 8020, "user": "flink"}),
        (
            "webhdfs",
            {"endpoint": "https://node:9871", "key": "flink", "secret": "p"},
            {"host": "node", "port": 9871, "use_https": True, "user": "flink", "password": "p"},
        ),
        ("https", {"headers": {"key": "value"}}, {"headers": {"key": "value"}}),
        ("sftp", {"key": "as the library says"}, {"key": "as the library says"}),
    ],
)
def test_words(protocol: str, words: dict[str, Any], options: dict[str, Any]) -> None:
    assert library_options(protocol, words) == options


@pytest.mark.parametrize(
    ("protocol", "words", "said"),
    [
        ("s3", {"key": "k3y-s3cret"}, "for s3: 'key' and 'secret' belong together; give both"),
        ("s3", {"key": "k", "secret": ""}, "'secret' needs a text that is not empty"),
        ("s3", {"region": 1}, "'region' needs a text that is not empty"),
        ("s3", {"anonymous": "yes"}, "'anonymous' is true or false"),
        ("s3", {"anonymous": True, "key": "k", "secret": "s"}, "'anonymous' goes without 'key' and 'secret'"),
        (
            "s3",
            {"endpoint": "minio:9000"},
            "'endpoint' cannot be used: the address does not start with http:// or https://",
        ),
        ("s3", {"endpoint": "http://me:a/b@minio"}, "a user or a password contains an unescaped"),
        ("abfs", {"endpoint": "https://[minio"}, "the host is missing or cannot be parsed"),
        ("s3", {"endpoint": "https://a", "endpoint_url": "https://b"}, "'endpoint_url' says the same as another word"),
        ("gs", {"region": "eu"}, "for gs: 'region' means nothing there; the words for it are endpoint, anonymous, key"),
        (
            "gs",
            {"key": "{s3cret"},
            "'key' is not valid JSON; set it to the content of a service account's key file, or its path",
        ),
        ("hdfs", {"endpoint": ":8020"}, "'endpoint' is host:port of the name node"),
        ("hdfs", {"endpoint": "node:port"}, "'endpoint' is host:port of the name node"),
        ("webhdfs", {"anonymous": True}, "'anonymous' means nothing there"),
    ],
)
def test_words_that_cannot_be_used(protocol: str, words: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError) as error:
        library_options(protocol, words)
    assert said in str(error.value)
    assert str(error.value).startswith("option skills.source.options, for ")
    assert "s3cret" not in str(error.value)


def test_a_wrong_word_is_found_before_anything_is_fetched(reader: Reader) -> None:
    reader.options = {"s3": {"key": "only"}}
    with pytest.raises(ConfigError, match="belong together"):
        reader.fetch("s3://bucket/s.zip")


def test_oss_takes_the_names_of_its_own_tools(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OSS_ACCESS_KEY_ID", "k")
    monkeypatch.setenv("OSS_ACCESS_KEY_SECRET", "s")
    assert library_options("oss", {"endpoint": "https://o"}) == {"endpoint": "https://o", "key": "k", "secret": "s"}
    assert library_options("oss", {"endpoint": "https://o", "anonymous": True}) == {"endpoint": "https://o"}
    check_here("oss", {"endpoint": "https://o"})
    assert is_anonymous("oss", {"endpoint": "https://o"})
    assert not is_anonymous("oss", {"key": "k"})


@pytest.mark.parametrize(
    ("protocol", "package"),
    [
        ("s3", "'flink-skills[s3]'"),
        ("gs", "gcsfs"),
        ("abfs", "adlfs"),
        ("oss", "ossfs"),
        ("webhdfs", "requests"),
        ("hdfs", "pyarrow"),
        ("sftp", "paramiko"),
    ],
)
def test_a_package_that_is_missing(
    reader: Reader, monkeypatch: pytest.MonkeyPatch, protocol: str, package: str
) -> None:
    monkeypatch.setitem(known_implementations, protocol, {"class": "not_there.FileSystem", "err": "install it"})
    monkeypatch.delitem(import_module("fsspec.registry")._registry, protocol, raising=False)
    with pytest.raises(ConfigError) as error:
        reader.fetch(f"{protocol}://bucket/s.zip")
    message = (
        f"skill source {protocol}://bucket/s.zip: {protocol} needs a package that is missing: pip install {package}"
    )
    assert str(error.value) == message


def test_secrets_stand_in_no_error(reader: Reader, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STORE_SECRET", "s3cret-of-environment")
    reader.options = {"s3": {"endpoint": "http://127.0.0.1:1", "key": "key-1", "secret": "${env:STORE_SECRET}"}}
    reader.seconds = 1
    error = reader.failure("s3://bucket/s.zip?versionId=s3cret")
    assert "s3cret" not in repr(error) + str(error) + error.source
    assert str(error).startswith("skill source s3://bucket/s.zip: ")
