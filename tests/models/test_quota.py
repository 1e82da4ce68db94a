"""Quota in headers of responses, as the providers document them."""

from __future__ import annotations

import pytest

from flink_skills.models import Allowance, Quota, retry_after

DATE = "Wed, 21 Oct 2026 07:28:00 GMT"


def test_headers_of_openai() -> None:
    quota = Quota.read(
        {
            "x-ratelimit-limit-requests": "500",
            "x-ratelimit-remaining-requests": "499",
            "x-ratelimit-reset-requests": "120ms",
            "x-ratelimit-limit-tokens": "200000",
            "x-ratelimit-remaining-tokens": "199000",
            "x-ratelimit-reset-tokens": "6m0s",
        }
    )
    assert quota.allowances == {
        "requests": Allowance(499, 500, pytest.approx(0.12)),
        "tokens": Allowance(199_000, 200_000, 360),
    }
    assert quota.retry_after is None


def test_headers_of_anthropic() -> None:
    headers = {"date": DATE, "retry-after": "7"}
    for kind, left in (("requests", "3"), ("tokens", "50000"), ("input-tokens", "40000"), ("output-tokens", "0")):
        headers[f"anthropic-ratelimit-{kind}-remaining"] = left
        headers[f"anthropic-ratelimit-{kind}-limit"] = "60000"
        headers[f"anthropic-ratelimit-{kind}-reset"] = "2026-10-21T07:28:09Z"
    quota = Quota.read(headers)
    assert {kind: of.remaining for kind, of in quota.allowances.items()} == {
        "requests": 3,
        "tokens": 50_000,
        "input-tokens": 40_000,
        "output-tokens": 0,
    }
    assert {of.seconds for of in quota.allowances.values()} == {9}
    assert quota.retry_after == 7


def test_headers_of_azure_have_no_reset() -> None:
    found = Quota.read({"x-ratelimit-remaining-requests": "119", "x-ratelimit-remaining-tokens": "100000"})
    assert found.allowances == {"requests": Allowance(119), "tokens": Allowance(100_000)}


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("1s", 1),
        ("20ms", 0.02),
        ("1m30.5s", 90.5),
        ("2h", 7200),
        ("1d1h1m1s1ms", 90_061.001),
        ("17µs", 17e-6),
        ("42", 42),
        ("2026-10-21T09:28:30+02:00", 30),
        ("2026-10-21T07:28:00.5Z", 0.5),
        ("2026-10-21T01:58:00-05:30", 0),
        ("2020-01-01T00:00:00Z", 0),
    ],
)
def test_forms_of_a_reset(text: str, seconds: float) -> None:
    headers = {"date": DATE, "x-ratelimit-remaining-requests": "1", "x-ratelimit-reset-requests": text}
    assert Quota.read(headers).allowances["requests"].seconds == pytest.approx(seconds)


HOSTILE = ["", " ", "-1", "1e9", "nan", "inf", "0x10", "١٢", "1s2", "s", "1 s", "9" * 5000, "1s" * 5000, "1m1m", "None"]


@pytest.mark.parametrize("text", [*HOSTILE, "2026-13-01T00:00:00Z", "9999-99-99T99:99:99Z", "0000-00-00T00:00:00Z"])
def test_a_reset_that_is_not_valid_is_ignored(text: str) -> None:
    headers = {"date": text, "x-ratelimit-remaining-requests": "1", "x-ratelimit-reset-requests": text}
    assert Quota.read(headers).allowances == {"requests": Allowance(1)}


@pytest.mark.parametrize("text", HOSTILE)
def test_a_number_that_is_not_valid_is_ignored(text: str) -> None:
    assert not Quota.read({"anthropic-ratelimit-tokens-remaining": text, "retry-after": "soon"})
    headers = {"anthropic-ratelimit-tokens-remaining": "1", "anthropic-ratelimit-tokens-limit": text}
    assert Quota.read(headers).allowances == {"tokens": Allowance(1)}


def test_retry_after_is_seconds_milliseconds_or_a_date() -> None:
    assert retry_after({"retry-after": "2.5"}) == 2.5
    assert retry_after({"retry-after-ms": "250", "retry-after": "9"}) == 0.25
    assert retry_after({"date": DATE, "retry-after": "Wed, 21 Oct 2026 07:29:00 GMT"}) == 60
    assert retry_after({"retry-after": "inf"}) is None
