"""What of a plan is for the workers alone, and what may be shown of it.

A plan is looked at in many places: Flink's execution plan, its web interface, logs. Sources may hold credentials
(the user or the query of a URL, the options of an object store), and an agent's own code or description may repeat
them. All of that leaves the plan before it travels and comes back to it in the worker.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, unquote, urlsplit

from flink_skills.endpoint import links_of, redact, user_of
from flink_skills.manager import SkillScope
from flink_skills.options import SkillOptions
from flink_skills.sources import SourceSpec
from flink_skills.sources.secrets import replacements

if TYPE_CHECKING:
    from flink_skills.agents.plan import AgentPlan

__all__ = ["NOT_SHOWN", "Secrets", "public_options", "public_scope", "seal", "secret_values", "unseal"]

Secrets = Mapping[str, Any]
"""What :func:`seal` took out of a plan, as JSON-like data."""

NOT_SHOWN = "(not shown)"

_AGENT_CODE = ("data", "spec")
_SECRET_NAME = re.compile(r"key|secret|token|pass|pwd|cred|sas|auth|sign|cookie|connection_string", re.IGNORECASE)
# Shorter ones are found in too many words that are none.
_SHORTEST_VALUE = 4


def public_url(url: str) -> str:
    """A declared URL as it may be shown: without user and query, with its pins.

    >>> public_url("https://me:pw@host/a.zip?sig=1#format=heading")
    'https://host/a.zip#format=heading'
    """
    spec = SourceSpec.parse("url", url)
    return str(replace(spec, location=redact(spec.location)))


def public_scope(scope: SkillScope) -> SkillScope:
    """A scope as it may be shown."""
    return replace(scope, urls=tuple(public_url(url) for url in scope.urls))


def public_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options of a plan as they may be shown."""
    shown = dict(options)
    if SkillOptions.SOURCE_OPTIONS.key in shown:
        shown[SkillOptions.SOURCE_OPTIONS.key] = NOT_SHOWN
    if SkillOptions.FROM_URLS.key in shown:
        shown[SkillOptions.FROM_URLS.key] = [public_url(str(url)) for url in shown[SkillOptions.FROM_URLS.key]]
    return shown


def seal(plan: AgentPlan) -> tuple[AgentPlan, dict[str, Any]]:
    """``plan`` without what only workers may know, and that; see :func:`unseal`."""
    urls = {str(number): list(scope.urls) for number, scope in enumerate(plan.scopes) if public_scope(scope) != scope}
    options = dict(plan.options)
    hidden = {SkillOptions.SOURCE_OPTIONS.key: options.pop(SkillOptions.SOURCE_OPTIONS.key, None)}
    # The scopes have these already.
    hidden[SkillOptions.FROM_URLS.key] = options.pop(SkillOptions.FROM_URLS.key, None)
    agent = dict(plan.agent)
    code = {name: agent.pop(name) for name in _AGENT_CODE if name in agent}
    sealed = replace(plan, scopes=tuple(public_scope(s) for s in plan.scopes), options=options, agent=agent)
    callees = {name: seal(callee) for name, callee in plan.agents.items()}
    sealed = replace(sealed, agents={name: callee for name, (callee, _) in callees.items()})
    taken = {
        "urls": urls,
        "options": {k: v for k, v in hidden.items() if v is not None},
        "agent": code,
        "agents": {name: secrets for name, (_, secrets) in callees.items() if secrets},
    }
    return sealed, {name: part for name, part in taken.items() if part}


def unseal(plan: AgentPlan, secrets: Secrets) -> AgentPlan:
    """The plan that :func:`seal` made ``plan`` and ``secrets`` of."""
    urls = secrets.get("urls", {})
    scopes = tuple(
        replace(scope, urls=tuple(urls[str(number)])) if str(number) in urls else scope
        for number, scope in enumerate(plan.scopes)
    )
    return replace(
        plan,
        scopes=scopes,
        options={**plan.options, **secrets.get("options", {})},
        agent={**plan.agent, **secrets.get("agent", {})},
        agents={name: unseal(callee, secrets.get("agents", {}).get(name, {})) for name, callee in plan.agents.items()},
    )


def secret_values(secrets: Secrets) -> list[str]:
    """The texts in ``secrets`` that must not be seen in a log or a message, longest first.

    Called where the sources are read, so that what ``${env:…}`` and ``${file:…}`` stand for here is among them.
    """
    found: set[str] = set()
    for callee in secrets.get("agents", {}).values():
        found.update(secret_values(callee))
    for urls in secrets.get("urls", {}).values():
        for url in urls:
            found.update(value for value, _ in replacements(url))
            location = SourceSpec.parse("url", url).location
            found.update(_values_of_user(user_of(location)))
            for link in links_of(location):
                found.update(_values_of_query(link))
    text = secrets.get("options", {}).get(SkillOptions.SOURCE_OPTIONS.key) or "{}"
    found.update(value for value, _ in replacements(text))
    try:
        options = json.loads(text)
    except ValueError:
        options = {}
    found.update(_values_of_options(options, secret=False))
    return sorted((value for value in found if len(value) >= _SHORTEST_VALUE), key=lambda value: (-len(value), value))


def _values_of_user(user: str) -> Iterator[str]:
    name, _, password = user.partition(":")
    for value in (user, password or name):
        yield from (value, unquote(value))


def _values_of_query(url: str) -> Iterator[str]:
    try:
        parts = urlsplit(url)
    except ValueError:
        return
    if parts.query:
        yield parts.query
        for name, value in parse_qsl(parts.query):
            # A flag such as "download=true" is no secret, and its value is in many words.
            if len(value) > len("false") or _SECRET_NAME.search(name):
                yield value


def _values_of_options(value: Any, *, secret: bool) -> Iterator[str]:
    if isinstance(value, Mapping):
        for name, item in value.items():
            yield from _values_of_options(item, secret=secret or bool(_SECRET_NAME.search(str(name))))
    elif isinstance(value, Sequence) and not isinstance(value, str):
        for item in value:
            yield from _values_of_options(item, secret=secret)
    elif isinstance(value, str) and secret:
        yield value
