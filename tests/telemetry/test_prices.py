"""A cost is what somebody says it is, or it is not there."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from flink_skills import Agent, AgentPlan, ConfigError, PlanError, ResourceDescriptor, chat_model_setup
from flink_skills.agents import compile_plan
from flink_skills.models import ModelResponse, ModelSetup, Usage, has_listed_price
from flink_skills.telemetry import Activity, CostObserver, Observer, Price, Telemetry, TurnScope, observe


class Seen(Observer):
    """An observer that reads costs, as those of events and spans do."""

    def __init__(self) -> None:
        self.costs: dict[str, Any] = {}

    def ended(self, activity: Activity) -> None:
        self.costs[activity.kind] = activity.attributes.get("cost")


def costs_of(*setups: ModelSetup, usage: Usage | None = None) -> dict[str, Any]:
    seen = Seen()
    telemetry = Telemetry([CostObserver(has_listed_price), seen])
    with telemetry.turn(TurnScope("a", '"k"', 1, "0" * 32)):
        for setup in setups:
            with observe("chat", "main", setup=setup) as chat:
                chat.attributes["response"] = ModelResponse("x", (), usage or Usage(1_000_000, 100_000, 1))
    return seen.costs


@pytest.mark.parametrize(
    ("price", "cost"), [({"input": 1.25, "output": 10}, 2.25), (0, 0.0), (2, 2.2), ({"input": 0, "output": 0}, 0.0)]
)
def test_the_setups_own_price_counts(price: Any, cost: float) -> None:
    setup = ModelSetup("openai", "gpt-4o", price=price)
    assert costs_of(setup) == {"chat": pytest.approx(cost), "turn": pytest.approx(cost)}


USAGE = Usage(1_000_000, 100_000, 1, cache_read_tokens=800_000, cache_write_tokens=100_000, reasoning_tokens=50_000)


@pytest.mark.parametrize(
    ("price", "usage", "cost"),
    [
        ({"input": 1, "output": 10, "cache_read": 0.1, "cache_write": 2}, USAGE, 0.1 + 0.08 + 0.2 + 1),
        ({"input": 1, "output": 10, "cache_read": 0.1}, USAGE, 0.2 + 0.08 + 1),
        ({"input": 1, "output": 10}, USAGE, 2),
        (1, USAGE, 1.1),
        # A provider that counts its caches apart from its input: the input is all that there is.
        ({"input": 1, "output": 1, "cache_read": 0}, Usage(1_000_000, 0, 1, 2_000_000, 2_000_000), 0),
    ],
)
def test_tokens_of_caches_have_their_own_prices(price: Any, usage: Usage, cost: float) -> None:
    assert Price.parse(price).cost(usage) == pytest.approx(cost)


def test_a_turn_costs_what_its_requests_cost() -> None:
    one = ModelSetup("offline", price=1)
    assert costs_of(one, ModelSetup("offline"), one)["turn"] == pytest.approx(2.2)


def test_listed_prices_are_those_of_the_package() -> None:
    prices = pytest.importorskip("genai_prices")
    listed = prices.calc_price(
        prices.Usage(input_tokens=1_000_000, output_tokens=100_000), "gpt-4o", provider_id="openai"
    )
    assert costs_of(ModelSetup("openai", "gpt-4o"))["chat"] == pytest.approx(float(listed.total_price))
    assert listed.total_price > 0
    cached = costs_of(ModelSetup("openai", "gpt-4o"), usage=USAGE)["chat"]
    assert 0 < cached < float(listed.total_price), "tokens from a cache cost less"
    there = ModelSetup("openai-compatible", "deepseek-chat", base_url="https://api.deepseek.com/v1")
    assert costs_of(there)["chat"] > 0


@pytest.mark.parametrize(
    "setup",
    [
        ModelSetup("openai", "no-such-model-at-all"),
        ModelSetup("openai", "gpt-4o", base_url="http://gateway.internal/v1"),
        ModelSetup("openai-compatible", "gpt-4o", base_url="http://localhost:8000/v1"),
        ModelSetup("ollama", "gpt-4o"),
        ModelSetup("offline"),
    ],
    ids=lambda setup: f"{setup.label} {setup.base_url}",
)
def test_an_unknown_price_is_no_price(setup: ModelSetup) -> None:
    assert costs_of(setup) == {"chat": None, "turn": None}


def test_the_log_says_once_that_a_price_is_not_known(caplog: pytest.LogCaptureFixture) -> None:
    pytest.importorskip("genai_prices")
    setup = ModelSetup("openai", "no-such-model-at-all")
    with caplog.at_level(logging.INFO, "flink_skills.telemetry"):
        costs_of(setup, setup, setup)
    (record,) = caplog.records
    assert record.getMessage().startswith("the price of model openai:no-such-model-at-all is unknown. ")


@pytest.mark.parametrize(
    "value",
    [
        {},
        {"input": 1},
        {"input": 1, "output": -1},
        {"input": 1, "output": 2, "cache": 1},
        {"input": 1, "output": 2, "cache_read": -1},
        "1",
        True,
        -1,
        float("nan"),
    ],
)
def test_what_is_no_price_is_refused_at_submit(value: Any) -> None:
    with pytest.raises(ConfigError, match=r"invalid price .* USD per million tokens"):
        Price.parse(value)
    with pytest.raises(PlanError, match="chat model 'main' of agent priced: invalid price"):
        compile_plan(priced(value))


def test_a_price_travels_in_the_plan() -> None:
    plan = compile_plan(priced({"input": 1, "output": 2.5}))
    (model,) = AgentPlan.from_json(plan.to_json()).models
    assert model.setup.price == {"input": 1, "output": 2.5}
    assert "price" not in compile_plan(priced(None)).to_json()["models"][0]["setup"]


def priced(price: Any) -> Agent:
    class Priced(Agent):
        name = "priced"

        @chat_model_setup
        @staticmethod
        def main() -> ResourceDescriptor:
            return ResourceDescriptor(clazz="openai:gpt-4o", price=price)

    return Priced()
