"""Agents reach the workers from the main script, from shipped modules, and with what their instances hold."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyflink.common import Configuration, Types
from pyflink.util.java_utils import get_j_env_configuration

from flink_skills import AgentsExecutionEnvironment
from flink_skills.testing import Reply, Rule, ScriptedModelServer
from tests.flink.running import collect, environments, failure_of, flink_environment

pytestmark = pytest.mark.flink

ROOT = Path(__file__).resolve().parents[2]
TYPE = Types.ROW_NAMED(["k", "v"], [Types.STRING(), Types.INT()])

SCRIPT = """
import json, sys
from dataclasses import dataclass

from pydantic import BaseModel
from pyflink.common import Configuration
from pyflink.datastream import StreamExecutionEnvironment

from flink_skills import Agent, AgentsExecutionEnvironment, tool

GREETING = "hello"


@dataclass
class Given:
    k: str
    v: int


class Answer(BaseModel):
    text: str


class FromTheScript(Agent):
    def __init__(self, punctuation):
        self.punctuation = punctuation

    @tool
    def greet(self, name: str) -> str:
        "Greets."
        return f"{GREETING} {name}{self.punctuation}"

    async def on_event(self, event, ctx):
        return Answer(text=await ctx.call_tool("greet", name=f"{event.k}{event.v}"))


if __name__ == "__main__":
    configuration = Configuration()
    configuration.set_string("rest.port", "0")
    env = StreamExecutionEnvironment.get_execution_environment(configuration)
    env.set_parallelism(1)
    agents_env = AgentsExecutionEnvironment.get_execution_environment(env)
    stream = env.from_collection([Given("a", 1), Given("b", 2)])
    output = agents_env.from_datastream(stream, "k").apply(FromTheScript("!"))
    with output.to_datastream().execute_and_collect() as answers:
        found = sorted(answer.text for answer in answers)
    print(json.dumps(found))
