"""Scripts that cannot run: ``validate`` reports them and executes nothing."""

from __future__ import annotations

import shutil
import zipfile
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import FlinkSkills
from tests.kit.skills import write_skill

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
