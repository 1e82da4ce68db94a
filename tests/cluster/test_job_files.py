"""Job files on a cluster: submitted by module and by file, stopped and gone on with, and their secrets."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import flink_skills.job
from flink_skills.testing import Call, Reply, Rule, ScriptedModelServer
from tests.cluster.planted import PASSWORD, PLANTED, places_of, rows_below
from tests.flink.skill_files import pack, write_skill
from tests.kit.cluster import StandaloneCluster, wait_until
from tests.sources.web import Page, Web

pytestmark = pytest.mark.cluster

MAIN = Path(flink_skills.job.__file__).parent / "__main__.py"
# Machines that run tests are busy.
DEADLINE = 240
QUICK = "'sink.rolling-policy.rollover-interval' = '500 ms', 'sink.rolling-policy.check-interval' = '100 ms'"

COUNTING = f"""\
name: counting
flink: {{parallelism.default: 1}}
options: {{skills.worker.processes: 1}}
agent: {{name: counter, model: offline, session: key}}
tables: |
  CREATE TABLE orders (id STRING, customer STRING, ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '1' SECOND)
  WITH ('connector' = 'filesystem', 'path' = '${{job:dir}}/orders', 'format' = 'json',
    'source.monitor-interval' = '200 ms');
  CREATE TABLE turns (id STRING, customer STRING, turn INT, seen TIMESTAMP(3), answer STRING)
  WITH ('connector' = 'filesystem', 'path' = '${{job:dir}}/turns', 'format' = 'json', {QUICK});
input: {{table: orders, key: customer}}
output: {{table: turns, columns: {{turn: turn, seen: timestamp}}}}
"""
FAILURES = f"""\
  CREATE TABLE failures (id STRING, error STRING, event STRING)
  WITH ('connector' = 'filesystem', 'path' = '${{job:dir}}/failures', 'format' = 'json', {QUICK});
"""
PEOPLE = f"""\
  CREATE TABLE decisions (customer STRING, wait_id STRING, answer STRING)
  WITH ('connector' = 'filesystem', 'path' = '${{job:dir}}/decisions', 'format' = 'json',
    'source.monitor-interval' = '200 ms');
  CREATE TABLE questions (wait_id STRING, status STRING)
  WITH ('connector' = 'filesystem', 'path' = '${{job:dir}}/questions', 'format' = 'json', {QUICK});
"""


def place(folder: Path, name: str, *orders: str) -> None:
    """A file of orders that appears at once."""
    folder.mkdir(exist_ok=True)
    lines = [{"id": order, "customer": order[0], "ts": f"2026-02-03 10:00:0{order[1]}"} for order in orders]
    (folder / f".{name}").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (folder / f".{name}").rename(folder / name)


@pytest.mark.both_versions
def test_a_job_file_stops_with_a_savepoint_and_goes_on_where_it_was(cluster: StandaloneCluster, tmp_path: Path) -> None:
    file = tmp_path / "job.yaml"
    file.write_text(COUNTING)
    place(tmp_path / "orders", "one.json", "a1", "b1")

    def turns() -> list[tuple[object, ...]]:
        return sorted((row["id"], row["turn"], row["seen"]) for row in rows_below(tmp_path / "turns"))

    words = ("run", "-d", *cluster.interpreters, "-pym", "flink_skills.job", "--config", str(file))
    job = cluster.submitted(cluster.client(*words, deadline=DEADLINE))
    assert cluster.rest(f"/jobs/{job}")["name"] == "counting"
    wait_until(lambda: len(turns()) == 2, DEADLINE, "the first orders to be answered")
    last = cluster.rest(f"/jobs/{job}")["vertices"][-1]["id"]
    wait_until(
        lambda: any(
            float(metric["value"]) == 1_770_112_800_000
            for metric in cluster.rest(f"/jobs/{job}/vertices/{last}/watermarks")
        ),
        DEADLINE,
        "the watermark of the orders to reach the sink",
    )
    savepoint = cluster.stop_with_savepoint(job, deadline=DEADLINE)

    # Tables of errors, answers and questions are added. The state of the source, the agent and the sink is still found.
    text = COUNTING.replace("input:", f"{FAILURES}{PEOPLE}input:") + "errors: {table: failures}\n"
    text += "answers: {table: decisions}\nwaits: {table: questions}\n"
    file.write_text(text)
    (tmp_path / "decisions").mkdir()
    place(tmp_path / "orders", "two.json", "a2", "b2")
    again = cluster.submit(
        MAIN, "--config", str(file), "--set", "pipeline.name=other", savepoint=savepoint, deadline=DEADLINE
    )
    wait_until(lambda: len(turns()) >= 4, DEADLINE, "the orders after the savepoint to be answered")
    assert turns() == [
        ("a1", 1, "2026-02-03 10:00:01"),
        ("a2", 2, "2026-02-03 10:00:02"),
        ("b1", 1, "2026-02-03 10:00:01"),
        ("b2", 2, "2026-02-03 10:00:02"),
    ]
    cluster.cancel(again)


SEVERAL = f"""\
name: several
flink: {{parallelism.default: 1}}
options: {{skills.worker.processes: 1}}
models: {{main: {{clazz: offline.setup}}}}
tables: |
  CREATE TABLE orders (id STRING, customer STRING, ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '1' SECOND)
  WITH ('connector' = 'filesystem', 'path' = '${{job:dir}}/orders', 'format' = 'json',
    'source.monitor-interval' = '200 ms');
  CREATE TABLE turns (id STRING, turn INT, output STRING)
  WITH ('connector' = 'filesystem', 'path' = '${{job:dir}}/turns', 'format' = 'json', {QUICK});
  CREATE TABLE others (id STRING, turn INT, output STRING)
  WITH ('connector' = 'filesystem', 'path' = '${{job:dir}}/others', 'format' = 'json', {QUICK});
