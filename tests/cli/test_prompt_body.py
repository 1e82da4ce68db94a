"""``flink-skills prompt --event``: the bytes of a request, as the API of a model receives them."""

from __future__ import annotations

import json
import urllib.request
from pathlib import Path

import pytest

from flink_skills.testing import Reply, Rule, ScriptedModelServer
from tests.cli.command import ROOT
from tests.cli.conftest import FlinkSkills

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
def test_mistakes(words: tuple[str, ...], code: int, message: str, flink_skills: FlinkSkills) -> None:
    said = flink_skills("prompt", ROOT / "skills", *words)
    assert (said.code, said.stdout) == (code, "")
    assert message in " ".join(said.stderr.split())
