"""Spans are exported to a collector, to none, and from two processes into one trace.

Examines the internals of telemetry.tracing.nonblocking_export on purpose.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import logging
import os
import socket
import struct
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

from flink_skills import Agent, ConfigError, SkillConfig, agent_tool
from flink_skills.agents import compile_plan, run_list
from flink_skills.manager import SkillScope
from flink_skills.telemetry import Telemetry, TelemetrySettings, TurnScope, observe, open_telemetry
from flink_skills.telemetry.span_export import NonBlockingExporter
from flink_skills.testing import call, calls
from tests.agents.conftest import script, skill_folder  # noqa: F401 - fixtures
from tests.kit.models import Script
from tests.kit.waiting import MARGIN, wait_until
from tests.telemetry.collector import Collector
from tests.worker.bridge import Bridge

OTLP = TelemetrySettings("desk", trace_exporter="otlp")
TURN = "4bf92f3577b34da6a3ce929d0e0e4736"


@pytest.fixture(autouse=True)
def plain_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith("OTEL_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "50")


def run_turn(telemetry: Telemetry, turn_id: str = TURN) -> None:
    with telemetry.turn(TurnScope("desk", '"k"', 1, turn_id)), observe("step", "look"):
        pass


async def test_spans_reach_a_collector(monkeypatch: pytest.MonkeyPatch) -> None:
    with Collector() as collector:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url)
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Bearer%20pl4nted")
        monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment.name=test")
        telemetry = open_telemetry(OTLP)
        run_turn(telemetry)
        await telemetry.close()
        assert sorted(span.name for span in collector.spans) == ["invoke_agent desk", "step look"]
        assert collector.headers[0]["authorization"] == "Bearer pl4nted"
        resource = collector.spans[0].resource
        assert resource["service.name"] == "flink-skills"
        assert resource["flink_skills.agent"] == "desk"
        assert resource["deployment.environment.name"] == "test"
        assert (resource["host.name"], resource["process.pid"]) == (socket.gethostname(), os.getpid())

        monkeypatch.setenv("OTEL_SERVICE_NAME", "triage")
        telemetry = open_telemetry(OTLP)
        run_turn(telemetry)
        await telemetry.close()
        assert collector.spans[-1].resource["service.name"] == "triage"


async def test_spans_as_lines_of_the_log(capfd: pytest.CaptureFixture[str]) -> None:
    telemetry = open_telemetry(TelemetrySettings("desk", trace_exporter="console"))
    run_turn(telemetry)
    await telemetry.close()
    lines = capfd.readouterr().err.splitlines()
    assert len(lines) == 2 and all(f'"trace_id": "0x{TURN}"' in line for line in lines)


@contextlib.contextmanager
def closed_port() -> Iterator[int]:
    """A port where nobody listens."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield taken.getsockname()[1]


async def test_no_collector_costs_one_warning(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with closed_port() as port:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://me:pl4nted@127.0.0.1:{port}/x?token=pl4nted")
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "1")
        telemetry = open_telemetry(OTLP)
        begun = time.monotonic()
        for number in range(1, 101):
            run_turn(telemetry, f"{number:032x}")
        assert time.monotonic() - begun < MARGIN
        await telemetry.close()
    warnings = [record.getMessage() for record in caplog.records]
    assert len(warnings) <= 2 and {record.name for record in caplog.records} == {"flink_skills.trace"}, warnings
    assert warnings[0].startswith(f"the collector at 127.0.0.1:{port} did not accept ")
    assert "pl4nted" not in caplog.text


class Refuses(SpanExporter):
    """Takes nothing until it is told to."""

    result = SpanExportResult.FAILURE

    def export(self, spans: Any) -> SpanExportResult:
        logging.getLogger("opentelemetry.exporter.otlp.proto.http.trace_exporter").error("no")
        return self.result


def test_one_warning_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    now = 0.0
    inner = Refuses()
    exporter = NonBlockingExporter(inner, "the collector", clock=lambda: now)
    spans: Any = [None, None]
    for _ in range(10):
        exporter.export(spans)
        now += 10
    assert [record.getMessage() for record in caplog.records] == [
        "the collector did not accept 2 spans, which are lost. Turns continue. Reason: no",
        "the collector did not accept 12 spans, which are lost. Turns continue. Reason: no",
    ]
    # What others log of theirs goes its way.
    logging.getLogger("opentelemetry.exporter.otlp.proto.http.trace_exporter").error("theirs")
    assert caplog.records[-1].getMessage() == "theirs"


async def test_a_refusal_is_told_without_the_headers(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    with Collector(401, "Unauthorized pl4nted") as collector:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url)
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Bearer%20pl4nted,x-scope=tenant%201")
        telemetry = open_telemetry(OTLP)
        run_turn(telemetry)
        await asyncio.to_thread(wait_until, lambda: "401" in caplog.text)
        collector.status = 200
        run_turn(telemetry)
        await asyncio.to_thread(wait_until, lambda: "accepts spans again" in caplog.text)
        await telemetry.close()
    assert "Unauthorized ***" in caplog.text and "pl4nted" not in caplog.text


async def test_a_collector_that_hangs_does_not_hold_the_worker(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{silent.getsockname()[1]}")
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "100")
        telemetry = open_telemetry(OTLP)
        run_turn(telemetry)
        begun = time.monotonic()
        await telemetry.close()
        assert time.monotonic() - begun < 2 + MARGIN
    assert "the remaining spans are lost: their export did not finish in 2 s" in caplog.text


