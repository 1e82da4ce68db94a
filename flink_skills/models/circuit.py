"""Circuit breaker of a chat model that has fallbacks: requests avoid a model that keeps failing."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from enum import Enum

from flink_skills.endpoint import redact
from flink_skills.errors import ModelError
from flink_skills.models.setup import ModelSetup

_log = logging.getLogger("flink_skills.model")
#: Consecutive failures that open a circuit, the maximum seconds from the first to the last of them, and the seconds
#: from its opening to the probe.
_FAILURES, _WINDOW, _PAUSE = 5, 60.0, 30.0


class Admission(Enum):
    """Whether a model may get a request: as usual, as the only one that tries it again, or not now."""

    CLOSED = "closed"
    PROBE = "probe"
    OPEN = "open"


class Circuit:
    """Circuit of one model in one worker.

    It opens after five consecutive failures within a minute. After 30 seconds it admits one request, the probe, and
    closes if that succeeds.

    Args:
        model: Label of the model, for the log.
        clock: Monotonic time in seconds.

    >>> circuit = Circuit("openai:any")
    >>> for _ in range(5):
    ...     circuit.failed(ModelError("no answer"))
    >>> circuit.admit()
    <Admission.OPEN: 'open'>
    """

    def __init__(self, model: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._model = model
        self._clock = clock
        self._failed = 0
        self._first = 0.0
        self._probing = False
        self._opened = False
        #: Time of ``clock`` at which the next probe is admitted, if the circuit is open.
        self.until = 0.0

    @property
    def is_open(self) -> bool:
        """True if requests avoid the model."""
        return self._opened

    def admit(self) -> Admission:
        """Return whether the model may get a request now. The caller of a probe reports its end, or calls `release`."""
        if not self._opened:
            return Admission.CLOSED
        if self._probing or self._clock() < self.until:
            return Admission.OPEN
        self._probing = True
        return Admission.PROBE

    def release(self) -> None:
        """Admit another probe, because the last one ended without an outcome."""
        self._probing = False

    def succeeded(self) -> None:
        """Close the circuit: the model answered."""
        self._failed = 0
        self._probing = False
        if self._opened:
            self._opened = False
            _log.info("model %s answers again: it gets requests as before", self._model)

    def failed(self, error: ModelError) -> None:
        """Count a failed request. An error that is about the request itself does not count."""
        if error.rejects_request:
            return
        now = self._clock()
        self._probing = False
        if self._opened:
            self.until = now + _PAUSE
            return
        if not self._failed or now - self._first > _WINDOW:
            self._failed, self._first = 0, now
        self._failed += 1
        if self._failed >= _FAILURES:
            self._opened, self.until = True, now + _PAUSE
            _log.warning(
                "model %s failed %d times in a row: for %g s requests go to others first, then one request "
                "tries it again; the last error: %s",
                self._model,
                self._failed,
                _PAUSE,
                error,
            )


class Circuits:
    """The circuits of a worker, one for each model at an address with a key."""

    def __init__(self) -> None:
        self._found: dict[tuple[str, ...], Circuit] = {}

    def of(self, setup: ModelSetup, url: str = "") -> Circuit:
        """Return the circuit of the model of ``setup``, or of one of its servers."""
        key = (setup.label, url or setup.base_url or "", setup.key_place)
        if key not in self._found:
            label = f"{setup.label} at {redact(url)}" if url else setup.label
            self._found[key] = Circuit(label)
        return self._found[key]
