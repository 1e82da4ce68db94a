"""The metrics that a job reports are those of the list, under the names of the dashboard, and they count right."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from deploy.check.rules.autoscaling import vertex_id
from flink_skills.telemetry import METRICS, key_hash, metric
from flink_skills.testing import Call, Reply, ScriptedModelServer
from tests.docs.observability import alert_expressions, dashboard_expressions, names_in
from tests.flink.skill_files import write_skill
from tests.kit.cluster import StandaloneCluster, wait_until
from tests.kit.passable import passable_folder

pytestmark = pytest.mark.cluster

HERE = Path(__file__).parent
LINE = re.compile(r"^(\w+)\{(.*)\} (\S+)$")
LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
AGENT = "agent metered"
PREFIX = "flink_taskmanager_job_task_operator_"
PORT = re.compile(r"Started PrometheusReporter HTTP server on port (\d+)")
CHATS = 6
CALLS = (
    Call("load_skill", {"name": "greet"}),
    Call("load_skill", {"name": "nowhere"}),
    Call("load_skill_resource", {"name": "greet", "path": "references/where.txt"}),
    Call("execute_shell_command", {"command": "exit 3"}),
    Call("price", {"article": "pen"}),
    Call("invented", {}),
    Call("ask_helper", {"request": "help"}),
    Call("far_count", {}),
)
REQUESTS = CHATS * (len(CALLS) + 1)


def reply(body: dict[str, Any]) -> Reply:
    """The next call for each tool result that the model has; then an answer."""
    messages = body["messages"]
    if messages[-1]["content"] == "help":
        return Reply(text="helped", input_tokens=3, output_tokens=1)
    done = sum(message["role"] == "tool" for message in messages)
    return Reply(tool_calls=(CALLS[done],)) if done < len(CALLS) else Reply(text="done")


@dataclass(frozen=True)
class Sample:
    name: str
    labels: dict[str, str]
    value: float


class Scrape:
    """Samples that Prometheus reads from the JobManager and the TaskManagers."""

    def __init__(self, cluster: StandaloneCluster) -> None:
        self.samples: list[Sample] = []
        # The log without a number is that of the JobManager.
        for number in (None, *cluster.task_managers()):
            (port,) = PORT.findall(cluster.log(number))
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=20) as answer:
                text = answer.read().decode()
            for line in text.splitlines():
                if found := LINE.match(line):
                    self.samples.append(Sample(found[1], dict(LABEL.findall(found[2])), float(found[3])))

    def value(self, name: str, **labels: str) -> float:
        """The sum of a metric over its series with these labels; -1 when there is none."""
        return sum(self.values(name, **labels) or [-1])

    def values(self, name: str, **labels: str) -> list[float]:
        """The values of a metric's series with these labels, at the agent's operator."""
        full = metric(name, *labels).prometheus
        wanted = {"operator_name": AGENT, **labels}
        return [
            sample.value for sample in self.samples if sample.name == full and wanted.items() <= sample.labels.items()
        ]

    def names(self) -> set[str]:
        return {sample.name for sample in self.samples}

    def own_names(self) -> set[str]:
        """The operator's metrics without those that Flink gives every operator."""
        of_agent: set[str] = set()
        of_others: set[str] = set()
        for sample in self.samples:
            if sample.name.startswith(PREFIX):
                names = of_agent if sample.labels["operator_name"] == AGENT else of_others
                # A summary has a series for its count.
                names.add(re.sub("(Latency)_count$", r"\1", sample.name))
        # Flink has one for each input of an operator with several.
        of_inputs = re.compile(r"_currentInput\d+Watermark$")
        of_others |= {name for name in of_agent if "_agent_user_" in name or of_inputs.search(name)}
        return of_agent - of_others

    def custom(self, name: str) -> list[Sample]:
        """The series of a custom metric at the agent's operator."""
        return [of for of in self.samples if of.name == PREFIX + name and of.labels["operator_name"] == AGENT]


