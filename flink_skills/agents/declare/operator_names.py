"""How the operators of agents are told apart from a job's others, in its graph and in its savepoints."""

from __future__ import annotations

__all__ = ["operator_of", "operator_uid"]

# Keyed state is found by the uid: never another one.
_PREFIX = "agent-"


def operator_uid(name: str) -> str:
    """The uid of the operator of an agent that has this name in its job.

    >>> operator_uid("triage")
    'agent-triage'
    """
    return f"{_PREFIX}{name}"


def operator_of(uid: str) -> str | None:
    """The name that belongs to a uid; None where it is no agent's.

    >>> operator_of("agent-triage"), operator_of("orders")
    ('triage', None)
    """
    return uid.removeprefix(_PREFIX) if uid.startswith(_PREFIX) else None
