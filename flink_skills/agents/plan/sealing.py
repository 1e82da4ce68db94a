"""Separates the parts of a plan that only workers get from those that may be shown.

A plan is visible in Flink's execution plan, its web interface and logs. Sources may have credentials (the user or the
query of a URL, the options of an object store), and the code or description of an agent may repeat them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any
from urllib.parse import parse_qsl, unquote, unquote_plus, urlsplit

from flink_skills.endpoint import links_of, user_of
from flink_skills.manager import SkillScope
from flink_skills.options import SkillOptions
from flink_skills.sources import SourceSpec
from flink_skills.sources.secrets import replacements

Secrets = Mapping[str, Any]
"""The parts of a plan that only workers get, as JSON-like data."""

NOT_SHOWN = "(not shown)"

_USER = SkillOptions.USER.prefix
_AGENT_CODE = ("data", "spec")
_SECRET_NAME = re.compile(r"key|secret|token|pass|pwd|cred|sas|auth|sign|cookie|connection_string", re.IGNORECASE)
# Shorter ones are found in too many words that are none.
_SHORTEST_VALUE = 4


def public_scope(scope: SkillScope) -> SkillScope:
    """Return a scope as it may be shown."""
    return replace(scope, urls=tuple(url.public for url in scope.urls))


def public_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of a plan as they may be shown."""
    shown = {key: NOT_SHOWN if key.startswith(_USER) else value for key, value in options.items()}
    if SkillOptions.SOURCE_OPTIONS.key in shown:
        shown[SkillOptions.SOURCE_OPTIONS.key] = NOT_SHOWN
    if SkillOptions.FROM_URLS.key in shown:
        urls = [SourceSpec.parse("url", str(url)) for url in shown[SkillOptions.FROM_URLS.key]]
        shown[SkillOptions.FROM_URLS.key] = [str(url.public) for url in urls]
    return shown


def hidden_urls(scopes: Sequence[SkillScope]) -> dict[str, list[str]]:
    """Return the URLs of the scopes that may not be shown as they are, by the number of their scope."""
    return {
        str(number): [str(url) for url in scope.urls]
        for number, scope in enumerate(scopes)
        if public_scope(scope) != scope
    }


def with_urls(scopes: Sequence[SkillScope], urls: Mapping[str, Sequence[str]]) -> tuple[SkillScope, ...]:
    """Return scopes with the URLs that :func:`hidden_urls` returned."""
    parsed = {number: tuple(SourceSpec.parse("url", url) for url in texts) for number, texts in urls.items()}
    return tuple(replace(scope, urls=parsed.get(str(number), scope.urls)) for number, scope in enumerate(scopes))


def split_options(options: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the public options of a plan, and the options that only workers get."""
    # The scopes have the URLs already.
    keys = {SkillOptions.SOURCE_OPTIONS.key, SkillOptions.FROM_URLS.key}
    # Custom values may be secrets.
    keys.update(key for key in options if key.startswith(_USER))
    hidden = {key: options[key] for key in keys if options.get(key) is not None}
    return {key: value for key, value in options.items() if key not in keys}, hidden


def split_agent(agent: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the declaration of an agent without its code, and its code."""
    code = {name: agent[name] for name in _AGENT_CODE if name in agent}
    return {name: value for name, value in agent.items() if name not in _AGENT_CODE}, code


def secret_values(secrets: Secrets) -> list[str]:
    """Return the values in ``secrets`` that must not appear in logs and messages, longest first.

    Call it on the machine that reads the sources: the values of ``${env:…}`` and ``${file:…}`` are included.
    """
    found: set[str] = set()
    for callee in secrets.get("agents", {}).values():
        found.update(secret_values(callee))
    for urls in secrets.get("urls", {}).values():
        for url in urls:
            found.update(value for value, _ in replacements(unquote_plus(url)))
            for name, value in parse_qsl(SourceSpec.parse("url", url).settings):
                if name == "server":
                    found.update(_values_of_options(json.loads(value), secret=False))
            # The pins at the end of the text change neither the user nor a query.
            found.update(_values_of_user(user_of(url)))
            for link in links_of(url):
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
