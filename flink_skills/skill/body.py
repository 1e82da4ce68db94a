"""The body of a skill file as it stands in the file: with its line numbers, and what of it is no UTF-8."""

from __future__ import annotations

from typing import NamedTuple

from flink_skills.skill.files import SkillFiles
from flink_skills.skill.frontmatter import split_body

__all__ = ["Body", "read_body"]


class Body(NamedTuple):
    """``text`` with ``\\n`` line ends, the line of the file that it begins on (from 1), and the size of the file.

    ``bad_line`` is the first line of the file with bytes that are not UTF-8 (0: none); they were replaced.
    """

    text: str
    first_line: int
    file_size: int
    bad_line: int


def read_body(files: SkillFiles, limit: int) -> Body:
    """Read the body, at most ``limit`` bytes of the file. Raises :class:`ResourceError` or :class:`OSError`."""
    chunk = files.read(files.skill_file, 0, limit)
    raw = split_body(chunk.data)
    first_line = _line_ends(chunk.data[: len(chunk.data) - len(raw)]) + 1
    bad_line = 0
    try:
        text = raw.decode()
    except UnicodeDecodeError as error:
        text = raw.decode(errors="replace")
        bad_line = first_line + _line_ends(raw[: error.start])
    return Body(text.replace("\r\n", "\n").replace("\r", "\n"), first_line, chunk.total, bad_line)


def _line_ends(data: bytes) -> int:
    return data.count(b"\n") + data.count(b"\r") - data.count(b"\r\n")
