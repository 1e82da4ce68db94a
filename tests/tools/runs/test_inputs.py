"""Inputs are placed in the workspace before a command runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from flink_skills.agents import event_files, stage_files
from flink_skills.artifacts import ArtifactStore
from flink_skills.manager import AgentSkillManager
from flink_skills.tools import ToolResult
from tests.tools.conftest import Conversation
from tests.tools.runs.conftest import Talk


async def run(talk: Conversation, command: str, *inputs: Any, **more: Any) -> ToolResult:
    result: ToolResult = await talk.call(
        "skill_run", **{"skill": "billing", "command": command, "inputs": list(inputs), **more}
    )
    return result


async def read(talk: Conversation, path: str, *inputs: Any) -> str:
    result = await run(talk, f"cat {path}", *inputs)
    assert not result.is_error, result.content
    return str(result.value["stdout"])


def artifacts_of(talk: Conversation) -> ArtifactStore:
    assert isinstance(talk.services.artifacts, ArtifactStore)
    return talk.services.artifacts


def save(talk: Conversation, name: str, text: str) -> str:
    return artifacts_of(talk).save(talk.context.owner, name, text.encode(), "text/plain").version


def noted(talk: Conversation) -> list[dict[str, Any]]:
    assert talk.workspace is not None
    inputs: list[dict[str, Any]] = json.loads((talk.workspace.root / "metadata.json").read_text())["inputs"]
    return inputs


@pytest.mark.row("F7", "F8", "F22")
async def test_an_artifact(talk: Conversation) -> None:
    version = save(talk, "reports/may.txt", "in May")
    result = await run(talk, "cat inputs/may.txt", {"from": "artifact://reports/may.txt"})
    assert result.value["stdout"] == "in May"
    assert result.value["staged_inputs"] == [
        {
            "name": "work/inputs/may.txt",
            "original_name": "artifact://reports/may.txt",
            "mime_type": "text/plain",
            "size_bytes": 6,
        }
    ]
    (record,) = noted(talk)
    assert record["from"] == "artifact://reports/may.txt"
    # An empty version is none.
    assert await read(talk, "inputs/other.txt", {"from": "artifact://reports/may.txt@", "to": "other.txt"}) == "in May"
    assert record["to"] == "work/inputs/may.txt"
    assert record["resolved"] == f"artifact://reports/may.txt@{version}"
    assert (record["version"], record["mode"]) == (version, "copy")


@pytest.mark.row("F7")
async def test_a_version_of_an_artifact(talk: Conversation) -> None:
    first = save(talk, "a.txt", "first")
    save(talk, "a.txt", "second")
    assert await read(talk, "inputs/a.txt", {"from": f"artifact://a.txt@{first}"}) == "first"
    assert await read(talk, "inputs/a.txt", {"from": "artifact://a.txt@latest"}) == "second"
    for absent in ("artifact://none.txt", "artifact://a.txt@0123456789abcdef", "artifact://../a.txt"):
        assert (await run(talk, "true", {"from": absent})).is_error
    talk.context.owner = "agent-1/other"
    assert (await run(talk, "true", {"from": "artifact://a.txt"})).is_error


@pytest.mark.row("F7")
async def test_the_version_that_this_conversation_saved(talk: Conversation) -> None:
    made = "printf ours > out/a.txt"
    saved = await talk.call(
        "skill_run", skill="billing", command=made, output_files=["out/a.txt"], save_as_artifacts=True
    )
    assert saved.value["artifact_files"]
    # The newest in the store may come from a turn that was never finished.
    save(talk, "out/a.txt", "of nobody")
    assert await read(talk, "inputs/a.txt", {"from": "artifact://out/a.txt"}) == "ours"


@pytest.mark.row("F7", "F32")
async def test_artifacts_need_a_place(talk_with: Talk) -> None:
    talk = await talk_with(artifacts=False)
    result = await run(talk, "true", {"from": "artifact://a.txt"})
    assert result.is_error and "skills.artifacts.dir" in result.content


@pytest.mark.row("F10")
async def test_a_pinned_version(talk: Conversation) -> None:
    save(talk, "a.txt", "first")
    pinned = {"from": "artifact://a.txt", "to": "inputs/data.txt", "pin": True}
    assert await read(talk, "inputs/data.txt", pinned) == "first"
    save(talk, "a.txt", "second")
    assert await read(talk, "inputs/data.txt", pinned) == "first"
    # Another place, another artifact, no pin, a version of its own: each is what it says.
    assert await read(talk, "inputs/other.txt", {**pinned, "to": "inputs/other.txt"}) == "second"
    assert await read(talk, "inputs/data.txt", {**pinned, "pin": False}) == "second"
    save(talk, "b.txt", "another")
    assert await read(talk, "inputs/data.txt", {**pinned, "from": "artifact://b.txt"}) == "another"
    second = save(talk, "a.txt", "third")
    assert await read(talk, "inputs/data.txt", {**pinned, "from": f"artifact://a.txt@{second}"}) == "third"


@pytest.mark.row("F7")
async def test_a_file_of_the_workspace(talk: Conversation) -> None:
    assert talk.workspace is not None
    await run(talk, "mkdir -p out/d; printf one > out/d/1.txt; printf two > out/d/2.txt; ln -s /etc out/d/etc")
    assert await read(talk, "inputs/1.txt", {"from": "workspace://out/d/1.txt"}) == "one"
    folder = await run(talk, "ls inputs/d; cat inputs/d/*.txt", {"from": "workspace://out/d"})
    assert folder.value["stdout"] == "1.txt\n2.txt\nonetwo"
    assert folder.value["staged_inputs"] == [
        {"name": "work/inputs/d", "original_name": "workspace://out/d", "size_bytes": 6}
    ]
    assert any("left out" in text for text in folder.value["warnings"])
    for wrong in ("workspace://out/none", "workspace://../x", "workspace:///etc/passwd", "workspace://metadata.json",
                  "workspace://out/d/etc/passwd", "workspace://home"):  # fmt: skip
        result = await run(talk, "touch $WORK_DIR/ran", {"from": wrong})
        assert result.is_error, wrong
    assert not (talk.workspace.work_dir / "ran").exists()


@pytest.mark.row("F7")
async def test_a_file_of_a_skill(talk: Conversation) -> None:
    assert await read(talk, "inputs/levels.md", {"from": "skill://log-triage/references/levels.md"}) != ""
    whole = await run(talk, "ls inputs/log-triage", {"from": "skill://log-triage"})
    assert whole.value["stdout"].split() == ["SKILL.md", "references", "scripts"]
    assert await read(talk, "inputs/run.sh", {"from": "skill://billing/scripts/sum.sh", "to": "run.sh"}) == "echo 42\n"
    for wrong in ("skill://secret-ops/SKILL.md", "skill://billing/../log-triage/SKILL.md", "skill://billing//etc/passwd",
                  "skill://billing/out/x", "skill://", "skill://billing/none"):  # fmt: skip
        assert (await run(talk, "true", {"from": wrong})).is_error, wrong
    climbing = await run(talk, "true", {"from": "skill://billing/scripts/../../log-triage/SKILL.md"})
    assert "leads out of the skill" in climbing.content


@pytest.mark.row("F7")
async def test_files_of_the_machine_need_a_grant(talk_with: Talk, tmp_path: Path) -> None:
    granted, other = tmp_path / "granted", tmp_path / "other"
    for folder in (granted, other):
        folder.mkdir()
        (folder / "a.txt").write_text(folder.name)
    (granted / "to-other").symlink_to(other)
    (granted / "file").symlink_to(other / "a.txt")
    talk = await talk_with()
    refused = await run(talk, "true", {"from": f"host://{granted}/a.txt"})
    assert refused.is_error and "skills.run.host-inputs" in refused.content
    talk = await talk_with(run__host_inputs=[str(granted)])
    assert await read(talk, "inputs/a.txt", {"from": f"host://{granted}/a.txt"}) == "granted"
    linked = await run(talk, "cat inputs/a.txt", {"from": f"host://{granted}/a.txt", "mode": "link"})
    assert linked.value["stdout"] == "granted"
    assert any("was copied" in text for text in linked.value["warnings"])
    for wrong in (other / "a.txt", granted / "to-other" / "a.txt", granted / "file", granted / ".." / "other" / "a.txt",
                  granted / "none", Path("/etc/passwd"), Path(f"{granted}-2")):  # fmt: skip
        result = await run(talk, "true", {"from": f"host://{wrong}"})
        assert result.is_error, wrong
    whole = await run(talk, "ls inputs/granted", {"from": f"host://{granted}"})
    assert whole.value["stdout"] == "a.txt\n"


@pytest.mark.row("F7", "F32")
@pytest.mark.parametrize("source", ["https://example.org/a", "file:///etc/passwd", "a.txt", "", "host://relative"])
async def test_other_sources_are_not_supported(talk: Conversation, source: str) -> None:
    result = await run(talk, "true", {"from": source})
    assert result.is_error
    assert "from" in result.content or "write artifact://" in result.content or "host:///path" in result.content


@pytest.mark.row("F8")
async def test_where_an_input_goes(talk: Conversation) -> None:
    save(talk, "dir/a.txt", "x")
    for to, path in {
        "": "work/inputs/a.txt",
        None: "work/inputs/a.txt",
        "inputs/b.txt": "work/inputs/b.txt",
        "work/inputs/c.txt": "work/inputs/c.txt",
        "work\\deep\\d.txt": "work/deep/d.txt",
        "$WORK_DIR/e.txt": "work/e.txt",
        "inputs/f/": "work/inputs/f/a.txt",
        "g.txt": "work/inputs/g.txt",
        "./h/h.txt": "work/inputs/h/h.txt",
    }.items():
        result = await run(talk, f"cat $WORKSPACE_DIR/{path}", {"from": "artifact://dir/a.txt", "to": to})
        assert result.value["stdout"] == "x", to
        assert result.value["staged_inputs"][0]["name"] == path
    for wrong in (
        "../x",
        "/etc/x",
        "out/x",
        "skills/billing/x",
        "work/inputs/event.json",
        "work",
        "$OUTPUT_DIR/x",
        "a\0",
    ):
        assert (await run(talk, "true", {"from": "artifact://dir/a.txt", "to": wrong})).is_error, wrong


@pytest.mark.row("F8")
async def test_no_input_goes_through_a_link(talk: Conversation, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    save(talk, "a.txt", "x")
    await run(talk, f"ln -s {outside} $WORK_DIR/inputs/away; ln -s {outside}/file $WORK_DIR/inputs/a.txt")
    await run(talk, "true", {"from": "artifact://a.txt", "to": "inputs/away/a.txt"}, {"from": "artifact://a.txt"})
    assert not list(outside.iterdir())


@pytest.mark.row("F9")
async def test_links(talk: Conversation) -> None:
    await run(talk, "printf one > out/a.txt")
    link = {"from": "workspace://out/a.txt", "mode": "link"}
    linked = await run(talk, "printf two > out/a.txt; cat inputs/a.txt; readlink inputs/a.txt", link)
    assert linked.value["stdout"] == "two../../out/a.txt\n"
    assert "warnings" not in linked.value
    assert [one["size_bytes"] for one in linked.value["staged_inputs"]] == [3]
    copied = await run(talk, "printf three > out/a.txt; cat inputs/b.txt", {**link, "mode": "copy", "to": "b.txt"})
    assert copied.value["stdout"] == "two"
    of_skill = {"From": "skill://log-triage/references/levels.md", "Mode": "LINK"}
    assert (await run(talk, "cat inputs/levels.md", of_skill)).value["stdout"].startswith("WARN")
    save(talk, "a.txt", "x")
    artifact = await run(talk, "cat inputs/a.txt", {"from": "artifact://a.txt", "mode": "link"})
    assert artifact.value["warnings"] == ["artifact://a.txt was copied: only what is in the workspace is linked"]
    assert (await run(talk, "true", {**link, "mode": "move"})).is_error


@pytest.mark.row("F22", "F31")
async def test_files_of_the_event(talk: Conversation) -> None:
    assert talk.workspace is not None
    version = save(talk, "b.txt", "kept")
    event = {
        "files": [
            {"name": "../a b.csv", "text": "x,y"},
            {"name": "../a b.csv", "text": "again"},
            {"data": b"raw"},
            {"uri": f"artifact://b.txt@{version}"},
        ]
    }
    talk.context.staged_inputs = stage_files(
        talk.workspace, event_files(event), artifacts_of(talk), talk.context.owner, talk.skill_state
    )
    names = [record["name"] for record in talk.context.staged_inputs]
    listed = " ".join(f'"$WORKSPACE_DIR/{name}"' for name in names)
    command = f'for file in {listed}; do cat "$file"; echo; done'
    result = await run(talk, command, {"from": "skill://billing/scripts/sum.sh"})
    assert result.value["stdout"] == "x,y\nagain\nraw\nkept\n"
    assert [record["original_name"] for record in result.value["staged_inputs"]] == [
        *("../a b.csv", "../a b.csv", "upload_3", "b.txt", "skill://billing/scripts/sum.sh")
    ]
    assert [record["size_bytes"] for record in result.value["staged_inputs"]] == [3, 5, 3, 4, 8]


@pytest.mark.row("F22")
async def test_a_file_of_the_event_that_cannot_be_used(talk: Conversation) -> None:
    assert talk.workspace is not None
    files = event_files({"files": [{"data": "broken!"}]})
    talk.context.staged_inputs = stage_files(talk.workspace, files, None, talk.context.owner, talk.skill_state)
    (record,) = (await run(talk, "true")).value["staged_inputs"]
    assert "not valid base64" in record["error"]


async def test_an_input_that_fails_ends_the_run_before_it_begins(talk: Conversation) -> None:
    assert talk.workspace is not None
    await run(talk, "true")
    result = await run(talk, "touch $WORK_DIR/ran", {"from": "workspace://out/none"})
    assert result.is_error
    assert not (talk.workspace.work_dir / "ran").exists()
    assert not list(talk.workspace.runs_dir.iterdir())


@pytest.mark.row("B12", "F7")
async def test_skills_that_another_model_of_the_key_had_staged(talk: Conversation, manager: AgentSkillManager) -> None:
    assert talk.workspace is not None
    for skill in ("log-triage", "secret-ops"):
        talk.workspace.stage(manager.view().get(skill))
    assert (await read(talk, "inputs/levels.md", "workspace://skills/log-triage/references/levels.md")) != ""
    assert not (await run(talk, "true", "workspace://skills/log-triage")).is_error
    told = []
    for name in ("secret-ops", "public-ops"):
        result = await run(talk, "true", f"workspace://skills/{name}/SKILL.md")
        assert result.is_error
        told.append(result.content.replace(name, "x"))
    assert told[0] == told[1]
    root = talk.workspace.root
    for source in (
        "workspace://skills",
        "workspace://skills/",
        "workspace://skills/secret-ops",
        "workspace://$SKILLS_DIR/secret-ops/SKILL.md",
        f"workspace://{root}/skills/secret-ops/SKILL.md",
        "workspace://inputs/../skills/secret-ops/SKILL.md",
        "workspace://work/inputs/../../skills/secret-ops",
        "workspace://skills/billing/../secret-ops/SKILL.md",
        "workspace://skills\\secret-ops\\SKILL.md",
    ):
        for mode in ("copy", "link"):
            result = await run(talk, "touch $WORK_DIR/ran", {"from": source, "mode": mode, "to": "inputs/got"})
            assert result.is_error, source
    assert not (root / "work/ran").exists()
    assert not (root / "work/inputs/got").exists()


@pytest.mark.row("B12", "F7")
async def test_the_same_by_a_path_of_the_machine(talk_with: Talk, tmp_path: Path, manager: AgentSkillManager) -> None:
    talk = await talk_with(run__host_inputs=[str(tmp_path)])
    assert talk.workspace is not None
    staged = talk.workspace.stage(manager.view().get("secret-ops"))
    for source in (f"{staged}/SKILL.md", str(staged.parent), str(tmp_path)):
        result = await run(talk, "true", {"from": f"host://{source}"})
        assert result.is_error and "has workspaces in it" in result.content


@pytest.mark.row("F7")
async def test_paths_that_results_and_texts_show(talk: Conversation) -> None:
    first = await run(talk, 'echo r > "$OUTPUT_DIR/r.txt"; echo "$OUTPUT_DIR"', output_files=["out/*"])
    (entry,) = first.value["output_files"]
    view = talk.context.skills
    assert view is not None
    folder = view.get("billing").path  # type: ignore[union-attr]
    for source, content in (
        (entry["name"], "r\n"),
        (entry["ref"], "r\n"),
        (f"{first.value['stdout'].strip()}/r.txt", "r\n"),
        ("$OUTPUT_DIR/r.txt", "r\n"),
        (f"{folder}/scripts/sum.sh", "echo 42\n"),
    ):
        assert await read(talk, "inputs/x", {"from": source, "to": "inputs/x"}) == content
    for source in ("/etc/passwd", "r.txt", f"{folder}/../secret-ops/SKILL.md"):
        assert (await run(talk, "true", {"from": source})).is_error, source
