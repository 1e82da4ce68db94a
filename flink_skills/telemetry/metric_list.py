"""The list of all metrics of an agent: their names, kinds, units and labels.

The pages of the documentation are written from it, the dashboard and the alerts are checked against it, and so is what
a job reports.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

__all__ = ["METRICS", "Metric", "metric"]

Kind = Literal["counter", "gauge", "histogram"]
#: Whose figure it is. subtask: each subtask of the operator has its own. agent: what the workers of a TaskManager
#: counted for an agent, at the first subtask of its operator there. worker: of one worker, at the same subtask.
Scope = Literal["subtask", "agent", "worker"]

_PREFIX = "flink_taskmanager_job_task_operator"


@dataclass(frozen=True)
class Metric:
    """One metric. ``labels`` are the keys of its groups in order; ``unit`` is empty for a count.

    >>> metric("commands", "skill").prometheus
    'flink_taskmanager_job_task_operator_skill_commands'
    """

    name: str
    kind: Kind
    scope: Scope
    labels: tuple[str, ...]
    unit: str
    description: str

    @property
    def prometheus(self) -> str:
        """The name under which Flink's Prometheus reporters export it."""
        return "_".join((_PREFIX, *self.labels, self.name))


def _subtask(name: str, kind: Kind, description: str) -> Metric:
    return Metric(name, kind, "subtask", (), "", description)


def _worker(name: str, description: str, unit: str = "") -> Metric:
    return Metric(name, "gauge", "worker", ("worker",), unit, description)


def _counter(labels: tuple[str, ...], name: str, description: str, unit: str = "") -> Metric:
    return Metric(name, "counter", "agent", labels, unit, description)


def _histogram(labels: tuple[str, ...], name: str, description: str) -> Metric:
    return Metric(name, "histogram", "agent", labels, "ms", description)


_MODEL = ("agent", "model")
_USD = "USD / 1,000,000"

METRICS: tuple[Metric, ...] = (
    _subtask("turns", "counter", "Turns that ended, failed ones included."),
    _subtask("failures", "counter", "Turns that ended in an error record."),
    _subtask("inFlight", "gauge", "Turns that run."),
    _subtask("pending", "gauge", "Events that wait for their turn."),
    _subtask("workerRestarts", "counter", "Restarts of workers that this subtask saw."),
    _histogram((), "turnLatency", "From the start of an attempt at a turn in the worker to its end."),
    _counter((), "turnTime", "The sum of these times.", "ms"),
    _counter((), "steps", "Durable steps of turns, replayed ones included."),
    _counter((), "replayedSteps", "Steps that were taken from a journal and not done again."),
    _counter((), "resumedTurns", "Attempts at turns that began with a journal, or after their worker had died."),
    _counter((), "restartedTurns", "Turns that were started anew because their journal does not fit the agent's code."),
    _counter(_MODEL, "requests", "Requests that a model answered."),
    _counter(_MODEL, "requestFailures", "Requests that failed for good."),
    _counter(_MODEL, "retries", "Requests that were tried again."),
    _counter(_MODEL, "fallbacks", "Requests that went on to a fallback: the model failed, or its circuit was open."),
    _counter(_MODEL, "inputTokens", "Tokens that the model read."),
    _counter(_MODEL, "outputTokens", "Tokens that the model wrote."),
    _counter(_MODEL, "cacheReadTokens", "Tokens of the input that the provider read from its cache."),
    _counter(_MODEL, "cacheWriteTokens", "Tokens of the input that the provider wrote to its cache."),
    _counter(_MODEL, "reasoningTokens", "Tokens of the output that are reasoning."),
    _counter(_MODEL, "costMicroUsd", "What the requests cost; only there where the model's price is known.", _USD),
    _histogram(_MODEL, "chatLatency", "Of a request to its answer, with the waits between its retries."),
    _counter(_MODEL, "chatTime", "The sum of these times.", "ms"),
    _counter(
        _MODEL, "limitWaitTime", "Time that requests waited for `skills.model.max-concurrent` and other limits.", "ms"
    ),
    _counter(("tool",), "toolCalls", "Calls of a tool."),
    _counter(("tool",), "toolFailures", "Calls whose result was an error."),
    _histogram(("tool",), "toolLatency", "Of a call to its result."),
    _counter(("tool",), "toolTime", "The sum of these times.", "ms"),
    _counter(("server",), "mcpRequests", "Requests of tools to an MCP server."),
    _counter(("server",), "mcpFailures", "Those without an answer: it was not there, went away, or answered nonsense."),
    _counter(("step",), "stepRuns", "Runs of a step of the agent's own code (`ctx.step`)."),
    _counter(("step",), "stepFailures", "Runs that raised an exception."),
    _histogram(("step",), "stepLatency", "Of a run from its start to its end."),
    _counter(("step",), "stepTime", "The sum of these times.", "ms"),
    _counter(("skill",), "skillLoads", "How often models loaded the skill."),
    _counter(("skill",), "skillReads", "How often models read one of its files."),
    _counter(("skill",), "skillErrors", "Loads and reads that failed; of skills that are not there, as `unknown`."),
    _counter(("skill",), "commands", "Commands that ran for the skill, interactive processes included."),
    _counter(
        ("skill",),
        "commandFailures",
        "Commands that ended by an exit code other than 0, a signal, a timeout or a limit.",
    ),
    _histogram(("skill",), "commandLatency", "Of a command; of an interactive process, its start."),
    _counter(("skill",), "commandTime", "The sum of these times.", "ms"),
    _counter(("skill",), "inputTokens", "Tokens of requests that were made while the skill was loaded."),
    _counter(("skill",), "outputTokens", "The same for what the model wrote."),
    _counter(("skill",), "costMicroUsd", "What these requests cost, where prices are known.", _USD),
    _worker("skills", "Skills that are loaded, those of agents that are tools included: each agent has its own."),
    _worker("diagnosticErrors", "Errors that there are to say about these skills."),
    _worker("diagnosticWarnings", "Warnings."),
    _worker("diagnosticInfos", "Remarks."),
    _worker("failedSources", "Sources that could not be read the last time."),
    _worker("generation", "1 after opening, one more with each change of the skills."),
    _worker("refreshes", "Refreshes of the skills that were tried."),
    _worker("refreshFailures", "Refreshes in which a source, or all of it, failed."),
    _worker("isolationLevel", "What isolates commands, see below; not there in a job without commands."),
    _worker("mcpServers", "MCP servers of the agent, those of agents that are tools included."),
    _worker("mcpServersDown", "Those that are not connected now."),
    _worker("mcpReconnects", "How often a connection to one of them was made again."),
    _worker("eventLoopLag", "The longest time that the worker's event loop was late since the last report.", "ms"),
    _worker("abandonedTurns", "Turns that have ended and whose code continues, because it ignores its cancellation."),
    _worker("hungThreads", "Threads of steps and tools that hang in calls that no turn waits for."),
    _worker("memory", "Resident memory of the worker process, without its commands.", "bytes"),
)


def metric(name: str, *labels: str) -> Metric:
    """The metric of that name and those labels. Raises :class:`KeyError`."""
    for of in METRICS:
        if of.name == name and of.labels == labels:
            return of
    raise KeyError(f"{name} with labels {labels}")
