"""API keys of chat models, from the environment."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from flink_skills.errors import ConfigError
from flink_skills.models.setup import ModelSetup

__all__ = ["NO_KEY", "api_key", "keys_not_needed"]

NO_KEY = "none"
"""The value for a model without a key."""

_needed: ContextVar[bool] = ContextVar("keys_needed", default=True)


@contextmanager
def keys_not_needed() -> Iterator[None]:
    """Accept missing keys meanwhile: models are created to show their requests, which contain no key."""
    token = _needed.set(False)
    try:
        yield
    finally:
        _needed.reset(token)


def api_key(setup: ModelSetup, usual: str | None, *, needed: bool = True) -> str:
    """Return the API key of a model, or :data:`NO_KEY`.

    Args:
        setup: The setup, which may name the variable of the key.
        usual: The variable of the provider. Without one, a key is not needed.
        needed: Whether the usual variable must be set.

    Raises:
        ConfigError: The key is missing.
    """
    variable = setup.api_key_env or usual
    if variable is None or not _needed.get():
        return NO_KEY
    key = os.environ.get(variable, "").strip()
    if not key and not needed and setup.api_key_env is None:
        return NO_KEY
    if not key:
        raise ConfigError(
            f"model {setup.label} needs an API key, and the environment variable {variable} is not set where "
            "the turns run (on a cluster: in the environment of the TaskManagers): set it, or name another "
            "variable in api_key_env"
        )
    return key
