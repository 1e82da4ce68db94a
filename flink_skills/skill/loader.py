"""Load one skill from its folder: only the front matter is read."""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass

from flink_skills.skill.diagnostic import Diagnostic, Report
from flink_skills.skill.fields import Fields, judge_fields, judge_heading
from flink_skills.skill.frontmatter import find_block, read_front_matter, starts_with_front_matter
from flink_skills.skill.heading import first_heading, has_tool_files
from flink_skills.skill.limits import Limits
from flink_skills.skill.model import AgentSkill
from flink_skills.skill.paths import link_problem, open_inside, skill_file_in
from flink_skills.skill.text import clean_line, is_utf16

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
    format: str = "skill",
    known_fields_only: bool = False,
) -> LoadResult:
    """Load the skill in ``folder`` (an absolute path).

    ``root`` is the real path that links must not leave (the folder itself by default), ``folder_name`` stands
    in for the folder's own name where that says nothing. With ``format="heading"``, or where a ``schema.json``
    or ``tools.py`` stands beside, a file without front matter is taken too: its first ``# `` heading is the
    description. ``known_fields_only`` makes unknown fields errors of strict loading. Never raises for what is
    in the folder.
    """
    root = os.path.realpath(folder) if root is None else root
    if skill_file is None:
        skill_file = _find_skill_file(folder)
    path = os.path.join(folder, skill_file or "SKILL.md")
    name = folder_name or os.path.basename(folder)
    report = Report(path, strict=strict, known_fields_only=known_fields_only)
    report.skill = name
    if skill_file is None:
        report.add("F01", "there is no SKILL.md in the folder", severity="error", fix="add one")
        return LoadResult(None, tuple(report.diagnostics), strict_valid=False)
    if skill_file != "SKILL.md":
        report.add("F01", f"the skill file is named {skill_file}")
    form = "skill"
    fields: Fields | None = None
    if (start := _read_start(path, root, report, limits)) is not None:
        data, complete = start
        if is_utf16(data):
            report.add("L16", "the file is in UTF-16 instead of UTF-8")
        elif starts_with_front_matter(data) or not (format == "heading" or has_tool_files(folder)):
            block = find_block(data, report, limits, complete=complete)
            entries = read_front_matter(block, report, limits) if block else None
            if block is not None and entries is not None:
                fields = judge_fields(entries, report, first_line=block.line, folder=name)
        else:
            form = "heading"
            fields = _read_heading(data, report, name)
    if fields is None or report.has_errors:
        return LoadResult(None, tuple(report.diagnostics), report.strict_valid)
    skill = AgentSkill.from_folder(
        folder,
        fields,
        root=root,
        skill_file=skill_file,
        origin=origin,
        remote=remote,
        limits=limits,
        form=form,
    )
    return LoadResult(skill, tuple(report.diagnostics), report.strict_valid)


def _read_heading(data: bytes, report: Report, name: str) -> Fields | None:
    report.add("L13", "the file has no front matter; folder and first heading say what it is", line=1)
    text = data.decode("utf-8-sig", errors="replace").replace("\r\n", "\n").replace("\r", "\n")
    heading = first_heading(text)
    return judge_heading(
        None if heading is None else clean_line(heading.text),
        1 if heading is None else heading.line,
        report,
        folder=name,
    )


def _find_skill_file(folder: str) -> str | None:
    try:
        return skill_file_in(os.listdir(folder))
    except OSError:
        return None


def _read_start(path: str, root: str, report: Report, limits: Limits) -> tuple[bytes, bool] | None:
    """The file's beginning, enough for the front matter, and whether that is all of it."""
    try:
        descriptor = open_inside(path, root)
        if descriptor is None:
            report.add("S04", "the skill file is a link that leaves its source", severity="error")
            return None
    except OSError as error:
        is_dangling = os.path.islink(path) and not os.path.exists(path)
        message, fix = link_problem(path) if is_dangling else (f"the file cannot be read: {error.strerror}", "")
        report.add("D05", message, fix=fix)
        return None
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            report.add("D05", "the path is not a regular file", fix="replace it with a file")
            return None
        if status.st_size > limits.skill_file:
            message = f"the file has {status.st_size} bytes; the limit is {limits.skill_file}"
            report.add("S05", message, fix="move parts of it into references")
            return None
        head = os.read(descriptor, limits.front_matter + 64)
        return head, len(head) >= status.st_size
    except OSError as error:
        report.add("D05", f"the file cannot be read: {error.strerror}")
        return None
    finally:
        os.close(descriptor)
