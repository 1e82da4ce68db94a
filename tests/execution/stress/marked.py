"""Find the processes of commands by a mark in what only they have: environment and arguments."""

from __future__ import annotations

import os
import secrets
import signal
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil

__all__ = ["Mark", "descendants", "living", "zombies_below"]

_ROUNDS = 1000  # some fork again and again


def _digits() -> str:
    # Digits, so that the mark can be part of a number: `sleep 300.<mark>` is found even with an empty environment.
    return "".join(secrets.choice("123456789") for _ in range(18))


@dataclass(frozen=True)
class Mark:
    """A text that nothing else on the machine has, to be put into the environment and the arguments of commands."""

    text: str = field(default_factory=_digits)

    @property
    def env(self) -> dict[str, str]:
        return {"STRESS_MARK": self.text}

    @property
    def sleep(self) -> str:
        """A program that outlives every test."""
        return f"sleep 300.{self.text}"

    def processes(self) -> list[int]:
        """Ids of the processes that have the mark. Zombies have neither environment nor arguments any more."""
        sought = self.text.encode()
        return [
            int(folder.name) for folder in Path("/proc").iterdir() if folder.name.isdigit() and _has(folder, sought)
        ]

    def end_all(self) -> None:
        """Kill what is left, so that a failed test leaves nothing to the next ones."""
        for _ in range(_ROUNDS):
            left = self.processes()
            if not left:
                return
            for pid in left:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)


def _has(process: Path, sought: bytes) -> bool:
    for name in ("environ", "cmdline"):
        try:
            if sought in (process / name).read_bytes():
                return True
        except OSError:
            continue  # ended meanwhile, or somebody else's, which none of ours is
    return False


def descendants(pid: int) -> list[psutil.Process]:
    """All processes below ``pid``, without marks: launcher and supervisors have none."""
    try:
        return list(psutil.Process(pid).children(recursive=True))
    except psutil.NoSuchProcess:
        return []


def living(processes: list[psutil.Process]) -> list[psutil.Process]:
    """Those that still run, not only their numbers."""
    return [process for process in processes if process.is_running() and not _is_zombie(process)]


def zombies_below(pid: int) -> list[int]:
    """Ended processes below ``pid`` that nobody has buried."""
    return [process.pid for process in descendants(pid) if _is_zombie(process)]


def _is_zombie(process: psutil.Process) -> bool:
    try:
        return bool(process.status() == psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False
