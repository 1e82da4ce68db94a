"""What arrives at a provider begins with what it got before, so that its prompt cache is of use.

Whole turns through the real clients. Requests are compared in the order in which providers cache them: tools, then the
system text, then the messages, each as compact JSON in the order of keys in which it came.
"""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from flink_skills import Agent, ResourceDescriptor, chat_model_setup, tool_pool
from flink_skills.agents import Session, TurnStatus
from flink_skills.testing import Call, Reply, ScriptedModelServer
from tests.kit.agents import OpenAgent
from tests.kit.models import ServerFactory

ROOT = Path(__file__).resolve().parents[2]
SKILLS = ROOT / "skills"
KEY = "TEST_MODEL_KEY"
# What a provider must be able to take from its cache of the request before.
ENOUGH = 0.95

INCIDENT = json.dumps({"job": "payments", "log": [f"07:1{n} checkpoint {40 + n} expired" for n in range(10)]})
#: The tool calls of each turn of a session.
Work = Sequence[Sequence[tuple[str, dict[str, Any]]]]
#: What a model does in a session: two skills loaded, a file of each read, one loaded again.
CORE: Work = (
    (("load_skill", {"name": "checkpoint-diagnosis"}),
     ("load_skill_resource", {"name": "checkpoint-diagnosis", "path": "references/timeouts.md"})),
    (("load_skill", {"name": "memory-diagnosis"}),
     ("load_skill_resource", {"name": "memory-diagnosis", "path": "references/memory-model.md"}),
     ("load_skill", {"name": "checkpoint-diagnosis"})),
    (("load_skill_resource", {"name": "memory-diagnosis", "path": "SKILL.md"}),),
)  # fmt: skip
FULL: Work = (
    (("skill_load", {"skill": "checkpoint-diagnosis"}),
     ("skill_list_docs", {"skill": "checkpoint-diagnosis"})),
    (("skill_load", {"skill": "memory-diagnosis", "docs": ["references/memory-model.md"]}),
     ("skill_list", {})),
    (("skill_list_docs", {"skill": "memory-diagnosis"}),),
)  # fmt: skip
PROFILES = {"core": CORE, "full": FULL}


