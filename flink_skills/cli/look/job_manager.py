"""Flink's REST interface: the jobs with agents, and the metrics of their operators."""

from __future__ import annotations

import http.client
import json
import re
import socket
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import quote

from flink_skills.endpoint import check_endpoint, redact
from flink_skills.errors import ConfigError, UnknownNameError

TERMINAL = ("FINISHED", "FAILED", "CANCELED", "SUSPENDED")
_TIMEOUT_SECONDS = 20.0
# Time in which the JobManager collects the metrics after the request that started it.
_SETTLE_SECONDS = 0.5
# Flink rejects a request line of more than 4,096 characters.
_MAX_QUERY = 3000
_HEADER = re.compile(r"([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*(.*)")
# The name of a vertex has the names of its operators: "Source: lines -> (agent triage, Map)".
_AGENT_VERTEX = re.compile(r"(?:^|-> |[(\]]|, )agent \S")
_OPERATOR_METRICS = ("turns", "failures", "inFlight", "pending", "waiting", "oldestWait", "workerRestarts")
_MODEL_METRICS = ("requests", "requestFailures", "inputTokens", "outputTokens", "costMicroUsd")
# Flink replaces spaces, '.', ':' and ',' in each part of the name of a metric by '_'.
_METRIC = re.compile(
    rf"agent_([^.]+)\.(?:({'|'.join(_OPERATOR_METRICS)})|agent\.([^.]+)\.model\.([^.]+)\.({'|'.join(_MODEL_METRICS)}))"
)
_GAUGES = frozenset({"inFlight", "pending", "waiting", "oldestWait"})


@dataclass(frozen=True)
class Job:
    """A job of a JobManager. ``vertices`` are the IDs of those with agents."""

    id: str
    name: str
    state: str
    vertices: tuple[str, ...] = ()


@dataclass(frozen=True)
class Reading:
    """Values of the agents' metrics, summed over subtasks.

    Attributes:
        clock: Seconds for which the job ran when Flink collected the values.
        values: By path: operator and metric, or operator, agent, model and metric.
    """

    clock: float
    values: Mapping[tuple[str, ...], float]

    @property
    def operators(self) -> list[str]:
        """The names of the agent operators."""
        return sorted({path[0] for path in self.values})

    def models(self, operator: str) -> list[tuple[str, str]]:
        """Return the agents and models whose requests the operator counted."""
        return sorted({(path[1], path[2]) for path in self.values if path[0] == operator and len(path) > 2})

    def number(self, *path: str) -> int:
        """Return a value as a whole number. Return 0 if there is none."""
        return round(self.values.get(path, 0.0))

    def counts_more_than(self, other: Reading) -> bool:
        """Return True if a counter of this reading is larger, as before a restart of tasks."""
        return any(
            value > other.values.get(path, 0.0) for path, value in self.values.items() if path[-1] not in _GAUGES
        )


