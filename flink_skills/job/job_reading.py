"""Reader of job files: YAML, the schema, the options and the agents, with all problems of a file."""

from __future__ import annotations

import contextlib
import functools
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path as FilePath
from typing import Any

from pydantic import ValidationError

from flink_skills.agents.declare.resource import source_strings
from flink_skills.agents.plan.agent_file import check_format
from flink_skills.documents.document import Document, DocumentError, Path, Problem, read_document
from flink_skills.documents.schema_validation import schema_problems
from flink_skills.errors import ConfigError, SkillsError, near_misses
from flink_skills.job.job_model import EMPTY_SECTIONS, JobFile
from flink_skills.job.job_references import References
from flink_skills.job.stages import Stage, stages_of
from flink_skills.job.statements import Statement, refusal, split_statements
from flink_skills.options import SkillConfig, SkillOptions

_PREFIX = "skills."
# Wrong options that are named; the nearest name of each is searched for.
_MAX_PROBLEMS_SHOWN = 40
# Maximum length of a value in a message.
_SHOWN = 200
# Options that apply only when a cluster starts.
_CLUSTER = ("taskmanager.", "jobmanager.", "kubernetes.", "high-availability", "rest.", "env.", "metrics.")


@dataclass(frozen=True)
class JobSettings:
    """Options of a job from its file and ``--set``.

    ``skills`` are options ``skills.*``, ``flink`` those of Flink as strings, and ``cluster_only`` the keys among the
    latter that a running cluster does not accept from a job.
    """

    skills: SkillConfig
    flink: Mapping[str, str]
    cluster_only: tuple[str, ...] = ()
    problems: tuple[Problem, ...] = ()


def read_settings(document: Document, data: Mapping[str, Any], assignments: Iterable[str] = ()) -> JobSettings:
    """Return the settings of a job file whose references are replaced in ``data``.

    Problems of the file are in ``problems`` of the result. Raises :class:`ConfigError` for an invalid assignment.
    """
    problems: list[Problem] = []
    skills, unchecked = SkillConfig(), 0
    for key, value in _items(data, "options"):
        if value is None:
            continue  # the schema reports it
        if len(problems) >= _MAX_PROBLEMS_SHOWN:
            unchecked += 1
            continue
        try:
            if not key.startswith(_PREFIX) and not near_misses(key, [o.key for o in SkillOptions.all()]):
                raise ConfigError(
                    f"{key!r} is not an option skills.*; write options of Flink under 'flink', and custom keys as "
                    "skills.user.NAME"
                )
            option_value = source_strings(key, value)
            skills.set(key, json.dumps(option_value) if isinstance(option_value, Mapping) else option_value)
        except SkillsError as error:
            message = _without_value(str(error), document, key)
            problems.append(document.problem(("options", key), message, at_key=True))
    if unchecked:
        problems.append(document.problem(("options",), f"… and {unchecked} more, which were not checked"))
    flink: dict[str, str] = {}
    cluster_only = []
    for path, value in _flattened(data.get("flink"), ("flink",)):
        key = ".".join(str(part) for part in path[1:])
        if key.startswith(_PREFIX):
            problems.append(document.problem(path, "put options skills.* under 'options'", at_key=True))
            continue
        text = _text(value)
        if text is None:
            continue  # the schema reports it
        if key.startswith(_CLUSTER):
            cluster_only.append(key)
        flink[key] = text
    ours, flinks = split_assignments(assignments)
    return JobSettings(ours.merged_over(skills), {**flink, **flinks}, tuple(cluster_only), tuple(problems))


def split_assignments(words: Iterable[str]) -> tuple[SkillConfig, dict[str, str]]:
    """Return ``KEY=VALUE`` arguments as options ``skills.*`` and options of Flink. Raises :class:`ConfigError`."""
    ours, flinks = [], {}
    for word in words:
        key, sign, value = word.partition("=")
        if not sign or not key.strip():
            raise ConfigError(f"--set {word}: write KEY=VALUE, such as skills.turn.timeout='2 min'")
        if key.startswith(_PREFIX):
            ours.append(word)
        else:
            flinks[key.strip()] = value.strip()
    return SkillConfig.from_assignments(ours), flinks


