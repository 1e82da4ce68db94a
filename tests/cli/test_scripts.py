"""Scripts that cannot run: ``validate`` reports them and executes nothing."""

from __future__ import annotations

import io
import json
import shutil
import string
import sys
import tracemalloc
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from flink_skills.errors import ResourceError
from flink_skills.manager import AgentSkillManager
from flink_skills.skill import AgentSkill
from tests.cli.conftest import FlinkSkills
from tests.kit.skills import skill_text, write_skill

needs_bash = pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash")


def write(folder: Path, files: dict[str, str], body: str = "Do it.") -> Path:
    write_skill(folder, body=body)
    for path, text in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)
    return folder


def found(flink_skills: FlinkSkills, *words: str) -> list[Any]:
    said = flink_skills("validate", "greet", "--format", "json", *words).json
    return [each for each in said["diagnostics"] if each["code"].startswith("X")]


@pytest.mark.parametrize(
    ("path", "text", "line", "message"),
    [
        ("scripts/a.py", "import os\ndef f(:\n", 2, "invalid syntax"),
        ("scripts/deep/a.py", "x = (\n", 1, "'(' was never closed"),
        ("bin/a", "#!/usr/bin/env python3\nif True\n    pass\n", 2, "expected ':'"),
        ("scripts/a.py", "print 'x'\n", 1, "Missing parentheses"),
        ("scripts/a.sh", "#!/bin/sh\nif true; then\n  echo x\ndone\n", 4, ""),
        ("scripts/a.sh", "echo x\nfi\n", 2, ""),
        pytest.param("scripts/a.bash", "a=(1 2\n", 1, "", marks=needs_bash),
        pytest.param("scripts/a.sh", "#!/usr/bin/env bash\nx\nfor i in; do\n", 4, "", marks=needs_bash),
    ],
)
def test_a_script_with_a_syntax_error_is_reported(
    path: str, text: str, line: int, message: str, flink_skills: FlinkSkills, tmp_path: Path
) -> None:
    write(tmp_path / "greet", {path: text})
    (said,) = found(flink_skills)
    assert (said["code"], said["severity"], said["path"]) == ("X02", "warning", str(tmp_path / "greet" / path))
    assert said["line"] in (line, line + 1)  # shells differ in where an unclosed part ends
    assert f"{path!r} has a syntax error" in said["message"]
    assert message in said["message"]
    strict = flink_skills("validate", "greet", "--strict")
    assert (strict.code, "error X02" in strict.stdout) == (1, True)


def test_scripts_that_are_right_and_other_files_are_not_reported(flink_skills: FlinkSkills, tmp_path: Path) -> None:
    files = {
        "scripts/a.py": "#!/usr/bin/env python3\nmatch 1:\n    case _:\n        print('\\d')\n",
        "scripts/old.py": "#!/usr/bin/python2\nprint 'x'\n",
        "scripts/a.sh": "#!/bin/sh\nif true; then echo x; fi\n",
        "scripts/b.sh": "#!/bin/bash\nshopt -s extglob\nrm -f !(a|b)\n[[ $x =~ a(b) ]] && y=(1 2) || z=<(true)\n",
        "scripts/c.sh": "#!/usr/bin/env zsh\nfor x (a b) echo $x\n",
        "scripts/template.py.tmpl": "{{ x }}\n",
        "assets/part.py": "def f(:\n",
        "scripts/a.js": "(\n",
        "scripts/empty.py": "",
    }
    write(tmp_path / "greet", files)
    assert found(flink_skills, "--strict") == []


@pytest.mark.parametrize(
    "body",
    [
        "```bash\n./scripts/run.sh\n```",
        "```\nscripts/run.sh --all x\n```",
        "Run `./scripts/run.sh`.",
        "Run `scripts/run.sh input.csv`.",
        "```bash\ncd x && $SKILL_DIR/scripts/run.sh | sort\n```",
        "```console\n$ A=1 __BASE_DIR__/scripts/run.sh\n```",
    ],
)
def test_a_script_that_cannot_be_run_directly_is_reported(body: str, flink_skills: FlinkSkills, tmp_path: Path) -> None:
    folder = write(tmp_path / "greet", {"scripts/run.sh": "#!/bin/sh\necho x\n"}, body)
    (said,) = found(flink_skills)
    assert (said["code"], said["severity"]) == ("X01", "warning")
    assert "chmod +x" in said["message"]
    assert flink_skills("validate", "greet", "--strict").code == 1
    (folder / "scripts/run.sh").chmod(0o755)
    assert found(flink_skills, "--strict") == []


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ("```bash\nbash scripts/run.sh x\n```", "#!/bin/sh\n"),
        ("```bash\nsh ./scripts/run.sh\n```", "#!/bin/sh\n"),
        ("`scripts/run.sh` is for later.", "#!/bin/sh\n"),
        ("```\nscripts/run.sh   # the script\nscripts/run.sh - the script\n```", "#!/bin/sh\n"),
        ("See ./scripts/run.sh for details.", "#!/bin/sh\n"),
        ("```bash\n./scripts/run.sh\n```", "echo x\n"),
    ],
)
def test_a_script_that_is_not_run_directly_needs_no_execute_bit(
    body: str, text: str, flink_skills: FlinkSkills, tmp_path: Path
) -> None:
    write(tmp_path / "greet", {"scripts/run.sh": text}, body)
    assert found(flink_skills, "--strict") == []


