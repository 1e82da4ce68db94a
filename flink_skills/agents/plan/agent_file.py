"""Reads an agent without code from a YAML file, and reports all of its problems together."""

from __future__ import annotations

import copy
import os
import os.path
from collections.abc import Iterator, Mapping
from pathlib import Path as FilePath
from typing import Any

from flink_skills.agents.declare.agent import Agent
from flink_skills.agents.plan.declarative import DeclarativeAgent
from flink_skills.agents.plan.spec import AgentSpec, setup_problems
from flink_skills.documents import Document, DocumentError, Path, Problem, path_text, read_document, schema_problems
from flink_skills.errors import ConfigError, SkillsError
from flink_skills.options import SkillConfig
from flink_skills.other_frameworks import (
    FLINK_AGENTS_ITEMS,
    FLINK_AGENTS_PROVIDERS,
    FLINK_AGENTS_SECTIONS,
    SETUP_WORDS,
)


def load_agent_yaml(path: str | FilePath) -> Agent:
    """Return the agent that a YAML file declares.

    Keys are those of an agent class: ``name``, ``instructions``, ``session``, ``session_selector``, ``model``,
    ``route`` (``field``, ``models`` by value, ``default``), ``output_type`` (a mapping of field to type, or
    ``module:Class``), ``run_code``, ``skill_names``, ``skills`` (``paths``, ``resources``, ``urls``, ``skill_names``),
    ``chat_model_connections`` and ``chat_model_setups`` (by name, with ``clazz`` and arguments), ``prompts`` (by name),
    ``tools`` (``module:function``, ``module:tool_set`` or the name of a registered tool), ``mcp_servers`` (by name,
    with ``url`` or ``command`` and what :func:`flink_skills.mcp_server` takes), ``tool_pool`` (as ``tools``): the tools
    that models get with a loaded skill that names them.

    Args:
        path: The file. Its name without the suffix is the name of an agent that declares none.

    Raises:
        ConfigError: The file cannot be read or is wrong. The message has one line for each problem, which begins with
            the file, the line and the column.

    >>> load_agent_yaml("triage.yaml").name  # doctest: +SKIP
    'triage'
    """
    if not isinstance(path, (str, os.PathLike)):
        raise ConfigError(f"load_agent_yaml: path is of type {type(path).__name__}: give the path of a file")
    document = read_agent_document(path)
    problems = schema_problems(document, AgentSpec)
    if problems:
        raise DocumentError(problems)
    spec = {"name": FilePath(path).stem, **document.data}
    spec = with_absolute_paths(spec, FilePath(path).absolute().parent, document)
    agent = agent_of(spec, document, ())
    # Sources of skills are those of the job as well, and are not known yet.
    problems = setup_problems(spec, document, (), has_sources=True, config=SkillConfig())
    if problems:
        raise DocumentError(problems)
    return agent


def with_absolute_paths(spec: Mapping[str, Any], folder: FilePath, document: Document, at: Path = ()) -> dict[str, Any]:
    """Return ``spec`` with the relative paths of its skills below ``folder``, the folder of the agent's file.

    The servers of ``.mcp.json`` files become its own. Raises :class:`DocumentError` for a file that cannot be used.
    """
    servers = spec.get("mcp_servers")
    if isinstance(servers, Mapping) and (isinstance(servers.get("file"), str) or "mcpServers" in servers):
        # Workers do not have the file.
        from flink_skills.tools.mcp.server_mapping import servers_of

        try:
            spec = {**spec, "mcp_servers": servers_of(servers, folder)}
        except ConfigError as error:
            raise DocumentError([document.problem((*at, "mcp_servers"), str(error))]) from None
    skills = spec.get("skills")
    if not isinstance(skills, Mapping) or not isinstance(skills.get("paths"), list):
        return dict(spec)
    return {**spec, "skills": {**skills, "paths": [absolute_path(path, folder) for path in skills["paths"]]}}