def _items(data: Mapping[str, Any], name: str) -> list[tuple[str, Any]]:
    section = data.get(name)
    return [(str(key), value) for key, value in section.items()] if isinstance(section, Mapping) else []


def _without_value(message: str, document: Document, key: str) -> str:
    """Return the message about a value, without the value if a reference was replaced in it."""
    given = document.data["options"].get(key)
    if isinstance(given, str) and "${" in given:
        shown = given if len(given) <= _SHOWN else f"{given[:_SHOWN]}…"
        return f"option {key}: what {shown} stands for cannot be used: {message.rpartition(': ')[2]}"
    return message


def _flattened(value: Any, path: Path) -> Iterator[tuple[Path, Any]]:
    """Yield the values of nested mappings with their paths, because ``config.yaml`` may be nested or flat."""
    if not isinstance(value, Mapping):
        if len(path) > 1:
            yield path, value
        return
    for key, item in value.items():
        yield from _flattened(item, (*path, str(key)))


def _text(value: Any) -> str | None:
    if isinstance(value, list):
        texts = [_text(item) for item in value]
        if None in texts or any(isinstance(item, list) for item in value):
            return None
        return ";".join(text for text in texts if text is not None)
    if value is None:
        return ""
    return str(value).lower() if isinstance(value, bool) else str(value)


_ONE_AGENT = ("agent", "input", "output")
_TARGETS = ("output", "errors", "events", "waits")


@dataclass(frozen=True)
class ReadJob:
    """A job file, which is sound by itself if it has no ``problems``.

    ``job`` has its references replaced, so it may hold secrets; ``references.hide`` removes them from a text.
    ``stages`` are its agents, sources before targets. ``missing`` are references that could not be replaced here; they
    are still in ``job`` as they are written. ``broken`` are paths whose values cannot be used; other values stand in
    their places.
    """

    file: FilePath
    document: Document = field(repr=False)
    job: JobFile = field(repr=False)
    stages: tuple[Stage, ...] = field(repr=False)
    settings: JobSettings = field(repr=False)
    statements: tuple[Statement, ...] = field(repr=False)
    references: References = field(repr=False)
    missing: tuple[Problem, ...] = ()
    problems: tuple[Problem, ...] = ()
    broken: frozenset[Path] = frozenset()

    @property
    def folder(self) -> FilePath:
        """The folder of the job file, which relative paths in it are below."""
        return self.file.parent

    @contextlib.contextmanager
    def hiding(self) -> Iterator[None]:
        """Remove the values of references from the errors of this package."""
        try:
            yield
        except DocumentError as error:
            raise error.redacted(self.references.hide) from None
        except SkillsError as error:
            error.args = (self.references.hide(str(error)),)
            raise

    def problem(self, path: tuple[str | int, ...], message: str, *, line: int = 0) -> DocumentError:
        """Return an error at a location in the file, without the values of references."""
        return DocumentError([self.document.problem(path, self.references.hide(message), line=line)])


def read_job(path: str | FilePath, assignments: Iterable[str] = (), *, lenient: bool = False) -> ReadJob:
    """Read and check a job file.

    Args:
        path: The file.
        assignments: ``KEY=VALUE`` arguments, which override ``flink`` and ``options`` of the file.
        lenient: Leave references that cannot be replaced here in place, for a check on another machine.

    Raises:
        DocumentError: All problems, without the values of references.
        ConfigError: An assignment is invalid.
    """
    read = inspect_job(path, assignments)
    if read.problems or (read.missing and not lenient):
        raise DocumentError([*read.problems, *read.missing])
    return read


