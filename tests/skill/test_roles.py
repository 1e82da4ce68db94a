"""Roles of files: generated files, tests and proofs are not part of a skill, wherever its files come from."""

from __future__ import annotations

import hashlib
import io
import pickle
import tarfile
import zipfile
from pathlib import Path

import pytest

from flink_skills.errors import ConfigError, ResourceError
from flink_skills.manager import AgentSkillManager, SkillView
from flink_skills.skill import AgentSkill, Limits, Report, digest_of, find_skills, inspect_skill, load_folder
from tests.kit.skills import skill_text, write_skill

GENERATED = [
    "scripts/__pycache__/run.cpython-311.pyc",
    "scripts/run.pyc",
    "node_modules/left-pad/index.js",
    "scripts/node_modules/left-pad/SKILL.md",
    ".venv/bin/python",
    "env/pyvenv.cfg",
    "env/lib/site.py",
    ".git/config",
    ".DS_Store",
    "assets/._photo.png",
    "scripts/.run.py.swp",
    "SKILL.md~",
    ".#run.py",
    "#run.py#",
    "assets/~$report.docx",
    ".pytest_cache/v/cache/lastfailed",
    ".mypy_cache/3.11/a.json",
    ".ruff_cache/CACHEDIR.TAG",
    ".idea/workspace.xml",
    ".coverage",
    "tool.egg-info/PKG-INFO",
    "Thumbs.db",
]
# Names like those above, which authors use.
CONTENT = [
    "scripts/run.py",
    "assets/venv/README.md",
    "assets/build/a.txt",
    "dist/a.js",
    ".vscode/settings.json",
    "env/a.txt",
    "notes.bak",
    "a.log",
    ".env.example",
    ".hidden",
    "cache/x",
    "#1.md",
]


def load(folder: Path) -> AgentSkill:
    skill = load_folder(str(folder)).skill
    assert skill is not None
    return skill


def add(folder: Path, paths: list[str]) -> None:
    for path in paths:
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(f"content of {path}\n")


@pytest.mark.parametrize("path", GENERATED)
def test_a_generated_file_changes_neither_files_nor_digest(path: str, tmp_path: Path) -> None:
    clean, folder = write_skill(tmp_path / "clean", "greet"), write_skill(tmp_path / "greet")
    if path.startswith("env/"):
        add(folder, ["env/pyvenv.cfg"])
    add(folder, [path])
    skill = load(folder)
    assert skill.files.paths() == ("SKILL.md",)
    assert skill.digest == load(clean).digest
    assert list(skill.resources) == []
    with pytest.raises(ResourceError, match=r"not part of the skill|there is no file"):
        load(folder).files.read(path, 0, 10)


def test_names_that_authors_use_are_part_of_the_skill(tmp_path: Path) -> None:
    folder = write_skill(tmp_path / "greet")
    add(folder, CONTENT)
    skill = load(folder)
    assert set(skill.files.paths()) == {"SKILL.md", *CONTENT}
    assert "D07" not in {said.code for said in inspect_skill(skill, Limits())}


def test_a_link_to_a_generated_file_is_no_part_of_the_skill(tmp_path: Path) -> None:
    folder = write_skill(tmp_path / "greet")
    add(folder, ["node_modules/.bin/tool", "scripts/run.sh"])
    (folder / "scripts/tool").symlink_to("../node_modules/.bin/tool")
    (folder / "scripts/again.sh").symlink_to("run.sh")
    assert load(folder).files.paths() == ("SKILL.md", "scripts/again.sh", "scripts/run.sh")


def test_skills_in_generated_folders_are_not_found(tmp_path: Path) -> None:
    for name in ("a", ".venv/lib/b", "node_modules/c", ".cache/d", "__pycache__/e"):
        write_skill(tmp_path / name)
    assert [found.folder for found in find_skills(str(tmp_path), Report(), Limits())] == [str(tmp_path / "a")]


def test_generated_files_are_reported(tmp_path: Path) -> None:
    folder = write_skill(tmp_path / "greet", body="Run `scripts/__pycache__/run.pyc` and [this](node_modules/a.md).")
    add(folder, ["scripts/__pycache__/run.pyc", "scripts/a.pyc", "node_modules/a.md", ".venv/x", ".git/config"])
    found = inspect_skill(load(folder), Limits())
    generated = next(said for said in found if said.code == "D07")
    assert generated.severity == "info"
    for name in ("scripts/__pycache__", "scripts/a.pyc", "node_modules", ".venv"):
        assert repr(name) in generated.message
    assert ".git" not in generated.message
    named = sorted((said for said in found if said.code == "F20"), key=lambda said: said.message)
    assert [said.severity for said in named] == ["warning", "warning"]
    assert "'scripts/__pycache__/run.pyc' is a generated file" in named[1].message
    assert {said.severity for said in inspect_skill(load(folder), Limits(), strict=True) if said.code == "F20"} == {
        "error"
    }


def test_a_skill_made_in_code_has_no_generated_file() -> None:
    with pytest.raises(ConfigError, match="'__pycache__' is the name of a generated file"):
        AgentSkill("greet", "Greets.", resources={"scripts/__pycache__/a.pyc": "x"})


@pytest.mark.parametrize("form", ["folder", "zip", "tar"])
def test_every_source_omits_generated_files(form: str, tmp_path: Path) -> None:
    folder = write_skill(tmp_path / "skills/greet", scripts__run="1")
    clean = load(folder).digest
    add(folder, GENERATED)
    source = tmp_path / "skills"
    if form != "folder":
        source = tmp_path / f"skills.{form}"
        source.write_bytes(archive(tmp_path / "skills", form))
    manager = AgentSkillManager([str(source)], store_dir=str(tmp_path / "store"))
    (skill,) = manager.load_skills()
    assert (skill.digest, skill.files.paths()) == (clean, ("SKILL.md", "scripts/run"))
    text = manager.view().activate("greet").text
    assert "pyc" not in text
    assert "node_modules" not in text


