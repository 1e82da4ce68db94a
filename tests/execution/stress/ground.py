"""Folders that the user of the commands can use, which is another one when the tests run as root."""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace
from pathlib import Path

from flink_skills.execution import BackendSettings, CommandRequest, CommandResult, CommandUser, ExecutionBackend, Limits

from .marked import Mark

__all__ = ["BASH", "COMMAND_USER", "Ground", "settings"]

BASH = "/bin/bash"
COMMAND_USER = CommandUser(65534, 65534) if os.geteuid() == 0 else None


def settings() -> BackendSettings:
    """What a worker makes its backend with: root becomes somebody else, as in a job."""
    return BackendSettings(user=COMMAND_USER)


@dataclass(frozen=True)
class Ground:
    """Runs shell texts with ``backend`` in folders below ``folder``, each process marked."""

    backend: ExecutionBackend
    folder: Path
    mark: Mark = field(default_factory=Mark)

    def place(self, name: str) -> Path:
        """A folder that commands may write."""
        place = self.folder / name
        if not place.exists():
            place.mkdir(mode=0o700)
            if COMMAND_USER is not None:
                os.chown(place, COMMAND_USER.uid, COMMAND_USER.gid)
        return place

    def request(
        self, text: str, place: Path, *, timeout: float | None = None, limits: Limits | None = None
    ) -> CommandRequest:
        limits = limits or Limits()
        return CommandRequest(
            (BASH, "-c", text),
            cwd=str(place),
            env={"PATH": os.environ["PATH"], "HOME": str(place), "TMPDIR": str(place), **self.mark.env},
            limits=replace(limits, wall_time=timeout) if timeout else limits,
            root=str(place),
            writable=(str(place),),
        )

    async def __call__(self, text: str, place: str = "place", **more: object) -> CommandResult:
        return await self.backend.run(self.request(text, self.place(place), **more))  # type: ignore[arg-type]
