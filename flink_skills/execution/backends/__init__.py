"""The execution backends of this package; :mod:`flink_skills.execution.backend_registry` has their names."""

from typing import TYPE_CHECKING

from flink_skills.lazy import lazy_names

if TYPE_CHECKING:
    from flink_skills.execution.backends.bwrap import BwrapBackend as BwrapBackend
    from flink_skills.execution.backends.landlock import LandlockBackend as LandlockBackend
    from flink_skills.execution.backends.local_backend import HygieneBackend as HygieneBackend
    from flink_skills.execution.backends.local_backend import LocalBackend as LocalBackend
else:
    __all__, __getattr__, __dir__ = lazy_names(__name__)
