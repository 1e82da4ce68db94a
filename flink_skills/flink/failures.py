"""What a failed Flink job says: the message of its root cause, without the Java stack."""

from __future__ import annotations

from py4j.protocol import Py4JJavaError

from flink_skills.errors import SkillsError

__all__ = ["JobFailedError", "job_failure"]

_MAX_DEPTH = 50


class JobFailedError(SkillsError):
    """A job was submitted and failed; the message is that of the root cause."""


def job_failure(error: BaseException) -> str | None:
    """The message of the root cause of a failed job; None when ``error`` did not come from Java."""
    found: BaseException | None = error
    while found is not None and not isinstance(found, Py4JJavaError):
        found = found.__cause__ or found.__context__
    if found is None:
        return None
    throwable, message = found.java_exception, ""
    for _ in range(_MAX_DEPTH):
        if throwable is None:
            break
        message = str(throwable.getMessage() or throwable.getClass().getSimpleName())
        if "org.flinkskills" in throwable.toString().partition(":")[0] or _names_an_option(message):
            break
        throwable = throwable.getCause()
    return _without_class(message)


def _names_an_option(message: str) -> bool:
    """Whether Flink says which option has a bad value; the causes below say only what is bad about the value."""
    return message.startswith("Could not parse value '") and "' for key '" in message


def _without_class(message: str) -> str:
    """``message`` without the class name that Flink's serialized throwables put first."""
    head, colon, rest = message.partition(": ")
    return rest if colon and " " not in head and "." in head else message