@pytest.fixture(scope="module")
def scrape(cluster: StandaloneCluster) -> Iterator[Callable[[], Scrape]]:
    """A job that has done its work and still runs; scrapes its metrics."""
    server = ScriptedModelServer(reply).start()
    with passable_folder() as folder:
        write_skill(folder / "skills", "greet")
        gate, events, control = folder / "gate", folder / "events", folder / "control"
        events.mkdir()
        control.mkdir()
        lines = [*(f"chat {number}" for number in range(CHATS)), "fail", str(gate)]
        (events / "lines").write_text("\n".join(lines) + "\n")
        job = cluster.submit(
            HERE / "job_metered.py",
            *("--model", server.url, "--skills", str(folder / "skills"), "--events", str(events)),
            *("--control", str(control)),
            python_files=[HERE / "metered_agents.py"],
        )
        cluster.wait(job, "RUNNING", 120)

        def counted() -> bool:
            try:
                now = Scrape(cluster)
            except ConnectionError:
                return False  # the server of a TaskManager closes a connection now and then
            turns, requests = now.value("turns"), now.value("requests", agent="metered", model="chat_model")
            return turns == CHATS + 1 and requests == REQUESTS and now.value("steps") >= 0

        try:
            wait_until(counted, 90, "the turns to be counted")
            yield lambda: Scrape(cluster)
        finally:
            # Other tests use the cluster after this one.
            cluster.cancel(job, 60)
    server.stop()


def test_what_a_job_reports_is_the_list(scrape: Callable[[], Scrape]) -> None:
    listed = {of.prometheus for of in METRICS}
    wait_until(lambda: scrape().own_names() >= listed, 30, f"all of {sorted(listed - scrape().own_names())}")
    assert scrape().own_names() == listed


def test_the_dashboard_and_the_alerts_ask_for_what_there_is(scrape: Callable[[], Scrape]) -> None:
    asked = {name for expression in (*dashboard_expressions(), *alert_expressions()) for name in names_in(expression)}
    assert len(asked) > 20
    # The JobManager has the time of a checkpoint when the first one is complete.
    wait_until(lambda: asked <= scrape().names(), 60, f"{sorted(asked - scrape().names())} to be reported")


def test_figures_are_right_over_all_workers(scrape: Callable[[], Scrape]) -> None:
    def settled() -> bool:
        # Turns that have ended are in the next report of their worker.
        return sum(s.value for s in scrape().samples if s.name.endswith("operator_turnLatency_count")) == CHATS + 1

    wait_until(settled, 30, "the last report")
    now = scrape()
    main, helper = {"agent": "metered", "model": "chat_model"}, {"agent": "helper", "model": "chat_model"}
    assert now.value("turns") == CHATS + 1
    assert now.value("failures") == 1
    assert now.value("inFlight") == 1
    assert now.value("pending") == 0
    assert now.value("requests", **main) == REQUESTS
    assert now.value("requests", **helper) == CHATS
    assert now.value("inputTokens", **main) == REQUESTS * 10
    assert now.value("outputTokens", **helper) == CHATS
    assert now.value("costMicroUsd", **main) == REQUESTS * 20
    assert now.value("costMicroUsd", agent="metered", label="team", value="(none)") == REQUESTS * 20
    assert now.value("requests", agent="helper", label="team", value="(none)") == CHATS
    assert now.values("usedCapacity").count(1 / 1000) == 1, "one turn is in flight"
    assert now.value("requestFailures", **main) == now.value("retries", **main) == 0
    for tool in ("load_skill", "load_skill_resource", "execute_shell_command", "price", "ask_helper"):
        assert now.value("toolCalls", tool=tool) == CHATS * (2 if tool == "load_skill" else 1), tool
    assert now.value("toolFailures", tool="load_skill") == CHATS
    assert now.value("toolFailures", tool="price") == 0
    assert now.value("toolCalls", tool="invented") == -1, "a name that a model invented has no label"
    assert now.value("toolFailures", tool="unknown") == CHATS
    assert now.value("skillLoads", skill="greet") == CHATS
    assert now.value("skillReads", skill="greet") == CHATS
    assert now.value("skillErrors", skill="greet") == 0
    assert now.value("commands", skill="greet") == CHATS
    assert now.value("commandFailures", skill="greet") == CHATS
    # The first request of each turn was made before the skill was loaded.
    assert now.value("inputTokens", skill="greet") == (REQUESTS - CHATS) * 10
    assert now.value("stepRuns", step="note") == CHATS
    assert now.value("mcpRequests", server="far") == CHATS
    assert now.value("mcpFailures", server="far") == 0
    assert set(now.values("mcpServers", worker="0")) == {1}
    assert set(now.values("mcpServersDown", worker="0")) == {0}
    assert now.value("resumedTurns") == 0
    assert set(now.values("skills", worker="1")) == {2}, "those of the agent, and of the one that it calls"
    assert set(now.values("isolationLevel", worker="0")) == set(now.values("isolationLevel", worker="1"))
    assert min(now.values("memory", worker="0")) > 10_000_000


