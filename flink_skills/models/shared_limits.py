"""Limits of requests to a model as arithmetic on numbers that all workers of a TaskManager share.

No method waits. A method admits a request, or returns the seconds until the next attempt. Times are arguments, in
seconds of one monotonic clock.

Numbers of one file:

* the time at which the next request may begin, by ``skills.model.max-requests-per-minute`` and by
  ``skills.model.max-tokens-per-minute``;
* what was learned about tokens: the mean of outputs, and of what an estimate of inputs leaves out;
* the end of a pause that the provider asked for;
* for each kind of quota that the provider announces: what is left, when all of it is available again, how much that is,
  and for how long it then lasts;
* for each user of the file: the requests under way, the time at which the first one in its queue asked, and the time at
  which it tried last. A user holds a mark while it lives, so the places of a killed worker are found and returned.
"""

from __future__ import annotations

import math
from pathlib import Path

from flink_skills.models.quota import KINDS, Quota
from flink_skills.models.shared_numbers import SharedNumbers

__all__ = ["POLL", "SharedLimits", "TokenCost"]

#: Seconds between two attempts at a place that another process may free.
POLL = 0.03
# Seconds between two attempts where the time of the next one is known: an answer may change it.
_MAX_POLL = 0.25
# A timer is late by this much without a loss of rate: what it missed is made up for.
_LATE = 0.05
_MINUTE = 60.0
# A minute has no more than its limit, although timers may be late.
_SPREAD = _MINUTE + _LATE
# Seconds for which an announcement or a pause holds. Then one request finds out.
_MAX_LENGTH = 60.0
# Seconds until all of a quota is assumed to be available where the provider does not say (Azure).
_UNANNOUNCED = 10.0
# Seconds by which a request of another process has to be older to go first.
_PATIENCE = 1.0
# A user that has not tried for so long does not keep others from their turn.
_ALIVE = 1.0
_WEIGHT = 1 / 16
_GUESSED_OUTPUT = 256.0
_SMALL_MEAN = 4096.0

_USERS = 1024
(_HEARD, _REQUEST_AT, _TOKENS_AT, _OUTPUT, _OMITTED, _PAUSED, _LAST, _HIGHEST, _REQUESTS, _INPUTS, _OUTPUTS) = range(11)
# Numbers of each kind of quota: the rest, the time at which all of it is available again (0: unknown), the whole quota
# (-1: unknown), and the seconds for which it lasts.
_QUOTA, _LEFT, _FULL_AT, _FULL, _LASTS = 16, 0, 1, 2, 3
_HELD = 32
_ASKED, _TRIED = _HELD + _USERS, _HELD + 2 * _USERS
_COUNT = _HELD + 3 * _USERS


class TokenCost:
    """Estimated tokens of a request. :meth:`SharedLimits.admit` notes here what was admitted before."""

    __slots__ = ("admitted", "inputs", "outputs")

    def __init__(self, inputs: float = 0.0, outputs: float = 0.0) -> None:
        self.inputs = inputs
        self.outputs = outputs
        #: Requests, inputs and outputs that were admitted up to this request, see :meth:`SharedLimits.hear`.
        self.admitted: tuple[float, float, float] | None = None


