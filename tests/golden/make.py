"""Make the golden savepoint of this release: python -m tests.golden.make [FOLDER]

Each release adds one for each Flink, see ``CONTRIBUTING.md``. The savepoint is a folder ``<release>-flink-<version>``
with ``_metadata``, which holds all of the state, and ``manifest.json``. Those of earlier releases are never made anew.
"""

from __future__ import annotations

import json
import shutil
import socketserver
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import flink_skills
from flink_skills.agents import STATE_VERSION
from flink_skills.testing import Reply, ScriptedModelServer
from flink_skills.testing.flink_rest import wait_until
from tests.golden.agents import HELD, OLD_EVENTS, Keeper, answer, said
from tests.golden.restore import write_skills

DEADLINE = 120
HERE = Path(__file__).resolve().parent


class Events(socketserver.StreamRequestHandler):
    """Sends the events to the job's source, which keeps nothing in the savepoint, and then nothing more."""

    def handle(self) -> None:
        for event in OLD_EVENTS:
            self.wfile.write((json.dumps(event) + "\n").encode())
        self.wfile.flush()
        # Until the job closes the connection, when it stops.
        self.rfile.read()


class Sender(socketserver.ThreadingTCPServer):
    """Where the source connects to."""

    daemon_threads = True
    block_on_close = False


class Writes:
    """Says which turns have ended: with what leaves them, their key's state is changed."""

    def __init__(self, file: str) -> None:
        self.file = file

    def __call__(self, record: Any) -> str:
        with Path(self.file).open("a", encoding="utf-8") as file:
            file.write(f"{record['key']} {record['turn']}\n")
        return str(record["answer"])


def make(target: Path) -> Path:
    """Run the job until each event is where it has to be, stop it with a savepoint, and keep that below ``target``."""
    import pyflink.version
    from pyflink.common import Row, Types
    from pyflink.datastream import DataStream

    from flink_skills import AgentsExecutionEnvironment
    from tests.flink.running import flink_environment, take_savepoint

    asked: Counter[str] = Counter()

    def reply(body: Mapping[str, Any]) -> Reply:
        last = said(body)[-1]
        asked[last] += 1
        if last == HELD and asked[last] == 2:
            return Reply(hang=True)
        return answer(body)

    options = {
        # All of the state in one file.
        "execution.checkpointing.file-merging.enabled": "false",
        "state.storage.fs.memory-threshold": "1mb",
        "execution.checkpointing.data-inline-threshold": "1mb",
    }
    with (
        tempfile.TemporaryDirectory() as folder,
        Sender(("127.0.0.1", 0), Events) as events,
        ScriptedModelServer(reply) as server,
    ):
        threading.Thread(target=events.serve_forever, daemon=True).start()
        env = flink_environment(options)
        j_env = env._j_stream_execution_environment
        lines = DataStream(j_env.socketTextStream("127.0.0.1", events.server_address[1]))
        row = Types.ROW_NAMED(["key", "chat", "text"], [Types.STRING()] * 3)
        rows = lines.map(lambda line: Row(*json.loads(line)), output_type=row)
        agents = AgentsExecutionEnvironment.get_execution_environment(env)
        keeper = Keeper(server.url, write_skills(Path(folder)))
        ended = Path(folder, "ended")
        ended.touch()
        output = agents.from_datastream(rows, "key").apply(keeper).to_datastream()
        output.map(Writes(str(ended)), Types.STRING()).print()
        job = env.execute_async("golden")
        wait_until(lambda: asked[HELD] == 2, DEADLINE, "the turn that is held")
        wait_until(lambda: len(ended.read_text().splitlines()) == 3, DEADLINE, "three turns to end")
        savepoint = str(take_savepoint(job, Path(folder, "savepoints")).result())
        job.cancel().result()
        found = Path(savepoint.removeprefix("file:"))
        assert [file.name for file in found.iterdir()] == ["_metadata"], list(found.iterdir())
        flink = pyflink.version.__version__
        kept = target / f"{flink_skills.__version__}-flink-{flink}"
        kept.mkdir(parents=True)
        shutil.copyfile(found / "_metadata", kept / "_metadata")
        events.shutdown()
    manifest = {"release": flink_skills.__version__, "state_version": STATE_VERSION, "flink": flink}
    (kept / "manifest.json").write_text(json.dumps(manifest, indent=2) + "\n", encoding="utf-8")
    return kept


if __name__ == "__main__":
    print(make(Path(sys.argv[1]) if len(sys.argv) > 1 else HERE / "savepoints"))
