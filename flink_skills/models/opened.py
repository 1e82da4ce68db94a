"""Chat models of an open agent: their clients, limits and circuits, and those of their fallbacks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

from flink_skills.models.base import ChatModel
from flink_skills.models.fallback import Candidate, Fallback, FallbackChain
from flink_skills.models.permits import Permits, WorkerLimits
from flink_skills.models.setup import ModelSetup
from flink_skills.options import SkillConfig

__all__ = ["OpenModels"]


class Planned(Protocol):
    """A chat model of a plan: plans themselves import agents."""

    @property
    def name(self) -> str: ...
    @property
    def setup(self) -> ModelSetup: ...
    @property
    def fallback(self) -> Sequence[Fallback]: ...


P = TypeVar("P", bound=Planned)


@dataclass
class OpenModels:
    """The open chat models of an agent by name.

    ``clients`` and ``permits`` are those of its chat models. ``chains`` has an entry for each model with fallbacks.
    """

    clients: dict[str, ChatModel] = field(default_factory=dict)
    permits: dict[str, Permits] = field(default_factory=dict)
    chains: dict[str, FallbackChain] = field(default_factory=dict)
    _others: list[ChatModel] = field(default_factory=list)

    def open(
        self,
        models: Sequence[P],
        config: SkillConfig,
        limits: WorkerLimits,
        create: Callable[[P | Fallback], ChatModel],
    ) -> None:
        """Create the clients of ``models`` and of their fallbacks. :meth:`close` also closes those of a failed call.

        Args:
            models: The models of the plan.
            config: The options of the job.
            limits: The permits and circuits of this worker.
            create: Creates the client of a model or a fallback.
        """
        for model in models:
            self.clients[model.name] = create(model)
        # The agent does not have these models: each belongs to the model that names it.
        own = {
            f"{model.name}\0{each.name}": each
            for model in models
            for each in model.fallback
            if each.name not in self.clients
        }
        setups = {**{m.name: m.setup for m in models}, **{key: each.setup for key, each in own.items()}}
        clients = dict(self.clients)
        for key, each in own.items():
            clients[key] = create(each)
            self._others.append(clients[key])
        for key, setup in setups.items():
            if (permits := limits.permits(setup, config)) is not None:
                self.permits[key] = permits

        def candidate(key: str, of: Planned | Fallback) -> Candidate:
            return Candidate(of.name, of.setup, clients[key], self.permits.get(key), limits.circuits.of(of.setup))

        for model in models:
            if model.fallback:
                keys = [
                    each.name if each.name in self.clients else f"{model.name}\0{each.name}" for each in model.fallback
                ]
                fallbacks = [candidate(key, each) for key, each in zip(keys, model.fallback, strict=True)]
                self.chains[model.name] = FallbackChain([candidate(model.name, model), *fallbacks])

    async def close(self) -> None:
        """Close all clients."""
        for client in (*self.clients.values(), *self._others):
            await client.close()
