"""``deploy/overlays/local`` under the operator: from its first answers through losses and upgrades to its end.

The tests share one deployment and run in their order; each leaves the job running on the first image.
"""

from __future__ import annotations

import json
import re
import zipfile
from pathlib import Path
from typing import Any

import pytest

from tests.k8s import deployment
from tests.k8s.deployment import DATA, DEPLOY, IMAGE_2, JOB_MANAGER, PLANTED, PLANTED_VALUE, SECRET, Job, Variant
from tests.k8s.image.content import stamp_skill
from tests.k8s.kubectl import Kubectl, KubectlError, wait_until

pytestmark = pytest.mark.k8s

TOKEN = "/var/run/secrets/kubernetes.io/serviceaccount/token"
FIRST = Variant(patches=PLANTED)


def parcels(prefix: str, count: int, place: str = "harbour", keys: int = 10) -> list[dict[str, Any]]:
    """Events for the skill that stamps parcels of a place."""
    return [
        {"job": f"key-{n % keys}", "incident": f"{prefix}-{n}", "lines": [f"a parcel at the {place}"]}
        for n in range(count)
    ]


def once(found: dict[str, list[str]]) -> list[dict[str, Any]]:
    """The stamps on parcels; fails unless each came once."""
    doubled = {name: len(answers) for name, answers in found.items() if len(answers) != 1}
    assert not doubled, f"answered more than once: {doubled}"
    stamps = [json.loads(answers[0]) for answers in found.values()]
    assert [stamp["parcel"] for stamp in stamps] == list(found)
    return stamps


def test_recorded_incidents_are_triaged(job: Job) -> None:
    recorded = [json.loads(line) for line in (DEPLOY / "overlays/local/incidents.jsonl").read_text().splitlines()]
    found = job.wait_for([event["incident"] for event in recorded])
    for event in recorded:
        (answer,) = found[event["incident"]]
        assert json.loads(answer)["diagnosis"]


def test_skills_come_from_the_image_and_from_the_jar(job: Job) -> None:
    for place in ("harbour", "border"):
        stamp = job.ask(f"from-{place}", f"a parcel at the {place}")
        assert (stamp["place"], stamp["version"]) == (place, 1)


