"""What a source needs to be let in reaches the workers and shows up nowhere."""

from __future__ import annotations

import base64
import json
import logging
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from pyflink.common import Types
from pyflink.java_gateway import get_gateway

from flink_skills import AgentsExecutionEnvironment, SkillOptions
from tests.flink.agents import Guarded
from tests.flink.running import environments, failure_of
from tests.flink.skill_files import pack, write_skill
from tests.kit.flink_rest import wait_until
from tests.kit.ports import free_port
from tests.sources.web import Page, Web

pytestmark = pytest.mark.flink

PASSWORD, TOKEN, HEADER = "pl4nted-password", "pl4nted-token", "pl4nted-header"
SECRETS = (PASSWORD, TOKEN, HEADER, base64.b64encode(f"me:{PASSWORD}".encode()).decode())


def refuses(request: Any) -> tuple[int, str] | None:
    """Refuse requests without the user, the query and the header. The refusal has what the client sent."""
    user, key = request.headers.get("Authorization"), request.headers.get("X-Key")
    expected = (f"Basic {base64.b64encode(f'me:{PASSWORD}'.encode()).decode()}", {"sig": [TOKEN]}, HEADER)
    if (user, parse_qs(urlsplit(request.path).query), key) == expected:
        return None
    return 403, f"no: {request.path} {user} {key}"


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[tuple[int, list[str]]]:
    """The port of a server with a zip of skills that not everybody gets, and the methods of admitted requests."""
    admitted: list[str] = []

    def admits(request: Any) -> tuple[int, str] | None:
        refusal = refuses(request)
        if refusal is None:
            admitted.append(request.command)
        return refusal

    web = Web(refuses=admits)
    web.pages["/skills.zip"] = Page(
        pack(tmp_path / "skills.zip", [write_skill(tmp_path / "made", "greet")]).read_bytes()
    )
    yield web.port, admitted
    web.close()


@pytest.fixture
def java_log() -> Iterator[Callable[[], str]]:
    """What this test makes the JVM of the mini cluster log, workers included."""
    path = Path(str(get_gateway().jvm.java.lang.System.getProperty("log.file")))
    begin = path.stat().st_size

    def said() -> str:
        with path.open("rb") as file:
            file.seek(begin)
            return file.read().decode("utf-8", "replace")

    yield said


def environment(tmp_path: Path, port: int, **options: str) -> tuple[Any, AgentsExecutionEnvironment]:
    env, agents_env = environments(
        {
            "skills.source.allow-http": "true",
            "skills.source.allow-private": "true",
            "skills.store.dir": str(tmp_path / "store"),
            **options,
        }
    )
    agents_env.add_skills_from_urls([f"http://me:{PASSWORD}@127.0.0.1:{port}/skills.zip?sig={TOKEN}"])
    headers = {"http": {"headers": {"X-Key": HEADER}}}
    agents_env.get_config().set(SkillOptions.SOURCE_OPTIONS, json.dumps(headers))
    return env, agents_env


def check(place: str, text: str) -> None:
    for secret in SECRETS:
        assert secret not in text, f"{place} holds {secret}"


def rest_of(address: str, path: str) -> Any:
    with urllib.request.urlopen(f"{address}{path}", timeout=20) as answer:
        text = answer.read().decode()
    check(path, text)
    return json.loads(text) if text else {}


def test_a_guarded_source_works_and_its_secrets_are_seen_nowhere(
    tmp_path: Path,
    guarded: tuple[int, list[str]],
    java_log: Callable[[], str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    port, admitted = guarded
    caplog.set_level(logging.DEBUG)
    # py4j logs every call that a client makes into its own JVM.
    logging.getLogger("py4j").setLevel(logging.WARNING)
    rest_port = free_port()
    env, agents_env = environment(tmp_path, port, **{"rest.port": str(rest_port)})
    gate = tmp_path / "gate"
    stream = env.from_collection([str(gate)], Types.STRING())
    output = agents_env.from_datastream(stream, lambda event: event).apply(Guarded(TOKEN)).to_datastream()
    output.print()
    plan = agents_env.get_execution_plan()
    check("the execution plan", plan)
    assert f"http://127.0.0.1:{port}/skills.zip" in plan
    graph = env._j_stream_execution_environment.getStreamGraph(False)
    check("the job graph", graph.getStreamingPlanAsJSON())
    for node in graph.getStreamNodes().toArray():
        check("an operator", f"{node.getOperatorName()} {node.getOperatorDescription()} {node}")
    check("the settings of the job", env._j_stream_execution_environment.getConfiguration().toString())

    job = env.execute_async("guarded")
    address = f"http://127.0.0.1:{rest_port}"
    job_id = str(job.get_job_id())
    wait_until((tmp_path / "gate.reached").exists, 60, "the turn")
    vertices = rest_of(address, f"/jobs/{job_id}")["vertices"]
    for path in ("", "/plan", "/config", "/exceptions", "/accumulators", "/jobmanager/config", "/checkpoints/config"):
        rest_of(address, f"/jobs/{job_id}{path}")
    for vertex in vertices:
        for path in ("", "/metrics", "/taskmanagers", "/accumulators"):
            rest_of(address, f"/jobs/{job_id}/vertices/{vertex['id']}{path}")
    rest_of(address, "/jobmanager/config")
    names = rest_of(address, f"/jobs/{job_id}/vertices/{vertices[-1]['id']}/metrics")
    assert names is not None
    gate.write_text("")
    job.get_job_execution_result().result()

    assert "GET" in admitted
    assert "1 skill from 1 source" in java_log()
    check("the log of the JVM", java_log())
    check("the log of Python", caplog.text)


def test_who_is_not_let_in_reads_no_secret_either(
    tmp_path: Path, guarded: tuple[int, list[str]], java_log: Callable[[], str]
) -> None:
    port, admitted = guarded
    env, agents_env = environment(tmp_path, port, **{"skills.validate-on-submit": "never"})
    agents_env.get_config().set(SkillOptions.SOURCE_OPTIONS, json.dumps({"http": {"headers": {"X-Key": HEADER + "!"}}}))
    stream = env.from_collection(["x"], Types.STRING())
    output = agents_env.from_datastream(stream, lambda event: event).apply(Guarded(TOKEN)).to_datastream()
    failure = failure_of(output)
    assert f"http://127.0.0.1:{port}/skills.zip" in failure
    check("the failure", failure)
    check("the log of the JVM", java_log())
    assert admitted == []
