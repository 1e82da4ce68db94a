from __future__ import annotations

import pytest

from flink_skills import Media, WorkerError
from flink_skills.agents import NO_CONVERSATION, KeptConversation, Session, SessionOp
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
