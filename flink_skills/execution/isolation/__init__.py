"""Actual command isolation: the canaries that prove a level, and the choice of a backend."""

from typing import TYPE_CHECKING

from flink_skills.lazy import lazy_names

if TYPE_CHECKING:
    from flink_skills.execution.isolation.backend_choice import choose_backend as choose_backend
    from flink_skills.execution.isolation.backend_choice import open_backend as open_backend
    from flink_skills.execution.isolation.canaries import REQUIRED as REQUIRED
    from flink_skills.execution.isolation.canaries import prove as prove
    from flink_skills.execution.isolation.canaries import proved_level as proved_level
else:
    __all__, __getattr__, __dir__ = lazy_names(__name__)
