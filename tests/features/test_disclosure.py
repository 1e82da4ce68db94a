"""What a model gets to see of skills, and when (rows A1 and E8), over whole turns."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from flink_skills.manager import parse_menu
from flink_skills.testing import call, calls
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
