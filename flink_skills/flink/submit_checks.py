"""Checks of the client before it submits: inputs of a job, sources, names of skills, the lock, artifacts."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from flink_skills.agents.declare.agent import Agent
from flink_skills.agents.open.generation import effective_view
from flink_skills.agents.open.opening import server_names
from flink_skills.agents.plan.plan import AgentPlan
from flink_skills.artifacts import ArtifactStore
from flink_skills.errors import ConfigError, SourceError
from flink_skills.manager import AgentSkillManager, SkillLock
from flink_skills.options import SkillConfig, SkillOptions
from flink_skills.sources import SourceContext, SourceSpec, open_source
from flink_skills.sources.address import protocol_of

_METHODS = {"DataStream": "from_datastream", "Table": "from_table"}


def check_events(events: Any) -> None:
    """Raise :class:`ConfigError` if the events of ``from_list`` are not an iterable of events."""
    kind = _kind(events)
    if kind in _METHODS:
        raise ConfigError(f"from_list: events is a {kind}: use {_METHODS[kind]}(…)")
    if isinstance(events, (str, bytes, bytearray)):
        raise ConfigError(
            f"from_list: events is one {type(events).__name__}, whose characters would be the events: write "
            "from_list([…])"
        )
    if isinstance(events, Mapping):
        raise ConfigError("from_list: events is a dict, whose keys would be the events: write from_list([{…}])")
    if kind == "DataFrame":
        raise ConfigError(
            "from_list: events is a DataFrame, whose columns would be the events: write "
            "from_list(frame.to_dict('records'))"
        )
    if hasattr(events, "__aiter__"):
        raise ConfigError("from_list: events is an asynchronous iterator: give a list or an iterator")
    if isinstance(events, type) or not isinstance(events, Iterable):
        raise ConfigError(f"from_list: events is {_shown(events)}: give a list of events, such as from_list([…])")


def check_stream(stream: Any) -> None:
    """Raise :class:`ConfigError` if ``stream`` is not a stream of PyFlink."""
    from pyflink.datastream import DataStream

    if not isinstance(stream, DataStream):
        raise ConfigError(
            f"from_datastream: stream is {_shown(stream)} instead of a DataStream: {_instead(stream, 'DataStream')}"
        )


def check_table(table: Any) -> None:
    """Raise :class:`ConfigError` if ``table`` is not a table of PyFlink."""
    from pyflink.table import Table

    if not isinstance(table, Table):
        raise ConfigError(f"from_table: table is {_shown(table)} instead of a Table: {_instead(table, 'Table')}")


def check_environment(env: Any) -> None:
    """Raise :class:`ConfigError` if ``env`` is neither an environment for streams of PyFlink nor None."""
    if env is None or hasattr(env, "_j_stream_execution_environment"):
        return
    hint = "give it as t_env=" if hasattr(env, "_j_tenv") else "make it with its get_execution_environment()"
    raise ConfigError(
        f"get_execution_environment: env is {_shown(env)} instead of a StreamExecutionEnvironment: {hint}"
    )


def check_type_info(type_info: Any) -> None:
    """Raise :class:`ConfigError` if ``type_info`` is neither a type of PyFlink's streams nor None."""
    from pyflink.common import TypeInformation

    if type_info is None or isinstance(type_info, TypeInformation):
        return
    raise ConfigError(
        f"to_datastream: type_info is {_shown(type_info)} instead of a TypeInformation: give one of "
        "pyflink.common.Types, such as Types.ROW_NAMED([…], […]), or use to_table"
    )


def check_name(name: Any, what: str) -> None:
    """Raise :class:`ConfigError` if ``name`` is neither a string that is not empty nor None."""
    if name is not None and (not isinstance(name, str) or not name):
        raise ConfigError(f"{what} is {name!r}: give a string that is not empty, or None")


