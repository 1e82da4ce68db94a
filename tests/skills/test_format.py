"""The skills as files: valid in the strict format, complete, and each standing on its own."""

from __future__ import annotations

import ast
import json
import re
import sys
from pathlib import Path

import pytest
import yaml

from flink_skills.skill import load_folder
from tests.skills.running import NAMES, SKILLS, command_of


def front_matter(name: str) -> dict[str, object]:
    text = (SKILLS / name / "SKILL.md").read_text(encoding="utf-8")
    loaded: dict[str, object] = yaml.safe_load(text.split("---\n")[1])
    return loaded


def test_there_are_enough() -> None:
    assert len(NAMES) >= 4
    assert {path.name for path in SKILLS.iterdir() if path.is_dir()} == set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_strict_format(name: str) -> None:
    fields = front_matter(name)
    assert fields["name"] == name
    assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", name) and len(name) <= 64
    description = fields["description"]
    assert isinstance(description, str) and 1 <= len(description) <= 1024
    # What it does, and when to use it.
    assert "Use for" in description
    assert set(fields) <= {"name", "description", "license", "compatibility", "metadata", "allowed-tools"}
    assert isinstance(fields["compatibility"], str) and len(fields["compatibility"]) <= 500


@pytest.mark.parametrize("name", NAMES)
def test_the_strict_loader_has_no_complaint(name: str) -> None:
    loaded = load_folder(str(SKILLS / name), strict=True)
    assert [d for d in loaded.diagnostics if d.severity != "info"] == []
    assert loaded.skill is not None and loaded.skill.name == name


@pytest.mark.parametrize("name", NAMES)
def test_body_and_files(name: str) -> None:
    folder = SKILLS / name
    text = (folder / "SKILL.md").read_text(encoding="utf-8")
    assert len(text.splitlines()) < 200
    script = re.fullmatch(r"python3 (scripts/\w+\.py)", command_of(name))
    assert script is not None and (folder / script[1]).is_file()
    references = sorted(folder.glob("references/*.md"))
    assert references
    for path in references:
        assert path.relative_to(folder).as_posix() in text, f"{path.name} is never mentioned"
    for mentioned in re.findall(r"(?:references|scripts|assets)/[\w.-]+\w", text):
        assert (folder / mentioned).is_file(), mentioned


@pytest.mark.parametrize("name", NAMES)
def test_skills_named_in_a_skill_exist(name: str) -> None:
    texts = [path.read_text(encoding="utf-8") for path in (SKILLS / name).rglob("*") if path.suffix in (".md", ".json")]
    named = {skill for text in texts for skill in re.findall(r"(?:Load|load)(?: the skill)? `?([a-z]+-[a-z]+)`?", text)}
    assert named <= set(NAMES)


@pytest.mark.parametrize("path", sorted(SKILLS.rglob("*.py")), ids=lambda path: str(path.relative_to(SKILLS)))
def test_scripts_are_small_and_need_the_standard_library_only(path: Path) -> None:
    source = path.read_text(encoding="utf-8")
    assert len(source.splitlines()) <= 150
    imported: set[str] = set()
    for node in ast.walk(ast.parse(source, feature_version=(3, 10))):
        if isinstance(node, ast.Import):
            imported |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            imported.add((node.module or "").split(".")[0])
    network = {"socket", "urllib", "http", "ssl", "subprocess"}
    assert imported - {"flink_log"} <= set(sys.stdlib_module_names) - network


@pytest.mark.parametrize("name", NAMES)
def test_the_copy_of_the_parser_is_current(name: str) -> None:
    source = (SKILLS / "flink_log.py").read_bytes()
    assert (SKILLS / name / "scripts" / "flink_log.py").read_bytes() == source, "run 'make skills'"


@pytest.mark.parametrize("name", NAMES)
def test_every_kind_of_advice_is_used(name: str) -> None:
    steps = json.loads((SKILLS / name / "assets" / "next_steps.json").read_text(encoding="utf-8"))
    sources = [p.read_text(encoding="utf-8") for p in (SKILLS / name / "scripts").glob("*.py")]
    assert [kind for kind in steps if not any(f'"{kind}' in source for source in sources)] == []
