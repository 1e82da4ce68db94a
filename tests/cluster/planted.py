"""Secrets that a cluster is given to keep, and everywhere to look for them."""

from __future__ import annotations

import base64
import contextlib
import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

from tests.kit.cluster import StandaloneCluster
from tests.kit.walking import files_below

__all__ = ["HIDDEN", "PLANTED", "places_of"]

PASSWORD = "pl4nted-url-password"
# In the environment of the TaskManagers and of the client.
PLANTED = {
    "PLANTED_MODEL_KEY": "pl4nted-model-key",
    "PLANTED_SKILL_TOKEN": "pl4nted-skill-token",
    "PLANTED_URL_PASSWORD": PASSWORD,
    "PLANTED_TABLE_SECRET": "pl4nted-table-secret\n  pl4nted-second-line-of-it",
}
# Line by line: what repeats a text often makes its line ends blanks.
_LINES = [line.strip() for value in PLANTED.values() for line in value.splitlines()]
HIDDEN = (*_LINES, base64.b64encode(f"me:{PASSWORD}".encode()).decode())


def places_of(cluster: StandaloneCluster, job: str, texts: dict[str, str]) -> list[str]:
    """Where any of the hidden texts is: files of the cluster, answers of its REST interface, command lines, and
    ``texts`` by name."""
    found = [f"{name}: {secret}" for name, text in texts.items() for secret in HIDDEN if secret in text]
    for path in files_below(cluster.folder):
        with contextlib.suppress(OSError):  # files of running processes come and go
            found += _in_bytes(str(path.relative_to(cluster.folder)), path.read_bytes())
    answers = dict(_rest(cluster, job))
    assert any("agent" in answer.decode() for answer in answers.values())
    for name, answer in answers.items():
        found += _in_bytes(f"GET {name}", answer)
    for pid, command in cluster.processes().items():
        found += _in_bytes(f"command line of {pid}", command.encode())
    return found


def _in_bytes(name: str, data: bytes) -> list[str]:
    """The secrets in some bytes, each with what is around it the first time."""
    found = []
    for secret in HIDDEN:
        at = data.find(secret.encode())
        if at >= 0:
            found.append(f"{name}: {secret} in …{data[max(0, at - 200) : at + 60].decode('utf-8', 'replace')}…")
    return found


def _rest(cluster: StandaloneCluster, job: str) -> Iterator[tuple[str, bytes]]:
    """Everything that the REST interface says of a job and of the cluster."""
    paths = [
        *("/config", "/overview", "/jobs/overview", "/jobmanager/config", "/jobmanager/environment"),
        *("/jobmanager/logs", "/jobmanager/log", "/taskmanagers", "/jars"),
        *(f"/jobs/{job}{part}" for part in ("", "/config", "/plan", "/exceptions", "/checkpoints")),
        *(f"/jobs/{job}{part}" for part in ("/checkpoints/config", "/accumulators", "/metrics", "/jobmanager/config")),
    ]
    for vertex in cluster.rest(f"/jobs/{job}")["vertices"]:
        at = f"/jobs/{job}/vertices/{vertex['id']}"
        paths += [f"{at}{part}" for part in ("", "/accumulators", "/subtasktimes", "/taskmanagers", "/metrics")]
    for manager in cluster.rest("/taskmanagers")["taskmanagers"]:
        paths += [f"/taskmanagers/{manager['id']}{part}" for part in ("", "/logs", "/log", "/thread-dump")]
    for path in paths:
        with (
            contextlib.suppress(urllib.error.HTTPError),
            urllib.request.urlopen(cluster.address + path, timeout=30) as answer,
        ):
            yield path, answer.read()


def rows_below(folder: Path) -> list[dict[str, object]]:
    """The rows that a sink of files has made visible."""
    return [
        json.loads(line)
        for file in sorted(files_below(folder))
        if not file.name.startswith((".", "_"))
        for line in file.read_text(encoding="utf-8").splitlines()
    ]