@pytest.mark.parametrize(
    ("variables", "message"),
    [
        ({"OTEL_EXPORTER_OTLP_HEADERS": "pl4nted"}, "OTEL_EXPORTER_OTLP_HEADERS is not valid. Set it to NAME=VALUE"),
        (
            {"OTEL_EXPORTER_OTLP_ENDPOINT": "pl4nted:4318"},
            "OTEL_EXPORTER_OTLP_ENDPOINT cannot be used: the address does not start with http:// or https://",
        ),
        ({"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, "pip install opentelemetry-exporter-otlp-proto-grpc"),
        ({"OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": "http/json"}, "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL=http/json"),
    ],
)
def test_variables_that_cannot_be_used(
    variables: dict[str, str], message: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(ConfigError) as raised:
        open_telemetry(OTLP)
    assert message in str(raised.value)
    assert "pl4nted" not in str(raised.value) + caplog.text


def test_without_the_extra_the_error_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(sys.modules):
        if name.partition(".")[0] == "opentelemetry" or name.startswith(
            ("flink_skills.telemetry.span_", "flink_skills.telemetry.tracing")
        ):
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    with pytest.raises(ConfigError, match=r"pip install 'flink-skills\[otel\]'"):
        open_telemetry(OTLP)


def test_nothing_of_opentelemetry_is_imported_without_tracing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "flink_skills.telemetry.span_export", None)
    # Not reloaded: other tests compare the objects of the module.
    monkeypatch.delitem(sys.modules, "flink_skills.telemetry.job_observers", raising=False)
    assert not importlib.import_module("flink_skills.telemetry.job_observers").open_telemetry(TelemetrySettings("desk"))


class Helper(Agent):
    """Helps."""

    name = "helper"

    async def on_event(self, event: Any, ctx: Any) -> Any:
        await ctx.step("inner-first", str.upper, "a")
        await ctx.step("inner-second", wait_for_file, os.environ["GO_ON"])
        return "helped"


class Falls(Agent):
    name = "falls"

    @agent_tool
    def helper(self) -> Agent:
        return Helper()

    async def on_event(self, event: Any, ctx: Any) -> Any:
        await ctx.step("first", str.upper, "a")
        helped = await ctx.call_tool("helper", request="please")
        await ctx.step("last", str.upper, "a")
        return helped


def wait_for_file(name: str) -> None:
    wait_until(Path(name).exists)


def test_a_crashed_worker_and_its_successor_make_one_trace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    go_on = tmp_path / "go-on"
    monkeypatch.setenv("GO_ON", str(go_on))
    with Collector() as collector, contextlib.ExitStack() as stack:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url)

        def worker(name: str) -> Bridge:
            (tmp_path / name).mkdir()
            made = Bridge(tmp_path / name)
            stack.callback(made.stop)
            made.open(Falls, **{"skills.trace.exporter": "otlp"})
            return made

        first = worker("first")
        first.turn(1, "event", number=3)
        journal = [entry_of(first.receive()[1]) for _ in range(2)]
        collector.wait_for(lambda spans: "step inner-first" in [span.name for span in spans])
        first.process.kill()
        first.process.wait()

        go_on.touch()
        second = worker("second")
        second.turn(1, "event", number=3, journal=journal, crashes=1)
        assert second.end()["status"] == 0
        collector.wait_for(lambda spans: "invoke_agent falls" in [span.name for span in spans])

    assert len({span.trace for span in collector.spans}) == 1
    by_id = {span.span: span for span in collector.spans}
    assert len(by_id) == len(collector.spans)
    tree = sorted(
        (span.name, by_id[span.parent].name if span.parent else "", span.attributes["flink_skills.turn.attempt"])
        for span in collector.spans
    )
    assert tree == [
        ("execute_tool helper", "invoke_agent falls", 2),
        ("invoke_agent falls", "", 2),
        ("invoke_agent helper", "execute_tool helper", 2),
        ("step first", "invoke_agent falls", 1),
        ("step inner-first", "invoke_agent helper", 1),
        ("step inner-second", "invoke_agent helper", 2),
        ("step last", "invoke_agent falls", 2),
    ]
    processes = {span.resource["process.pid"] for span in collector.spans}
    assert len(processes) == 2


def entry_of(step: bytes) -> bytes:
    """The journal entry of a STEP frame."""
    (length,) = struct.unpack_from(">I", step, 13)
    return step[17 : 17 + length]


class Loud(Agent):
    name = "loud"
    model = "scripted:m"


def test_a_list_has_spans_without_secrets(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    script: Script,  # noqa: F811
    skill_folder: Path,  # noqa: F811
) -> None:
    monkeypatch.setenv("TEAM_TOKEN", "pl4nted-token")
    echo = "echo $TOKEN; echo $TOKEN | rev"
    script([calls(call("load_skill", name="shout")), calls(call("execute_shell_command", command=echo)), *SAID])
    options = {
        "skills.store.dir": str(tmp_path / "store"),
        "skills.env.shout.TOKEN": "${env:TEAM_TOKEN}",
        "skills.trace.exporter": "otlp",
        "skills.trace.content": "full",
    }
    scopes = [SkillScope(level="job", paths=(str(skill_folder),))]
    plan = compile_plan(Loud, job_scopes=scopes, config=SkillConfig(options))
    with Collector() as collector:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url)
        assert run_list(plan, [("k", "event")]) == [("", "It is pl4nted-token.")]
        [command] = [span for span in collector.spans if span.name == "command echo"]
        assert command.attributes["flink_skills.command.stdout"] == "[hidden]\nnekot-detn4lp\n"
        [root] = [span for span in collector.spans if not span.parent]
        assert "It is [hidden]." in root.attributes["gen_ai.output.messages"]
        assert "pl4nted" not in str(collector.spans)


# The model knows it from elsewhere; it leaves through the span nevertheless without it.
SAID = ["It is pl4nted-token."]
