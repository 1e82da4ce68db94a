"""``flink-skills prompt --profile``: all that a model is sent of skills and tools, and what it costs.

Examines the internals of cli.look.prompt_request on purpose.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import bpe_openai
import pytest

from flink_skills import AgentSkillManager, SkillConfig
from flink_skills.cli.look.prompt_request import first_request
from flink_skills.tools import PROFILES
from tests.cli.command import ROOT
from tests.cli.conftest import FlinkSkills
from tests.kit.skills import write_skill

SKILLS = ROOT / "skills"


def compact(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


@pytest.mark.row("E10")
@pytest.mark.parametrize("profile", [*PROFILES, "load_skill,skill_run", "knowledge_only, execute_shell_command"])
def test_parts_are_the_whole(profile: str, flink_skills: FlinkSkills) -> None:
    shown = flink_skills("prompt", SKILLS, "--profile", profile, "--format", "json").json
    sent = shown["system"] + "".join(compact(tool) for tool in shown["tools"])
    sizes = {part["part"]: part["chars"] for part in shown["parts"]}
    assert sum(sizes.values()) == shown["total"]["chars"] == len(sent)
    assert shown["total"]["tokens"] == pytest.approx(len(sent) / 4, abs=20)
    varying = {part["part"] for part in shown["parts"] if not part["fixed"]}
    assert varying == {"menu entries", "skill names in tools"}
    assert shown["fixed"]["chars"] == len(sent) - sum(sizes[name] for name in varying)
    assert shown["system"].startswith(shown["prompt"])
    tools = [tool["name"] for tool in shown["tools"]]
    assert list(sizes) == ["introduction", "menu entries", "guidance", *tools, "skill names in tools"]
    named = {name for word in profile.split(",") for name in PROFILES.get(word.strip(), (word.strip(),))}
    # No skill has tools, so the tools that list or select tools are not offered.
    assert set(tools) == named - {"skill_list_tools", "skill_select_tools"}
    assert shown["profile"] == (profile if profile in PROFILES else ",".join(tools))


@pytest.mark.parametrize("profile", PROFILES)
def test_as_text_it_is_the_same_with_a_size_for_each_part(profile: str, flink_skills: FlinkSkills) -> None:
    shown = flink_skills("prompt", SKILLS, "--profile", profile, "--format", "json").json
    said = flink_skills("prompt", SKILLS, "--profile", profile)
    assert said.code == 0
    assert said.stdout == shown["system"] + "\n\n" + "".join(f"{compact(tool)}\n" for tool in shown["tools"])
    lines = [line.split() for line in said.stderr.splitlines() if " characters, about " in line]
    assert [line[0] for line in lines[-2:]] == ["fixed", "total"]
    assert [int(line[1].replace(",", "")) for line in lines[-2:]] == [shown[key]["chars"] for key in ("fixed", "total")]
    assert len(lines) == len(shown["parts"]) + 2


@pytest.mark.row("E10")
@pytest.mark.parametrize(("profile", "most"), [("core", 450), ("full", 1_800)])
def test_the_fixed_cost_keeps_its_budget(profile: str, most: int) -> None:
    request = first_request(AgentSkillManager([str(SKILLS)]).view(), SkillConfig({"skills.tools": profile}))
    assert request.fixed.chars <= 4 * most
    assert request.fixed.tokens <= most


@pytest.mark.row("E10")
@pytest.mark.parametrize("profile", PROFILES)
def test_the_fixed_cost_is_that_of_any_skills(profile: str, flink_skills: FlinkSkills) -> None:
    words = ("--profile", profile, "--format", "json")
    all_ = flink_skills("prompt", SKILLS, *words).json
    one = flink_skills("prompt", SKILLS, "--names", "log-triage", *words).json
    assert one["fixed"] == all_["fixed"]
    assert one["total"]["chars"] < all_["total"]["chars"]


def test_options_of_the_job_count(flink_skills: FlinkSkills) -> None:
    words = ("prompt", SKILLS, "--profile", "full", "--format", "json")
    plain = flink_skills(*words).json
    assert plain["system"] != plain["prompt"]
    own = flink_skills(*words, "--set", "skills.prompt.guidance=Do it well.").json
    assert own["system"] == f"{plain['prompt']}\n\nDo it well."
    none = flink_skills(*words, "--set", "skills.prompt.guidance=").json
    assert none["system"] == plain["prompt"]
    silent = flink_skills(*words, "--set", "skills.shell.enabled=false").json
    assert {tool["name"] for tool in silent["tools"]} < {tool["name"] for tool in plain["tools"]}
    assert "skill_run" not in {tool["name"] for tool in silent["tools"]}


@pytest.mark.parametrize(
    ("profile", "message"),
    [("corr", "did you mean 'core'"), ("skill_rum", "did you mean 'skill_run'"), (" ,", "expected core, full")],
)
def test_mistakes(profile: str, message: str, flink_skills: FlinkSkills) -> None:
    said = flink_skills("prompt", SKILLS, "--profile", profile)
    assert (said.code, said.stdout) == (2, "")
    assert "--profile" in said.stderr
    assert message in " ".join(said.stderr.split())


def test_without_it_nothing_changes(flink_skills: FlinkSkills) -> None:
    menu = AgentSkillManager([str(SKILLS)]).get_system_prompt()
    said = flink_skills("prompt", SKILLS, "--set", "skills.tools=full")
    assert said.stdout == menu + "\n"
    assert len(said.stderr.splitlines()) == 1
    shown = flink_skills("prompt", SKILLS, "--format", "json").json
    keys = {"prompt", "chars", "tokens", "max_chars", "skills", "shortened", "left_out", "hidden", "unsupported"}
    assert set(shown) == keys


@pytest.mark.row("E10")
@pytest.mark.parametrize(("profile", "most"), [("core", 430), ("full", 1600)])
def test_a_request_with_one_short_skill_has_few_tokens(
    profile: str, most: int, flink_skills: FlinkSkills, tmp_path: Path
) -> None:
    # With a skill that has tools, a model has all tools of its profile.
    write_skill(tmp_path / "s/a", description="Any.", body="Tools:\n- any\n\nDo it.")
    options = ("--set", f"skills.artifacts.dir=file://{tmp_path}/artifacts")
    shown = flink_skills("prompt", "s", "--profile", profile, "--format", "json", *options).json
    assert {tool["name"] for tool in shown["tools"]} == set(PROFILES[profile])
    encoding = bpe_openai.get_encoding("o200k_base")
    tokens = [len(encoding.encode(text)) for text in (shown["system"], *map(compact, shown["tools"]))]
    assert sum(tokens) <= most, tokens
