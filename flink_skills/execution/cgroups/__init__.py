"""Cgroups of commands, for a worker in a delegated cgroup v2."""

from __future__ import annotations

from flink_skills.execution.cgroups.folder import CgroupFolder, open_folder
from flink_skills.execution.cgroups.place import NotDelegatedError, Place, own_place

__all__ = ["CgroupFolder", "NotDelegatedError", "Place", "open_folder", "own_place"]