agents:
  first: {{session: key, input: {{table: orders, key: customer}}, output: {{agent: second}}}}
  second: {{session: key, output: {{table: turns, columns: {{turn: turn}}}}}}
"""
# Before the others in the file, and between them in the job.
ADDED = """\
agents:
  added: {session: key, input: {agent: first}, output: {table: others, columns: {turn: turn}}}
"""


def test_an_agent_that_is_added_leaves_the_state_of_the_others(cluster: StandaloneCluster, tmp_path: Path) -> None:
    file = tmp_path / "job.yaml"
    file.write_text(SEVERAL)
    place(tmp_path / "orders", "one.json", "a1", "b1")

    def turns(table: str) -> list[tuple[object, ...]]:
        return sorted((row["id"], row["turn"]) for row in rows_below(tmp_path / table))

    job = cluster.submit(MAIN, "--config", str(file), deadline=DEADLINE)
    wait_until(lambda: len(turns("turns")) == 2, DEADLINE, "the first orders to pass both agents")
    savepoint = cluster.stop_with_savepoint(job, deadline=DEADLINE)

    file.write_text(SEVERAL.replace("agents:\n", ADDED))
    place(tmp_path / "orders", "two.json", "a2", "b2")
    again = cluster.submit(MAIN, "--config", str(file), savepoint=savepoint, deadline=DEADLINE)
    wait_until(lambda: len(turns("turns")) >= 4 and len(turns("others")) >= 2, DEADLINE, "the orders that came later")
    assert turns("turns") == [("a1", 1), ("a2", 2), ("b1", 1), ("b2", 2)]
    assert turns("others") == [("a2", 1), ("b2", 1)]
    cluster.cancel(again)


def refuses(request: Any) -> tuple[int, str] | None:
    """Refuse requests without the user and the password. The refusal has what the client sent."""
    user = request.headers.get("Authorization")
    expected = f"Basic {base64.b64encode(f'me:{PASSWORD}'.encode()).decode()}"
    return None if user == expected else (401, f"no: {user}")


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[int]:
    """The port of a server with a zip of a skill that not everybody gets."""
    skill = write_skill(tmp_path / "made", "measure", files={"scripts/measure.sh": 'printf %s "$TOKEN" | wc -c\n'})
    web = Web(refuses=refuses)
    web.pages["/skills.zip"] = Page(pack(tmp_path / "skills.zip", [skill]).read_bytes())
    yield web.port
    web.close()


def model() -> ScriptedModelServer:
    """Loads the skill, runs its script, and answers with what it printed; orders of b are refused with the key."""
    key = PLANTED["PLANTED_MODEL_KEY"]
    return ScriptedModelServer(
        [
            Rule(Reply(status=401, error=f"Incorrect API key provided: {key}."), last_user="b1"),
            Rule(Reply(tool_calls=(Call("load_skill", {"name": "measure"}),)), tool_results=0),
            Rule(
                Reply(
                    tool_calls=(
                        Call("execute_shell_command", {"command": "sh scripts/measure.sh", "skill": "measure"}),
                    )
                ),
                tool_results=1,
            ),
            Rule(Reply("{last_tool}")),
        ]
    )


def test_planted_secrets_are_used_and_found_nowhere(
    cluster: StandaloneCluster, tmp_path: Path, guarded: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Only TaskManagers need it. Flink's client logs its environment, and hides only what is named like a secret there.
    monkeypatch.delenv("PLANTED_MODEL_KEY")
    secret_table = "'sink.partition-commit.policy.class.parameters' = '${env:PLANTED_TABLE_SECRET}', "
    audit = (
        "  CREATE TABLE audit (kind STRING, name STRING, error STRING, `key` STRING)\n"
        "  WITH ('connector' = 'filesystem', "
        f"'path' = '${{job:dir}}/audit', 'format' = 'json', {QUICK});\n"
    )
    with model() as server:
        text = COUNTING.replace("'path' = '${job:dir}/turns',", f"{secret_table}'path' = '${{job:dir}}/turns',")
        text = text.replace("input:", f"{FAILURES}{audit}input:")
        text = text.replace(
            "{name: counter, model: offline, session: key}",
            f"""
  name: measurer
  session: key
  chat_model_setups:
    m: {{clazz: 'openai-compatible:m', base_url: '{server.url}', api_key_env: PLANTED_MODEL_KEY}}""",
        ).replace(
            "skills.worker.processes: 1",
            "skills.worker.processes: 1, skills.env.measure.TOKEN: '${env:PLANTED_SKILL_TOKEN}', "
            "skills.source.allow-http: true, skills.source.allow-private: true",
        )
        text += (
            f"skills: {{urls: ['http://me:${{env:PLANTED_URL_PASSWORD}}@127.0.0.1:{guarded}/skills.zip']}}\n"
            "errors: {table: failures}\nevents: {table: audit}\n"
        )
        file = tmp_path / "job.yaml"
        file.write_text(text)
        place(tmp_path / "orders", "one.json", "a1", "b1")
        words = ("run", "-d", *cluster.interpreters, "-pym", "flink_skills.job", "--config", str(file))
        client = cluster.client(*words, deadline=DEADLINE)
        job = cluster.submitted(client)

        def done() -> bool:
            return bool(rows_below(tmp_path / "turns")) and bool(rows_below(tmp_path / "failures"))

        wait_until(done, DEADLINE, "an order to be answered and one to fail")
    savepoint = Path(cluster.stop_with_savepoint(job, deadline=DEADLINE).removeprefix("file:"))
    (answered,) = rows_below(tmp_path / "turns")
    assert str(len(PLANTED["PLANTED_SKILL_TOKEN"])) in str(answered["answer"]), "the command had its token"
    (failed,) = rows_below(tmp_path / "failures")
    assert "Incorrect API key provided" in str(failed["error"])
    events = rows_below(tmp_path / "audit")
    assert {"turn", "chat", "tool", "command", "skill"} <= {event["kind"] for event in events}
    assert any(savepoint.rglob("_metadata"))

    texts = {
        "the client's output": client,
        "answers": json.dumps(answered),
        "error records": json.dumps(failed),
        "events": json.dumps(events),
    }
    found = places_of(cluster, job, texts)
    assert not found, "\n".join(found)


def test_a_process_of_pyflink_that_is_cut_off_leaves_no_environment_in_logs(
    cluster: StandaloneCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # What Beam says when its process cannot be ended in peace has all variables. A task that is interrupted while it
    # closes is one way to that; an interval this short makes it the usual one.
    monkeypatch.delenv("PLANTED_MODEL_KEY")
    text = COUNTING.replace("customer STRING, ts", "customer STRING, `day` DATE, ts").replace(
        "key: customer", "key: day"
    )
    file = tmp_path / "job.yaml"
    file.write_text(text.replace("parallelism.default: 1", "parallelism.default: 1, task.cancellation.interval: 5 ms"))
    (tmp_path / "orders").mkdir()
    order = {"id": "a1", "customer": "a", "day": "2026-02-03", "ts": "2026-02-03 10:00:01"}
    (tmp_path / "orders" / "one.json").write_text(json.dumps(order))

    def functions() -> list[str]:
        return [command for command in cluster.processes().values() if "pyflink.fn_execution" in command]

    client = cluster.client(
        *("run", "-d", *cluster.interpreters, "-pym", "flink_skills.job", "--config", str(file)), deadline=DEADLINE
    )
    job = cluster.submitted(client)
    wait_until(lambda: rows_below(tmp_path / "turns"), DEADLINE, "the order to be answered")
    assert functions(), "a key that is a date goes through a function of PyFlink"
    cluster.cancel(job)
    wait_until(lambda: not functions(), DEADLINE, "PyFlink's processes to end")
    found = places_of(cluster, job, {"the client's output": client})
    assert not found, "\n".join(found)


def test_modules_beside_the_file_travel_with_the_job(cluster: StandaloneCluster, tmp_path: Path) -> None:
    (tmp_path / "clerk_beside_a_job.py").write_text(
        "from flink_skills import Agent\nfrom prices_beside_a_job.lists import price\n\n\n"
        "class Clerk(Agent):\n    async def on_event(self, event, ctx):\n        return price(event['id'])\n"
    )
    package = tmp_path / "prices_beside_a_job"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "lists.py").write_text(
        "def price(item: str) -> str:\n    '''Return a price.'''\n    return f'{item} costs 7'\n"
    )
    place(tmp_path / "orders", "one.json", "a1")
    for agent in ("clerk_beside_a_job:Clerk", "{model: offline, tools: ['prices_beside_a_job.lists:price']}"):
        out = tmp_path / f"turns-{len(agent)}"
        text = COUNTING.replace("{name: counter, model: offline, session: key}", agent)
        (tmp_path / "job.yaml").write_text(text.replace("${job:dir}/turns", str(out)))
        words = ("run", "-d", *cluster.interpreters, "-pym", "flink_skills.job", "--config", str(tmp_path / "job.yaml"))
        job = cluster.submitted(cluster.client(*words, deadline=DEADLINE))
        wait_until(lambda out=out: rows_below(out), DEADLINE, "the order to be answered")  # type: ignore[misc]
        cluster.cancel(job)
        answers = [row["answer"] for row in rows_below(out)]
        assert answers == (["a1 costs 7"] if "Clerk" in agent else ["No skill fits this event."])
