"""``skill_run``, artifacts and references, over whole turns (section F and row K2)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from flink_skills import tool, tool_set
from flink_skills.models import ToolCall
from flink_skills.testing import call, calls
from flink_skills.tools.files import FileToolSet
from tests.features.conftest import Answer, Ask, Plain, Run
from tests.kit.models import Script

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


ASKS = 'printf "Name: "; read -r name; echo "hello $name"; echo file > "$OUTPUT_DIR/f.txt"'


def of(started: int, tool: str, **arguments: Any) -> Callable[[list[Answer]], ToolCall]:
    """A call about the process that the answer number ``started`` began."""
    return lambda answers: call(tool, session_id=answers[started].value["session_id"], **arguments)


@pytest.mark.row("G1", "G2", "G3", "G4", "G5")
def test_a_prompt_is_answered_and_the_end_has_what_a_run_has(ask: Ask) -> None:
    _, started, ended, polled, killed = ask(
        LOAD,
        call("skill_exec", skill="shout", command=ASKS, output_files=["out/f.txt"], yield_ms=5000),
        of(1, "skill_write_stdin", chars="Ann", submit=True, yield_ms=20_000),
        of(1, "skill_poll_session"),
        of(1, "skill_kill_session"),
    )
    assert (started.value["status"], started.value["output"]) == ("running", "Name: ")
    assert (started.value["interaction"]["needs_input"], started.value["interaction"]["kind"]) == (True, "prompt")
    assert (ended.value["status"], ended.value["exit_code"]) == ("exited", 0)
    assert "hello Ann" in ended.value["output"]
    assert ended.value["next_offset"] >= ended.value["offset"]
    assert ended.value["result"]["output_files"][0]["content"] == "file\n"
    assert (polled.value["status"], polled.value["output"]) == ("exited", "")
    assert (killed.value["ok"], killed.value["status"]) == (True, "exited")


@pytest.mark.row("G1", "G3", "G5", "G7")
def test_a_menu_on_a_terminal_that_does_not_want_to_end(ask: Ask) -> None:
    menu = (
        'trap "" TERM; test -t 0 && printf "1. tea\\n2. coffee\\nChoose a number: "; read -r n; echo "got $n"; sleep 99'
    )
    _, started, written, killed = ask(
        LOAD,
        call("skill_exec", skill="shout", command=menu, tty=True, yield_ms=5000),
        of(1, "skill_write_stdin", chars="2", submit=True, yield_ms=5000),
        of(1, "skill_kill_session"),
    )
    assert started.value["interaction"]["kind"] == "selection"
    assert "got 2" in written.value["output"]
    assert written.value["status"] == "running"
    assert (killed.value["ok"], killed.value["status"]) == (True, "killed")


@pytest.mark.row("G6")
def test_an_unknown_process_is_one_line_with_the_fix(ask: Ask) -> None:
    for name in ("skill_poll_session", "skill_write_stdin", "skill_kill_session"):
        (unknown,) = ask(call(name, session_id="nope"))
        assert unknown.is_error
        assert unknown.text.startswith("unknown session_id 'nope'")
        assert "\n" not in unknown.text


TOOLS = '''
def describe(text: str, times: int = 1) -> dict:
    """Describe a text.

    Args:
        text: What to describe.
    """
    print("not part of the answer")
    return {"by": "NAME", "length": len(text) * times}


def total(values: list[float]) -> float:
    """Add numbers."""
    return sum(values)
'''


class Clashes(Plain):
    """Has a tool of a name that a skill uses too."""

    @tool
    def total(self, values: list[float]) -> str:
        """Add numbers, for the job."""
        return "the job's"


@pytest.fixture
def skills(skills: Path) -> Path:
    for name in ("count", "shout"):
        (skills / name / "tools.py").write_text(TOOLS.replace("NAME", name))
    return skills


@pytest.mark.row("C11", "A2", "C8")
def test_names_that_clash_get_a_prefix_and_hide_nothing(ask: Ask) -> None:
    one, described, two, first, second, own, skills_own, gone = ask(
        call("skill_load", skill="count"),
        call("describe", text="abc", times=2),
        call("skill_load", skill="shout"),
        call("describe", text="abc"),
        call("shout_describe", text="abcd"),
        call("total", values=[1, 2]),
        call("count_total", values=[1, 2.5]),
        call("skill_unload", skill="shout"),
        agent=Clashes,
    )
    assert "describe" in one.text
    assert "count_total" in one.text
    assert described.text == '{"by": "count", "length": 6}\n\nprinted:\nnot part of the answer'
    assert "shout_describe" in two.text
    assert [answer.text.partition("}")[0] for answer in (first, second)] == [
        '{"by": "count", "length": 3',
        '{"by": "shout", "length": 4',
    ]
    assert own.text == "the job's"
    assert skills_own.text == "3.5"
    names = [
        {spec.name for spec in answer.request.tools if not spec.name.startswith("skill_")} for answer in (two, gone)
    ]
    assert {"describe", "shout_describe", "count_total", "shout_total", "total"} <= names[0]
    assert {"describe", "count_total", "total"} <= names[1]
    assert "shout_total" not in names[1]


@pytest.mark.row("F11", "F22")
def test_files_of_an_event_are_there_under_safe_names(run: Run, script: Script) -> None:
    event = {
        "question": "What is in them?",
        "files": [
            {"name": "../../etc/report.txt", "text": "first\n", "mime_type": "text/plain"},
            {"name": "report.txt", "data": b"second\n"},
            {"data": "dGhpcmQK"},
        ],
    }
    model = script(
        [
            calls(call("skill_load", skill="shout")),
            calls(call("skill_run", skill="shout", command="cd $WORK_DIR/inputs; ls; cat $(ls | grep -v event)")),
            "done",
        ]
    )
    assert run([event], tools="full") == ["done"]
    asked = str(model.requests[0].messages[0].content)
    assert "work/inputs/report.txt" in asked
    assert not [text for text in ("first", "second", "dGhpcmQK", "c2Vjb25k") if text in asked]
    result = str(model.requests[-1].messages[-1].content)
    for text in ("first", "second", "third"):
        assert text in result
