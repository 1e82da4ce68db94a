"""The rehearsal of docs/backup.md: a job continues from copies in another place, after the first place is gone."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path
from typing import Any

import pytest
from pyflink.datastream import DataStream

from flink_skills import AgentContext, AgentsExecutionEnvironment
from tests.flink.skill_files import write_skill
from tests.flink.stoppable import DEADLINE, Gated, Place, Stoppable
from tests.flink.test_waits_stop import answered, give
from tests.kit.flink_rest import wait_until

pytestmark = pytest.mark.flink


class Reporter(Gated):
    """Saves a file of each event, asks a person, and answers with the files of all events of the key."""

    async def on_event(self, event: Any, ctx: AgentContext) -> Any:
        await ctx.call_tool("skill_load", skill="notes")
        await ctx.call_tool(
            "skill_run",
            skill="notes",
            command=f"echo report-{event['id']} > $OUTPUT_DIR/{event['id']}.txt",
            output_files=[f"out/{event['id']}.txt"],
            save_as_artifacts=True,
        )
        await ctx.step("first", self.note, "first", event["id"], ctx)
        try:
            answer = await ctx.wait("vote")
        except asyncio.CancelledError:
            self.note("waits", event["id"], ctx)
            raise
        shown = await ctx.call_tool(
            "skill_run", skill="notes", command="cat work/inputs/*.txt", inputs=sorted(ctx.artifacts.values())
        )
        ctx.state["seen"] = [*ctx.state.get("seen", []), event["id"]]
        return f"{answer} seen {' '.join(ctx.state['seen'])} files {' '.join(shown['stdout'].split())}"


class Region:
    """A folder with everything that a job stores outside Flink."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self.folder, self.place, self.answers = folder, Place(folder), folder / "answers"
        self.artifacts, self.skills = folder / "artifacts", folder / "skills"

    def start(self, savepoint: Path | None = None) -> Stoppable:
        build = answered(Reporter(self.place), self.answers)

        def with_skills(agents: AgentsExecutionEnvironment, keyed: Any) -> DataStream:
            agents.add_skills_from_paths([str(self.skills)])
            return build(agents, keyed)

        options = {
            "skills.artifacts.dir": str(self.artifacts),
            "skills.tools": "full",
            "skills.shell.min-isolation": "HYGIENE",
            "skills.turn.on-error": "fail",
        }
        return Stoppable(
            self.place, with_skills, options=options, savepoint=None if savepoint is None else str(savepoint)
        )

    def wait_for(self, line: str) -> None:
        wait_until(lambda: line in self.place.left(), DEADLINE, f"{line!r} in place of {self.place.left()}")


@pytest.mark.both_versions
def test_a_job_continues_from_copies_of_its_savepoint_artifacts_and_skills(tmp_path: Path) -> None:
    first = Region(tmp_path / "first")
    write_skill(first.skills, "notes", description="Takes notes.", body="Write it down.")
    first.place.send("a1")
    job = first.start()
    try:
        first.place.wait_for("waits", "a1")
        give(first.answers, "a")
        first.wait_for("yes seen a1 files report-a1")
        first.place.send("a2")
        first.place.wait_for("waits", "a2")
        savepoint = Path(job.stop().removeprefix("file:"))
    finally:
        job.close()

    second = Region(tmp_path / "second")
    copies = {savepoint: second.folder / "savepoint", first.artifacts: second.artifacts, first.skills: second.skills}
    for source, target in copies.items():
        shutil.copytree(source, target)
    shutil.rmtree(first.folder)

    job = second.start(second.folder / "savepoint")
    try:
        give(second.answers, "a")
        second.wait_for("yes seen a1 a2 files report-a1 report-a2")
        # The finished steps of the waiting turn were not repeated.
        assert [step for step, id_, _ in second.place.done() if id_ == "a2"] == []
        second.place.send("a3")
        second.place.wait_for("waits", "a3")
    finally:
        job.close()