def test_commands_are_isolated_in_the_restricted_pod(job: Job) -> None:
    report = job.doctor()
    pod = job.kubectl.get("pod", job.task_manager())
    (container,) = pod["spec"]["containers"]
    assert pod["spec"]["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert container["securityContext"]["readOnlyRootFilesystem"] is True
    assert report["level"] in ("LANDLOCK", "NAMESPACE"), report
    assert report["uid"] == 9999 and report["net"] == "denied" and report["proved"], report
    # The worker proved it too, when it opened.
    assert re.search(rf"isolation\W+{report['level']}", job.kubectl.logs(job.task_manager())), report


def test_a_skill_cannot_read_what_is_the_pods(job: Job) -> None:
    task_manager = job.task_manager()
    environment = job.kubectl.execute(task_manager, "sh", "-c", "cat /proc/1/environ")
    assert f"{SECRET}={PLANTED_VALUE}" in environment, "the secret is not planted"
    api = re.search(r"KUBERNETES_SERVICE_HOST=([^\0]+)", environment)
    assert api
    files = [TOKEN, "/etc/planted/key", "/opt/flink/conf/config.yaml", "/opt/flink/job/job.yaml", "/proc/1/environ"]
    folders = [f"{DATA}/checkpoints", f"{DATA}/incidents", "/opt/flink/skills", "/opt/flink-skills/workspaces", "/tmp"]
    for path in files:  # or a refusal would say nothing
        job.kubectl.execute(task_manager, "test", "-r", path)
    addresses = [f"{api[1]}:443", f"{pod_address(job)}:8081", "127.0.0.1:6121"]
    asked = {"files": files, "folders": folders, "addresses": addresses, "variable": SECRET}
    found = job.ask("probe", "probe the pod", json.dumps(asked))
    assert found["own"] == "done: written"
    allowed = {
        f"{kind} {name}": outcome
        for kind in ("read", "list", "write", "connect")
        for name, outcome in found[kind].items()
        if outcome.startswith("done")
    }
    # Skills are there to be read, and a command has a folder for temporary files.
    assert set(allowed) <= {"list /opt/flink/skills"}, allowed
    assert found["environments"] == []
    assert PLANTED_VALUE not in json.dumps(job.answers())


def pod_address(job: Job) -> str:
    """Where the JobManager's REST interface is."""
    return str(job.kubectl.get("pod", job.kubectl.pod(JOB_MANAGER))["status"]["podIP"])


def test_the_secret_is_in_no_log(job: Job) -> None:
    for pod in (job.task_manager(), job.kubectl.pod(JOB_MANAGER)):
        assert PLANTED_VALUE not in job.kubectl.logs(pod)


def test_a_killed_task_manager_loses_and_doubles_nothing(job: Job) -> None:
    ids = job.send(parcels("before", 1500))
    # In the middle of it, and after a checkpoint.
    wait_until(lambda: answered(job, ids) > 10, 120, "the first answers")
    assert answered(job, ids) < len(ids), "all was answered before anything could be lost"
    job.kubectl.kill(deployment.TASK_MANAGER)
    ids += job.send(parcels("after", 20))
    stamps = once(job.wait_for(ids, deadline=400))
    # One call of a command each: a repeated one has the id of the first.
    assert len({stamp["call"] for stamp in stamps}) == len(ids)


def answered(job: Job, ids: list[str]) -> int:
    """How many of these events have an answer."""
    return len({answer["incident"] for answer in job.answers()} & set(ids))


def test_a_killed_job_manager_is_replaced(job: Job) -> None:
    leadership = f"configmap/{deployment.NAME}-cluster-config-map"
    assert leadership in job.kubectl.names("configmaps"), "the job has no high-availability data in the cluster"
    ids = job.send(parcels("leaderless", 30))
    job.kubectl.kill(JOB_MANAGER)
    once(job.wait_for(ids, deadline=400))


def test_a_new_image_brings_new_skills_and_the_old_one_the_old(job: Job) -> None:
    before = job.send(parcels("waiting", 40))
    job.deploy(Variant(image=IMAGE_2, patches=PLANTED))
    stamps = once(job.wait_for(before, deadline=300))
    assert {stamp["version"] for stamp in stamps} <= {1, 2}
    for place in ("harbour", "border"):
        assert job.ask(f"new-{place}", f"a parcel at the {place}")["version"] == 2
    restored = job.kubectl.logs(job.kubectl.pod(JOB_MANAGER))
    assert "Restoring job" in restored, "the upgrade did not take the state along"
    job.deploy(FIRST)
    for place in ("harbour", "border"):
        assert job.ask(f"old-{place}", f"a parcel at the {place}")["version"] == 1
    # Nothing was asked again, of all that was answered before.
    names = [answer["incident"] for answer in job.answers()]
    assert len(names) == len(set(names))


def test_skills_come_from_a_config_map(job: Job, tmp_path: Path) -> None:
    archive = tmp_path / "skills.zip"
    skill = stamp_skill(tmp_path / "skills", "airport", 1)
    with zipfile.ZipFile(archive, "w") as zipped:
        for path in sorted(skill.rglob("*")):
            zipped.write(path, path.relative_to(tmp_path / "skills"))
    job.deploy(Variant(components=["skills-configmap"], config_maps={"skills": [archive]}, patches=PLANTED))
    assert job.ask("from-airport", "a parcel at the airport")["place"] == "airport"


def test_skills_come_from_a_volume_and_change_there(job: Job, tmp_path: Path) -> None:
    def fill(version: int) -> None:
        folder = stamp_skill(tmp_path / f"{version}", "railway", version)
        files = {str(path.relative_to(folder.parent)): path.read_text() for path in folder.rglob("*") if path.is_file()}
        script = "import json, pathlib, sys\nfor name, text in json.load(sys.stdin).items():\n"
        script += " file = pathlib.Path('/skills', name)\n file.parent.mkdir(parents=True, exist_ok=True)\n"
        script += " file.write_text(text)\n"
        job.kubectl.execute("desk", "python3", "-c", script, stdin=json.dumps(files))

    fill(1)
    interval = deployment.add("/spec/flinkConfiguration/skills.refresh.interval", "2 s")
    job.deploy(Variant(components=["skills-pvc"], patches=(*PLANTED, interval)))
    assert job.ask("from-railway", "a parcel at the railway")["version"] == 1
    fill(2)
    numbers = iter(range(1000))

    def changed() -> bool:
        answer = job.answer(f"from-railway-{next(numbers)}", "a parcel at the railway")
        # Until the next refresh the model is told that the files are no longer those of the skill.
        return "has changed since the skill was loaded" not in answer and json.loads(answer)["version"] == 2

    wait_until(changed, 60, "the job to take the volume's change over")


def test_the_listed_rights_were_enough(job: Job) -> None:
    for pod in (job.task_manager(), job.kubectl.pod(JOB_MANAGER)):
        refused = [line for line in job.kubectl.logs(pod).splitlines() if "forbidden" in line.lower()]
        assert not refused, refused
    account = f"system:serviceaccount:{job.kubectl.namespace}"
    may = [("log-triage-agent", "create", "pods", True), ("log-triage-agent", "get", "secrets", False)]
    may += [("log-triage-agent-taskmanager", "create", "pods", False)]
    may += [("log-triage-agent-taskmanager", "get", "configmaps", True), ("default", "list", "pods", False)]
    for name, verb, kind, expected in may:
        answer = job.kubectl.answers("auth", "can-i", verb, kind, f"--as={account}:{name}", "--quiet")
        assert answer is expected, f"{name} {'cannot' if expected else 'can'} {verb} {kind}"


def test_deletion_leaves_nothing(job: Job) -> None:
    job.kubectl.run("delete", "flinkdeployment", deployment.NAME, "--timeout=170s", timeout=180)

    def nothing() -> bool:
        return not job.kubectl.names("pods,deployments,replicasets,services,configmaps", f"app={deployment.NAME}")

    wait_until(nothing, 120, "all that belongs to the job to be gone")
    assert job.shell("ls checkpoints/*/chk-* -d").strip(), "an upgrade later would have nothing to begin from"


def test_the_api_refuses_a_flink_version_that_the_operator_does_not_know(operator: None, namespace: Kubectl) -> None:
    changed = deployment.add("/spec/flinkVersion", "v9_9")
    with pytest.raises(KubectlError, match="Unsupported value"):
        namespace.apply(*deployment.render(namespace, Variant(patches=(changed,))))
