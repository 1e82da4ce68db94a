"""Every error of the package, as one tree.

    SkillsError
    ├── ConfigError          an option, a job file or an argument is wrong
    ├── UnknownNameError     a name (skill, tool, connection, model, field) that does not exist, with near misses
    ├── PlanError            an agent cannot be compiled into a job
    ├── SkillFormatError     a SKILL.md that cannot be understood
    ├── SourceError          a skill source that cannot be read (``retryable`` says whether trying again may help)
    ├── SkillLockError       a skill is not the one that skills.lock names
    ├── UnsupportedSkillError  a skill needs what the job does not have, and skills.unsupported is refuse
    ├── ResourceError        a file of a skill that may not or cannot be read
    ├── ExecutionError       a command could not be run as the policy asks (never: a command that ran and failed)
    │   ├── IsolationError   … because the machine cannot keep commands apart as well as the job demands
    │   ├── PlaceError       (``flink_skills.execution``) a place in a workspace that cannot be read or written
    │   └── ArtifactError    (``flink_skills.artifacts``) an artifact that cannot be saved or read (``retryable``)
    ├── ModelError           a chat model did not answer (``retryable``, ``retry_after``)
    ├── TurnError            a turn ended without a result
    │   ├── LimitError       … because it reached a limit of the job
    │   ├── RefusedError     … because a control record refuses the events of its agent
    │   ├── WaitTimeout      a wait of the turn has no answer in time
    │   └── WaitCancelled    a wait of the turn was cancelled
    └── WorkerError          a worker process could not be started or broke its protocol

Catch :class:`SkillsError` to catch all of them. What a *model* does wrong is never an
exception: it is a tool result that says what to do instead.

Messages name the thing, the location and the fix, in this order.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Any

_SHOWN = 12


class SkillsError(Exception):
    """Root of all errors of the package.

    ``retryable`` is true where the same call may succeed later without anybody changing anything. ``finish_reason`` is
    the reason why the answer of a chat model ended, if the error is about an answer: ``length``, ``content_filter`` or
    ``error``. Empty otherwise.
    """

    retryable: bool = False
    finish_reason: str = ""


class ConfigError(SkillsError):
    """An option, an argument or a declaration has a value that cannot be used."""


class PlanError(SkillsError):
    """An agent cannot be compiled into a job."""


class SkillFormatError(SkillsError):
    """A ``SKILL.md`` cannot be understood."""


class SkillLockError(SkillsError):
    """The skills of a job are not those that its lock file names."""


class UnsupportedSkillError(SkillsError):
    """Skills need what the job does not have, and ``skills.unsupported`` is ``refuse``. The message has all reasons."""


class ResourceError(SkillsError):
    """A file of a skill may not be read, does not exist, or has changed since the skill was loaded."""


class ExecutionError(SkillsError):
    """A command could not be run as the policy asks."""


class IsolationError(ExecutionError):
    """Commands cannot be kept apart from the rest of the machine as well as ``skills.shell.min-isolation`` demands.

    ``report`` is the :class:`~flink_skills.execution.IsolationReport` with the reasons.
    """

    def __init__(self, message: str, report: object = None) -> None:
        super().__init__(message)
        self.report = report


class WorkerError(SkillsError):
    """A worker process could not be started or broke its protocol."""


class TurnError(SkillsError):
    """A turn ended without a result."""

    def __init__(self, *args: object, finish_reason: str = "") -> None:
        super().__init__(*args)
        self.finish_reason = finish_reason


class LimitError(TurnError):
    """A turn reached a limit of the job (steps, time, tokens)."""


class RefusedError(TurnError):
    """A control record refuses the events of an agent."""


class WaitTimeout(TurnError):  # noqa: N818 - as TimeoutError and CancelledError of asyncio
    """A wait of a turn has no answer at its deadline, or when the inputs of the job end."""


class WaitCancelled(TurnError):  # noqa: N818
    """A wait of a turn was cancelled by ``ctx.cancel_wait`` or by a record of the answers."""


class SourceError(SkillsError):
    """A skill source cannot be read.

    ``source`` is the path or URL without anything secret.
    """

    def __init__(self, message: str, *, source: str = "", retryable: bool = False) -> None:
        super().__init__(message)
        self.source = source
        self.retryable = retryable


class ModelError(SkillsError):
    """A chat model did not answer.

    ``retry_after`` is the wait in seconds that the provider asked for, if it did. ``rejects_request`` means that the
    error is about this request, such as one that is too long, and says nothing about the next one. ``usage`` are the
    tokens that the provider counted nevertheless, a :class:`flink_skills.models.Usage`, or None.
    """

    def __init__(
        self,
        message: str,
        *,
        retryable: bool = False,
        retry_after: float | None = None,
        rejects_request: bool = False,
        finish_reason: str = "",
        usage: Any = None,
    ) -> None:
        super().__init__(message)
        self.usage = usage
        self.retryable = retryable
        self.retry_after = retry_after
        self.rejects_request = rejects_request
        self.finish_reason = finish_reason


class UnknownNameError(SkillsError):
    """A name that nothing has.

    ``kind`` says what was looked for (``"skill"``, ``"tool"`` …), ``near`` are the closest names that exist. ``advice``
    says what to do in place of the suggestion of near names. ``show_all`` lists all names, however many there are.

    >>> str(UnknownNameError("skill", "log-triag", ["log-triage", "web"], place="model 'm'"))
    "unknown skill 'log-triag' in model 'm': did you mean 'log-triage'? (there are: log-triage, web)"
    """

    def __init__(
        self, kind: str, name: str, known: Iterable[str], *, place: str = "", advice: str = "", show_all: bool = False
    ) -> None:
        names = sorted(set(known))
        most = len(names) if show_all else _SHOWN
        self.kind = kind
        self.name = name
        self.near = near_misses(name, names)
        where = f" in {place}" if place else ""
        if advice:
            hint = advice
        elif self.near:
            hint = "did you mean " + " or ".join(repr(n) for n in self.near) + "?"
        else:
            hint = "nothing has a similar name"
        shown = ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")
        there = f" (there are: {shown})" if names else f" (there is no {kind} at all)"
        if self.near and len(names) > most:
            there = ""
        super().__init__(f"unknown {kind} {name!r}{where}: {hint}{there}")


def near_misses(name: str, known: Iterable[str], limit: int = 3) -> list[str]:
    """Return the names most like ``name``, best first.

    >>> near_misses("triage", ["log-triage", "billing"])
    ['log-triage']
    """
    names = sorted(set(known))
    folded = {n.casefold().replace("_", "-"): n for n in names}
    wanted = name.casefold().replace("_", "-")
    close = [folded[n] for n in difflib.get_close_matches(wanted, list(folded), n=limit, cutoff=0.6)]
    if wanted:
        close += [n for n in names if n not in close and (wanted in n.casefold() or n.casefold() in wanted)]
    return close[:limit]


def counted(number: int, one: str, many: str = "") -> str:
    """Return a number with its noun.

    >>> counted(1, "skill"), counted(2, "skill")
    ('1 skill', '2 skills')
    """
    return f"{number:,} {one if number == 1 else many or one + 's'}"
