"""Calls of skills and tools that control records have paused or refused."""

from __future__ import annotations

import json

import pytest

from flink_skills.tools import CallControl
from tests.tools.conftest import Conversation


def control(*entries: tuple[str, str, str]) -> CallControl:
    """Return the control with entries of an action, a target and a name."""
    found = CallControl()
    found.update(
        json.dumps(
            [
                {"action": action, "target": target, "name": name, "agent": "", "reason": "it pays twice."}
                for action, target, name in entries
            ]
        ).encode()
    )
    return found


@pytest.mark.parametrize(
    ("action", "told"),
    [
        ("pause", "is paused: it pays twice. Continue without it."),
        ("refuse", "is refused: it pays twice. Do not use it again, and continue without it."),
    ],
)
async def test_a_call_of_a_tool_does_not_run_and_the_model_receives_the_reason(
    conversation: Conversation, action: str, told: str
) -> None:
    conversation.context.control = control((action, "tool", "execute_shell_command"))
    result = await conversation.call("execute_shell_command", command="touch $WORK_DIR/ran")
    assert result.is_error
    assert result.content == f"execute_shell_command was not called: tool execute_shell_command {told}"
    assert not (await conversation.call("load_skill", name="billing")).is_error
    conversation.context.control = CallControl()
    assert "ran" not in (await conversation.call("execute_shell_command", command="ls $WORK_DIR")).content


@pytest.mark.row("K17")
async def test_no_tool_uses_a_refused_skill(conversation: Conversation) -> None:
    await conversation.call("load_skill", name="billing")
    conversation.context.control = control(("refuse", "skill", "billing"))
    calls = [
        ("load_skill", {"name": "Billing"}),
        ("load_skill_resource", {"name": "billing", "path": "scripts/sum.sh"}),
        ("load_skill_resource", {"path": "skill://billing/scripts/sum.sh"}),
        ("execute_shell_command", {"command": "sh scripts/sum.sh"}),
    ]
    for tool, arguments in calls:
        result = await conversation.call(tool, **arguments)
        assert (result.is_error, "skill billing is refused: it pays twice." in result.content) == (True, True), tool
    assert not (await conversation.call("load_skill", name="log-triage")).is_error
    assert not (await conversation.call("load_skill_resource", name="log-triage", path="scripts/where.sh")).is_error
    assert not (await conversation.call("unload_skill", name="billing")).is_error
    # The workspace has the files of the skill.
    result = await conversation.call("execute_shell_command", command="sh $SKILLS_DIR/billing/scripts/sum.sh")
    assert "skill billing is refused" in result.content
    assert not (await conversation.call("execute_shell_command", command="true")).is_error


def test_an_entry_can_be_limited_to_an_agent() -> None:
    found = CallControl()
    found.update(b'[{"action": "pause", "target": "tool", "name": "pay", "agent": "till", "reason": "x"}]')
    assert found.denial("tool", "pay", "till")
    assert not found.denial("tool", "pay", "desk")
    assert not found.denial("skill", "pay", "till")