def absolute_path(source: Any, folder: FilePath) -> Any:
    """Return a path of skills, a text or a mapping with pins, from ``folder``. A path of another machine is absolute
    already."""
    if isinstance(source, Mapping):
        return {**source, "path": absolute_path(source["path"], folder)} if "path" in source else source
    return os.path.normpath(folder / source) if isinstance(source, str) and "://" not in source else source


def read_agent_document(path: str | FilePath) -> Document:
    """Read the file of an agent. Raises :class:`DocumentError` for a file that is not a YAML mapping."""
    document = read_document(path)
    if not isinstance(document.data, Mapping):
        kind = type(document.data).__name__
        raise DocumentError([document.problem((), f"expected a mapping such as 'name: triage', got a {kind}")])
    check_format(document)
    return document


def check_format(document: Document) -> None:
    """Raise :class:`DocumentError` with each difference if a document is a YAML file of Flink Agents."""
    agents = document.data.get("agents")
    shared = {key: of for key, of in document.data.items() if key in FLINK_AGENTS_SECTIONS and _has_names(of)}
    if not _has_names(agents) and (not shared or "agents" in document.data):
        return
    where = ("agents",) if "agents" in document.data else (next(iter(shared)),)
    head = (
        "this is a file of Flink Agents, and flink_skills reads another format. Write a job file with name, tables and "
        "agents, each with input and output. The lines below name each other key and what to write"
    )
    problems = [document.problem(where, head, at_key=True), *_differences(document, (), shared)]
    for number, agent in enumerate(agents or ()):
        problems += _differences(document, ("agents", number), agent)
    raise DocumentError(problems)


def _has_names(value: Any) -> bool:
    """Return True for a list of mappings with names, which neither a job file nor an agent has."""
    return isinstance(value, list) and bool(value) and all(isinstance(one, Mapping) and "name" in one for one in value)


def _differences(document: Document, at: Path, section: Mapping[str, Any]) -> Iterator[Problem]:
    for key, value in section.items():
        items = [*enumerate(value)] if isinstance(value, list) else []
        maps = [(number, item) for number, item in items if isinstance(item, Mapping)]
        if key in FLINK_AGENTS_SECTIONS:
            first = maps[0][1] if maps else {"name": value}
            words = {name: first.get(name, f"{name.upper()}") for name in ("name", "function", "endpoint")}
            words["provider"] = FLINK_AGENTS_PROVIDERS.get(str(first.get("clazz")), "PROVIDER")
            yield document.problem((*at, key), FLINK_AGENTS_SECTIONS[key].format(**words), at_key=True)
        more = SETUP_WORDS if key.startswith("chat_model_") else {}
        for number, item in maps if key != "actions" else ():
            for name in item:
                if name != "name" and (advice := FLINK_AGENTS_ITEMS.get(name) or more.get(name)):
                    yield document.problem((*at, key, number, name), advice, at_key=True)


def agent_of(spec: Mapping[str, Any], document: Document, at: Path) -> DeclarativeAgent:
    """Return the agent of ``spec``, which is at ``at`` of ``document``.

    Raises :class:`DocumentError` with all problems. To find the next one, the value of a wrong key is removed and the
    rest is tried again.
    """
    problems: list[Problem] = []
    rest = copy.deepcopy(dict(spec))
    while True:
        try:
            agent = DeclarativeAgent.from_spec(rest)
        except SkillsError as error:
            path = _path_of(str(error), rest)
            message = str(error).removeprefix(f"{path_text(path)}: ")
            problems.append(document.problem((*at, *path), message))
            if path and _remove(rest, path):
                continue
        else:
            if not problems:
                return agent
        raise DocumentError(problems)


def _path_of(message: str, spec: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the path that starts the message of an agent's error: ``prompts.main: …``."""
    path: list[str] = []
    data: Any = spec
    for part in message.partition(": ")[0].split("."):
        if not isinstance(data, Mapping) or part not in data:
            break
        path.append(part)
        data = data[part]
    return tuple(path)


def _remove(spec: dict[str, Any], path: tuple[str, ...]) -> bool:
    """Remove what is at ``path``, and return whether that is more than the agent's name."""
    around: Any = spec
    for part in path[:-1]:
        around = around[part]
    del around[path[-1]]
    return path != ("name",)
