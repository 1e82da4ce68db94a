"""One skill as the manager holds it: what loading found, and what it is bound to."""

from __future__ import annotations

import threading

from flink_skills.errors import ResourceError
from flink_skills.manager.signature import folder_signature
from flink_skills.skill import AgentSkill, Diagnostic, LoadResult

__all__ = ["Entry"]


class Entry:
    """A folder with a skill file, loaded.

    ``signature`` is what :func:`folder_signature` said before anything was read, None where the digest was known
    without reading (from the store's index). ``findings`` are what an inspection found, None
    before one.
    """

    __slots__ = ("_bound", "_limit", "_lock", "_root", "findings", "folder", "result", "signature")

    def __init__(self, folder: str, result: LoadResult, *, root: str, limit: int, signature: bytes | None) -> None:
        self.folder = folder
        self.result = result
        self.signature = signature
        self.findings: tuple[Diagnostic, ...] | None = None
        self._root = root
        self._limit = limit
        self._bound = False
        self._lock = threading.Lock()

    @property
    def skill(self) -> AgentSkill | None:
        return self.result.skill

    @property
    def is_bound(self) -> bool:
        """Whether the digest is known to be that of the content at loading."""
        return self._bound

    def bind(self) -> str:
        """The digest of the skill as it was when it was loaded; the first call may read all of its files.

        From then on every read is compared with it (format rule S08). Raises :class:`ResourceError` where the
        files cannot be read or have changed since the skill was loaded.
        """
        skill = self.result.skill
        if skill is None:
            raise ResourceError(f"there is no skill in {self.folder}")
        if self._bound:
            return skill.digest
        with self._lock:
            if not self._bound:
                self._check_signature(skill)
                digest = skill.digest
                # Again: it may have been written while it was read.
                self._check_signature(skill)
                self._bound = True
                return digest
        return skill.digest

    def renewed(self, result: LoadResult, signature: bytes | None) -> Entry:
        """This skill under a new signature: its files were touched, but its digest is the same."""
        entry = Entry(self.folder, result, root=self._root, limit=self._limit, signature=signature)
        entry._bound, entry.findings = self._bound, self.findings
        return entry

    def _check_signature(self, skill: AgentSkill) -> None:
        if self.signature is None or self.signature == folder_signature(self.folder, self._root, self._limit):
            return
        raise ResourceError(
            f"skill {skill.name!r}: {self.folder} has changed since it was loaded; load the skills again"
        )
