"""Commands show the plugins of skills, and respect their boundaries."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from flink_skills import AgentSkillManager
from tests.cli.conftest import FlinkSkills
from tests.kit.skills import write_skill

SCHEMA = "https://agent-plugins.org/schemas/1.0.0/plugin.schema.json"
MCP = "https://agent-plugins.org/schemas/1.0.0/mcp.schema.json"


def write_json(path: Path, data: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(data))


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A source with a plugin of the standard, one of a vendor, and a skill without a plugin."""
    root = tmp_path / "s"
    write_skill(root / "ops/skills/deploy", description="Handles ops.")
    write_skill(root / "ops/skills/status", description="Shows ops.")
    (root / "ops/skills/deploy/notes.md").write_text("notes")
    write_json(root / "ops/plugin.json", {"$schema": SCHEMA, "name": "ops"})
    write_json(root / "ops/mcp.json", {"$schema": MCP, "mcpServers": {"desk": {"type": "stdio", "command": "x"}}})
    (root / "ops/hooks").mkdir()
    write_skill(root / "web/kept/deploy", description="Handles web.")
    write_skill(root / "web/skills/draft", description="Drafts.")
    write_json(root / "web/.claude-plugin/plugin.json", {"name": "web", "skills": ["./kept"]})
    write_skill(root / "plain", description="Is alone.")
    return root


@pytest.mark.parametrize("strict", [(), ("--strict",)])
def test_validate_reports_links_out_of_a_plugin(
    flink_skills: FlinkSkills, source: Path, strict: tuple[str, ...]
) -> None:
    # Strict loading rejects the skill for its name, and inspects it nevertheless.
    skill = source / "web/kept/deploy"
    (skill / "SKILL.md").write_text("---\nname: other\ndescription: Handles web.\n---\nSee [it](shared.md).\n")
    (source / "shared.md").write_text("of another plugin")
    (skill / "shared.md").symlink_to(source / "shared.md")
    found = flink_skills("validate", source, "--format", "json", *strict).json["diagnostics"]
    assert {"F07", "S04"} <= {one["code"] for one in found if one["path"].startswith(str(skill))}


def test_a_plugin_with_servers_alone_is_no_source_without_content(flink_skills: FlinkSkills, source: Path) -> None:
    for place in ("ops/skills", "web", "plain"):
        shutil.rmtree(source / place)
    found = flink_skills("validate", source, "--format", "json")
    assert found.code == 0
    assert {one["code"] for one in found.json["diagnostics"]} == {"G03"}
    assert not [one for one in AgentSkillManager(paths=[str(source)]).diagnostics if one.code == "D04"]
    (source / "ops/mcp.json").unlink()
    assert flink_skills("validate", source).code == 1
    assert [one for one in AgentSkillManager(paths=[str(source)]).diagnostics if one.code == "D04"]


@pytest.mark.row("B26")
def test_validate_names_the_plugin(flink_skills: FlinkSkills, source: Path) -> None:
    for name in ("ops/skills/status", "plain"):
        (source / name / "SKILL.md").write_text("---\nname: other\ndescription: Does it.\n---\nDo it.\n")
    text = flink_skills("validate", source).stdout
    lines = [line for line in text.splitlines() if " F07: " in line]
    assert [line.endswith(" [plugin ops]") for line in sorted(lines)] == [True, False]
    result = flink_skills("validate", source, "--format", "json").json
    assert {one["path"]: one.get("plugin", "") for one in result["diagnostics"] if one["code"] == "F07"} == {
        str(source / "ops/skills/status/SKILL.md"): "ops",
        str(source / "plain/SKILL.md"): "",
    }
    assert [(one["name"], one.get("plugin", "")) for one in result["skills"] if one["status"] == "loaded"] == [
        ("ops:deploy", "ops"),
        ("other", ""),
        ("web:deploy", "web"),
    ]


def test_validate_names_the_option_that_starts_a_server(flink_skills: FlinkSkills, source: Path) -> None:
    tools = "mcp__desk__show mcp__plugin_ops_desk__x mcp__a__b"
    text = f"---\nname: deploy\ndescription: Does.\nallowed-tools: {tools}\n---\nDo.\n"
    (source / "ops/skills/deploy/SKILL.md").write_text(text)
    lines = flink_skills("validate", source).stdout.splitlines()
    (needed,) = [line for line in lines if " U13: " in line]
    assert "'ops:desk'" in needed
    assert "(add 'ops:desk' to skills.plugins.servers)" in needed
    (unknown,) = [line for line in lines if " U01: " in line]
    assert "names 'mcp__a__b', which does not exist" in unknown
    started = flink_skills("validate", source, "--set", "skills.plugins.servers=ops:desk").stdout
    assert "ops:desk" not in started
    assert " U13: " not in started


