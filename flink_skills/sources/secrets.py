"""Secrets by reference: ``${env:NAME}`` and ``${file:/path}``, read where they are used and nowhere else.

``${env:NAME:-default}`` has a default for a variable that is not set or is empty.
"""

from __future__ import annotations

import logging
import os
import re
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from flink_skills.errors import ConfigError, SkillsError

_REFERENCE = re.compile(r"\$\{(env|file):([^{}]*)\}")
_MAX_BYTES = 64 << 10
_CHECK_SECONDS = 1.0
_log = logging.getLogger("flink_skills.secrets")


def has_references(text: str) -> bool:
    """Whether :func:`expand` would replace something in it."""
    return _REFERENCE.search(text) is not None


def expand(text: str) -> str:
    """Replace ``${env:NAME}`` by an environment variable and ``${file:/path}`` by a file's text.

    A file's last line end is left out. What is inserted is not searched again. Raises :class:`ConfigError`, which
    names the variable or the file and never a value.

    >>> os.environ["GREETING"] = "hello"
    >>> expand("${env:GREETING} world")
    'hello world'
    """
    return _REFERENCE.sub(_value, text)


class Secret:
    """Text with references that is read again when one of its files changes, so that a secret can be renewed.

    Files are checked when the text is read, at most every second. If a file cannot be read or is empty, the text stays
    as it was, with a warning in the log. Raises :class:`ConfigError` as :func:`expand` does.

    >>> Secret("Bearer ${env:GREETING}").value
    'Bearer hello'
    """

    def __init__(self, text: str) -> None:
        self._text = text
        self._files = [reference[2] for reference in _REFERENCE.finditer(text) if reference[1] == "file"]
        self._state = self._current_state()
        self._checked = time.monotonic()
        self._value = expand(text)

    @property
    def value(self) -> str:
        """The text with the present values."""
        if self._files and time.monotonic() - self._checked >= _CHECK_SECONDS:
            self._checked = time.monotonic()
            if self._current_state() != self._state:
                self.reread()
        return self._value

    def reread(self) -> str:
        """Read the files now, and return the text."""
        if self._files:
            self._state = self._current_state()
            try:
                if empty := [name for name in self._files if not _file(name).strip()]:
                    raise ConfigError(f"the file {empty[0]!r} is empty; write the secret into it")
                self._value = expand(self._text)
            except ConfigError as error:
                _log.warning("a secret cannot be read again, and its last value stays in use: %s", error)
        return self._value

    def _current_state(self) -> list[tuple[int, ...] | None]:
        return [_state(name) for name in self._files]


def _state(name: str) -> tuple[int, ...] | None:
    try:
        found = os.stat(name)
    except OSError:
        return None
    return found.st_mtime_ns, found.st_ino, found.st_size


def replacements(text: str) -> list[tuple[str, str]]:
    """(value, reference) of every reference that can be replaced now, long values first: to undo it in messages."""
    found = []
    for reference in _REFERENCE.finditer(text):
        with suppress(ConfigError):  # then nothing was inserted
            name, has_default, _ = reference[2].partition(":-")
            if not has_default or os.environ.get(name):  # a default is public
                found.append((_value(reference), reference[0]))
    return sorted(found, key=lambda pair: -len(pair[0]))


@contextmanager
def unchained_errors() -> Iterator[None]:
    """Cut from our errors what they were made from: the errors of libraries hold whole URLs, headers and options.

    ``raise … from None`` keeps them out of a traceback, but not out of the error's context.
    """
    try:
        yield
    except SkillsError as error:
        error.__cause__ = error.__context__ = None
        raise


def _value(reference: re.Match[str]) -> str:
    return _env(reference[2]) if reference[1] == "env" else _file(reference[2])


def expand_values(value: Any) -> Any:
    """:func:`expand` for every string in nested JSON values; keys stay as they are."""
    if isinstance(value, str):
        return expand(value)
    if isinstance(value, Mapping):
        return {key: expand_values(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [expand_values(item) for item in value]
    return value


def _env(text: str) -> str:
    name, has_default, default = text.partition(":-")
    value = os.environ.get(name) if name else None
    if has_default and name and not value:
        return default
    if value is None:
        message = f"the environment variable {name!r}, which ${{env:{name}}} asks for, is not set"
        raise ConfigError(f"{message}; set it on every machine that runs the job")
    return value


def _file(name: str) -> str:
    asked = f"the file {name!r}, which ${{file:{name}}} asks for,"
    path = Path(name)
    if not path.is_absolute() or "\0" in name:
        raise ConfigError(f"{asked} has no absolute path; write ${{file:/path}}")
    try:
        if not path.is_file():
            raise ConfigError(f"{asked} does not exist or is not a file; copy it to every host that runs the job")
        with path.open("rb") as file:
            data = file.read(_MAX_BYTES + 1)
        text = data.decode("utf-8")
    except OSError as error:
        raise ConfigError(f"{asked} cannot be read ({error.strerror}); allow this user to read it") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{asked} is not UTF-8 text") from None
    if len(data) > _MAX_BYTES:
        raise ConfigError(f"{asked} is larger than {_MAX_BYTES} bytes; it should hold one secret")
    return text.removesuffix("\n").removesuffix("\r")
