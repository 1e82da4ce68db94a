"""Names of the tools that skills bring: their own where these are free, else ``<skill>_<tool>``."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Iterable

__all__ = ["exposed_name", "exposed_names"]

_LONGEST = 64
_DIGITS = 6
_NOT_IN_NAMES = re.compile(r"[^a-zA-Z0-9_-]")


def exposed_name(skill: str, tool: str) -> str:
    """``<skill>_<tool>`` as all providers accept it. What had to be changed for that gets a few digits, to stay unique.

    >>> exposed_name("log-triage", "run"), exposed_name("log triage", "run")
    ('log-triage_run', 'log_triage_run_add826')
    """
    wanted = f"{skill}_{tool}"
    return wanted if _fits(wanted) else _with_digits(skill, tool)


def exposed_names(brought: Iterable[tuple[str, str]], reserved: Collection[str]) -> dict[tuple[str, str], str]:
    """The name of each tool that the loaded skills bring, by skill and tool; none of them is in ``reserved``.

    Of two skills with a tool of one name neither gets it: what a model learned to call must not come to mean
    something else. So names depend on which skills are loaded, and not on their order.

    >>> exposed_names([("a", "run"), ("b", "run"), ("b", "plot")], ())
    {('a', 'run'): 'a_run', ('b', 'run'): 'b_run', ('b', 'plot'): 'plot'}
    """
    forms = {of: (of[1], exposed_name(*of), _with_digits(*of)) for of in brought}
    chosen = dict.fromkeys(forms, 0)
    while True:
        alike: dict[str, list[tuple[str, str]]] = {}
        for of, form in chosen.items():
            alike.setdefault(forms[of][form], []).append(of)
        unfit: list[tuple[str, str]] = []
        for name, group in alike.items():
            if name in reserved or not _fits(name):
                unfit += group
            elif len(group) > 1:
                # The plainest give way, so that a skill cannot push another's tool aside by a foreseen name.
                plainest = min(chosen[of] for of in group)
                unfit += [of for of in group if chosen[of] == plainest]
        unfit = [of for of in unfit if chosen[of] + 1 < len(forms[of])]
        if not unfit:
            return {of: forms[of][form] for of, form in chosen.items()}
        for of in unfit:
            chosen[of] += 1


def _with_digits(skill: str, tool: str) -> str:
    clean = _NOT_IN_NAMES.sub("_", f"{skill}_{tool}")
    digits = hashlib.sha256(f"{skill}\0{tool}".encode()).hexdigest()[:_DIGITS]
    return f"{clean[: _LONGEST - _DIGITS - 1]}_{digits}"


def _fits(name: str) -> bool:
    return 0 < len(name) <= _LONGEST and not _NOT_IN_NAMES.search(name)
