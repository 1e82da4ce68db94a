"""What is wrong with the chat models that a YAML file declares: all of it, each mistake at its own key.

A plan is compiled of one setup at a time, and again without the key that was refused, until nothing is refused.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from typing import Any

from flink_skills.agents.declare.shared import SharedResources
from flink_skills.agents.plan.compilation import compile_plan
from flink_skills.agents.plan.declarative import DeclarativeAgent
from flink_skills.agents.plan.spec import SetupSpec
from flink_skills.documents.document import Document, Path, Problem
from flink_skills.errors import SkillsError, UnknownNameError, near_misses
from flink_skills.manager import SkillScope
from flink_skills.models.registry import check_setup, provider_names
from flink_skills.models.setup import SETTINGS, ModelSetup
from flink_skills.models.suggestions import class_advice
from flink_skills.options import SkillConfig
from flink_skills.other_frameworks import SETUP_WORDS

__all__ = ["route_problems", "setup_problems"]

_SETUPS, _CONNECTIONS = "chat_model_setups", "chat_model_connections"
_OWN_NAMES: Mapping[str, str] = {_SETUPS: _SETUPS, _CONNECTIONS: _CONNECTIONS}
# Which key an unknown name was found at.
_KEYS = {
    "tool": "tools",
    "prompt": "prompt",
    "connection": "connection",
    "strategy": "strategy",
    "on_incomplete": "on_incomplete",
    "model provider": "clazz",
    "chat model": "fallback",
}
# A setup of it needs nothing else, so that the other keys can be looked at.
_PLAIN = "offline"


def setup_problems(
    spec: Mapping[str, Any],
    document: Document,
    at: Path,
    *,
    has_sources: bool,
    config: SkillConfig,
    known: Iterable[Path] = (),
    shared: SharedResources | None = None,
    names: Mapping[str, str] = _OWN_NAMES,
) -> list[Problem]:
    """Return what is wrong with the setups and connections of ``spec``.

    Args:
        spec: The agent as its file declares it.
        document: The file.
        at: The path of ``spec`` in the file.
        has_sources: Whether the job has skills beside those of the agent.
        config: The options of the job.
        known: Paths of values that are reported already. These values are not checked.
        shared: The resources that all agents of the job share.
        names: The names of ``chat_model_setups`` and ``chat_model_connections`` in the file.
    """
    setups, connections = spec.get(_SETUPS), spec.get(_CONNECTIONS) or {}
    if not isinstance(setups, Mapping) or not isinstance(connections, Mapping):
        return []
    broken = {path[: len(at) + 2] for path in known} | {path for path in known if len(path) < len(at) + 2}
    if (*at, _CONNECTIONS) in broken or (*at, _SETUPS) in broken:
        return []
    # Whether there is a source for the agent's skill_names is a question about the job, not about a setup. The route is
    # about all setups.
    left_out = ("model", "route", "skill_names", _SETUPS)
    rest = {key: value for key, value in spec.items() if key not in left_out and (*at, key) not in broken}
    rest = {key: value for key, value in rest.items() if not any(path[: len(at) + 1] == (*at, key) for path in broken)}
    found: dict[Path, str] = {}
    for name, connection in connections.items():
        if isinstance(connection, Mapping) and (message := _class_problem(connection, "connection")):
            found[_CONNECTIONS, name, "clazz"] = message
    usable = {
        name: value
        for name, value in connections.items()
        if (_CONNECTIONS, name, "clazz") not in found and (*at, _CONNECTIONS, name) not in broken
    }
    for name, setup in setups.items():
        if isinstance(setup, Mapping) and (*at, _SETUPS, name) not in broken:
            given, unknown = _fallbacks(str(name), setup, {*setups, *(shared.setups if shared is not None else ())})
            found |= unknown
            if given.get("connection") in set(connections) - set(usable):
                del given["connection"]
            whole = {**rest, "name": rest.get("name", "agent"), _CONNECTIONS: {n: dict(c) for n, c in usable.items()}}
            found |= _problems_of(
                whole, str(name), given, has_sources=has_sources, config=config, shared=shared or SharedResources()
            )
    return [
        document.problem((*at, names[str(path[0])], *path[1:]), message, at_key=path[-1] != "clazz")
        for path, message in found.items()
    ]


def route_problems(
    spec: Mapping[str, Any], document: Document, at: Path, shared: SharedResources, known: Iterable[Path] = ()
) -> list[Problem]:
    """Return a problem for each chat model that the route of ``spec`` names and that is unknown.

    The arguments are those of :func:`setup_problems`.
    """
    route, setups = spec.get("route"), spec.get(_SETUPS) or {}
    where = (*at, "route")
    if not isinstance(route, Mapping) or not isinstance(setups, Mapping):
        return []
    if any(path[: len(where)] == where or where[: len(path)] == path for path in known):
        return []
    names = [*map(str, setups), *shared.setups]
    if spec.get("model") and spec["model"] not in shared.setups:
        names.append("model")
    models = route.get("models")
    named: dict[Path, Any] = {("default",): route.get("default")}
    for value, name in models.items() if isinstance(models, Mapping) else ():
        named["models", value] = name
    return [
        document.problem((*where, *path), str(UnknownNameError("chat model", str(name), names)))
        for path, name in named.items()
        if name is not None and name not in names
    ]


def _fallbacks(name: str, setup: Mapping[str, Any], models: Collection[str]) -> tuple[dict[str, Any], dict[Path, str]]:
    """Return ``setup`` without the fallbacks that are other models, and the problems of unknown names.

    Each setup is compiled without the others, so these names are checked here.
    """
    rest, found = dict(setup), dict[Path, str]()
    fallback = rest.get("fallback")
    if not isinstance(fallback, list) or len(set(map(str, fallback))) < len(fallback):
        return rest, found
    rest["fallback"] = []
    for at, other in enumerate(fallback):
        if other not in models and ":" not in str(other) and other not in provider_names():
            found[_SETUPS, name, "fallback", at] = str(UnknownNameError("chat model", str(other), models))
        elif other not in models or other == name:
            rest["fallback"].append(other)
    return rest, found


def _problems_of(
    spec: dict[str, Any],
    name: str,
    setup: dict[str, Any],
    *,
    has_sources: bool,
    config: SkillConfig,
    shared: SharedResources,
) -> dict[Path, str]:
    """The problems of one setup, by their paths in the spec."""
    found: dict[Path, str] = {}
    if message := _class_problem(setup, "setup"):
        found[_SETUPS, name, "clazz"] = message
        _make_plain(setup)
    scopes = [SkillScope("job", paths=["skills"])] if has_sources else []
    # The shared setups are looked at by themselves.
    only_others = replace(shared, setups={})
    # Each round takes one key out, or is the last one.
    while True:
        try:
            agent = DeclarativeAgent.from_spec({**spec, _SETUPS: {name: setup}})
            compile_plan(agent, job_scopes=scopes, config=config, shared=only_others)
        except SkillsError as error:
            path = _path_of(error, name, setup, spec[_CONNECTIONS])
            found[path] = _message(error, path)
            if path == (_SETUPS, name):
                return found
            if path[0] == _CONNECTIONS:
                del spec[_CONNECTIONS][path[1]][path[2]]
            elif path[-1] == "clazz":
                _make_plain(setup)
            else:
                del setup[str(path[-1])]
        else:
            return found


def _make_plain(setup: dict[str, Any]) -> None:
    setup["clazz"] = f"{_PLAIN}.setup"
    # A connection is one of a provider, which is not known.
    setup.pop("connection", None)


def _class_problem(arguments: Mapping[str, Any], kind: str) -> str | None:
    """Why ``clazz`` names no setup or connection at all; whether there is its provider is another question."""
    clazz = arguments.get("clazz")
    if isinstance(clazz, str) and kind == "connection" and clazz.endswith(f".{kind}"):
        provider = clazz.removesuffix(f".{kind}")
        try:
            check_setup(ModelSetup(provider=provider, model="any", base_url="http://localhost"))
        except UnknownNameError as error:
            return str(error) if error.kind == "model provider" else None
        except SkillsError:
            return None
        return None
    if not isinstance(clazz, str) or clazz.endswith(f".{kind}") or (kind == "setup" and ":" in clazz):
        return None
    names = [f"{provider}.{kind}" for provider in provider_names()]
    near = near_misses(clazz, names) or [f"{p}.{kind}" for p in near_misses(clazz.partition(".")[0], provider_names())]
    advice = class_advice(clazz, kind, provider_names())
    meant = f"did you mean {near[0]!r}?" if near else advice if advice.startswith("did you mean") else ""
    hint = f" ({meant})" if meant else ""
    more = ", or PROVIDER:MODEL" if kind == "setup" else ""
    return f"unknown chat model {kind} {clazz!r}{hint}; expected one of: {', '.join(names)}{more}"


def _path_of(error: SkillsError, name: str, setup: Mapping[str, Any], connections: Mapping[str, Any]) -> Path:
    """Where an error is; the setup itself where no key of it is to blame."""
    message = str(error)
    connection = setup.get("connection")
    if isinstance(error, UnknownNameError):
        key = error.name if error.kind == "model setting" else _KEYS.get(error.kind, "")
        if error.kind == "argument" and error.name in connections.get(str(connection), {}):
            return (_CONNECTIONS, str(connection), error.name)
        return (_SETUPS, name, key) if key in setup else (_SETUPS, name)
    said = message.removeprefix("chat model ").partition(": ")[2] or message
    for key in sorted(setup, key=len, reverse=True):
        if re.search(rf"\b{re.escape(str(key))}\b", said.partition(" needs ")[0]):
            return (_SETUPS, name, str(key))
    return (_SETUPS, name)


def _message(error: SkillsError, path: Path) -> str:
    if not isinstance(error, UnknownNameError) or error.kind != "model setting":
        return str(error)
    # Beside the settings of a model stand the keys of a setup, and either may be meant.
    keys = [*SetupSpec.model_fields, *SETTINGS]
    near = near_misses(error.name, keys)
    hint = SETUP_WORDS.get(error.name) or (f"did you mean {near[0]!r}?" if near else "nothing has a similar name")
    return f"unknown key {error.name!r} in chat model {path[1]!r}: {hint} (there are: {', '.join(keys)})"
