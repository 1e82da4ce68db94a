"""Names of bundled tools: their own if these are free, otherwise ``<skill>_<tool>``.

A tool gets its name when its skill is loaded. The state of the conversation keeps the name after the skill is unloaded:
a name that a model has learned never refers to another skill's code.
"""

from __future__ import annotations

import hashlib
import itertools
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from flink_skills.tools.state import MAX_TOOL_NAMES, SkillState

_MAX_LENGTH = 64
_DIGITS = 6
_NOT_IN_NAMES = re.compile(r"[^a-zA-Z0-9_-]")


def exposed_name(skill: str, tool: str) -> str:
    """Return ``<skill>_<tool>`` in a form that all providers accept. A changed name gets a few digits to be unique.

    >>> exposed_name("log-triage", "run"), exposed_name("log triage", "run")
    ('log-triage_run', 'log_triage_run_add826')
    """
    wanted = f"{skill}_{tool}"
    return wanted if _fits(wanted) else _with_digits(skill, tool)


def named_specs(
    skill: str,
    specs: Sequence[Mapping[str, Any]],
    state: SkillState,
    reserved: Collection[str],
    others: Iterable[str] = (),
) -> tuple[dict[str, Any], ...]:
    """Return the ``specs`` of the tools of ``skill``, each with its name ``exposed`` from this load on.

    A tool keeps the name that it had in the conversation of ``state``. Any other gets a name that is not in
    ``reserved``, that no other tool had in the conversation, and that does not start like the prefixed names of
    ``others``, the other skills: a model would take the tool for theirs.

    >>> named_specs("geo", [{"name": "find"}, {"name": "run"}], SkillState(), ["run"])
    ({'name': 'find', 'exposed': 'find'}, {'name': 'run', 'exposed': 'geo_run'})
    """
    before = {of: name for name, of in state.tool_names.items() if name not in reserved}
    now = brought_names(state, (other for other in state if other != skill), reserved)
    used = {*reserved, *state.tool_names, *now.values()}
    prefixes = tuple(f"{other}_" for other in others if other != skill)
    tools = [str(spec["name"]) for spec in specs]
    chosen = {tool: before[skill, tool] for tool in tools if (skill, tool) in before}
    # A name that the state cannot store has to be unique without it.
    first = 0 if len(state.tool_names) + len(tools) <= MAX_TOOL_NAMES else 2
    for tool in tools if first == 0 else ():
        # These first: no tool can take the own name of another tool of the skill.
        if tool not in chosen and tool not in used and _fits(tool) and not tool.startswith(prefixes):
            chosen[tool] = tool
            used.add(tool)
    for tool in tools:
        if tool not in chosen:
            forms = itertools.islice(_forms(skill, tool), max(first, 1), None)
            chosen[tool] = next(form for form in forms if form not in used)
            used.add(chosen[tool])
    return tuple({**spec, "exposed": chosen[tool]} for tool, spec in zip(tools, specs, strict=True))


def brought_names(state: SkillState, skills: Iterable[str], reserved: Collection[str]) -> dict[tuple[str, str], str]:
    """Return the names of the tools of the loaded ``skills``, by skill and tool.

    A tool has the name of its load. If the job has a tool of that name since then, or if the load set none (a session
    of an earlier release), it has a name that is not in ``reserved`` and that no other tool has.
    """
    brought = {
        (skill, str(spec["name"])): spec.get("exposed") for skill in sorted(skills) for spec in state[skill].bundled
    }
    found: dict[tuple[str, str], str] = {}
    used = {*reserved}
    for of, name in brought.items():
        if isinstance(name, str) and name not in used and _fits(name) and state.tool_names.get(name, of) == of:
            found[of] = name
            used.add(name)
    used.update(state.tool_names)
    for of, name in brought.items():
        if of not in found:
            forms = itertools.islice(_forms(*of), 0 if name is None else 1, None)
            found[of] = next(form for form in forms if _fits(form) and form not in used)
            used.add(found[of])
    return found


def _forms(skill: str, tool: str) -> Iterator[str]:
    """Yield the possible names of a tool, the plainest first."""
    yield tool
    yield exposed_name(skill, tool)
    for salt in itertools.count():
        yield _with_digits(skill, tool, salt)


def _with_digits(skill: str, tool: str, salt: int = 0) -> str:
    clean = _NOT_IN_NAMES.sub("_", f"{skill}_{tool}")
    digits = hashlib.sha256(f"{skill}\0{tool}{f'{chr(0)}{salt}' if salt else ''}".encode()).hexdigest()[:_DIGITS]
    return f"{clean[: _MAX_LENGTH - _DIGITS - 1]}_{digits}"


def _fits(name: str) -> bool:
    return 0 < len(name) <= _MAX_LENGTH and not _NOT_IN_NAMES.search(name)