def _instead(value: Any, wanted: str) -> str:
    kind = _kind(value)
    if kind in _METHODS:
        return f"use {_METHODS[kind]}(…)"
    if isinstance(value, str) and wanted == "Table":
        return f"read it with t_env.from_path({value!r}) or t_env.sql_query(…)"
    if isinstance(value, Iterable) and not isinstance(value, (str, bytes, type)):
        made = "env.from_collection(…)" if wanted == "DataStream" else "t_env.from_elements(…)"
        return f"use from_list(…) to run it in this process, or make a {wanted} with {made}"
    return f"give a {wanted} of PyFlink"


def _kind(value: Any) -> str:
    """Return the name of the class of PyFlink or pandas that a value is an instance of. Neither is imported."""
    for cls in type(value).__mro__:
        if cls.__module__.partition(".")[0] in ("pyflink", "pandas") and cls.__name__ in (*_METHODS, "DataFrame"):
            return cls.__name__
    return ""


def _shown(value: Any) -> str:
    if value is None:
        return "None"
    if isinstance(value, type):
        return f"the class {value.__name__}"
    return f"of type {type(value).__name__}"


def check_wait_id(wait_id: Any) -> None:
    """Raise :class:`ConfigError` if ``wait_id`` is neither the name of a field nor a function."""
    if not (callable(wait_id) or (isinstance(wait_id, str) and wait_id)):
        raise ConfigError(f"answers: wait_id is {wait_id!r}: give the name of a field, or a function of the answer")


def check_answers(answers: Any) -> None:
    """Raise :class:`ConfigError` if the answers for an agent over a list are not an iterable of answers."""
    is_one = isinstance(answers, (str, bytes, bytearray, Mapping, type))
    if is_one or _kind(answers) or not isinstance(answers, Iterable):
        raise ConfigError(
            f"answers: answers is {_shown(answers)}: give a list or an iterator of answers to an agent over a list"
        )


def check_input_stream(call: str, stream: Any) -> None:
    """Raise :class:`ConfigError` if another input of an agent over a stream is not a stream of PyFlink.

    ``call`` is the method that adds it.
    """
    from pyflink.datastream import DataStream

    if not isinstance(stream, DataStream):
        what = "answers" if call == "answers" else "records"
        raise ConfigError(
            f"{call}: {what} is {_shown(stream)}: give a DataStream or a Table to an agent over a stream, such as "
            "env.from_collection(…)"
        )


def check_answer_field(agent: Agent | type[Agent], agent_id: str) -> None:
    """Raise :class:`ConfigError` if an agent reads answers in its events, and the job has no input for them."""
    field = agent.answer_field
    if field:
        raise ConfigError(
            f"agent {agent_id}: answer_field = {field!r} needs from_datastream or from_table: remove it, and select "
            "the answers in the section 'answers' of the job file, or write the job in Python"
        )


_log = logging.getLogger("flink_skills.submit")


def check_paths(plan: AgentPlan) -> None:
    """Raise :class:`ConfigError` for a relative path, which would be another folder on each TaskManager."""
    for scope in plan.scopes:
        for path in scope.paths:
            if "://" in path.location:
                raise ConfigError(
                    f"skill path {path.shown!r} ({scope.level} level) is a URL: declare it with "
                    "add_skills_from_urls, urls=[…] or skills.from.urls"
                )
            if not Path(path.location).is_absolute():
                raise ConfigError(
                    f"skill path {str(path)!r} ({scope.level} level) is relative, and TaskManagers have other working "
                    f"directories: write {str(Path(str(path)).absolute())!r}"
                )


def embed_lock(plan: AgentPlan, *, local: bool) -> AgentPlan:
    """Return the plan with the content of the file that ``skills.lock`` names, if this host has the file.

    Otherwise each TaskManager reads its own. Raises :class:`ConfigError` for a relative path, and
    :class:`SkillsError` for an invalid lock, or if ``local`` is True and the file is missing.
    """
    path = SkillConfig(plan.options).get(SkillOptions.LOCK)
    if not path:
        return plan
    if not Path(path).is_absolute():
        raise ConfigError(
            f"{SkillOptions.LOCK.key} {path!r} is relative, and TaskManagers have other working directories: "
            f"write {str(Path(path).absolute())!r}"
        )
    if not local and not os.access(path, os.R_OK):
        return plan
    return _locked(plan, SkillLock.read(path).to_json())


