from __future__ import annotations

import datetime as dt
import decimal
import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flink_skills import ConfigError
from flink_skills.agents import key_failure, key_failure_text, key_from_text, key_to_text

pytestmark = pytest.mark.each_python

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


SURROGATES = st.text(st.characters(categories=["Cs", "Lu"]), max_size=5)
NAMES = st.sampled_from(["$date", "$$date", "$bytes", "$unknown-key", "$", "a", "date"]) | SURROGATES
KEYS = st.recursive(
    SCALARS | SURROGATES | st.floats(allow_nan=False, allow_infinity=False) | st.times(),
    lambda inner: st.lists(inner, max_size=3).map(tuple) | st.dictionaries(NAMES, inner, max_size=2),
    max_leaves=5,
)


def shown(key: object) -> object:
    """The key with its types: values of different types are different keys, but for integral floats."""
    if isinstance(key, float) and key.is_integer() and abs(key) < 2**53:
        key = int(key)
    if isinstance(key, tuple):
        return tuple(map(shown, key))
    if isinstance(key, dict):
        return dict, frozenset((name, shown(value)) for name, value in key.items())
    return type(key), str(key)


@given(KEYS, KEYS)
def test_different_keys_have_different_texts_and_equal_keys_the_same(one: object, other: object) -> None:
    assert (key_to_text(one) == key_to_text(other)) == (shown(one) == shown(other))


@given(KEYS)
def test_each_text_can_be_encoded_and_read(key: object) -> None:
    text = key_to_text(key)
    text.encode()
    assert key_failure(text) is None
    key_from_text(text)


@pytest.mark.parametrize(
    ("key", "text"),
    [
        ("x\ud800y", '"x\\ud800y"'),
        ("\ud83d\ude00", '"\\ud83d\\ude00"'),
        ("\U0001f600", '"\U0001f600"'),
        ({"$date": "2024-01-01"}, '{"$$date":"2024-01-01"}'),
        ({"$$date": 1}, '{"$$$date":1}'),
        ({"$date": 1, "a": 2}, '{"$date":1,"a":2}'),
        ('{"$date":"2024-01-01T00:00:00Z"}', '"{\\"$date\\":\\"2024-01-01T00:00:00Z\\"}"'),
    ],
)
def test_keys_that_look_like_something_else(key: object, text: str) -> None:
    assert key_to_text(key) == text


@pytest.mark.parametrize(
    "key",
    [10**5000, {1: "a", "1": "b"}, float("nan"), float("inf"), {"a": {object()}}],
    ids=["digits", "names", "nan", "inf", "set"],
)
def test_keys_without_a_text_are_rejected(key: object) -> None:
    with pytest.raises(ConfigError, match="a key"):
        key_to_text(key)


def test_a_key_that_contains_itself_is_rejected() -> None:
    key: list[object] = []
    key.append(key)
    with pytest.raises(ConfigError, match="a key of type list has no text"):
        key_to_text(key)


def test_other_objects_are_refused() -> None:
    with pytest.raises(ConfigError, match="a key is object"):
        key_to_text(object())


def test_failure_keys() -> None:
    text = key_failure_text('no "field"')
    assert key_failure(text) == 'no "field"'
    assert key_failure('"a"') is None
    assert key_failure(key_to_text({"$unknown-key": 1, "a": 2})) is None
    assert key_failure(key_to_text({"$unknown-key": 1})) is None
    assert key_from_text(text) is None
