"""``workspace_save_artifact``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from flink_skills.artifacts import ArtifactStore
from flink_skills.tools import ToolResult
from tests.tools.conftest import Conversation
from tests.tools.runs.conftest import Talk


async def save(talk: Conversation, path: Any) -> ToolResult:
    result: ToolResult = await talk.call("workspace_save_artifact", path=path)
    return result


async def run(talk: Conversation, command: str) -> None:
    result = await talk.call("skill_run", skill="billing", command=command)
    assert result.value["exit_code"] == 0, result.content


@pytest.mark.row("K2")
async def test_a_file_is_kept(talk: Conversation) -> None:
    await run(talk, "mkdir out/r; printf 'a,b' > out/r/a.csv; printf w > $WORK_DIR/w; printf r > $RUN_DIR/r")
    result = await save(talk, "out/r/a.csv")
    assert not result.is_error
    assert json.loads(result.content) == result.value
    version = result.value.pop("version")
    assert result.value == {
        "path": "out/r/a.csv",
        "saved_as": "out/r/a.csv",
        "ref": f"artifact://out/r/a.csv@{version}",
        "mime_type": "text/csv",
        "size_bytes": 3,
    }
    store = talk.services.artifacts
    assert isinstance(store, ArtifactStore)
    assert store.load(talk.context.owner, "out/r/a.csv", version)[1] == b"a,b"
    assert talk.skill_state.artifacts == {"out/r/a.csv": version}
    assert (await save(talk, "$OUTPUT_DIR/r/a.csv")).value["version"] == version
    assert (await save(talk, "workspace://work/w")).value["saved_as"] == "work/w"
    assert talk.workspace is not None
    (of_run,) = talk.workspace.runs_dir.glob("*/r")
    assert (await save(talk, str(of_run))).value["path"] == str(of_run.relative_to(talk.workspace.root))


@pytest.mark.row("K2")
async def test_what_is_wrong_has_a_code(talk: Conversation, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("of the machine")
    await run(talk, f"ln -s {tmp_path}/secret out/link; ln -s {tmp_path} out/folder; mkdir out/d; mkfifo out/pipe")
    codes = {
        "": "INVALID_PARAMETER",
        "  ": "INVALID_PARAMETER",
        "out/*.csv": "INVALID_PARAMETER",
        "out/{a,b}": "INVALID_PARAMETER",
        "out/none": "FILE_NOT_FOUND",
        "/etc/passwd": "INVALID_PATH",
        "../x": "INVALID_PATH",
        "skills/billing/SKILL.md": "INVALID_PATH",
        "metadata.json": "INVALID_PATH",
        "$HOME/x": "INVALID_PATH",
        "out": "INVALID_PATH",
        "out/d": "INVALID_PATH",
        "out/link": "INVALID_PATH",
        "out/pipe": "INVALID_PATH",
        "out/folder/secret": "FILE_NOT_FOUND",
        "a\0b": "INVALID_PATH",
    }
    for path, code in codes.items():
        result = await save(talk, path)
        assert result.is_error and result.content.startswith(f"{code}: "), (path, result.content)
        assert result.value["error_code"] == code
        assert not result.effects
    assert (await talk.call("workspace_save_artifact")).is_error


@pytest.mark.row("K2")
async def test_a_file_that_is_too_large(talk_with: Talk) -> None:
    talk = await talk_with(artifacts__max_size="1 kb")
    await run(talk, "head -c 1024 /dev/zero > out/a; head -c 1025 /dev/zero > out/b")
    assert (await save(talk, "out/a")).value["size_bytes"] == 1024
    assert (await save(talk, "out/b")).content.startswith("FILE_TOO_LARGE: ")


@pytest.mark.row("K2")
async def test_a_job_without_a_place_for_artifacts(talk_with: Talk) -> None:
    talk = await talk_with(artifacts=False)
    await run(talk, "echo > out/a")
    result = await save(talk, "out/a")
    assert result.is_error
    assert result.content == "There is no tool 'workspace_save_artifact'. Tools: skill_load, skill_run"


@pytest.mark.row("K2")
async def test_a_store_that_cannot_be_reached(talk: Conversation, tmp_path: Path) -> None:
    await run(talk, "echo > out/a")
    (tmp_path / "artifacts").write_text("in the way")
    assert (await save(talk, "out/a")).content.startswith("ARTIFACT_SAVE_UNAVAILABLE: ")


def test_its_schema_is_short(talk: Conversation) -> None:
    (spec,) = talk.tools.specs(["workspace_save_artifact"])
    shown = {"name": spec.name, "description": spec.description, "parameters": spec.parameters}
    assert len(json.dumps(shown)) <= 350
