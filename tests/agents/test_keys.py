from __future__ import annotations

import datetime as dt
import decimal
import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flink_skills import ConfigError
from flink_skills.agents import key_failure, key_failure_text, key_from_text, key_to_text

SCALARS = (
    st.none()
    | st.text()
    | st.booleans()
    | st.integers()
    | st.dates()
    | st.datetimes()
    | st.binary()
    | st.uuids()
    | st.decimals(allow_nan=False)
)


@given(st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=3).map(tuple), max_leaves=5))
def test_keys_come_back(key: object) -> None:
    assert key_from_text(key_to_text(key)) == key


@pytest.mark.parametrize(
    ("key", "text"),
    [
        ("job-1", '"job-1"'),
        ('a"b\\c\n\u00e9', '"a\\"b\\\\c\\n\u00e9"'),
        (17, "17"),
        (17.0, "17"),
        (True, "true"),
        (None, "null"),
        (("a", 1), '["a",1]'),
        ({"b": 1, "a": 2}, '{"a":2,"b":1}'),
        (dt.date(2026, 1, 2), '{"$date":"2026-01-02"}'),
        (decimal.Decimal("1.50"), '{"$decimal":"1.50"}'),
        (uuid.UUID(int=1), '{"$uuid":"00000000-0000-0000-0000-000000000001"}'),
    ],
)
def test_text_is_fixed_because_state_is_kept_under_it(key: object, text: str) -> None:
    assert key_to_text(key) == text


def test_other_objects_are_refused() -> None:
    with pytest.raises(ConfigError, match="a key is object"):
        key_to_text(object())


def test_failure_keys() -> None:
    text = key_failure_text('no "field"')
    assert key_failure(text) == 'no "field"'
    assert key_failure('"a"') is None
    assert key_from_text(text) is None
