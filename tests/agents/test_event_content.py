"""Images, PDF documents and audio of events: read, shown to models, stored, and the same after a failover."""

from __future__ import annotations

import base64
import dataclasses
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from flink_skills import Agent, Media, Record, ResourceDescriptor, SkillsError, chat_model_setup, tool
from flink_skills.agents import Session, TurnOutcome, TurnStatus, compile_plan, decode
from flink_skills.models import UserMessage
from flink_skills.testing import Reply, Rule, ScriptedModel, ScriptedModelServer, calls
from flink_skills.testing import call as call_of
from tests.kit.agents import OpenAgent
from tests.kit.media import JPEG, MP3, PDF, PNG, WAV
from tests.kit.models import Script
from tests.sources.web import ALLOWED, Page, Web


class Looks(Agent):
    model = "scripted:m"
    instructions = "You look."
    content_fields = ("photo", "papers")


class Remembers(Looks):
    session = "key"


@pytest.fixture
def web() -> Iterator[Web]:
    server = Web()
    server.pages["/in/a.png"] = Page(PNG)
    yield server
    server.close()


@pytest.fixture
def kept(tmp_path: Path) -> dict[str, str]:
    return {"skills.artifacts.dir": str(tmp_path / "kept")}


def seeing(script: Script, answers: Any, *kinds: str) -> ScriptedModel:
    model = script(answers)
    model.accepts = frozenset(kinds or ("image", "pdf"))
    return model


def shown(model: ScriptedModel, request: int = -1) -> list[tuple[str, bytes | None]]:
    return [(of.name, of.data) for message in model.requests[request].messages for of in message.media]


def texts(model: ScriptedModel, request: int = -1) -> str:
    return "\n".join(message.content for message in model.requests[request].messages)


def error_of(outcome: TurnOutcome) -> str:
    assert outcome.status == TurnStatus.FAILED, outcome
    return str(outcome.outputs[0][1]["error"])


def allowed(web: Web, **more: Any) -> dict[str, Any]:
    return {"skills.files.allowed": f"{web.url}/in/", **ALLOWED, **more}


@dataclasses.dataclass
class Case:
    photo: Any
    text: str = "look"


@pytest.mark.parametrize(
    ("value", "name", "data"),
    [
        (PNG, "photo.png", PNG),
        (base64.b64encode(PDF).decode(), "photo.pdf", PDF),
        (f"data:image/png;base64,{base64.b64encode(JPEG).decode()}", "photo.jpg", JPEG),
        ({"name": "../crash.png", "data": PNG}, "crash.png", PNG),
        # The type in the event is ignored.
        ({"name": "crash.png", "data": PDF, "mime_type": "image/png"}, "crash.png", PDF),
    ],
)
@pytest.mark.parametrize("make", [lambda photo: {"photo": photo, "text": "look"}, Case])
async def test_a_model_receives_the_bytes_and_its_text_has_the_name(
    open_agent: OpenAgent, script: Script, value: Any, name: str, data: bytes, make: Any
) -> None:
    model = seeing(script, ["a cat"])
    bench = await open_agent(Looks)
    outcome = await bench.turn(make(value))
    assert outcome.status == TurnStatus.DONE, outcome
    assert shown(model) == [(name, data)]
    assert name in texts(model)
    assert "size_bytes" in texts(model)
    assert "look" in texts(model)
    assert base64.b64encode(data).decode()[:40] not in texts(model)


async def test_lists_and_several_fields_are_in_order_with_unique_names(open_agent: OpenAgent, script: Script) -> None:
    model = seeing(script, ["ok"])
    bench = await open_agent(Looks)
    await bench.turn(Record(papers=[PDF, {"data": PNG, "name": "photo"}, None], photo=JPEG))
    assert shown(model) == [("photo.jpg", JPEG), ("papers.pdf", PDF), ("photo-2", PNG)]


async def test_an_event_without_content_is_unchanged(open_agent: OpenAgent, script: Script) -> None:
    model = seeing(script, ["ok"] * 3)
    bench = await open_agent(Looks)
    for event in ({"photo": None, "papers": [], "n": 1}, {"n": 1}, "plain"):
        outcome = await bench.turn(event)
        assert outcome.status == TurnStatus.DONE, outcome
        assert shown(model) == []
        assert bench.journal[0] and "content#0" not in str(bench.journal)


