"""Files and artifacts as the tools of a profile use them: what is noted, what is refused, what comes back."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from flink_skills.agents import event_files, stage_files
from flink_skills.artifacts import ArtifactStore, owner_of
from flink_skills.manager import SkillView
from flink_skills.options import SkillConfig
from flink_skills.tools import SkillSettings, load_effect
from tests.tools.conftest import Conversation, ShellWith, manager, shell_with, skills, view  # noqa: F401 - fixtures

OWNER = owner_of("agent", '"k"')


@pytest.fixture
async def talk(view: SkillView, shell_with: ShellWith, tmp_path: Path) -> Conversation:  # noqa: F811
    """A conversation with all tools for skills, in which ``billing`` is loaded."""
    config = SkillConfig({"skills.tools": "full", "skills.artifacts.dir": str(tmp_path / "artifacts")})
    talk = Conversation(
        view,
        await shell_with(),
        settings=SkillSettings.of(config),
        config=config,
        artifacts=ArtifactStore.open(config),
    )
    talk.context.owner = OWNER
    talk.skill_state.apply(load_effect("billing", "digest"))
    return talk


async def run(talk: Conversation, command: str, **more: Any) -> dict[str, Any]:
    result = await talk.call("skill_run", skill="billing", command=command, **more)
    assert not result.is_error, result.content
    return dict(json.loads(result.content))


def metadata(talk: Conversation) -> dict[str, Any]:
    assert talk.workspace is not None
    return dict(json.loads((talk.workspace.root / "metadata.json").read_text()))


@pytest.mark.row("H12", "F12", "F27", "D4")
async def test_a_workspace_knows_what_went_in_and_out(talk: Conversation) -> None:
    first = await run(talk, "echo 1 > out/a.txt", outputs={"globs": ["out/*.txt"], "save": True})
    [saved] = first["artifact_files"]
    await run(talk, "cat work/inputs/b.txt", inputs=[{"from": "artifact://out/a.txt", "to": "inputs/b.txt"}])
    noted = metadata(talk)
    assert {**noted["outputs"][0], "ts": ""} == {
        "globs": ["out/*.txt"],
        "saved_as": ["out/a.txt"],
        "versions": [saved["version"]],
        "limits_hit": [],
        "ts": "",
    }
    assert {**noted["inputs"][0], "ts": ""} == {
        "from": "artifact://out/a.txt",
        "to": "work/inputs/b.txt",
        "resolved": f"artifact://out/a.txt@{saved['version']}",
        "version": saved["version"],
        "mode": "copy",
        "ts": "",
    }
    assert noted["skills"]["billing"]["rel_path"] == "skills/billing"
    assert talk.skill_state.artifacts == {"out/a.txt": saved["version"]}


@pytest.mark.row("F11", "F22", "F31")
async def test_files_of_an_event(talk: Conversation) -> None:
    assert talk.workspace is not None
    event = {"files": [{"name": "$(id).csv", "data": b"1,2\n"}, {"data": "broken!"}]}
    talk.context.staged_inputs = stage_files(talk.workspace, event_files(event), None, OWNER, talk.skill_state)
    done = await run(talk, 'cat "$WORK_DIR"/inputs/_id_.csv')
    assert done["stdout"] == "1,2\n"
    assert done["staged_inputs"][0] == {
        "name": "work/inputs/_id_.csv",
        "original_name": "$(id).csv",
        "mime_type": "text/csv",
        "size_bytes": 4,
    }
    assert "no base64" in done["staged_inputs"][1]["error"]


@pytest.mark.row("F6", "F24")
async def test_what_a_command_leaves_to_fool_the_worker(talk: Conversation, tmp_path: Path) -> None:
    (tmp_path / "secret.txt").write_text("secret")
    done = await run(
        talk,
        f"ln -s {tmp_path}/secret.txt out/a.txt; mkfifo out/b.txt; ln -s {tmp_path} out/folder; echo mine > out/c.txt",
        output_files=["out/**/*.txt"],
    )
    assert [(file["name"], file["content"]) for file in done["output_files"]] == [("out/c.txt", "mine\n")]
    assert any("'out/a.txt' is a link" in warning for warning in done["warnings"])


@pytest.mark.row("K2", "F29")
async def test_an_artifact_is_saved_once(talk: Conversation) -> None:
    await run(talk, "echo hello > out/a.txt")
    results = [await talk.call("workspace_save_artifact", path="out/a.txt") for _ in range(2)]
    first, second = (json.loads(result.content) for result in results)
    assert first == second
    assert talk.services.artifacts is not None
    assert talk.services.artifacts.versions(OWNER, first["saved_as"]) == (first["version"],)
    again = await run(talk, "cat work/inputs/a.txt", inputs=[{"from": first["ref"]}])
    assert again["stdout"] == "hello\n"
    link = await talk.call("workspace_save_artifact", path="work/../../etc/passwd")
    assert link.is_error
