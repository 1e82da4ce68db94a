"""Tools as a business has them, for any number of skills: arguments, types and words as people write them."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any, Literal

from flink_skills.tools.base import Tool, ToolContext, ToolResult, ToolSpec
from flink_skills.tools.function import FunctionTool

Severity = Literal["low", "medium", "high", "critical"]


def search(
    query: str,
    since: str = "",
    until: str = "",
    severity: Severity | None = None,
    limit: int = 20,
) -> dict[str, Any]:
    """Search the records of {subject} by words that they contain, newest first. Gives ids, titles and times; get the
    whole record by its id.

    Args:
        query: Words that must all be in the title or the text; quoted words must stand together.
        since: Only records from this time on, ISO 8601 with a zone, such as 2026-03-01T00:00:00Z.
        until: Only records before this time, ISO 8601 with a zone.
        severity: Only records of this severity.
        limit: Most records to give, 1 to 100.
    """
    return _result("search", query)


def get(record: str, fields: list[str] | None = None, with_history: bool = False) -> dict[str, Any]:
    """Get one record of {subject} by its id, with its owner, state and latest comments.

    Args:
        record: Id of the record, such as INC-20317.
        fields: Names of the fields to give; without it all of them.
        with_history: Also who changed what, and when.
    """
    return _result("get", record)


def update(
    record: str,
    state: Literal["open", "in_progress", "waiting", "resolved"] | None = None,
    assignee: str = "",
    comment: str = "",
    tags: list[str] | None = None,
) -> dict[str, Any]:
    """Change a record of {subject}: its state, who works on it, its tags, or add a comment. What is not given stays.

    Args:
        record: Id of the record, such as INC-20317.
        state: The new state. A resolved record needs a comment that says how.
        assignee: Login of the person or team that works on it now.
        comment: Text in Markdown that is added to the record's comments.
        tags: All tags that the record has from now on.
    """
    return _result("update", record)


def report(
    measure: str,
    group_by: Literal["hour", "day", "week", "owner", "cause"] = "day",
    since: str = "",
    until: str = "",
    compare_with_previous: bool = False,
) -> dict[str, Any]:
    """Compute a figure over the records of {subject}, grouped, and with its change against the time before if asked.

    Args:
        measure: What is computed: count, open_count, median_duration, p95_duration or cost.
        group_by: What a row of the result stands for.
        since: Begin of the time, ISO 8601 with a zone; 30 days ago without it.
        until: End of the time, ISO 8601 with a zone; now without it.
        compare_with_previous: Also the same figure for the time of equal length before.
    """
    return _result("report", measure)


def create(title: str, text: str, severity: Severity, component: str = "", watchers: list[str] | None = None) -> Any:
    """Create a record of {subject}. Search first: a second record of the same thing is merged by hand.

    Args:
        title: One line, at most 120 characters, that says what is wrong and where.
        text: What was seen, what was expected, and what has been tried, in Markdown.
        severity: How bad it is for users now.
        component: The part that it is about, as in the list of components.
        watchers: Logins of people who are told of each change.
    """
    return _result("create", title)


def link(record: str, other: str, kind: Literal["duplicates", "caused_by", "blocks", "relates_to"]) -> Any:
    """Link two records of {subject}, so that each shows the other. Linking twice changes nothing.

    Args:
        record: Id of the record that the link starts from.
        other: Id of the record that it leads to.
        kind: What the first is to the second.
    """
    return _result("link", record)


def timeline(record: str, around_minutes: int = 30, sources: list[str] | None = None) -> dict[str, Any]:
    """What happened around a record of {subject}: deployments, alerts, scaling and changes of configuration, in order.

    Args:
        record: Id of the record, such as INC-20317.
        around_minutes: Minutes before and after the record's begin, 1 to 1440.
        sources: Only events of these systems: deploy, alert, scale, config.
    """
    return _result("timeline", record)


def estimate(record: str, method: Literal["history", "queue"] = "history", confidence: float = 0.8) -> dict[str, Any]:
    """Estimate when a record of {subject} is resolved, from records like it.

    Args:
        record: Id of the record, such as INC-20317.
        method: From how long records like it took, or from the place in its team's queue.
        confidence: Share of records that were resolved within the estimate, 0.5 to 0.99.
    """
    return _result("estimate", record)


def notify(channel: str, text: str, record: str = "", urgent: bool = False) -> dict[str, Any]:
    """Tell a channel something about {subject}. Everybody in the channel reads it: keep it short.

    Args:
        channel: Name of the channel, with its sign: #operations or @team-state.
        text: At most 500 characters, in Markdown.
        record: Id of a record that the message links to.
        urgent: Whether phones ring. Only for what is critical.
    """
    return _result("notify", channel)


def export(
    since: str, until: str, form: Literal["csv", "json", "parquet"] = "csv", fields: list[str] | None = None
) -> Any:
    """Export the records of {subject} of some time as a file, and give where it can be fetched for a day.

    Args:
        since: Begin of the time, ISO 8601 with a zone.
        until: End of the time, ISO 8601 with a zone.
        form: How the file is written.
        fields: Names of the columns, in this order; without it all of them.
    """
    return _result("export", since)


ALL: tuple[Callable[..., Any], ...] = (search, get, timeline, link, update, report, create, estimate, notify, export)


class BusinessTool(Tool):
    """One of the functions above for one subject. Its schema is made once for all subjects."""

    def __init__(self, function: Callable[..., Any], subject: str) -> None:
        self._tool = _as_tool(function)
        spec = self._tool.spec
        told = spec.description.replace("{subject}", subject.replace("_", " "))
        self._spec = ToolSpec(f"{spec.name}_{subject}", told, spec.parameters)

    @property
    def spec(self) -> ToolSpec:
        return self._spec

    async def call(self, arguments: Mapping[str, Any], context: ToolContext) -> ToolResult:
        return await self._tool.call(arguments, context)


@functools.cache
def _as_tool(function: Callable[..., Any]) -> FunctionTool:
    return FunctionTool(function)


def names(subject: str, count: int) -> list[str]:
    """The names of the first ``count`` tools of ``subject``."""
    return [f"{function.__name__}_{subject}" for function in ALL[:count]]


def tools(subject: str, count: int) -> list[BusinessTool]:
    """The first ``count`` tools of ``subject``, at most ten."""
    return [BusinessTool(function, subject) for function in ALL[:count]]


def arguments(tool: str, number: int) -> dict[str, Any]:
    """What a model calls ``tool`` with, the ``number``-th time."""
    record = f"INC-{20_000 + 37 * number}"
    time = {"since": "2026-03-01T00:00:00Z", "until": f"2026-03-{2 + number % 27:02d}T00:00:00Z"}
    found: dict[str, dict[str, Any]] = {
        "search": {"query": f"checkpoint expired operator {number}", **time, "limit": 10},
        "get": {"record": record, "with_history": True},
        "update": {"record": record, "state": "in_progress", "comment": f"Looked at attempt {number}: same cause."},
        "report": {"measure": "p95_duration", "group_by": "day", **time},
        "create": {"title": f"Job {number} restarts", "text": "Seen since the deployment.", "severity": "high"},
        "link": {"record": record, "other": "INC-20001", "kind": "caused_by"},
        "timeline": {"record": record, "around_minutes": 45},
        "estimate": {"record": record},
        "notify": {"channel": "#operations", "text": f"{record} is being worked on.", "record": record},
        "export": time,
    }
    return found[tool.partition("_")[0]]


def _result(what: str, asked: str) -> dict[str, Any]:
    """About as much as such tools answer."""
    rows = [
        {
            "id": f"INC-{20_317 + 7 * number}",
            "title": f"Checkpoint {4_100 + number} of job payments expired before completing",
            "state": ("open", "in_progress", "resolved")[number % 3],
            "owner": "team-state",
            "at": f"2026-03-0{1 + number}T07:1{number}:00Z",
        }
        for number in range(4)
    ]
    return {"asked": f"{what} {asked}", "total": len(rows), "records": rows}
