"""Load one skill from its folder: only the front matter is read."""

# Paths are text here: they come from listings and descriptors by the thousand, where pathlib costs more than
# the calls themselves.
# ruff: noqa: PTH118, PTH119, PTH208

from __future__ import annotations

import os
import stat
from dataclasses import dataclass

from flink_skills.skill.diagnostic import Diagnostic, Report
from flink_skills.skill.fields import judge_fields
from flink_skills.skill.frontmatter import find_block, read_front_matter
from flink_skills.skill.limits import Limits
from flink_skills.skill.model import AgentSkill
from flink_skills.skill.paths import inside, skill_file_in

__all__ = ["LoadResult", "load_folder"]

_DEFAULT_LIMITS = Limits()


@dataclass(frozen=True)
class LoadResult:
    """A skill with diagnostics, or diagnostics alone. ``strict_valid``: strict loading accepts it."""

    skill: AgentSkill | None
    diagnostics: tuple[Diagnostic, ...]
    strict_valid: bool


def load_folder(
    folder: str,
    *,
    root: str | None = None,
    skill_file: str | None = None,
    folder_name: str | None = None,
    origin: str = "",
    remote: bool = False,
    strict: bool = False,
    limits: Limits = _DEFAULT_LIMITS,
) -> LoadResult:
    """Load the skill in ``folder`` (an absolute path).

    ``root`` is the real path that links must not leave (the folder itself by default), ``folder_name`` stands
    in for the folder's own name where that says nothing. Never raises for what is in the folder.
    """
    root = os.path.realpath(folder) if root is None else root
    if skill_file is None:
        skill_file = _find_skill_file(folder)
    path = os.path.join(folder, skill_file or "SKILL.md")
    report = Report(path, strict=strict)
    report.skill = folder_name or os.path.basename(folder)
    if skill_file is None:
        report.add("F01", "there is no SKILL.md in the folder", severity="error", mend="add one")
        return LoadResult(None, tuple(report.diagnostics), strict_valid=False)
    if skill_file != "SKILL.md":
        report.add("F01", f"the skill file is named {skill_file}", mend="name it SKILL.md")
    data = _read_start(path, root, report, limits)
    skill = None
    if data is not None:
        head, complete = data
        block = find_block(head, report, limits, complete=complete)
        entries = read_front_matter(block, report, limits) if block else None
        if block is not None and entries is not None:
            name = folder_name or os.path.basename(folder)
            fields = judge_fields(entries, report, first_line=block.line, folder=name)
            if fields is not None and not report.has_errors:
                skill = AgentSkill.from_folder(
                    folder,
                    fields,
                    root=root,
                    skill_file=skill_file,
                    origin=origin,
                    remote=remote,
                    limits=limits,
                )
    return LoadResult(skill, tuple(report.diagnostics), report.strict_valid)


def _find_skill_file(folder: str) -> str | None:
    try:
        return skill_file_in(os.listdir(folder))
    except OSError:
        return None


def _read_start(path: str, root: str, report: Report, limits: Limits) -> tuple[bytes, bool] | None:
    """The file's beginning, enough for the front matter, and whether that is all of it."""
    real = os.path.realpath(path)
    if not inside(real, root):
        report.add("S04", "the skill file is a link that leaves its source", severity="error", mend="copy it")
        return None
    try:
        descriptor = os.open(real, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError as error:
        report.add("D05", f"cannot be read: {error.strerror}", mend="check the file and its permissions")
        return None
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            report.add("D05", "is no regular file", mend="replace it by a file")
            return None
        if status.st_size > limits.skill_file:
            message = f"has {status.st_size} bytes; the limit is {limits.skill_file}"
            report.add("S05", message, mend="move parts of it into references")
            return None
        head = os.read(descriptor, limits.front_matter + 64)
        return head, len(head) >= status.st_size
    except OSError as error:
        report.add("D05", f"cannot be read: {error.strerror}", mend="check the file")
        return None
    finally:
        os.close(descriptor)
