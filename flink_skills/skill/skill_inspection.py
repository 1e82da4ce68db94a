"""What can be said of a skill only after reading its body and listing its files (format rules F17 to F19, S06)."""

from __future__ import annotations

import contextlib
import json
import os
import posixpath
import re
from collections import deque
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

from flink_skills.errors import ResourceError, near_misses
from flink_skills.skill.agent_skill import AgentSkill
from flink_skills.skill.credentials import (
    Credential,
    credential_message,
    credential_name,
    find_credentials,
    without_credential_names,
)
from flink_skills.skill.diagnostic import Diagnostic, Report
from flink_skills.skill.file_rules import (
    inside,
    link_problem,
    open_inside,
    resource_parts,
    role_of,
    skill_file_in,
    walk_files,
)
from flink_skills.skill.loader import load_folder
from flink_skills.skill.skill_body import file_references, read_body, unread_tools, without_code
from flink_skills.skill.skill_files import FolderFiles
from flink_skills.skill.skill_limits import Limits
from flink_skills.skill.text import hidden_characters

MAX_BODY_LINES = 500
MAX_BODY_TOKENS = 5_000
# A file of examples would otherwise fill a log.
_MAX_REFERENCES = 20
_EVALS = "evals/evals.json"
_EVAL_FIELDS = ("id", "prompt", "expected_output", "files", "assertions")
_MAX_EVALS_BYTES = 4 << 20


def inspect_skill(skill: AgentSkill, limits: Limits, *, strict: bool = False) -> list[Diagnostic]:
    """Read the body and the list of files, and say what is odd about them. Never raises for what they are.

    >>> skill = AgentSkill("a", "Does it.", "See [more](references/more.md).")
    >>> [diagnostic.code for diagnostic in inspect_skill(skill, Limits())]
    ['F19']
    """
    report = Report(f"{skill.path}/{skill.files.skill_file}" if skill.path else "", strict=strict, skill=skill.name)
    try:
        text, first_line, size, bad_line = read_body(skill.files, limits.skill_file)
        paths = skill.files.paths()
    except (ResourceError, OSError) as error:
        report.add("D05", str(error))
        return report.diagnostics
    if size > limits.skill_file:
        report.add(
            "S05",
            f"the file has {size} bytes; the limit is {limits.skill_file}",
            fix="move parts of it into references",
        )
    if bad_line:
        report.add("L03", "the body is not UTF-8; what is not was replaced", line=bad_line)
    _size(text, report, first_line)
    if unread := unread_tools(text):
        names = ", ".join(unread[1][:10])
        report.add("T13", f"the list of tools ({names}) is not read", line=first_line + unread[0])
    _hidden(text, report, first_line)
    _references(skill, text, frozenset(paths), report, first_line)
    for path in sorted(set(paths).difference(without_credential_names(paths))):
        if what := credential_name(path):
            message = credential_message(path, Credential(what, 0))
            report.add("S13", message, path=f"{skill.path}/{path}" if skill.path else "")
    _links(skill, report, limits)
    return report.diagnostics


def check_credentials(skill: AgentSkill, *, strict: bool = False) -> list[Diagnostic]:
    """Read all files, and return a diagnostic for each one whose content looks like a secret.

    Files that are named like a secret are in :func:`inspect_skill`.
    """
    report = Report(strict=strict, skill=skill.name)
    for path, found in find_credentials(skill.files):
        if not credential_name(path):
            place = f"{skill.path}/{path}" if skill.path else ""
            report.add("S13", credential_message(path, found), path=place, line=found.line)
    return report.diagnostics


