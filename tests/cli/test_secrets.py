"""Files that look like secrets: ``validate`` reports them, ``pack`` refuses them, and no model reads them."""

from __future__ import annotations

import string
import zipfile
from pathlib import Path

import pytest

from flink_skills.errors import ResourceError
from flink_skills.manager import AgentSkillManager
from flink_skills.skill import AgentSkill
from tests.cli.conftest import FlinkSkills
from tests.kit.skills import write_skill

# Parts that scanners would find if they were written in one piece.
RANDOM = "q7Rk2LmZ9xWb4TnY8cVd3HsJ6fGp1Ae5UoQw"
BASE64 = "b3BlbnNzaC1rZXktdjEAAAAABG5vbmUAAAAEbm9uZQAAAAAAAAABAAAAMwAAAAtzc2gt"
HEADER = "-----BEGIN {} KEY-----"
BY_NAME = [
    ".env",
    ".env.production",
    "scripts/.env.local",
    ".ssh/config",
    ".aws/credentials",
    ".kube/config",
    "id_rsa",
    "keys/id_ed25519",
    ".netrc",
    ".git-credentials",
    ".pypirc",
    "store.p12",
    "a.jks",
    "passwords.kdbx",
    "kept.keystore",
]
BY_CONTENT = {
    "server.pem": "x=1\n",
    "a/key.txt": HEADER.format("OPENSSH PRIVATE") + f"\n{BASE64}\n",
    "notes.md": "Use this:\n\n    " + HEADER.format("RSA PRIVATE") + f"\n    {BASE64}\n",
    "account.json": '{"private_key": "' + HEADER.format("PRIVATE") + f'\\n{BASE64}\\n"}}',
    ".npmrc": f"//registry.example.org/:_authToken={RANDOM}\n",
    "a.py": f'TOKEN = "ghp_{RANDOM}"\n',
    "b.sh": "export AWS_ACCESS_KEY_ID=AKIA" + "Q3EGRTW7ZX2LMN5P\n",
    "c.yaml": f"key: sk-proj-{RANDOM}T3BlbkFJ{RANDOM}\n",
    "d.txt": f"https://hooks.slack.com/services/T0A1B2C3D/B0Z9Y8X7W/{RANDOM[:24]}\n",
    "e.txt": f"glpat-{RANDOM[:20]}",
    "references/f.md": f"sk_live_{RANDOM[:24]} ",
}
NO_SECRETS = {
    ".env.example": "API_KEY=\n",
    ".env.local.sample": "API_KEY=\n",
    "id_rsa.pub": "ssh-rsa AAAA\n",
    "ca.pem": "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n",
    "public.pem": "-----BEGIN PUBLIC KEY-----\nMIIB\n-----END PUBLIC KEY-----\n",
    "references/keys.md": "Paste it:\n" + HEADER.format("PRIVATE") + "\nYOUR KEY\n",
    "references/aws.md": "AKIAIOSFODNN7EXAMPLE, ghp_" + 36 * "x" + ", ghp_" + (string.digits * 4)[:36] + "\n",
    ".npmrc": "//packages.example/:_authToken=${NPM_TOKEN}\n",
    "environment.md": "Set .env\n",
    "src/env.py": "import os\n",
}


def write(folder: Path, files: dict[str, str]) -> Path:
    write_skill(folder)
    for path, text in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)
    return folder


CASES = [*((path, "x=1\n") for path in BY_NAME), *BY_CONTENT.items()]


@pytest.mark.parametrize(("path", "text"), CASES, ids=[path for path, _ in CASES])
def test_a_secret_is_reported_and_not_packed(path: str, text: str, flink_skills: FlinkSkills, tmp_path: Path) -> None:
    write(tmp_path / "greet", {path: text})
    said = flink_skills("validate", "greet", "--format", "json")
    (found,) = [each for each in said.json["diagnostics"] if each["code"] == "S13"]
    assert (said.code, found["severity"]) == (0, "warning")
    assert found["path"] == str(tmp_path / "greet" / path)
    assert repr(path) in found["message"]
    assert RANDOM[:20] not in said.stdout
    strict = flink_skills("validate", "greet", "--strict")
    assert (strict.code, "error S13" in strict.stdout) == (1, True)
    packed = flink_skills("pack", "greet", "-o", "a.zip")
    assert (packed.code, (tmp_path / "a.zip").exists()) == (1, False)
    assert "error S13" in packed.stderr
    assert "--allow-secrets" in packed.stderr
    allowed = flink_skills("pack", "greet", "-o", "a.zip", "--allow-secrets")
    assert (allowed.code, "warning S13" in allowed.stderr) == (0, True)
    with zipfile.ZipFile(tmp_path / "a.zip") as archive:
        assert f"greet/{path}" in archive.namelist()


@pytest.mark.parametrize(("path", "text"), CASES, ids=[path for path, _ in CASES])
def test_a_model_does_not_read_a_secret(path: str, text: str, tmp_path: Path) -> None:
    write(tmp_path / "greet", {path: text, "plain.md": "plain\n"})
    view = AgentSkillManager([str(tmp_path)]).view()
    for asked in (path, f"./{path}", path.replace("/", "//")):
        for offset in (0, 2):
            with pytest.raises(ResourceError, match="models do not read it"):
                view.read_resource("greet", asked, offset)
    assert view.read_resource("greet", "plain.md").text == "plain\n"
    if path in BY_NAME:
        assert f"\n{path}\n" not in view.activate("greet").text


def test_what_looks_alike_is_no_secret(flink_skills: FlinkSkills, tmp_path: Path) -> None:
    write(tmp_path / "greet", NO_SECRETS)
    said = flink_skills("validate", "greet", "--format", "json").json
    assert [each for each in said["diagnostics"] if each["code"] == "S13"] == []
    assert flink_skills("pack", "greet").code == 0
    view = AgentSkillManager([str(tmp_path)]).view()
    for path, text in NO_SECRETS.items():
        assert view.read_resource("greet", path).text == text


def test_a_secret_in_the_skill_file_is_reported_with_its_line(flink_skills: FlinkSkills, tmp_path: Path) -> None:
    write_skill(tmp_path / "greet", body=f"Do it.\n\nUse ghp_{RANDOM}.")
    said = flink_skills("validate", "greet")
    assert "SKILL.md:7: warning S13: 'SKILL.md' has a GitHub token" in said.stdout
    assert "Do it." in AgentSkillManager([str(tmp_path)]).view().activate("greet").text


def test_a_secret_of_a_skill_made_in_code_is_not_read() -> None:
    skill = AgentSkill("greet", "Greets.", resources={".env": "a=1", "a.md": "a"})
    view = AgentSkillManager(skills=[skill]).view()
    with pytest.raises(ResourceError, match=r"'\.env' is named like a file with environment variables"):
        view.read_resource("greet", ".env")


def test_packing_tells_what_it_omits(flink_skills: FlinkSkills, tmp_path: Path) -> None:
    write(tmp_path / "greet", {"scripts/__pycache__/a.pyc": "x", "node_modules/b/c.js": "x", "scripts/a.py": "1"})
    said = flink_skills("pack", "greet", "-o", "a.zip")
    assert said.code == 0
    assert "info D07: generated files are not part of the skill: 'node_modules', 'scripts/__pycache__'" in said.stderr
    with zipfile.ZipFile(tmp_path / "a.zip") as archive:
        assert archive.namelist() == ["greet/SKILL.md", "greet/scripts/a.py"]
