"""Tools of skills as functions: the text of the tools, errors as exceptions, with and without an event loop."""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

import flink_skills
from flink_skills import AgentSkill, AgentSkillManager, SkillConfig, execute_shell_command, load_skill
from flink_skills.errors import ConfigError, ExecutionError, IsolationError, ResourceError, UnknownNameError
from flink_skills.skill import load_folder
from tests.kit.skills import write_skill
from tests.tools.conftest import Conversation

HYGIENE = SkillConfig({"skills.shell.backend": "hygiene", "skills.shell.min-isolation": "hygiene"})
GREET = AgentSkill(
    "greet",
    "Says hello.",
    "Run scripts/hello.sh.",
    {"scripts/hello.sh": '#!/bin/sh\necho "hello $1 from $SKILL_NAME"\n', "references/a.md": "Text."},
    extra={"disable-model-invocation": True},
)


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Folder of stores and workspaces."""
    folder = tmp_path / "tmp"
    folder.mkdir(mode=0o755)
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


@pytest.fixture
def manager_of_greet() -> AgentSkillManager:
    return AgentSkillManager(skills=[GREET], config=HYGIENE)


async def test_the_texts_are_those_of_the_tools(manager: AgentSkillManager, conversation: Conversation) -> None:
    told = await conversation.call("load_skill", name="log-triage")
    assert load_skill(manager, "log-triage") == told.content
    assert "Levels are in references/levels.md" in told.content
    resource = await conversation.call("load_skill_resource", name="log-triage", path="references/levels.md")
    read = flink_skills.load_skill_resource(manager, "log-triage", "references/levels.md")
    assert read == resource.content
    assert flink_skills.load_skill_resource(manager, "log-triage", "references/levels.md", 3000) == read[3000:]
    ran = await conversation.call("execute_shell_command", command="echo out; echo err >&2; exit 3", timeout=5)
    assert execute_shell_command("echo out; echo err >&2; exit 3", 5, config=HYGIENE) == ran.content


def test_a_hidden_skill_can_be_read(manager_of_greet: AgentSkillManager) -> None:
    assert "Run scripts/hello.sh." in load_skill(manager_of_greet, "greet")
    assert flink_skills.load_skill_resource(manager_of_greet, "greet", "references/a.md") == "Text."


def test_unreadable_skills_and_files_are_errors(manager: AgentSkillManager) -> None:
    with pytest.raises(ResourceError, match=r"There is no skill 'log-triag'\. Did you mean log-triage\?"):
        load_skill(manager, "log-triag")
    with pytest.raises(ResourceError, match=r"there is no file 'references/level\.md'"):
        flink_skills.load_skill_resource(manager, "log-triage", "references/level.md")


@pytest.mark.parametrize("by_name", [True, False])
def test_a_skill_made_in_code_runs(manager_of_greet: AgentSkillManager, *, by_name: bool) -> None:
    where = {"skill": "greet", "manager": manager_of_greet} if by_name else {"skill": GREET, "config": HYGIENE}
    text = execute_shell_command('scripts/hello.sh "$WHO"', env={"WHO": "you"}, **where)  # type: ignore[arg-type]
    assert text == "exit code: 0\nstdout:\nhello you from greet\nstderr:"
    text = execute_shell_command("echo x >> SKILL.md || cat", stdin="read-only", **where)  # type: ignore[arg-type]
    assert "stdout:\nread-only\nstderr:" in text
    assert "Permission denied" in text or "Read-only" in text


def test_a_skill_of_a_folder_runs_with_its_programs(tmp_path: Path) -> None:
    folder = write_skill(tmp_path / "greet")
    (folder / "run").write_text("#!/bin/sh\npwd\n")
    (folder / "run").chmod(0o755)
    skill = load_folder(str(folder)).skill
    assert "/skills/greet\n" in execute_shell_command("./run", skill=skill, config=HYGIENE)
    assert "/work\n" in execute_shell_command("pwd", skill=skill, cwd="$WORK_DIR", config=HYGIENE)


def test_command_opens_the_folder_that_load_skill_shows(tmp_path: Path) -> None:
    write_skill(tmp_path / "skills" / "greet", **{"hello.txt": "hello there"})
    write_skill(tmp_path / "skills" / "other", **{"hello.txt": "other"})
    with AgentSkillManager(paths=[str(tmp_path / "skills")]) as manager:
        shown = load_skill(manager, "greet")
        (folder,) = re.findall(r"Folder of this skill: (\S+)", shown)
        said = execute_shell_command(f"cat {folder}/hello.txt; echo; pwd", manager=manager)
    assert "exit code: 0" in said
    assert "hello there" in said
    assert said.splitlines()[3].endswith("/work")


def test_the_workspace_is_removed(temporary: Path) -> None:
    text = execute_shell_command("echo x > $OUTPUT_DIR/a; ls $OUTPUT_DIR", config=HYGIENE)
    assert "stdout:\na\n" in text
    assert list(temporary.iterdir()) == []


def test_a_command_that_runs_too_long() -> None:
    assert "ran longer than 0.2 s" in execute_shell_command("sleep 60", 0.2, config=HYGIENE)


def test_commands_that_are_not_run_are_errors(manager_of_greet: AgentSkillManager) -> None:
    with pytest.raises(ExecutionError, match="NUL character"):
        execute_shell_command("echo \0", config=HYGIENE)
    with pytest.raises(ExecutionError, match="outside the workspace"):
        execute_shell_command("ls", cwd="/etc", config=HYGIENE)
    with pytest.raises(ExecutionError, match="HOME is set for every command"):
        execute_shell_command("ls", env={"HOME": "/"}, config=HYGIENE)
    # As in env=os.environ.copy(): one message has all of them.
    with pytest.raises(ExecutionError, match=r"HOME is set.*; PATH is set.*; 'PYTHONPATH' is never passed on"):
        execute_shell_command("ls", env={"HOME": "/", "A": "b", "PATH": "/bin", "PYTHONPATH": "/x"}, config=HYGIENE)
    only_ls = SkillConfig({"skills.shell.allowed-commands": "/bin/ls"}).merged_over(HYGIENE)
    with pytest.raises(ExecutionError, match="/bin/ls"):
        execute_shell_command("id", config=only_ls)
    with pytest.raises(ResourceError, match="There is no skill 'gret'"):
        execute_shell_command("ls", skill="gret", manager=manager_of_greet)


def test_an_interrupt_in_a_notebook_ends_the_command() -> None:
    code = (
        "import asyncio, signal, threading, os\n"
        "from flink_skills import SkillConfig, execute_shell_command\n"
        "config = SkillConfig({'skills.shell.backend': 'hygiene', 'skills.shell.min-isolation': 'hygiene'})\n"
        "async def cell():\n"
        "    threading.Timer(3, os.kill, (os.getpid(), signal.SIGINT)).start()\n"
        "    execute_shell_command('sleep 250', config=config)\n"
        "try:\n"
        "    asyncio.new_event_loop().run_until_complete(cell())\n"
        "except KeyboardInterrupt:\n"
        "    print('interrupted')\n"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True)
    assert ended.stdout == "interrupted\n"


def test_options_and_arguments_that_cannot_be_used() -> None:
    with pytest.raises(ConfigError, match="skill='greet' needs manager="):
        execute_shell_command("ls", skill="greet")
    with pytest.raises(ConfigError, match=r"skills\.shell\.enabled"):
        execute_shell_command("ls", config=SkillConfig({"skills.shell.enabled": False}))
    with pytest.raises(UnknownNameError, match="execution backend"):
        execute_shell_command("ls", config=SkillConfig({"skills.shell.backend": "none-such"}))
    strong = SkillConfig({"skills.shell.backend": "hygiene", "skills.shell.min-isolation": "landlock"})
    with pytest.raises(IsolationError):
        execute_shell_command("ls", config=strong)
