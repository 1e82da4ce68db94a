"""Models that do what servers do on a bad day, over real HTTP: deadlines and limits hold, and other keys go on."""

from __future__ import annotations

import datetime as dt
import email.utils
import json
from collections.abc import Callable
from typing import Any

import pytest
from pyflink.common import Types

from flink_skills import ResourceDescriptor, chat_model_connection, chat_model_setup
from flink_skills.testing import Call, Reply, Rule, ScriptedModelServer
from tests.flink.agents import Scripted, Shop
from tests.flink.running import collect, environments
from tests.worker.bad_agents import Unruly

pytestmark = pytest.mark.flink

TYPE = Types.ROW_NAMED(["case"], [Types.STRING()])
LONG = 10 << 20


class OfAnthropic(Scripted):
    """Asks by the other protocol."""

    @chat_model_connection
    def server(self) -> ResourceDescriptor:
        # A variable that the JVM of all tests has, whichever test started it; what is in it does not matter.
        return ResourceDescriptor(clazz="anthropic.connection", base_url=self.url, api_key_env="PATH")

    @chat_model_setup
    def chat_model(self) -> ResourceDescriptor:
        return ResourceDescriptor(clazz="anthropic.setup", connection="server", model="scripted")


def soon() -> str:
    return email.utils.format_datetime(dt.datetime.now(dt.timezone.utc) + dt.timedelta(seconds=2), usegmt=True)


def rules() -> list[Rule]:
    return [
        Rule(Reply(hang=True), last_user="hangs"),
        Rule(Reply(status=429, retry_after=1.0), last_user="busy", times=1),
        Rule(Reply("at last"), last_user="busy"),
        Rule(Reply(status=429, retry_after=soon()), last_user="date", times=1),
        Rule(Reply("at last"), last_user="date"),
        Rule(Reply(status=500, error="out of order"), last_user="broken"),
        Rule(Reply(body='{"choices": [{"mess'), last_user="garbage"),
        Rule(Reply(body='{"choices": 7, "content": 7}'), last_user="another shape"),
        Rule(Reply("half of this", cut_after=60), last_user="cut once", times=1),
        Rule(Reply("at last"), last_user="cut once"),
        Rule(Reply("half of this", cut_after=60), last_user="always half"),
        Rule(Reply("x" * LONG), last_user="long"),
        Rule(Reply(tool_calls=(Call("price", {"article": 3.5}),)), last_user="wrong", tool_results=0),
        Rule(Reply(tool_calls=(Call("price", {"a": "b"}),)), last_user="wrong", tool_results=1),
        Rule(Reply("{last_tool}"), last_user="wrong"),
        Rule(Reply(tool_calls=(Call("price", {"article": "pen"}),)), last_user="endless"),
        Rule(Reply("fine")),
    ]


def job(cases: list[tuple[str]], agents: list[Scripted], **options: str) -> list[dict[str, Any]]:
    """What these agents say of these cases, on two slots with two workers."""
    shared = {
        "skills.worker.processes": "2",
        "collect-sink.batch-size.max": "64 mb",
        "skills.model.retry-backoff": "50 ms",
        **options,
    }
    env, agents_env = environments(shared, parallelism=2)
    given = env.from_collection(cases, TYPE)
    outputs = [agents_env.from_datastream(given, "case").apply(agent) for agent in agents]
    return collect(*(output.to_datastream(tag=tag) for output in outputs for tag in ("", "errors")))