def test_top_shows_them_over_all_task_managers(scrape: Callable[[], Scrape], cluster: StandaloneCluster) -> None:
    def shown() -> dict[str, Any] | None:
        words = [sys.executable, "-m", "flink_skills.cli", "top", cluster.address, "--once", "--format", "json"]
        done = subprocess.run(words, capture_output=True, text=True, timeout=120, check=False)
        assert done.returncode == 0, done.stderr
        (agent,) = json.loads(done.stdout)["agents"]
        # The rates are of the time between two reports of Flink, in which turns may have ended.
        rates = [agent.pop(f"{name}_per_second") for name in ("turns", "failures")]
        is_last = sum(model["requests"] for model in agent["models"]) == REQUESTS + CHATS
        return agent if is_last and rates == [0, 0] else None

    assert scrape().value("turns") == CHATS + 1
    agent = wait_until(shown, 60, "the last report")
    helper, main = agent.pop("models")
    assert agent == {
        **{"agent": "metered", "in_flight": 1, "pending": 0, "waiting": 0, "oldest_wait": 0, "worker_restarts": 0},
        **{
            "turns": CHATS + 1,
            "failures": 1,
            "tokens": REQUESTS * 15 + CHATS * 4,
            "cost": (REQUESTS * 20 + CHATS * 5) / 1e6,
        },
    }
    assert (helper["agent"], helper["model"], helper["requests"]) == ("helper", "chat_model", CHATS)
    assert (main["agent"], main["input_tokens"], main["cost"]) == ("metered", REQUESTS * 10, REQUESTS * 20 / 1e6)


def test_an_agent_begins_the_vertex_that_its_name_identifies(scrape: Callable[[], Scrape]) -> None:
    # The autoscaler of the Kubernetes operator excludes vertices by this ID.
    of_agent = [one.labels for one in scrape().samples if one.labels.get("operator_name") == AGENT]
    assert {labels["task_id"] for labels in of_agent} == {vertex_id("agent-metered")}


def test_custom_metrics_have_their_labels_and_add_up_over_all_workers(scrape: Callable[[], Scrape]) -> None:
    def settled() -> bool:
        return sum(of.value for of in scrape().custom("agent_user_tenant_amount_count")) == CHATS

    wait_until(settled, 30, "the last report")
    now = scrape()
    assert {of.labels["agent"] for of in now.custom("agent_user_refunds")} == {"metered"}
    assert sum(of.value for of in now.custom("agent_user_refunds")) == CHATS * 2
    amounts = now.custom("agent_user_tenant_amount")
    assert {of.labels["tenant"] for of in amounts} == {"acme"}, "the custom key of Flink's configuration"
    assert {of.value for of in amounts} == {2.5}, "the custom key of the code"
    articles = now.custom("worker_agent_user_articles")
    assert {of.value for of in articles} == {len("pen")}
    assert {of.labels["worker"] for of in articles} <= {"0", "1"}
    assert {of.labels["agent"] for of in articles} == {"metered"}


def test_the_log_says_what_was_opened_and_whose_turn_a_line_is_of(
    scrape: Callable[[], Scrape], cluster: StandaloneCluster
) -> None:
    lines = [line for number in cluster.task_managers() for line in cluster.log(number).splitlines()]
    assert any("agent metered is open: 1 skill from 1 source" in line for line in lines)
    assert any("; sources: path /" in line and line.endswith("/skills; skills: greet") for line in lines)
    key = key_hash('"fail"')
    (failed,) = [line for line in lines if "turn 1 failed: ValueError: as asked" in line]
    assert " ERROR " in failed
    assert failed.endswith(f"[agent=metered key={key} turn=1]")
    audited = [line for line in lines if '"action": "activate", "skill": "greet"' in line]
    assert len(audited) == CHATS
    assert all(
        re.search(r" \[agent=metered key=\w{12} turn=1 step=chat#0/t0\.0 skill=greet\]$", line) for line in audited
    )
