"""Types of agents: for strict type checkers of a user's project, and at run time."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from flink_skills import Agent, PlanError
from flink_skills.agents import compile_plan

ROOT = Path(__file__).resolve().parent.parent
PROJECT = """\
from typing import Any

from pydantic import BaseModel

from flink_skills import Agent, AgentContext, Record


class Stock(BaseModel):
    pieces: int = 0


class Verdict(BaseModel):
    cents: int = 0


class Decision(BaseModel):
    ok: bool


async def fetch(order: str, *, tries: int = 1) -> list[str]:
    return [order] * tries


def size(items: list[str]) -> int:
    return len(items)


class Buyer(Agent[Stock, Verdict]):
    name = "buyer"
    model = "offline"

    async def on_event(self, event: Any, ctx: AgentContext[Stock, Verdict]) -> int:
        verdict = await ctx.chat(event)
        other = await ctx.chat(event, output_type=Decision)
        text = await ctx.chat(event, output_type=None)
        either = await ctx.chat(event, output_type=Decision | None)
        items = await ctx.step("fetch", fetch, text.upper(), tries=2)
        number = await ctx.step("size", size, items)
        raw = await ctx.step("raw", lambda: {"ok": True}, result_type=Decision)
        decision = await ctx.wait("approval", {"cents": verdict.cents}, answer_type=Decision, timeout="2 d")
        anything = await ctx.wait("anything")
        ctx.state.pieces += number + either.whatever + anything
        return verdict.cents if other.ok and raw.ok and decision.ok else 0


class Plain(Agent):
    model = "offline"

    async def on_event(self, event: dict[str, Any], ctx: AgentContext) -> Record | str:
        ctx.state["seen"] = True
        answer = await ctx.chat(event)
        return str(answer.anything)
"""
MISTAKES = {
    "a field that the answer does not have": ("return verdict.cents", "return verdict.dollars"),
    "a field of an answer of another type": ("if other.ok", "if other.cents"),
    "an argument of the wrong type of a step": ('ctx.step("size", size, items)', 'ctx.step("size", size, 7)'),
    "a missing argument of a step": ('ctx.step("fetch", fetch, text.upper(), tries=2)', 'ctx.step("fetch", fetch)'),
    "the result of a step as another type": ("+= number +", "+= items +"),
    "a field that an answer to a wait does not have": ("and decision.ok", "and decision.okay"),
    "a field that the state does not have": ("ctx.state.pieces +=", "ctx.state.peaces +="),
}


def mypy(folder: Path) -> list[str]:
    words = [sys.executable, "-m", "mypy", "--strict", "--output", "json", "--cache-dir", folder / "cache"]
    done = subprocess.run(
        [*words, "project.py"],
        cwd=folder,
        env={**os.environ, "MYPYPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode in (0, 1), done.stderr
    found = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    return [f"{of['line']}: {of['message']}" for of in found if of["severity"] == "error"]


def pyright(folder: Path) -> list[str]:
    (folder / "pyrightconfig.json").write_text(json.dumps({"typeCheckingMode": "strict", "extraPaths": [str(ROOT)]}))
    words = ["pyright", "--outputjson", "--pythonpath", sys.executable, "project.py"]
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True, check=False)
    found = json.loads(done.stdout)["generalDiagnostics"]
    return [f"{of['range']['start']['line'] + 1}: {of['message']}" for of in found if of["severity"] == "error"]


@pytest.mark.parametrize("checker", [mypy, pyright])
def test_mistakes_of_users_are_found_and_correct_code_passes(
    checker: Callable[[Path], list[str]], tmp_path: Path
) -> None:
    if checker is pyright and shutil.which("pyright") is None:
        pytest.skip("pyright is not installed")
    project = tmp_path / "project.py"
    project.write_text(PROJECT)
    assert checker(tmp_path) == []
    lines = PROJECT.splitlines()
    expected = set()
    text = PROJECT
    for right, wrong in MISTAKES.values():
        (number,) = [n for n, line in enumerate(lines, 1) if right in line]
        expected.add(number)
        text = text.replace(right, wrong)
    project.write_text(text)
    found = checker(tmp_path)
    assert {int(message.partition(":")[0]) for message in found} >= expected, found


class Stock(BaseModel):
    pieces: int = 0


class Bought(BaseModel):
    cents: int


def test_the_arguments_of_the_class_are_the_types_of_state_and_answers() -> None:
    class Buyer(Agent[Stock, Bought]):
        model = "offline"

    class Cheaper(Buyer):
        pass

    class OfText(Agent[dict[str, Any], str]):
        model = "offline"

    class OfState(Agent[Stock]):
        model = "offline"

    assert (Buyer.state_type, Buyer.output_type) == (Stock, Bought)
    assert (Cheaper.state_type, Cheaper.output_type) == (Stock, Bought)
    assert (OfText.state_type, OfText.output_type) == (None, None)
    assert (OfState.state_type, OfState.output_type) == (Stock, None)
    assert "cents" in (compile_plan(Buyer).output_schema or {})["properties"]
    with pytest.raises(PlanError, match=r"Both: output_type is <class 'int'>, and Agent\[…\] of its bases says"):
        type("Both", (Buyer,), {"__orig_bases__": (Agent[Stock, Bought],), "output_type": int})


@pytest.mark.each_python
def test_an_agent_of_the_main_script_keeps_its_types(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "import json\n"
        "from pydantic import BaseModel\n"
        "from flink_skills import Agent\n"
        "from flink_skills.agents import compile_plan\n"
        "class Stock(BaseModel):\n    pieces: int = 3\n"
        "class Buyer(Agent[Stock, list[str]]):\n    model = 'offline'\n"
        "print(json.dumps(compile_plan(Buyer).to_json()))\n"
    )
    reader = (
        "import json, sys\n"
        "from flink_skills.agents.plan.plan import AgentPlan, load_agent\n"
        "agent = load_agent(AgentPlan.from_json(json.load(sys.stdin)).agent)\n"
        "print(agent.state_type().pieces, agent.output_type)\n"
    )
    plan = subprocess.run([sys.executable, script], check=True, capture_output=True)
    done = subprocess.run([sys.executable, "-c", reader], input=plan.stdout, check=True, capture_output=True)
    assert done.stdout.decode() == "3 list[str]\n"
