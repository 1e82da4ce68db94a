"""The event stream of a job: as records, as a table, and only where somebody asks for it."""

from __future__ import annotations

import datetime as dt
import json
from pathlib import Path
from typing import Any

import pytest
from pyflink.common import Types

from flink_skills import Agent, AgentContext, AgentEvent, ConfigError
from flink_skills.telemetry import EVENT_COLUMNS
from tests.flink.agents import Tally
from tests.flink.running import collect, environments
from tests.kit.local import local_environment

pytestmark = pytest.mark.flink

EVENTS = [("a", 1), ("a", -2), ("b", 4)]
TYPE = Types.ROW_NAMED(["k", "v"], [Types.STRING(), Types.INT()])


class Steps(Agent):
    """Two durable steps for each event; the second one fails where the event asks for it."""

    name = "steps"

    async def on_event(self, event: Any, ctx: AgentContext) -> Any:
        first = await ctx.step("first", lambda: event["v"])
        return await ctx.step("second", lambda: 10 // (first + 2))


def write_skill(folder: Path) -> str:
    (folder / "counts").mkdir(parents=True)
    (folder / "counts" / "SKILL.md").write_text("---\nname: Counts\ndescription: Counts things.\n---\n# counts\n")
    return str(folder)


@pytest.mark.both_versions
def test_a_stream_of_records(tmp_path: Path) -> None:
    env, agents_env = environments(parallelism=2)
    agents_env.add_skills_from_paths([write_skill(tmp_path)])
    output = agents_env.from_datastream(env.from_collection(EVENTS, TYPE), "k").apply(Steps)
    events = output.to_event_stream()
    seen = collect(events, output.to_datastream(), output.to_datastream(tag="errors"))
    records = [record for record in seen if isinstance(record, AgentEvent)]
    assert len(seen) - len(records) == 3, "outputs and error records are where they were"
    assert all(list(record) == [column.name for column in EVENT_COLUMNS] for record in records)

    of_turns = [record for record in records if record.turn is not None]
    assert sorted((r.key, r.turn, r.kind, r.name, r.status) for r in of_turns) == [
        ("a", 1, "step", "first", "ok"),
        ("a", 1, "step", "second", "ok"),
        ("a", 1, "turn", "steps", "ok"),
        ("a", 2, "step", "first", "ok"),
        ("a", 2, "step", "second", "error"),
        ("a", 2, "turn", "steps", "error"),
        ("b", 1, "step", "first", "ok"),
        ("b", 1, "step", "second", "ok"),
        ("b", 1, "turn", "steps", "ok"),
    ]
    assert len({record.id for record in records}) == len(records)
    # One TaskManager opened the agent, whatever the number of subtasks and workers.
    outside = [record for record in records if record.turn is None]
    assert sorted((record.kind, record.code) for record in outside if record.kind != "open") == [
        ("diagnostic", "F05"),
        ("diagnostic", "F07"),
    ]
    (opened,) = (record for record in outside if record.kind == "open")
    assert json.loads(opened.detail)["sources"] == [f"path {tmp_path}"]


def test_a_table(tmp_path: Path) -> None:
    env, agents_env = environments()
    output = agents_env.from_datastream(env.from_collection(EVENTS, TYPE), "k").apply(Steps)
    table = output.to_event_table()
    schema = table.get_schema()
    assert schema.get_field_names() == [column.name for column in EVENT_COLUMNS]
    t_env = agents_env.table_environment()
    t_env.create_temporary_view("events", table)
    names = ", ".join(column.name for column in EVENT_COLUMNS if column.name != "at")
    t_env.execute_sql(f"CREATE TEMPORARY VIEW named AS SELECT `at`, {names} FROM events")  # no other is a keyword
    query = (
        "SELECT kind, status, COUNT(*), CAST(MIN(`at`) AS TIMESTAMP(3)), MAX(duration_ms), MAX(turn_id) FROM named "
        "WHERE turn IS NOT NULL GROUP BY kind, status"
    )
    with t_env.execute_sql(query).collect() as rows:
        latest = {(row[0], row[1]): tuple(row)[2:] for row in rows}
    assert {of: row[0] for of, row in latest.items()} == {
        ("step", "ok"): 5,
        ("step", "error"): 1,
        ("turn", "ok"): 2,
        ("turn", "error"): 1,
    }
    _, began, longest, turn_id = latest["turn", "ok"]
    assert abs(began - dt.datetime.now()) < dt.timedelta(minutes=5)
    assert longest > 0
    assert len(turn_id) == 32


def test_nothing_is_told_unless_it_is_asked_for() -> None:
    env, agents_env = environments()
    output = agents_env.from_datastream(env.from_collection(EVENTS, TYPE), "k").apply(Tally)
    records = collect(output.to_datastream(tag="events"), output.to_datastream())
    assert records
    assert all("last" in record for record in records)


def test_the_option_turns_them_on() -> None:
    env, agents_env = environments({"skills.events.enabled": "true"})
    output = agents_env.from_datastream(env.from_collection(EVENTS, TYPE), "k").apply(Tally)
    records = collect(output.to_datastream(tag="events"))
    assert sorted(record.kind for record in records) == ["open", "turn", "turn", "turn"]


def test_lists_are_elsewhere() -> None:
    agents_env = local_environment()
    over_list = agents_env.from_list(["x"]).apply(Tally)
    with pytest.raises(ConfigError, match="use to_event_list"):
        over_list.to_event_stream()
    with pytest.raises(ConfigError, match="use to_event_list"):
        over_list.to_event_table()
    env, agents_env = environments()
    with pytest.raises(ConfigError, match="use to_event_stream"):
        agents_env.from_datastream(env.from_collection(EVENTS, TYPE), "k").apply(Tally).to_event_list()
