"""Read opens the references that results of other tools name."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from flink_skills.artifacts import ArtifactStore
from flink_skills.manager import SkillView
from flink_skills.options import SkillConfig
from flink_skills.skill import AgentSkill
from flink_skills.tools import SkillState, artifacts_effect
from flink_skills.tools.files import MAX_BYTES

from .conftest import Files

GUIDE = "Read this.\nThen that.\n"


@pytest.fixture
def store(tmp_path: Path) -> ArtifactStore:
    store = ArtifactStore.open(SkillConfig({"skills.artifacts.dir": (tmp_path / "artifacts").as_uri()}))
    assert store is not None
    return store


@pytest.fixture
async def files(shell_with: Callable[..., object], store: ArtifactStore, monkeypatch: pytest.MonkeyPatch) -> Files:
    monkeypatch.setenv("REPORT_TOKEN", "t0k3n-1234567")
    shell = await shell_with(**{"skills.env.geo.API_TOKEN": "${env:REPORT_TOKEN}"})  # type: ignore[misc]
    contents = {"guide.md": GUIDE, "logo.bin": "\0\1"}
    view = SkillView([AgentSkill("geo", "Geography.", "How to.", contents)])
    files = Files(shell, view)
    files.context.owner = "agent/k"
    files.context.artifacts = store
    return files


@pytest.mark.row("F29", "J14")
async def test_files_of_skills(files: Files) -> None:
    assert (await files("Read", path="skill://geo/guide.md"))["content"] == "1 | Read this.\n2 | Then that."
    part = await files("Read", path=" skill://GEO/guide.md", start_line=2)
    assert (part["content"], part["total_lines"], part["read_range"]) == ("2 | Then that.", 2, "2-2")
    assert "has 2 lines" in await files.error("Read", path="skill://geo/guide.md", start_line=3)
    assert "did you mean 'guide.md'" in (await files.error("Read", path="skill://geo/guid.md")).lower()
    assert "binary" in await files.error("Read", path="skill://geo/logo.bin")
    large = AgentSkill("large", "Large.", "How to.", {"long.txt": "x" * MAX_BYTES + "\n"})
    files.context.skills = SkillView([large])
    assert f"the maximum is {MAX_BYTES}" in await files.error("Read", path="skill://large/long.txt")


@pytest.mark.row("F29", "J14")
async def test_artifacts(files: Files, store: ArtifactStore) -> None:
    old = store.save("agent/k", "reports/a.md", b"old\n", "text/markdown")
    new = store.save("agent/k", "reports/a.md", "grün\n".encode("utf-16"), "text/markdown")
    read = await files("Read", path="artifact://reports/a.md")
    assert (read["content"], read["encoding"]) == ("1 | grün", "utf-16-le")
    assert (await files("Read", path=old.ref))["content"] == "1 | old"
    # The conversation reads the version that it saved, not a later one.
    assert files.context.skill_state is not None
    files.context.skill_state.apply(artifacts_effect("call", [("reports/a.md", old.version)]))
    assert (await files("Read", path="artifact://reports/a.md"))["content"] == "1 | old"
    assert (await files("Read", path=new.ref))["success"]
    store.save("agent/other", "hidden.md", b"x", "text/markdown")
    assert "hidden.md" in await files.error("Read", path="artifact://hidden.md")
    store.save("agent/k", "data.bin", b"\0\1\2", "")
    assert "binary" in await files.error("Read", path="artifact://data.bin")
    files.context.artifacts = None
    assert "this job has no artifacts" in await files.error("Read", path=old.ref)


@pytest.mark.row("F29", "J14")
async def test_files_of_the_workspace(files: Files) -> None:
    (files.workspace.out_dir / "$a b.csv").write_text("a,b\n1,2\n")
    assert (await files("Read", path="workspace://out/$a b.csv", start_line=2))["content"] == "2 | 1,2"
    (files.workspace.inputs_dir / "n.txt").write_text("7\n")
    for path in ("workspace://inputs/n.txt", "workspace://work/inputs/n.txt", "skill://geo/inputs/n.txt"):
        assert (await files("Read", path=path))["content"] == "1 | 7"
    line, lines = "y" * 1023, 2 * MAX_BYTES // 1024
    (files.workspace.out_dir / "big.txt").write_text(f"{line}\n" * lines)
    big = await files("Read", path="workspace://out/big.txt", start_line=lines)
    assert big["content"] == f"{lines} | {line}"
    assert "does not exist" in await files.error("Read", path="workspace://out/none.csv")
    assert "leaves its folder" in await files.error("Read", path="workspace://out/../../x")
    assert "in none of the folders" in await files.error("Read", path="workspace://home/x")


@pytest.mark.row("F29", "J14")
async def test_a_skill_that_the_model_does_not_have_is_one_that_does_not_exist(files: Files) -> None:
    view = files.context.skills
    assert view is not None
    other = AgentSkill("secret", "Hidden.", "How to.", {"guide.md": "x"})
    # Another model of the key has loaded it.
    files.workspace.stage(other)
    for form in ("skill://{}/guide.md", "workspace://skills/{}/guide.md"):
        said = await files.error("Read", path=form.format("secret"))
        assert said.replace("secret", "nowhere") == await files.error("Read", path=form.format("nowhere"))
        assert "Skills: geo" in said
    files.context.skills = None
    assert "There is no skill 'geo'" in await files.error("Read", path="skill://geo/guide.md")


@pytest.mark.row("F29", "J14")
async def test_invalid_references_are_rejected(files: Files) -> None:
    assert "no file of the machine can" in await files.error("Read", path="host:///etc/passwd")
    assert "ftp:// is not known" in await files.error("Read", path="ftp://x/y")
    assert "names no skill" in await files.error("Read", path="skill://")


@pytest.mark.row("F29", "J14")
async def test_secrets_are_hidden_in_an_artifact(files: Files, store: ArtifactStore) -> None:
    files.context.skill_state = SkillState()
    assert files.context.skills is not None
    skill = files.context.skills.get("geo")
    assert skill is not None
    await files.shell.run(
        'echo "$API_TOKEN"', workspace=files.workspace, cwd=files.workspace.stage(skill), skill_name="geo"
    )
    store.save("agent/k", "t.txt", b"t0k3n-1234567\n", "text/plain")
    read = await files("Read", path="artifact://t.txt")
    assert "t0k3n" not in str(read)
