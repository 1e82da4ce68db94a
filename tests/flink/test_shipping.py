"""Agents reach the workers from the main script, from shipped modules, and with what their instances hold."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from pyflink.common import Configuration, Types
from pyflink.util.java_utils import get_j_env_configuration

from flink_skills import AgentsExecutionEnvironment
from tests.flink.running import collect, failure_of, flink_environment

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
def test_an_agent_of_the_main_script_with_its_own_classes(tmp_path: Path) -> None:
    script = tmp_path / "job.py"
    script.write_text(SCRIPT)
    path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    variables = {**os.environ, "PYTHONPATH": path}
    # Python stages of other tests' mini clusters ran in this process, and PyFlink forbids those a JVM of their own.
    variables.pop("PYFLINK_GATEWAY_DISABLED", None)
    done = subprocess.run(
        [sys.executable, str(script)],
        cwd=tmp_path,
        env=variables,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert json.loads(done.stdout.splitlines()[-1]) == ["hello a1!", "hello b2!"]


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

    env = flink_environment()
    agents_env = AgentsExecutionEnvironment.get_execution_environment(env)
    events = agents_env.from_datastream(env.from_collection([("a", 1)], TYPE), "k")
    message = failure_of(events.apply(module.Shipped).to_datastream())
    assert f"the worker cannot load agent {name}:Shipped: ModuleNotFoundError" in message
    assert f"Mend: ship module '{name}' with the job (flink run -pyfs, env.add_python_file)" in message
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
