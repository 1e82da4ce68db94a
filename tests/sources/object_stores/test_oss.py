"""Alibaba Cloud OSS. There is no emulator of it: an S3 interface stands in, whose answers have the same form.

What this shows: options, paths, requests, downloads and errors. What it does not: OSS's own signatures.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from flink_skills.errors import SourceError
from tests.sources.object_stores.buckets import Endpoint
from tests.sources.object_stores.faults import Fault, FaultyProxy, faulty_proxy
from tests.sources.object_stores.reading import SKILL, Reader, zip_bytes

URL = "oss://skills/oss/skills.zip"


@pytest.fixture
def proxy(moto: Endpoint) -> Iterator[FaultyProxy]:
    with faulty_proxy(moto.url) as between:
        yield between


@pytest.fixture
def oss(moto: Endpoint, proxy: FaultyProxy, reader: Reader) -> Reader:
    client = moto.client()
    client.put_object(Bucket="skills", Key="oss/skills.zip", Body=zip_bytes(), ACL="public-read")
    reader.options = {"oss": {"endpoint": proxy.url, "anonymous": True}}
    return reader


def test_skills_from_a_bucket(oss: Reader, moto: Endpoint, proxy: FaultyProxy) -> None:
    first = oss.resolve(URL)
    assert Path(first.path, "greet/SKILL.md").read_bytes() == SKILL
    assert oss.resolve(URL).path == first.path
    assert [method for method, _ in proxy.requests] == ["HEAD", "GET", "HEAD"]
    other = zip_bytes({"other/SKILL.md": SKILL.replace(b"greet", b"other")})
    moto.client().put_object(Bucket="skills", Key="oss/skills.zip", Body=other, ACL="public-read")
    assert oss.resolve(URL).path != first.path


def test_a_key_signs_what_is_asked(oss: Reader, proxy: FaultyProxy, monkeypatch: pytest.MonkeyPatch) -> None:
    oss.options = {"oss": {"endpoint": proxy.url}}
    monkeypatch.setenv("OSS_ACCESS_KEY_ID", "from-environment")
    monkeypatch.setenv("OSS_ACCESS_KEY_SECRET", "s3cret")
    with contextlib.suppress(SourceError):  # the store that stands in does not know this kind of signature
        oss.fetch(URL)
    assert b"OSS from-environment:" in proxy.heads[0]


def test_a_refusal_names_the_credentials(oss: Reader, moto: Endpoint) -> None:
    moto.put("skills", "oss/private.zip", b"x")
    error = oss.failure("oss://skills/oss/private.zip")
    assert "access without credentials is refused" in str(error)
    assert "OSS_ACCESS_KEY_ID and OSS_ACCESS_KEY_SECRET" in str(error)
    assert not error.retryable


def test_what_is_not_there(oss: Reader) -> None:
    error = oss.failure("oss://skills/none.zip")
    assert "the source does not exist; check the address" in str(error)
    assert not error.retryable


def test_an_endpoint_is_needed(reader: Reader) -> None:
    error = reader.failure(URL)
    assert "for oss: 'region' (such as cn-hangzhou) or 'endpoint' is required" in str(error)
    assert not error.retryable


@pytest.mark.usefixtures("impatient")
def test_a_server_that_is_not_there(reader: Reader) -> None:
    reader.options = {"oss": {"endpoint": "http://127.0.0.1:1", "key": "k", "secret": "s3cret"}}
    error = reader.failure(URL)
    assert "the server is unreachable" in str(error)
    assert error.retryable
    assert "s3cret" not in str(error)


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize(
    ("fault", "said"),
    [
        (Fault("status", status=503), "the server returned 503; try again"),
        (Fault("hang"), "the server sent nothing for"),
        (Fault("reset"), "try again"),
    ],
)
def test_faults(oss: Reader, proxy: FaultyProxy, fault: Fault, said: str) -> None:
    oss.seconds = 5
    proxy.plan = lambda number: fault
    error = oss.failure(URL)
    assert said in str(error)
    assert error.retryable
    assert 1 < proxy.count() <= 4
    proxy.reset_counts()
    proxy.plan = lambda number: fault if number == 1 else Fault()
    assert oss.fetch(URL) == zip_bytes()