def test_a_bad_model_costs_its_own_turns_and_no_others(
    serve: Callable[..., ScriptedModelServer],
) -> None:
    openai, anthropic = serve(rules()), serve(rules())
    bad = (
        "hangs",
        "busy",
        "date",
        "broken",
        "garbage",
        "another shape",
        "long",
        "wrong",
        "endless",
        "cut once",
        "always half",
    )
    fine = [f"{n} is well" for n in range(10)]
    records = job(
        [(case,) for case in (*bad, *fine)],
        [Shop(openai.url, name="openai"), OfAnthropic(anthropic.origin, name="anthropic")],
        **{
            **{"skills.model.timeout": "8 s", "skills.model.max-retries": "1"},
            **{"skills.turn.max-steps": "12", "skills.turn.max-repeats": "0"},
        },
    )
    # Nobody waits for who hangs.
    keys = [record["key"] for record in records]
    assert keys.index("hangs") > max(keys.index(case, keys.index(case) + 1) for case in fine)
    for server in (openai, anthropic):
        assert sum("hangs" in json.dumps(body["messages"]) for body in server.requests) == 2
    answers = {(r["agent"], r["key"]): r["answer"] for r in records if "answer" in r}
    errors = [r for r in records if "error" in r]
    for agent in ("openai", "anthropic"):
        assert [answers[agent, case] for case in fine] == ["fine"] * len(fine)
        assert {answers[agent, case] for case in ("busy", "date", "cut once")} == {"at last"}
        assert len(answers[agent, "long"]) == LONG
    assert "price" in answers["openai", "wrong"]

    said = {case: [r["error"] for r in errors if r["key"] == case] for case in bad}
    failed = {"hangs", "broken", "garbage", "another shape", "endless", "always half"}
    assert {case: len(of_case) for case, of_case in said.items() if case in failed} == dict.fromkeys(failed, 2)
    assert {case for case, of_case in said.items() if of_case} - {"wrong"} == failed
    assert all("did not answer within 8 s" in text and "skills.model.timeout" in text for text in said["hangs"])
    assert all("status 500" in text and "given up after 2 attempts" in text for text in said["broken"])
    assert all("given up after 2 attempts" in text for text in said["always half"])
    assert all("not a chat completion" in text for text in (*said["garbage"], *said["another shape"]))
    assert all("skills.turn.max-steps = 12" in text for text in said["endless"])
    # Enough to run each of them again.
    assert all(record["event"] == {"case": record["key"]} and record["turn"] == 1 for record in errors)
    json.dumps(errors)


def test_all_workers_of_a_task_manager_together_keep_the_limit_of_a_model(
    serve: Callable[..., ScriptedModelServer],
) -> None:
    server = serve([Rule(Reply("ok"))], latency=0.1)
    records = job(
        [(f"case {number}",) for number in range(30)],
        [Scripted(server.url, name="one"), Scripted(server.url, name="two")],
        **{"skills.model.max-concurrent": "3", "skills.model.max-requests-per-minute": "1200"},
    )
    assert [record["answer"] for record in records] == ["ok"] * 60
    stats = server.stats()
    # Two slots, two workers with shares of two and one, and two agents.
    assert (stats["requests"], stats["max_in_flight"]) == (60, 3)


CRASHES = "crashed its worker process 2 times"


def test_turns_that_kill_their_worker_are_error_records_and_all_others_have_their_answer() -> None:
    options = {
        "skills.worker.processes": "2",
        "collect-sink.batch-size.max": "64 mb",
        "skills.worker.max-crashes": "2",
        "skills.worker.max-block": "3 s",
        "skills.worker.max-silence": "8 s",
        "skills.worker.max-memory": "600 mb",
    }
    env, agents_env = environments(options, parallelism=2)
    events = [(what, number) for number in range(8) for what in ("well",)]
    events += [("sleep", 0), ("stop", 0), ("os_exit", 0), ("leak", 0), ("fork", 0), ("unpicklable", 0), ("large", 0)]
    given = env.from_collection(events)
    output = agents_env.from_datastream(given, lambda event: event).apply(Unruly())
    records = collect(output.to_datastream(), output.to_datastream(tag="errors"))

    errors = {record["event"][0]: record for record in records if isinstance(record, dict)}
    assert set(errors) == {"sleep", "stop", "os_exit", "leak", "unpicklable"}
    assert all(CRASHES in errors[what]["error"] for what in ("sleep", "stop", "os_exit", "leak"))
    assert len(records) == len(events)
    answers = [record for record in records if isinstance(record, str)]
    assert sorted(answer[:10] for answer in answers) == sorted(["well"] * 8 + ["parent", "x" * 10])