async def test_a_model_that_cannot_see_reads_a_sentence(open_agent: OpenAgent, script: Script) -> None:
    model = seeing(script, ["ok"], "pdf")
    bench = await open_agent(Looks)
    await bench.turn({"photo": PNG, "papers": [PDF, MP3]})
    assert shown(model) == [("papers.pdf", PDF)]
    assert f"[image photo.png, {len(PNG)} bytes: this model cannot see images]" in texts(model)
    assert f"[audio papers-2.mp3, {len(MP3)} bytes: this model cannot hear audio]" in texts(model)


@pytest.mark.parametrize(
    ("event", "options", "problem"),
    [
        ({"photo": b"<svg/>"}, {}, "content field 'photo': photo (unrecognized bytes) cannot be passed to a model"),
        ({"photo": "not base64!"}, {}, "content field 'photo': the data is not valid base64"),
        ({"photo": 7}, {}, "content field 'photo': an entry is int"),
        (
            {"photo": "http://127.0.0.1/a.png"},
            {},
            "content field 'photo': http://127.0.0.1/a.png: the address is under no prefix",
        ),
        ({"photo": "file:///etc/passwd"}, {}, "content field 'photo', file:///etc/passwd: the uri"),
        ({"papers": [PNG] * 3}, {"skills.content.max-count": 2}, "content field 'papers': the event has 3 items, more"),
        (
            {"photo": PNG, "papers": PDF},
            {"skills.content.max-bytes": len(PNG) + 1},
            f"content field 'papers': the content of the event has more bytes than skills.content.max-bytes = "
            f"{len(PNG) + 1}",
        ),
        ({"photo": "artifact://a.png"}, {"skills.files.allowed": "artifact://"}, "set skills.artifacts.dir"),
    ],
)
async def test_a_turn_fails_with_an_error_that_names_the_field(
    open_agent: OpenAgent, event: Any, options: Any, problem: str
) -> None:
    bench = await open_agent(Looks, **options)
    assert problem in error_of(await bench.turn(event))


async def test_an_address_is_fetched_once_also_if_the_turn_is_repeated(
    open_agent: OpenAgent, script: Script, web: Web, kept: dict[str, str]
) -> None:
    model = seeing(script, ["one", "two"])
    bench = await open_agent(Looks, **allowed(web), **kept)
    event = {"photo": f"{web.url}/in/a.png?sig=SECRET"}
    await bench.turn(event)
    assert shown(model) == [("a.png", PNG)]
    [entry, *_] = map(decode, bench.journal)
    assert entry["id"] == "content#0"
    assert "SECRET" not in str(entry)
    web.pages["/in/a.png"] = Page(JPEG)
    fetched = web.count("GET")
    await bench.turn(event, journal=bench.journal[:1])
    assert shown(model) == [("a.png", PNG)]
    assert web.count("GET") == fetched


async def test_without_a_store_other_content_at_the_address_fails_the_repeated_turn(
    open_agent: OpenAgent, script: Script, web: Web
) -> None:
    model = seeing(script, ["one", "two"])
    bench = await open_agent(Looks, **allowed(web))
    event = {"photo": f"{web.url}/in/a.png"}
    await bench.turn(event)
    journal = bench.journal[:1]
    await bench.turn(event, journal=journal)
    assert shown(model) == [("a.png", PNG)]
    web.pages["/in/a.png"] = Page(JPEG)
    assert "the content changed after the turn started" in error_of(await bench.turn(event, journal=journal))


@pytest.mark.parametrize(
    ("page", "options", "problem"),
    [
        (Page(status=302, headers={"Location": "/secret.png"}), {}, "is under no prefix of skills.files.allowed"),
        (Page(PNG), {"skills.source.allow-private": False}, "set skills.source.allow-private: true"),
        (
            Page(PNG),
            {"skills.content.max-bytes": 9},
            "limit of 9 bytes; reduce it, or raise skills.content.max-b",
        ),
        (Page(b"<html>"), {}, "a.png (unrecognized bytes) cannot be passed to a model"),
    ],
)
async def test_an_address_is_fetched_by_the_rules_of_files(
    open_agent: OpenAgent, web: Web, page: Page, options: Any, problem: str
) -> None:
    web.pages["/in/a.png"], web.pages["/secret.png"] = page, Page(PNG)
    bench = await open_agent(Looks, **{**allowed(web), **options})
    error = error_of(await bench.turn({"photo": f"{web.url}/in/a.png"}))
    assert error.startswith("TurnError: content field 'photo'")
    assert problem in error
    assert ("GET", "/secret.png") not in web.requests