@pytest.mark.row("B26")
def test_the_lock_has_full_names_and_accepts_short_ones(
    flink_skills: FlinkSkills, source: Path, tmp_path: Path
) -> None:
    lock = tmp_path / "skills.lock"
    assert flink_skills("lock", source, "--output", lock).code == 0
    locked = json.loads(lock.read_text())
    assert sorted(locked["skills"]) == ["ops:deploy", "plain", "status", "web:deploy"]
    assert flink_skills("lock", source, "--output", lock, "--check").code == 0
    locked["skills"]["ops:status"] = locked["skills"].pop("status")
    lock.write_text(json.dumps(locked))
    assert flink_skills("lock", source, "--output", lock, "--check").code == 0
    (source / "web/kept/deploy/new.md").write_text("changed")
    assert "web:deploy" in flink_skills("lock", source, "--output", lock, "--check").stderr


@pytest.mark.parametrize("kind", ["zip", "tar.gz"])
@pytest.mark.row("B26")
def test_a_packed_plugin_has_the_same_skills(
    flink_skills: FlinkSkills, source: Path, tmp_path: Path, kind: str
) -> None:
    archive = tmp_path / f"packed.{kind}"
    packed = flink_skills("pack", source, "--output", archive, "--format", "json")
    assert packed.code == 0, packed.stderr
    before, after = (
        {skill.name: (skill.plugin, skill.digest) for skill in AgentSkillManager([str(path)]).get_skills()}
        for path in (source, archive)
    )
    assert before == after
    assert sorted(before) == ["ops:deploy", "plain", "status", "web:deploy"]
    assert sorted(one["name"] for one in packed.json["skills"]) == sorted(before)


@pytest.mark.parametrize("folder", ["ops", "web"])
def test_a_plugin_is_packed_alone(flink_skills: FlinkSkills, source: Path, tmp_path: Path, folder: str) -> None:
    archive = tmp_path / "packed.zip"
    assert flink_skills("pack", f"{source / folder}/", "--output", archive).code == 0
    assert {skill.plugin for skill in AgentSkillManager([str(archive)]).get_skills()} == {folder}


def test_a_marketplace_is_packed_with_its_list(flink_skills: FlinkSkills, source: Path, tmp_path: Path) -> None:
    entries = [{"name": "all", "source": "./", "skills": ["./ops/skills/status"]}, {"name": "w", "source": "./web"}]
    write_json(source / ".claude-plugin/marketplace.json", {"plugins": entries})
    archive = tmp_path / "packed.zip"
    assert flink_skills("pack", source, "--output", archive).code == 0
    found = {skill.full_name for skill in AgentSkillManager([str(archive)]).get_skills()}
    assert found == {"all:status", "w:deploy"}


def test_a_plugin_without_a_name_is_not_packed_under_another_one(
    flink_skills: FlinkSkills, source: Path, tmp_path: Path
) -> None:
    write_json(source / "web/.claude-plugin/plugin.json", {"skills": ["./kept"]})
    packed = flink_skills("pack", source / "web", "--output", tmp_path / "packed.zip")
    assert packed.code == 1
    assert "write its name into its manifest" in packed.stderr
    assert not (tmp_path / "packed.zip").exists()


@pytest.mark.row("B26")
def test_the_catalog_has_plugins(flink_skills: FlinkSkills, source: Path, tmp_path: Path) -> None:
    (source / "web/kept/deploy/SKILL.md").write_text("---\nname: deploy\ndescription: Does.\nx: y\n---\n<!-- a -->\n")
    skills = flink_skills("catalog", source, "--format", "json").json["skills"]
    assert {one["name"]: one["plugin"] for one in skills} == {
        "ops:deploy": "ops",
        "plain": "",
        "status": "ops",
        "web:deploy": "web",
    }
    own = next(one["diagnostics"] for one in skills if one["name"] == "web:deploy")
    assert "S06" in {one["code"] for one in own}
    header, *rows = flink_skills("catalog", source).stdout.splitlines()
    assert "PLUGIN" in header
    assert [row.split()[0:2] for row in rows if row.startswith("ops:")] == [["ops:deploy", "ops"]]
    page = tmp_path / "page.html"
    assert flink_skills("catalog", source, "--html", page).code == 0
    assert '"plugin": "ops"' in page.read_text() or '"plugin":"ops"' in page.read_text()
