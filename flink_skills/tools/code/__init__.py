"""Fenced code of a model's answer, run in the sandbox (row J31). Off by default: ``skills.code.enabled``."""

from flink_skills.tools.code.blocks import CodeBlock, code_blocks
from flink_skills.tools.code.run_code import RUN_CODE, RunCode

__all__ = ["RUN_CODE", "CodeBlock", "RunCode", "code_blocks"]