async def test_a_session_has_the_reference_and_a_later_turn_the_bytes(
    open_agent: OpenAgent, script: Script, kept: dict[str, str]
) -> None:
    model = seeing(script, ["a cat", "black", "gone"])
    bench = await open_agent(Remembers, **kept)
    first = await bench.turn({"photo": PNG, "text": "what?"})
    [chunk, *_] = first.change.chunks
    assert b"artifact://content/photo.png@" in chunk
    assert PNG[:20] not in chunk
    assert base64.b64encode(PNG)[:20] not in chunk

    again = await open_agent(Remembers, **kept)
    session = Session.decode(first.change.chunks)
    second = await again.turn({"text": "which color?"}, session=session, number=2)
    assert second.status == TurnStatus.DONE, second
    assert shown(model) == [("photo.png", PNG)]


async def test_content_that_is_gone_is_a_sentence(
    open_agent: OpenAgent, script: Script, kept: dict[str, str], tmp_path: Path
) -> None:
    model = seeing(script, ["a cat", "black"])
    bench = await open_agent(Remembers, **kept)
    first = await bench.turn({"photo": PNG})
    for file in (tmp_path / "kept").rglob("*.png"):
        if file.is_file():
            file.unlink()
    again = await open_agent(Remembers, **kept)
    outcome = await again.turn("which color?", session=Session.decode(first.change.chunks), number=2)
    assert outcome.status == TurnStatus.DONE, outcome
    assert shown(model) == []
    assert f"[image photo.png, {len(PNG)} bytes: the content is no longer stored]" in texts(model)


async def test_a_request_omits_the_oldest_content_over_the_limit(
    open_agent: OpenAgent, script: Script, kept: dict[str, str]
) -> None:
    model = seeing(script, lambda request: "ok")
    bench = await open_agent(Remembers, **kept, **{"skills.content.max-count": 4})
    session = Session()
    counts = []
    for number in range(1, 8):
        outcome = await bench.turn({"photo": PNG + bytes([number])}, session=session, number=number)
        session = outcome.session
        counts.append(len(shown(model)))
        assert shown(model)[-1] == ("photo.png", PNG + bytes([number]))
    # In batches of half of the limit: the prefix of a request stays the same in between.
    assert counts == [1, 2, 3, 4, 3, 4, 3]
    assert texts(model).count("omitted, because a request has room only for newer content") == 4


async def test_an_artifact_of_the_key_is_shown(open_agent: OpenAgent, script: Script, kept: dict[str, str]) -> None:
    model = seeing(script, ["one", "two"])
    bench = await open_agent(Remembers, **kept, **{"skills.files.allowed": "artifact://"})
    await bench.turn({"photo": PNG})
    location = model.requests[0].messages[0].media[0].location
    outcome = await bench.turn({"papers": [location]}, number=2)
    assert outcome.status == TurnStatus.DONE, outcome
    assert shown(model) == [("photo.png", PNG)]


class Asks(Looks):
    async def on_event(self, event: Any, ctx: Any) -> Any:
        first = await ctx.chat("Describe it.", content=ctx.content)
        second = await ctx.chat("Now without.")
        return [first, second, [of.summary for of in ctx.content]]


async def test_code_passes_content_with_its_own_message(open_agent: OpenAgent, script: Script) -> None:
    model = seeing(script, ["a cat", "nothing new"])
    bench = await open_agent(Asks)
    outcome = await bench.turn({"photo": PNG})
    assert outcome.outputs == (("", ["a cat", "nothing new", [f"image photo.png, {len(PNG)} bytes"]]),)
    messages = model.requests[1].messages
    assert [message.media != () for message in messages] == [True, False, False]
    assert isinstance(messages[0], UserMessage)
    assert messages[0].content == "Describe it."


class Draws(Looks):
    content_fields = ()

    @tool
    def draw(self) -> list[Any]:
        """Draws."""
        return ["drawn", Media.of(PNG, "plot.png"), Media.of(WAV, "plot.wav")]


