"""What a command of ``skill_run`` gets, and how its end is told."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from flink_skills.artifacts import ArtifactStore
from flink_skills.errors import IsolationError
from flink_skills.execution import IsolationLevel, WorkspaceManager, command_user
from flink_skills.manager import SkillView
from flink_skills.options import SkillConfig
from flink_skills.tools import ShellRunner, SkillSettings, ToolResult, load_effect
from tests.tools.conftest import Conversation
from tests.tools.runs.conftest import Talk


async def run(talk: Conversation, command: str, **more: Any) -> ToolResult:
    return await talk.call("skill_run", **{"skill": "billing", "command": command, **more})


async def said(talk: Conversation, command: str, **more: Any) -> str:
    result = await run(talk, command, **more)
    assert not result.is_error, result.content
    return str(result.value["stdout"])


@pytest.mark.row("F1", "F21")
async def test_a_command_of_a_skill(talk: Conversation) -> None:
    result = await run(talk, 'sh scripts/sum.sh; echo "$SKILL_NAME" >&2; echo *.md | tr a-z A-Z; exit 3')
    assert not result.is_error
    assert json.loads(result.content) == result.value
    duration = result.value.pop("duration_ms")
    assert isinstance(duration, int) and duration >= 0
    assert result.value == {"exit_code": 3, "stdout": "42\nSKILL.MD\n", "stderr": "billing\n"}


@pytest.mark.row("F1", "F32")
@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"skill": "billing"},
        {"command": "ls"},
        {"skill": " ", "command": "ls"},
        {"skill": "billing", "command": "\n"},
        {"skill": "billing", "command": None},
    ],
)
async def test_skill_and_command_are_required(talk: Conversation, arguments: dict[str, Any]) -> None:
    result = await talk.call("skill_run", **arguments)
    assert result.is_error
    assert "skill and command are required" in result.content


@pytest.mark.row("F1")
async def test_both_styles_of_names(talk: Conversation) -> None:
    result = await talk.tools.call(
        "skill_run",
        {
            "skillName": " Billing ",
            "cmd": "cat > out/a.txt; echo $N > out/b.txt",
            "Stdin": "typed",
            "env": '{"N": 7}',
            "outputFiles": '["out/a.txt"]',
            "Outputs": {"Globs": "out/b.txt", "Inline": True, "MaxFiles": 1},
            "timeout": "20",
        },
        talk.context,
    )
    assert not result.is_error, result.content
    assert [entry["content"] for entry in result.value["output_files"]] == ["typed", "7\n"]


@pytest.mark.row("F1")
async def test_nulls_are_left_out(talk: Conversation) -> None:
    names = ["cwd", "env", "stdin", "editor_text", "output_files", "timeout", "save_as_artifacts", "artifact_prefix"]
    outputs = dict.fromkeys(["globs", "inline", "save", "name_template", "max_files"])
    inputs = [{"from": "skill://billing/SKILL.md", "to": None, "mode": None, "pin": None}, "skill://billing/scripts"]
    result = await run(talk, "ls inputs", **dict.fromkeys(names), outputs=outputs, inputs=inputs)
    assert result.value["stdout"] == "SKILL.md\nscripts\n"


@pytest.mark.row("F2")
async def test_where_a_command_runs(talk: Conversation) -> None:
    workspace = talk.workspace
    assert workspace is not None
    skill = workspace.skills_dir / "billing"
    places = {
        None: skill, "": skill, ".": skill, "scripts": skill / "scripts", "./scripts/": skill / "scripts",
        "$WORK_DIR": workspace.work_dir, "${OUTPUT_DIR}": workspace.out_dir, "$SKILLS_DIR/billing": skill,
        "$WORKSPACE_DIR/work/inputs": workspace.inputs_dir, "work": workspace.work_dir, "out/": workspace.out_dir,
        "${WORK_DIR}/../out": workspace.out_dir, str(workspace.out_dir): workspace.out_dir,
    }  # fmt: skip
    for cwd, expected in places.items():
        result = await run(talk, "pwd", cwd=cwd)
        assert result.value["stdout"] == f"{expected}\n", cwd
        assert "warnings" not in result.value
    assert await said(talk, '[ "$PWD" = "$RUN_DIR" ] && echo same', cwd="$RUN_DIR") == "same\n"


@pytest.mark.row("F2", "F26")
async def test_a_cwd_that_escapes_is_the_skills_folder(talk: Conversation) -> None:
    workspace = talk.workspace
    assert workspace is not None
    assert await said(talk, "ln -s / $WORK_DIR/away && echo made") == "made\n"
    for cwd in ("..", "../../work", "/", "/etc", "$WORK_DIR/../../..", "$WORK_DIR/away/etc", "scripts/../.."):
        result = await run(talk, "pwd", cwd=cwd)
        assert result.value["stdout"] == f"{workspace.skills_dir / 'billing'}\n", cwd
        assert [text for text in result.value["warnings"] if cwd in text], cwd


@pytest.mark.row("F2", "F32")
async def test_a_cwd_that_is_not_there(talk: Conversation) -> None:
    for cwd in ("nowhere", "SKILL.md", "$HOMES/x", "a\0b", "$WORK_DIR/" + "x" * 300):
        result = await run(talk, "pwd", cwd=cwd)
        assert result.is_error and "cwd" in result.content, cwd
    # What a run needs for itself is gone, also when it did not start.
    assert talk.workspace is not None and not list(talk.workspace.runs_dir.iterdir())


async def test_paths_of_the_skills_own_folder_lead_to_its_copy(talk: Conversation) -> None:
    skill = talk.context.skills.get("billing")  # type: ignore[union-attr]
    assert skill is not None and talk.workspace is not None
    assert await said(talk, f"sh {skill.path}/scripts/sum.sh; pwd", cwd=str(skill.path)) == (
        f"42\n{talk.workspace.skills_dir / 'billing'}\n"
    )


@pytest.mark.row("F3")
async def test_variables(talk: Conversation) -> None:
    assert await said(talk, 'echo "$A-$B"', env={"A": "x y", "B": 3}) == "x y-3\n"
    assert await said(talk, 'echo "$A-$B-${C-none}"', env={"A": True, "B": False, "C": None}) == "true-false-none\n"
    for env in ({"LD_PRELOAD": "x"}, {"SKILL_NAME": "other"}, {"not a name": "x"}, {"A": "a\0b"}, {"PATH": "/evil"}):
        result = await run(talk, "env", env=env)
        assert result.is_error and next(iter(env)) in result.content, result.content
    assert (await run(talk, "env", env={"A": ["x"]})).is_error


@pytest.mark.row("F3", "F6")
async def test_an_output_folder_of_the_runs_own(talk: Conversation) -> None:
    workspace = talk.workspace
    assert workspace is not None
    command = 'echo "$OUTPUT_DIR"; echo mine > "$OUTPUT_DIR/r.txt"'
    for output_dir, path in {
        "out/may": "out/may", "$WORK_DIR/deep/er": "work/deep/er", "${OUTPUT_DIR}/x": "out/x",
        str(workspace.out_dir / "abs"): "out/abs",
    }.items():  # fmt: skip
        result = await run(talk, command, env={"OUTPUT_DIR": output_dir}, output_files=["$OUTPUT_DIR/*.txt"])
        assert result.value["stdout"] == f"{workspace.root / path}\n"
        assert [entry["name"] for entry in result.value["output_files"]] == [f"{path}/r.txt"]
    await run(talk, "ln -s / $WORK_DIR/away; echo > $WORK_DIR/file")
    for output_dir in (
        "/tmp/elsewhere",
        "../x",
        "skills/billing",
        "$WORK_DIR/away/tmp",
        "$WORK_DIR/file",
        "",
        "home/x",
        "out/" + "d/" * 99,
    ):
        result = await run(talk, command, env={"OUTPUT_DIR": output_dir})
        assert result.is_error and "OUTPUT_DIR" in result.content, output_dir


@pytest.mark.row("F4")
async def test_standard_input(talk: Conversation) -> None:
    assert await said(talk, "cat", stdin="für\ndich") == "für\ndich"
    assert await said(talk, "wc -c") == "0\n"


@pytest.mark.row("F5")
async def test_text_for_an_editor(talk: Conversation) -> None:
    workspace = talk.workspace
    assert workspace is not None
    text = "line 'one'\n$NOT expanded\nfür"
    # As programs start it: through the shell, with options before the file, and as a program by its path.
    command = 'f="$WORK_DIR/a b.txt"; sh -c "$EDITOR -x \\"\\$1\\"" e "$f" && "$VISUAL" +3 "$f.2" && cat "$f" "$f.2"'
    assert await said(talk, command, editor_text=text) == text * 2
    assert await said(talk, '"$EDITOR" $WORK_DIR/e; wc -c < $WORK_DIR/e', editor_text="") == "0\n"
    assert await said(talk, 'echo "[$EDITOR$VISUAL]"') == "[]\n"
    nothing = await run(talk, '"$EDITOR"', editor_text="x")
    assert nothing.value["exit_code"] != 0 and "no file to edit" in nothing.value["stderr"]
    where = await said(talk, 'echo "$EDITOR"', editor_text="x")
    assert where.startswith(f"{workspace.work_dir}/")
    assert Path(where.strip()).parent not in list(workspace.work_dir.rglob("*"))


@pytest.mark.row("F5", "F32")
@pytest.mark.parametrize("name", ["EDITOR", "VISUAL"])
async def test_two_editors_are_an_error(talk: Conversation, name: str) -> None:
    result = await run(talk, "true", editor_text="x", env={name: "vi"})
    assert result.is_error and name in result.content
    assert (await said(talk, f"echo ${name}", env={name: "vi"})) == "vi\n"


@pytest.mark.row("F5")
async def test_editors_of_runs_at_once_do_not_meet(talk: Conversation) -> None:
    command = (
        'until [ $(ls $WORK_DIR | grep -c started) = 2 ]; do touch $WORK_DIR/started.$N; done; "$EDITOR" $WORK_DIR/$N'
    )
    runs = [run(talk, command, editor_text=f"text {n}", env={"N": n}, timeout=20) for n in (1, 2)]
    assert [result.value["exit_code"] for result in await asyncio.gather(*runs)] == [0, 0]
    assert await said(talk, "cat $WORK_DIR/1 $WORK_DIR/2") == "text 1text 2"


@pytest.mark.row("F5")
async def test_links_in_the_way_of_the_editor_lead_nowhere(talk: Conversation, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    await run(talk, f"ln -s {outside} $WORK_DIR/.flink_skills")
    assert await said(talk, '"$EDITOR" $WORK_DIR/e; cat $WORK_DIR/e', editor_text="here") == "here"
    assert not list(outside.iterdir())


@pytest.mark.row("F13", "F21")
async def test_a_deadline(talk: Conversation) -> None:
    result = await run(talk, "echo begun; sleep 60", timeout=0.3)
    assert not result.is_error
    assert result.value["timed_out"] is True
    assert result.value["stdout"] == "begun\n"
    assert result.value["exit_code"] != 0
    assert any("longer than 0.3 s" in text for text in result.value["warnings"])
    for timeout in (0, -1, "soon"):
        assert (await run(talk, "true", timeout=timeout)).is_error


@pytest.mark.row("F13")
async def test_the_deadline_without_one_is_five_minutes(talk_with: Talk, monkeypatch: pytest.MonkeyPatch) -> None:
    talk = await talk_with(shell__max_timeout="10 min")
    assert talk.shell is not None
    asked = []
    really = talk.shell.run

    async def spy(command: str, **more: Any) -> Any:
        asked.append(more["timeout"])
        return await really(command, **more)

    monkeypatch.setattr(talk.shell, "run", spy)
    await run(talk, "true")
    await run(talk, "true", timeout=500)
    warned = await run(talk, "true", timeout=5000)
    assert asked == [300.0, 500.0, 600.0]
    assert warned.value["warnings"] == ["this job allows commands 600 s, not 5000 s"]


@pytest.mark.row("F16")
async def test_the_jobs_deadline_counts(talk_with: Talk) -> None:
    talk = await talk_with(run__timeout="300 ms")
    result = await run(talk, "sleep 60", timeout=100)
    assert result.value["timed_out"] is True
    assert "this job allows commands 0.3 s, not 100 s" in result.value["warnings"]


@pytest.mark.row("F18", "F32")
async def test_a_skill_has_to_be_loaded(talk_with: Talk) -> None:
    talk = await talk_with(loaded=False)
    result = await run(talk, "touch $WORK_DIR/ran")
    assert result.is_error
    assert "skill_run requires skill_load first for 'billing'" in result.content
    talk.skill_state.apply(load_effect("log-triage", "1"))
    assert (await run(talk, "true")).is_error
    talk.skill_state.apply(load_effect("billing", "1"))
    assert await said(talk, "ls $WORK_DIR") == "inputs\n"
    assert talk.skill_state.last == "billing"


@pytest.mark.row("F18")
async def test_a_job_may_do_without_loading(talk_with: Talk) -> None:
    talk = await talk_with(loaded=False, run__require_loaded=False)
    assert await said(talk, "sh scripts/sum.sh") == "42\n"
    assert not talk.skill_state.names


async def test_a_run_is_a_use_of_the_skill(talk: Conversation) -> None:
    talk.skill_state.apply(load_effect("log-triage", "1"))
    await run(talk, "true")
    assert talk.skill_state.names == ["log-triage", "billing"]


@pytest.mark.row("F32")
@pytest.mark.parametrize("name", ["secret-ops", "no-such-skill"])
async def test_skills_of_others_are_not_there(talk: Conversation, name: str) -> None:
    talk.skill_state.apply(load_effect(name, "1"))
    result = await run(talk, "true", skill=name)
    assert result.is_error and f"no skill {name!r}" in result.content


@pytest.mark.row("F19")
async def test_only_permitted_programs(talk_with: Talk) -> None:
    talk = await talk_with(shell__allowed_commands=["/bin/echo", "billing=scripts/total"])
    assert await said(talk, "scripts/total 'a b'") == "total of a b in billing\n"
    assert await said(talk, "/bin/echo '$HOME | x'") == "$HOME | x\n"
    for command in ("/bin/ls", "/bin/echo a; /bin/ls", "/bin/echo a | /bin/cat", "/bin/echo a > x", "/bin/echo $HOME",
                    "/bin/echo a\n/bin/ls"):  # fmt: skip
        result = await run(talk, command)
        assert result.is_error, command
    assert "Permitted: /bin/echo" in talk.tools.specs()[1].description


@pytest.mark.row("F20")
async def test_denied_programs(talk_with: Talk) -> None:
    talk = await talk_with(shell__allowed_commands=["/bin/echo", "/bin/ls"], shell__denied_commands=["/bin/ls"])
    assert await said(talk, "/bin/echo a") == "a\n"
    result = await run(talk, "/bin/ls")
    assert result.is_error and "does not permit" in result.content
    assert result.content.endswith("Programs for skill billing: /bin/echo.")
    assert talk.tools.specs()[1].description.endswith("Permitted: /bin/echo.")


@pytest.mark.row("F21", "F26")
async def test_long_output_is_cut(talk: Conversation) -> None:
    result = await run(talk, "yes für | head -c 20000; yes x | head -c 17000 >&2; echo end")
    for name in ("stdout", "stderr"):
        assert len(result.value[name].encode()) <= 16 * 1024
        assert f"{name} truncated" in result.value["warnings"]
    assert result.value["stdout"].endswith("end\n")
    whole = await run(talk, "yes x | head -c 16000")
    assert len(whole.value["stdout"]) == 16000 and "warnings" not in whole.value


@pytest.mark.row("F21", "F26")
async def test_how_a_command_was_ended(talk: Conversation) -> None:
    result = await run(talk, "kill -9 $$")
    assert not result.is_error
    assert result.value["exit_code"] == -9
    assert result.value["warnings"] == ["the command was ended by signal 9"]


async def test_values_of_the_job_stay_hidden(talk_with: Talk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BILLING_TOKEN", "t0k3n-for-billing")
    talk = await talk_with(env__billing__TOKEN="${env:BILLING_TOKEN}")
    result = await run(talk, 'echo "$TOKEN" | tee out/a.txt', output_files="out/*.txt")
    assert "t0k3n-for-billing" not in result.content
    assert result.value["stdout"] == "[hidden]\n"
    assert result.value["output_files"][0]["content"] == "[hidden]\n"


@pytest.mark.row("F30", "F31")
async def test_what_models_are_told(talk: Conversation) -> None:
    spec = talk.tools.specs(["skill_run"])[0]
    assert "a skill asks for" in spec.description and "no general shell" in spec.description
    assert "$WORK_DIR/inputs" in spec.description and "$OUTPUT_DIR" in spec.description
    parameters = json.loads(json.dumps(spec.parameters))
    assert parameters["properties"]["skill"].pop("enum") == ["billing", "log-triage"]
    size = len(json.dumps({"name": spec.name, "description": spec.description, "parameters": parameters}))
    assert size <= 1400


@pytest.mark.row("F31")
async def test_inputs_and_a_folder_for_each_run(talk: Conversation) -> None:
    assert talk.workspace is not None
    talk.workspace.write_event(b'{"value": 3}')
    assert await said(talk, "cat $WORK_DIR/inputs/event.json inputs/event.json") == '{"value": 3}' * 2
    folders = [await said(talk, 'echo "$RUN_DIR"; [ -z "$(ls "$RUN_DIR")" ] && echo > "$RUN_DIR/x"') for _ in range(2)]
    assert len(set(folders)) == 2
    assert all(folder.startswith(f"{talk.workspace.runs_dir}/") for folder in folders)


@pytest.mark.row("F32")
async def test_a_workspace_that_cannot_be_used(talk: Conversation) -> None:
    assert talk.workspace is not None
    root = talk.workspace.root
    root.parent.mkdir(parents=True, exist_ok=True)
    root.write_text("in the way")
    result = await run(talk, "true")
    assert result.is_error and "workspace" in result.content
    root.unlink()


@pytest.mark.row("F32")
async def test_a_job_without_workspaces(talk: Conversation) -> None:
    talk.context.workspace = None
    result = await run(talk, "true")
    assert result.is_error and "workspaces" in result.content


@pytest.mark.row("F32")
async def test_a_command_that_fails_is_no_error_and_one_that_is_not_run_is(talk: Conversation) -> None:
    assert talk.shell is not None and talk.shell.level is IsolationLevel.HYGIENE
    assert (await run(talk, "no-such-program")).value["exit_code"] == 127
    assert (await run(talk, "echo a\0b")).is_error
    assert (await run(talk, "true", inputs=[{"from": "gopher://x"}])).is_error
    assert (await run(talk, "true", output_files=3)).is_error


@pytest.mark.row("F32")
@pytest.mark.parametrize(
    ("more", "is_error"),
    [
        ({"command": "echo \ud800"}, True),
        ({"env": {"A": "\ud800"}}, True),
        ({"cwd": "\ud800"}, True),
        ({"output_files": ["out/\ud800"]}, True),
        ({"inputs": ["workspace://out/\ud800"]}, True),
        ({"stdin": "\ud800"}, False),
        ({"editor_text": "\ud800"}, False),
    ],
)
async def test_half_characters(talk: Conversation, more: dict[str, Any], is_error: bool) -> None:
    result = await run(talk, more.pop("command", "true"), **more)
    assert result.is_error is is_error
    assert "failed:" not in result.content


async def test_a_denied_access_is_a_warning(talk: Conversation) -> None:
    result = await run(talk, "python3 -c 'import socket; socket.create_connection((\"127.0.0.1\", 9))'")
    (warning,) = result.value["warnings"]
    assert warning.startswith("the network is closed to commands")
    assert "warnings" not in (await run(talk, "echo Could not resolve host")).value


@pytest.mark.row("F3", "F5", "F7", "F9", "F14", "F24")
@pytest.mark.parametrize("backend", ["hygiene", "landlock", "bwrap"])
async def test_all_that_a_run_has(view: SkillView, shared_folder: Path, tmp_path: Path, backend: str) -> None:
    granted = tmp_path / "granted.txt"
    granted.write_text("granted ")
    granted.chmod(0o600)
    config = SkillConfig(
        {
            "skills.shell.backend": backend,
            "skills.shell.min-isolation": "HYGIENE",
            "skills.artifacts.dir": (tmp_path / "artifacts").as_uri(),
            "skills.run.host-inputs": str(tmp_path),
        }
    )
    workspaces = WorkspaceManager(shared_folder / "w", user=command_user(config))
    try:
        shell = await ShellRunner.start(config, workspaces)
    except IsolationError as error:
        pytest.skip(f"this machine has no such sandbox: {error}")
    try:
        settings = SkillSettings(tools=("skill_run",))
        talk = Conversation(view, shell, settings=settings, config=config, artifacts=ArtifactStore.open(config))
        talk.skill_state.apply(load_effect("billing", "1"))
        first = await talk.call("skill_run", skill="billing", command="printf 'made ' > out/made.txt; chmod 400 out/*")
        assert first.value["exit_code"] == 0, first.content
        result = await talk.call(
            "skill_run",
            skill="billing",
            command='"$EDITOR" "$OUTPUT_DIR/r.txt" && cat inputs/*.txt inputs/sums/* >> "$OUTPUT_DIR/r.txt"',
            editor_text="typed ",
            env={"OUTPUT_DIR": "out/new/folder"},
            inputs=[
                {"from": f"host://{granted}"},
                {"from": "workspace://out/made.txt", "mode": "link", "to": "inputs/linked.txt"},
                {"from": "workspace://out/made.txt", "to": "inputs/made-copy.txt"},
                {"from": "skill://billing/scripts/sum.sh", "to": "inputs/sums/"},
            ],
            output_files=["$OUTPUT_DIR/**"],
            save_as_artifacts=True,
        )
        assert result.value["exit_code"] == 0, result.content
        (entry,) = result.value["output_files"]
        assert entry["content"] == "typed granted made made echo 42\n"
        assert [saved["name"] for saved in result.value["artifact_files"]] == ["out/new/folder/r.txt"]
        assert "warnings" not in result.value
        assert talk.workspace is not None and not list(talk.workspace.runs_dir.iterdir())
    finally:
        await shell.close()
        workspaces.close()
