"""What a sound job may still regret."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from flink_skills.agents.declare.agent import Agent
from flink_skills.agents.plan.declarative import DeclarativeAgent
from flink_skills.documents.problems import path_text
from flink_skills.job.agent_building import AgentBuilder
from flink_skills.job.building import JobBuilder, effective_options
from flink_skills.job.reading import ReadJob
from flink_skills.options import SkillOptions

if TYPE_CHECKING:
    from flink_skills.agents.plan.plan import AgentPlan

__all__ = ["job_warnings"]

# The words by which Flink knows that a value is not to be shown.
_SECRET_OPTION = re.compile(
    r"'([^'\n]*(?:password|secret|api[-_.]?key|token|private[-_.]?key|sas[-_.]key|credential)[^'\n]*)'\s*=\s*"
    r"'((?:[^']|'')*)'",
    re.IGNORECASE,
)
_CHECKPOINTING = "execution.checkpointing.interval"


def job_warnings(builder: JobBuilder) -> list[str]:
    """Warnings for people who start the job."""
    from flink_skills.flink.option_keys import misspelt_options

    read, graph = builder.read, builder.graph
    found = [*builder.warnings, *_unasked_models(read, builder.agents)]
    found += [match.problem for match in builder.name_matches() if match.problem and not match.is_error]
    if read.job.errors is None and effective_options(graph).get(SkillOptions.TURN_ON_ERROR) == "emit":
        found.append(
            "there is no 'errors' table: a turn that fails is only in the log of its TaskManager (or set "
            "skills.turn.on-error: fail)"
        )
    if graph.option(_CHECKPOINTING) in (None, "", "0", "0 ms", "0 s", "0ms", "0s"):
        found.append(
            f"checkpoints are disabled ({_CHECKPOINTING}): after a failure the job does not restart, and conversations "
            "and turns in progress are lost"
        )
    if not graph.is_local and read.settings.cluster_only:
        keys = ", ".join(read.settings.cluster_only)
        found.append(f"a running cluster does not accept {keys} from a job")
    for key, near in misspelt_options(read.settings.flink).items():
        found.append(f"flink: Flink has no option {key!r}, did you mean {near!r}?")
    tables = read.document.data.get("tables")
    for match in _SECRET_OPTION.finditer(tables if isinstance(tables, str) else ""):
        if match[2] and "${" not in match[2]:
            found.append(f"tables: {match[1]!r} has its value in the file: write ${{env:NAME}} or ${{file:/path}}")
    return found


_WITHOUT_CODE = f"{DeclarativeAgent.__module__}:{DeclarativeAgent.__qualname__}"


def _unasked_models(read: ReadJob, agents: Sequence[AgentBuilder]) -> list[str]:
    """Return a message for each chat model that is never asked.

    An agent without its own code asks its first chat model. Code may ask any of them and is not reported.
    """
    shared = list(read.job.models or ())
    messages, asked = [], set[str]()
    for each in agents:
        if each.plan is None or each.source is None:
            return []  # an agent that is not known may ask any model
        code = type(each.source.agent).on_event
        has_code = code not in (Agent.on_event, DeclarativeAgent.on_event)
        for plan, may_ask_all in _plans(each.plan, has_code=has_code):
            names = [model.name for model in plan.models]
            asked.update(names if may_ask_all else names[:1])
            if may_ask_all or not names:
                continue
            for name in names[1:]:
                if name not in shared:
                    where = _place(each, name) if plan is each.plan else f"agent {plan.agent_id}"
                    messages.append(
                        f"{where}: chat model {name!r} is declared and never asked: an agent without its own code "
                        f"asks only its first chat model, {names[0]!r}"
                    )
    messages += [
        f"models.{name}: the chat model is declared and never asked; name it as 'model' of an agent, or remove it"
        for name in shared
        if name not in asked
    ]
    return list(dict.fromkeys(messages))


def _plans(plan: AgentPlan, *, has_code: bool) -> Iterator[tuple[AgentPlan, bool]]:
    """Yield a plan and those of the agents that it calls, each with whether its code may ask any model."""
    yield plan, has_code
    for callee in plan.agents.values():
        yield from _plans(callee, has_code=callee.agent.get("class") != _WITHOUT_CODE)


def _place(agent: AgentBuilder, name: str) -> str:
    source = agent.source
    if source is None or source.document is None:
        return agent.stage.title(f"agent {agent.plan.agent_id}" if agent.plan is not None else "agent")
    own = source.spec.get("chat_model_setups") or {}
    path = ("chat_model_setups", name) if name in own else ("model",)
    return path_text((*source.at, *path))