def test_an_archive_without_permissions_is_reported(flink_skills: FlinkSkills, tmp_path: Path) -> None:
    folder = write(tmp_path / "greet", {"scripts/run.sh": "#!/bin/sh\n"}, "```bash\n./scripts/run.sh\n```")
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        for path in ("SKILL.md", "scripts/run.sh"):
            archive.writestr(f"greet/{path}", (folder / path).read_text())
    said = flink_skills("validate", "a.zip")
    assert "a.zip!/greet/scripts/run.sh: warning X01" in said.stdout


def test_nothing_of_a_skill_is_executed(
    flink_skills: FlinkSkills, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mark, first = tmp_path / "mark", tmp_path / "first.sh"
    first.write_text(f"touch {mark}\n")
    monkeypatch.setenv("BASH_ENV", str(first))
    monkeypatch.setenv("ENV", str(first))
    touch = f"touch {mark}"
    shell = (
        f"{touch}\nx=$({touch})\n`{touch}`\ntrap '{touch}' EXIT DEBUG ERR\n: ${{x:=$({touch})}}\na[$({touch})]=1\n"
        f"cat <<E\n$({touch})\nE\nset +n\n{touch}\neval '{touch}'\nexec {touch}\n"
    )
    python = f"import os\nos.system({touch!r})\n@os.system({touch!r})\ndef f(): pass\n"
    files = {
        "scripts/a.sh": "#!/bin/sh\n" + shell,
        "scripts/b.sh": "#!/bin/bash\n" + shell,
        "scripts/c.bash": shell + "fi\n",
        "scripts/d.sh": shell + "fi\n",
        "scripts/a.py": python,
        "scripts/b.py": python + "(\n",
    }
    write(tmp_path / "greet", files, "```bash\n./scripts/a.sh\n./scripts/a.py\n```")
    assert {said["code"] for said in found(flink_skills)} == {"X01", "X02"}
    assert not mark.exists()


def test_a_long_first_line_takes_no_cubic_time(flink_skills: FlinkSkills, tmp_path: Path) -> None:
    write(tmp_path / "greet", {"scripts/a.py": "#!" + "/" * 100_000 + "\nif True\n"})
    assert [said["code"] for said in found(flink_skills)] == ["X02"]


@pytest.mark.parametrize(("expressions", "codes"), [(2_000, ["X02"]), (200_000, [])])
def test_a_script_with_a_long_f_string_is_not_parsed(
    expressions: int, codes: list[str], flink_skills: FlinkSkills, tmp_path: Path
) -> None:
    """Python 3.11 takes a minute for 200,000 expressions."""
    write(tmp_path / "greet", {"scripts/a.py": f"x = f'{'{x}' * expressions}'\nif True\n"})
    assert [said["code"] for said in found(flink_skills)] == codes


@pytest.mark.parametrize(
    ("path", "data", "said"),
    [
        ("scripts/run.sh", b"#!/bin/sh\r\necho\r\n", [("X03", 1)]),
        ("scripts/run.sh", b"#!/bin/sh\necho\r\n", [("X03", 2)]),
        ("scripts/plain.sh", b"echo\r\n", [("X03", 1)]),
        ("bin/run", b"#!/usr/bin/env python3\r\nprint()\r\n", [("X03", 1)]),
        ("scripts/run.py", b"print()\r\n", []),
        ("scripts/run.sh", b"#!/bin/sh\necho\n", []),
        ("scripts/run.py", "print()\n".encode("utf-16"), [("L16", 0)]),
        ("references/a.md", "Text.\n".encode("utf-16-le"), [("L16", 0)]),
        ("assets/a.bin", b"\xff\xfe\x00\x01", []),
    ],
)
def test_line_ends_and_encodings_of_other_systems_are_reported(
    path: str, data: bytes, said: list[tuple[str, int]], flink_skills: FlinkSkills, tmp_path: Path
) -> None:
    folder = write_skill(tmp_path / "greet")
    (folder / path).parent.mkdir()
    (folder / path).write_bytes(data)
    (folder / path).chmod(0o755)
    report = flink_skills("validate", "--format", "json", str(folder)).json
    found = [one for one in report["diagnostics"] if one["code"] in ("X03", "L16")]
    assert [(one["code"], one["line"]) for one in found] == said
    assert all(one["severity"] == "warning" and one["path"] == f"{folder}/{path}" for one in found)


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


def write_secret(folder: Path, files: dict[str, str]) -> Path:
    write_skill(folder)
    for path, text in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)
    return folder