"""


@pytest.mark.both_versions
@pytest.mark.each_python
def test_an_agent_of_the_main_script_with_its_own_classes(tmp_path: Path) -> None:
    assert run_script(tmp_path, SCRIPT) == ["hello a1!", "hello b2!"]


def run_script(folder: Path, text: str, *arguments: str) -> Any:
    """Return what the last line of the script's output has as JSON."""
    script = folder / "job.py"
    script.write_text(text)
    path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    variables = {**os.environ, "PYTHONPATH": path}
    # Python stages of other tests' mini clusters ran in this process, and PyFlink forbids those a JVM of their own.
    variables.pop("PYFLINK_GATEWAY_DISABLED", None)
    done = subprocess.run(
        [sys.executable, str(script), *arguments],
        cwd=folder,
        env=variables,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


CLASSES = """
from __future__ import annotations

import dataclasses, enum, json, sys
from dataclasses import dataclass, field

from pyflink.common import Configuration
from pyflink.datastream import StreamExecutionEnvironment

from flink_skills import (
    Agent, AgentsExecutionEnvironment, ResourceDescriptor, ResourceName, chat_model_connection, chat_model_setup, tool
)

URL = sys.argv[1]


class Urgency(enum.Enum):
    LOW = ("low", 1)
    HIGH = ("high", 9)

    def __init__(self, label, weight):
        self.weight = weight


@dataclass
class Line:
    sku: str
    count: int = 1


@dataclass(frozen=True)
class Order:
    id: str
    urgency: Urgency = Urgency.LOW
    lines: list[Line] = field(default_factory=list)
    note: Note | None = None


@dataclass(slots=True)
class Note:
    text: str


@dataclass
class Verdict:
    ok: bool
    because: list[Note] = field(default_factory=list)


class Desk(Agent):
    instructions = "You judge orders."
    output_type = Verdict

    @chat_model_connection
    @staticmethod
    def server():
        return ResourceDescriptor(clazz=ResourceName.ChatModel.OPENAI_COMPATIBLE_CONNECTION, base_url=URL)

    @chat_model_setup
    @staticmethod
    def model():
        return ResourceDescriptor(
            clazz=ResourceName.ChatModel.OPENAI_COMPATIBLE_SETUP, connection="server", model="m"
        )

    @tool
    def stock(self, line: Line) -> Line:
        "Looks up the stock."
        return dataclasses.replace(line, count=line.count + 40)

    async def on_event(self, order, ctx):
        match order:
            case Order(id="broken"):
                raise ValueError("broken")
            case Order(urgency=Urgency.HIGH as urgency):
                weight = urgency.weight
        stock = await ctx.call_tool("stock", line=Line("s"))
        verdict = await ctx.chat(order)
        ctx.emit([type(order) is Order, weight, stock, type(verdict) is Verdict, ctx.state.get("last")])
        ctx.state["last"] = {**dataclasses.asdict(order), "urgency": order.urgency.value}
        return verdict


def more(order):
    assert isinstance(order, Order)
    return dataclasses.replace(order, lines=[*order.lines, Line("mapped")], note=Note("n"))


if __name__ == "__main__":
    configuration = Configuration()
    configuration.set_string("rest.port", "0")
    configuration.set_string("skills.worker.processes", "1")
    env = StreamExecutionEnvironment.get_execution_environment(configuration)
    env.set_parallelism(1)
    stream = env.from_collection([*[Order("a", Urgency.HIGH, [Line("x", 2)])] * 2, Order("broken")]).map(more)
    agents_env = AgentsExecutionEnvironment.get_execution_environment(env)
    before = dict(vars(Verdict))
    output = agents_env.from_datastream(stream, lambda order: order.id).apply(Desk)
    shown = output.to_datastream().map(lambda value: dataclasses.asdict(value) if isinstance(value, Verdict) else value)
    errors = output.to_datastream(tag="errors")
    with output.to_datastream().union(shown, errors).execute_and_collect() as records:
        found = list(records)
    print(json.dumps({
        "verdicts": [dataclasses.asdict(of) for of in found if type(of) is Verdict],
        "others": [of for of in found if type(of) is not Verdict],
        "same": dict(vars(Verdict)) == before,
    }, default=repr))
"""


@pytest.mark.each_python
def test_classes_of_the_main_script_arrive_whole_everywhere(
    tmp_path: Path, serve: Callable[..., ScriptedModelServer]
) -> None:
    server = serve([Rule(Reply('{"ok": true, "because": [{"text": "in stock"}]}'))])
    found = run_script(tmp_path, CLASSES, server.url)

    order = {
        "id": "a",
        "urgency": ["high", 9],
        "lines": [{"sku": "x", "count": 2}, {"sku": "mapped", "count": 1}],
        "note": {"text": "n"},
    }
    request, _ = server.requests
    assert json.loads(request["messages"][-1]["content"]) == order
    (parameters,) = [of["function"]["parameters"] for of in request["tools"] if of["function"]["name"] == "stock"]
    assert "sku" in json.dumps(parameters)
    verdict = {"ok": True, "because": [{"text": "in stock"}]}
    assert found["verdicts"] == [verdict, verdict]
    assert found["others"].count(verdict) == 2
    assert found["same"]
    (error,) = [of for of in found["others"] if isinstance(of, dict) and "error" in of]
    assert error["error"] == "ValueError: broken"
    assert "mapped" in json.dumps(error["event"])
    emitted = [of for of in found["others"] if isinstance(of, list)]
    first, second = ([True, 9, {"sku": "s", "count": 41}, True, last] for last in (None, order))
    assert sorted(emitted, key=str) == sorted([first, first, second, second], key=str)


MODULE = """
from flink_skills import Agent


class Shipped(Agent):
    async def on_event(self, event, ctx):
        return f"{__name__}: {event['k']}"


class Shouting(Shipped):
    def __init__(self, mark):
        self.mark = mark

    async def on_event(self, event, ctx):
        return (await super().on_event(event, ctx)).upper() + self.mark
"""


def test_a_module_reaches_the_workers_by_add_python_file_and_is_missed_without(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = "agents_that_only_the_client_has"
    file = tmp_path / f"{name}.py"
    file.write_text(textwrap.dedent(MODULE))
    with monkeypatch.context() as only_now:
        # The workers of a mini cluster get the client's sys.path as it is when the environment is made.
        only_now.syspath_prepend(tmp_path)
        module = importlib.import_module(name)
    monkeypatch.setitem(sys.modules, name, module)

    env = flink_environment()
    env.add_python_file(str(file))
    agents_env = AgentsExecutionEnvironment.get_execution_environment(env)
    events = agents_env.from_datastream(env.from_collection([("a", 1)], TYPE), "k")
    records = collect(events.apply(module.Shipped).to_datastream(), events.apply(module.Shouting("!")).to_datastream())
    assert sorted(records) == [f"{name.upper()}: A!", f"{name}: a"]

    env, agents_env = environments()
    events = agents_env.from_datastream(env.from_collection([("a", 1)], TYPE), "k")
    message = failure_of(events.apply(module.Shipped).to_datastream())
    assert f"the worker cannot load agent {name}:Shipped: ModuleNotFoundError" in message
    assert f"Fix: ship module '{name}' with the job (flink run -pyfs, env.add_python_file)" in message
    assert "Traceback" not in message


def test_local_workers_get_the_clients_modules_and_not_its_library(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Images keep a job's code below the interpreter's own prefix, such as /usr/src/app below /usr.
    monkeypatch.setattr(sys, "base_prefix", str(tmp_path))
    monkeypatch.syspath_prepend(tmp_path)
    env = flink_environment()
    AgentsExecutionEnvironment.get_execution_environment(env)
    configuration = Configuration(j_configuration=get_j_env_configuration(env._j_stream_execution_environment))
    given = configuration.get_string("python.pythonpath", "").split(os.pathsep)
    assert str(tmp_path) in given
    assert str(Path(json.__file__).parents[1]) not in given
    assert not any(path.endswith("site-packages") for path in given)

    chosen = flink_environment({"python.pythonpath": "/only/this"})
    AgentsExecutionEnvironment.get_execution_environment(chosen)
    configuration = Configuration(j_configuration=get_j_env_configuration(chosen._j_stream_execution_environment))
    assert configuration.get_string("python.pythonpath", "") == "/only/this"
