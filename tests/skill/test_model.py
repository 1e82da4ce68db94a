"""AgentSkill as data: validation, dumps, equality, copies, pickles, and as a field of a pydantic model."""

import copy
import enum
import pickle
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel, ValidationError

from flink_skills.errors import ConfigError, ResourceError
from flink_skills.prompts import Prompt
from flink_skills.skill import AgentSkill, Limits, load_folder
from tests.kit.skills import write_skill

SKILL = AgentSkill(
    "greet",
    "Says hello.",
    "Say hello.",
    {"scripts/run.sh": "echo hi\n", "references/a.md": "Hü"},
    license="MIT",
    compatibility="Linux",
    metadata={"team": "a"},
    allowed_tools=("Bash(git *)", "Read"),
    extra={"os": ["linux"], "nested": {"a": 1}},
)
BINARY = b"\x89PNG\xff\x00"


def loaded(folder: Path) -> AgentSkill:
    skill = load_folder(str(folder)).skill
    assert skill is not None
    return skill


def folder_skill(tmp_path: Path, name: str = "greet") -> Path:
    folder = write_skill(tmp_path / name)
    # Neither the order of the fields nor the comment is what to_markdown writes.
    (folder / "SKILL.md").write_text(f"---\ndescription: Says: hello.\n# why\nname: {name}\n---\n\n\nHi.\n\n")
    (folder / "scripts").mkdir()
    (folder / "scripts" / "run.sh").write_text("#!/bin/sh\necho hi\n")
    return folder


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"name": 3}, "skill name 3: expected a string, got int"),
        ({"name": None}, "expected a string, got None"),
        ({"name": "a" * 65}, "65 characters. Use at most 64"),
        ({"description": " "}, "the description is empty"),
        ({"description": None}, "description must be a string, got None"),
        ({"description": "x" * 1025}, "1025 characters. Use at most 1024"),
        ({"instructions": 1}, "instructions must be a string, got int"),
        ({"instructions": "x" * (1 << 20)}, "the skill file has .* bytes. The limit is 1048576"),
        ({"instructions": "\ud800"}, "not valid Unicode"),
        ({"compatibility": "x" * 501}, "501 characters. Use at most 500"),
        ({"license": 1}, "license must be a string"),
        ({"metadata": {"a": 1}}, "metadata 'a' must be a string, got int"),
        ({"metadata": "a"}, "metadata must be a mapping, got str"),
        ({"allowed_tools": "Bash"}, r"allowed_tools must be a list of tool names, such as \['Bash'\]"),
        ({"extra": {"name": "b"}}, "extra cannot hold 'name'"),
        ({"extra": {"a": object()}}, "extra must hold JSON values only"),
        ({"resources": ["a"]}, "resources must be a mapping, got list"),
        ({"resources": {"a": b"x"}}, "resources 'a' must be a string, got bytes"),
        ({"resources": {1: "x"}}, "resources has the key 1"),
        ({"resources": {"../a": "x"}}, "must not contain '..'"),
        ({"resources": {"sub/SKILL.md": "x"}}, "this would be another skill"),
        ({"resources": {"a": "x", "./a": "y"}}, "this path appears twice"),
        ({"resources": {"a": "x", "a/b": "y"}}, "'a' is a file and a directory"),
        ({"resources": {".git/config": "x"}}, "'.git' is the name of a generated file"),
        ({"resources": {"\ud800": "x"}}, "not valid Unicode"),
        ({"resources": {"a" * 256: "x"}}, "more than 255 bytes"),
    ],
)
def test_values_that_no_skill_can_have(values: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        AgentSkill(**{"name": "greet", "description": "Says hello."} | values)


def test_a_dump_has_what_is_set() -> None:
    assert AgentSkill("a", "Does a.").model_dump() == {
        "name": "a",
        "description": "Does a.",
        "instructions": "",
        "resources": {},
    }
    assert SKILL.model_dump() == {
        "name": "greet",
        "description": "Says hello.",
        "instructions": "Say hello.",
        "resources": {"scripts/run.sh": "echo hi\n", "references/a.md": "Hü"},
        "license": "MIT",
        "compatibility": "Linux",
        "metadata": {"team": "a"},
        "allowed_tools": ("Bash(git *)", "Read"),
        "extra": {"os": ["linux"], "nested": {"a": 1}},
    }
    assert SKILL.model_dump(mode="json")["allowed_tools"] == ["Bash(git *)", "Read"]


@pytest.mark.parametrize(
    "skill", [SKILL, AgentSkill("a", "Does a."), AgentSkill("a", "b", "\n\nx\n\n", allowed_tools=())]
)
def test_round_trips_keep_the_digest(skill: AgentSkill) -> None:
    for again in (
        AgentSkill.model_validate(skill.model_dump()),
        AgentSkill.model_validate(skill.model_dump(mode="json")),
        AgentSkill.model_validate_json(skill.model_dump_json()),
        AgentSkill.model_validate_json(skill.model_dump_json(indent=2).encode()),
        pickle.loads(pickle.dumps(skill)),
        copy.copy(skill),
        copy.deepcopy(skill),
        skill.model_copy(),
    ):
        assert again.digest == skill.digest
        assert (again, again.instructions, again.model_dump()) == (skill, skill.instructions, skill.model_dump())
    assert AgentSkill.model_validate(skill) is skill


def test_round_trips_of_a_folder_keep_the_digest(tmp_path: Path) -> None:
    skill = loaded(folder_skill(tmp_path))
    data = skill.model_dump(mode="json")
    assert data["skill_file"]["path"] == "SKILL.md"
    again = AgentSkill.model_validate(data)
    assert again == skill
    assert (again.path, again.instructions, again.description) == (None, "Hi.", "Says: hello.")
    assert again.model_dump(mode="json") == data


def test_round_trips_of_a_file_without_front_matter(tmp_path: Path) -> None:
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "skill.md").write_text("\ufeff# Takes notes\r\n\r\nWrite.")
    skill = load_folder(str(tmp_path / "notes"), format="heading").skill
    assert skill is not None
    again = AgentSkill.model_validate_json(skill.model_dump_json())
    assert again == skill == pickle.loads(pickle.dumps(skill))
    assert (again.form, again.files.skill_file) == ("heading", "skill.md")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"description": "Other."}, "skill_file has another description than the skill"),
        ({"instructions": "Other."}, "skill_file has other instructions than the skill"),
        ({"skill_file": {"path": "x.md", "text": ""}}, "Use SKILL.md"),
        ({"skill_file": "text"}, "must be a mapping with the strings"),
        ({"skill_file": {"path": "SKILL.md", "text": "---\nname: [\n---\n"}}, "is not a valid skill file"),
    ],
)
def test_a_skill_file_that_contradicts_the_fields(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    data = loaded(folder_skill(tmp_path)).model_dump()
    with pytest.raises(ConfigError, match=message):
        AgentSkill.model_validate(data | change)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"name": "a"}, "'description' is missing"),
        ({"name": "a", "description": "b", "instruction": "c"}, "'instruction' is not a valid key; did you mean"),
        (["a"], "expected a mapping or an AgentSkill, got list"),
    ],
)
def test_data_that_is_no_skill(data: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        AgentSkill.model_validate(data)


def test_text_that_is_not_json() -> None:
    with pytest.raises(ConfigError, match="not valid JSON"):
        AgentSkill.model_validate_json("{")


def test_a_binary_file_is_named_and_not_lost(tmp_path: Path) -> None:
    folder = folder_skill(tmp_path)
    (folder / "logo.png").write_bytes(BINARY)
    skill = loaded(folder)
    with pytest.raises(ResourceError, match=r"'logo\.png' is not UTF-8 text"):
        skill.model_dump()
    again = pickle.loads(pickle.dumps(skill))
    assert again == skill
    assert again.files.read("logo.png", 0, 100).data == BINARY


def test_a_pickle_does_not_need_the_folder(tmp_path: Path) -> None:
    folder = folder_skill(tmp_path)
    skill = loaded(folder)
    data, digest = pickle.dumps(skill), skill.digest
    (folder / "SKILL.md").unlink()
    again = pickle.loads(data)
    assert (again.digest, again.path, again.origin) == (digest, None, str(folder))
    assert again.resources["scripts/run.sh"].startswith("#!/bin/sh")


def test_a_skill_that_is_too_large_is_not_dumped(tmp_path: Path) -> None:
    folder = folder_skill(tmp_path)
    with (folder / "big.txt").open("wb") as file:
        file.truncate((64 << 20) + 1)
    for use in (AgentSkill.model_dump, pickle.dumps):
        with pytest.raises(ResourceError, match=r"'big\.txt' has 67108865 bytes"):
            use(loaded(folder))


def test_a_folder_that_is_gone_is_an_error(tmp_path: Path) -> None:
    folder = folder_skill(tmp_path)
    skill = loaded(folder)
    shutil.rmtree(folder)
    with pytest.raises(ResourceError, match=r"SKILL\.md"):
        skill.model_dump()
    with pytest.raises(ResourceError, match=r"the skill file SKILL\.md is missing"):
        pickle.dumps(skill)


def test_more_files_than_a_listing_has_are_an_error(tmp_path: Path) -> None:
    folder = folder_skill(tmp_path)
    (folder / "a.txt").write_text("a")
    skill = load_folder(str(folder), limits=Limits(skill_files=2)).skill
    assert skill is not None
    with pytest.raises(ResourceError, match="2 files or more"):
        skill.model_dump()


def test_values_of_subclasses_and_later_changes() -> None:
    class Words(str, enum.Enum):
        HELLO = "Says hello."

    extra: dict[str, Any] = {"os": ["linux"]}
    skill = AgentSkill("greet", Words.HELLO, Prompt("Be brief."), metadata={"a": Words.HELLO}, extra=extra)
    digest = skill.digest
    extra["os"].append("plan9")
    assert AgentSkill.model_validate(skill.model_dump()).digest == digest
    assert type(skill.description) is str
    assert skill.model_dump()["metadata"] == {"a": "Says hello."}


def test_equality_and_hash_by_content(tmp_path: Path) -> None:
    skill = loaded(folder_skill(tmp_path / "one"))
    same = loaded(folder_skill(tmp_path / "two"))
    other = skill.model_copy(update={"description": "Other."})
    assert skill == same
    assert hash(skill) == hash(same)
    assert {skill, same} == {skill}
    assert skill != other
    assert skill != "greet"
    nameless = []
    for name in "ab":
        (tmp_path / name).mkdir()
        (tmp_path / name / "SKILL.md").write_text("---\ndescription: d\n---\n")
        nameless.append(loaded(tmp_path / name))
    assert nameless[0] != nameless[1]


def test_copies_keep_the_folder_and_stay_lazy(tmp_path: Path) -> None:
    folder = folder_skill(tmp_path)
    skill = loaded(folder)
    for again in (copy.copy(skill), copy.deepcopy(skill), skill.model_copy()):
        assert again is not skill
        assert again.path == str(folder)
    changed = skill.model_copy(update={"description": "Other.", "resources": {"a": "b"}})
    assert (changed.description, changed.instructions, dict(changed.resources)) == ("Other.", "Hi.", {"a": "b"})
    with pytest.raises(ConfigError, match="description is empty"):
        skill.model_copy(update={"description": ""})


def test_a_skill_as_a_field_of_a_pydantic_model() -> None:
    class Team(BaseModel):
        skill: AgentSkill
        others: list[AgentSkill] = []

    team = Team.model_validate({"skill": SKILL.model_dump(), "others": [SKILL]})
    assert team.skill == SKILL
    assert team.others[0] is SKILL
    assert team.model_dump()["skill"] == SKILL.model_dump()
    assert Team.model_validate_json(team.model_dump_json()) == team
    with pytest.raises(ValidationError, match="the description is empty"):
        Team.model_validate({"skill": {"name": "a", "description": ""}})
    schema = Team.model_json_schema()
    assert schema["properties"]["skill"]["required"] == ["name", "description"]
    assert Team.model_json_schema(mode="serialization")["properties"]["skill"] == AgentSkill.model_json_schema()


def test_the_schema_describes_dumps(tmp_path: Path) -> None:
    import jsonschema

    for skill in (SKILL, loaded(folder_skill(tmp_path))):
        jsonschema.validate(skill.model_dump(mode="json"), AgentSkill.model_json_schema())
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({"name": "a"}, AgentSkill.model_json_schema())


def test_skills_without_these_methods_need_no_pydantic() -> None:
    code = (
        "import sys; from flink_skills.skill import AgentSkill, load_folder\n"
        "assert AgentSkill('a', 'Does a.') == AgentSkill('a', 'Does a.')\n"
        "assert not {'pydantic', 'pydantic_core'} & sys.modules.keys()"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("name", ["name", "description", "instructions", "resources", "metadata", "path", "digest"])
def test_a_skill_is_immutable(name: str) -> None:
    skill = AgentSkill("greet", "Says hello.", "Say hello.", {"references/a.md": "Hi"})
    before = skill.digest
    with pytest.raises(AttributeError, match=f"skill 'greet': {name} cannot be set"):
        setattr(skill, name, "x")
    assert skill.digest == before
