from __future__ import annotations

import datetime as dt
import decimal
import json
import pickle
import struct
import uuid
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flink_skills import ConfigError, Media, Record, WorkerError
from flink_skills.agents import (
    NO_CONVERSATION,
    KeptConversation,
    Redactor,
    Session,
    SessionOp,
    key_failure,
    key_failure_text,
    key_from_text,
    key_to_text,
)
from flink_skills.agents.state.event import stored_event
from flink_skills.models import AssistantMessage, ToolCall, ToolMessage, UserMessage

MESSAGES = [
    UserMessage("hi \ud83d"),
    AssistantMessage("", (ToolCall("1", "t", {"a": [1]}), ToolCall("2", "u", "not json"))),
    ToolMessage("1", "t", "r", is_error=True),
]


def apply(chunks: list[bytes], change: object) -> list[bytes]:
    assert change.op != SessionOp.CLEAR
    if change.op == SessionOp.KEEP:
        return chunks
    return [*chunks, *change.chunks] if change.op == SessionOp.APPEND else list(change.chunks)


def test_chunks_and_memory_agree_whatever_the_turns_do() -> None:
    session, chunks = Session(), []
    for turn in range(200):
        messages = {"m": MESSAGES} if turn % 3 == 0 else {}
        state = {"n": turn, "text": "x" * 500} if turn % 2 == 0 else session.state
        session, change = session.after(
            KeptConversation(messages, {"m": {"loaded": turn // 50}}), state, of=("", "a", "b")[turn % 3], most=2
        )
        chunks = apply(chunks, change)
        read = Session.decode(chunks)
        assert [*read.conversations.items()] == [*session.conversations.items()]
        assert read.state == session.state
        assert len(session.conversations) <= 2


def test_messages_without_media_are_counted_from_the_first_on() -> None:
    photo = UserMessage("see", (Media("image/png", "photo.png", 3, "artifact://photo.png@1"),))
    session = Session()
    found = []
    for messages in ([*MESSAGES], [UserMessage("more")], [photo, UserMessage("after")], [UserMessage("last")]):
        session, _ = session.after(KeptConversation({"m": messages}), None)
        found.append(session.conversation().without_media("m"))
    assert found == [3, 4, 4, 4]
    shorter, _ = session.after(KeptConversation({"m": [photo]}), None, shortened={"m": [UserMessage("sum")]})
    assert shorter.conversation().without_media("m") == 1
    assert NO_CONVERSATION.without_media("m") == 0


def test_nothing_new_keeps_the_session() -> None:
    session, _ = Session().after(KeptConversation({"m": MESSAGES}), {"a": 1})
    same, change = session.after(NO_CONVERSATION, {"a": 1})
    assert same is session
    assert change.op == SessionOp.KEEP


def test_state_alone_stays_one_chunk() -> None:
    session, chunks = Session(), []
    for turn in range(10):
        session, change = session.after(NO_CONVERSATION, {"n": turn})
        chunks = apply(chunks, change)
    assert len(chunks) == 1


def test_appended_part_does_not_grow_with_the_history() -> None:
    session = Session()
    sizes = []
    for _ in range(100):
        session, change = session.after(KeptConversation({"m": [UserMessage("x" * 100)]}), None)
        sizes.append(sum(map(len, change.chunks)))
    assert max(sizes) == min(sizes)


def test_superseded_state_is_cleared_up() -> None:
    session, chunks = Session(), []
    for turn in range(300):
        session, change = session.after(KeptConversation({"m": [UserMessage("x")]}), {"n": turn, "pad": "y" * 1000})
        chunks = apply(chunks, change)
    assert sum(map(len, chunks)) < 60_000


def test_at_most_twice_what_changed_is_written() -> None:
    history = [UserMessage("x" * 1000) for _ in range(400)]
    session, change = Session().after(KeptConversation({"m": history}), {"n": 0, "pad": "y" * 17_000})
    chunks, written, changed = apply([], change), 0, 0
    for turn in range(1, 200):
        session, change = session.after(
            KeptConversation({"m": [UserMessage("hello")]}, {"m": {"loaded": turn, "pad": "z" * 500}}),
            {"n": turn, "pad": "y" * 17_000},
        )
        chunks = apply(chunks, change)
        written += sum(map(len, change.chunks))
        changed += 17_600
    assert written < 2 * changed
    assert sum(map(len, chunks)) < 3 * 450_000
    read = Session.decode(chunks)
    assert (read.size, read.superseded, read.state_bytes) == (session.size, session.superseded, session.state_bytes)


def test_later_changes_to_the_state_do_not_reach_into_the_session() -> None:
    state = {"list": [1]}
    session, _ = Session().after(NO_CONVERSATION, state)
    state["list"].append(2)
    assert session.state == {"list": [1]}


def test_unknown_version_is_named() -> None:
    with pytest.raises(WorkerError, match="version 9 cannot be read"):
        Session.decode([b"\x09{}"])


def test_conversations_of_one_key_are_apart() -> None:
    session, first = Session().after(KeptConversation({"m": MESSAGES}), {"n": 1})
    added = KeptConversation({"m": [UserMessage("of a")]}, {"m": {"loaded": 1}})
    session, second = session.after(added, {"n": 2}, of="a")
    assert (first.op, second.op) == (SessionOp.APPEND, SessionOp.APPEND)
    read = Session.decode([*first.chunks, *second.chunks])
    assert read.conversation("a").messages == {"m": [UserMessage("of a")]}
    assert read.conversation().messages == {"m": MESSAGES}
    assert read.conversation("none") == NO_CONVERSATION
    assert read.state == {"n": 2}


def test_the_conversation_that_was_used_longest_ago_goes() -> None:
    session, chunks = Session(), []
    for id_ in ("a", "b", "a", "c"):
        session, change = session.after(KeptConversation({"m": [UserMessage(id_)]}), None, of=id_, most=2)
        chunks = apply(chunks, change)
    assert [*session.conversations] == ["a", "c"]
    assert [*Session.decode(chunks).conversations] == ["a", "c"]


def test_what_the_first_release_wrote_is_read() -> None:
    chunk = b'\x01{"m":{"m":[{"u":"hi"}]},"a":{"m":{"loaded":1}},"s":{"n":1}}'
    read = Session.decode([chunk])
    assert read.conversation() == KeptConversation({"m": [UserMessage("hi")]}, {"m": {"loaded": 1}})
    assert read.state == {"n": 1}


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


@pytest.mark.each_python
@given(st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=3).map(tuple), max_leaves=5))
def test_keys_come_back(key: object) -> None:
    assert key_from_text(key_to_text(key)) == key


@pytest.mark.each_python
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


@pytest.mark.each_python
@given(KEYS, KEYS)
def test_different_keys_have_different_texts_and_equal_keys_the_same(one: object, other: object) -> None:
    assert (key_to_text(one) == key_to_text(other)) == (shown(one) == shown(other))


@pytest.mark.each_python
@given(KEYS)
def test_each_text_can_be_encoded_and_read(key: object) -> None:
    text = key_to_text(key)
    text.encode()
    assert key_failure(text) is None
    key_from_text(text)


@pytest.mark.each_python
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


@pytest.mark.each_python
@pytest.mark.parametrize(
    "key",
    [10**5000, {1: "a", "1": "b"}, float("nan"), float("inf"), {"a": {object()}}],
    ids=["digits", "names", "nan", "inf", "set"],
)
def test_keys_without_a_text_are_rejected(key: object) -> None:
    with pytest.raises(ConfigError, match="a key"):
        key_to_text(key)


@pytest.mark.each_python
def test_a_key_that_contains_itself_is_rejected() -> None:
    key: list[object] = []
    key.append(key)
    with pytest.raises(ConfigError, match="a key of type list has no text"):
        key_to_text(key)


@pytest.mark.each_python
def test_other_objects_are_refused() -> None:
    with pytest.raises(ConfigError, match="a key is object"):
        key_to_text(object())


@pytest.mark.each_python
def test_failure_keys() -> None:
    text = key_failure_text('no "field"')
    assert key_failure(text) == 'no "field"'
    assert key_failure('"a"') is None
    assert key_failure(key_to_text({"$unknown-key": 1, "a": 2})) is None
    assert key_failure(key_to_text({"$unknown-key": 1})) is None
    assert key_from_text(text) is None


HEADER = struct.Struct(">BBq")


def stored(content: bytes, timestamp: int | None = None) -> dict[str, Any]:
    return stored_event(HEADER.pack(1, timestamp is not None, timestamp or 0) + content)


@pytest.mark.parametrize("protocol", [2, 4, 5])
@pytest.mark.parametrize(
    ("event", "shown"),
    [
        ("text", "text"),
        (7, 7),
        ({"a": [1, None, 2.5]}, {"a": [1, None, 2.5]}),
        (Record(id="a1", at=dt.datetime(2026, 2, 3)), {"id": "a1", "at": "2026-02-03T00:00:00"}),
        ((Decimal("1.50"), dt.date(2026, 2, 3)), ["1.50", "2026-02-03"]),
    ],
)
def test_an_event_of_plain_values_is_shown(event: Any, shown: Any, protocol: int) -> None:
    assert stored(pickle.dumps(event, protocol=protocol), 17) == {"timestamp": 17, "event": shown}


def test_an_event_of_a_table_is_shown() -> None:
    assert stored(json.dumps({"id": "ä"}).encode()) == {"event": {"id": "ä"}}


class Writes:
    """An event whose pickle does something when it is opened."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return (Path.write_text, (self.path, "opened"))


def test_an_event_of_other_classes_is_not_opened(tmp_path: Path) -> None:
    content = pickle.dumps({"inner": Writes(tmp_path / "trace")})
    assert stored(content) == {"bytes": len(content)}
    assert not (tmp_path / "trace").exists()
    pickle.loads(content)  # shows that this one does something
    assert (tmp_path / "trace").exists()


def test_what_is_no_event_is_its_size() -> None:
    assert stored(b"\xff\xfe") == {"bytes": 2}


def test_hides_what_it_was_told() -> None:
    redactor = Redactor()
    assert redactor.redact("abc") == "abc"
    redactor.hide(["abc", "", "abcdef"])
    assert redactor.redact("abcdef abc") == "*** ***"


def test_hides_a_value_as_json_too() -> None:
    redactor = Redactor()
    redactor.hide(['a "quoted" value'])
    assert redactor.redact('{"text": "a \\"quoted\\" value"}') == '{"text": "[hidden]"}'


def test_passes_texts_through_what_knows_more_at_the_time() -> None:
    redactor = Redactor()
    known: list[str] = []

    def without_known(text: str) -> str:
        for value in known:
            text = text.replace(value, "[hidden]")
        return text

    redactor.add_filter(without_known, lambda text: 5 if text.endswith("later"[:3]) else 0)
    redactor.hide(["fixed"])
    assert redactor.redact("fixed later") == "*** later"
    known.append("later")
    assert redactor.redact("fixed later") == "*** [hidden]"
    assert redactor.secret_prefix_length("a fix") == 3
    assert redactor.secret_prefix_length("a fixed") == 0
    assert redactor.secret_prefix_length("it is lat") == 5