class DrawsForLong(Draws):
    session = "key"


async def test_a_tool_shows_its_result_also_in_a_repeated_turn_and_the_next_one(
    open_agent: OpenAgent, script: Script, kept: dict[str, str]
) -> None:
    answers = [calls(call_of("draw")), "nice", "nice", "still"]
    model = seeing(script, answers, "image")
    bench = await open_agent(DrawsForLong, **kept)
    first = await bench.turn("draw")
    assert shown(model) == [("plot.png", PNG)]
    assert f"[audio plot.wav, {len(WAV)} bytes: this model cannot hear audio]" in texts(model)
    journal = b"".join(bench.journal)
    assert b"artifact://content/plot.png@" in journal
    assert base64.b64encode(PNG)[:20] not in journal
    # The journal has the result of the tool, and lacks the answer.
    again = await open_agent(DrawsForLong, **kept)
    await again.turn("draw", journal=bench.journal[:2])
    assert shown(model) == [("plot.png", PNG)]
    await again.turn("and now?", session=Session.decode(first.change.chunks), number=2)
    assert shown(model) == [("plot.png", PNG)]


async def test_without_a_store_the_result_of_a_tool_is_gone_after_a_failure(
    open_agent: OpenAgent, script: Script
) -> None:
    model = seeing(script, [calls(call_of("draw")), "nice", "gone"])
    bench = await open_agent(Draws)
    await bench.turn("draw")
    assert shown(model) == [("plot.png", PNG)]
    await (await open_agent(Draws)).turn("draw", journal=bench.journal[:2])
    assert shown(model) == []
    assert "plot.png, 70 bytes: the content is no longer stored" in texts(model)


async def test_media_of_a_result_over_the_limit_are_sentences(open_agent: OpenAgent, script: Script) -> None:
    model = seeing(script, [calls(call_of("draw")), "nice"], "image", "audio")
    bench = await open_agent(Draws, **{"skills.content.max-count": 1})
    await bench.turn("draw")
    assert shown(model) == [("plot.png", PNG)]
    reason = "omitted, because the result of draw has more items than skills.content.max-count = 1"
    assert f"[audio plot.wav, {len(WAV)} bytes: {reason}]" in texts(model)


@pytest.mark.parametrize(
    ("attributes", "fields", "problem"),
    [
        ({}, ["photoo", "papers"], "unknown field 'photo' in content_fields of agent looks: did you mean 'photoo'"),
        ({"content_fields": ("a", "a")}, None, "content_fields names 'a' twice"),
        ({"content_fields": ("files",)}, None, "content_fields names 'files', the field of files for commands"),
        ({"session": "key"}, None, "the job does not store it: set skills.artifacts.dir"),
    ],
)
def test_a_wrong_declaration_is_found_before_the_job_starts(
    attributes: dict[str, Any], fields: Any, problem: str
) -> None:
    agent = type("Made", (Looks,), {"name": "looks", "model": "offline", **attributes})
    with pytest.raises(SkillsError, match=re.escape(problem)):
        compile_plan(agent, fields=fields)


class Served(Agent):
    instructions = "You look."
    content_fields = ("photo",)

    def __init__(self, url: str, media: list[str] | None) -> None:
        self.url, self.media = url, media

    @chat_model_setup
    def m(self) -> ResourceDescriptor:
        more = {} if self.media is None else {"media": self.media}
        return ResourceDescriptor("openai-compatible.setup", model="m", base_url=self.url, **more)


@pytest.mark.parametrize(("media", "arrives"), [(["image"], True), (None, False)])
async def test_the_bytes_of_an_event_arrive_at_a_server_that_is_declared_to_see(
    open_agent: OpenAgent, media: list[str] | None, arrives: bool
) -> None:
    with ScriptedModelServer([Rule(Reply("a cat"))]) as server:
        bench = await open_agent(Served(server.url, media))
        outcome = await bench.turn({"photo": base64.b64encode(PNG).decode()})
        assert outcome.status == TurnStatus.DONE, outcome
        [body] = server.requests
    sent = str(body["messages"][-1]["content"])
    assert (base64.b64encode(PNG).decode() in sent) == arrives
    assert ("this model cannot see images" in sent) != arrives