class SharedLimits:
    """Limits of one model. ``file`` is the same for all processes that share them.

    ``concurrent`` is the maximum of requests at the same time, ``per_minute`` of requests that begin in a minute,
    ``tokens`` of tokens in a minute; 0 is no limit. Methods other than :meth:`close` raise :class:`OSError` if the file
    cannot be used.
    """

    def __init__(self, file: Path, *, concurrent: int = 0, per_minute: int = 0, tokens: int = 0) -> None:
        self._numbers = SharedNumbers(file, _COUNT)
        self._concurrent = concurrent
        self._interval = _SPREAD / per_minute if per_minute else 0.0
        self._token_interval = _SPREAD / tokens if tokens else 0.0
        # Means of earlier responses book at most a minute.
        self._most_learned = float(tokens) or math.inf
        self._limited = bool(concurrent or per_minute or tokens)
        self._user: int | None = None
        self._reaped_at = 0.0
        #: The limit for which the last rejected request waits.
        self.reason = ""

    def open(self) -> None:
        """Open the file, which the first use does as well."""
        if not self._numbers.is_open:
            self._numbers.open()

    @property
    def apply(self) -> bool:
        """True if a limit is set, or the provider has announced a quota: then requests have to be admitted."""
        if self._limited:
            return True
        self.open()
        return bool(self._numbers.values[_HEARD])

    @property
    def count_tokens(self) -> bool:
        """True if a limit counts tokens."""
        if self._token_interval:
            return True
        self.open()
        at = self._numbers.values[_QUOTA + _FULL_AT : _QUOTA + 4 * len(KINDS) : 4].tolist()
        return any(at[1:])

    def output_estimate(self, most: float | None) -> float:
        """Return the mean output of earlier responses, up to ``most``. Without any, return ``most`` or a guess."""
        self.open()
        mean: float = self._numbers.values[_OUTPUT] or (most if most is not None else _GUESSED_OUTPUT)
        return min(mean, self._most_learned) if most is None else min(mean, most, self._most_learned)

    def input_estimate(self, about: int) -> float:
        """Return ``about`` tokens together with the mean of what such an estimate left out in earlier requests."""
        self.open()
        return max(1.0, about + min(float(self._numbers.values[_OMITTED]), self._most_learned))

    def admit(self, now: float, asked: float, cost: TokenCost) -> float:
        """Admit a request and return 0, or return the seconds after which to try again.

        ``asked`` is the time at which the request asked first. Other users let it go before theirs if it is older.
        """
        numbers = self._numbers
        if not numbers.is_open:
            numbers.open()
        numbers.lock()
        try:
            user = self._claimed() if self._user is None else self._user
            wait = self._wait(now, asked, cost, user)
            values = numbers.values
            if wait > 0:
                values[_ASKED + user], values[_TRIED + user] = asked, now
                return min(wait, _MAX_POLL)
            if values[_ASKED + user]:
                values[_ASKED + user] = 0.0
            self._book(now, cost, user)
            return 0.0
        finally:
            numbers.unlock()

    def release(self) -> None:
        """Return the place of a request that was admitted."""
        if self._concurrent and self._user is not None:
            # No other user writes this number while this one lives.
            self._numbers.values[_HELD + self._user] -= 1

    def forget(self) -> None:
        """Note that no request of this user waits any more."""
        if self._user is not None:
            self._numbers.values[_ASKED + self._user] = 0.0

    def settle(self, cost: TokenCost, inputs: int, outputs: int, about: int) -> None:
        """Replace the estimated tokens of a request by those that its response states, and learn from them.

        The next request begins at most a minute later than by the estimate.

        ``about`` is what :meth:`input_estimate` was given.
        """
        values = self._numbers.values
        if not self._numbers.is_open:
            return
        self._numbers.lock()
        try:
            if self._token_interval:
                more = (inputs + outputs - cost.inputs - cost.outputs) * self._token_interval
                # A server may state anything, and the requests of all workers wait for it.
                values[_TOKENS_AT] += min(more, _MINUTE)
            mean, omitted = values[_OUTPUT], values[_OMITTED]
            output = _learned(outputs, mean)
            values[_OUTPUT] = mean + (output - mean) * _WEIGHT if mean else max(output, 1.0)
            values[_OMITTED] = omitted + (_learned(inputs - about, omitted) - omitted) * (_WEIGHT if mean else 1.0)
        finally:
            self._numbers.unlock()

    def hear(self, now: float, quota: Quota, status: int, cost: TokenCost | None) -> None:
        """Follow what a response with this ``status`` announces. ``cost`` is that of its request, if it is known."""
        after = quota.retry_after if status in (429, 503, 529) else None
        if not quota.allowances and after is None:
            return
        self.open()
        numbers, values = self._numbers, self._numbers.values
        numbers.lock()
        try:
            if after is not None:
                values[_PAUSED] = max(values[_PAUSED], now + min(after, _MAX_LENGTH))
            for number, kind in enumerate(KINDS):
                if (of := quota.allowances.get(kind)) is not None:
                    # The server had not seen the requests that were admitted since.
                    pending = self._since(cost, number)
                    at = _QUOTA + 4 * number
                    announced = of.seconds if of.seconds is not None else _UNANNOUNCED
                    seconds = min(announced, _MAX_LENGTH)
                    values[at + _LEFT] = max(of.remaining - pending, 0.0)
                    values[at + _LASTS] = seconds if values[at + _FULL_AT] == 0 else max(values[at + _LASTS], seconds)
                    if of.seconds is None or of.limit is None:
                        values[at + _FULL] = -1.0
                    else:
                        # If a quota takes longer, only one request is tried before it is full.
                        values[at + _FULL] = of.limit if announced <= _MAX_LENGTH else 0.0
                    values[at + _FULL_AT] = now + seconds
            values[_HEARD] = 1.0
        finally:
            numbers.unlock()

    def close(self) -> None:
        """Return all places and close the file. May be called again."""
        if self._numbers.is_open and self._user is not None:
            self._numbers.values[_HELD + self._user] = self._numbers.values[_ASKED + self._user] = 0.0
        self._user = None
        self._numbers.close()

    def _claimed(self) -> int:
        """The number of this user: the first one that no living user has."""
        values = self._numbers.values
        for user in range(_USERS):
            if self._numbers.mark(user):
                values[_HELD + user] = values[_ASKED + user] = 0.0
                values[_HIGHEST] = max(values[_HIGHEST], user + 1)
                self._user = user
                return user
        raise OSError(0, f"more than {_USERS} agents of a TaskManager use one model")

    def _wait(self, now: float, asked: float, cost: TokenCost, user: int) -> float:
        values = self._numbers.values
        wait, self.reason = 0.0, ""
        if (at := values[_PAUSED]) > now:
            wait, self.reason = at - now, "Retry-After of the provider"
        if (at := values[_REQUEST_AT]) - now > wait and self._interval:
            wait, self.reason = at - now, "skills.model.max-requests-per-minute"
        if (at := values[_TOKENS_AT]) - now > wait and self._token_interval:
            wait, self.reason = at - now, "skills.model.max-tokens-per-minute"
        if values[_HEARD]:
            due, kind = self._quota_at(now, cost)
            if due - now > wait:
                wait, self.reason = due - now, f"the provider's quota of {kind}"
        if wait > 0:
            return wait
        highest = int(values[_HIGHEST])
        if self._concurrent and self._held(highest) >= self._concurrent and not self._reaped(now, user, highest):
            self.reason = f"skills.model.max-concurrent = {self._concurrent}"
            return POLL
        if highest > 1 and self._other_is_older(now, asked, user, highest):
            self.reason = "older requests of other workers"
            return POLL
        return 0.0

    def _held(self, highest: int) -> int:
        return int(sum(self._numbers.values[_HELD : _HELD + highest].tolist()))

    def _book(self, now: float, cost: TokenCost, user: int) -> None:
        values = self._numbers.values
        if self._interval:
            values[_REQUEST_AT] = _begin(values[_REQUEST_AT], now) + self._interval
        if self._token_interval:
            tokens = cost.inputs + cost.outputs
            values[_TOKENS_AT] = _begin(values[_TOKENS_AT], now) + tokens * self._token_interval
        if values[_HEARD]:
            values[_LAST] = _begin(self._quota_at(now, cost)[0], now)
            self._book_quota(now, cost)
        values[_REQUESTS] += 1
        values[_INPUTS] += cost.inputs
        values[_OUTPUTS] += cost.outputs
        cost.admitted = (values[_REQUESTS], values[_INPUTS], values[_OUTPUTS])
        if self._concurrent:
            values[_HELD + user] += 1

    def _quota_at(self, now: float, cost: TokenCost) -> tuple[float, str]:
        """When the quota lets a request begin, and the kind that decides. What is left lasts until it is full again."""
        values = self._numbers.values
        last, due, decides = values[_LAST], 0.0, KINDS[0]
        for number, kind in enumerate(KINDS):
            at = _QUOTA + 4 * number
            left = values[at + _FULL_AT] - now
            if left > 0:
                needed, remaining = _needed(cost, number), values[at + _LEFT]
                begin = last + left * needed / remaining if remaining >= needed > 0 else now + left * (needed > 0)
                if begin > due:
                    due, decides = begin, kind
        return due, decides

    def _book_quota(self, now: float, cost: TokenCost) -> None:
        values = self._numbers.values
        for number in range(len(KINDS)):
            at = _QUOTA + 4 * number
            full_at = values[at + _FULL_AT]
            if not full_at:
                continue
            needed = _needed(cost, number)
            if full_at > now:
                values[at + _LEFT] = max(values[at + _LEFT] - needed, 0.0)
            elif values[at + _FULL] < 0:
                values[at + _FULL_AT] = 0.0
            else:
                # The quota is full again. A request that needs more than the whole quota is admitted, too.
                values[at + _LEFT] = max(values[at + _FULL] - needed, 0.0)
                values[at + _FULL_AT] = now + values[at + _LASTS]

    def _since(self, cost: TokenCost | None, kind: int) -> float:
        """Return how much of a kind of quota was admitted after the request of ``cost``."""
        if cost is None or cost.admitted is None:
            return 0.0
        values = self._numbers.values
        requests, inputs, outputs = (float(values[_REQUESTS + i] - cost.admitted[i]) for i in range(3))
        return (requests, inputs + outputs, inputs, outputs)[kind]

    def _reaped(self, now: float, user: int, highest: int) -> bool:
        """Return the places of users that are gone. Return False if there were none."""
        values, found = self._numbers.values, False
        if now - self._reaped_at < POLL:
            return False
        self._reaped_at = now
        for other in range(highest):
            if other != user and (values[_HELD + other] or values[_ASKED + other]) and self._numbers.mark(other):
                found = found or values[_HELD + other] > 0
                values[_HELD + other] = values[_ASKED + other] = 0.0
                self._numbers.unmark(other)
        return found

    def _other_is_older(self, now: float, asked: float, user: int, highest: int) -> bool:
        """Return True if a request of another user has waited so much longer that it goes first."""
        values = self._numbers.values
        for other, since in enumerate(values[_ASKED : _ASKED + highest].tolist()):
            if since and since < asked - _PATIENCE and other != user and now - values[_TRIED + other] < _ALIVE:
                return True
        return False


def _begin(due: float, now: float) -> float:
    """Return when the next interval begins. A timer that was a little late does not lower the rate."""
    return due if 0 <= now - due <= _LATE else now


def _learned(tokens: float, mean: float) -> float:
    """Return what a mean learns from one response: up to 16 times the mean, so that none of them decides it."""
    return min(tokens, max(mean, _SMALL_MEAN) / _WEIGHT)


def _needed(cost: TokenCost, kind: int) -> float:
    return (1.0, cost.inputs + cost.outputs, cost.inputs, cost.outputs)[kind]
