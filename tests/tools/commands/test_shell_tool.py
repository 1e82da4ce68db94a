"""Examines the internals of tools.commands.runner on purpose."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from flink_skills.errors import ConfigError, IsolationError
from flink_skills.execution import IsolationLevel, IsolationReport, Limits, Workspace, WorkspaceManager, command_user
from flink_skills.execution.backends import HygieneBackend
from flink_skills.manager import SkillView
from flink_skills.options import SkillConfig, SkillOptions
from flink_skills.tools import ShellRunner, ToolContext, ToolResult, ToolServices
from flink_skills.tools.commands import runner as shell_module
from flink_skills.tools.skills import ExecuteShellCommand
from tests.tools.conftest import Conversation


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
        "signal": None,
        "limit": None,
        "error": None,
        "level": "HYGIENE",
    }
    silent = await run(conversation, "true")
    assert silent.content == "exit code: 0\noutput: empty\nstdout:\nstderr:"
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
        ("~", "home"),
        ("~/../work", "work"),
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
    assert "outside the workspace" in result.content


async def test_timeout(conversation: Conversation) -> None:
    result = await run(conversation, "echo up; sleep 60", timeout=0.3)
    assert not result.is_error
    said = "the command was ended because it ran longer than 0.3 s; timeout may be 300"
    assert result.content.startswith(f"exit code: -15\nnote: {said}\nstdout:\nup\n")
    assert (result.value["timed_out"], result.value["signal"], result.value["return_code"]) == (True, "SIGTERM", -15)


async def test_timeout_is_capped_by_the_job(view: SkillView, shell_with: Callable[..., Any]) -> None:
    talk = Conversation(view, await shell_with(skills__shell__max_timeout="0.3 s"))
    result = await run(talk, "sleep 60", timeout=100)
    assert "this job allows commands 0.3 s at most, not 100 s" in result.content
    assert result.value["timed_out"] is True
    quick = await run(talk, "true", timeout=100)
    assert "0.3 s at most" in quick.content
    assert "0.3 s" not in (await run(talk, "true")).content
    assert "longer than 0.3 s, the most that this job allows" in (await run(talk, "sleep 60")).content


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
        ({"command": "a\ud800b"}, "- command: "),
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
    assert "note: the command reached the limit file_size, 4 KiB for one file: write smaller files" in large.content
    assert (killed.value["limit"], large.value["limit"]) == (None, "file_size")


async def test_failed_set_up_is_an_error_and_no_exit_code(conversation: Conversation) -> None:
    assert conversation.workspace is not None
    await conversation.call("load_skill", name="log-triage")
    await conversation.shell.close()
    result = await run(conversation, "true")
    assert result.is_error
    assert result.content == "The command could not be run safely: the execution backend is closed"
    assert result.value["error"] == "the execution backend is closed"
    assert result.value["return_code"] is None


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
    # What belongs to the workspace stays as it is.
    monkeypatch.setenv("WORK_DIR", "/elsewhere")
    own = Conversation(view, await shell_with(skills__shell__env="HOME;WORK_DIR"))
    assert own.workspace is not None
    folders = f"{own.workspace.home_dir} {own.workspace.work_dir}\n"
    assert (await run(own, "echo $HOME $WORK_DIR")).value["stdout"] == folders
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
    conversation.skill_state.apply({"op": "load", "skill": "secret-ops", "digest": "d"})
    result = await run(conversation, "pwd; ls $SKILLS_DIR")
    assert conversation.workspace is not None
    assert result.value["stdout"] == f"{conversation.workspace.work_dir}\n"


async def test_without_a_workspace_the_key_decides(view: SkillView, shell_with: Callable[..., Any]) -> None:
    shell = await shell_with()
    talk = Conversation(view, shell)
    for key in ({"b": 1, "a": 2}, {"a": 2, "b": 1}):
        talk.context = ToolContext(key=key, skills=view, skill_state=talk.skill_state)
        await run(talk, "echo x >> $WORK_DIR/log")
    assert (await run(talk, "wc -l < $WORK_DIR/log")).value["stdout"].strip() == "2"


async def test_paths_of_the_skills_texts_lead_to_the_copies(conversation: Conversation, skills: Path) -> None:
    await conversation.call("load_skill", name="log-triage")
    (skills / "log-triage-2").mkdir()
    workspace = conversation.workspace
    assert workspace is not None
    copy = workspace.skills_dir / "log-triage"
    original = skills / "log-triage"
    given = f"echo {original} {original}/a '{original}' {original}-2 /mnt{original} x={original}"
    result = await run(conversation, given)
    shown = f"{copy} {copy}/a {copy} {original}-2 /mnt{original} x={copy}\n"
    assert result.value["stdout"] == shown


async def test_values_of_a_skill_reach_its_commands_and_no_text(
    view: SkillView, shell_with: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("THE_TOKEN", "t0k3n-value")
    (tmp_path / "pin").write_text("file-s3cret\n")
    shell = await shell_with(
        skills__shell__env="REGION",
        **{
            "skills.env.billing.API_TOKEN": "${env:THE_TOKEN}",
            "skills.env.billing.PIN_CODE": f"${{file:{tmp_path}/pin}}",
        },
    )
    talk = Conversation(view, shell)
    show = 'echo "[$API_TOKEN]" >&2; echo "<$PIN_CODE>"; echo ${#API_TOKEN} ${#PIN_CODE}; exit 4'
    await talk.call("load_skill", name="billing")
    result = await run(talk, show)
    assert result.value["stdout"] == "<[hidden]>\n11 11\n"
    assert result.value["stderr"] == "[[hidden]]\n"
    assert "t0k3n" not in result.content and "s3cret" not in result.content
    # Another skill gets none of it, and does not show what the first left in a file.
    assert (await run(talk, "printenv API_TOKEN > $WORK_DIR/left; wc -c < $WORK_DIR/left")).value["stdout"] == "12\n"
    await talk.call("load_skill", name="log-triage")
    result = await run(talk, f"cat $WORK_DIR/left; {show}")
    assert result.value["stdout"] == "[hidden]\n<>\n0 0\n"


async def test_a_value_that_is_missing_names_the_option(
    view: SkillView, shell_with: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.delenv("NOT_THERE", raising=False)
    talk = Conversation(view, await shell_with(**{"skills.env.billing.API_TOKEN": "${env:NOT_THERE}"}))
    await talk.call("load_skill", name="billing")
    result = await run(talk, "echo ran > $WORK_DIR/ran")
    assert result.is_error
    assert "skills.env.billing.API_TOKEN" in result.content and "NOT_THERE" in result.content
    assert "skills.env.billing.API_TOKEN" in caplog.text
    await talk.call("load_skill", name="log-triage")
    assert (await run(talk, "ls $WORK_DIR")).value["stdout"] == "inputs\n"


async def test_a_secret_that_is_renewed(view: SkillView, shell_with: Callable[..., Any], tmp_path: Path) -> None:
    secret = tmp_path / "token"
    secret.write_text("first-token")
    talk = Conversation(view, await shell_with(**{"skills.env.billing.API_TOKEN": f"${{file:{secret}}}"}))
    await talk.call("load_skill", name="billing")
    await run(talk, "printenv API_TOKEN > $WORK_DIR/old")
    secret.write_text("second-token-2")
    result = await run(talk, "cat $WORK_DIR/old; printenv API_TOKEN; echo ${#API_TOKEN}")
    assert result.value["stdout"] == "[hidden]\n[hidden]\n14\n"


async def test_with_a_policy_there_is_no_shell(view: SkillView, shell_with: Callable[..., Any]) -> None:
    talk = Conversation(view, await shell_with(skills__shell__allowed_commands="/bin/echo;/bin/cat"))
    assert (await run(talk, "echo 'a  b' *.txt ~")).value["stdout"] == "a  b *.txt ~\n"
    assert (await run(talk, "cat", stdin="given")).value["stdout"] == "given"
    for command in ("echo a; ls", "ls", "echo $HOME", "sh -c 'echo a'", "echo a > out", "/bin/sh", "cd ..", "#"):
        result = await run(talk, command)
        assert result.is_error, command
        assert result.value is None
    assert talk.workspace is not None
    assert list(talk.workspace.runs_dir.iterdir()) == []
    description = talk.tools.specs(["execute_shell_command"])[0].description
    assert "There is no shell" in description and "Permitted: /bin/echo, /bin/cat." in description


async def test_a_policy_for_the_scripts_of_one_skill(
    view: SkillView, shell_with: Callable[..., Any], skills: Path
) -> None:
    script = skills / "billing" / "scripts" / "total"
    shell = await shell_with(skills__shell__allowed_commands="billing=scripts/total;log-triage=/bin/ls")
    talk = Conversation(view, shell)
    assert "without a skill: none" in (await run(talk, "ls")).content
    await talk.call("load_skill", name="billing")
    ways = ["scripts/total 7", "./scripts/total 7", "scripts/../scripts/total 7", f"{script} 7"]
    for command in ways:
        result = await run(talk, command)
        assert result.value is not None, result.content
        assert result.value["stdout"] == "total of 7 in billing\n"
    refused = await run(talk, "ls")
    assert "Skill log-triage may: load it again first. Programs for skill billing: scripts/total." in refused.content
    assert (await run(talk, "scripts/sum.sh")).content.startswith("'scripts/sum.sh' is not executable")
    await talk.call("load_skill", name="log-triage")
    assert (await run(talk, "ls scripts")).value["stdout"] == "where.sh\n"
    assert "Skill billing may" in (await run(talk, "../billing/scripts/total 7")).content


async def test_options_that_cannot_be_used_are_refused(shell_with: Callable[..., Any]) -> None:
    for name in ("LD_PRELOAD", "PYTHONPATH", "GIT_SSH", "BASH_ENV", "PATH", "WORK_DIR", "a-b"):
        with pytest.raises(ConfigError, match=rf"option skills\.env\.billing\.{name}"):
            await shell_with(**{f"skills.env.billing.{name}": "${env:X}"})
    with pytest.raises(ConfigError, match=r"skills\.shell\.allowed-commands: 'cat'.*write its path: '/usr/bin/cat'"):
        await shell_with(skills__shell__allowed_commands="cat")


async def test_a_policy_cannot_be_kept_on_another_machine(tmp_path: Path) -> None:
    config = SkillConfig({"skills.shell.denied-commands": "/bin/ls"})
    report = IsolationReport(IsolationLevel.REMOTE, "remote")
    with pytest.raises(ConfigError, match="backend remote runs commands on another"):
        ShellRunner(HygieneBackend(), WorkspaceManager(tmp_path), config, report=report)


async def test_limits_and_words_of_a_caller(shell_with: Callable[..., Any]) -> None:
    shell = await shell_with(skills__shell__max_timeout="20 s", skills__shell__max_open_files=64)
    workspace = shell.workspaces.for_key("k")
    ulimit = "ulimit -n"
    result = await shell.run(ulimit, workspace=workspace, limits=Limits(open_files=32))
    assert result.stdout == b"32\n"
    assert (await shell.run(ulimit, workspace=workspace, limits=Limits(open_files=99))).stdout == b"64\n"
    ended = await shell.run("sleep 60", workspace=workspace, limits=Limits(wall_time=0.2))
    assert ended.timed_out
    words = await shell.run(("printf", "%s|", "a b", "$HOME", ";"), workspace=workspace)
    assert words.stdout == b"a b|$HOME|;|"


async def test_the_level_is_what_the_backend_proves(shared_folder: Path) -> None:
    config = SkillConfig({"skills.shell.backend": "hygiene", "skills.shell.min-isolation": "HYGIENE"})
    workspaces = WorkspaceManager(shared_folder / "w", user=command_user(config))
    shell = await ShellRunner.start(config, workspaces)
    try:
        assert shell.level is IsolationLevel.HYGIENE
        assert shell.report.backend == "hygiene"
        assert shell.report.limits == shell.limits
        result = await shell.run("echo hi", workspace=workspaces.for_key("k"), call_id="c")
        assert result.stdout == b"hi\n"
        assert not workspaces.share_files
    finally:
        await shell.close()
        workspaces.close()
    config.set(SkillOptions.SHELL_MIN_ISOLATION, "LANDLOCK")
    with pytest.raises(IsolationError, match="hygiene: reached HYGIENE only"):
        await ShellRunner.start(config, workspaces)


async def test_at_landlock_a_command_has_its_workspace_and_nothing_else(view: SkillView, shared_folder: Path) -> None:
    config = SkillConfig({"skills.shell.backend": "landlock", "skills.shell.denied-commands": "billing=scripts/total"})
    workspaces = WorkspaceManager(shared_folder / "w", user=command_user(config))
    try:
        shell = await ShellRunner.start(config, workspaces)
    except IsolationError as error:
        pytest.skip(f"this machine has no such sandbox: {error}")
    try:
        assert workspaces.share_files
        one, two = Conversation(view, shell, '"one"'), Conversation(view, shell, '"two"')
        await two.call("load_skill", name="billing")
        assert "does not permit" in (await run(two, "scripts/total 7")).content
        assert (await run(two, "cp SKILL.md out/copy")).value["return_code"] == 0
        assert two.workspace is not None
        for path in (two.workspace.out_dir / "copy", two.workspace.skills_dir / "billing" / "SKILL.md"):
            assert (await run(two, f"cat {path}")).value["return_code"] == 0
            refused = (await run(one, f"cat {path}")).value
            assert refused["return_code"] == 1
            assert "Permission denied" in refused["stderr"]
        assert (await run(two, "cp /bin/sh SKILL.md")).value["return_code"] == 1
    finally:
        await shell.close()
        workspaces.close()


async def test_options_are_checked_before_a_backend_is_left_running(
    shared_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = []

    async def note(config: SkillConfig, workspaces: WorkspaceManager) -> tuple[HygieneBackend, IsolationReport]:
        backend = HygieneBackend()
        await backend.start()
        opened.append(backend)
        return backend, IsolationReport(backend.level, backend.name)

    monkeypatch.setattr(shell_module, "open_backend", note)
    config = SkillConfig({"skills.shell.allowed-commands": "ls"})
    with pytest.raises(ConfigError, match="allowed-commands"):
        await ShellRunner.start(config, WorkspaceManager(shared_folder / "w"))
    assert [backend.launcher_pid for backend in opened] == [None]


async def test_a_readable_path_that_is_not_there_is_remarked(
    shell_with: Callable[..., Any], shared_folder: Path
) -> None:
    absent = shared_folder / "absent"
    shell = await shell_with(skills__shell__readable=f"{shared_folder};{absent}")
    (remark,) = shell.remarks()
    assert remark == f"option skills.shell.readable: '{absent}' does not exist on this machine"


def test_without_a_shell_there_is_no_such_tool(view: SkillView) -> None:
    with pytest.raises(ConfigError, match=r"skills\.shell\.enabled"):
        ExecuteShellCommand(ToolServices(view))


@pytest.mark.row("B12")
async def test_the_view_of_the_caller_counts_else_that_of_the_tool(conversation: Conversation) -> None:
    await conversation.call("load_skill", name="billing")
    conversation.context.skills = None
    assert (await run(conversation, "cat scripts/sum.sh")).value["stdout"] == "echo 42\n"
    conversation.context.skills = conversation.services.view.only(["log-triage"])
    assert (await run(conversation, "cat scripts/sum.sh")).value["return_code"] != 0


async def test_the_workspace_is_opened_when_a_command_comes(conversation: Conversation) -> None:
    workspace, opened = conversation.context.workspace, []

    async def open_workspace() -> Workspace:
        opened.append(workspace)
        return workspace  # type: ignore[return-value]

    conversation.context.workspace, conversation.context.open_workspace = None, open_workspace
    for _ in range(2):
        assert not (await run(conversation, "true")).is_error
    assert (conversation.context.workspace, opened) == (workspace, [workspace])


@pytest.mark.row("C12")
@pytest.mark.parametrize("command", ["command", "cmd", "Command", "Cmd"])
@pytest.mark.parametrize("cwd", ["cwd", "workdir", "workDir", "working_directory"])
async def test_names_of_arguments(conversation: Conversation, command: str, cwd: str) -> None:
    result = await conversation.call(
        "execute_shell_command", **{command: "pwd", cwd: "$OUTPUT_DIR", "background": True}
    )
    assert result.value["stdout"].endswith("/out\n")


@pytest.mark.row("C12")
@pytest.mark.parametrize("timeout", ["timeout", "timeout_sec", "timeoutSec", "TimeoutSec"])
async def test_names_of_the_time_limit(conversation: Conversation, timeout: str) -> None:
    result = await conversation.call("execute_shell_command", cmd="sleep 60", **{timeout: 0.3})
    assert result.value["timed_out"]


@pytest.mark.row("C12")
async def test_an_argument_that_is_nearly_one(conversation: Conversation) -> None:
    result = await run(conversation, "true", timeout_ms=300)
    assert result.is_error
    assert result.content.startswith("There is no argument 'timeout_ms': did you mean timeout?")
