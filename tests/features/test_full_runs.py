"""``skill_run``, artifacts and references, over whole turns (section F and row K2)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from flink_skills import tool_set
from flink_skills.models import ToolCall
from flink_skills.testing import call
from flink_skills.tools.files import FileToolSet
from tests.features.conftest import Answer, Ask, Plain

LOAD = call("skill_load", skill="shout")


def run_of(command: str, **arguments: Any) -> ToolCall:
    return call("skill_run", skill="shout", command=command, **arguments)


@pytest.mark.row("F1", "F18", "F32")
def test_what_a_run_needs(ask: Ask) -> None:
    early, _, blank, failed = ask(run_of("true"), LOAD, call("skill_run", skill="shout"), run_of("exit 7"))
    assert early.is_error
    assert early.text.startswith("skill_run requires skill_load first for 'shout'")
    assert blank.is_error
    assert "skill and command are required" in blank.text
    assert (failed.is_error, failed.value["exit_code"]) == (False, 7)
    (unloaded,) = ask(run_of("echo fine"), **{"run.require-loaded": "false"})
    assert unloaded.value["stdout"] == "fine\n"


@pytest.mark.row("F2", "F31")
def test_where_it_runs(ask: Ask) -> None:
    places = ["", ".", "scripts", "$WORK_DIR", "${OUTPUT_DIR}", "$RUN_DIR", "../..", "/etc"]
    _, *answers = ask(LOAD, *(run_of('pwd; echo "$RUN_DIR"', cwd=place) for place in places))
    lines = [answer.value["stdout"].splitlines() for answer in answers]
    ends = ["/".join(Path(line[0]).parts[-2:]) for line in lines]
    assert ends[:3] == ["skills/shout", "skills/shout", "shout/scripts"]
    assert [Path(line[0]).name for line in lines[3:5]] == ["work", "out"]
    assert lines[5][0] == lines[5][1]
    assert len({run for _, run in lines}) == len(places)
    assert ends[6:] == ["skills/shout"] * 2
    assert ["warnings" in answer.value for answer in answers] == [False] * 6 + [True] * 2


@pytest.mark.row("F3", "F4", "F5")
def test_environment_input_and_editor(ask: Ask) -> None:
    _, given, elsewhere, refused, edited = ask(
        LOAD,
        run_of("cat; echo $COLOUR", stdin="blue or ", env={"COLOUR": "red"}),
        run_of("echo $OUTPUT_DIR", env={"OUTPUT_DIR": "$WORK_DIR/mine"}),
        run_of("true", env={"LD_PRELOAD": "/tmp/x.so"}),
        run_of('"$EDITOR" "$WORK_DIR/message" && cat "$WORK_DIR/message"', editor_text="Fix the leak\n"),
    )
    assert given.value["stdout"] == "blue or red\n"
    assert elsewhere.value["stdout"].endswith("/work/mine\n")
    assert refused.is_error
    assert "LD_PRELOAD" in refused.text
    assert edited.value["stdout"] == "Fix the leak\n"


@pytest.mark.row("F6", "F23", "F24", "F25", "F26")
def test_files_that_it_leaves(ask: Ask) -> None:
    _, found, failed = ask(
        LOAD,
        run_of(
            'cd $OUTPUT_DIR; mkdir d; echo two > b.txt; echo 1 > d/a.csv; printf "\\000" > x.bin; seq 20000 > big.txt',
            output_files=["$OUTPUT_DIR/**", "work/none"],
        ),
        run_of(': > "$OUTPUT_DIR/empty"; exit 4', output_files=["out/empty", "out/b.txt"]),
    )
    files = {file["name"]: file for file in found.value["output_files"]}
    assert sorted(files) == ["out/b.txt", "out/big.txt", "out/d/a.csv", "out/x.bin"]
    text = files["out/b.txt"]
    assert (text["ref"], text["content"], text["size_bytes"]) == ("workspace://out/b.txt", "two\n", 4)
    assert text["mime_type"] == "text/plain"
    assert "content" not in files["out/x.bin"]
    assert found.value["primary_output"]["name"] == "out/b.txt"
    assert [file["name"] for file in failed.value["output_files"]] == ["out/b.txt"]
    assert "out/empty" in str(failed.value["warnings"])


@pytest.mark.row("F12", "F14", "F15", "F27")
def test_the_manifest_and_what_is_saved(ask: Ask) -> None:
    _, manifest, legacy, unsaved = ask(
        LOAD,
        run_of(
            'cd "$OUTPUT_DIR"; for n in 1 2 3 4; do echo $n > $n.txt; done',
            outputs={"globs": ["out/*.txt"], "inline": True, "save": True, "name_template": "p/", "MaxFiles": 3},
        ),
        run_of(
            "true", output_files=["out/4.txt"], save_as_artifacts=True, artifact_prefix="q/", omit_inline_content=True
        ),
        run_of("true", outputs={"globs": ["out/4.txt"], "inline": True}),
    )
    assert [file["content"] for file in manifest.value["output_files"]] == ["1\n", "2\n", "3\n"]
    assert [file["name"] for file in manifest.value["artifact_files"]] == [f"p/out/{n}.txt" for n in (1, 2, 3)]
    assert "max_files" in str(manifest.value["warnings"])
    (file,) = legacy.value["output_files"]
    assert ("content" in file, file["size_bytes"], file["ref"]) == (False, 2, "workspace://out/4.txt")
    (saved,) = legacy.value["artifact_files"]
    assert saved["name"] == "q/out/4.txt"
    assert saved["version"]
    assert "artifact_files" not in unsaved.value
    _, nowhere = ask(
        LOAD,
        run_of("echo x > $OUTPUT_DIR/x", output_files=["out/x"], save_as_artifacts=True),
        **{"artifacts.dir": ""},
    )
    assert nowhere.value["output_files"][0]["content"] == "x\n"
    assert nowhere.value["warnings"]


@pytest.mark.row("F16", "F17")
def test_options_of_the_job_win(ask: Ask) -> None:
    options = {"run.save-artifacts": "true", "run.omit-inline": "true", "run.timeout": "1 s"}
    make = "echo x > $OUTPUT_DIR/x"
    arguments: dict[str, Any] = {"save_as_artifacts": False, "omit_inline_content": False}
    _, saved, slow = ask(
        LOAD, run_of(make, output_files=["out/x"], **arguments), run_of("sleep 60", timeout=50), **options
    )
    assert [file["name"] for file in saved.value["artifact_files"]] == ["out/x"]
    assert "content" not in saved.value["output_files"][0]
    assert slow.value["timed_out"]


@pytest.mark.row("F13", "F21")
def test_time_and_length(ask: Ask) -> None:
    _, slow, long = ask(LOAD, run_of("sleep 60", timeout=0.5), run_of("head -c 60000 /dev/zero | tr '\\0' x"))
    assert slow.value["timed_out"]
    assert 300 <= slow.value["duration_ms"] < 30_000
    assert len(long.value["stdout"]) < 20_000
    assert any("stdout truncated" in warning for warning in long.value["warnings"])


@pytest.mark.row("F7", "F8", "F9", "F10", "F22")
def test_inputs(ask: Ask, tmp_path: Path) -> None:
    granted = tmp_path / "granted.txt"
    granted.write_text("granted\n")
    granted.chmod(0o644)
    artifact = {"from": "artifact://out/a.txt", "to": "inputs/pinned.txt", "pin": True}
    _, _, all_, again, refused, odd = ask(
        LOAD,
        run_of("echo one > $OUTPUT_DIR/a.txt", output_files=["out/a.txt"], save_as_artifacts=True),
        run_of(
            "cd $WORK_DIR/inputs; cat a.txt n.md granted.txt pinned.txt; echo two > $OUTPUT_DIR/a.txt",
            inputs=[
                {"from": "workspace://out/a.txt"},
                {"from": "skill://shout/notes.md", "to": "inputs\\n.md", "mode": "link"},
                {"from": f"host://{granted}"},
                artifact,
            ],
            output_files=["out/a.txt"],
            save_as_artifacts=True,
        ),
        run_of("cat $WORK_DIR/inputs/pinned.txt", inputs=[artifact]),
        run_of("true", inputs=[{"from": "host:///etc/hostname"}]),
        run_of("true", inputs=[{"from": "ftp://there/x"}]),
        **{"run.host-inputs": str(granted)},
    )
    assert all_.value["stdout"] == "one\nLOUD NOTESgranted\none\n"
    staged = {entry["name"]: entry for entry in all_.value["staged_inputs"]}
    assert sorted(staged) == [f"work/inputs/{name}" for name in ("a.txt", "granted.txt", "n.md", "pinned.txt")]
    first = staged["work/inputs/a.txt"]
    assert (first["original_name"], first["mime_type"], first["size_bytes"]) == (
        "workspace://out/a.txt",
        "text/plain",
        4,
    )
    assert again.value["stdout"] == "one\n"
    assert refused.is_error
    assert "/etc/hostname" in refused.text
    assert odd.is_error
    assert odd.text.startswith("unsupported input: ftp://")


@pytest.mark.row("F29")
def test_what_was_saved_can_be_read_by_reference(ask: Ask) -> None:
    def read(path: str) -> ToolCall:
        return call("load_skill_resource", path=path)

    def first_version(answers: list[Answer]) -> ToolCall:
        (saved,) = answers[1].value["artifact_files"]
        return read(f"artifact://{saved['name']}@{saved['version']}")

    save: dict[str, Any] = {"output_files": ["out/a.txt"], "save_as_artifacts": True}
    _, first, _, old, new, file, skill = ask(
        LOAD,
        run_of("echo one > $OUTPUT_DIR/a.txt", **save),
        run_of("echo two > $OUTPUT_DIR/a.txt", **save),
        first_version,
        read("artifact://out/a.txt"),
        read("workspace://out/a.txt"),
        read("skill://shout/notes.md"),
        tools="full",
    )
    assert first.value["output_files"][0]["ref"] == "workspace://out/a.txt"
    assert [old.text, new.text, file.text, skill.text] == ["one\n", "two\n", "two\n", "LOUD NOTES"]


class Reader(Plain):
    """An agent with the file tools and the profile."""

    @tool_set
    def files(self) -> FileToolSet:
        return FileToolSet()


@pytest.mark.row("F29", "J14")
def test_read_opens_what_results_name(ask: Ask) -> None:
    save: dict[str, Any] = {"output_files": ["out/a.txt"], "save_as_artifacts": True}

    def saved(answers: list[Answer]) -> ToolCall:
        (artifact,) = answers[1].value["artifact_files"]
        return call("Read", path=f"artifact://{artifact['name']}@{artifact['version']}")

    def collected(answers: list[Answer]) -> ToolCall:
        return call("Read", path=answers[1].value["output_files"][0]["ref"])

    run_it = run_of("echo one > $OUTPUT_DIR/a.txt", **save)
    read = ask(LOAD, run_it, saved, collected, call("Read", path="skill://shout/notes.md"), agent=Reader, tools="full")
    assert [answer.value["content"] for answer in read[2:]] == ["1 | one", "1 | one", "1 | LOUD NOTES"]


@pytest.mark.row("F28")
def test_without_patterns_a_small_text_is_found(ask: Ask) -> None:
    _, made = ask(LOAD, run_of("echo result > $OUTPUT_DIR/r.txt"))
    assert made.value["primary_output"]["name"] == "out/r.txt"


@pytest.mark.row("F19", "F20")
def test_a_policy_holds_for_runs_and_processes(ask: Ask) -> None:
    options = {"shell.allowed-commands": "/bin/echo", "tools": "[full, execute_shell_command]"}
    _, allowed, shell, other, process, core = ask(
        LOAD,
        run_of("/bin/echo fine"),
        run_of("/bin/echo a; id"),
        run_of("id"),
        call("skill_exec", skill="shout", command="id"),
        call("execute_shell_command", command="id"),
        **options,
    )
    assert allowed.value["stdout"] == "fine\n"
    for refused in (shell, other, process, core):
        assert refused.is_error
        assert "uid=" not in refused.text