def check_evals(skill: AgentSkill) -> list[Diagnostic]:
    """Return a diagnostic for each fault of ``evals/evals.json`` in the folder of a skill. Nothing is run."""
    files = skill.files
    if not isinstance(files, FolderFiles) or not os.path.lexists(f"{files.folder}/{_EVALS}"):
        return []
    report = Report(f"{files.folder}/{_EVALS}", skill=skill.name)
    try:
        descriptor = open_inside(report.path, files.root)
        if descriptor is None:
            raise ResourceError(f"{_EVALS!r} leaves the skill's source")
        with open(descriptor, "rb") as file:
            data = json.loads(file.read(_MAX_EVALS_BYTES + 1))
    except (OSError, ResourceError) as error:
        report.add("E01", f"the tests cannot be read: {error}")
    except (ValueError, RecursionError) as error:
        report.add("E01", f"the tests are not valid JSON: {error}", line=getattr(error, "lineno", 0))
    else:
        for message in islice(_eval_problems(data, skill.name, files), _MAX_REFERENCES):
            report.add("E01", message)
    return report.diagnostics


def _eval_problems(data: Any, skill: str, files: FolderFiles) -> Iterator[str]:
    if not isinstance(data, dict):
        yield "the file is not an object with 'skill_name' and 'evals'"
        return
    yield from _unknown_fields("the file", data, ("skill_name", "evals"))
    if data.get("skill_name") != skill:
        yield f"skill_name is {data.get('skill_name')!r}, and the skill is {skill!r}"
    evals = data.get("evals")
    if not isinstance(evals, list) or not evals:
        yield "'evals' is not a list of tests"
        return
    ids: set[str] = set()
    for number, test in enumerate(evals):
        place = f"evals[{number}]"
        if not isinstance(test, dict):
            yield f"{place} is not an object"
            continue
        yield from _unknown_fields(place, test, _EVAL_FIELDS)
        identity = test.get("id")
        if isinstance(identity, bool) or not isinstance(identity, int | str):
            yield f"{place}.id is not a number"
        elif str(identity) in ids:
            yield f"{place}.id {identity!r} is the id of an earlier test"
        ids.add(str(identity))
        for field in ("prompt", "expected_output"):
            if not isinstance(test.get(field), str) or not test[field].strip():
                yield f"{place}.{field} is not a string, or empty"
        for field in ("files", "assertions"):
            items = test.get(field, [])
            if not isinstance(items, list) or not all(isinstance(item, str) and item.strip() for item in items):
                yield f"{place}.{field} is not a list of strings"
            elif field == "files":
                yield from (f"{place}.files: {problem}" for item in items if (problem := _file_problem(item, files)))


def _unknown_fields(place: str, data: Mapping[str, Any], known: Collection[str]) -> Iterator[str]:
    for field in data.keys() - set(known):
        near = near_misses(field, known, limit=1)
        yield f"{place} has the field {field!r}, which the format does not have" + (
            f": did you mean {near[0]!r}?" if near else ""
        )


def _file_problem(path: str, files: FolderFiles) -> str:
    try:
        real = os.path.realpath(os.path.join(files.folder, *resource_parts(path)))
    except ValueError as error:
        return f"{path!r}: {error}"
    if not inside(real, files.root):
        return f"{path!r} leaves the skill's source"
    return "" if os.path.isfile(real) else f"{path!r} does not exist in the skill's folder"


