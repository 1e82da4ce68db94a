from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from flink_skills.errors import ConfigError, UnknownNameError
from flink_skills.execution import WorkspaceManager
from flink_skills.manager import SkillView
from flink_skills.options import SkillConfig, SkillOptions
from flink_skills.tools import ShellRunner, ToolContext, ToolResult

from .conftest import Conversation


async def run(talk: Conversation, command: str, **more: Any) -> ToolResult:
    return await talk.call("execute_shell_command", command=command, **more)


async def test_result_as_text_and_as_value(conversation: Conversation) -> None:
    result = await run(conversation, "echo out; echo err >&2; exit 3")
    assert result.content == "exit code: 3\nstdout:\nout\nstderr:\nerr\n"
    assert not result.is_error
    assert result.value == {
        "return_code": 3,
        "stdout": "out\n",
        "stderr": "err\n",
        "timed_out": False,
        "truncated": False,
    }
    silent = await run(conversation, "true")
    assert silent.content == "exit code: 0\nstdout:\nstderr:"
    unfinished = await run(conversation, "printf no-newline")
    assert unfinished.content == "exit code: 0\nstdout:\nno-newline\nstderr:"


async def test_runs_in_the_folder_of_the_skill_loaded_last(conversation: Conversation) -> None:
    workspace = conversation.workspace
    assert workspace is not None
    assert (await run(conversation, 'pwd; echo "[$SKILL_NAME]"')).value["stdout"] == f"{workspace.work_dir}\n[]\n"
    await conversation.call("load_skill", name="log-triage")
    where = f"{workspace.skills_dir / 'log-triage'}\nlog-triage\n"
    assert (await run(conversation, "sh scripts/where.sh")).value["stdout"] == where
    await conversation.call("load_skill", name="billing")
    assert (await run(conversation, "sh scripts/sum.sh")).value["stdout"] == "42\n"
    await conversation.call("load_skill", name="log-triage")
    assert (await run(conversation, "sh scripts/where.sh")).value["stdout"] == where
    both = await run(conversation, "ls $SKILLS_DIR")
    assert both.value["stdout"] == "billing\nlog-triage\n"
    await conversation.call("unload_skill", name="log-triage")
    assert (await run(conversation, "pwd")).value["stdout"] == f"{workspace.skills_dir / 'billing'}\n"


async def test_staged_once_for_many_commands(conversation: Conversation) -> None:
    await conversation.call("load_skill", name="log-triage")
    inodes = [(await run(conversation, "stat -c %i SKILL.md")).value["stdout"] for _ in range(3)]
    assert len(set(inodes)) == 1
    denied = await run(conversation, "echo spoiled > SKILL.md || echo denied")
    assert "denied" in denied.value["stdout"]


async def test_links_of_a_staged_skill_lead_to_writable_folders(conversation: Conversation) -> None:
    await conversation.call("load_skill", name="log-triage")
    assert conversation.workspace is not None
    result = await run(conversation, "echo r > out/report.txt && cat $OUTPUT_DIR/report.txt")
    assert result.value["stdout"] == "r\n"
    assert (conversation.workspace.out_dir / "report.txt").exists()


async def test_the_event_is_there(conversation: Conversation) -> None:
    assert conversation.workspace is not None
    conversation.workspace.write_event(b'{"n": 1}')
    await conversation.call("load_skill", name="log-triage")
    for path in ("$WORK_DIR/inputs/event.json", "work/inputs/event.json", "inputs/event.json"):
        assert (await run(conversation, f"cat {path}")).value["stdout"] == '{"n": 1}', path


@pytest.mark.parametrize(
    ("cwd", "meant"),
    [
        (None, "skills/log-triage"),
        ("", "skills/log-triage"),
        (".", "skills/log-triage"),
        ("scripts", "skills/log-triage/scripts"),
        ("./scripts/", "skills/log-triage/scripts"),
        ("scripts/..", "skills/log-triage"),
        ("..", "skills"),
        ("../billing/scripts", "skills/billing/scripts"),
        ("$WORK_DIR", "work"),
        ("${WORK_DIR}/inputs", "work/inputs"),
        ("$OUTPUT_DIR/", "out"),
        ("$SKILLS_DIR/billing", "skills/billing"),
        ("$WORKSPACE_DIR", "."),
        ("~", "."),
        ("~/work", "work"),
        ("out", "out"),
    ],
)
async def test_cwd(conversation: Conversation, cwd: str | None, meant: str) -> None:
    for name in ("billing", "log-triage"):
        await conversation.call("load_skill", name=name)
    assert conversation.workspace is not None
    result = await run(conversation, "pwd -P", cwd=cwd)
    assert result.value is not None, result.content
    assert Path(result.value["stdout"].strip()) == conversation.workspace.root / meant


