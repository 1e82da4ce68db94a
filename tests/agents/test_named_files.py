"""Files that an event names by address: fetched, staged, and the same bytes after a failover."""

from __future__ import annotations

import asyncio
import hashlib
import json
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from flink_skills import Agent, Record, SkillConfig
from flink_skills.agents import TurnOutcome, TurnStatus, compile_plan, decode, event_files, run_list
from flink_skills.artifacts import ArtifactStore, owner_of
from flink_skills.errors import ConfigError
from flink_skills.testing import call, calls
from tests.kit.agents import Bench, OpenAgent
from tests.kit.models import Script
from tests.kit.waiting import MARGIN, until
from tests.sources.object_stores.buckets import Endpoint
from tests.sources.web import ALLOWED, Page, Web

pytestmark = pytest.mark.row("F33")

BYTES = b"a,b\n1,2\n"
DIGEST = hashlib.sha256(BYTES).hexdigest()


class Reads(Agent):
    model = "scripted:m"
    instructions = "You read."

    async def on_event(self, event: Any, ctx: Any) -> Any:
        return await ctx.chat("go")


class Names(Reads):
    async def on_event(self, event: Any, ctx: Any) -> Any:
        return "done"


@pytest.fixture
def web() -> Iterator[Web]:
    server = Web()
    server.pages["/in/a.csv"] = Page(BYTES)
    yield server
    server.close()


@pytest.fixture
def bucket() -> Iterator[Endpoint]:
    """An S3 bucket that keeps versions."""
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        host, port = server.get_host_and_port()
        endpoint = Endpoint(f"http://{host}:{port}", "us-east-1", "any-key", "any-secret")
        endpoint.make_bucket("inbox")
        endpoint.client().put_bucket_versioning(Bucket="inbox", VersioningConfiguration={"Status": "Enabled"})
        yield endpoint
    finally:
        server.stop()


@pytest.fixture(autouse=True)
def no_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("flink_skills.sources.remote_system._FIRST_WAIT", 0.001)


def options(web: Web, **more: Any) -> dict[str, Any]:
    return {"skills.files.allowed": f"{web.url}/in/", **ALLOWED, **more}


def staged(bench: Bench, name: str = "a.csv") -> bytes:
    assert bench.runtime.workspaces is not None
    return bench.runtime.workspaces.for_key('"k"').read(f"work/inputs/{name}", 1 << 20)


def step_of(bench: Bench) -> Any:
    [entry] = [entry for entry in map(decode, bench.journal) if entry["id"] == "files#1"]
    return entry["r"]


def error_of(outcome: TurnOutcome) -> str:
    assert outcome.status == TurnStatus.FAILED, outcome
    return str(outcome.outputs[0][1]["error"])


def lost(workspace: Path) -> bool:
    """Remove a workspace by hand. Whether it is gone: the turn before may still note when it was used."""
    shutil.rmtree(workspace, ignore_errors=True)
    return not workspace.exists()


def event(web: Web, path: str = "/in/a.csv", **more: Any) -> dict[str, Any]:
    return {"files": [{"uri": f"{web.url}{path}", **more}]}


async def test_a_file_is_staged_and_its_digest_is_a_step(
    open_agent: OpenAgent, script: Script, skill_folder: Path, web: Web, caplog: pytest.LogCaptureFixture
) -> None:
    load, show = call("skill_load", skill="count"), "cat $WORK_DIR/inputs/a.csv $WORK_DIR/inputs/event.json"
    script([calls(load, call("skill_run", skill="count", command=show)), "done"])
    bench = await open_agent(Reads, skill_folder, **options(web))
    outcome = await bench.turn(event(web, "/in/a.csv?sig=SECRET", sha256=DIGEST.upper()))
    assert outcome.status == TurnStatus.DONE, outcome
    shown = step_of(bench)
    address = f"{web.url}/in/a.csv"
    assert shown == [{"uri": address, "size": 8, "sha256": DIGEST, "mime_type": "text/csv", "version": ""}]
    assert staged(bench) == BYTES
    told = json.loads(staged(bench, "event.json"))["files"]
    expected = {"name": "work/inputs/a.csv", "mime_type": "text/csv", "uri": address, "size_bytes": 8}
    assert told == [expected]
    assert "SECRET" not in caplog.text + str(bench.journal)