class JobManager:
    """Client of Flink's REST interface. Nothing is contacted before it is used.

    Args:
        address: The address, such as ``http://localhost:8081``.
        headers: Headers as ``NAME: VALUE``. Values can have references to secrets.

    Raises:
        ConfigError: The address or a header cannot be used.
    """

    def __init__(self, address: str, headers: Iterable[str] = ()) -> None:
        check_endpoint(address, "JOB_MANAGER_URL", "http://localhost:8081", credentials=False)
        self.address = re.split("[?#]", address, maxsplit=1)[0].rstrip("/")
        self._headers = dict(_header(text) for text in headers)
        self._opener = urllib.request.build_opener(_NoRedirect)

    def find_job(self, wanted: str | None) -> Job:
        """Return the job with this ID or name, or the only running job with agents.

        Raises:
            ConfigError: There is no such job, or there are several.
            UnknownNameError: No job has this ID or name.
        """
        overview = self._get("/jobs/overview")
        try:
            jobs = [Job(each["jid"], each["name"], each["state"]) for each in overview["jobs"]]
        except (TypeError, KeyError):
            raise self._not_flink() from None
        running = [job for job in jobs if job.state not in TERMINAL]
        if wanted is not None:
            named = [job for job in jobs if job.name == wanted or job.id.startswith(wanted)]
            if not named:
                raise UnknownNameError("job", wanted, [job.name for job in running or jobs], place=self.address)
            # A job that was submitted again has the name of the earlier ones.
            candidates = [job for job in named if job in running] or named[-1:]
        else:
            candidates = running
        found = [job for job in map(self._with_vertices, candidates) if job.vertices]
        if len(found) == 1:
            return found[0]
        if found:
            names = ", ".join(f"{job.name} ({job.id})" for job in found)
            raise ConfigError(
                f"{self.address}: {len(found)} running jobs have agents: {names}. Choose one with --job NAME or ID."
            )
        names = ", ".join(job.name for job in candidates) or "none"
        raise ConfigError(
            f"{self.address}: no running job has agents (running: {names}). Start the job, or check the address."
        )

    def read(self, job: Job) -> tuple[Job, Reading]:
        """Return the job with its state of now, and the values of its metrics.

        Raises:
            ConfigError: The JobManager does not answer.
        """
        job = self._with_vertices(job)
        # This request makes Flink collect the metrics again if it is time. The next ones read the same values.
        before = self._get(f"/jobs/{job.id}/metrics?get=uptime")
        time.sleep(_SETTLE_SECONDS)
        uptime = self._get(f"/jobs/{job.id}/metrics?get=uptime")
        if uptime != before:
            time.sleep(_SETTLE_SECONDS)  # The values of TaskManagers arrive after that of the JobManager.
        values: dict[tuple[str, ...], float] = {}
        for vertex in job.vertices:
            values.update(self._metrics(f"/jobs/{job.id}/vertices/{vertex}/subtasks/metrics"))
        try:
            clock = float(uptime[0]["value"]) / 1000 if uptime else 0.0
        except (TypeError, KeyError, ValueError):
            raise self._not_flink() from None
        return job, Reading(clock, values)

    def _with_vertices(self, job: Job) -> Job:
        found = self._get(f"/jobs/{job.id}")
        try:
            vertices = tuple(each["id"] for each in found["vertices"] if _AGENT_VERTEX.search(each["name"]))
            return replace(job, state=found["state"], vertices=vertices)
        except (TypeError, KeyError):
            raise self._not_flink() from None

    def _metrics(self, path: str) -> dict[tuple[str, ...], float]:
        """Return the values of a vertex: the maximum over the subtasks for the oldest wait, and the sum otherwise."""
        found: dict[tuple[str, ...], float] = {}
        try:
            ids = {each["id"]: match for each in self._get(path) if (match := _METRIC.fullmatch(each["id"]))}
            for query in _queries(list(ids)):
                for each in self._get(f"{path}?agg=sum,max&get={query}"):
                    operator, name, agent, model, of_model = ids[each["id"]].groups()
                    key = (operator, name) if name else (operator, agent, model, of_model)
                    found[key] = float(each["max" if name == "oldestWait" else "sum"])
        except (TypeError, KeyError, ValueError):
            raise self._not_flink() from None
        return found

    def _get(self, path: str) -> Any:
        request = urllib.request.Request(f"{self.address}{path}", headers=self._headers)  # noqa: S310 - http or https
        try:
            with self._opener.open(request, timeout=_TIMEOUT_SECONDS) as response:
                return json.loads(response.read())
        except urllib.error.HTTPError as error:
            message = self._status_message(error.code, error.headers.get("Location", ""))
        except (http.client.HTTPException, ConnectionResetError):
            message = self._no_http()
        except OSError as error:
            message = self._connection_message(error.reason if isinstance(error, urllib.error.URLError) else error)
        except ValueError:
            raise self._not_flink() from None
        raise ConfigError(message)

    def _not_flink(self) -> ConfigError:
        return ConfigError(f"{self.address}: the answer is not that of Flink's REST interface. Check host and path.")

    def _no_http(self) -> str:
        return (
            f"{self.address}: the server does not answer in HTTP. If its interface uses TLS "
            "(security.ssl.rest.enabled), write https://."
        )

    def _status_message(self, code: int, target: str) -> str:
        if code in (401, 403):
            return (
                f"{self.address}: the server rejected the request with status {code}. Pass credentials, as in --header "
                "'Authorization: Bearer ${env:TOKEN}'."
            )
        if 300 <= code < 400:
            return f"{self.address}: the server redirects to {redact(target)}. Pass the address of that server."
        return f"{self.address}: the server answered with status {code}. Check scheme, host and path."

    def _connection_message(self, reason: object) -> str:
        if isinstance(reason, socket.gaierror):
            return f"{self.address}: the host is unknown. Check the name."
        if isinstance(reason, ssl.SSLCertVerificationError):
            return (
                f"{self.address}: the certificate is not valid here ({reason.verify_message}). Set the variable "
                "SSL_CERT_FILE to the file of its authority."
            )
        if isinstance(reason, ssl.SSLError):
            return f"{self.address}: the server does not answer with TLS. If its interface uses HTTP, write http://."
        if isinstance(reason, ConnectionRefusedError):
            return (
                f"{self.address}: no server listens on this port. Check it, or forward the port of the JobManager: "
                "kubectl port-forward service/NAME-rest 8081."
            )
        if isinstance(reason, ConnectionResetError):
            return self._no_http()
        return f"{self.address}: the JobManager cannot be reached ({reason}). Check the address."


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Handler that follows no redirect, which would pass the headers to another server."""

    def redirect_request(self, *_: Any) -> None:
        """Reject the redirect."""


def _header(text: str) -> tuple[str, str]:
    from flink_skills.sources.secrets import expand

    match = _HEADER.fullmatch(text)
    if match is None:
        # The text can contain a secret.
        raise ConfigError(
            "--header cannot be used: expected 'NAME: VALUE'. Write it as in 'Authorization: Bearer ${env:TOKEN}'."
        )
    value = expand(match[2])
    if not value.isprintable() or not value.isascii():
        raise ConfigError(
            f"--header {match[1]} cannot be used: its value has control characters or is not ASCII. Correct it."
        )
    return match[1], value


def _queries(ids: Sequence[str]) -> list[str]:
    """Return values of the parameter ``get``, each short enough for one request."""
    queries = [""]
    for each in map(quote, ids):
        if queries[-1] and len(queries[-1]) + len(each) > _MAX_QUERY:
            queries.append("")
        queries[-1] += f",{each}" if queries[-1] else each
    return [query for query in queries if query]
