"""Tools that see their arguments grow, in turns with both providers' streams over loopback."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import pytest

from flink_skills import Agent, BaseToolSet, PlanError, SkillConfig, StreamingFunctionTool, ToolContext, tool, tool_set
from flink_skills.agents import Turn, TurnOutcome, TurnStart, TurnStatus, compile_plan, open_plan
from flink_skills.models import ModelSetup
from flink_skills.telemetry import Activity, Delta, Discarded, Observer, TextDelta, ToolCallDelta
from flink_skills.testing import Call, Reply, Rule, ScriptedModelServer
from flink_skills.tools import StreamedArguments
from tests.kit.waiting import MARGIN

PROVIDERS = ["openai-compatible", "anthropic"]
LETTER = {"to": "ann", "text": "Dear Ann, the order is on its way. " * 3}
NOTE = {"text": "A note that takes more than one piece."}


class Listener(Observer):
    wants_deltas = True

    def __init__(self) -> None:
        self.heard: list[Delta] = []
        self.some = asyncio.Event()

    def delta(self, activity: Activity, delta: Delta) -> None:
        self.heard.append(delta)
        if len(self.heard) > 4:
            self.some.set()


class Seen:
    """What the tools of an agent saw and did, in order."""

    pieces: ClassVar[list[tuple[StreamedArguments, ToolContext]]] = []
    calls: ClassVar[list[tuple[str, Mapping[str, Any], str, int]]] = []
    hook_error: ClassVar[Exception | None] = None
    letter_begun: ClassVar[asyncio.Event] = asyncio.Event()

    @classmethod
    async def hook(cls, streamed: StreamedArguments, context: ToolContext) -> None:
        cls.pieces.append((streamed, context))
        if streamed.tool == "send_letter":
            cls.letter_begun.set()
        if cls.hook_error is not None:
            raise cls.hook_error

    @classmethod
    def of(cls, call_id: str) -> list[StreamedArguments]:
        return [streamed for streamed, context in cls.pieces if context.call_id == call_id]


def send_letter(to: str, text: str, context: ToolContext) -> str:
    """Send a letter."""
    Seen.calls.append(("send_letter", {"to": to, "text": text}, context.call_id, len(Seen.pieces)))
    return "sent"


def keep_note(text: str, context: ToolContext) -> str:
    """Keep a note."""
    Seen.calls.append(("keep_note", {"text": text}, context.call_id, len(Seen.pieces)))
    return "kept"


class Notes(BaseToolSet):
    async def get_tools(self, context: ToolContext) -> list[Any]:
        return [StreamingFunctionTool(keep_note, Seen.hook)]


class Clerk(Agent):
    name = "clerk"
    heard: ClassVar[Sequence[Any]] = ()

    @tool_set
    def at_hand(self) -> list[Any]:
        return [StreamingFunctionTool(send_letter, Seen.hook), Notes()]

    @tool
    def clock(self) -> str:
        """What time it is."""
        return "noon"

    def listeners(self) -> Sequence[Any]:
        return self.heard


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEST_MODEL_KEY", "k")
    Seen.pieces.clear()
    Seen.calls.clear()
    Seen.hook_error = None
    Seen.letter_begun = asyncio.Event()
    Clerk.heard = ()


class Attempt:
    """Turns of one event, with the journal that they leave."""

    def __init__(self, server: ScriptedModelServer, provider: str, tmp_path: Path, **options: str) -> None:
        url = server.origin if provider == "anthropic" else server.url
        config = SkillConfig({"skills.model.retry-backoff": "1 ms", **options})
        setup = ModelSetup(provider, "m", base_url=url, api_key_env="TEST_MODEL_KEY")
        self._plan = compile_plan(Clerk, config=config, model=setup, outputs="record")
        self._place = str(tmp_path)
        self.journal: list[bytes] = []

    async def run(self, crashes: int = 0, until: asyncio.Event | None = None) -> TurnOutcome | None:
        """The outcome, or None for an attempt that ended when ``until`` was set."""
        runtime = await open_plan(self._plan, scratch_dir=self._place)
        try:
            start = TurnStart('"k"', 1, b"hello", "hello", journal=tuple(self.journal), crashes=crashes)
            turn = Turn(runtime, start, lambda entry, reset, outputs: self.journal.append(entry))
            task = asyncio.create_task(turn.run())
            if until is None:
                return await task
            await asyncio.wait_for(until.wait(), MARGIN)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            return None
        finally:
            await runtime.close()


def letters(*calls: Call, **more: Any) -> list[Rule]:
    return [Rule(Reply("I write.", tool_calls=calls, **more), last_role="user"), Rule(Reply("Done."))]


@pytest.mark.row("J21", "J35")
@pytest.mark.parametrize("provider", PROVIDERS)
async def test_a_tool_sees_its_arguments_grow_and_is_called_once(provider: str, tmp_path: Path) -> None:
    with ScriptedModelServer(letters(Call("send_letter", LETTER))) as server:
        attempt = Attempt(server, provider, tmp_path)
        outcome = await attempt.run()
        assert [bool(body.get("stream")) for body in server.requests] == [True, True]
        assert outcome is not None and outcome.status == TurnStatus.DONE
        [(name, arguments, call_id, seen_before)] = Seen.calls
        assert (name, arguments) == ("send_letter", LETTER)
        pieces = Seen.of(call_id)
        assert len(pieces) == len(Seen.pieces) == seen_before > 3
        texts = [piece.arguments.get("text", "") for piece in pieces]
        assert texts == sorted(texts, key=len)
        assert texts[0] == "" and 0 < len(texts[len(texts) // 2]) < len(LETTER["text"])
        assert pieces[-1].arguments == LETTER
        assert "".join(piece.delta for piece in pieces) == pieces[-1].text
        # Again from the journal, which has the call once and no piece.
        entries = len(attempt.journal)
        assert entries == 3
        again = await attempt.run(crashes=1)
        assert again is not None and again.status == TurnStatus.DONE
        assert len(attempt.journal) == entries and len(Seen.calls) == 1 and len(Seen.pieces) == seen_before
        assert len(server.requests) == 2


@pytest.mark.row("J35")
@pytest.mark.parametrize("interleaved", [False, True], ids=["in-sequence", "interleaved"])
@pytest.mark.parametrize("provider", PROVIDERS)
async def test_parallel_calls_are_told_apart_by_index(provider: str, interleaved: bool, tmp_path: Path) -> None:
    if interleaved and provider == "anthropic":
        pytest.skip("its blocks come one after the other")
    second = {"to": "bob", "text": "Dear Bob, yours comes tomorrow. " * 3}
    calls = (Call("send_letter", LETTER), Call("clock"), Call("keep_note", NOTE), Call("send_letter", second))
    Clerk.heard = (listener := Listener(),)
    with ScriptedModelServer(letters(*calls, interleaved=interleaved)) as server:
        outcome = await Attempt(server, provider, tmp_path).run()
    assert outcome is not None and outcome.status == TurnStatus.DONE
    assert len(Seen.calls) == 3
    for name, arguments, call_id, _ in Seen.calls:
        pieces = Seen.of(call_id)
        assert {piece.tool for piece in pieces} == {name}
        assert len(pieces) > 1
        assert pieces[-1].arguments == arguments
    heard = [delta for delta in listener.heard if isinstance(delta, ToolCallDelta)]
    assert {(delta.index, delta.name, delta.is_streaming) for delta in heard} == {
        (0, "send_letter", True),
        (1, "clock", False),
        (2, "keep_note", True),
        (3, "send_letter", True),
    }
    order = [delta.index for delta in heard]
    assert (order == sorted(order)) is not interleaved


@pytest.mark.row("J22")
async def test_only_tools_that_stream_make_requests_streams(tmp_path: Path) -> None:
    class Plain(Clerk):
        def at_hand(self) -> list[Any]:
            return []

    with ScriptedModelServer(letters(Call("clock"))) as server:
        setup = ModelSetup("openai-compatible", "m", base_url=server.url)
        runtime = await open_plan(compile_plan(Plain, model=setup), scratch_dir=str(tmp_path))
        outcome = await Turn(runtime, TurnStart('"k"', 1, b"e", "e"), lambda *_: None).run()
        await runtime.close()
        assert outcome.status == TurnStatus.DONE
        assert [bool(body.get("stream")) for body in server.requests] == [False, False]
    assert Seen.pieces == []


@pytest.mark.parametrize("provider", PROVIDERS)
async def test_half_a_stream_is_withdrawn_and_asked_for_again(provider: str, tmp_path: Path) -> None:
    rules = letters(Call("send_letter", LETTER))
    cut = Rule(Reply("I write.", tool_calls=(Call("send_letter", LETTER),), break_after=9), times=1)
    Clerk.heard = (listener := Listener(),)
    with ScriptedModelServer([cut, *rules]) as server:
        outcome = await Attempt(server, provider, tmp_path).run()
        assert len(server.requests) == 3
    assert outcome is not None and outcome.status == TurnStatus.DONE
    [(_, arguments, call_id, _)] = Seen.calls
    assert arguments == LETTER
    pieces = Seen.of(call_id)
    assert len(pieces) == len(Seen.pieces)
    assert [piece.discarded for piece in pieces].count(True) == 1
    at = [piece.discarded for piece in pieces].index(True)
    assert at > 0 and pieces[at].text == "" and pieces[at].arguments == {}
    assert pieces[at + 1].text.startswith(pieces[at + 1].delta) and pieces[-1].arguments == LETTER
    mark = listener.heard.index(Discarded(restarted=True))
    before = [delta for delta in listener.heard[:mark] if isinstance(delta, TextDelta)]
    after = [delta for delta in listener.heard[mark:] if isinstance(delta, TextDelta)]
    assert "".join(delta.text for delta in before) == "I write."
    assert "".join(delta.text for delta in after) == "I write.Done."


@pytest.mark.parametrize("provider", PROVIDERS)
async def test_the_arguments_of_a_cut_answer_are_withdrawn(provider: str, tmp_path: Path) -> None:
    reason = "max_tokens" if provider == "anthropic" else "length"
    with ScriptedModelServer(letters(Call("send_letter", LETTER), finish_reason=reason)) as server:
        outcome = await Attempt(server, provider, tmp_path).run()
    assert outcome is not None and outcome.status == TurnStatus.DONE
    assert Seen.calls == []
    pieces = [streamed for streamed, _ in Seen.pieces]
    assert [piece.discarded for piece in pieces[:-1]] == [False] * (len(pieces) - 1)
    assert pieces[-1].discarded


@pytest.mark.parametrize("provider", PROVIDERS)
async def test_a_stream_that_stops_runs_into_the_deadline(provider: str, tmp_path: Path) -> None:
    stalled = Rule(Reply("I write.", tool_calls=(Call("send_letter", LETTER),), stall_after=9), times=1)
    with ScriptedModelServer([stalled, *letters(Call("send_letter", LETTER))]) as server:
        outcome = await Attempt(server, provider, tmp_path, **{"skills.model.timeout": "1 s"}).run()
    assert outcome is not None and outcome.status == TurnStatus.DONE
    assert [streamed.discarded for streamed, _ in Seen.pieces].count(True) == 1
    assert len(Seen.calls) == 1


async def test_a_stream_that_never_comes_to_its_end_tells_the_tools_so(tmp_path: Path) -> None:
    with ScriptedModelServer(letters(Call("send_letter", LETTER), break_after=9)) as server:
        outcome = await Attempt(server, "openai-compatible", tmp_path, **{"skills.model.max-retries": "0"}).run()
    assert outcome is not None and outcome.status == TurnStatus.FAILED
    assert Seen.calls == []
    assert [streamed.discarded for streamed, _ in Seen.pieces][-1]


@pytest.mark.parametrize("provider", PROVIDERS)
async def test_a_hook_that_fails_harms_no_turn(provider: str, tmp_path: Path) -> None:
    Seen.hook_error = RuntimeError("no screen")
    with ScriptedModelServer(letters(Call("send_letter", LETTER), Call("keep_note", NOTE))) as server:
        outcome = await Attempt(server, provider, tmp_path).run()
    assert outcome is not None and outcome.status == TurnStatus.DONE
    assert len(Seen.pieces) == 2
    assert [name for name, *_ in Seen.calls] == ["send_letter", "keep_note"]


async def test_arguments_that_do_not_fit_are_seen_and_then_refused(tmp_path: Path) -> None:
    wrong = Rule(Reply(tool_calls=(Call("send_letter", {"text": 3}), Call("keep_note", '{"text": "broken'))), times=1)
    with ScriptedModelServer([wrong, *letters(Call("send_letter", LETTER))[1:]]) as server:
        outcome = await Attempt(server, "openai-compatible", tmp_path).run()
        results = [m["content"] for m in server.requests[-1]["messages"] if m["role"] == "tool"]
    assert outcome is not None and outcome.status == TurnStatus.DONE
    assert Seen.calls == []
    assert "the arguments do not fit" in results[0] and "not valid JSON" in results[1]
    assert [streamed.text for streamed, _ in Seen.pieces][-1] == '{"text": "broken'


@pytest.mark.row("J21")
@pytest.mark.parametrize(
    ("provider", "crashes"), [("openai-compatible", 1), ("anthropic", 1), ("anthropic", 0)], ids=["o", "a", "new-job"]
)
async def test_what_a_killed_attempt_gave_is_marked_and_not_repeated(
    provider: str, crashes: int, tmp_path: Path
) -> None:
    first = letters(Call("keep_note", NOTE))[0]
    stalled = Rule(Reply("Now.", tool_calls=(Call("send_letter", LETTER),), stall_after=9), tool_results=1, times=1)
    going_on = Rule(Reply("Now.", tool_calls=(Call("send_letter", LETTER),)), tool_results=1)
    with ScriptedModelServer([first, stalled, going_on, Rule(Reply("Done."))]) as server:
        attempt = Attempt(server, provider, tmp_path)
        await attempt.run(until=Seen.letter_begun)
        assert [name for name, *_ in Seen.calls] == ["keep_note"]
        killed = next(context for streamed, context in Seen.pieces if streamed.tool == "send_letter")
        Seen.pieces.clear()
        Clerk.heard = (listener := Listener(),)
        outcome = await attempt.run(crashes=crashes)
    assert outcome is not None and outcome.status == TurnStatus.DONE
    # The mark comes first, and what was finished is not told again.
    assert listener.heard[0] == Discarded(restarted=True)
    assert {streamed.tool for streamed, _ in Seen.pieces} == {"send_letter"}
    assert not any(isinstance(delta, ToolCallDelta) and delta.name == "keep_note" for delta in listener.heard)
    # A tool knows by the id of its call to come which of its pieces are those of an attempt before.
    again = Seen.pieces[0][1]
    assert (again.call_id, again.attempt) == (killed.call_id, crashes + 1)
    assert [(name, call_id) for name, _, call_id, _ in Seen.calls][1:] == [("send_letter", killed.call_id)]


async def test_listeners_of_an_agent_hear_answers_while_they_arrive(tmp_path: Path) -> None:
    Clerk.heard = (listener := Listener(),)
    stalled = Rule(Reply("one two three four five six", stall_after=6))
    with ScriptedModelServer([stalled]) as server:
        await Attempt(server, "openai-compatible", tmp_path).run(until=listener.some)
    assert "".join(of.text for of in listener.heard if isinstance(of, TextDelta)) == "one two three four five "


@pytest.mark.parametrize("heard", [("no observer",), (Listener,), None], ids=["text", "class", "none"])
async def test_listeners_that_are_none_are_refused_at_open(heard: Any, tmp_path: Path) -> None:
    Clerk.heard = heard
    plan = compile_plan(Clerk, model=ModelSetup("offline"))
    with pytest.raises(PlanError, match=r"agent clerk: listeners\(\)"):
        await open_plan(plan, scratch_dir=str(tmp_path))