@pytest.mark.parametrize(
    ("page", "entry", "more", "problem"),
    [
        (None, {}, {}, "does not exist"),
        (Page(status=403), {}, {}, "access is refused"),
        (Page(BYTES), {"sha256": "0" * 64}, {}, "and the event asks for 000"),
        (Page(BYTES), {}, {"skills.limits.download": 4}, "exceeds the limit of 4 bytes"),
        (Page(BYTES), {}, {"skills.limits.total": 4}, "raise skills.limits.total"),
        (Page(BYTES, hang=True), {}, {"skills.source.timeout": 0.3}, "raise skills.source.timeout"),
        (Page(status=302, headers={"Location": "/secret"}), {}, {}, "under no prefix of skills.files.allowed"),
    ],
)
async def test_a_file_that_cannot_be_had_fails_its_turn_alone(
    open_agent: OpenAgent, skill_folder: Path, web: Web, page: Page | None, entry: Any, more: Any, problem: str
) -> None:
    web.pages["/secret"] = Page(b"secret")
    web.pages["/in/b.csv"] = page or Page(status=404)
    bench = await open_agent(Names, skill_folder, **options(web, **more))
    bad, good = await asyncio.gather(
        bench.turn(event(web, "/in/b.csv?sig=SECRET", **entry), key='"bad"'), bench.turn({"text": "x"})
    )
    assert problem in error_of(bad)
    assert f"event file {web.url}/in/b.csv" in error_of(bad)
    assert "SECRET" not in error_of(bad)
    assert good.status == TurnStatus.DONE
    assert ("GET", "/secret") not in web.requests


async def test_a_server_that_fails_for_a_moment_is_asked_again(
    open_agent: OpenAgent, skill_folder: Path, web: Web
) -> None:
    web.pages["/in/a.csv"] = lambda number: Page(BYTES) if number > 1 else Page(status=503)
    bench = await open_agent(Names, skill_folder, **options(web))
    outcome = await bench.turn(event(web))
    assert outcome.status == TurnStatus.DONE, outcome
    assert staged(bench) == BYTES


async def test_a_replay_works_on_the_same_bytes_or_fails(open_agent: OpenAgent, skill_folder: Path, web: Web) -> None:
    bench = await open_agent(Names, skill_folder, **options(web))
    await bench.turn(event(web))
    journal, asked = bench.journal, web.count("GET")
    again = await bench.turn(event(web), journal=journal, crashes=1)
    assert again.status == TurnStatus.DONE
    assert web.count("GET") == asked, "the workspace has the file"

    assert bench.runtime.workspaces is not None
    root = bench.runtime.workspaces.for_key('"k"').root
    (root / "work/inputs/a.csv").write_bytes(b"changed ")  # by a command
    assert (await bench.turn(event(web), journal=journal, crashes=1)).status == TurnStatus.DONE
    assert staged(bench) == BYTES
    assert web.count("GET") == asked + 1

    await until(lambda: lost(root))
    web.pages["/in/a.csv"] = Page(b"other,bytes\n")
    outcome = await bench.turn(event(web), journal=journal, crashes=1)
    assert "the file changed after the turn started" in error_of(outcome)
    web.pages["/in/a.csv"] = Page(BYTES)
    assert (await bench.turn(event(web), journal=journal, crashes=1)).status == TurnStatus.DONE
    assert staged(bench) == BYTES


async def test_a_slow_file_holds_up_no_other_turn_and_leaves_nothing(
    open_agent: OpenAgent, skill_folder: Path, web: Web, tmp_path: Path
) -> None:
    gate = threading.Event()
    web.pages["/in/a.csv"] = Page(BYTES, gate=gate)
    bench = await open_agent(Names, skill_folder, **options(web))
    slow = [asyncio.create_task(bench.turn(event(web), key=f'"slow{number}"')) for number in range(12)]
    try:
        other = await asyncio.wait_for(bench.turn({"text": "x"}), MARGIN)
        assert other.status == TurnStatus.DONE
    finally:
        gate.set()
    assert {outcome.status for outcome in await asyncio.gather(*slow)} == {TurnStatus.DONE}
    await until(lambda: not list((tmp_path / "scratch").glob("event-files-*")))


