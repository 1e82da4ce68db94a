"""What may not grow while commands come and go."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

import psutil

from tests.kit.descriptors import descriptors

__all__ = ["Figures"]


@dataclass(frozen=True)
class Figures:
    """Open descriptors and threads of the worker and of its launcher, and tasks of the event loop."""

    descriptors: int
    threads: int
    tasks: int
    launcher_descriptors: int

    @classmethod
    def now(cls, launcher: int) -> Figures:
        return cls(
            descriptors=descriptors(),
            threads=psutil.Process().num_threads(),
            tasks=len(asyncio.all_tasks()),
            launcher_descriptors=descriptors(launcher),
        )

    def within(self, other: Figures) -> bool:
        """Whether none of them is above that of ``other``."""
        return all(vars(self)[name] <= vars(other)[name] for name in vars(self))
