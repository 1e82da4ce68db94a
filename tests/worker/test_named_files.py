"""A worker that is killed after it has fetched a file that its event names."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from flink_skills import Agent
from flink_skills.agents import decode
from flink_skills.manager import SkillScope
from tests.kit.skills import write_skill
from tests.sources.web import ALLOWED, Page, Web
from tests.worker.bridge import Bridge

BYTES = b"a,b\n1,2\n"


class DiesOnce(Agent):
    """Kills its worker in the first attempt, after the step of the file."""

    model = "offline:m"

    async def on_event(self, event: Any, ctx: Any) -> Any:
        await ctx.step("begun", lambda: 1)
        if not Path(event["mark"]).exists():
            Path(event["mark"]).touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return "done"


@pytest.fixture
def web() -> Iterator[Web]:
    server = Web()
    server.pages["/in/a.csv"] = Page(BYTES)
    yield server
    server.close()


@pytest.mark.parametrize(
    ("later", "status", "said"), [(BYTES, 0, "done"), (b"other", 1, "the file changed after the turn started")]
)
def test_a_killed_worker_goes_on_with_the_same_bytes_or_fails(
    tmp_path: Path, web: Web, later: bytes, status: int, said: str
) -> None:
    write_skill(tmp_path / "skills" / "greet")
    options: dict[str, Any] = {
        **ALLOWED,
        "skills.files.allowed": f"{web.url}/in/",
        "skills.store.dir": str(tmp_path / "store"),
        "skills.shell.backend": "hygiene",
        "skills.shell.min-isolation": "HYGIENE",
    }
    scope = SkillScope(level="job", paths=(str(tmp_path / "skills"),))
    event = {"mark": str(tmp_path / "mark"), "files": [{"uri": f"{web.url}/in/a.csv?sig=pl4nted-query"}]}

    def bridge(name: str) -> Bridge:
        (tmp_path / name).mkdir()
        made = Bridge(tmp_path / name)
        made.open(DiesOnce, scopes=[scope], **options)
        return made

    steps: list[bytes] = []
    first = bridge("first")
    try:
        first.turn(1, event)
        while True:
            _, body = first.receive()  # nothing but steps
            length = int.from_bytes(body[13:17], "big")
            steps.append(body[17 : 17 + length])
    except EOFError:
        assert [decode(step)["id"] for step in steps][:1] == ["files#1"]
    finally:
        first.stop()

    web.pages["/in/a.csv"] = Page(later)
    second = bridge("second")  # whose scratch folder is another one, as on another machine
    try:
        second.turn(1, event, journal=steps, crashes=1)
        end = second.end()
        assert (end["status"], said in json.dumps(end["outputs"])) == (status, True), end
        assert "pl4nted-query" not in second.stderr() + end["message"]
        assert web.count("GET") == 2
    finally:
        second.stop()
