"""Pauses that headers of error responses ask for, as the providers document them."""

from __future__ import annotations

from typing import Any

import pytest

from flink_skills.models import pause_of

DATE = "Wed, 21 Oct 2026 07:28:00 GMT"


def openai(**more: str) -> dict[str, str]:
    return {"date": DATE, "x-ratelimit-remaining-requests": "0", **more}


def test_headers_of_openai() -> None:
    headers = {
        "x-ratelimit-limit-requests": "500",
        "x-ratelimit-remaining-requests": "0",
        "x-ratelimit-reset-requests": "120ms",
        "x-ratelimit-limit-tokens": "200000",
        "x-ratelimit-remaining-tokens": "199000",
        "x-ratelimit-reset-tokens": "6m0s",
    }
    # Only the quota of requests is used up.
    assert pause_of(headers) == pytest.approx(0.12)
    assert pause_of({**headers, "x-ratelimit-remaining-tokens": "0"}) == 360


@pytest.mark.parametrize("kind", ["requests", "tokens", "input-tokens", "output-tokens"])
def test_headers_of_anthropic(kind: str) -> None:
    headers = {"date": DATE}
    for each in ("requests", "tokens", "input-tokens", "output-tokens"):
        headers[f"anthropic-ratelimit-{each}-remaining"] = "0" if each == kind else "50000"
        headers[f"anthropic-ratelimit-{each}-limit"] = "60000"
        headers[f"anthropic-ratelimit-{each}-reset"] = f"2026-10-21T07:28:{'09' if each == kind else '30'}Z"
    assert pause_of(headers) == 9
    assert pause_of({**headers, "retry-after": "7"}) == 7


def test_headers_of_azure_have_no_reset() -> None:
    assert pause_of({"x-ratelimit-remaining-requests": "0", "x-ratelimit-remaining-tokens": "0"}) is None


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
    assert pause_of(openai(**{"x-ratelimit-reset-requests": text})) == pytest.approx(seconds)


HOSTILE = ["", " ", "-1", "1e9", "nan", "inf", "0x10", "١٢", "1s2", "s", "1 s", "9" * 5000, "1s" * 5000, "1m1m", "None"]


@pytest.mark.parametrize("text", [*HOSTILE, "2026-13-01T00:00:00Z", "9999-99-99T99:99:99Z", "0000-00-00T00:00:00Z"])
def test_a_reset_that_is_not_valid_is_ignored(text: str) -> None:
    assert pause_of(openai(date=text, **{"x-ratelimit-reset-requests": text})) is None


@pytest.mark.parametrize("text", HOSTILE)
def test_a_number_that_is_not_valid_is_ignored(text: str) -> None:
    headers: dict[str, Any] = {"anthropic-ratelimit-tokens-remaining": text, "retry-after": "soon"}
    assert pause_of({**headers, "anthropic-ratelimit-tokens-reset": "2026-10-21T07:28:09Z"}) is None


def test_retry_after_is_seconds_milliseconds_or_a_date() -> None:
    assert pause_of({"retry-after": "2.5"}) == 2.5
    assert pause_of({"retry-after-ms": "250", "retry-after": "9"}) == 0.25
    assert pause_of({"date": DATE, "retry-after": "Wed, 21 Oct 2026 07:29:00 GMT"}) == 60
    assert pause_of({"retry-after": "inf"}) is None