def pin_sources(plan: AgentPlan, *, local: bool) -> AgentPlan:
    """Return the plan with the versions that branches, tags and lists of MCP servers have now.

    Raises :class:`SourceError` for a source that must be readable here and is not.
    """
    config = SkillConfig(plan.options)
    mode, context = config.get(SkillOptions.VALIDATE_ON_SUBMIT), SourceContext(config)

    def pinned(url: SourceSpec) -> SourceSpec:
        try:
            # The kind of a third party is the scheme of a URL.
            return url if mode == "never" else replace(open_source("url", url, context).pinned(), kind="url")
        except SourceError as error:
            if mode == "always" or local:
                raise
            _log.warning("The plan pins no version, so TaskManagers can use different ones: %s", error)
            return url

    scopes = tuple(replace(scope, urls=tuple(map(pinned, scope.urls))) for scope in plan.scopes)
    agents = {name: pin_sources(callee, local=local) for name, callee in plan.agents.items()}
    return replace(plan, scopes=scopes, agents=agents)


def check_artifacts(plan: AgentPlan, *, local: bool) -> None:
    """Raise :class:`ConfigError` for an invalid ``skills.artifacts.dir``. The store is not contacted.

    The operator checks a file system that only the cluster may have when it opens, as it checks sources.
    """
    config = SkillConfig(plan.options)
    mode = config.get(SkillOptions.VALIDATE_ON_SUBMIT)
    if mode == "never":
        return
    try:
        ArtifactStore.open(config)
    except ConfigError as error:
        location = config.get(SkillOptions.ARTIFACTS_DIR).strip()
        if mode == "always" or local or protocol_of(location) in ("", "file", "local"):
            raise
        _log.info("the place of artifacts is checked when the operator opens: %s", error)


def _locked(plan: AgentPlan, lock: Mapping[str, Any]) -> AgentPlan:
    return replace(plan, lock=lock, agents={name: _locked(callee, lock) for name, callee in plan.agents.items()})


def resolve_skills(
    plan: AgentPlan, *, local: bool, resource_paths: Mapping[str, Sequence[str]], store_dir: str | None = None
) -> AgentPlan:
    """Return the plan with each model's effective skills, if all sources can be read from here.

    With ``skills.validate-on-submit`` = ``auto``, a source that only the cluster can read is left to the operator's
    open, unless the job runs in a mini cluster of this process (``local``); with ``always`` it is an error here.

    Raises:
        SourceError: a source that must be readable here is not.
        UnknownNameError: ``skill_names`` holds a name that no source has.
        SkillLockError: the skills are not those of ``skills.lock``.
    """

    def resolved(callee: AgentPlan) -> AgentPlan:
        return resolve_skills(callee, local=local, resource_paths=resource_paths, store_dir=store_dir)

    check_paths(plan)
    plan = replace(plan, agents={name: resolved(callee) for name, callee in plan.agents.items()})
    config = SkillConfig(plan.options)
    mode = config.get(SkillOptions.VALIDATE_ON_SUBMIT)
    if mode == "never":
        return plan
    # The operator reads a lock file that is missing here, and checks the requirements of skills, when it opens.
    elsewhere = (SkillOptions.LOCK.key, SkillOptions.UNSUPPORTED.key)
    config_here = SkillConfig({key: value for key, value in plan.options.items() if key not in elsewhere})
    with AgentSkillManager.from_scopes(
        plan.scopes,
        config=config_here,
        resource_paths=resource_paths,
        store_dir=store_dir,
        lock=SkillLock.from_json(plan.lock) if plan.lock is not None else None,
    ) as manager:
        try:
            manager.load_skills()
            manager.check_sources()
        except SourceError as error:
            if mode == "always" or local:
                raise
            _log.info("skill names are checked when the operator opens: %s", error)
            return plan
        effective = {model.name: effective_view(plan, manager, model).names for model in plan.models}
        servers = server_names(config, manager)
    return replace(plan.with_effective_skills(effective), plugin_servers=servers)
