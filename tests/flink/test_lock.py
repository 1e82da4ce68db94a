"""``skills.lock`` of a job, and names of tools in options of a job with several agents."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyflink.common import Types

from flink_skills import (
    Agent,
    AgentContext,
    AgentsExecutionEnvironment,
    AgentSkillManager,
    ConfigError,
    SkillLockError,
    tool,
)
from flink_skills.manager import SkillLock
from tests.flink.agents import Guarded
from tests.flink.running import collect, environments, failure_of, flink_environment
from tests.flink.skill_files import write_skill

pytestmark = pytest.mark.flink


@pytest.fixture
def locked(tmp_path: Path) -> tuple[Path, Path]:
    """A folder with two skills, and the lock file of what is in it."""
    folder = tmp_path / "skills"
    for name in ("one", "two"):
        write_skill(folder, name)
    lock = tmp_path / "skills.lock"
    lock.write_text(SkillLock.of(AgentSkillManager(paths=[str(folder)]).load_skills()).to_text())
    return folder, lock


def change(folder: Path) -> None:
    (folder / "two" / "references" / "where.txt").write_text("not what was locked\n")


def apply(folder: Path, lock: str, **options: str) -> Any:
    env = flink_environment({"skills.lock": lock, **options})
    agents_env = AgentsExecutionEnvironment.get_execution_environment(env).add_skills_from_paths([str(folder)])
    stream = env.from_collection(["x"], Types.STRING())
    return agents_env.from_datastream(stream, lambda event: event).apply(Guarded("")).to_datastream()


def test_the_locked_skills_run_and_the_file_is_needed_at_submit_alone(locked: tuple[Path, Path]) -> None:
    folder, lock = locked
    stream = apply(folder, str(lock))
    lock.unlink()
    assert collect(stream) == [["one", "two"]]


def test_other_skills_are_refused_at_submit(locked: tuple[Path, Path]) -> None:
    folder, lock = locked
    change(folder)
    write_skill(folder, "three")
    with pytest.raises(SkillLockError, match="2 skills do not match") as refused:
        apply(folder, str(lock))
    assert "'three'" in str(refused.value) and "'two'" in str(refused.value)


@pytest.mark.both_versions
def test_skills_that_change_after_submit_are_refused_at_open_and_not_tried_again(locked: tuple[Path, Path]) -> None:
    folder, lock = locked
    stream = apply(
        folder,
        str(lock),
        **{"restart-strategy.type": "fixed-delay", "restart-strategy.fixed-delay.attempts": "1000000"},
    )
    change(folder)
    failure = failure_of(stream)
    assert failure.startswith("1 skill does not match skills.lock:\n- skill 'two' of ")
    assert "'flink-skills lock'" in failure


def test_a_lock_that_is_not_there_is_said_at_submit_where_the_job_runs_here(locked: tuple[Path, Path]) -> None:
    folder, lock = locked
    with pytest.raises(ConfigError, match=r"skills.lock .*missing.lock: the file cannot be read"):
        apply(folder, str(lock.with_name("missing.lock")))


def test_a_relative_lock_is_refused_with_the_absolute_path(
    locked: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, lock = locked
    monkeypatch.chdir(lock.parent)
    with pytest.raises(ConfigError, match=f"write '{lock}'"):
        apply(folder, "skills.lock")


TYPE = Types.ROW_NAMED(["k", "v"], [Types.STRING(), Types.INT()])


class Payer(Agent):
    name = "payer"

    @tool
    def pay(self) -> str:
        """Pay."""
        return "paid"

    def approve(self, request: Any) -> bool:
        return True

    async def on_event(self, event: Any, ctx: AgentContext) -> Any:
        return await ctx.call_tool("pay")


class Clerk(Agent):
    name = "clerk"

    async def on_event(self, event: Any, ctx: AgentContext) -> Any:
        return "seen"


def applied(approve: str, *agents: type[Agent]) -> tuple[AgentsExecutionEnvironment, list[Any]]:
    env, agents_env = environments({"skills.tools.approve": approve})
    events = agents_env.from_datastream(env.from_collection([("a", 1)], TYPE), "k")
    return agents_env, [events.apply(agent) for agent in agents]


@pytest.mark.both_versions
def test_an_agent_that_is_applied_later_has_the_tool() -> None:
    _, outputs = applied("pay", Clerk, Payer)
    assert sorted(collect(*(output.to_datastream() for output in outputs))) == ["paid", "seen"]


def test_a_tool_that_no_agent_has_is_rejected_at_submit_and_by_the_workers() -> None:
    expected = "option skills.tools.approve: 'pai' matches no tool of"
    agents_env, outputs = applied("pai", Clerk, Payer)
    outputs[1].to_datastream().print()
    with pytest.raises(ConfigError, match=f"{expected} the agents 'clerk', 'payer'. Did you mean 'pay'"):
        agents_env.execute("pays")
    # Flink's own methods run a job without the environment of the agents.
    _, outputs = applied("pai", Payer)
    with pytest.raises(Exception, match=f"AgentRejectedException.*{expected} agent 'payer'. Did you mean 'pay'"):
        collect(outputs[0].to_datastream())