CASES = [*((path, "x=1\n") for path in BY_NAME), *BY_CONTENT.items()]


@pytest.mark.parametrize(("path", "text"), CASES, ids=[path for path, _ in CASES])
def test_a_secret_is_reported_and_not_packed(path: str, text: str, flink_skills: FlinkSkills, tmp_path: Path) -> None:
    write_secret(tmp_path / "greet", {path: text})
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
    write_secret(tmp_path / "greet", {path: text, "plain.md": "plain\n"})
    view = AgentSkillManager([str(tmp_path)]).view()
    for asked in (path, f"./{path}", path.replace("/", "//")):
        for offset in (0, 2):
            with pytest.raises(ResourceError, match="models do not read it"):
                view.read_resource("greet", asked, offset)
    assert view.read_resource("greet", "plain.md").text == "plain\n"
    if path in BY_NAME:
        assert f"\n{path}\n" not in view.activate("greet").text


def test_what_looks_alike_is_no_secret(flink_skills: FlinkSkills, tmp_path: Path) -> None:
    write_secret(tmp_path / "greet", NO_SECRETS)
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
    write_secret(
        tmp_path / "greet", {"scripts/__pycache__/a.pyc": "x", "node_modules/b/c.js": "x", "scripts/a.py": "1"}
    )
    said = flink_skills("pack", "greet", "-o", "a.zip")
    assert said.code == 0
    assert "info D07: generated files are not part of the skill: 'node_modules', 'scripts/__pycache__'" in said.stderr
    with zipfile.ZipFile(tmp_path / "a.zip") as archive:
        assert archive.namelist() == ["greet/SKILL.md", "greet/scripts/a.py"]


NAMES = ["a", "b", "c"]


class Watched(io.StringIO):
    """A standard output that calls ``at_first`` when something is written for the first time."""

    encoding = "utf-8"

    def __init__(self, expected: str, at_first: Callable[[], object]) -> None:
        super().__init__()
        self._expected = expected
        self._at_first = at_first
        self._seen = False

    def write(self, text: str) -> int:
        if not self._seen and self._expected in text:
            self._seen = True
            self._at_first()
        return super().write(text)


@pytest.mark.parametrize("form", ["text", "json"])
def test_problems_are_printed_while_skills_are_read(
    form: str, flink_skills: FlinkSkills, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in NAMES:
        write_skill(tmp_path / "skills" / name)
        (tmp_path / "skills" / name / "SKILL.md").write_text(skill_text(name, more=f"more-of-{name}: x\n"))
    last = tmp_path / "skills/c/SKILL.md"
    output = Watched("more-of-a", lambda: last.write_text(skill_text("c", more="written-later: x\n")))
    monkeypatch.setattr(sys, "stdout", output)
    flink_skills("validate", "skills", "--format", form)
    assert "more-of-b" in output.getvalue()
    assert "written-later" in output.getvalue()
    if form == "json":
        data = json.loads(output.getvalue())
        assert list(data) == ["diagnostics", "skills", "summary"]
        assert [skill["name"] for skill in data["skills"]] == NAMES


def test_json_without_problems_has_empty_lists(flink_skills: FlinkSkills, tmp_path: Path) -> None:
    write_skill(tmp_path / "a")
    assert flink_skills("validate", "a", "--format", "json").json["diagnostics"] == []
    (tmp_path / "empty").mkdir()
    said = flink_skills("validate", "empty", "--format", "json")
    assert (said.code, said.json["skills"], said.json["summary"]["found"]) == (1, [], 0)
    assert [found["code"] for found in said.json["diagnostics"]] == ["D04"]


@pytest.mark.parametrize("form", ["text", "json"])
def test_memory_does_not_grow_with_the_files_of_skills(form: str, flink_skills: FlinkSkills, tmp_path: Path) -> None:
    def write(folder: Path, count: int) -> None:
        for number in range(count):
            skill = write_skill(folder / f"s{number}", body="Text.\n" * 2_000)
            for file in range(40):
                (skill / f"file-{file}-{'x' * 100}.md").write_text("x")

    def peak(folder: str) -> int:
        tracemalloc.start()
        try:
            flink_skills("validate", folder, "--format", form)
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    write(tmp_path / "few", 20)
    write(tmp_path / "many", 220)
    flink_skills("validate", "few", "--format", form)  # imports
    # 8,000 more files: their list alone takes 3 MB.
    assert peak("many") - peak("few") < 1_000_000
