"""References that ``load_skill_resource`` reads: rows F29 and C12."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from flink_skills.artifacts import ArtifactStore
from flink_skills.manager import AgentSkillManager, SkillView
from flink_skills.options import SkillConfig
from flink_skills.skill import AgentSkill
from flink_skills.tools import artifacts_effect
from tests.kit.media import PDF, PNG
from tests.kit.skills import write_skill
from tests.tools.conftest import Conversation

READ = "load_skill_resource"
STAGED = ("skill://greet/", "workspace://skills/greet/", "workspace://skills/greet/./")


@pytest.fixture
async def talk(view: SkillView, shell_with, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Conversation:  # type: ignore[no-untyped-def]
    monkeypatch.setenv("REPORT_TOKEN", "t0k3n-1234567")
    options = {"skills.env.billing.API_TOKEN": "${env:REPORT_TOKEN}"}
    config = SkillConfig({"skills.artifacts.dir": (tmp_path / "artifacts").as_uri(), **options})
    talk = Conversation(view, await shell_with(**options), artifacts=ArtifactStore.open(config))
    talk.context.owner = "agent/k"
    return talk


async def run(talk: Conversation, command: str) -> None:
    result = await talk.call("execute_shell_command", command=command)
    assert result.value["return_code"] == 0, result.content


@pytest.mark.row("F29")
async def test_what_a_command_wrote(talk: Conversation) -> None:
    await run(talk, 'printf "a,b\\n1,2\\n" > "$OUTPUT_DIR/t.csv"')
    result = await talk.call(READ, path="workspace://out/t.csv")
    assert result.content == "a,b\n1,2\n"
    assert result.value == {"text": "a,b\n1,2\n", "offset": 0, "next_offset": None, "total_bytes": 8}
    assert (await talk.call(READ, path="workspace://out/t.csv", offset=4)).content == "1,2\n"
    assert "behind its end" in (await talk.call(READ, path="workspace://out/t.csv", offset=9)).content


@pytest.mark.row("F29")
async def test_inputs_of_the_event(talk: Conversation) -> None:
    await run(talk, "echo 7 > $WORK_DIR/inputs/n.txt")
    for asked in ({"path": "workspace://inputs/n.txt"}, {"name": "billing", "path": "inputs/n.txt"}):
        assert (await talk.call(READ, **asked)).content == "7\n"
    missing = await talk.call(READ, name="billing", path="inputs/none.txt")
    assert missing.is_error


@pytest.mark.row("F29")
async def test_artifacts(talk: Conversation) -> None:
    store = talk.services.artifacts
    assert store is not None
    old = store.save(talk.context.owner, "reports/a.md", b"old", "text/markdown")
    new = store.save(talk.context.owner, "reports/a.md", b"new", "text/markdown")
    assert (await talk.call(READ, path="artifact://reports/a.md")).content == "new"
    assert (await talk.call(READ, path=old.ref)).content == "old"
    # What the conversation itself saved counts, whatever came later.
    talk.skill_state.apply(artifacts_effect("call-1", [("reports/a.md", old.version)]))
    assert (await talk.call(READ, path="artifact://reports/a.md")).content == "old"
    assert (await talk.call(READ, path=new.ref)).content == "new"
    talk.context.owner = "agent/other"
    assert (await talk.call(READ, path=new.ref)).is_error


@pytest.mark.row("F29", "B12")
async def test_files_of_skills_by_reference(talk: Conversation) -> None:
    assert (await talk.call(READ, path="skill://billing/scripts/sum.sh")).content == "echo 42\n"
    assert (await talk.call(READ, path="skill://secret-ops/SKILL.md")).is_error


@pytest.mark.parametrize("path", [".env", "keys/id_rsa", "account.txt"])
async def test_secrets_of_a_skill_are_not_read(path: str, tmp_path: Path, shell_with) -> None:  # type: ignore[no-untyped-def]
    key = "-----BEGIN PRIVATE" + " KEY-----\n" + 64 * "A" + "\n"
    folder = write_skill(tmp_path / "skills/greet", plain="text")
    (folder / path).parent.mkdir(exist_ok=True)
    (folder / path).write_text(key)
    talk = Conversation(AgentSkillManager([str(folder)]).view(), await shell_with())
    await talk.call("load_skill", name="greet")
    await run(talk, f"cat $SKILLS_DIR/greet/{path} > /dev/null")
    for asked in ({"name": "greet", "path": path}, *({"path": f"{of}{path}"} for of in STAGED)):
        for offset in (0, 30):
            result = await talk.call(READ, offset=offset, **asked)
            assert (result.is_error, "models do not read it" in result.content) == (True, True), asked
            assert "AAAA" not in result.content
    assert (await talk.call(READ, path="workspace://skills/greet/plain")).content == "text"


@pytest.mark.row("F29")
@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("host:///etc/passwd", "no file of the machine can"),
        ("https://example.org/x", "is not known"),
        ("workspace://../other/x", ""),
        ("workspace:///etc/passwd", ""),
        ("artifact://nothing.md", "nothing.md"),
        ("guide.md", "Which skill has 'guide.md'? Give its name."),
    ],
)
async def test_what_cannot_be_read(talk: Conversation, path: str, said: str) -> None:
    result = await talk.call(READ, path=path)
    assert result.is_error
    assert said in result.content
    assert "root:" not in result.content


@pytest.mark.row("F29")
async def test_without_artifacts_and_commands(view: SkillView) -> None:
    talk = Conversation(view, None)
    assert "has no artifacts" in (await talk.call(READ, path="artifact://a.md")).content
    assert "runs no commands" in (await talk.call(READ, path="workspace://out/a.md")).content
    assert "there is no file" in (await talk.call(READ, name="billing", path="inputs/a.md")).content
    assert "://" not in talk.tools.specs([READ])[0].description


async def test_an_image_is_media_for_a_model_that_accepts_it(
    tmp_path: Path,
    shell_with,
    monkeypatch: pytest.MonkeyPatch,  # type: ignore[no-untyped-def]
) -> None:
    folder = write_skill(tmp_path / "skills" / "draws")
    (folder / "assets").mkdir()
    (folder / "assets" / "plan.png").write_bytes(PNG)
    (folder / "assets" / "text.png").write_text("not an image")
    config = SkillConfig({"skills.artifacts.dir": (tmp_path / "artifacts").as_uri()})
    store = ArtifactStore.open(config)
    assert store is not None
    store.save("agent/k", "scan.pdf", PDF)
    manager = AgentSkillManager(paths=[str(tmp_path / "skills")], store_dir=str(tmp_path / "store"))
    manager.load_skills()
    talk = Conversation(manager.view(), await shell_with(), artifacts=store, accepts=frozenset({"image", "pdf"}))
    talk.context.owner = "agent/k"
    assert "text file, image or PDF" in talk.tools.specs([READ])[0].description
    await talk.call("load_skill", name="draws")
    await run(talk, 'cp "$SKILLS_DIR/draws/assets/plan.png" "$OUTPUT_DIR/copy.png"')
    asked = [
        ({"name": "draws", "path": "assets/plan.png"}, "plan.png", PNG),
        ({"path": "skill://draws/assets/plan.png"}, "plan.png", PNG),
        ({"path": "workspace://out/copy.png"}, "copy.png", PNG),
        ({"path": "artifact://scan.pdf"}, "scan.pdf", PDF),
    ]
    for arguments, _, data in asked:
        refused = await talk.call(READ, **arguments)
        assert (refused.media, "binary" in refused.content or data is PDF) == ((), True)
    talk.context.accepts = frozenset({"image", "pdf"})
    for arguments, name, data in asked:
        result = await talk.call(READ, **arguments)
        assert [(of.name, of.data) for of in result.media] == [(name, data)], result.content
        assert result.content == f"[{result.media[0].summary}]"
    assert (await talk.call(READ, name="draws", path="assets/text.png")).content == "not an image"


async def test_binary_files(talk: Conversation) -> None:
    await run(talk, 'printf "a\\000b" > "$OUTPUT_DIR/b.bin"')
    assert "binary file of 3 bytes" in (await talk.call(READ, path="workspace://out/b.bin")).content


async def test_values_of_skills_are_hidden_also_where_a_part_begins_in_them(talk: Conversation) -> None:
    await talk.call("load_skill", name="billing")
    await run(talk, 'printf "key %s." "$API_TOKEN" > "$OUTPUT_DIR/leak.txt"')
    assert (await talk.call(READ, path="workspace://out/leak.txt")).content == "key [hidden]."
    inside = await talk.call(READ, path="workspace://out/leak.txt", offset=7)
    assert inside.content == "[hidden]."
    assert "n-1234567" not in inside.content


@pytest.mark.row("C12")
async def test_a_long_file_in_parts(talk: Conversation, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("flink_skills.tools.skills.skill_resource._MAX_PART", 100)
    await run(talk, 'seq 1000 1099 > "$OUTPUT_DIR/n.txt"')
    first = await talk.call(READ, path="workspace://out/n.txt")
    assert first.content.endswith("[bytes 0 to 100 of 500; continue with offset=100]")
    rest, offset = first.value["text"], first.value["next_offset"]
    while offset is not None:
        part = await talk.call(READ, path="workspace://out/n.txt", offset=offset)
        rest, offset = rest + part.value["text"], part.value["next_offset"]
    assert rest == "".join(f"{number}\n" for number in range(1000, 1100))


@pytest.mark.row("B12", "F29")
async def test_what_another_model_of_the_key_had_staged(talk: Conversation, manager: AgentSkillManager) -> None:
    assert talk.workspace is not None
    for skill in ("billing", "secret-ops"):
        talk.workspace.stage(manager.view().get(skill))
    assert (await talk.call(READ, path="workspace://skills/billing/scripts/sum.sh")).content == "echo 42\n"
    # A command can reach it, a tool does not follow.
    await run(talk, 'ln -s ../../skills/secret-ops "$WORK_DIR/inputs/s"')
    told = []
    for name in ("secret-ops", "public-ops"):
        result = await talk.call(READ, path=f"workspace://skills/{name}/SKILL.md")
        assert result.is_error
        told.append(result.content.replace(name, "x"))
    assert told[0] == told[1]
    for path in (
        "workspace://./skills//secret-ops/SKILL.md",
        "workspace://skills\\secret-ops\\SKILL.md",
        "workspace://skills/billing/../secret-ops/SKILL.md",
        "workspace://inputs/../../skills/secret-ops/SKILL.md",
        "workspace://inputs/s/SKILL.md",
        "workspace://skills",
    ):
        result = await talk.call(READ, path=path)
        assert result.is_error, path
        assert "Secret text" not in result.content
    for path in ("inputs/../../skills/secret-ops/SKILL.md", "inputs/s/SKILL.md"):
        assert (await talk.call(READ, name="billing", path=path)).is_error, path
    # Another set, as for a single event, is another answer of the same tool.
    talk.context.skills = manager.view(["secret-ops"])
    assert "Secret text" in (await talk.call(READ, path="workspace://skills/secret-ops/SKILL.md")).content
    assert (await talk.call(READ, path="workspace://skills/billing/SKILL.md")).is_error


@pytest.mark.row("B12")
async def test_a_skill_whose_name_is_no_folder(shell_with) -> None:  # type: ignore[no-untyped-def]
    odd = AgentSkill("two words", "Is odd.", "Odd text.")
    talk = Conversation(SkillView([odd]), await shell_with())
    assert talk.workspace is not None
    folder = talk.workspace.stage(odd).name
    assert "Odd text" in (await talk.call(READ, path=f"workspace://skills/{folder}/SKILL.md")).content
    talk.context.skills = SkillView([AgentSkill("other", "Is other.", "Text.")])
    assert (await talk.call(READ, path=f"workspace://skills/{folder}/SKILL.md")).is_error


@pytest.mark.row("C12")
@pytest.mark.parametrize("path", ["path", "file", "file_path", "filePath", "filename", "FileName"])
@pytest.mark.parametrize("skill", ["name", "skill", "skill_name", "skillName"])
async def test_names_of_arguments(talk: Conversation, path: str, skill: str) -> None:
    result = await talk.call(READ, **{skill: "billing", path: "scripts/sum.sh"})
    assert result.content == "echo 42\n"


@pytest.mark.row("C12")
@pytest.mark.parametrize("named", [True, False])
async def test_the_folder_that_loading_shows(talk: Conversation, manager: AgentSkillManager, named: bool) -> None:
    shown = (await talk.call("load_skill", name="billing")).content
    folder = re.search(r"Folder of this skill: (\S+) ", shown)[1]  # type: ignore[index]
    name = {"name": "billing"} if named else {}
    for path in (f"{folder}/scripts/sum.sh", f"{folder}/./scripts/../scripts/sum.sh"):
        assert (await talk.call(READ, path=path, **name)).content == "echo 42\n"
    missing = await talk.call(READ, path=f"{folder}/scripts/sun.sh", **name)
    assert missing.is_error and "did you mean 'scripts/sum.sh'?" in missing.content
    itself = await talk.call(READ, path=folder, **name)
    assert itself.is_error and f"name a file in it, such as {folder}/SKILL.md" in itself.content
    # A skill that the model does not have, by its folder too.
    other = manager.view().get("secret-ops")
    assert other is not None
    for path in (f"{other.path}/SKILL.md", f"{folder}/../secret-ops/SKILL.md", f"{folder}-more/SKILL.md"):
        refused = await talk.call(READ, path=path, **name)
        assert refused.is_error and "Secret text" not in refused.content


@pytest.mark.row("F29")
async def test_paths_that_commands_and_results_show(talk: Conversation) -> None:
    await talk.call("load_skill", name="billing")
    printed = (
        (
            await talk.call(
                "execute_shell_command",
                command='pwd; echo r > "$OUTPUT_DIR/r.txt"; ls "$OUTPUT_DIR"/*; echo w > "$WORK_DIR/w.txt"',
            )
        )
        .value["stdout"]
        .split()
    )
    for path, content in (
        (f"{printed[0]}/scripts/sum.sh", "echo 42\n"),
        (printed[1], "r\n"),
        ("$OUTPUT_DIR/r.txt", "r\n"),
        ("${WORK_DIR}/w.txt", "w\n"),
        ("$SKILLS_DIR/billing/scripts/sum.sh", "echo 42\n"),
        ("out/r.txt", "r\n"),
        ("skills/billing/scripts/sum.sh", "echo 42\n"),
    ):
        assert (await talk.call(READ, path=path)).content == content
    assert (await talk.call(READ, name="billing", path="out/r.txt")).content == "r\n"
    for path in ("$HOME/x", "$NOTHING/x", "/etc/passwd", f"{Path(printed[1]).parents[2]}/other/out/r.txt"):
        assert (await talk.call(READ, path=path)).is_error, path


async def test_a_name_of_a_list_with_characters_that_are_escaped() -> None:
    odd = AgentSkill("odd", "Is odd.", "Text.", resources={"refs/R&D <a>.md": "yes"})
    talk = Conversation(SkillView([odd]), None)
    shown = (await talk.call("load_skill", name="odd")).content
    listed = shown.partition("<skill_files>\n")[2].partition("\n")[0]
    assert listed != "refs/R&D <a>.md"
    assert (await talk.call(READ, name="odd", path=listed)).content == "yes"
    assert (await talk.call(READ, name="odd", path="refs/R&D <a>.md")).content == "yes"


async def test_a_file_of_another_skill_names_the_skill(tmp_path: Path) -> None:
    write_skill(tmp_path / "index", body="See skills/evaluation/SKILL.md.")
    write_skill(tmp_path / "index/skills/evaluation", "evaluation", references__a="x")
    write_skill(tmp_path / "other")
    write_skill(tmp_path / "index/skills/secret")
    manager = AgentSkillManager([str(tmp_path)], store_dir=str(tmp_path / "store"))
    talk = Conversation(manager.view(["index", "evaluation", "other"]), None)
    start = "is not a file of skill 'index': this is the skill"
    for path, said in (
        ("skills/evaluation/SKILL.md", f"{start} 'evaluation': load it with the name 'evaluation'"),
        ("skills/evaluation/", f"{start} 'evaluation': load it with the name 'evaluation'"),
        (
            "skills/evaluation/references/a",
            f"{start} 'evaluation': load it, and read 'references/a' with the name 'evaluation'",
        ),
        ("../other/SKILL.md", f"{start} 'other': load it with the name 'other'"),
    ):
        result = await talk.call(READ, name="index", path=path)
        assert result.is_error
        assert said in result.content
    hidden = await talk.call(READ, name="index", path="skills/secret/SKILL.md")
    assert hidden.is_error
    assert "this is the skill" not in hidden.content


async def test_text_in_utf_16_is_named_as_such(tmp_path: Path) -> None:
    write_skill(tmp_path / "index")
    (tmp_path / "index/a.md").write_bytes("Text.\n".encode("utf-16"))
    view = AgentSkillManager([str(tmp_path)], store_dir=str(tmp_path / "store")).view()
    result = await Conversation(view, None).call(READ, name="index", path="a.md")
    assert result.is_error
    assert "'a.md' is in UTF-16 and has 14 bytes; convert it with iconv" in result.content
