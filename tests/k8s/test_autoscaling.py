"""The component ``autoscaler`` under changing load: the agent keeps its parallelism, and no step is repeated."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from deploy.check.rules.autoscaling import vertex_id
from tests.k8s.deployment import JOB_MANAGER, PLANTED, Job, Variant, add
from tests.k8s.kubectl import Kubectl
from tests.k8s.test_log_triage import once, parcels

pytestmark = pytest.mark.k8s

AGENT = vertex_id("agent-log-triage")
# The windows of the component, short enough for a test.
SHORT = {"stabilization.interval": "30s", "metrics.window": "1m", "scale-down.interval": "1m"}
# Long enough for a window, a decision, and a second decision that must not come.
_PHASE = 240.0
_READ = """
import json, urllib.request
def get(path): return json.load(urllib.request.urlopen("http://localhost:8081" + path, timeout=20))
(job,) = [job["id"] for job in get("/jobs")["jobs"] if job["status"] == "RUNNING"]
vertices = {vertex["id"]: vertex["parallelism"] for vertex in get("/jobs/" + job)["vertices"]}
restarts = get("/jobs/" + job + "/metrics?get=numRestarts")[0]["value"]
print(json.dumps({"vertices": vertices, "restarts": int(restarts)}))
"""


@pytest.fixture(scope="module")
def scaled(operator: None, namespace: Kubectl) -> Job:
    found = Job(namespace, namespace.pod("app=desk"))
    patches = [add(f"/spec/flinkConfiguration/job.autoscaler.{key}", value) for key, value in SHORT.items()]
    found.deploy(Variant(components=("autoscaler",), patches=(*PLANTED, *patches)))
    return found


def state(job: Job) -> dict[str, Any] | None:
    """The parallelism of each vertex, and the number of restarts. None while the job restarts."""
    if not job.kubectl.answers("exec", job.kubectl.pod(JOB_MANAGER), "--", "python3", "-c", _READ):
        return None
    return dict(json.loads(job.kubectl.execute(job.kubectl.pod(JOB_MANAGER), "python3", "-c", _READ)))


def test_a_fourfold_load_up_and_down_rescales_at_most_once_each_and_repeats_nothing(scaled: Job) -> None:
    sent: list[str] = []
    for phase, rate in (("base", 1), ("fourfold", 4), ("base again", 1)):
        vectors: list[dict[str, int]] = []
        begun = time.monotonic()
        batch = 0
        while time.monotonic() - begun < _PHASE:
            sent += scaled.send(parcels(f"{phase.replace(' ', '-')}-{batch}", 10 * rate))
            batch += 1
            # The pace of the load. No condition is awaited.
            time.sleep(max(0.0, begun + 10 * batch - time.monotonic()))
            if (found := state(scaled)) is not None and found["vertices"] not in vectors[-1:]:
                vectors.append(found["vertices"])
        assert len(vectors) <= 2, f"{phase}: more than one rescale: {vectors}"
        assert {vector[AGENT] for vector in vectors} == {vectors[0][AGENT]}, f"{phase}: the agent was rescaled"
    once(scaled.wait_for(sent, deadline=600))