def inspect_job(path: str | FilePath, assignments: Iterable[str] = ()) -> ReadJob:
    """Read the usable part of a job file. Its problems are in ``problems`` and ``missing``.

    Raises:
        DocumentError: No part of the file can be used.
        ConfigError: for an assignment that cannot be used.
    """
    file = FilePath(path).absolute()
    document = read_document(path)
    if not isinstance(document.data, Mapping):
        kind = type(document.data).__name__
        raise DocumentError([document.problem((), f"expected a mapping such as 'name: triage', got a {kind}")])
    check_format(document)
    problems = schema_problems(document, JobFile) + _empty_sections(document) + _agent_sections(document)
    references = References(document, file.parent)
    data = references.resolved(document.data)
    settings = read_settings(document, data, assignments)
    problems += [hidden(problem, references) for problem in settings.problems]
    statements: tuple[Statement, ...] = ()
    if isinstance(data.get("tables"), str):
        statements, found = _statements(document, data["tables"])
        problems += [hidden(problem, references) for problem in found]
    problems += _input_problems(document, data)
    missing = tuple(references.problems)
    usable, broken = _usable(data, problems) if problems else (data, set[Path]())
    try:
        job = JobFile.model_validate(usable)
    except ValidationError as error:
        if problems:
            raise DocumentError([*problems, *missing]) from None
        # The value of a reference is invalid at its location.
        raise DocumentError(
            [
                document.problem(tuple(found["loc"]), references.hide(f"with its references replaced: {found['msg']}"))
                for found in error.errors(include_input=False)
            ]
        ) from None
    stages, unconnected = stages_of(job, document)
    if not any(path[:1] == ("agents",) for path in broken):
        # Otherwise an agent that cannot be used may be what is missing.
        problems += [hidden(problem, references) for problem in unconnected]
        broken |= {problem.path for problem in unconnected}
    return ReadJob(
        file,
        document,
        job,
        tuple(stages),
        settings,
        statements,
        references,
        missing,
        tuple(problems),
        frozenset(broken),
    )


def hidden(problem: Problem, references: References) -> Problem:
    """Return a problem without the values of references."""
    return DocumentError([problem]).redacted(references.hide).problems[0]


def _statements(document: Document, text: str) -> tuple[tuple[Statement, ...], list[Problem]]:
    at = ("tables",)
    try:
        statements = split_statements(text)
    except ValueError as error:
        message, line = error.args
        return (), [document.problem(at, message, line=line)]
    problems = [
        document.problem(at, message, line=statement.line)
        for statement in statements
        if (message := refusal(statement)) is not None
    ]
    if not statements:
        problems.append(document.problem(at, "the value contains no statement; write CREATE TABLE …"))
    return tuple(each for each in statements if refusal(each) is None), problems


def _empty_sections(document: Document) -> list[Problem]:
    return [
        document.problem((name,), "the section is empty; write a mapping, or omit the key", at_key=True)
        for name in EMPTY_SECTIONS
        if name in document.data and document.data[name] is None
    ]


def _agent_sections(document: Document) -> list[Problem]:
    """Return the problems of the sections for one agent or for several."""
    data = document.data
    if "agents" not in data:
        return [
            document.problem((), f"{name!r} is missing: {_lower(str(JobFile.model_fields[name].description))}")
            for name in _ONE_AGENT
            if name not in data
        ]
    beside = [name for name in (*_ONE_AGENT, "answers") if name in data]
    problems = [
        document.problem(
            (name,),
            "the section cannot be combined with 'agents'; move it into the agent that it belongs to",
            at_key=True,
        )
        for name in beside
    ]
    if data["agents"] is None:
        problems.append(document.problem(("agents",), "the list is empty; write at least one agent", at_key=True))
    return problems


def _lower(text: str) -> str:
    return text[:1].lower() + text[1:]