def excluded_messages(paths: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield a code and a message for each kind of files that are not part of a skill."""
    generated = [path for path in paths if role_of(path) not in ("test", "proof")]
    tests = [path for path in paths if path not in generated]
    for code, what, found in (("D07", "generated files", generated), ("D08", "tests and proofs", tests)):
        if found:
            more = f" and {len(found) - 5} more" if len(found) > 5 else ""
            yield code, f"{what} are not part of the skill: {', '.join(map(repr, found[:5]))}{more}"


def about_tokens(text: str) -> int:
    """A rough count of tokens: four ASCII characters, or one other letter or sign, make one.

    >>> about_tokens("some text"), about_tokens("日本語")
    (2, 3)
    """
    if text.isascii():
        return len(text) // 4
    others = len(text) - len(text.encode("ascii", "ignore"))
    return (len(text) - others) // 4 + others


def _size(body: str, report: Report, first_line: int) -> None:
    text = body.strip("\n")
    lines = text.count("\n") + 1 if text else 0
    if lines > MAX_BODY_LINES:
        report.add("F17", f"the body has {lines} lines", line=first_line)
    if (tokens := about_tokens(text)) > MAX_BODY_TOKENS:
        report.add("F18", f"the body has about {tokens:,} tokens", line=first_line)


def _hidden(body: str, report: Report, first_line: int) -> None:
    if hidden := hidden_characters(body):
        lines = body.split("\n")
        line = next((n for n, text in enumerate(lines) if hidden_characters(text)), 0)
        message = f"the body has hidden characters ({', '.join(hidden[:5])})"
        report.add("S06", message, line=first_line + line)
    if "<!--" in body:
        commented = [number for number, text in enumerate(without_code(body)) if "<!--" in text]
        if commented:
            many = f" and {len(commented) - 1} more" if len(commented) > 1 else ""
            message = f"the body has an HTML comment{many}, unseen when rendered"
            report.add("S06", message, line=first_line + commented[0])


def _references(skill: AgentSkill, body: str, paths: frozenset[str], report: Report, first_line: int) -> None:
    folders = {path[: slash.start()] for path in paths for slash in re.finditer("/", path)}
    reported = 0
    for reference in file_references(body):
        path = posixpath.normpath(reference.path)
        fix = ""
        if path.startswith("../") and (reported >= _MAX_REFERENCES or not _nested_name(skill, path)):
            message = f"{reference.path!r} leads out of the skill's folder"
            fix = "copy the file into the skill, and write its path from the skill's folder"
        elif path == "." or path in folders:
            continue
        elif path not in paths and reported < _MAX_REFERENCES and (nested := _nested_name(skill, path)):
            message = f"{reference.path!r} is not a file of this skill: this is the skill {nested!r}"
            fix = f"tell the model to load the skill {nested!r}"
        elif (
            path not in paths
            and role_of(path) in ("test", "proof")
            and os.path.exists(f"{skill.path or os.devnull}/{path}")
        ):
            message = f"{reference.path!r} is a test or a proof, which models do not read"
            fix = "move it to another folder if models need it"
        elif path not in paths and role_of(path) == "generated":
            report.add("F20", f"{reference.path!r} is a generated file", line=first_line + reference.line)
            continue
        elif path not in paths:
            message = f"{reference.path!r} does not exist"
            near = near_misses(path, paths, limit=1)
            fix = f"write {near[0]!r}, or add the file" if near else "add the file, or correct the path"
        elif path.count("/") > 1:
            message = f"{reference.path!r} is more than one folder down"
        else:
            continue
        reported += 1
        if reported <= _MAX_REFERENCES:
            report.add("F19", message, line=first_line + reference.line, fix=fix)


def _nested_name(skill: AgentSkill, path: str) -> str:
    """Return the name of another skill of the source that has ``path``. Return "" if it has none."""
    files = skill.files
    if not isinstance(files, FolderFiles):
        return ""
    own = os.path.realpath(files.folder)
    folder = os.path.realpath(os.path.join(own, os.path.dirname(path)))
    while inside(folder, files.root) and not inside(own, folder):
        with contextlib.suppress(OSError):
            if skill_file_in(os.listdir(folder)):
                found = load_folder(folder, root=files.root).skill
                return found.name if found is not None else ""
        folder = os.path.dirname(folder)
    return ""


def _links(skill: AgentSkill, report: Report, limits: Limits) -> None:
    files = skill.files
    leaving: list[str] = []
    excluded = list(files.excluded())
    if isinstance(files, FolderFiles):
        deque(walk_files(files.folder, files.root, limits.skill_files, leaving, excluded), maxlen=0)
    for code, message in excluded_messages(excluded):
        report.add(code, message, path=skill.path or "")
    for path in leaving:
        link = f"{skill.path}/{path}"
        message, fix = link_problem(link)
        report.add("S04", message, path=link, fix=fix)
