"""Write ``grafana-dashboard.json`` with the metrics of :mod:`flink_skills.telemetry.metric_list`.

python deploy/observability/gen_dashboard.py            write the dashboard
python deploy/observability/gen_dashboard.py --check    exit with 1 when it is not what this script writes
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from flink_skills.execution.isolation_report import IsolationLevel
from flink_skills.telemetry.metric_list import metric

TARGET = Path(__file__).resolve().parent / "grafana-dashboard.json"

_DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}
_OF = 'job_name=~"$job",operator_name=~"$operator"'
_MODEL = ("agent", "model")
_LABEL = ("agent", "label", "value")
_COLUMNS, _HEIGHT = 24, 8


def series(name: str, *labels: str, of: str = "", suffix: str = "") -> str:
    """The series of a metric in the chosen jobs and operators; ``of`` are more matchers."""
    return f"{metric(name, *labels).prometheus}{suffix}{{{_OF}{',' if of else ''}{of}}}"


def rate(name: str, *labels: str, by: str = "") -> str:
    """The increase per second, summed up, by a label or the operator."""
    return f"sum by ({by or 'operator_name'}) (rate({series(name, *labels)}[$__rate_interval]))"


def quantile(name: str, *labels: str, q: str, by: str = "") -> str:
    """A quantile of the slowest subtask: quantiles of several cannot be added up."""
    matcher = f'quantile="{q}"'
    return f"max by ({by or 'operator_name'}) ({series(name, *labels, of=matcher)})"


def average(total: str, count: str, *labels: str, by: str) -> str:
    """A time in milliseconds per occurrence."""
    return f"{rate(total, *labels, by=by)} / {rate(count, *labels, by=by)}"


def over_range(name: str, *labels: str, by: str, factor: str = "") -> str:
    """The increase over the time that is shown."""
    return f"sum by ({by}) (increase({series(name, *labels)}[$__range])){factor}"


def graph(title: str, unit: str, *targets: tuple[str, str], stack: bool = False, text: str = "") -> dict[str, Any]:
    """A panel with lines; targets are pairs of expression and legend."""
    custom = {"fillOpacity": 20 if stack else 5, "stacking": {"mode": "normal" if stack else "none"}}
    return {
        "type": "timeseries",
        "title": title,
        "description": text,
        "fieldConfig": {"defaults": {"unit": unit, "min": 0, "custom": custom}, "overrides": []},
        "options": {"legend": {"displayMode": "table", "placement": "bottom", "calcs": ["mean", "lastNotNull"]}},
        "targets": _targets(targets),
    }


def stat(title: str, unit: str, expression: str, *, text: str = "", **defaults: Any) -> dict[str, Any]:
    """A panel with one number."""
    return {
        "type": "stat",
        "title": title,
        "description": text,
        "fieldConfig": {"defaults": {"unit": unit, **defaults}, "overrides": []},
        "options": {"reduceOptions": {"calcs": ["lastNotNull"]}, "colorMode": "background", "graphMode": "area"},
        "targets": _targets([(expression, "")]),
    }


def bars(title: str, unit: str, expression: str, label: str, text: str = "") -> dict[str, Any]:
    """A panel with a bar for each value of a label, over the time that is shown."""
    return {
        "type": "bargauge",
        "title": title,
        "description": text,
        "fieldConfig": {"defaults": {"unit": unit, "min": 0}, "overrides": []},
        "options": {"orientation": "horizontal", "displayMode": "basic", "reduceOptions": {"calcs": ["lastNotNull"]}},
        "targets": [{**target, "instant": True} for target in _targets([(expression, f"{{{{{label}}}}}")])],
    }


def _targets(targets: Any) -> list[dict[str, Any]]:
    return [
        {"refId": chr(ord("A") + number), "datasource": _DATASOURCE, "expr": expression, "legendFormat": legend}
        for number, (expression, legend) in enumerate(targets)
    ]


def _thresholds(*steps: tuple[float | None, str]) -> dict[str, Any]:
    return {"mode": "absolute", "steps": [{"value": value, "color": color} for value, color in steps]}


def rows() -> list[tuple[str, int, list[dict[str, Any]]]]:
    """Title, panels in a line, panels."""
    turns, failures = rate("turns"), rate("failures")
    levels = {str(int(level)): {"text": level.name} for level in IsolationLevel}
    operator, model, tool, skill = "{{operator_name}}", "{{model}}", "{{tool}}", "{{skill}}"
    usd, label = " / 1000000", "{{label}} {{value}}"
    return [
        (
            "Overview",
            6,
            [
                stat("Turns per second", "ops", f"sum({turns})"),
                stat(
                    "Turns that fail",
                    "percentunit",
                    f"sum({failures}) / sum({turns})",
                    thresholds=_thresholds((None, "green"), (0.01, "orange"), (0.05, "red")),
                ),
                stat("Pending events", "short", f"sum({series('pending')})"),
                stat(
                    "Cost in this time",
                    "currencyUSD",
                    f"sum(increase({series('costMicroUsd', *_MODEL)}[$__range])){usd}",
                    text="Of the models whose prices are known.",
                ),
                stat(
                    "Weakest isolation",
                    "none",
                    f"min({series('isolationLevel', 'worker')})",
                    text="Over all TaskManagers: nodes differ.",
                    mappings=[{"type": "value", "options": levels}],
                    thresholds=_thresholds((None, "red"), (int(IsolationLevel.LANDLOCK), "green")),
                ),
                stat(
                    "Worker restarts in this time",
                    "short",
                    f"sum(increase({series('workerRestarts')}[$__range]))",
                    thresholds=_thresholds((None, "green"), (1, "orange")),
                ),
            ],
        ),
        (
            "Turns",
            2,
            [
                graph("Turn rate", "ops", (turns, operator)),
                graph("Failed turns", "ops", (failures, operator)),
                graph(
                    "In flight and pending",
                    "short",
                    (f"sum by (operator_name) ({series('inFlight')})", f"in flight, {operator}"),
                    (f"sum by (operator_name) ({series('pending')})", f"pending, {operator}"),
                ),
                graph(
                    "Used capacity, maximum",
                    "percentunit",
                    (f"max by (operator_name) ({series('usedCapacity')})", operator),
                    text="Of skills.worker.max-in-flight. At 100 % the operator accepts no further event.",
                ),
                graph(
                    "Turn latency of the slowest TaskManager",
                    "ms",
                    *(
                        (quantile("turnLatency", q=q), f"p{float(q) * 100:g}, {operator}")
                        for q in ("0.5", "0.95", "0.99")
                    ),
                    text="Of one attempt, over the last thousand samples.",
                ),
                graph(
                    "Steps",
                    "ops",
                    (rate("steps"), f"steps, {operator}"),
                    (rate("replayedSteps"), f"replayed, {operator}"),
                    (rate("resumedTurns"), f"resumed turns, {operator}"),
                    (rate("restartedTurns"), f"turns started anew, {operator}"),
                ),
                graph(
                    "Latency of the agent's own steps, p95",
                    "ms",
                    (quantile("stepLatency", "step", q="0.95", by="step"), "{{step}}"),
                ),
                graph(
                    "Control records",
                    "short",
                    (f"sum by (operator_name) (increase({series('controlRecords')}[$__rate_interval]))", operator),
                    (
                        f"sum by (operator_name) (increase({series('unusedControlRecords')}[$__rate_interval]))",
                        f"unused, {operator}",
                    ),
                    (
                        f"sum by (operator_name) (increase({series('forgotten')}[$__rate_interval]))",
                        f"erased keys, {operator}",
                    ),
                    (f"max by (operator_name) ({series('paused')})", f"paused, {operator}"),
                    text="Pauses, refusals and erasures. An unused record has an error record with the reason.",
                ),
            ],
        ),
        (
            "Models",
            2,
            [
                graph(
                    "Tokens by model",
                    "short",
                    (rate("inputTokens", *_MODEL, by="agent, model"), "in, {{agent}} {{model}}"),
                    (rate("outputTokens", *_MODEL, by="agent, model"), "out, {{agent}} {{model}}"),
                    text="Tokens per second.",
                ),
                graph(
                    "Cached and reasoning tokens by model",
                    "short",
                    (rate("cacheReadTokens", *_MODEL, by="agent, model"), "read from cache, {{agent}} {{model}}"),
                    (rate("cacheWriteTokens", *_MODEL, by="agent, model"), "written to cache, {{agent}} {{model}}"),
                    (rate("reasoningTokens", *_MODEL, by="agent, model"), "reasoning, {{agent}} {{model}}"),
                    text="Tokens per second, parts of those above.",
                ),
                graph(
                    "Share of input tokens from the cache",
                    "percentunit",
                    (
                        f"{rate('cacheReadTokens', *_MODEL, by='agent, model')} / "
                        f"{rate('inputTokens', *_MODEL, by='agent, model')}",
                        "{{agent}} {{model}}",
                    ),
                    text="0 for a provider that reports no cached tokens.",
                ),
                graph(
                    "Cost per hour by model",
                    "currencyUSD",
                    (f"{rate('costMicroUsd', *_MODEL, by='agent, model')} * 3600{usd}", "{{agent}} {{model}}"),
                    stack=True,
                    text="Models whose prices are not known are not there.",
                ),
                graph("Requests", "ops", (rate("requests", *_MODEL, by="model"), model)),
                graph(
                    "Retries and failed requests",
                    "ops",
                    (rate("retries", *_MODEL, by="model"), f"tried again, {model}"),
                    (rate("requestFailures", *_MODEL, by="model"), f"failed, {model}"),
                    (rate("fallbacks", *_MODEL, by="model"), f"went on to a fallback, {model}"),
                ),
                graph(
                    "Request latency",
                    "ms",
                    (quantile("chatLatency", *_MODEL, q="0.5", by="model"), f"p50, {model}"),
                    (quantile("chatLatency", *_MODEL, q="0.95", by="model"), f"p95, {model}"),
                ),
                graph(
                    "Requests that wait for a limit",
                    "none",
                    (f"{rate('limitWaitTime', *_MODEL, by='model')} / 1000", model),
                    text="The mean number of them. The log names the limit.",
                ),
                graph("Mean time of a request", "ms", (average("chatTime", "requests", *_MODEL, by="model"), model)),
            ],
        ),
        (
            "Labels of the job (skills.metrics.labels)",
            2,
            [
                graph(
                    "Cost per hour by label",
                    "currencyUSD",
                    (f"{rate('costMicroUsd', *_LABEL, by='label, value')} * 3600{usd}", label),
                    text="Each label counts all requests, so values of one label add up, and those of two do not.",
                ),
                graph(
                    "Tokens by label",
                    "short",
                    (rate("inputTokens", *_LABEL, by="label, value"), f"in, {label}"),
                    (rate("outputTokens", *_LABEL, by="label, value"), f"out, {label}"),
                    text="Tokens per second.",
                ),
                graph("Requests by label", "ops", (rate("requests", *_LABEL, by="label, value"), label)),
                bars(
                    "Cost in this time",
                    "currencyUSD",
                    over_range("costMicroUsd", *_LABEL, by="job_name, agent, label, value", factor=usd),
                    "job_name}} {{agent}} {{label}} {{value",
                ),
            ],
        ),
        (
            "Skills",
            3,
            [
                graph("Loads by skill", "ops", (rate("skillLoads", "skill", by="skill"), skill)),
                graph("Commands by skill", "ops", (rate("commands", "skill", by="skill"), skill)),
                graph("Failed commands by skill", "ops", (rate("commandFailures", "skill", by="skill"), skill)),
                graph("Mean time of a command", "ms", (average("commandTime", "commands", "skill", by="skill"), skill)),
                graph(
                    "Command latency, p95",
                    "ms",
                    (quantile("commandLatency", "skill", q="0.95", by="skill"), skill),
                ),
                graph(
                    "Reads and errors by skill",
                    "ops",
                    (rate("skillReads", "skill", by="skill"), f"files read, {skill}"),
                    (rate("skillErrors", "skill", by="skill"), f"errors, {skill}"),
                ),
                bars(
                    "Input tokens while loaded",
                    "short",
                    over_range("inputTokens", "skill", by="skill"),
                    "skill",
                    "A request counts for each skill that is loaded, so these do not add up.",
                ),
                bars("Output tokens while loaded", "short", over_range("outputTokens", "skill", by="skill"), "skill"),
                bars(
                    "Cost while loaded",
                    "currencyUSD",
                    over_range("costMicroUsd", "skill", by="skill", factor=usd),
                    "skill",
                ),
            ],
        ),
        (
            "Tools",
            3,
            [
                graph("Calls by tool", "ops", (rate("toolCalls", "tool", by="tool"), tool)),
                graph("Failures by tool", "ops", (rate("toolFailures", "tool", by="tool"), tool)),
                graph("Repeated calls by tool", "ops", (rate("repeatedCalls", "tool", by="tool"), tool)),
                graph("Tool latency, p95", "ms", (quantile("toolLatency", "tool", q="0.95", by="tool"), tool)),
                graph("Requests to MCP servers", "ops", (rate("mcpRequests", "server", by="server"), "{{server}}")),
                graph(
                    "Requests without an answer",
                    "ops",
                    (rate("mcpFailures", "server", by="server"), "{{server}}"),
                    text="The MCP server was not there, went away, or answered nonsense.",
                ),
                graph(
                    "MCP servers",
                    "short",
                    (f"max by (operator_name) ({series('mcpServers', 'worker')})", operator),
                    (f"max by (operator_name) ({series('mcpServersDown', 'worker')})", f"down, {operator}"),
                    (f"max by (operator_name) ({series('mcpReconnects', 'worker')})", f"reconnects, {operator}"),
                    text="At the worker that reaches the fewest. The log of the TaskManager says which ones.",
                ),
            ],
        ),
        (
            "Waits",
            3,
            [
                graph(
                    "Waiting turns",
                    "short",
                    (f"sum by (operator_name) ({series('waiting')})", operator),
                ),
                graph(
                    "Oldest wait",
                    "ms",
                    (f"max by (operator_name) ({series('oldestWait')})", operator),
                ),
                graph(
                    "Resumed turns, timeouts and unused answers",
                    "ops",
                    (f"sum by (operator_name) (rate({series('resumed')}[$__rate_interval]))", f"resumed, {operator}"),
                    (f"sum by (operator_name) (rate({series('timedOut')}[$__rate_interval]))", f"timeouts, {operator}"),
                    (
                        f"sum by (operator_name) (rate({series('unusedAnswers')}[$__rate_interval]))",
                        f"unused answers, {operator}",
                    ),
                ),
            ],
        ),
        (
            "Workers and skills",
            3,
            [
                graph(
                    "Isolation level, minimum",
                    "none",
                    (f"min by (operator_name) ({series('isolationLevel', 'worker')})", operator),
                    text=", ".join(f"{int(level)} {level.name}" for level in IsolationLevel),
                ),
                graph(
                    "Worker restarts",
                    "short",
                    (f"sum by (operator_name) (increase({series('workerRestarts')}[$__rate_interval]))", operator),
                ),
                graph(
                    "Diagnostics",
                    "short",
                    (f"max by (operator_name) ({series('diagnosticErrors', 'worker')})", f"errors, {operator}"),
                    (f"max by (operator_name) ({series('diagnosticWarnings', 'worker')})", f"warnings, {operator}"),
                    (f"max by (operator_name) ({series('failedSources', 'worker')})", f"failed sources, {operator}"),
                ),
                graph(
                    "Event loop lag",
                    "ms",
                    (f"max by (tm_id, worker) ({series('eventLoopLag', 'worker')})", "{{tm_id}} worker {{worker}}"),
                ),
                graph(
                    "Hung threads and code of ended turns",
                    "short",
                    (
                        f"max by (tm_id, worker) ({series('hungThreads', 'worker')})",
                        "threads, {{tm_id}} worker {{worker}}",
                    ),
                    (
                        f"max by (tm_id, worker) ({series('abandonedTurns', 'worker')})",
                        "turns, {{tm_id}} worker {{worker}}",
                    ),
                ),
                graph(
                    "Memory of workers",
                    "bytes",
                    (f"max by (tm_id, worker) ({series('memory', 'worker')})", "{{tm_id}} worker {{worker}}"),
                ),
                graph(
                    "Skills and refreshes",
                    "short",
                    (f"max by (operator_name) ({series('skills', 'worker')})", f"skills, {operator}"),
                    (f"max by (operator_name) ({series('generation', 'worker')})", f"generation, {operator}"),
                    (
                        f"max by (operator_name) ({series('refreshFailures', 'worker')})",
                        f"failed refreshes, {operator}",
                    ),
                ),
            ],
        ),
    ]


def dashboard() -> dict[str, Any]:
    """The dashboard, to be imported into Grafana 10 or newer."""
    panels: list[dict[str, Any]] = []
    top = 0
    for title, columns, members in rows():
        panels.append(_placed({"type": "row", "title": title, "collapsed": False}, len(panels), (0, top, _COLUMNS, 1)))
        top += 1
        height = _HEIGHT if columns < 6 else 4
        width = _COLUMNS // columns
        for number, panel in enumerate(members):
            place = (number % columns * width, top + number // columns * height, width, height)
            panels.append(_placed({"datasource": _DATASOURCE, **panel}, len(panels), place))
        top += -(-len(members) // columns) * height
    turns = metric("turns").prometheus
    return {
        "uid": "flink-skills",
        "title": "Agents in Flink",
        "tags": ["flink", "flink-skills"],
        "schemaVersion": 39,
        "refresh": "30s",
        "time": {"from": "now-1h", "to": "now"},
        "templating": {
            "list": [
                {"name": "datasource", "label": "Prometheus", "type": "datasource", "query": "prometheus"},
                _variable("job", "Job", f"label_values({turns}, job_name)"),
                _variable("operator", "Agent", f'label_values({turns}{{job_name=~"$job"}}, operator_name)'),
            ]
        },
        "panels": panels,
    }


def _placed(panel: dict[str, Any], number: int, place: tuple[int, int, int, int]) -> dict[str, Any]:
    return {"id": number + 1, **panel, "gridPos": dict(zip("xywh", place, strict=True))}


def _variable(name: str, label: str, query: str) -> dict[str, Any]:
    return {
        "name": name,
        "label": label,
        "type": "query",
        "datasource": _DATASOURCE,
        "query": {"query": query, "refId": name},
        "definition": query,
        "refresh": 2,
        "multi": True,
        "includeAll": True,
        "allValue": ".*",
        "current": {"text": "All", "value": "$__all"},
    }


def main(arguments: list[str]) -> int:
    """Write the dashboard, or compare it; returns the exit code."""
    text = json.dumps(dashboard(), indent=1) + "\n"
    if "--check" in arguments:
        if TARGET.read_text(encoding="utf-8") == text:
            return 0
        sys.stderr.write(f"{TARGET} is not current: run python {Path(__file__).name}\n")
        return 1
    TARGET.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