@pytest.mark.parametrize(
    ("more", "problem"),
    [
        ({"skills.files.allowed": ""}, "is under no prefix of skills.files.allowed"),
        ({"skills.source.allow-private": False}, "set skills.source.allow-private: true"),
    ],
)
async def test_a_refused_address_is_an_entry_with_an_error_and_the_other_files_are_staged(
    open_agent: OpenAgent,
    script: Script,
    skill_folder: Path,
    web: Web,
    caplog: pytest.LogCaptureFixture,
    more: Any,
    problem: str,
) -> None:
    script([calls(call("execute_shell_command", command="cat $WORK_DIR/inputs/event.json")), "done"])
    bench = await open_agent(Reads, skill_folder, **options(web, **more))
    refused = {"uri": f"{web.url}/in/a.csv?sig=SECRET"}
    outcome = await bench.turn({"files": [refused, {"name": "b.txt", "text": "b"}]})
    assert outcome.status == TurnStatus.DONE, outcome
    first, second = json.loads(staged(bench, "event.json"))["files"]
    assert (first["uri"], second["name"]) == (f"{web.url}/in/a.csv", "work/inputs/b.txt")
    assert problem in first["error"]
    assert staged(bench, "b.txt") == b"b"
    assert problem in caplog.text
    assert "SECRET" not in caplog.text + str(first)
    assert not web.count("GET")


async def test_artifacts_of_the_key_need_no_option(
    open_agent: OpenAgent, script: Script, skill_folder: Path, tmp_path: Path
) -> None:
    kept = {"skills.artifacts.dir": str(tmp_path / "kept")}
    store = ArtifactStore.open(SkillConfig(kept))
    assert store is not None
    script([calls(call("execute_shell_command", command="cat $WORK_DIR/inputs/x.txt")), "done"])
    bench = await open_agent(Reads, skill_folder, **kept)
    store.save(owner_of(bench.runtime.plan.operator_name, '"k"'), "out/x.txt", b"kept")
    outcome = await bench.turn({"files": [{"uri": "artifact://out/x.txt"}]})
    assert outcome.status == TurnStatus.DONE, outcome
    assert staged(bench, "x.txt") == b"kept"


def test_rows_and_local_runs_name_files_too(script: Script, web: Web) -> None:
    """A row of a table has all columns, and None in those without a value."""
    row = Record(id=7, files=[Record(name=None, data=None, text=None, uri="s3://in/x/a%20b.csv", sha256=None)])
    [file] = event_files(row)
    assert (file.name, file.url, file.problem) == ("a_b.csv", "s3://in/x/a%20b.csv", "")
    plan = compile_plan(Names, config=SkillConfig())
    assert run_list(plan, [("k", event(web))]) == [("", "done")]
    assert not web.count("GET")


async def test_a_replay_reads_the_recorded_version_of_an_object(
    open_agent: OpenAgent, skill_folder: Path, bucket: Endpoint, caplog: pytest.LogCaptureFixture
) -> None:
    bucket.put("inbox", "in/a.csv", BYTES)
    given = {"s3": bucket.options()}
    allowed = {"skills.files.allowed": "s3://inbox/in/", "skills.source.options": json.dumps(given)}
    bench = await open_agent(Names, skill_folder, **allowed)
    named = {"files": [{"uri": "s3://inbox/in/a.csv"}]}
    assert (await bench.turn(named)).status == TurnStatus.DONE
    assert step_of(bench)[0]["version"]
    bucket.put("inbox", "in/a.csv", b"newer")
    assert bench.runtime.workspaces is not None
    root = bench.runtime.workspaces.for_key('"k"').root
    await until(lambda: lost(root))
    outcome = await bench.turn(named, journal=bench.journal, crashes=1)
    assert outcome.status == TurnStatus.DONE, outcome
    assert staged(bench) == BYTES
    assert (await bench.turn({"files": [{"uri": "s3://inbox-2/in/a.csv"}]})).status == TurnStatus.DONE
    assert "add s3://inbox-2/ or" in caplog.text


def test_a_prefix_that_cannot_be_used_is_reported_when_the_agent_is_compiled() -> None:
    with pytest.raises(ConfigError, match="ftp://host/: the scheme is not allowed in events"):
        compile_plan(Reads, config=SkillConfig({"skills.files.allowed": ["ftp://host/"]}))
