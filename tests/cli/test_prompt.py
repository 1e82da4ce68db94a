"""``flink-skills prompt``: the menu, to the character."""

from __future__ import annotations

import json
import urllib.request
from pathlib import Path
from typing import Any

import bpe_openai
import pytest

from flink_skills import AgentSkillManager, SkillConfig
from flink_skills.cli.look.prompt_request import first_request
from flink_skills.testing import Reply, Rule, ScriptedModelServer
from flink_skills.tools import PROFILES
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
        ((), 2, "--skills or --agent is required"),
        (("--chat-model", "one"), 2, "--skills or --agent is required"),
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


AGENT = """
name: desk
instructions: Triage the incident.
skill_names: [log-triage, slot-shortage]
output_type: {{cause: str, facts: dict}}
chat_model_setups:
  small:
    clazz: {provider}.setup
    base_url: {url}
    model: test-model
    strategy: {strategy}
    temperature: 0.5
    extra_body: {{seed: 7}}
"""
EVENT = {"id": "e1", "job": "Zahlungen, é", "restarts": 3}
ANSWER = {
    "native": '{"cause": "x", "facts": {}}',
    "json": '{"next": {"action": "answer", "arguments": {"content": {"cause": "x", "facts": {}}}}}',
}


#: The path of the API of each provider.
PATHS = {"openai-compatible": "chat/completions", "openai-responses": "responses", "anthropic": "messages"}


def sent_again(server: ScriptedModelServer, provider: str, body: str) -> None:
    """Send a printed body to the server, which compares the bytes of bodies."""
    request = urllib.request.Request(f"{server.url}/{PATHS[provider]}", body.removesuffix("\n").encode())
    with urllib.request.urlopen(request, timeout=30) as answer:
        assert answer.status == 200


@pytest.mark.parametrize("strategy", ["native", "json"])
@pytest.mark.parametrize("provider", PATHS)
def test_it_is_what_a_turn_sends(
    provider: str, strategy: str, flink_skills: FlinkSkills, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "k")
    monkeypatch.setenv("OPENAI_API_KEY", "k")
    with ScriptedModelServer([Rule(Reply(ANSWER[strategy]))]) as server:
        compare(provider, strategy, flink_skills, server, tmp_path)


def compare(
    provider: str, strategy: str, flink_skills: FlinkSkills, server: ScriptedModelServer, tmp_path: Path
) -> None:
    url = server.origin if provider == "anthropic" else server.url
    (tmp_path / "agent.yaml").write_text(AGENT.format(provider=provider, url=url, strategy=strategy))
    (tmp_path / "events.jsonl").write_text(json.dumps(EVENT) + "\n")
    ran = flink_skills(
        *("run", "agent.yaml", "--input", "events.jsonl", "--key", "id", "--skills", ROOT / "skills", "--local"),
        *("--output", "outputs.jsonl"),
    )
    assert ran.code == 0, ran.stderr
    assert json.loads((tmp_path / "outputs.jsonl").read_text())["output"] == {"cause": "x", "facts": {}}
    said = flink_skills("prompt", ROOT / "skills", "--agent", "agent.yaml", "--event", json.dumps(EVENT))
    assert said.code == 0, said.stderr
    sent_again(server, provider, said.stdout)
    assert server.requests[1] == server.requests[0]
    assert (server.stats()["distinct"], server.stats()["repeated"]) == (1, 1)
    assert f"{provider}:test-model: {len(said.stdout.encode()) - 1:,} bytes" in said.stderr
    assert ("input" if provider == "openai-responses" else "messages") in said.stderr


def test_a_model_without_an_agent(flink_skills: FlinkSkills, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    said = flink_skills("prompt", ROOT / "skills", "--model", "openai:gpt-x", "--event", "It fails.", "--stream")
    assert said.code == 0, said.stderr
    body = said.json
    assert body["model"] == "gpt-x"
    assert body["stream"] is True
    assert body["messages"][-1] == {"role": "user", "content": "It fails."}
    assert {tool["function"]["name"] for tool in body["tools"]} >= {"load_skill", "execute_shell_command"}


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (("--model", "groq:some-model"), 1, "requests of provider 'groq' are sent by another library"),
        (("--model", "offline"), 1, "requests of provider 'offline' are sent by another library"),
        (("--event", "It fails."), 2, "--event and --stream require --model PROVIDER:NAME or --agent AGENT"),
        (("--base-url", "http://localhost:1/v1"), 2, "--base-url requires --model PROVIDER:NAME"),
        (("--model", "openai:gpt-x", "--event", '{"job": '), 1, "--event is not valid JSON"),
        (("--model", "openai:gpt-x", "--format", "json"), 2, "--format json cannot be combined with --model"),
        (("--model", "openai:gpt-x", "--names", "log-tirage"), 1, "did you mean 'log-triage'"),
    ],
)
def test_mistakes_in_events(words: tuple[str, ...], code: int, message: str, flink_skills: FlinkSkills) -> None:
    said = flink_skills("prompt", ROOT / "skills", *words)
    assert (said.code, said.stdout) == (code, "")
    assert message in " ".join(said.stderr.split())


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
def test_mistakes_in_profiles(profile: str, message: str, flink_skills: FlinkSkills) -> None:
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
