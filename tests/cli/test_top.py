"""``flink-skills top``: the values of agents from Flink's REST interface, their rates, and errors of the connection."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from tests.cli.conftest import FlinkSkills
from tests.cli.test_chat_terminal import CTRL_C, Terminal
from tests.kit.exchanges import serving

DESK, OTHER = "a" * 32, "b" * 32
OPERATOR = {"turns": 40, "failures": 3, "inFlight": 5, "pending": 2, "waiting": 1, "oldestWait": 7_200_000}
MODEL = {"requests": 80, "requestFailures": 1, "inputTokens": 9000, "outputTokens": 1000, "costMicroUsd": 500_000}
METRICS = {
    **{f"agent_desk.{name}": value for name, value in OPERATOR.items()},
    "agent_desk.workerRestarts": 2,
    **{f"agent_desk.agent.desk.model.main.{name}": value for name, value in MODEL.items()},
    # A sub-agent with a model that has no price.
    "agent_desk.agent.clerk.model.small.inputTokens": 10,
    # Neither of an operator nor of a model: another operator, a skill, a worker, a custom metric.
    "Sink__answers.turns": 1000,
    "agent_desk.skill.refunds.costMicroUsd": 7,
    "agent_desk.worker.0.memory": 1e8,
    "agent_desk.agent.desk.user.turns": 9,
    "agent_desk.numRecordsIn": 5,
}


class FakeFlink:
    """The answers of a JobManager. Each reading of the uptime continues with the next one of ``uptimes``."""

    def __init__(self) -> None:
        self.jobs = [{"jid": DESK, "name": "desk", "state": "RUNNING"}]
        self.vertices = {DESK: ["Source: lines[1] -> (agent desk, Map)", "Sink: answers"]}
        self.metrics: dict[str, float] = dict(METRICS)
        self.step = {"agent_desk.turns": 20.0}
        self.uptime = 100_000
        self.lines: list[str] = []
        self.headers: list[dict[str, str]] = []
        self.url = ""

    def answer(self, target: str) -> Any:
        path, query = urlsplit(target).path, parse_qs(urlsplit(target).query)
        if path == "/jobs/overview":
            return {"jobs": self.jobs}
        job, _, rest = path.removeprefix("/jobs/").partition("/")
        if not rest:
            (found,) = [each for each in self.jobs if each["jid"] == job]
            vertices = [{"id": str(i), "name": name} for i, name in enumerate(self.vertices[job])]
            return {**found, "vertices": vertices}
        if rest == "metrics":
            return [{"id": "uptime", "value": str(self.uptime)}]
        assert rest == "vertices/0/subtasks/metrics", rest
        if "get" not in query:
            return [{"id": name} for name in self.metrics]
        assert query["agg"] == ["sum,max"]
        values = [
            {"id": name, "sum": self.metrics[name] * 2, "max": self.metrics[name]}
            for name in query["get"][0].split(",")
        ]
        # Flink renews the values: 10 s later, the two subtasks together have ended 40 turns more.
        self.uptime += 10_000
        for name, increase in self.step.items():
            self.metrics[name] += increase
        return values


@contextmanager
def running() -> Iterator[FakeFlink]:
    flink = FakeFlink()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            flink.lines.append(self.path)
            flink.headers.append(dict(self.headers))
            # As Netty does in Flink.
            too_long = len(self.requestline) > 4096
            body = b"" if too_long else json.dumps(flink.answer(self.path)).encode()
            self.send_response(414 if too_long else 200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *arguments: Any) -> None:
            pass

    with serving(Handler) as flink.url:
        yield flink


@pytest.fixture
def flink() -> Iterator[FakeFlink]:
    with running() as found:
        yield found


@pytest.mark.row("K21")
def test_values_are_sums_over_subtasks_and_rates_those_of_flinks_own_time(
    flink_skills: FlinkSkills, flink: FakeFlink
) -> None:
    said = flink_skills("top", flink.url, "--once", "--format", "json")
    assert said.code == 0, said.stderr
    (view,) = said.records
    assert view["job"] == {"id": DESK, "name": "desk", "state": "RUNNING"}
    (agent,) = view["agents"]
    (clerk, main) = agent.pop("models")
    assert agent == {
        "agent": "desk",
        "in_flight": 10,
        "pending": 4,
        "waiting": 2,
        # The maximum: a wait is not older because there are two subtasks.
        "oldest_wait": 7200.0,
        "turns": 120,
        "failures": 6,
        "turns_per_second": 4.0,
        "failures_per_second": 0.0,
        "worker_restarts": 4,
        "tokens": 20_020,
        "cost": 1.0,
    }
    assert main == {
        "agent": "desk",
        "model": "main",
        "requests": 160,
        "request_failures": 2,
        "input_tokens": 18_000,
        "output_tokens": 2_000,
        "tokens_per_second": 0.0,
        "cost": 1.0,
        "cost_per_hour": 0.0,
    }
    assert (clerk["agent"], clerk["model"], clerk["input_tokens"], clerk["cost"]) == ("clerk", "small", 20, None)


def test_the_text_has_a_table_of_agents_and_one_of_models(flink_skills: FlinkSkills, flink: FakeFlink) -> None:
    said = flink_skills("top", flink.url, "--once")
    title, _, head, desk, _, models, clerk, main, _ = said.stdout.splitlines()
    assert title.startswith("desk  RUNNING  1 agent operator  ")
    assert title.endswith(flink.url)
    assert head.split() == [
        *("AGENT", "IN", "FLIGHT", "PENDING", "WAITING", "OLDEST", "TURNS/S", "FAILED/S", "RESTARTS", "TURNS"),
        *("FAILED", "TOKENS", "COST"),
    ]
    assert desk.split() == ["desk", "10", "4", "2", "2.0", "h", "4.00", "0.00", "4", "120", "6", "20,020", "$1.0000"]
    assert models.startswith("MODEL OF AGENT")
    assert clerk.split() == ["small", "of", "desk:", "clerk", "0", "0", "0.00", "20", "0"]
    assert main.split()[:3] == ["main", "of", "desk"]


def test_on_a_terminal_a_view_replaces_the_previous_one(flink: FakeFlink, tmp_path: Path) -> None:
    with Terminal(flink.url, "--interval", "100ms", command="top", cwd=tmp_path, kind="xterm") as terminal:
        terminal.wait_for("TOKENS  ")
        first = terminal.wait_for("COST/H")
        assert "COST\r\n" in first, "120 columns are enough for the last column"
        later = terminal.wait_for("desk  RUNNING")
        assert later.count("\x1b[1A\x1b[2K") >= 6, "the lines of the previous view are erased"
        terminal.type(CTRL_C)
        assert terminal.end() == 130


def test_a_request_line_is_not_longer_than_flink_accepts(flink_skills: FlinkSkills, flink: FakeFlink) -> None:
    names = [f"agent_desk.agent.desk.model.model-{number:03}-{'x' * 40}.requests" for number in range(200)]
    flink.metrics = dict.fromkeys(names, 1.0)
    flink.step = {}
    said = flink_skills("top", flink.url, "--once", "--format", "json")
    assert said.code == 0, said.stderr
    assert len(said.records[0]["agents"][0]["models"]) == 200


def rates(flink_skills: FlinkSkills, flink: FakeFlink, *readings: tuple[int, float]) -> list[float | None]:
    """The turns per second of each view. A reading is the uptime in seconds and the number of turns."""
    answer, left = flink.answer, list(readings)

    def next_reading(target: str) -> Any:
        if target == f"/jobs/{DESK}" and not left:
            flink.jobs[0]["state"] = "FINISHED"
        elif left:
            flink.uptime, flink.metrics = left[0][0] * 1000, {"agent_desk.turns": left[0][1] / 2}
        found = answer(target)
        if "get=agent" in target and left:
            del left[0]
        return found

    flink.answer, flink.step = next_reading, {}  # type: ignore[method-assign]
    said = flink_skills("top", flink.url, "--interval", "1ms", "--format", "json")
    assert said.code == 0, said.stderr
    return [view["agents"][0]["turns_per_second"] for view in said.records[:-1]]


def test_rates_are_those_of_the_last_minute(flink_skills: FlinkSkills, flink: FakeFlink) -> None:
    # The second one of 20 s are values that Flink has not renewed.
    readings = [(10, 0.0), (20, 100.0), (20, 100.0), (30, 100.0), (80, 170.0), (90, 270.0)]
    assert rates(flink_skills, flink, *readings) == pytest.approx([None, 10.0, 10.0, 5.0, 70 / 60, 170 / 60], abs=1e-6)


def test_counters_that_begin_again_have_no_rate_across_the_restart(flink_skills: FlinkSkills, flink: FakeFlink) -> None:
    job = [(100, 50.0), (110, 60.0), (5, 0.0), (15, 20.0)]
    tasks = [(25, 0.0), (35, 10.0)]
    assert rates(flink_skills, flink, *job, *tasks) == [None, 1.0, None, 2.0, None, 1.0]


def test_the_only_running_job_with_agents_is_found(flink_skills: FlinkSkills, flink: FakeFlink) -> None:
    flink.jobs += [
        {"jid": OTHER, "name": "plain", "state": "RUNNING"},
        {"jid": "c" * 32, "name": "desk", "state": "FINISHED"},
    ]
    flink.vertices[OTHER] = ["Source: my agent table[1]"]
    said = flink_skills("top", flink.url, "--once", "--format", "json")
    assert [view["job"]["id"] for view in said.records] == [DESK]
    # The running one of two with this name.
    said = flink_skills("top", flink.url, "--job", "desk", "--once", "--format", "json")
    assert [view["job"]["id"] for view in said.records] == [DESK]


def test_several_jobs_need_a_choice(flink_skills: FlinkSkills, flink: FakeFlink) -> None:
    flink.jobs.append({"jid": OTHER, "name": "clerks", "state": "RUNNING"})
    flink.vertices[OTHER] = ["agent clerk"]
    said = flink_skills("top", flink.url, "--once")
    assert said.code == 2
    assert f"2 running jobs have agents: desk ({DESK}), clerks ({OTHER}). Choose one with --job" in said.stderr
    said = flink_skills("top", flink.url, "--job", "aaaa", "--once", "--format", "json")
    assert [view["job"]["name"] for view in said.records] == ["desk"]
    said = flink_skills("top", flink.url, "--job", "dask", "--once")
    assert (said.code, "unknown job 'dask'" in said.stderr, "did you mean 'desk'?" in said.stderr) == (2, True, True)


@pytest.mark.parametrize(
    ("jobs", "message"),
    [
        ([], "no running job has agents (running: none). Start the job, or check the address."),
        ([{"jid": OTHER, "name": "plain", "state": "RUNNING"}], "no running job has agents (running: plain)."),
    ],
)
def test_no_job_with_agents_is_an_error(
    flink_skills: FlinkSkills, flink: FakeFlink, jobs: list[dict[str, str]], message: str
) -> None:
    flink.jobs, flink.vertices[OTHER] = jobs, ["Source: lines[1]"]
    said = flink_skills("top", flink.url)
    assert (said.code, said.stdout) == (2, "")
    assert message in said.stderr


def test_the_view_ends_with_the_job_and_keeps_the_last_values(flink_skills: FlinkSkills, flink: FakeFlink) -> None:
    answer = flink.answer

    def ended_after_the_second_view(target: str) -> Any:
        if "get=agent" in target and len(values) < 2:
            values.append(target)
        elif len(values) == 2:
            flink.jobs[0]["state"], flink.metrics = "FINISHED", {}
        return answer(target)

    values: list[str] = []
    flink.answer = ended_after_the_second_view  # type: ignore[method-assign]
    said = flink_skills("top", flink.url, "--interval", "10ms", "--format", "json")
    assert said.code == 0, said.stderr
    assert [(view["job"]["state"], len(view["agents"])) for view in said.records] == [
        ("RUNNING", 1),
        ("RUNNING", 1),
        ("FINISHED", 1),
    ]


def test_a_job_manager_that_fails_later_is_a_problem_of_the_view(flink_skills: FlinkSkills, flink: FakeFlink) -> None:
    answer = flink.answer
    state = {"requests": 0}

    def fails_for_a_view(target: str) -> Any:
        state["requests"] += "get=agent" in target
        if target == f"/jobs/{DESK}" and state["requests"] == 1:
            state["requests"] += 1
            return {"errors": ["Service temporarily unavailable"]}
        if state["requests"] == 3:
            flink.jobs[0]["state"] = "CANCELED"
        return answer(target)

    flink.answer = fails_for_a_view  # type: ignore[method-assign]
    said = flink_skills("top", flink.url, "--interval", "10ms", "--format", "json")
    assert said.code == 0, said.stderr
    problems = [view["problem"] for view in said.records]
    assert problems[0] is None and "not that of Flink's REST interface" in problems[1] and problems[-1] is None
    assert [len(view["agents"]) for view in said.records] == [1] * len(problems)


def test_headers_have_secrets_by_reference(
    flink_skills: FlinkSkills, flink: FakeFlink, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FLINK_TOKEN", "s3cret")
    header = "Authorization: Bearer ${env:FLINK_TOKEN}"
    said = flink_skills("top", flink.url, "--header", header, "--once")
    assert said.code == 0, said.stderr
    assert {headers.get("Authorization") for headers in flink.headers} == {"Bearer s3cret"}
    for words, message in (
        ("Authorization s3cret", "--header cannot be used: expected 'NAME: VALUE'"),
        ("Authorization: ${env:NOWHERE}", "the environment variable 'NOWHERE'"),
        ("Authorization: a\x01s3cret", "--header Authorization cannot be used: its value has control characters"),
    ):
        said = flink_skills("top", flink.url, "--header", words, "--once")
        assert (said.code, message in said.stderr, "s3cret" in said.stderr) == (2, True, False), said.stderr


class Answering(BaseHTTPRequestHandler):
    status, headers_of_answer = 200, dict[str, str]()
    body = b"<html>"

    def do_GET(self) -> None:
        self.send_response(self.status)
        for name, value in self.headers_of_answer.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(self.body)))
        self.end_headers()
        self.wfile.write(self.body)

    def log_message(self, format: str, *arguments: Any) -> None:
        pass


@pytest.mark.parametrize(
    ("status", "headers", "message"),
    [
        (200, {}, "the answer is not that of Flink's REST interface. Check host and path."),
        (404, {}, "the server answered with status 404. Check scheme, host and path."),
        (401, {}, "the server rejected the request with status 401. Pass credentials, as in --header 'Authorization:"),
        (
            301,
            {"Location": "https://flink.example/jobs?token=s3cret"},
            "the server redirects to https://flink.example/jobs. Pass",
        ),
    ],
)
def test_other_answers_are_errors_with_a_fix(
    flink_skills: FlinkSkills, status: int, headers: dict[str, str], message: str
) -> None:
    handler = type("Handler", (Answering,), {"status": status, "headers_of_answer": headers})
    with serving(handler) as url:
        said = flink_skills("top", url)
        assert (said.code, said.stdout) == (2, "")
        assert f"{url}: {message}" in said.stderr
        assert "s3cret" not in said.stderr


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("localhost:8081", "JOB_MANAGER_URL cannot be used: the address does not start with http:// or https://"),
        ("http://me:s3cret@localhost:8081", "the address contains a user or a password"),
        ("http://nowhere.invalid:8081", "http://nowhere.invalid:8081: the host is unknown. Check the name."),
    ],
)
def test_addresses_that_cannot_be_used(flink_skills: FlinkSkills, address: str, message: str) -> None:
    said = flink_skills("top", address)
    assert (said.code, message in said.stderr, "s3cret" in said.stderr) == (2, True, False), said.stderr


def test_https_against_http_and_no_server_at_all(flink_skills: FlinkSkills, flink: FakeFlink) -> None:
    said = flink_skills("top", flink.url.replace("http://", "https://"))
    assert "the server does not answer with TLS. If its interface uses HTTP, write http://." in said.stderr
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
    said = flink_skills("top", f"http://127.0.0.1:{port}")
    assert "no server listens on this port. Check it, or forward" in said.stderr


def test_http_against_tls(flink_skills: FlinkSkills) -> None:
    """A server with TLS answers a request in plain text with an alert, and closes."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def alert() -> None:
            connection, _ = listening.accept()
            with connection:
                connection.recv(4096)
                connection.sendall(bytes.fromhex("15030100020246"))

        threading.Thread(target=alert, daemon=True).start()
        said = flink_skills("top", f"http://127.0.0.1:{listening.getsockname()[1]}")
    assert "the server does not answer in HTTP. If its interface uses TLS (security.ssl.rest.enabled)" in said.stderr
