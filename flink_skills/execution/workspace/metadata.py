"""``metadata.json`` of a workspace: which skills and inputs are in it, and when it was used."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from datetime import datetime
from typing import Any

from flink_skills.execution.workspace.safe_files import Rights, read_restored, replace_file

METADATA_FILE = "metadata.json"

_VERSION = 1
_MAX_BYTES = 4 << 20
_MAX_RECORDS = 256
_INPUT_FIELDS = ("from", "to", "resolved", "version", "mode", "ts")


@dataclass(frozen=True)
class StagedSkill:
    """A skill in the workspace. ``mounted`` says that it shares files with other workspaces, ``venv`` that its
    ``.venv`` is the writable one and no part of the skill."""

    name: str
    rel_path: str
    digest: str
    mounted: bool
    staged_at: str
    venv: bool


@dataclass
class Metadata:
    """The contents of the file. Times are UTC in ISO form; ``inputs`` and ``outputs`` are plain records."""

    created_at: str = ""
    updated_at: str = ""
    last_access: str = ""
    skills: dict[str, StagedSkill] = field(default_factory=dict)
    inputs: list[dict[str, Any]] = field(default_factory=list)
    outputs: list[dict[str, Any]] = field(default_factory=list)

    @classmethod
    def read(cls, folder: int) -> Metadata:
        """Return the contents of the file in the open ``folder``, new ones if this worker cannot have written it.

        Raises :class:`PermissionError` if a command closes the file again and again.
        """
        return cls._read(folder) or cls(created_at=now())

    @classmethod
    def last_use(cls, folder: int) -> float | None:
        """Return the time of access that the file in the open ``folder`` contains, in seconds since 1970.

        The file's own times are not used: a command with the worker's user can set them for any key. Return None for a
        file that is missing or spoiled. Raises :class:`PermissionError` if a command closes it again and again.
        """
        found = cls._read(folder)
        if found is None:
            return None
        try:
            return datetime.fromisoformat(found.last_access.replace("Z", "+00:00")).timestamp()
        except ValueError:
            return None

    @classmethod
    def _read(cls, folder: int) -> Metadata | None:
        try:
            data = read_restored(METADATA_FILE, folder, _MAX_BYTES + 1)
            return cls._from_json(json.loads(data)) if len(data) <= _MAX_BYTES else None
        except PermissionError:
            raise
        except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError):
            return None  # missing, of another version, or spoiled: skills are staged again

    @classmethod
    def _from_json(cls, data: Any) -> Metadata:
        if data["version"] != _VERSION:
            raise ValueError("another version")
        return cls(
            created_at=str(data["created_at"]),
            updated_at=str(data["updated_at"]),
            last_access=str(data["last_access"]),
            skills={str(name): StagedSkill(**_typed(record)) for name, record in data["skills"].items()},
            inputs=[dict(record) for record in data["inputs"]],
            outputs=[dict(record) for record in data["outputs"]],
        )

    def write(self, folder: int, rights: Rights) -> None:
        """Replace the file in the open ``folder`` atomically, with the time of access."""
        self.last_access = now()
        data = json.dumps({"version": _VERSION, **asdict(self)}, indent=1).encode()
        replace_file(folder, folder, METADATA_FILE, data, rights)

    @property
    def granted(self) -> list[str]:
        """Targets that the links to the inputs of the job had when they were created."""
        return [str(record["resolved"]) for record in self.inputs if _is_granted(record)]

    def set_granted(self, records: Iterable[Mapping[str, Any]]) -> None:
        """Replace the records of the inputs that the job grants."""
        placed = [record for record in self.inputs if not _is_granted(record)]
        self.inputs = [*map(dict, records), *placed]
        self.updated_at = now()

    def has_input(self, to: str) -> bool:
        """Return True if there is a record of an input at this path."""
        return any(record.get("to") == to for record in self.inputs)

    def add_skill(self, skill: StagedSkill) -> None:
        """Add or replace the record of a skill."""
        self.skills[skill.name] = skill
        self.updated_at = now()

    def add_input(self, record: Mapping[str, Any]) -> None:
        """Add the record of an input at ``record["to"]``. It replaces an earlier record of this path."""
        plain = {**dict.fromkeys(_INPUT_FIELDS), **record, "ts": now()}
        others = [other for other in self.inputs if other.get("to") != plain["to"]]
        granted = sum(map(_is_granted, others))
        # The oldest placed ones are removed first: a workspace may live as long as its key.
        excess = max(0, len(others) - granted - _MAX_RECORDS + 1)
        self.inputs = [*others[:granted], *others[granted + excess :], plain]
        self.updated_at = now()

    def add_output(self, record: Mapping[str, Any]) -> None:
        """Add the record of collected files."""
        self.outputs = [*self.outputs, {**record, "ts": now()}][-_MAX_RECORDS:]
        self.updated_at = now()


def now() -> str:
    """Return the time in UTC, with milliseconds, as ISO 8601 has it."""
    seconds = time.time()
    return f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(seconds))}.{int(seconds * 1000) % 1000:03d}Z"


def _is_granted(record: Mapping[str, Any]) -> bool:
    """Return True for a link that the job's options request: other files of the machine are copied."""
    return record.get("mode") == "link" and str(record.get("from", "")).startswith("host://")


def _typed(record: Mapping[str, Any]) -> dict[str, Any]:
    return {name: bool(value) if name in ("mounted", "venv") else str(value) for name, value in record.items()}
