"""Chat models that answer for another one: in which order they get a request, and until when.

A fallback gets the request of the model that was asked first: its conversation, system prompt, skills and tools. Only
the client, its settings and its limits are those of the fallback.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

from flink_skills.errors import ModelError
from flink_skills.models.base import ChatModel
from flink_skills.models.circuit import Admission, Circuit
from flink_skills.models.messages import ModelResponse
from flink_skills.models.permits import Permits, WorkerLimits
from flink_skills.models.setup import ModelSetup
from flink_skills.options import SkillConfig

_log = logging.getLogger("flink_skills.model")
_LOG_INTERVAL = 60.0
_OPEN = "the circuit is open"


@dataclass(frozen=True)
class Fallback:
    """A fallback in a plan. ``name`` is that of a chat model of the agent, or ``provider:model``."""

    name: str
    setup: ModelSetup

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {"name": self.name, "setup": self.setup.to_json()}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Fallback:
        """Return the fallback of its JSON form."""
        return cls(data["name"], ModelSetup.from_json(data["setup"]))


@dataclass(frozen=True)
class Candidate:
    """An open chat model that may answer a request."""

    name: str
    setup: ModelSetup
    chat_model: ChatModel
    permits: Permits | None
    circuit: Circuit


@dataclass(frozen=True)
class Attempt:
    """Conditions of a request to a candidate.

    Args:
        once: Whether the request has no retries.
        more: Whether another candidate can answer.
        passed: The candidates that did not answer since the last request, each with the reason.
    """

    once: bool = False
    more: bool = False
    passed: Sequence[tuple[str, str]] = field(default_factory=tuple)


Ask = Callable[[Candidate, Attempt], Awaitable[ModelResponse]]


class FallbackChain:
    """A chat model and its fallbacks, in the order in which they get a request."""

    def __init__(self, candidates: Sequence[Candidate], clock: Callable[[], float] = time.monotonic) -> None:
        self.candidates = tuple(candidates)
        self._clock = clock
        self._logged = -_LOG_INTERVAL
        self._unlogged = 0

    async def answer(self, ask: Ask, last: str = "") -> tuple[ModelResponse, str]:
        """Return the first answer, and the name of the model that gave it.

        A model whose circuit is open gets the request after all others, without retries.

        Args:
            ask: Asks one candidate, with its retries.
            last: The model that answered last in this turn, which is asked first. Empty: the order of the chain.

        Raises:
            ModelError: No model answered. The message has the error of each.
        """
        ordered = self._ordered(last)
        errors: dict[str, ModelError] = {}
        passed: list[tuple[str, str]] = []
        waiting: list[Candidate] = []
        for at, candidate in enumerate(ordered):
            admission = candidate.circuit.admit()
            if admission is Admission.OPEN:
                waiting.append(candidate)
                passed.append((candidate.name, _OPEN))
                continue
            more = any(not later.circuit.is_open for later in ordered[at + 1 :])
            attempt = Attempt(once=admission is Admission.PROBE, more=more, passed=tuple(passed))
            try:
                response = await self._ask(ask, candidate, attempt, errors)
            finally:
                if admission is Admission.PROBE:
                    # This includes a turn that ended during the probe.
                    candidate.circuit.release()
            if response is not None:
                return response, candidate.name
            passed = [(candidate.name, str(errors[candidate.name]))]
        for candidate in sorted(waiting, key=lambda each: each.circuit.until):
            before = {each.name for each in ordered[: ordered.index(candidate)]}
            # Candidates behind it in the chain were not tried before it, unless they failed.
            skipped = tuple(each for each in passed if each[0] in before or each[0] in errors)
            response = await self._ask(ask, candidate, Attempt(once=True, more=True, passed=skipped), errors)
            if response is not None:
                return response, candidate.name
            passed = [(candidate.name, str(errors[candidate.name]))]
        raise _together(errors)

    def _ordered(self, last: str) -> list[Candidate]:
        """The chain from the candidate ``last`` on, then those before it."""
        at = next((at for at, candidate in enumerate(self.candidates) if candidate.name == last), 0)
        return [*self.candidates[at:], *self.candidates[:at]]

    async def _ask(
        self, ask: Ask, candidate: Candidate, attempt: Attempt, errors: dict[str, ModelError]
    ) -> ModelResponse | None:
        """Return the answer of one candidate. Return None if it failed, and add its error to ``errors``."""
        try:
            response = await ask(candidate, attempt)
        except ModelError as error:
            errors[candidate.name] = error
            return None
        if attempt.passed:
            self._log(candidate, attempt.passed[-1])
        return response

    def _log(self, answered: Candidate, passed: tuple[str, str]) -> None:
        self._unlogged += 1
        now = self._clock()
        if now - self._logged >= _LOG_INTERVAL:
            name, reason = passed
            _log.warning(
                "chat model %s did not answer (%s): its fallback %s did; %d requests since the last such line",
                name,
                reason,
                answered.name,
                self._unlogged,
            )
            self._logged, self._unlogged = now, 0


def _together(errors: dict[str, ModelError]) -> ModelError:
    if len(errors) == 1:
        return next(iter(errors.values()))
    reasons = "; ".join(f"{name}: {error}" for name, error in errors.items())
    reason = next(filter(None, (error.finish_reason for error in reversed(errors.values()))), "")
    return ModelError(f"none of {len(errors)} chat models answered: {reasons}", finish_reason=reason)


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
