"""Text of errors that user code raises: bounded, encodable, and available for every object."""

from __future__ import annotations

from flink_skills.errors import SkillsError

#: Maximum characters of the text of an error.
MAX_ERROR_TEXT = 10_000


def error_text(error: BaseException) -> str:
    """Return the class and the message of ``error``, at most :data:`MAX_ERROR_TEXT` characters of it.

    Return the class alone if the message raises. A lone surrogate becomes ``?``.

    >>> error_text(KeyError("a"))
    "KeyError: 'a'"
    """
    return f"{_encodable(type(error).__name__)}: {plain_message(error)}"


def message_text(error: BaseException) -> str:
    """Return the message of an error of this package, and the text of any other error."""
    return (isinstance(error, SkillsError) and plain_message(error)) or error_text(error)


def described(error: BaseException) -> BaseException:
    """Return ``error`` for a log, or an error with its traceback and a bounded message if its own is not fit for it."""
    message = plain_message(error)
    try:
        fits = str(error) == message
    except BaseException:  # the class of the error is the user's
        fits = False
    return error if fits else RuntimeError(f"{type(error).__name__}: {message}").with_traceback(error.__traceback__)


def plain_message(error: BaseException) -> str:
    """Return the message of ``error`` without its class, bounded in the same way."""
    try:
        text = str(error)
    except BaseException as problem:  # the class of the error is the user's
        return f"(its message cannot be read: {type(problem).__name__})"
    if len(text) > MAX_ERROR_TEXT:
        text = f"{text[:MAX_ERROR_TEXT]}… ({len(text):,} characters)"
    return text if text.isascii() else _encodable(text)


def _encodable(text: str) -> str:
    return text.encode("utf-8", "replace").decode()
