"""Tools that are given arguments while a model writes them."""

from flink_skills.tools.streaming.feed import ArgumentFeed
from flink_skills.tools.streaming.function import StreamingFunctionTool
from flink_skills.tools.streaming.streamed import StreamedArguments

__all__ = ["ArgumentFeed", "StreamedArguments", "StreamingFunctionTool"]
