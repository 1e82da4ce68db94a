"""Prefixes of addresses that events may name."""

from __future__ import annotations

import pytest

from flink_skills.errors import ConfigError
from flink_skills.sources import AllowedPrefixes


@pytest.mark.parametrize(
    ("prefix", "url"),
    [
        ("https://good.example/inbox/", "https://good.example/inbox/a.csv"),
        ("https://good.example/inbox", "https://GOOD.example.:443/inbox/x/a.csv?sig=1#f"),
        ("https://good.example", "https://good.example/a"),
        ("https://good.example/", "https://good.example/a//b"),
        ("https://good.example/a%20b/", "https://good.example/a%20b/c"),
        ("http://good.example:80/", "http://good.example/a"),
        ("https://good.example:8443/", "https://good.example:8443/a"),
        ("https://git.example/api/", "https://git.example/api/group%2Fproject/raw"),
        ("https://[2001:db8::1]/", "https://[2001:0db8:0::1]:443/a"),
        ("s3://bucket", "s3://bucket/key"),
        ("s3://bucket/in/", "s3a://bucket/in/a%20b"),
        ("gs://bucket/", "gcs://bucket/key"),
        ("abfss://box@account.dfs.core.windows.net/in", "abfss://box@Account.dfs.core.windows.net/in/a"),
        ("artifact://", "artifact://out/a.txt@0123456789abcdef"),
        ("artifact://out/", "artifact://out/a.txt"),
    ],
)
def test_what_is_under_a_prefix_is_allowed(prefix: str, url: str) -> None:
    AllowedPrefixes([prefix]).check(url)


@pytest.mark.parametrize(
    ("prefix", "url"),
    [
        ("https://good.example/", "https://good.example@evil.example/"),
        ("https://good.example/", "https://user:pw@good.example/a"),
        ("https://good.example/", "https://good.example.evil.example/a"),
        ("https://good.example/", "https://evil.example/https://good.example/"),
        ("https://good.example/", "https://evil.example\\@good.example/"),
        ("https://good.example/", "https://good.example:8443/a"),
        ("https://good.example/", "http://good.example/a"),
        ("https://good.example/", "https:good.example/a"),
        ("https://good.example/", "https://good.example\n.evil.example/a"),
        ("https://good.example/", "https://good.example:99999/a"),
        ("https://good.example/", "simplecache::https://good.example/a"),
        ("https://good.example/", "https://good.example/a::https://evil.example/"),
        ("https://good.example/", "https://${env:HOST}/a"),
        ("https://good.example/", f"https://good.example/{'a' * 5000}"),
        ("https://good.example/in/", "https://good.example/in2/a"),
        ("https://good.example/in/", "https://good.example/IN/a"),
        ("https://good.example/in/", "https://good.example//in/a"),
        ("https://good.example/in/", "https://good.example/in/../a"),
        ("https://good.example/in/", "https://good.example/in/%2e%2E/a"),
        ("https://good.example/in/", "https://good.example/in/%252e%252e/a"),
        ("https://good.example/in/", "https://good.example/in/x%2f..%2f..%2fa"),
        ("https://good.example/in/", "https://good.example/in/x%5c..%5ca"),
        ("https://good.example/in/", "https://good.example/in/..;x=1/a"),
        ("https://good.example/in/", "https://good.example/in%2f/a"),
        ("s3://bucket", "s3://bucket-evil/key"),
        ("s3://bucket/", "s3://Bucket/key"),
        ("s3://bucket/", "s3://user@bucket/key"),
        ("s3://bucket/", "s3:///bucket/key"),
        ("s3://bucket/in/", "s3://bucket/in/../key"),
        ("s3://bucket/in", "s3://bucket/inner"),
        ("artifact://out", "artifact://other/a"),
        ("artifact://", "file:///etc/passwd"),
    ],
)
def test_what_is_not_under_a_prefix_is_refused(prefix: str, url: str) -> None:
    assert not AllowedPrefixes([prefix]).allows(url)


@pytest.mark.parametrize(
    "prefix",
    [
        "https://",
        "s3://",
        "file:///tmp",
        "bucket/",
        "https://u:p@h/",
        "https://h/?a=1",
        "https://h/..",
        "https://h/a b",
    ],
)
def test_a_prefix_that_cannot_be_used(prefix: str) -> None:
    with pytest.raises(ConfigError, match=r"option skills\.files\.allowed"):
        AllowedPrefixes([prefix])


def test_the_error_names_the_option_and_a_prefix_and_no_secret() -> None:
    with pytest.raises(ConfigError) as caught:
        AllowedPrefixes(["s3://other"]).check("https://h.example/a.csv?X-Amz-Signature=SECRET")
    assert "skills.files.allowed; to allow it, add https://h.example/ or" in str(caught.value)
    with pytest.raises(ConfigError) as other:
        AllowedPrefixes([]).check("https://me:SECRET@h.example/a.csv")
    assert "SECRET" not in f"{caught.value} {other.value}"