async def test_cwd_may_be_the_folder_that_the_skill_text_names(conversation: Conversation) -> None:
    path = (await conversation.call("load_skill", name="log-triage")).value["path"]
    assert conversation.workspace is not None
    result = await run(conversation, "pwd", cwd=f"{path}/scripts")
    assert result.value["stdout"] == f"{conversation.workspace.skills_dir}/log-triage/scripts\n"


@pytest.mark.parametrize(
    "cwd",
    [
        "/etc",
        "/",
        "../../..",
        "../../../../etc",
        "$HOME/../x",
        "$RUN_DIR/../../..",
        "$WORK_DIR/link",
        "nowhere",
        "SKILL.md",
        "$PATH",
        "$WORK_DIRECTORY",
        "a\0b",
        "~root",
        "\ud800",
    ],
)
async def test_cwd_outside_of_the_workspace_is_refused(conversation: Conversation, cwd: str) -> None:
    await conversation.call("load_skill", name="log-triage")
    await run(conversation, "ln -s /etc $WORK_DIR/link; ls $WORK_DIR/link/passwd")
    result = await run(conversation, "touch ran; pwd", cwd=cwd)
    assert result.is_error
    assert result.content.startswith("cwd ")
    assert "$WORK_DIR" in result.content


async def test_another_keys_workspace_is_no_place_to_run(view: SkillView, shell_with: Callable[..., Any]) -> None:
    shell = await shell_with()
    one, two = Conversation(view, shell, '"one"'), Conversation(view, shell, '"two"')
    await run(two, "echo private > note")
    assert two.workspace is not None
    result = await run(one, "cat note", cwd=str(two.workspace.work_dir))
    assert result.is_error
    assert "outside of the workspace" in result.content


async def test_timeout(conversation: Conversation) -> None:
    result = await run(conversation, "echo up; sleep 60", timeout=0.3)
    assert not result.is_error
    assert result.content.startswith(
        "exit code: -15\nnote: the command was ended because it ran longer than 0.3 s\nstdout:\nup\n"
    )
    assert result.value["timed_out"] is True


async def test_timeout_is_capped_by_the_job(view: SkillView, shell_with: Callable[..., Any]) -> None:
    talk = Conversation(view, await shell_with(skills__shell__max_timeout="0.3 s"))
    result = await run(talk, "sleep 60", timeout=100)
    assert "this job allows commands 0.3 s at most, not 100 s" in result.content
    assert result.value["timed_out"] is True
    quick = await run(talk, "true", timeout=100)
    assert "0.3 s at most" in quick.content
    assert "note" not in (await run(talk, "true")).content
    assert "0.3 s at most" in (await run(talk, "sleep 60")).content


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({}, "- command: Field required"),
        ({"command": ""}, "- command: "),
        ({"command": ["ls"]}, "- command: "),
        ({"command": "true", "timeout": 0}, "- timeout: "),
        ({"command": "true", "timeout": "soon"}, "- timeout: "),
        ({"command": "true", "timeout": float("nan")}, "- timeout: "),
        ({"command": "a\0b"}, "NUL"),
    ],
)
async def test_wrong_arguments_are_explained(conversation: Conversation, arguments: dict[str, Any], says: str) -> None:
    result = await conversation.call("execute_shell_command", **arguments)
    assert result.is_error
    assert says in result.content


async def test_lenient_arguments(conversation: Conversation) -> None:
    result = await run(conversation, "cat", stdin="grün", timeout="5", cwd=None, description="what it is for")
    assert result.value["stdout"] == "grün"
    assert (await run(conversation, "cat", stdin=None, timeout=None)).value["return_code"] == 0


async def test_output_is_capped_and_says_so(view: SkillView, shell_with: Callable[..., Any]) -> None:
    talk = Conversation(view, await shell_with(skills__shell__max_output="1000"))
    result = await run(talk, "seq 10000")
    assert result.value["truncated"] is True
    assert len(result.content) < 1500
    assert "bytes of stdout were left out" in result.content
    assert "\n10000\n" in result.content
    assert "\n1\n2\n" in result.content


