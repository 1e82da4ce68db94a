"""Reads the files of an event, and writes them to the workspace of its key."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from flink_skills.agents.state.event import event_text
from flink_skills.agents.state.files import EventFile, event_files, pinned_file, stage_files, with_names
from flink_skills.artifacts import ArtifactStore
from flink_skills.execution import Workspace

__all__ = ["EventStaging"]


class EventStaging:
    """The field of events that contains files, and where these files are stored.

    Args:
        field: The name of the field.
        inputs: The names in ``work/inputs/`` that the job itself uses.
        artifacts: The artifact store of the job. None: the job has none.
    """

    def __init__(self, field: str, inputs: frozenset[str], artifacts: ArtifactStore | None) -> None:
        self.field = field
        self._inputs = inputs
        self._artifacts = artifacts

    def has_files(self, event: Any) -> bool:
        """Return True if the event may contain files, so that :meth:`read` has to be called."""
        value = event.get(self.field) if isinstance(event, Mapping) else getattr(event, self.field, None)
        return isinstance(value, (list, tuple, Mapping)) and bool(value)

    def read(self, event: Any) -> tuple[Any, Sequence[EventFile]]:
        """Return the event without the contents of its files, and the files. Blocks, because it decodes them."""
        files = event_files(event, self.field, self._inputs)
        return self.with_names(event, files), files

    def with_names(self, event: Any, files: Sequence[EventFile]) -> Any:
        """Return the event with the names of ``files`` instead of their contents."""
        return with_names(event, files, self.field)

    def versions(self, files: Sequence[EventFile], owner: str, known: Mapping[str, str]) -> dict[str, str]:
        """Return the versions of the artifacts that files name without a version. Blocks.

        The version is the one in ``known``, else the newest one of ``owner``. It is empty for an artifact that does not
        exist.
        """
        store = self._artifacts
        return {
            file.ref.path: known.get(file.ref.path)
            or (store.newest(owner, file.ref.path) if store is not None else None)
            or ""
            for file in files
            if file.ref is not None and not file.ref.version
        }

    def write(
        self, workspace: Workspace, event: Any, files: Sequence[EventFile], owner: str, versions: Mapping[str, str]
    ) -> Sequence[Mapping[str, Any]]:
        """Write the event and its files to ``work/inputs/``. Return a record for each file. Blocks.

        ``versions`` are those of :meth:`versions`. Raises :class:`~flink_skills.errors.ExecutionError` if the workspace
        cannot be used.
        """
        workspace.write_event(event_json(event))
        if not files:
            return ()
        pinned = [pinned_file(file, versions) for file in files]
        return stage_files(workspace, pinned, self._artifacts, owner, None)


def event_json(event: Any) -> bytes:
    """Return the content of ``work/inputs/event.json`` for an event."""
    if isinstance(event, str):
        return json.dumps(event, ensure_ascii=False).encode()
    text = event_text(event)
    try:
        json.loads(text)
    except ValueError:
        text = json.dumps(text, ensure_ascii=False)
    return text.encode("utf-8", "surrogatepass")
