"""File tools: what agents expect to have for a folder, on the workspace of the key."""

from flink_skills.tools.files.edit import Edit
from flink_skills.tools.files.file_search import Glob, Grep
from flink_skills.tools.files.file_toolset import Bash, FileToolSet
from flink_skills.tools.files.read import Read
from flink_skills.tools.files.text_files import MAX_BYTES, MAX_CHARS, MAX_LINES
from flink_skills.tools.files.write import Write

__all__ = ["MAX_BYTES", "MAX_CHARS", "MAX_LINES", "Bash", "Edit", "FileToolSet", "Glob", "Grep", "Read", "Write"]