@pytest.fixture(autouse=True)
def keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [n for n in os.environ if n.startswith(("OPENAI_", "ANTHROPIC_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv(KEY, "secret")


def answers(work: Work, strategy: str) -> Callable[[dict[str, Any]], Reply]:
    """The script of a server: the calls of each turn one by one, then an answer."""
    replies = []
    for number, turn in enumerate(work):
        for name, arguments in turn:
            step = {"next": {"action": name, "arguments": arguments}}
            call = Call(name, arguments)
            replies.append(Reply(json.dumps(step)) if strategy == "json" else Reply("I look.", tool_calls=(call,)))
        text = f"Cause {number}: the barrier waits behind records."
        step = {"next": {"action": "answer", "arguments": {"content": text}}}
        replies.append(Reply(json.dumps(step) if strategy == "json" else text))
    left = iter(replies)
    return lambda body: next(left)


class Desk(Agent):
    session = "key"
    instructions = "You triage incidents of Flink jobs. Name the cause, and quote the line that shows it."

    def __init__(self, **setup: Any) -> None:
        self.setup = {"model": "test-model", "api_key_env": KEY, **setup}

    @chat_model_setup
    def model(self) -> ResourceDescriptor:
        return ResourceDescriptor(**self.setup)


class DeskWithPool(Desk):
    @tool_pool
    def pool(self) -> list[Any]:
        return [city_weather]


async def session_of(
    open_agent: Any, agent: Agent, server: ScriptedModelServer, work: Work, skills: Path = SKILLS
) -> list[dict[str, Any]]:
    """The bodies of the requests of a session with one turn for each part of ``work``."""
    bench = await open_agent(agent, skills)
    session = Session()
    for number, _ in enumerate(work, 1):
        outcome = await bench.turn(INCIDENT, number=number, session=session)
        assert outcome.status == TurnStatus.DONE, outcome.message
        session = outcome.session
    bodies = server.requests
    assert len(bodies) == sum(len(turn) + 1 for turn in work)
    return bodies


def desk(server: ScriptedModelServer, provider: str, cls: type[Desk] = Desk, **setup: Any) -> Desk:
    url = server.origin if provider == "anthropic" else server.url
    return cls(clazz=f"{provider}.setup", base_url=url, **setup)


def city_weather(city: str, days: int = 1) -> str:
    """How the weather of a city will be.

    Args:
        days: How many days, 1 to 7.
    """
    return f"{city}: rain for {days} days"


def in_cache_order(body: dict[str, Any]) -> tuple[str, str, str]:
    """Tools, system text and messages of a request of either provider."""
    # Marks for the cache are not part of what is cached.
    body = _without_marks(body)
    messages = body["messages"] if "messages" in body else body["input"]
    name = "system" if "system" in body else "instructions"
    system = [body[name]] if name in body else [m for m in messages if m["role"] in ("system", "developer")]
    others = [m for m in messages if m.get("role") not in ("system", "developer")]
    found = (_json(body.get("tools", [])), _json(system), _json(others)[:-1])
    assert messages[: len(system)] == system or name in body, "a system message behind the first"
    return found


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def common(one: bytes, other: bytes) -> int:
    """How many bytes both begin with."""
    return next((at for at, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))


def shares(bodies: Sequence[dict[str, Any]]) -> list[float]:
    """How much of each request the next one begins with, 0 to 1."""
    texts = ["\n".join(in_cache_order(body)).encode() for body in bodies]
    return [common(one, other) / len(one) for one, other in itertools.pairwise(texts)]


def setup_of(profile: str, content: str = "tool-result") -> dict[str, Any]:
    return {"skill_tools": profile, "skill_lifetime": "session", "skill_content": content}


@pytest.mark.row("E4", "E11")
@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("provider", ["openai", "openai-responses", "openai-compatible", "anthropic"])
async def test_a_session_grows_at_its_end_only(
    open_agent: OpenAgent, serve: ServerFactory, provider: str, profile: str
) -> None:
    work = PROFILES[profile]
    server = serve(answers(work, "native"))
    bodies = await session_of(open_agent, desk(server, provider, **setup_of(profile)), server, work)
    assert len({in_cache_order(body)[:2] for body in bodies}) == 1
    assert shares(bodies) == [1.0] * (len(bodies) - 1)
    # Nothing else that a provider may put before the messages changes either.
    assert len({_json({**body, "messages": None, "input": None, "system": None}) for body in bodies}) == 1


@pytest.mark.row("E4", "E11")
@pytest.mark.parametrize(
    ("provider", "model", "profile"),
    [
        ("openai", "test-model", "core"),
        ("openai", "test-model", "full"),
        ("openai-responses", "test-model", "core"),
        ("openai-compatible", "test-model", "core"),
        ("openai-compatible", "test-model", "full"),
        # A name of a model that takes schemas.
        ("anthropic", "claude-opus-4-8", "core"),
    ],
)
async def test_so_does_that_of_a_model_which_writes_its_actions(
    open_agent: OpenAgent, serve: ServerFactory, provider: str, model: str, profile: str
) -> None:
    """All but the hint at the end stays: which actions are allowed next."""
    work = PROFILES[profile]
    server = serve(answers(work, "json"))
    agent = desk(server, provider, strategy="json", model=model, max_tokens=1000, **setup_of(profile))
    bodies = await session_of(open_agent, agent, server, work)
    assert not any("tools" in body for body in bodies)
    assert len({in_cache_order(body)[:2] for body in bodies}) == 1
    assert min(shares(bodies)) >= ENOUGH


@pytest.mark.row("E11")
@pytest.mark.parametrize("provider", ["openai-compatible", "openai-responses", "anthropic"])
async def test_content_in_the_system_text_breaks_it_where_something_is_loaded(
    open_agent: OpenAgent, serve: ServerFactory, provider: str
) -> None:
    server = serve(answers(FULL, "native"))
    bodies = await session_of(open_agent, desk(server, provider, **setup_of("full", "system")), server, FULL)
    # The requests after the two loads: all the conversation before them is new to the provider.
    after_loads = [1, 4]
    assert [number for number, share in enumerate(shares(bodies), 1) if share < 1] == after_loads
    assert shares(bodies)[after_loads[1] - 1] < ENOUGH
    assert len({in_cache_order(body)[0] for body in bodies}) == 1
    # What stood in the system text stays where it was.
    before, after = in_cache_order(bodies[0])[1], in_cache_order(bodies[1])[1]
    assert common(before.encode(), after.encode()) >= 0.99 * len(before)


@pytest.mark.row("C9", "E11")
@pytest.mark.parametrize("provider", ["openai-compatible", "openai-responses", "anthropic"])
async def test_unloading_breaks_it_once_from_the_load_on(
    open_agent: OpenAgent, serve: ServerFactory, provider: str
) -> None:
    load, unload = (
        ("load_skill", {"name": "checkpoint-diagnosis"}),
        ("unload_skill", {"name": "checkpoint-diagnosis"}),
    )
    read = ("load_skill_resource", {"name": "checkpoint-diagnosis", "path": "SKILL.md"})
    work = ((load, ("load_skill", {"name": "memory-diagnosis"})), (unload, read), (load,))
    server = serve(answers(work, "native"))
    bodies = await session_of(open_agent, desk(server, provider, **setup_of("core")), server, work)
    unloaded = 4
    assert [number for number, share in enumerate(shares(bodies), 1) if share < 1] == [unloaded]
    before, after = (in_cache_order(bodies[at])[2] for at in (unloaded - 1, unloaded))
    # All the conversation before the result of the load stays, and so does the other skill.
    assert common(before.encode(), after.encode()) >= before.index("<skill_content")
    other = '<skill_content name=\\"memory-diagnosis\\">'
    assert [text.count(other) for text in (before, after)] == [1, 1]
    assert after.count("unloaded: checkpoint-diagnosis.") == 1


@pytest.mark.row("E11")
@pytest.mark.parametrize("provider", ["openai-compatible", "openai-responses", "anthropic"])
async def test_tools_that_come_with_a_skill_break_it_once(
    open_agent: OpenAgent, serve: ServerFactory, provider: str, tmp_path: Path
) -> None:
    home = tmp_path / "mine" / "weather"
    home.mkdir(parents=True)
    (home / "SKILL.md").write_text(
        "---\nname: weather\ndescription: Weather of cities.\n---\n# Weather\n\nTools:\n- city_weather\n\nAsk for it.\n"
    )
    ask = ("city_weather", {"city": "Ulm"})
    work = ((("load_skill", {"name": "weather"}), ask), (ask, ("load_skill", {"name": "weather"})))
    server = serve(answers(work, "native"))
    agent = desk(server, provider, DeskWithPool, **setup_of("core"))
    bodies = await session_of(open_agent, agent, server, work, home.parent)
    assert [number for number, share in enumerate(shares(bodies), 1) if share < 1] == [1]
    # The new tool stands behind all others.
    before, after = in_cache_order(bodies[0])[0], in_cache_order(bodies[1])[0]
    assert before != after
    assert after.startswith(before[:-1])


async def test_marks_for_the_cache_move_and_nothing_else_does(open_agent: OpenAgent, serve: ServerFactory) -> None:
    """Anthropic caches what is marked: tools, system text and conversation, each at its end."""
    for cache, kind in (({}, {"type": "ephemeral"}), ({"cache": "1h"}, {"type": "ephemeral", "ttl": "1h"})):
        server = serve(answers(CORE, "native"))
        bodies = await session_of(open_agent, desk(server, "anthropic", **cache, **setup_of("core")), server, CORE)
        for body in bodies:
            ends = (body["tools"][-1], body["system"][-1], body["messages"][-1]["content"][-1])
            assert [end["cache_control"] for end in ends] == [kind] * 3
            assert _json(body).count('"cache_control"') == 3
    server = serve(answers(CORE, "native"))
    bodies = await session_of(open_agent, desk(server, "anthropic", cache="off", **setup_of("core")), server, CORE)
    assert "cache_control" not in _json(bodies)


def _without_marks(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_marks(of) for key, of in value.items() if key != "cache_control"}
    return [_without_marks(item) for item in value] if isinstance(value, list) else value
