"""A run in real sandboxes, whose commands may be another user's than the worker's."""

from __future__ import annotations

from pathlib import Path

import pytest

from flink_skills.artifacts import ArtifactStore
from flink_skills.errors import IsolationError
from flink_skills.execution import WorkspaceManager, command_user
from flink_skills.manager import SkillView
from flink_skills.options import SkillConfig
from flink_skills.tools import ShellRunner, SkillSettings, load_effect
from tests.tools.conftest import Conversation


@pytest.mark.row("F3", "F5", "F7", "F9", "F14", "F24")
@pytest.mark.parametrize("backend", ["hygiene", "landlock", "bwrap"])
async def test_all_that_a_run_has(view: SkillView, shared_folder: Path, tmp_path: Path, backend: str) -> None:
    granted = tmp_path / "granted.txt"
    granted.write_text("granted ")
    granted.chmod(0o600)
    config = SkillConfig(
        {
            "skills.shell.backend": backend,
            "skills.shell.min-isolation": "HYGIENE",
            "skills.artifacts.dir": (tmp_path / "artifacts").as_uri(),
            "skills.run.host-inputs": str(tmp_path),
        }
    )
    workspaces = WorkspaceManager(shared_folder / "w", user=command_user(config))
    try:
        shell = await ShellRunner.start(config, workspaces)
    except IsolationError as error:
        pytest.skip(f"this machine has no such sandbox: {error}")
    try:
        settings = SkillSettings(tools=("skill_run",))
        talk = Conversation(view, shell, settings=settings, config=config, artifacts=ArtifactStore.open(config))
        talk.skill_state.apply(load_effect("billing", "1"))
        first = await talk.call("skill_run", skill="billing", command="printf 'made ' > out/made.txt; chmod 400 out/*")
        assert first.value["exit_code"] == 0, first.content
        result = await talk.call(
            "skill_run",
            skill="billing",
            command='"$EDITOR" "$OUTPUT_DIR/r.txt" && cat inputs/*.txt inputs/sums/* >> "$OUTPUT_DIR/r.txt"',
            editor_text="typed ",
            env={"OUTPUT_DIR": "out/new/folder"},
            inputs=[
                {"from": f"host://{granted}"},
                {"from": "workspace://out/made.txt", "mode": "link", "to": "inputs/linked.txt"},
                {"from": "workspace://out/made.txt", "to": "inputs/made-copy.txt"},
                {"from": "skill://billing/scripts/sum.sh", "to": "inputs/sums/"},
            ],
            output_files=["$OUTPUT_DIR/**"],
            save_as_artifacts=True,
        )
        assert result.value["exit_code"] == 0, result.content
        (entry,) = result.value["output_files"]
        assert entry["content"] == "typed granted made made echo 42\n"
        assert [saved["name"] for saved in result.value["artifact_files"]] == ["out/new/folder/r.txt"]
        assert "warnings" not in result.value
        assert talk.workspace is not None and not list(talk.workspace.runs_dir.iterdir())
    finally:
        await shell.close()
        workspaces.close()