def _usable(data: Mapping[str, Any], problems: Iterable[Problem]) -> tuple[dict[str, Any], set[Path]]:
    """Return the usable part of a job file with placeholders for required values, and the paths of unusable values."""
    wrong = {str(problem.path[0]) for problem in problems if problem.path}
    wrong |= {name for name, field in JobFile.model_fields.items() if field.is_required() and name not in data}
    several = "agents" in data
    if not several:
        wrong |= {name for name in _ONE_AGENT if name not in data}
    kept = {key: data[key] for key in JobFile.model_fields if key in data and key not in wrong}
    broken: set[Path] = {(name,) for name in wrong}
    for name, instead in (("name", "job"), ("tables", "-"), *(() if several else (("agent", {}),))):
        kept.setdefault(name, instead)
    if several:
        for name in (*_ONE_AGENT, "answers"):
            kept.pop(name, None)
        paths = [problem.path for problem in problems if problem.path[:1] == ("agents",)]
        sound = {} if ("agents",) in paths else data["agents"]
        kept["agents"] = {name: of for name, of in sound.items() if ("agents", name) not in [p[:2] for p in paths]}
        if not kept["agents"]:
            del kept["agents"]
        return _with_targets(data, kept, wrong, broken), broken
    given = data.get("input")
    section: Mapping[str, Any] = given if isinstance(given, Mapping) else {}
    if "input" in wrong:
        source = {key: section[key] for key in ("table", "query") if _is_text(section.get(key))}
        key = section.get("key")
        texts = key if isinstance(key, list) else [key]
        if not texts or not all(_is_text(text) for text in texts):
            broken.add(("input", "key"))
            key = "-"
        if len(source) == 1:
            broken.discard(("input",))
        kept["input"] = {**(source if len(source) == 1 else {"table": "-"}), "key": key}
    return _with_targets(data, kept, wrong, broken), broken


def _with_targets(data: Mapping[str, Any], kept: dict[str, Any], wrong: set[str], broken: set[Path]) -> dict[str, Any]:
    """Add the usable parts of the output tables and of the jars."""
    for name in _TARGETS:
        if name not in wrong:
            continue
        given = data.get(name)
        section = given if isinstance(given, Mapping) else {}
        if _is_text(section.get("table")):
            columns = section.get("columns")
            pairs = columns.items() if isinstance(columns, Mapping) else ()
            fitting = {key: value for key, value in pairs if value is None or _is_text(value)}
            kept[name] = {"table": section["table"], "columns": fitting}
        elif name == "output" and "agents" not in data:
            kept[name] = {"table": "-"}
            broken.add((name, "table"))
    jars = data.get("jars")
    if isinstance(jars, list):
        kept["jars"] = [jar for jar in jars if _is_text(jar)]
    return kept


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and bool(value)


def _input_problems(document: Document, data: Mapping[str, Any]) -> list[Problem]:
    agents = data.get("agents")
    agents = agents if isinstance(agents, Mapping) else {}
    paths: list[Path] = [("input",), ("answers",), ("control",), *(("agents", name, "answers") for name in agents)]
    problems = []
    for path in paths:
        section: Any = data
        for name in path:
            section = section.get(name) if isinstance(section, Mapping) else None
        given = [key for key in ("table", "query") if isinstance(section, Mapping) and section.get(key) is not None]
        if isinstance(section, Mapping) and len(given) != 1:
            message = "give 'table' or 'query', not both" if given else "give 'table', or 'query' with a SELECT"
            problems.append(document.problem(path, message))
    return problems


@functools.cache
def is_job_file(path: FilePath) -> bool:
    """Return whether a YAML file is a job, as opposed to an agent.

    A job has ``tables``, ``agents``, or ``agent`` and ``input``. A file of Flink Agents is treated as a job, whose
    reader names the differences.
    """
    try:
        data = read_document(path).data
    except (SkillsError, ConfigError):
        return False
    return isinstance(data, Mapping) and ("tables" in data or "agents" in data or {"agent", "input"} <= set(data))