async def test_what_is_no_utf8_is_replaced(conversation: Conversation) -> None:
    result = await run(conversation, r"printf 'a\377b\0c'")
    assert result.value["stdout"] == "a\N{REPLACEMENT CHARACTER}b\0c"


async def test_signals_and_limits_are_named(view: SkillView, shell_with: Callable[..., Any]) -> None:
    talk = Conversation(view, await shell_with(skills__shell__max_file_size="4096"))
    killed = await run(talk, "kill -KILL $$")
    assert killed.content.startswith("exit code: -9\nnote: the command was ended by SIGKILL\n")
    large = await run(talk, "exec head -c 9999 /dev/zero > $WORK_DIR/big")
    assert "limit of file-size" in large.content


async def test_failed_set_up_is_an_error_and_no_exit_code(conversation: Conversation) -> None:
    assert conversation.workspace is not None
    await conversation.call("load_skill", name="log-triage")
    shell = await ShellRunner.start(SkillConfig(), WorkspaceManager(conversation.workspace.root.parent))
    await shell.close()
    talk = Conversation(conversation.context.skills, shell)  # type: ignore[arg-type]
    result = await run(talk, "true")
    assert result.is_error
    assert result.content == "The command was not run: the execution backend is closed"


async def test_the_environment(conversation: Conversation, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    text = (await run(conversation, "env")).value["stdout"]
    assert "sk-secret" not in text
    assert "FLINK_SKILLS_CALL_ID=call-1\n" in text


async def test_variables_that_the_job_passes_on(
    view: SkillView, shell_with: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REGION", "eu")
    monkeypatch.setenv("OTHER", "x")
    talk = Conversation(view, await shell_with(skills__shell__env="REGION;ABSENT"))
    assert (await run(talk, "echo $REGION $OTHER $ABSENT")).value["stdout"] == "eu\n"
    with pytest.raises(ConfigError, match="LD_PRELOAD"):
        await shell_with(skills__shell__env="LD_PRELOAD")


async def test_runs_leave_no_empty_folders(conversation: Conversation) -> None:
    assert conversation.workspace is not None
    await run(conversation, "true")
    await run(conversation, "echo log > $RUN_DIR/log", cwd="nowhere")
    assert list(conversation.workspace.runs_dir.iterdir()) == []
    await run(conversation, "echo log > $RUN_DIR/log")
    assert len(list(conversation.workspace.runs_dir.iterdir())) == 1


async def test_no_more_commands_at_once_than_allowed(view: SkillView, shell_with: Callable[..., Any]) -> None:
    talk = Conversation(view, await shell_with(skills__shell__max_concurrent=2))
    text = 'touch $WORK_DIR/on.$$; ls $WORK_DIR | grep -c "^on"; sleep 0.1; rm $WORK_DIR/on.$$'
    results = await asyncio.gather(*(run(talk, text) for _ in range(8)))
    counts = [int(result.value["stdout"]) for result in results]
    assert max(counts) == 2


async def test_a_skill_that_is_no_longer_permitted_is_not_staged(conversation: Conversation) -> None:
    conversation.activations.apply({"op": "load", "skill": "secret-ops", "digest": "d"})
    result = await run(conversation, "pwd; ls $SKILLS_DIR")
    assert conversation.workspace is not None
    assert result.value["stdout"] == f"{conversation.workspace.work_dir}\n"


async def test_without_a_workspace_the_key_decides(view: SkillView, shell_with: Callable[..., Any]) -> None:
    shell = await shell_with()
    talk = Conversation(view, shell)
    for key in ({"b": 1, "a": 2}, {"a": 2, "b": 1}):
        talk.context = ToolContext(key=key, skills=view, activations=talk.activations)
        await run(talk, "echo x >> $WORK_DIR/log")
    assert (await run(talk, "wc -l < $WORK_DIR/log")).value["stdout"].strip() == "2"


async def test_backend_and_level_come_from_the_options(tmp_path: Path) -> None:
    config = SkillConfig().set(SkillOptions.SHELL_BACKEND, "hygeine")
    with pytest.raises(UnknownNameError, match="hygiene"):
        await ShellRunner.start(config, WorkspaceManager(tmp_path / "w"))
    shell = await ShellRunner.start(SkillConfig(), WorkspaceManager(tmp_path / "w"))
    assert shell.level == "HYGIENE"
    result = await shell.run("echo hi", workspace=shell.workspaces.for_key("k"), call_id="c")
    assert result.stdout == b"hi\n"
    await shell.close()
    shell.workspaces.close()
