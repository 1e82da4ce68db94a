"""``flink-skills prompt``: the menu, to the character."""

from __future__ import annotations

from pathlib import Path

import pytest

from flink_skills import AgentSkillManager
from tests.cli.command import ROOT
from tests.cli.conftest import FlinkSkills
from tests.kit.skills import write_skill


def test_it_is_what_a_model_sees(flink_skills: FlinkSkills) -> None:
    menu = AgentSkillManager([str(ROOT / "skills")]).get_system_prompt()
    said = flink_skills("prompt", ROOT / "skills")
    assert (said.code, said.stdout) == (0, menu + "\n")
    assert f"{len(menu):,} characters of 16,000" in said.stderr
    shown = flink_skills("prompt", ROOT / "skills", "--format", "json").json
    assert (shown["prompt"], shown["chars"], shown["max_chars"]) == (menu, len(menu), 16_000)
    assert shown["tokens"] == len(menu) // 4
    assert (shown["shortened"], shown["left_out"], shown["hidden"]) == ([], [], [])


@pytest.mark.parametrize(
    "words", [("--names", "slot-shortage,log-triage"), ("--names", "log-triage", "--names", "slot-shortage")]
)
def test_names_choose(words: tuple[str, ...], flink_skills: FlinkSkills) -> None:
    menu = AgentSkillManager([str(ROOT / "skills")]).get_system_prompt(["log-triage", "slot-shortage"])
    assert flink_skills("prompt", ROOT / "skills", *words).stdout == menu + "\n"


@pytest.mark.parametrize("option", [("--max-chars", "1200"), ("--set", "skills.prompt.max-chars=1200")])
def test_the_budget_shortens_and_leaves_out(option: tuple[str, ...], flink_skills: FlinkSkills, tmp_path: Path) -> None:
    for number in range(20):
        write_skill(tmp_path / f"s/skill-{number:02}", description="Does a lot of things. " * 10)
    write_skill(tmp_path / "s/hidden")
    text = (tmp_path / "s/hidden/SKILL.md").read_text().replace("name:", "disable-model-invocation: true\nname:")
    (tmp_path / "s/hidden/SKILL.md").write_text(text)
    shown = flink_skills("prompt", "s", *option, "--format", "json").json
    assert shown["chars"] <= shown["max_chars"] == 1200
    assert shown["shortened"] == shown["skills"] != []
    assert sorted(shown["skills"] + shown["left_out"]) == [f"skill-{number:02}" for number in range(20)]
    assert shown["hidden"] == ["hidden"]
    said = flink_skills("prompt", "s", *option)
    assert said.stdout == shown["prompt"] + "\n"
    assert "Omitted to fit: skill-" in said.stderr
    assert "Not in the menu because of disable-model-invocation: hidden" in said.stderr


def test_skills_that_the_job_does_not_support(flink_skills: FlinkSkills, tmp_path: Path) -> None:
    write_skill(tmp_path / "s/good")
    write_skill(tmp_path / "s/bad", body="Look: !`dir`")
    hide, refuse = ("--set", "skills.unsupported=hide"), ("--set", "skills.unsupported=refuse")
    shown = flink_skills("prompt", "s", *hide, "--format", "json").json
    assert (shown["skills"], shown["left_out"], list(shown["unsupported"])) == (["good"], [], ["bad"])
    said = flink_skills("prompt", "s", *hide)
    assert "bad" not in said.stdout
    assert "warning U11: skill 'bad' is hidden: U07" in said.stderr
    refused = flink_skills("prompt", "s", *refuse)
    assert (refused.code, refused.stdout) == (1, "")
    assert "- bad: U07" in refused.stderr


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (("--names", "log-tirage"), 1, "did you mean 'log-triage'"),
        (("--names", ","), 2, "--names requires at least one name"),
        (("--max-chars", "0"), 2, "--max-chars"),
        (("--max-chars", "many"), 2, "--max-chars"),
    ],
)
def test_mistakes(words: tuple[str, ...], code: int, message: str, flink_skills: FlinkSkills) -> None:
    said = flink_skills("prompt", ROOT / "skills", *words)
    assert (said.code, said.stdout) == (code, "")
    assert message in " ".join(said.stderr.split())


def test_sources_that_are_none(flink_skills: FlinkSkills, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for source in ("nowhere", "empty", "http://127.0.0.1:1/a.zip"):
        said = flink_skills("prompt", ROOT / "skills", source, "--names", "log-triage")
        assert said.code == 1, source
        assert source.rpartition("/")[2] in said.stderr


def test_strict_is_an_error_with_all_of_them(flink_skills: FlinkSkills, tmp_path: Path) -> None:
    for name in ("One", "Two"):
        write_skill(tmp_path / "s" / name)
    said = flink_skills("prompt", "s", "--set", "skills.strict=true")
    assert (said.code, said.stdout) == (1, "")
    assert "'One'" in said.stderr
    assert "'Two'" in said.stderr


def agent_file(folder: Path) -> str:
    (folder / "agent.yaml").write_text(
        "name: triage\nskill_names: [log-triage, memory-diagnosis]\nchat_model_setups:\n"
        "  all: {clazz: offline.setup}\n"
        "  one: {clazz: offline.setup, skill_names: [log-triage, slot-shortage]}\n"
    )
    return "agent.yaml"


@pytest.mark.row("B22")
@pytest.mark.parametrize(
    ("words", "names"),
    [
        ((), ["log-triage", "memory-diagnosis"]),
        (("--chat-model", "one"), ["log-triage"]),
        (("--names", "memory-diagnosis,slot-shortage"), ["memory-diagnosis"]),
    ],
)
def test_the_menu_of_an_agent(
    words: tuple[str, ...], names: list[str], flink_skills: FlinkSkills, tmp_path: Path
) -> None:
    menu = AgentSkillManager([str(ROOT / "skills")]).get_system_prompt(names)
    agent = agent_file(tmp_path)
    assert flink_skills("prompt", ROOT / "skills", "--agent", agent, *words).stdout == menu + "\n"


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        ((), 2, "a SOURCE or --agent is required"),
        (("--chat-model", "one"), 2, "a SOURCE or --agent is required"),
        ((ROOT / "skills", "--chat-model", "one"), 2, "--chat-model requires --agent"),
        (("--agent", "agent.yaml", "--profile", "full"), 2, "--profile and --agent cannot be combined"),
        ((ROOT / "skills", "--agent", "agent.yaml", "--chat-model", "on"), 1, "did you mean 'one'"),
        ((ROOT / "skills", "--agent", "agent.yaml", "--names", "log-tirage"), 1, "did you mean 'log-triage'"),
        (("--agent", "agent.yaml"), 1, "neither the job nor the agent has a skill source"),
    ],
)
def test_wrong_words_about_an_agent(
    words: tuple[str, ...], code: int, message: str, flink_skills: FlinkSkills, tmp_path: Path
) -> None:
    agent_file(tmp_path)
    said = flink_skills("prompt", *words)
    assert (said.code, said.stdout) == (code, "")
    assert message in said.stderr
