"""Tools for files: what agents expect to have for a folder, on the workspace of the key."""

from flink_skills.tools.files.bash import Bash
from flink_skills.tools.files.edit import Edit
from flink_skills.tools.files.glob import Glob
from flink_skills.tools.files.grep import Grep
from flink_skills.tools.files.lines import MAX_BYTES, MAX_CHARS, MAX_LINES
from flink_skills.tools.files.read import Read
from flink_skills.tools.files.toolset import FileToolSet
from flink_skills.tools.files.write import Write

__all__ = ["MAX_BYTES", "MAX_CHARS", "MAX_LINES", "Bash", "Edit", "FileToolSet", "Glob", "Grep", "Read", "Write"]
