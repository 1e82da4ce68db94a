from __future__ import annotations

import pytest

from flink_skills import WorkerError
from flink_skills.agents.messages import AssistantMessage, ToolCall, ToolMessage, UserMessage
from flink_skills.agents.session import Session, SessionOp

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
        session, change = session.after(messages, state, {"m": {"loaded": turn // 50}})
        chunks = apply(chunks, change)
        read = Session.decode(chunks)
        assert (read.messages, read.state, read.skill_states) == (session.messages, session.state, session.skill_states)


def test_nothing_new_keeps_the_session() -> None:
    session, _ = Session().after({"m": MESSAGES}, {"a": 1}, {})
    same, change = session.after({}, {"a": 1}, {})
    assert same is session
    assert change.op == SessionOp.KEEP


def test_state_alone_stays_one_chunk() -> None:
    session, chunks = Session(), []
    for turn in range(10):
        session, change = session.after({}, {"n": turn}, {})
        chunks = apply(chunks, change)
    assert len(chunks) == 1


def test_appended_part_does_not_grow_with_the_history() -> None:
    session = Session()
    sizes = []
    for _ in range(100):
        session, change = session.after({"m": [UserMessage("x" * 100)]}, None, {})
        sizes.append(sum(map(len, change.chunks)))
    assert max(sizes) == min(sizes)


def test_superseded_state_is_cleared_up() -> None:
    session, chunks = Session(), []
    for turn in range(300):
        session, change = session.after({"m": [UserMessage("x")]}, {"n": turn, "pad": "y" * 1000}, {})
        chunks = apply(chunks, change)
    assert sum(map(len, chunks)) < 60_000


def test_later_changes_to_the_state_do_not_reach_into_the_session() -> None:
    state = {"list": [1]}
    session, _ = Session().after({}, state, {})
    state["list"].append(2)
    assert session.state == {"list": [1]}


def test_unknown_version_is_named() -> None:
    with pytest.raises(WorkerError, match="version 9 cannot be read"):
        Session.decode([b"\x09{}"])
