"""Fenced code of a model's answer, run in the sandbox. Off by default: ``skills.code.enabled``.

The tool that runs it is in :mod:`flink_skills.tools.code.run_code`, which only jobs import that run code.
"""

from flink_skills.tools.code.blocks import RUN_CODE, CodeBlock, code_blocks

__all__ = ["RUN_CODE", "CodeBlock", "code_blocks"]
