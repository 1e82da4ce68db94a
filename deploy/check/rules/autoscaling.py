"""Rules about the autoscaler of the Flink Kubernetes Operator, which misjudges agents."""

from __future__ import annotations

from collections.abc import Iterator

from deploy.check.finding import Finding, Manifests
from deploy.check.jobs import Job, jobs
from flink_skills.agents.plan.plan import operator_uid

__all__ = ["excluded_agents", "vertex_id"]

ENABLED = ("job.autoscaler.enabled", "kubernetes.operator.job.autoscaler.enabled")
EXCLUDED = ("job.autoscaler.vertex.exclude.ids", "kubernetes.operator.job.autoscaler.vertex.exclude.ids")
# Operators from 1.16 on can evaluate the vertex with a plug-in instead.
EVALUATORS = "job.autoscaler.metrics.custom-evaluators"
_MASK = (1 << 64) - 1
_C1, _C2 = 0x87C37B91114253D5, 0x4CF5AD432745937F


def excluded_agents(manifests: Manifests) -> Iterator[Finding]:
    """The autoscaler does not change the parallelism of agents, whose busy time says nothing about their load."""
    for job in jobs(manifests):
        if not any(job.get(key).lower() == "true" for key in ENABLED) or job.get(EVALUATORS):
            continue
        excluded = {part.strip() for key in EXCLUDED for part in job.get(key).split(";")}
        for name in _agents(job):
            vertex = vertex_id(operator_uid(name))
            if vertex not in excluded:
                yield Finding(
                    job.place,
                    f"the autoscaler would scale agent {name} by its busy time, which says nothing about its load: add "
                    f"{vertex} to {EXCLUDED[0]}",
                )


def _agents(job: Job) -> Iterator[str]:
    """The names of agents whose declarations are in the overlay."""
    for name, (_, agent) in job.agents.items():
        if name := name or str((agent or {}).get("name") or ""):
            yield name


def vertex_id(uid: str) -> str:
    """Return the ID of the job vertex that begins with the operator of a uid.

    An agent begins a vertex, because its events are distributed by key. Flink hashes the uid with MurmurHash3 (x64, 128
    bits, seed 0).

    >>> vertex_id("agent-log-triage")
    'b938dfb9936ee2cb3db61e7e1c092f91'
    """
    data = uid.encode()
    first = second = 0
    tail = len(data) & 15
    for at in range(0, len(data) - tail, 16):
        first ^= _mixed(int.from_bytes(data[at : at + 8], "little"), _C1, 31, _C2)
        first = ((_rotated(first, 27) + second) * 5 + 0x52DCE729) & _MASK
        second ^= _mixed(int.from_bytes(data[at + 8 : at + 16], "little"), _C2, 33, _C1)
        second = ((_rotated(second, 31) + first) * 5 + 0x38495AB5) & _MASK
    rest = data[len(data) - tail :]
    second ^= _mixed(int.from_bytes(rest[8:], "little"), _C2, 33, _C1)
    first ^= _mixed(int.from_bytes(rest[:8], "little"), _C1, 31, _C2)
    first, second = first ^ len(data), second ^ len(data)
    first = (first + second) & _MASK
    second = (second + first) & _MASK
    first, second = _final(first), _final(second)
    first = (first + second) & _MASK
    second = (second + first) & _MASK
    return (first.to_bytes(8, "little") + second.to_bytes(8, "little")).hex()


def _rotated(value: int, bits: int) -> int:
    return (value << bits | value >> 64 - bits) & _MASK


def _mixed(value: int, factor: int, bits: int, other: int) -> int:
    return _rotated(value * factor & _MASK, bits) * other & _MASK


def _final(value: int) -> int:
    for factor in (0xFF51AFD7ED558CCD, 0xC4CEB9FE1A85EC53):
        value = (value ^ value >> 33) * factor & _MASK
    return value ^ value >> 33
