"""Skills that change under a running job: gauges show it, new turns use it, a session is told once, also after a
restart of the job."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyflink.common import Duration, WatermarkStrategy
from pyflink.datastream.connectors.file_system import FileSource, StreamFormat

from flink_skills.models import UserMessage, named_in_notice
from flink_skills.testing import Call, Reply, ScriptedModelServer
from tests.flink.agents import Scripted
from tests.flink.running import environments
from tests.flink.skill_files import write_skill
from tests.kit.flink_rest import FlinkRest, wait_until
from tests.kit.ports import free_port

pytestmark = pytest.mark.flink


class Conversation:
    """One job with one key: events are put in, and what its model was asked is looked at."""

    def __init__(self, folder: Path, serve: Callable[..., ScriptedModelServer]) -> None:
        self._folder = folder
        self._events = folder / "events"
        self._events.mkdir()
        self.skills = folder / "skills"
        write_skill(self.skills, "greet", body="Say hello.")
        write_skill(self.skills, "other")
        self._count = 0
        self._server = serve(self._reply)
        port = free_port()
        self._rest = FlinkRest(f"http://127.0.0.1:{port}")
        env, agents_env = environments(
            {
                "rest.port": str(port),
                "metrics.fetcher.update-interval": "100",
                "web.refresh-interval": "100",
                "execution.checkpointing.interval": "200ms",
                "restart-strategy.type": "fixed-delay",
                "restart-strategy.fixed-delay.attempts": "3",
                "restart-strategy.fixed-delay.delay": "100ms",
                "skills.refresh.interval": "200 ms",
                "skills.store.dir": str(folder / "store"),
            }
        )
        agents_env.add_skills_from_paths([str(self.skills)])
        source = FileSource.for_record_stream_format(StreamFormat.text_line_format(), str(self._events))
        lines = env.from_source(
            source.monitor_continuously(Duration.of_millis(50)).build(), WatermarkStrategy.no_watermarks(), "lines"
        )
        marker = str(folder / "crashed")

        def crash_once(line: str) -> str:
            if line == "crash" and not Path(marker).exists():
                Path(marker).touch()
                raise RuntimeError("crash")
            return line

        events = lines.map(crash_once)
        agent = Scripted(self._server.url, session="key")
        agents_env.from_datastream(events, lambda event: "only").apply(agent).to_datastream().print()
        self._client = env.execute_async("conversation")
        self._job = str(self._client.get_job_id())
        self._rest.wait(self._job, "RUNNING", 120)

    @staticmethod
    def _reply(body: dict[str, Any]) -> Reply:
        last = body["messages"][-1]
        if last["role"] == "user" and str(last["content"]).startswith("load"):
            return Reply(tool_calls=(Call("load_skill", {"name": "greet"}),))
        return Reply(text="answered")

    def say(self, text: str) -> list[str]:
        """Put an event in; the user messages of the request with which its turn ended."""
        asked = len(self._server.requests)
        self._count += 1
        hidden = self._events / f".{self._count}"
        hidden.write_text(f"{text} {self._count}\n" if text != "crash" else "crash\n")
        hidden.rename(self._events / str(self._count))
        end = "crash" if text == "crash" else f"{text} {self._count}"

        def ended() -> list[str] | None:
            for body in self._server.requests[asked:]:
                users = [str(m["content"]) for m in body["messages"] if m["role"] == "user"]
                # A request joins messages of one role that follow each other.
                if users[-1].split("\n\n")[-1] == end and (text != "load" or body["messages"][-1]["role"] == "tool"):
                    return users
            return None

        users = wait_until(ended, 60, f"the turn of {end!r}")
        # The turn's session is in a checkpoint before anything else happens.
        now = time.time()
        wait_until(lambda: any(c.triggered > now for c in self._rest.checkpoints(self._job)), 60, "a checkpoint")
        return users

    def gauge(self, name: str) -> float | None:
        """A figure of the only worker."""
        for vertex in self._rest.rest(f"/jobs/{self._job}")["vertices"]:
            path = f"/jobs/{self._job}/vertices/{vertex['id']}/metrics"
            for metric in self._rest.rest(path):
                if metric["id"].endswith(f".worker.0.{name}"):
                    (value,) = self._rest.rest(f"{path}?get={metric['id']}")
                    return float(value["value"])
        return None

    def await_gauge(self, name: str, value: float) -> None:
        wait_until(lambda: self.gauge(name) == value, 60, f"the gauge {name} to be {value}")

    def restarts(self) -> int:
        return self._rest.restarts(self._job)

    def rewrite(self, name: str, body: str) -> None:
        new = self._folder / "new"
        new.write_text(f"---\nname: {name}\ndescription: The skill {name}.\n---\n{body}\n")
        new.rename(self.skills / name / "SKILL.md")

    def end(self) -> None:
        self._client.cancel().result()


@pytest.fixture
def conversation(tmp_path: Path, serve: Callable[..., ScriptedModelServer]) -> Iterator[Conversation]:
    made = Conversation(tmp_path, serve)
    yield made
    made.end()


def notices(users: list[str]) -> list[set[str]]:
    parts = [text.rpartition("\n\n")[0] or text for text in users]
    return [named for text in parts if (named := named_in_notice(UserMessage(text)))]


def test_a_session_is_told_of_a_changed_skill_once_also_over_a_restart(conversation: Conversation) -> None:
    talk = conversation
    talk.await_gauge("skills", 2)
    assert talk.gauge("generation") == 1
    assert talk.gauge("diagnosticErrors") == 0
    assert talk.gauge("refreshFailures") == 0
    assert notices(talk.say("load")) == []
    assert notices(talk.say("hello")) == []

    talk.rewrite("greet", "Say good evening.")
    talk.await_gauge("generation", 2)
    told = talk.say("hello")
    assert notices(told) == [{"greet"}]
    assert notices(told[-1:]) == [{"greet"}], "the note precedes the event"
    assert notices(talk.say("hello")) == [{"greet"}], "it is part of the conversation, and not said again"
    assert notices(talk.say("load")) == [{"greet"}]
    talk.rewrite("other", "Nobody has loaded this one.")
    talk.await_gauge("generation", 3)
    assert notices(talk.say("hello")) == [{"greet"}]

    # Changed while the job is down: the new worker never had the old content.
    talk.rewrite("greet", "Say good night.")
    assert notices(talk.say("crash")) in ([{"greet"}], [{"greet"}] * 2)
    assert talk.restarts() == 1
    assert notices(talk.say("hello")) == [{"greet"}] * 2
    assert notices(talk.say("hello")) == [{"greet"}] * 2
    assert talk.gauge("refreshes") is not None
