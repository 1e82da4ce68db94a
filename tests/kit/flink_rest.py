"""Jobs on a running Flink cluster, by its REST interface: what tests ask, wait for and stop."""

from __future__ import annotations

import json
import re
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from flink_skills.errors import SkillsError

__all__ = ["Checkpoint", "ClusterError", "FlinkRest", "wait_until"]

T = TypeVar("T")

_TERMINAL = ("FINISHED", "FAILED", "CANCELED")
_POLL_SECONDS = 0.1


class ClusterError(SkillsError):
    """The cluster, or a job on it, did not do what was asked for in time."""


@dataclass(frozen=True)
class Checkpoint:
    """A completed checkpoint. ``triggered`` and ``completed`` are seconds since 1970, as ``time.time()`` counts;
    ``location`` is where Flink can restore it from."""

    number: int
    triggered: float
    completed: float
    restored: bool = False
    location: str = ""


class FlinkRest:
    """The REST interface at ``address``, such as ``http://localhost:8081``. Nothing is contacted before it is used.

    >>> FlinkRest("http://localhost:8081").state(job)  # doctest: +SKIP
    'RUNNING'
    """

    def __init__(self, address: str) -> None:
        self.address = address

    def state(self, job: str) -> str:
        """The job's state, such as ``RUNNING``."""
        return str(self.rest(f"/jobs/{job}")["state"])

    def wait(self, job: str, state: str, deadline: float = 60) -> None:
        """Wait until the job is in ``state``.

        ``RUNNING`` asks for all its tasks. Raises :class:`ClusterError` with the root cause when the job has ended
        otherwise.
        """

        def reached() -> bool:
            found = self.rest(f"/jobs/{job}")
            now = found["state"]
            if now in _TERMINAL and now != state:
                raise ClusterError(f"job {job} is {now} and not {state}: {self.failure(job) or 'no exception'}")
            return bool(
                now == state
                and (
                    state != "RUNNING"
                    or all(vertex["status"] in ("RUNNING", "FINISHED") for vertex in found["vertices"])
                )
            )

        wait_until(reached, deadline, f"job {job} to be {state}")

    def cancel(self, job: str, deadline: float = 30) -> None:
        """Cancel the job and wait until it is canceled."""
        self.rest(f"/jobs/{job}?mode=cancel", method="PATCH")
        self.wait(job, "CANCELED", deadline)

    def stop_with_savepoint(self, job: str, *, drain: bool = False, deadline: float = 60) -> str:
        """Stop the job with a savepoint and return its location."""
        location = self._savepoint(job, "stop", {"drain": drain}, deadline)
        self.wait(job, "FINISHED", deadline)
        return location

    def savepoint(self, job: str, *, native: bool = False, deadline: float = 60) -> str:
        """Create a savepoint of the running job and return its location. ``native`` selects the backend's format."""
        return self._savepoint(job, "savepoints", {"formatType": "NATIVE" if native else "CANONICAL"}, deadline)

    def _savepoint(self, job: str, how: str, body: dict[str, Any], deadline: float) -> str:
        trigger = self.rest(f"/jobs/{job}/{how}", body, method="POST")["request-id"]

        def completed() -> dict[str, Any] | None:
            answer = self.rest(f"/jobs/{job}/savepoints/{trigger}")
            done = answer["status"]["id"] == "COMPLETED"
            return dict(answer["operation"]) if done else None

        operation = wait_until(completed, deadline, f"the savepoint of job {job}")
        if "location" not in operation:
            cause = operation.get("failure-cause", {}).get("stack-trace", "")
            raise ClusterError(f"job {job} has no savepoint: {_root_cause(cause)}")
        return str(operation["location"])

    def checkpoints(self, job: str) -> list[Checkpoint]:
        """Return the completed checkpoints and savepoints of the job, oldest first.

        ``restored`` marks the one that the job was last restored from.
        """
        answer = self.rest(f"/jobs/{job}/checkpoints")
        restored = ((answer.get("latest") or {}).get("restored") or {}).get("id")
        found = [
            Checkpoint(
                item["id"],
                item["trigger_timestamp"] / 1000,
                (item["trigger_timestamp"] + item["end_to_end_duration"]) / 1000,
                item["id"] == restored,
                item.get("external_path") or "",
            )
            for item in answer["history"]
            if item["status"] == "COMPLETED"
        ]
        return sorted(found, key=lambda checkpoint: checkpoint.number)

    def restarts(self, job: str) -> int:
        """Return the number of restarts of the job's tasks."""
        # Not the metric numRestarts: the REST interface knows it up to 10 s later.
        vertices = [item["id"] for item in self.rest(f"/jobs/{job}")["vertices"]]
        subtasks = [task for item in vertices for task in self.rest(f"/jobs/{job}/vertices/{item}")["subtasks"]]
        return max((int(task["attempt"]) for task in subtasks), default=0)

    def failures(self, job: str) -> list[str]:
        """The message of the root cause of each failure of the job, the last one first."""
        entries = self.rest(f"/jobs/{job}/exceptions")["exceptionHistory"]["entries"]
        return [_root_cause(entry["stacktrace"]) for entry in entries]

    def failure(self, job: str) -> str | None:
        """Return the message of the root cause of the job's last failure. Return None if it has not failed."""
        return next(iter(self.failures(job)), None)

    def rest(self, path: str, body: Any = None, *, method: str = "GET") -> Any:
        """Send a request to Flink's REST interface and return its JSON. Raises :class:`ClusterError`."""
        data = None if body is None else json.dumps(body).encode()
        url = f"{self.address}{path}"
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(url, data, headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=20) as answer:
                text = answer.read()
        except urllib.error.HTTPError as error:
            raise ClusterError(f"{method} {path}: {error.code} {error.read().decode('utf-8', 'replace')}") from error
        except OSError as error:
            raise ClusterError(f"{method} {path}: the JobManager does not answer: {error}") from error
        return json.loads(text) if text else {}


def wait_until(condition: Callable[[], T | None], deadline: float, what: str) -> T:
    """Wait until ``condition()`` is true, for ``deadline`` seconds, and return its value.

    Raises :class:`ClusterError` that says ``what`` was waited for.
    """
    end = time.monotonic() + deadline
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > end:
            raise ClusterError(f"waited {deadline:g} s without success for {what}")
        time.sleep(_POLL_SECONDS)


def _root_cause(stack: str) -> str:
    """The last ``Caused by`` of a Java stack, without the frames: class and message."""
    cause = re.split(r"^Caused by: ", stack, flags=re.MULTILINE)[-1]
    return re.split(r"^\s+(?:at |\.\.\. \d+ more|Suppressed: )", cause, maxsplit=1, flags=re.MULTILINE)[0].strip()
