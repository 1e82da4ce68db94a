"""Runs the code in the answers of a model and returns its output to it, with ``skills.code.enabled``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from flink_skills.options import SkillOptions
from flink_skills.tools.base import ToolResult
from flink_skills.tools.code import RUN_CODE, code_blocks
from flink_skills.tools.code.blocks import as_output

if TYPE_CHECKING:
    from flink_skills.agents.turn.conversation import Conversation

__all__ = ["CodeRounds"]

# Blocks of one answer.
_MAX_BLOCKS = 8
_LAST = "No more code is run for this request: answer without code."


class CodeRounds:
    """The code in the answers of one chat. It counts rounds, and consecutive answers whose code failed."""

    def __init__(self, conversation: Conversation) -> None:
        self._conversation = conversation
        config = conversation.agent_turn.agent.config
        self._rounds_left = config.get(SkillOptions.CODE_MAX_ROUNDS) if conversation.model.code is not None else 0
        self._retries = config.get(SkillOptions.CODE_ERROR_RETRIES)
        self._failed = 0

    async def outputs(self, step: str, answer: str) -> str | None:
        """Return the message to the model about the code in its ``answer``, None if the answer is the final one.

        Each block is a durable step. Blocks after one that failed do not run.
        """
        blocks = code_blocks(answer) if self._rounds_left else []
        if not blocks:
            return None
        self._rounds_left -= 1
        told: list[str] = []
        failed = False
        for number, block in enumerate(blocks[:_MAX_BLOCKS], 1):
            result = await self._call(f"{step}.{number - 1}", {"language": block.language, "code": block.code})
            of = f"Block {number} of {len(blocks)}:\n" if len(blocks) > 1 else ""
            told.append(of + as_output(result.content))
            failed = _has_failed(result)
            if failed:
                break
        left = len(blocks) - len(told)
        if left:
            why = "an earlier one failed" if failed else f"{_MAX_BLOCKS} blocks of an answer are run"
            told.append(f"{left} more blocks were not run: {why}.")
        self._failed = self._failed + 1 if failed else 0
        if self._failed > self._retries:
            self._rounds_left = 0
        if not self._rounds_left:
            told.append(_LAST)
        return "\n\n".join(told)

    async def _call(self, step: str, arguments: dict[str, Any]) -> ToolResult:
        conversation = self._conversation
        result = await conversation.run_tool(step, RUN_CODE, arguments, tools=conversation.model.code)
        conversation.apply(RUN_CODE, arguments, result)
        return result


def _has_failed(result: ToolResult) -> bool:
    return result.is_error or (isinstance(result.value, dict) and result.value.get("return_code") != 0)
