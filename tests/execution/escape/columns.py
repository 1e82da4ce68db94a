"""What is to be expected: the columns of the suite, by what the machine can do and not by what a backend says."""

from __future__ import annotations

from flink_skills.execution import IsolationLevel
from tests.execution.escape.machine import Identity, can_listen, landlock_abi, missing
from tests.execution.escape.probes.kit import Attempt

__all__ = ["SCOPES_SINCE", "expected_level", "is_stopped", "why_unsure"]

SCOPES_SINCE = 6
"""The version of Landlock that confines signals and abstract sockets."""

_LETTERS = {
    IsolationLevel.NAMESPACE: "N",
    IsolationLevel.LANDLOCK: "L",
    IsolationLevel.LANDLOCK_PARTIAL: "P",
    IsolationLevel.HYGIENE: "H",
}


def expected_level(backend: str) -> IsolationLevel:
    """The level that ``backend`` has to reach on this kernel, if it can be started at all."""
    if backend == "landlock":
        # Without the scopes of Landlock, a listener to system calls closes signals.
        full = landlock_abi() >= SCOPES_SINCE or can_listen()
        return IsolationLevel.LANDLOCK if full else IsolationLevel.LANDLOCK_PARTIAL
    return {
        "none": IsolationLevel.NONE,
        "hygiene": IsolationLevel.HYGIENE,
        "bwrap": IsolationLevel.NAMESPACE,
        "remote": IsolationLevel.REMOTE,
    }[backend]


def is_stopped(one: Attempt, level: IsolationLevel) -> bool:
    """Whether the column of ``level`` has an ``x`` for the attempt."""
    return _LETTERS.get(level, "-") in one.stopped


def why_unsure(one: Attempt, level: IsolationLevel, identity: Identity) -> str:
    """Why an attempt that nothing stops may still fail; empty when it has to succeed."""
    if one.of_worker and identity.switches and level > IsolationLevel.NONE:
        return "the worker is another user's process"
    uid = identity.command_uid if level > IsolationLevel.NONE else identity.worker_uid
    return next(filter(None, (missing(fact, uid) for fact in one.needs)), "")
