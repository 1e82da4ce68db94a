"""What can be wrong with an artifact, or with where artifacts are kept."""

from __future__ import annotations

from typing import Literal

from flink_skills.errors import ExecutionError

__all__ = ["ArtifactError", "Reason"]

Reason = Literal["invalid", "missing", "too-large", "changed", "unavailable"]


class ArtifactError(ExecutionError):
    """An artifact cannot be saved or read.

    ``reason`` is ``invalid`` (a name or reference that cannot be used), ``missing``, ``too-large``, ``changed`` (its
    content is not what was saved) or ``unavailable`` (the store cannot be reached; ``retryable`` says whether the same
    may succeed later).
    """

    def __init__(self, message: str, reason: Reason, *, retryable: bool = False) -> None:
        super().__init__(message)
        self.reason: Reason = reason
        self.retryable = retryable
