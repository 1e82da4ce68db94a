"""S3: what is fetched, what is not fetched twice, and what a refusal says."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from flink_skills.errors import ConfigError
from tests.sources.object_stores.buckets import Endpoint
from tests.sources.object_stores.faults import FaultyProxy, faulty_proxy
from tests.sources.object_stores.reading import SKILL, Reader, zip_bytes

URL = "s3://skills/team/skills.zip"
OTHER = zip_bytes({"other/SKILL.md": SKILL.replace(b"greet", b"other")})


@pytest.fixture
def proxy(endpoint: Endpoint) -> Iterator[FaultyProxy]:
    """Without faults: it counts."""
    with faulty_proxy(endpoint.url) as counting:
        yield counting


@pytest.fixture
def s3(endpoint: Endpoint, proxy: FaultyProxy, reader: Reader) -> Reader:
    endpoint.put("skills", "team/skills.zip", zip_bytes())
    reader.options = {"s3": endpoint.at(proxy.url).options()}
    return reader


def test_an_object_is_fetched_with_one_look_and_one_read(s3: Reader, proxy: FaultyProxy) -> None:
    assert s3.fetch(URL) == zip_bytes()
    assert [method for method, _ in proxy.requests] == ["HEAD", "GET"]


def test_s3a_takes_the_options_of_s3(s3: Reader) -> None:
    assert s3.fetch("s3a://skills/team/skills.zip") == zip_bytes()


def test_the_words_of_the_library_pass_as_they_are(s3: Reader, endpoint: Endpoint) -> None:
    region = {"region_name": endpoint.region}
    library = {"endpoint_url": endpoint.url, "client_kwargs": region, "key": endpoint.key, "secret": endpoint.secret}
    s3.options = {"s3": library}
    assert s3.fetch(URL) == zip_bytes()


def test_unchanged_content_is_not_fetched_twice(s3: Reader, endpoint: Endpoint, proxy: FaultyProxy) -> None:
    first = s3.resolve(URL)
    assert Path(first.path, "greet/SKILL.md").read_bytes() == SKILL
    assert proxy.count("GET") == 1
    assert s3.resolve(URL).path == first.path
    endpoint.put("skills", "team/skills.zip", zip_bytes())  # the same once more, later
    assert s3.resolve(URL).path == first.path
    assert proxy.count("GET") == 1
    endpoint.put("skills", "team/skills.zip", OTHER)
    changed = s3.resolve(URL)
    assert changed.path != first.path
    assert proxy.count("GET") == 2


def test_an_upload_in_parts_has_a_version_too(s3: Reader, endpoint: Endpoint, proxy: FaultyProxy) -> None:
    half = 5 << 20  # the least that a part may have
    skill = {"greet/SKILL.md": SKILL, "greet/assets/data.bin": bytes(2 * half)}
    whole = zip_bytes(skill)
    endpoint.put_in_parts("skills", "parts.zip", whole[:half], whole[half:])
    assert "-2" in endpoint.client().head_object(Bucket="skills", Key="parts.zip")["ETag"]
    first = s3.resolve("s3://skills/parts.zip")
    assert s3.resolve("s3://skills/parts.zip").path == first.path
    assert proxy.count("GET") == 1


def test_a_version_of_an_object_is_its_own(endpoint: Endpoint, reader: Reader) -> None:
    client = endpoint.client()
    name = "versioned"
    endpoint.make_bucket(name)
    client.put_bucket_versioning(Bucket=name, VersioningConfiguration={"Status": "Enabled"})
    old = client.put_object(Bucket=name, Key="s.zip", Body=b"old")["VersionId"]
    client.put_object(Bucket=name, Key="s.zip", Body=b"new")
    reader.options = {"s3": endpoint.options()}
    assert reader.fetch(f"s3://{name}/s.zip") == b"new"
    assert reader.fetch(f"s3://{name}/s.zip?versionId={old}") == b"old"
    assert reader.version(f"s3://{name}/s.zip") != reader.version(f"s3://{name}/s.zip?versionId={old}")


def test_what_is_no_object(s3: Reader) -> None:
    assert "the address is a folder; append '/'" in str(s3.failure("s3://skills/team"))
    assert "the address is a folder; append '/'" in str(s3.failure("s3://skills"))


def test_a_file_in_an_archive_in_the_store(s3: Reader, endpoint: Endpoint, proxy: FaultyProxy) -> None:
    inner = zip_bytes()
    endpoint.put("skills", "all.zip", zip_bytes({"teams/inner.zip": inner, "greet/SKILL.md": SKILL}))
    assert s3.fetch("zip://teams/inner.zip::s3://skills/all.zip") == inner
    assert s3.fetch("zip://greet/SKILL.md::zip://teams/inner.zip::s3://skills/all.zip") == SKILL
    assert s3.fetch("simplecache::zip://greet/SKILL.md::s3://skills/all.zip") == SKILL
    assert proxy.count("GET") == 3
    error = s3.failure("zip://teams/none.zip::s3://skills/all.zip")
    assert "there is no file 'teams/none.zip' in the archive" in str(error)
    assert not error.retryable
    tree = s3.resolve("zip://teams/inner.zip::s3://skills/all.zip")
    assert Path(tree.path, "greet/SKILL.md").read_bytes() == SKILL
    assert s3.version("zip://teams/inner.zip::s3://skills/all.zip") == s3.version("s3://skills/all.zip")


def test_cache_protocols_do_not_hide_changes(s3: Reader, endpoint: Endpoint) -> None:
    first = s3.resolve(f"filecache::{URL}")
    endpoint.put("skills", "team/skills.zip", OTHER)
    assert s3.resolve(f"filecache::{URL}").path != first.path


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("zip://::s3://b/x.zip", "zip:: names no file in the archive"),
        ("zip://a/../b::s3://b/x.zip", "zip:: names no file in the archive"),
        ("zip::s3://b/x.zip", "zip:: names no file in the archive"),
        ("blocks://x::s3://b/x.zip", "blocks:: cannot precede another URL"),
        ("zip://x.zip", "does not end in a URL"),
        ("zip://a.zip::tar://b.tar", "does not end in a URL"),
        ("simplecache://x.zip", "does not end in a URL"),
    ],
)
def test_chains_that_are_refused(reader: Reader, url: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        reader.fetch(url)


def test_public_objects_need_no_credentials(moto: Endpoint, reader: Reader) -> None:
    moto.client().put_object(Bucket="skills", Key="public.zip", Body=b"public", ACL="public-read")
    reader.options = {"s3": {"endpoint": moto.url, "anonymous": True}}
    assert reader.fetch("s3://skills/public.zip") == b"public"


# Refusals, by a store that checks


@pytest.mark.parametrize(
    ("url", "changed", "said"),
    [
        ("s3://skills/none.zip", {}, "the source does not exist; check the address"),
        ("s3://No_Bucket!/x.zip", {}, "the address is invalid; check its host, bucket and path"),
        ("s3://no-such-bucket/x.zip", {}, "the bucket does not exist; check the bucket's name, 'endpoint' and"),
        ("s3://skills/x.zip", {"secret": "wr0ng-s3cret"}, "access is refused; check AWS_ACCESS_KEY_ID"),
        ("s3://skills/x.zip", {"key": "skills:nobody"}, "access is refused; check AWS_ACCESS_KEY_ID"),
        (
            "s3://skills/x.zip",
            {"key": None, "secret": None, "anonymous": True},
            "access without credentials is refused; use AWS_ACCESS_KEY_ID",
        ),
        ("s3://skills/x.zip", {"key": None, "secret": None}, "there are no credentials for it; use AWS_ACCESS_KEY_ID"),
        ("s3://skills/x.zip", {"region": "eu-other-2"}, r"check 'region' and 'endpoint' in skills.source.options"),
    ],
)
def test_refusals_say_what_and_where_and_the_fix(
    swift: Endpoint, reader: Reader, url: str, changed: dict[str, object], said: str
) -> None:
    swift.put("skills", "x.zip", b"x")
    with faulty_proxy(swift.url) as counting:
        reader.options = {"s3": swift.at(counting.url).options(**changed)}
        error = reader.failure(url)
        assert counting.count() <= 2
    assert said in str(error)
    assert str(error).startswith(f"skill source {url}: ")
    assert not error.retryable
    assert "s3cret" not in str(error)
    assert swift.secret not in str(error)


@pytest.mark.parametrize("address", ["http://127.0.0.1:1", "http://store.invalid"])
def test_an_endpoint_that_is_not_there(reader: Reader, address: str, impatient: None) -> None:
    reader.options = {"s3": {"endpoint": address, "key": "k", "secret": "s"}}
    error = reader.failure("s3://skills/x.zip")
    assert "the server is unreachable; check the address, 'endpoint' and the network" in str(error)
    assert error.retryable
