"""What a model gets to see of skills, and when (rows A1 and E8), over whole turns."""

from __future__ import annotations

import json
import tempfile
import zipfile
from pathlib import Path
from typing import Any

import pytest

from flink_skills import AgentSkillManager, SkillConfig
from flink_skills.cli.look.prompt_request import first_request
from flink_skills.manager import parse_menu
from flink_skills.models import ToolMessage
from flink_skills.testing import call, calls
from flink_skills.tools import PROFILES
from tests.features.conftest import Plain, Run
from tests.kit.models import Script


@pytest.mark.row("A1", "E13", "F31")
def test_list_then_instructions_then_documents_and_scripts_never(run: Run, script: Script, skills: Path) -> None:
    model = script(
        [
            calls(call("load_skill", name="shout")),
            calls(call("load_skill_resource", name="shout", path="notes.md")),
            calls(call("execute_shell_command", command="sh scripts/run.sh | tee $OUTPUT_DIR/said", stdin="quiet")),
            "done",
        ]
    )
    assert run() == ["done"]
    seen = [f"{request.system}\n{[message.content for message in request.messages]}" for request in model.requests]
    assert ["Writes in capitals." in text for text in seen] == [True] * 4
    assert ["Run sh scripts/run.sh" in text for text in seen] == [False, True, True, True]
    assert ["LOUD NOTES" in text for text in seen] == [False, False, True, True]
    assert ["QUIET" in text for text in seen] == [False, False, False, True]
    assert not any("tr a-z A-Z" in text for text in seen)
    assert len({request.system for request in model.requests}) == 1


@pytest.mark.row("E8")
def test_code_in_an_answer_is_not_run(run: Run, script: Script, tmp_path: Path) -> None:
    marker = tmp_path / "ran"
    fences = [f"```{language}\ntouch {marker}\n```" for language in ("bash", "sh", "tool_code", "")]
    answer = "\n".join([*fences, f"```python\nopen({str(marker)!r}, 'w')\n```"])
    model = script([answer])
    assert run() == [answer]
    assert len(model.requests) == 1
    assert not marker.exists()


class ForTenants(Plain):
    """Lets each event see the skills that it names, and nothing of the others."""

    def visible_skills(self, event: Any, ctx: Any) -> list[str] | None:
        return None if event == "all" else [event]


@pytest.mark.row("B12")
def test_what_an_event_may_not_see_is_not_there_for_it(run: Run, script: Script) -> None:
    wanted = (
        call("load_skill", name="count"),
        call("load_skill_resource", name="count", path="scripts/run.sh"),
        call("execute_shell_command", command="ls $SKILLS_DIR"),
    )
    model = script(lambda request: calls(*wanted) if len(request.messages) == 1 else "done")
    assert run(["shout", "count", "all", "nothing"], ForTenants) == ["done"] * 4
    asked = {str(request.messages[0].content): request for request in model.requests if len(request.messages) == 1}
    answered = {str(request.messages[0].content): request for request in model.requests if len(request.messages) > 1}
    for event, names in {"shout": ["shout"], "count": ["count"], "all": ["count", "shout"], "nothing": []}.items():
        request = asked[event]
        assert [name for name, _ in parse_menu(request.system)] == names
        enums = [one.parameters["properties"]["name"]["enum"] for one in request.tools if one.name == "load_skill"]
        assert enums == ([names] if names else [])
        first, second, _ = (str(message.content) for message in answered[event].messages[-3:])
        assert ("Run sh scripts/run.sh" in first) == ("wc -c" in second) == ("count" in names)


@pytest.mark.row("E1", "E9")
@pytest.mark.parametrize("shell", ["true", "false"])
@pytest.mark.parametrize("profile", [*PROFILES, "[load_skill, skill_run]"])
def test_it_is_what_a_turn_sends(profile: str, shell: str, run: Run, script: Script, skills: Path) -> None:
    model = script(["done"])
    options = {"tools": profile, "shell.enabled": shell}
    assert run(**options) == ["done"]
    (request,) = model.requests
    shown = first_request(
        AgentSkillManager([str(skills)]).view(),
        SkillConfig({f"skills.{key}": value for key, value in options.items()}),
    ).to_json()
    assert request.system == shown["system"]
    sent = [{"name": s.name, "description": s.description, "parameters": dict(s.parameters)} for s in request.tools]
    assert json.loads(json.dumps(sent)) == shown["tools"]
    assert {tool["name"] for tool in shown["tools"]} <= set(PROFILES.get(profile, ("load_skill", "skill_run")))
    assert request.system.count("\n- shout: ") == 1


@pytest.fixture
def archive(skills: Path, tmp_path: Path) -> str:
    with zipfile.ZipFile(tmp_path / "skills.zip", "w") as archive:
        for path in sorted(skills.rglob("*")):
            if path.is_file():
                archive.write(path, Path("skills") / path.relative_to(skills))
    return str(tmp_path / "skills.zip")


def stored(folder: Path) -> list[Path]:
    return sorted(path.parent for path in folder.rglob("SKILL.md"))


@pytest.mark.row("B8")
def test_without_an_option_it_is_below_the_temporary_folder(
    run: Run, script: Script, archive: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    temporary.chmod(0o711)
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    model = script(["done"])
    assert run(sources=[archive], **{"store.dir": ""}) == ["done"]
    assert "\n- shout: " in model.requests[0].system
    assert [path.name for path in stored(temporary)] == ["count", "shout"]


@pytest.mark.row("B9")
def test_the_option_puts_it_elsewhere(
    run: Run, script: Script, archive: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    temporary.chmod(0o711)
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    script(["done"])
    assert run(sources=[archive], **{"store.dir": str(tmp_path / "elsewhere")}) == ["done"]
    assert [path.name for path in stored(tmp_path / "elsewhere")] == ["count", "shout"]
    assert stored(temporary) == []


def answers_to(script: Any, run: Run, *wanted: Any, **options: Any) -> list[str]:
    """The results of calls, one after another in one turn."""
    model = script([*(calls(one) for one in wanted), "done"])
    assert run(**options) == ["done"]
    return [str(message.content) for message in model.requests[-1].messages if isinstance(message, ToolMessage)]


@pytest.mark.row("H13", "E9")
def test_without_execution_there_is_no_such_tool(run: Run, script: Script) -> None:
    (said,) = answers_to(script, run, call("execute_shell_command", command="id"), **{"shell.enabled": "false"})
    assert "execute_shell_command" in said
    assert "load_skill" in said


@pytest.mark.row("H13", "F13")
def test_time_that_is_up_is_said_with_what_may_be_asked_for(run: Run, script: Script) -> None:
    limits = {"shell.max-timeout": "1 s"}
    (said,) = answers_to(script, run, call("execute_shell_command", command="sleep 60", timeout=50), **limits)
    assert "ran longer than 1 s" in said
    assert "not 50 s" in said


@pytest.mark.row("H13")
def test_a_file_that_is_missing_is_answered_with_near_names(run: Run, script: Script) -> None:
    said = answers_to(
        script, run, call("load_skill", name="shout"), call("load_skill_resource", name="shout", path="note.md")
    )
    assert "notes.md" in said[1]
