"""The skills of an open agent as they are now: it reads the sources again and replaces its generation."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from flink_skills.agents.open.generation import Generation, GenerationParts, effective_names
from flink_skills.agents.open.opening import log_diagnostic, tell
from flink_skills.errors import SkillsError
from flink_skills.manager import AgentSkillManager, Refreshed
from flink_skills.skill import Diagnostic
from flink_skills.telemetry import Telemetry

__all__ = ["Figures", "LiveSkills"]

_log = logging.getLogger("flink_skills.runtime")


@dataclass
class Figures:
    """Number of times that the sources of an agent were read again, and of failures."""

    refreshes: int = 0
    failures: int = 0


class LiveSkills:
    """The skills of an open agent.

    Args:
        manager: The loaded skills.
        parts: What all generations of the agent have in common.
        telemetry: Receives changes.
        changed: Called after each refresh.
        quiet: Do not report changes to observers, because another process of this machine does.

    Attributes:
        generation: Models, skills and tools for turns that begin now. A turn takes it once, when it begins.
    """

    def __init__(
        self,
        manager: AgentSkillManager,
        parts: GenerationParts,
        telemetry: Telemetry,
        changed: Callable[[], None],
        *,
        quiet: bool,
    ) -> None:
        self.manager = manager
        self.figures = Figures()
        self._parts = parts
        self._telemetry = telemetry
        self._changed = changed
        self._quiet = quiet
        self._refreshing = asyncio.Lock()
        self.generation = Generation.of(parts, manager)

    async def refresh(self) -> bool:
        """Read the sources again, in a thread. Return True if turns that begin from now on use other skills.

        A failure raises no exception: it is logged and counted, and the skills stay as they are.
        """
        agent = self._parts.plan.agent_id
        async with self._refreshing:
            self.figures.refreshes += 1
            before = self.generation
            try:
                self.generation, changes, new = await asyncio.to_thread(self._refreshed)
            except SkillsError as error:
                self.figures.failures += 1
                _log.error("agent %s keeps the skills that it has: %s", agent, error)
            except Exception:  # the sources of third parties raise anything
                self.figures.failures += 1
                _log.exception("agent %s keeps the skills that it has: refreshing them failed", agent)
            else:
                self.figures.failures += bool(self.manager.failures)
                self._report(changes, new)
            self._changed()
            return self.generation is not before

    async def refresh_every(self, interval: float) -> None:
        """Refresh at intervals of about ``interval`` seconds, until it is cancelled."""
        while True:
            # Spread, so that the workers of a cluster do not ask a server at the same time.
            await asyncio.sleep(interval * random.uniform(0.9, 1.1))
            await self.refresh()

    def _refreshed(self) -> tuple[Generation, Refreshed | None, list[Diagnostic]]:
        """Return the generation after a refresh (the same one if nothing changed), the changes, and new diagnostics.

        A diagnostic that was reported before is not new, for example that of a source that continues to fail.
        """
        told = set(self.manager.diagnostics)
        changes = self.manager.refresh()
        generation = self.generation
        # Also if an earlier refresh changed the skills, and a model could not be opened with them.
        if self.manager.generation != generation.number:
            self.manager.inspect(effective_names(self._parts.plan, self.manager))
            generation = Generation.of(self._parts, self.manager)
        return generation, changes, [found for found in self.manager.diagnostics if found not in told]

    def _report(self, changes: Refreshed | None, new: Sequence[Diagnostic]) -> None:
        plan = self._parts.plan
        if changes is not None:
            changed = {"added": changes.added, "changed": changes.changed, "removed": changes.removed}
            _log.info(
                "agent %s: skills refreshed, generation %d; added: %s; changed: %s; removed: %s",
                plan.agent_id,
                changes.generation,
                *(", ".join(names) or "none" for names in changed.values()),
            )
            if not self._quiet:
                tell(self._telemetry, "refresh", plan, generation=changes.generation, **changed)
        for diagnostic in new:
            log_diagnostic(diagnostic)
            if not self._quiet:
                tell(self._telemetry, "diagnostic", plan, **diagnostic.to_json())
