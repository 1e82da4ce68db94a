"""A model that does not answer is replaced by its fallbacks: for which errors, with what, and for how long."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from flink_skills import (
    Agent,
    ModelError,
    PlanError,
    ResourceDescriptor,
    SkillConfig,
    UnknownNameError,
    agent_tool,
    chat_model_setup,
    tool,
)
from flink_skills.agents import TurnOutcome, TurnStatus, compile_plan, decode, open_plan
from flink_skills.manager import SkillScope
from flink_skills.models import ModelResponse, ModelSetup, Provider, Usage, register_provider, unregister_provider
from flink_skills.telemetry import (
    Activity,
    CostObserver,
    Delta,
    Discarded,
    MetricsObserver,
    Observer,
    Telemetry,
)
from flink_skills.testing import ScriptedModel, call, calls
from tests.kit.agents import Bench, OpenAgent
from tests.kit.local import local_environment
from tests.kit.media import PNG

pytestmark = pytest.mark.row("K11")

DOWN = ModelError("down", retryable=True)
QUICK = {"skills.model.retry-backoff": "1 ms", "skills.model.max-retries": 1}


class Models:
    """Models of the provider ``by-name``, by the name of the model."""

    def __init__(self) -> None:
        self.by_name: dict[str, ScriptedModel] = {}

    def script(self, **answers: Any) -> None:
        for name, script in answers.items():
            self.by_name[name] = ScriptedModel(script, name=name)

    def asked(self, *names: str) -> list[int]:
        return [len(self.by_name[name].requests) for name in names]


@pytest.fixture
def models() -> Iterator[Models]:
    found = Models()
    create = Provider("by-name", lambda setup, config: found.by_name[setup.model], strategies=True)
    register_provider(create)
    yield found
    unregister_provider("by-name")


class Clerk(Agent):
    name = "clerk"
    session = "key"
    instructions = "You help."

    @chat_model_setup
    @staticmethod
    def main() -> ResourceDescriptor:
        return ResourceDescriptor(clazz="by-name:first", fallback=["spare", "by-name:third"], temperature=0.5)

    @chat_model_setup
    @staticmethod
    def spare() -> ResourceDescriptor:
        return ResourceDescriptor(clazz="by-name:second", strategy="json", seed=7, price=3.0)

    @tool
    def weigh(self, text: str) -> int:
        """Weighs a string."""
        return len(text)


def answer(text: str) -> str:
    return f'{{"next": {{"action": "answer", "arguments": {{"content": "{text}"}}}}}}'


def error_of(outcome: TurnOutcome) -> str:
    assert outcome.status is TurnStatus.FAILED
    return outcome.message


class Looks(Clerk):
    content_fields = ("photo",)
    session = "event"


async def test_a_fallback_gets_a_sentence_for_content_that_it_does_not_accept(
    open_agent: OpenAgent, models: Models
) -> None:
    models.script(first=lambda request: DOWN, second=[answer("a cat")], third=[])
    models.by_name["first"].accepts = frozenset({"image"})
    bench = await open_agent(Looks, **QUICK)
    outcome = await bench.turn({"photo": PNG, "text": "look"})
    assert outcome.outputs == (("", "a cat"),)
    first, second = (models.by_name[name].requests[0].messages[0] for name in ("first", "second"))
    assert [of.data for of in first.media] == [PNG]
    assert second.media == ()
    assert "cannot see images" in second.content


async def test_a_model_that_stays_down_is_replaced_for_the_rest_of_the_turn(
    open_agent: OpenAgent, models: Models
) -> None:
    weigh = '{"next": {"action": "weigh", "arguments": {"text": "abc"}}}'
    models.script(first=lambda request: DOWN, second=[weigh, answer("three")], third=[])
    bench = await open_agent(Clerk, **QUICK)
    outcome = await bench.turn("how heavy?")
    assert outcome.outputs == (("", "three"),)
    # The first step asks twice, the second step not at all.
    assert models.asked("first", "second", "third") == [2, 2, 0]
    assert [decode(entry)["r"].get("by") for entry in bench.journal] == ["spare", None, "spare"]
    first, second = models.by_name["first"].requests[0], models.by_name["second"].requests[0]
    # The settings and the strategy are those of the fallback, the rest is what the first model got.
    assert dict(first.settings) == {"temperature": 0.5} and dict(second.settings) == {"seed": 7}
    assert first.tools and not second.tools and "weigh" in second.system and second.system.startswith("You help.")
    assert first.messages[0].content == "how heavy?"

    # The next turn asks the first model again, which reads what its fallback said.
    models.script(first=["good"])
    again = await open_agent(Clerk, **QUICK)
    await again.turn("and now?", number=2, session=outcome.session)
    read = [message.content for message in models.by_name["first"].requests[0].messages]
    assert read[0] == "how heavy?" and read[-2:] == ["three", "and now?"]


async def test_a_replay_goes_on_with_the_model_that_answered(open_agent: OpenAgent, models: Models) -> None:
    weigh = '{"next": {"action": "weigh", "arguments": {"text": "abc"}}}'
    models.script(first=lambda request: DOWN, second=[weigh, answer("three")], third=[])
    bench = await open_agent(Clerk, **QUICK)
    whole = await bench.turn("how heavy?")
    journal = bench.journal
    for kept in range(1, len(journal) + 1):
        # The first model is back, and is not asked in this turn any more.
        models.script(first=[], second=[answer("three")], third=[])
        bench = await open_agent(Clerk, **QUICK)
        outcome = await bench.turn("how heavy?", journal=journal[:kept])
        assert (outcome.outputs, outcome.session) == (whole.outputs, whole.session)
        assert models.asked("first", "second") == [0, 0 if kept == len(journal) else 1]


async def test_journals_of_releases_without_fallbacks_are_read(open_agent: OpenAgent, models: Models) -> None:
    models.script(first=[calls(call("weigh", text="abc")), "three"], second=[], third=[])
    bench = await open_agent(Clerk, **QUICK)
    await bench.turn("x")
    journal = bench.journal
    # The first model is named in no entry, so its entries are as they ever were.
    assert all("by" not in decode(entry)["r"] for entry in journal)
    models.script(first=["three"])
    bench = await open_agent(Clerk, **QUICK)
    assert (await bench.turn("x", journal=journal[:2])).outputs == (("", "three"),)


@pytest.mark.parametrize(
    "error",
    [ModelError("key refused"), ModelError("too long", rejects_request=True), ModelError("busy", retryable=True)],
    ids=str,
)
async def test_any_error_of_a_model_goes_to_the_next_one(
    open_agent: OpenAgent, models: Models, error: ModelError
) -> None:
    models.script(first=lambda request: error, second=lambda request: error, third=["found"])
    bench = await open_agent(Clerk, **QUICK)
    assert (await bench.turn("x")).outputs == (("", "found"),)
    tries = 2 if error.retryable else 1
    assert models.asked("first", "second", "third") == [tries, tries, 1]
    # Text of a provider has the settings that every provider has, and here also the rest.
    assert dict(models.by_name["third"].requests[0].settings) == {"temperature": 0.5}


async def test_without_any_answer_the_errors_of_all_are_said(open_agent: OpenAgent, models: Models) -> None:
    models.script(first=lambda request: DOWN, second=lambda request: ModelError("no such key"), third=lambda r: DOWN)
    bench = await open_agent(Clerk, **QUICK)
    said = error_of(await bench.turn("x"))
    assert "main: down (given up after 2 attempts); spare: no such key; by-name:third: down" in said
    # A step that failed is in no journal.
    assert bench.journal == []


async def test_a_long_pause_that_a_provider_asks_for_is_not_waited_for(open_agent: OpenAgent, models: Models) -> None:
    busy = ModelError("busy", retryable=True, retry_after=3600.0)
    models.script(first=lambda request: busy, second=[answer("here")], third=[])
    bench = await open_agent(Clerk, **{**QUICK, "skills.turn.timeout": "20 s"})
    assert (await bench.turn("x")).outputs == (("", "here"),)


async def test_a_request_that_the_end_of_the_turn_cuts_has_no_fallback(open_agent: OpenAgent, models: Models) -> None:
    async def hang(request: Any) -> str:
        await asyncio.Event().wait()
        return "never"

    models.script(first=hang, second=[], third=[])
    bench = await open_agent(Clerk, **{**QUICK, "skills.turn.timeout": "200 ms"})
    assert "skills.turn.timeout" in error_of(await bench.turn("x"))
    assert models.asked("second", "third") == [0, 0]


async def test_an_open_circuit_passes_a_model_over_until_a_request_finds_it_well(
    open_agent: OpenAgent, models: Models
) -> None:
    models.script(first=lambda request: DOWN, second=lambda request: answer("spare"), third=[])
    bench = await open_agent(Clerk, **QUICK)
    for number in range(1, 7):
        assert (await bench.turn("x", number=number)).outputs == (("", "spare"),)
    assert models.asked("first", "second") == [5, 6]
    # If all others fail, a model with an open circuit is asked once.
    models.by_name["second"]._script = lambda request: ModelError("no key")
    models.by_name["third"]._script = lambda request: ModelError("no key")
    assert "main: down" in error_of(await bench.turn("x", number=7))
    assert models.asked("first") == [6]
    models.by_name["first"]._script = lambda request: "well"
    assert (await bench.turn("x", number=8)).outputs == (("", "well"),)
    assert (await bench.turn("x", number=9)).outputs == (("", "well"),)


async def test_a_turn_does_not_go_on_with_its_retries_when_the_circuit_opens(
    open_agent: OpenAgent, models: Models
) -> None:
    models.script(first=lambda request: DOWN, second=lambda request: answer("spare"), third=[])
    bench = await open_agent(Clerk, **{**QUICK, "skills.model.max-retries": 50})
    assert (await bench.turn("x")).outputs == (("", "spare"),)
    assert models.asked("first") == [5]


async def test_a_request_that_waits_for_its_retry_leaves_when_others_open_the_circuit(
    open_agent: OpenAgent, models: Models
) -> None:
    models.script(first=lambda request: DOWN, second=lambda request: answer("spare"), third=[])
    bench = await open_agent(Clerk, **{**QUICK, "skills.model.retry-backoff": "100 ms"})
    outcomes = await asyncio.gather(*(bench.turn("x", key=f'"{key}"') for key in "abcde"))
    assert [outcome.outputs for outcome in outcomes] == [(("", "spare"),)] * 5
    assert models.asked("first") == [5]


async def test_an_agent_that_is_a_tool_has_fallbacks_of_its_own(open_agent: OpenAgent, models: Models) -> None:
    class Desk(Agent):
        name = "desk"
        model = "by-name:desk"

        @agent_tool
        def clerk(self) -> Agent:
            "Knows."
            return Clerk()

    models.script(desk=[calls(call("clerk", request="x")), "done"], first=lambda r: DOWN, second=[answer("inner")])
    models.script(third=[])
    bench = await open_agent(Desk, **QUICK)
    assert (await bench.turn("x")).outputs == (("", "done"),)
    assert models.by_name["desk"].requests[1].messages[-1].content == "inner"


class Listener(Observer):
    wants_deltas = True

    def __init__(self) -> None:
        self.chats: list[Activity] = []
        self.deltas: list[tuple[str, Delta]] = []

    def ended(self, activity: Activity) -> None:
        if activity.kind == "chat":
            self.chats.append(activity)

    def delta(self, activity: Activity, delta: Delta) -> None:
        self.deltas.append((activity.name, delta))


def million_tokens() -> ModelResponse:
    return ModelResponse(answer("spare"), (), Usage(1_000_000, 0, 1), "stop")


async def test_metrics_and_costs_are_those_of_the_model_that_answered(
    tmp_path: Path, models: Models, proved_once: None
) -> None:
    models.script(first=lambda request: DOWN, second=lambda request: million_tokens(), third=[])
    plan = compile_plan(Clerk, config=SkillConfig({**QUICK, "skills.store.dir": str(tmp_path / "store")}))
    reports: list[Any] = []
    metrics = MetricsObserver(reports.append, interval=3600.0)
    listener = Listener()
    telemetry = Telemetry([CostObserver(), metrics, listener])
    runtime = await open_plan(plan, scratch_dir=str(tmp_path / "scratch"), telemetry=telemetry)
    await Bench(runtime).turn("x")
    await runtime.close()

    counted = {
        (name, dict(zip(labels[::2], labels[1::2], strict=True)).get("model")): increase
        for name, labels, increase in reports[-1]["counters"]
    }
    assert [counted[name, "main"] for name in ("requests", "requestFailures", "retries", "fallbacks")] == [0, 1, 1, 1]
    assert [counted[name, "spare"] for name in ("requests", "requestFailures", "inputTokens")] == [1, 0, 1_000_000]
    assert counted["costMicroUsd", "spare"] == 3_000_000 and ("costMicroUsd", "main") not in counted
    failed, answered = listener.chats
    assert (failed.error, answered.error, answered.attributes["fallback_of"]) == ("ModelError", "", "main")
    # Pieces of the first model's answer are withdrawn before those of the second.
    assert ("spare", Discarded(restarted=True)) in listener.deltas


def test_events_name_the_model_that_answered(models: Models) -> None:
    models.script(first=lambda request: DOWN, second=lambda request: million_tokens(), third=[])
    events = [
        event
        for event in local_environment({**QUICK, "skills.events.content": "full"})
        .from_list(["x"])
        .apply(Clerk)
        .to_event_list()
        if event.step
    ]
    assert len({event.id for event in events}) == len(events)
    assert [(event.kind, event.model, event.status) for event in events] == [
        ("retry", "main", "error"),
        ("chat", "main", "error"),
        ("fallback", "main", "error"),
        ("chat", "spare", "ok"),
    ]
    fallback, chat = events[2], events[3]
    assert '"to":"spare"' in fallback.detail and "down" in fallback.detail
    assert chat.model_id == "by-name:second" and '"fallback_of":"main"' in chat.detail and chat.cost == 3.0


async def test_the_log_names_a_fallback_once_in_a_minute(
    open_agent: OpenAgent, models: Models, caplog: pytest.LogCaptureFixture
) -> None:
    models.script(first=lambda request: ModelError("no key"), second=lambda request: answer("spare"), third=[])
    bench = await open_agent(Clerk, **QUICK)
    with caplog.at_level(logging.WARNING, "flink_skills.model"):
        for number in (1, 2, 3):
            await bench.turn("x", number=number)
    (line,) = [record.getMessage() for record in caplog.records if "fallback" in record.getMessage()]
    assert line.startswith("chat model main did not answer (no key): its fallback spare did")


def declared(main: dict[str, Any], spare: dict[str, Any] | None = None, **attributes: Any) -> type[Agent]:
    setups = {"main": main, **({} if spare is None else {"spare": spare})}
    methods = {
        name: chat_model_setup(staticmethod(lambda of=of: ResourceDescriptor(**{"clazz": "offline.setup", **of})))
        for name, of in setups.items()
    }
    return type("Declared", (Agent,), {**methods, **attributes})


@pytest.mark.parametrize(
    ("fallback", "error", "said"),
    [
        (
            ["spar"],
            UnknownNameError,
            "unknown chat model 'spar' in fallback of chat model 'main'.*did you mean 'spare'",
        ),
        (["main"], PlanError, "'main' is the model itself"),
        (["offline"], PlanError, "'offline' is the model itself"),
        (["spare", "spare"], PlanError, "'spare' is listed twice"),
        ("spare", PlanError, "give a list of names"),
        (["openai-compatible:m"], PlanError, "needs base_url.*or declare 'openai-compatible:m' as a chat model"),
        (["opnai:m"], UnknownNameError, "opnai"),
    ],
)
def test_a_fallback_that_cannot_be_asked(fallback: Any, error: type[Exception], said: str) -> None:
    with pytest.raises(error, match=said):
        compile_plan(declared({"fallback": fallback}, {}))


def test_two_models_may_be_the_fallback_of_each_other() -> None:
    plan = compile_plan(declared({"fallback": ["spare"]}, {"fallback": ["main"]}))
    assert [[each.name for each in model.fallback] for model in plan.models] == [["spare"], ["main"]]
    assert type(plan).from_json(plan.to_json()) == plan
    assert plan.describe()["models"]["main"]["fallback"] == ["spare"] and "fallback: spare" in plan.summary()


def test_a_text_has_the_connection_of_the_same_provider_and_neutral_settings_of_another_one() -> None:
    main = {
        "clazz": "openai-compatible:large",
        "base_url": "http://models/v1",
        "api_key_env": "KEY",
        "temperature": 0.1,
        "openai_user": "x",
        "extra_body": {"a": 1},
        "price": 1.0,
        "fallback": ["openai-compatible:small", "anthropic:any"],
    }
    small, other = compile_plan(declared(main)).models[0].fallback
    assert (small.setup.base_url, small.setup.api_key_env, small.setup.price) == ("http://models/v1", "KEY", None)
    assert set(small.setup.settings) == {"temperature", "openai_user", "extra_body"}
    assert (other.setup.base_url, dict(other.setup.settings)) == (None, {"temperature": 0.1})


@tool
def weigh(text: str) -> int:
    """Weighs a string."""
    return len(text)


@pytest.mark.parametrize(
    ("main", "spare", "said"),
    [
        ({}, {"skill_names": ["a"]}, "skill_names lacks some of these skills"),
        ({"skill_names": ["a", "b"]}, {"skill_names": ["a"]}, "skill_names lacks b"),
        ({}, {"tools": []}, "tools lacks weigh"),
        ({"skill_names": ["a"]}, {"skill_names": ["b", "a"]}, ""),
        ({}, {"tools": ["weigh"]}, ""),
        ({"tools": []}, {"tools": []}, ""),
    ],
)
def test_a_fallback_sees_no_more_than_its_own_setup_lets_it(
    tmp_path: Path, main: dict[str, Any], spare: dict[str, Any], said: str
) -> None:
    class Weigher(declared({**main, "fallback": ["spare"]}, spare)):  # type: ignore[misc]
        weigh = staticmethod(weigh)

    def compiled() -> None:
        compile_plan(Weigher, job_scopes=[SkillScope("job", paths=[str(tmp_path)])])

    if not said:
        compiled()
        return
    with pytest.raises(PlanError, match=f"'spare' would get .*{said}"):
        compiled()


def test_a_model_that_replaces_all_has_no_fallbacks() -> None:
    plan = compile_plan(declared({"fallback": ["spare"]}, {}), model=ModelSetup.parse("offline"))
    assert [model.fallback for model in plan.models] == [(), ()]


def test_an_override_may_replace_a_fallback(models: Models) -> None:
    models.script(first=lambda request: ModelError("no key"), second=lambda request: ModelError("no key"))
    models.script(third=["real"])
    replaced = {"by-name:third": ScriptedModel(["from the test"])}
    with Clerk.override(model=replaced):
        outputs = local_environment().from_list(["x"]).apply(Clerk).to_list()
    assert outputs == ["from the test"]