def archive(folder: Path, form: str) -> bytes:
    buffer = io.BytesIO()
    files = {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}
    if form == "zip":
        with zipfile.ZipFile(buffer, "w") as packed:
            for name, data in files.items():
                packed.writestr(name, data)
    else:
        with tarfile.open(fileobj=buffer, mode="w") as tar:
            for name, data in files.items():
                info = tarfile.TarInfo(name)
                info.size = len(data)
                tar.addfile(info, io.BytesIO(data))
    return buffer.getvalue()


def test_a_refresh_ignores_generated_files(tmp_path: Path) -> None:
    folder = write_skill(tmp_path / "skills/greet")
    manager = AgentSkillManager([str(tmp_path / "skills")])
    before = manager.load_skills()
    manager.view().activate("greet")
    add(folder, GENERATED)
    manager.refresh()
    assert manager.load_skills()[0] is before[0]
    assert (folder / "SKILL.md").read_text() == skill_text("greet")


TESTS_AND_PROOFS = ["evals/evals.json", "evals/files/a.csv", "skill.oms.sig", "SKILL.md.asc", "skill.sigstore.json"]
FOR_PEOPLE = ["LICENSE", "LICENSE.txt", "CHANGELOG.md", "README.md", "README.zh-CN.md", "NOTICE", "skill-card.md"]
# Names like those above, which are for models.
FOR_MODELS = ["references/README.md", "assets/evals/a.json", "assets/key.asc", "security.md", "notice.md", "tests/a.py"]


@pytest.mark.parametrize("path", TESTS_AND_PROOFS)
def test_tests_and_proofs_are_neither_listed_nor_read_nor_in_the_digest(path: str, tmp_path: Path) -> None:
    clean, folder = write_skill(tmp_path / "clean", "greet"), write_skill(tmp_path / "greet")
    add(folder, [path, "run.sh"])
    (folder / "link.txt").symlink_to(path)
    add(clean, ["run.sh"])
    skill = load(folder)
    assert skill.digest == load(clean).digest
    view = SkillView([skill])
    assert path not in view.activate("greet").text
    for asked in (path, path.upper(), f"./{path}", "link.txt"):
        with pytest.raises(ResourceError, match=r"not part of the skill|there is no file|did not exist"):
            view.read_resource("greet", asked)
    made = AgentSkill("greet", "Does it.", "Do it.", {"run.sh": "content of run.sh\n", path: "42"})
    assert made.files.paths() == ("SKILL.md", "run.sh")
    with pytest.raises(ResourceError, match="not part of the skill"):
        made.files.read(path, 0, 10)
    assert pickle.loads(pickle.dumps(skill)) == skill


def test_files_for_people_are_read_and_not_listed(tmp_path: Path) -> None:
    folder = write_skill(tmp_path / "greet")
    add(folder, FOR_PEOPLE + FOR_MODELS)
    skill = load(folder)
    view = SkillView([skill])
    listed = view.activate("greet").text.partition("<skill_files>\n")[2].partition("\n</skill_files>")[0].split("\n")
    assert listed == sorted(FOR_MODELS)
    assert skill.docs == tuple(sorted(path for path in FOR_MODELS if path.endswith(".md")))
    for path in FOR_PEOPLE:
        assert view.read_resource("greet", path).text == f"content of {path}\n"
    assert set(skill.files.manifest()) == {"SKILL.md", *FOR_PEOPLE, *FOR_MODELS}


def test_tests_and_proofs_are_reported(tmp_path: Path) -> None:
    folder = write_skill(tmp_path / "greet", body="See [the answers](evals/evals.json) and `evals/other.json`.")
    add(folder, ["evals/evals.json", "skill.oms.sig"])
    found = inspect_skill(load(folder), Limits(), strict=True)
    said = [(one.code, one.severity, one.message) for one in found if one.code in ("D07", "D08", "F19", "F20")]
    assert ("D08", "info", "tests and proofs are not part of the skill: 'evals', 'skill.oms.sig'") in said
    assert ("F19", "info", "'evals/evals.json' is a test or a proof, which models do not read") in said
    assert "D07" not in [code for code, _, _ in said]


@pytest.mark.parametrize("generated", [False, True])
def test_a_digest_of_an_earlier_rule_is_recognized(generated: bool, tmp_path: Path) -> None:
    folder = write_skill(tmp_path / "greet")
    add(folder, [*TESTS_AND_PROOFS, *(["scripts/__pycache__/a.pyc"] if generated else [])])
    earlier = digest_of(
        {
            str(path.relative_to(folder)): (path.stat().st_size, hashlib.sha256(path.read_bytes()).hexdigest())
            for path in folder.rglob("*")
            if path.is_file()
        }
    )
    skill = load(folder)
    assert skill.digest != earlier
    assert skill.has_digest(earlier)
    assert skill.has_digest(skill.digest)
    assert not skill.has_digest("0" * 64)


def test_a_folder_with_tools_and_without_a_skill_file_is_reported(tmp_path: Path) -> None:
    for name in ("weather/tools.py", "package/tools.py", "package/__init__.py", "skill/SKILL.md", "skill/lib/tools.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("")
    report = Report()
    assert [found.folder for found in find_skills(str(tmp_path), report, Limits())] == [str(tmp_path / "skill")]
    said = [(one.code, one.path, one.message) for one in report.diagnostics]
    assert said == [("D09", f"{tmp_path}/weather", "the folder has tools.py and no SKILL.md, so it is not read")]
