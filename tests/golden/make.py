"""Make the golden savepoints of this release: python -m tests.golden.make [FOLDER]

Each release adds them for each Flink, see ``CONTRIBUTING.md``. A savepoint is a folder ``<release>-flink-<version>``
below the name of its job, with ``_metadata``, which has the complete state, and ``manifest.json``. Those of earlier
releases do not change.
"""

from __future__ import annotations

import json
import shutil
import socketserver
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import flink_skills
from flink_skills.agents import STATE_VERSION
from flink_skills.testing import Reply, ScriptedModelServer
from tests.golden import waiting
from tests.golden.agents import HELD, OLD_EVENTS, Keeper, answer, said
from tests.golden.restore import write_skills
from tests.kit.flink_rest import wait_until

DEADLINE = 120
HERE = Path(__file__).resolve().parent
# So long are early answers kept: the savepoint is restored years later.
KEEP = "36500 d"


class Sender(socketserver.ThreadingTCPServer):
    """A server that sends records to a source of the job.

    The source has no state in the savepoint. The server sends the records when :attr:`begins` is set, and no more.
    """

    daemon_threads = True
    block_on_close = False

    def __init__(self, records: Sequence[Any]) -> None:
        super().__init__(("127.0.0.1", 0), _Records)
        self.records = records
        self.begins = threading.Event()

    def __enter__(self) -> Sender:
        threading.Thread(target=self.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()
        self.server_close()

    def stream(self, env: Any, names: Sequence[str]) -> Any:
        """Return the records as a stream of rows with strings."""
        from pyflink.common import Row, Types
        from pyflink.datastream import DataStream

        lines = DataStream(env._j_stream_execution_environment.socketTextStream("127.0.0.1", self.server_address[1]))
        row = Types.ROW_NAMED(list(names), [Types.STRING()] * len(names))
        return lines.map(lambda line: Row(*json.loads(line)), output_type=row)


class _Records(socketserver.StreamRequestHandler):
    server: Sender

    def handle(self) -> None:
        self.server.begins.wait(DEADLINE)
        for record in self.server.records:
            self.wfile.write((json.dumps(record) + "\n").encode())
        self.wfile.flush()
        # Until the job closes the connection at its end.
        self.rfile.read()


class Notes:
    """A sink that appends a line for each record to a file."""

    def __init__(self, file: Path, *fields: str) -> None:
        self.file = str(file)
        self.fields = fields

    def __call__(self, record: Any) -> str:
        line = " ".join(str(record[field]) for field in self.fields)
        with Path(self.file).open("a", encoding="utf-8") as file:
            file.write(line + "\n")
        return line


def make_sessions(target: Path) -> Path:
    """Run the job with conversations until each event is in its place, and save it below ``target``."""
    from pyflink.common import Types

    from flink_skills import AgentsExecutionEnvironment

    asked: Counter[str] = Counter()

    def reply(body: Mapping[str, Any]) -> Reply:
        last = said(body)[-1]
        asked[last] += 1
        if last == HELD and asked[last] == 2:
            return Reply(hang=True)
        return answer(body)

    with (
        tempfile.TemporaryDirectory() as folder,
        Sender(OLD_EVENTS) as events,
        ScriptedModelServer(reply) as server,
    ):
        events.begins.set()
        env = golden_environment()
        agents = AgentsExecutionEnvironment.get_execution_environment(env)
        keeper = Keeper(server.url, write_skills(Path(folder)))
        ended = Path(folder, "ended")
        ended.touch()
        output = agents.from_datastream(events.stream(env, ["key", "chat", "text"]), "key").apply(keeper)
        # The state of a key changes with the output of its turn.
        output.to_datastream().map(Notes(ended, "key", "turn"), Types.STRING()).print()
        job = env.execute_async("golden")
        wait_until(lambda: asked[HELD] == 2, DEADLINE, "the turn that is held")
        wait_until(lambda: len(ended.read_text().splitlines()) == 3, DEADLINE, "three turns to end")
        return _save(job, Path(folder), target / "savepoints")


def make_waits(target: Path) -> Path:
    """Run the job with turns that wait until each has its questions, and save it below ``target``."""
    from pyflink.common import Types

    from flink_skills import AgentsExecutionEnvironment

    with (
        tempfile.TemporaryDirectory() as folder,
        Sender(waiting.OLD_EVENTS) as events,
        Sender([(key, wait, json.dumps(answer)) for key, wait, answer in waiting.OLD_ANSWERS]) as answers,
    ):
        env = golden_environment({"skills.waits.keep": KEEP})
        agents = AgentsExecutionEnvironment.get_execution_environment(env)
        steps, waits = Path(folder, "steps"), Path(folder, "waits")
        steps.touch()
        waits.touch()
        output = agents.from_datastream(events.stream(env, ["key", "kind", "text"]), "key").apply(waiting.Asker(steps))
        output.answers(answers.stream(env, ["key", "wait_id", "answer"]), "key")
        output.to_wait_stream().map(Notes(waits, "key", "name", "status"), Types.STRING()).print()
        output.to_datastream().print()
        job = env.execute_async("golden waits")
        events.begins.set()
        # Both votes of "two" are open; the sleep has no question.
        asked = len(waiting.OPEN) + 1
        wait_until(lambda: len(waits.read_text().splitlines()) == asked, DEADLINE, f"{asked} questions")
        wait_until(lambda: len(steps.read_text().splitlines()) == asked, DEADLINE, "the step before the sleep")
        answers.begins.set()
        wait_until(lambda: "two finance answered" in waits.read_text(), DEADLINE, "the first of two answers")
        return _save(job, Path(folder), target / "waits")


def golden_environment(options: Mapping[str, str] | None = None) -> Any:
    from tests.flink.running import flink_environment

    return flink_environment(
        {
            # The complete state is in one file.
            "execution.checkpointing.file-merging.enabled": "false",
            "state.storage.fs.memory-threshold": "1mb",
            "execution.checkpointing.data-inline-threshold": "1mb",
            **(options or {}),
        }
    )


def stopped(job: Any, folder: Path) -> Path:
    """Take a savepoint below ``folder``, cancel the job, and return the directory of the savepoint."""
    from tests.flink.running import take_savepoint

    savepoint = str(take_savepoint(job, folder / "taken").result())
    job.cancel().result()
    return Path(savepoint.removeprefix("file:"))


def _save(job: Any, folder: Path, target: Path) -> Path:
    """Take a savepoint, cancel the job, and return the directory in which the savepoint is kept."""
    import pyflink.version

    found = stopped(job, folder)
    assert [file.name for file in found.iterdir()] == ["_metadata"], list(found.iterdir())
    flink = pyflink.version.__version__
    kept = target / f"{flink_skills.__version__}-flink-{flink}"
    kept.mkdir(parents=True)
    shutil.copyfile(found / "_metadata", kept / "_metadata")
    manifest = {"release": flink_skills.__version__, "state_version": STATE_VERSION, "flink": flink}
    (kept / "manifest.json").write_text(json.dumps(manifest, indent=2) + "\n", encoding="utf-8")
    return kept


if __name__ == "__main__":
    for make in (make_sessions, make_waits):
        print(make(Path(sys.argv[1]) if len(sys.argv) > 1 else HERE))
