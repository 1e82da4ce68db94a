"""List of all metrics of an agent, with their names, kinds, units and labels.

It is the source of the documentation page. Tests check the dashboard, the alerts and the reports of a job against it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Kind = Literal["counter", "gauge", "histogram"]
#: Scope of a metric. subtask: each subtask of the operator reports it. agent: a total over the workers of a
#: TaskManager, reported by the first subtask of the agent's operator on it. worker: a value of one worker, reported by
#: the same subtask.
Scope = Literal["subtask", "agent", "worker"]

_PREFIX = "flink_taskmanager_job_task_operator"


@dataclass(frozen=True)
class Metric:
    """Metric. ``labels`` contains the keys of its groups in order. ``unit`` is empty for a count.

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
        """Name under which Flink's Prometheus reporters export the metric."""
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
_LABEL = ("agent", "label", "value")
_USD = "USD / 1,000,000"

METRICS: tuple[Metric, ...] = (
    _subtask("turns", "counter", "Number of turns that ended, including failed turns."),
    _subtask("failures", "counter", "Number of turns that ended in an error record."),
    _subtask("inFlight", "gauge", "Number of running turns."),
    _subtask("usedCapacity", "gauge", "Running turns divided by `skills.worker.max-in-flight`, from 0 to 1."),
    _subtask("pending", "gauge", "Number of events that wait for the start of their turn."),
    _subtask("workerRestarts", "counter", "Number of worker restarts that this subtask detected."),
    _subtask("waiting", "gauge", "Number of turns that wait for an answer or a time."),
    _subtask("oldestWait", "gauge", "Time since the oldest waiting turn began to wait, in milliseconds."),
    _subtask("resumed", "counter", "Number of turns that resumed after a wait."),
    _subtask("timedOut", "counter", "Number of waits that ended at their deadline, without sleeps."),
    _subtask("unusedAnswers", "counter", "Number of answers that no turn used. Each of them has an error record."),
    _subtask("forgotten", "counter", "Number of keys that were erased."),
    _subtask("paused", "gauge", "1 while a control record pauses the agent, else 0. Only with a control stream."),
    _subtask("controlRecords", "counter", "Number of control records. Only with a control stream."),
    _subtask(
        "unusedControlRecords",
        "counter",
        "Number of control records without an effect. Each of them has an error record. Only with a control stream.",
    ),
    _histogram((), "turnLatency", "Duration of a turn attempt in the worker."),
    _counter((), "turnTime", "Total duration of all turn attempts.", "ms"),
    _counter((), "steps", "Number of durable steps, including replayed steps."),
    _counter((), "replayedSteps", "Number of steps whose result was read from a journal instead of running again."),
    _counter((), "resumedTurns", "Number of turn attempts that started with a journal or after a worker crash."),
    _counter(
        (), "restartedTurns", "Number of turns that restarted because their journal does not match the agent's code."
    ),
    _counter(_MODEL, "requests", "Number of requests that the model answered."),
    _counter(_MODEL, "requestFailures", "Number of requests that failed after all retries."),
    _counter(_MODEL, "retries", "Number of retries of model requests."),
    _counter(
        _MODEL, "fallbacks", "Number of requests sent to a fallback, because the model failed or its circuit was open."
    ),
    _counter(_MODEL, "inputTokens", "Number of input tokens of the model."),
    _counter(_MODEL, "outputTokens", "Number of output tokens of the model."),
    _counter(
        _MODEL,
        "cacheReadTokens",
        "Number of input tokens that the provider read from its cache. Divide by `inputTokens` for the share.",
    ),
    _counter(_MODEL, "cacheWriteTokens", "Number of input tokens that the provider wrote to its cache."),
    _counter(_MODEL, "reasoningTokens", "Number of output tokens used for reasoning."),
    _counter(
        _MODEL, "costMicroUsd", "Cost of the requests to the model. Missing if the price of the model is unknown.", _USD
    ),
    _histogram(_MODEL, "chatLatency", "Duration of a model request, including the waits between retries."),
    _counter(_MODEL, "chatTime", "Total duration of all model requests.", "ms"),
    _counter(
        _MODEL,
        "limitWaitTime",
        "Total time that model requests waited for `skills.model.max-concurrent` and other limits.",
        "ms",
    ),
    _counter(
        _LABEL,
        "requests",
        "Number of requests that models answered, by a field of the event (`skills.metrics.labels`). Each label counts "
        "all requests.",
    ),
    _counter(_LABEL, "inputTokens", "Number of input tokens, by a field of the event."),
    _counter(_LABEL, "outputTokens", "Number of output tokens, by a field of the event."),
    _counter(_LABEL, "costMicroUsd", "Cost of requests, by a field of the event, if the price is known.", _USD),
    _counter(("tool",), "toolCalls", "Number of calls of the tool."),
    _counter(("tool",), "toolFailures", "Number of tool calls whose result was an error."),
    _counter(
        ("tool",), "repeatedCalls", "Number of tool calls with the result of an equal call before, for one message."
    ),
    _histogram(("tool",), "toolLatency", "Duration of a tool call."),
    _counter(("tool",), "toolTime", "Total duration of all calls of the tool.", "ms"),
    _counter(("server",), "mcpRequests", "Number of tool requests to the MCP server."),
    _counter(
        ("server",),
        "mcpFailures",
        "Number of MCP requests that failed: the server was unavailable, disconnected, or sent an invalid response.",
    ),
    _counter(("step",), "stepRuns", "Number of runs of the step of the agent's code (`ctx.step`)."),
    _counter(("step",), "stepFailures", "Number of step runs that raised an exception."),
    _histogram(("step",), "stepLatency", "Duration of a step run."),
    _counter(("step",), "stepTime", "Total duration of all runs of the step.", "ms"),
    _counter(("skill",), "skillLoads", "Number of times that models loaded the skill."),
    _counter(("skill",), "skillReads", "Number of times that models read a file of the skill."),
    _counter(
        ("skill",),
        "skillErrors",
        "Number of failed loads and reads of the skill. Missing skills have the label `unknown`.",
    ),
    _counter(("skill",), "commands", "Number of commands that ran for the skill, including interactive processes."),
    _counter(
        ("skill",),
        "commandFailures",
        "Number of commands that ended with a nonzero exit code, a signal, a timeout or a limit.",
    ),
    _histogram(
        ("skill",), "commandLatency", "Duration of a command. For an interactive process: duration of its start."
    ),
    _counter(("skill",), "commandTime", "Total duration of all commands of the skill.", "ms"),
    _counter(("skill",), "inputTokens", "Number of input tokens of requests made while the skill was loaded."),
    _counter(("skill",), "outputTokens", "Number of output tokens of requests made while the skill was loaded."),
    _counter(
        ("skill",),
        "costMicroUsd",
        "Cost of requests made while the skill was loaded, if the price of the model is known.",
        _USD,
    ),
    _worker(
        "skills", "Number of skills in the catalogs of the agent and its sub-agents. Each agent has its own catalog."
    ),
    _worker("diagnosticErrors", "Number of errors in skills and sources."),
    _worker("diagnosticWarnings", "Number of warnings about skills and sources."),
    _worker("diagnosticInfos", "Number of informational diagnostics about skills and sources."),
    _worker("failedSources", "Number of skill sources that failed at their last read."),
    _worker("generation", "Generation of the skills: 1 after the agent opens, plus 1 for each change."),
    _worker("refreshes", "Number of attempted refreshes of the skills."),
    _worker("refreshFailures", "Number of refreshes that failed, entirely or for one source."),
    _worker(
        "isolationLevel",
        "Isolation level of commands: 10 `HYGIENE`, 20 `LANDLOCK_PARTIAL`, 30 `LANDLOCK`, 40 `NAMESPACE`, 50 `REMOTE`. "
        "Missing in a job without commands.",
    ),
    _worker("mcpServers", "Number of MCP servers of the agent and its sub-agents."),
    _worker("mcpServersDown", "Number of MCP servers that are disconnected."),
    _worker("mcpReconnects", "Number of reconnections to MCP servers."),
    _worker("eventLoopLag", "Maximum delay of the worker's event loop since the last report.", "ms"),
    _worker("abandonedTurns", "Number of ended turns whose code still runs because it ignores its cancellation."),
    _worker("hungThreads", "Number of threads of steps and tools that hang in calls that no turn waits for."),
    _worker("memory", "Resident memory of the worker process, excluding its commands.", "bytes"),
)


def metric(name: str, *labels: str) -> Metric:
    """Return the metric with this name and these labels. Raise :class:`KeyError` if it does not exist."""
    for candidate in METRICS:
        if candidate.name == name and candidate.labels == labels:
            return candidate
    raise KeyError(f"metric {name!r} with labels {labels} does not exist")
