"""The overlays of the project are good, and are what they say."""

from __future__ import annotations

import io
import json
import re
import zipfile
from base64 import b64decode
from pathlib import Path
from typing import Any

import pytest
import yaml

from deploy.check.__main__ import main
from deploy.check.checking import check
from deploy.check.finding import Manifests
from deploy.check.pods import MAIN, Cluster, clusters, merged
from deploy.check.quantities import read_memory
from deploy.check.render import RenderError, overlays, render
from deploy.check.rules import RULES
from deploy.check.rules.references import expected
from tests.deploy.broken import BROKEN, Broken, changed
from tests.deploy.conftest import DEPLOY

COMPONENTS = {path.parent.name for path in (DEPLOY / "components").glob("*/kustomization.yaml")}


def test_every_overlay_and_every_component_is_checked(rendered: dict[str, Manifests]) -> None:
    assert {"local", "incident-desk", "production", "session", "flink-2.3"} == {path.name for path in overlays(DEPLOY)}
    used = {
        Path(component).name
        for path in overlays(DEPLOY)
        for component in yaml.safe_load((path / "kustomization.yaml").read_text("utf-8")).get("components", [])
    }
    assert set(rendered) >= COMPONENTS - used
    assert {
        "skills-baked",
        "skills-pvc",
        "skills-s3-zip",
        "skills-configmap",
        "skills-git-sync",
        "skills-oci-volume",
        "restricted",
        "runtimeclass-gvisor",
        "otlp",
        "prometheus",
        "autoscaler",
        "one-node",
        "older-nodes",
    } <= COMPONENTS


def test_nothing_is_wrong_with_any_of_them(rendered: dict[str, Manifests]) -> None:
    assert {name: found for name, manifests in rendered.items() if (found := check(manifests))} == {}


@pytest.mark.parametrize("name", ["local", "production", "flink-2.3"])
def test_names_of_other_objects_follow_the_prefix(name: str, rendered: dict[str, Manifests]) -> None:
    manifests = rendered[name]
    for found in manifests.objects:
        assert found["metadata"]["name"].startswith("log-triage-")
    (cluster,) = clusters(manifests)
    assert cluster.account("taskmanager") == "log-triage-agent-taskmanager"
    volumes = {volume["name"]: volume for volume in cluster.pods["taskmanager"]["spec"]["volumes"]}
    assert manifests.named("ConfigMap", volumes["job"]["configMap"]["name"]) is not None


def test_the_overlay_of_several_agents_is_the_example(rendered: dict[str, Manifests]) -> None:
    (job,) = (
        yaml.safe_load(found["data"]["job.yaml"])
        for found in rendered["incident-desk"].of_kind("ConfigMap")
        if "job.yaml" in found.get("data", {})
    )
    example = yaml.safe_load((DEPLOY.parent / "examples" / "incident_desk" / "job.yaml").read_text(encoding="utf-8"))
    for key in ("models", "agents", "errors"):
        assert job[key] == example[key]


def test_workspaces_are_a_volume_of_taskmanagers_only(rendered: dict[str, Manifests]) -> None:
    (cluster,) = clusters(rendered["local"])
    mounts = {
        role: {mount["name"]: mount for mount in pod["spec"]["containers"][0]["volumeMounts"]}
        for role, pod in cluster.pods.items()
    }
    assert mounts["taskmanager"]["workspaces"]["mountPath"] == "/opt/flink-skills/workspaces"
    assert "workspaces" not in mounts["jobmanager"]
    # What the common template has is still there beside it.
    assert set(mounts["taskmanager"]) == {"job", "tmp", "log", "store", "state", "workspaces"}
    assert cluster.pods["taskmanager"]["spec"]["containers"][0]["name"] == MAIN


def test_a_changed_job_file_is_a_changed_deployment_but_not_a_changed_session_cluster(
    rendered: dict[str, Manifests],
) -> None:
    assert rendered["local"].of_kind("ConfigMap")[0]["metadata"]["name"].startswith("log-triage-job-")
    assert rendered["session"].named("ConfigMap", "session-job") is not None


def test_production_keeps_a_jobmanager_through_a_drain_and_expects_its_secrets(rendered: dict[str, Manifests]) -> None:
    (cluster,) = clusters(rendered["production"])
    assert cluster.spec["jobManager"]["replicas"] == 2
    assert expected(rendered["production"]) == ["Secret model", "Secret object-store (optional)"]
    spread = cluster.pods["jobmanager"]["spec"]["topologySpreadConstraints"][0]["labelSelector"]["matchLabels"]
    assert spread.items() <= cluster.pods["jobmanager"]["metadata"]["labels"].items()


def test_production_lets_its_pods_reach_the_brokers_of_its_tables(rendered: dict[str, Manifests]) -> None:
    brokers = re.findall(
        r"'properties\.bootstrap\.servers' = '[\w-]+\.([\w-]+):(\d+)'", job_file(rendered["production"])
    )
    assert set(brokers) == {("kafka", "9092")}
    (policy,) = rendered["production"].of_kind("NetworkPolicy")
    openings = [
        (peer["namespaceSelector"]["matchLabels"]["kubernetes.io/metadata.name"], str(port["port"]))
        for rule in policy["spec"]["egress"]
        for peer in rule["to"]
        if peer.get("namespaceSelector", {}).get("matchLabels")
        for port in rule["ports"]
    ]
    assert set(brokers) <= set(openings)


def job_file(manifests: Manifests) -> str:
    return str(manifests.of_kind("ConfigMap")[0]["data"]["job.yaml"])


def test_the_session_job_names_the_cluster_by_its_whole_name(rendered: dict[str, Manifests]) -> None:
    manifests = rendered["session"]
    (cluster,) = clusters(manifests)
    assert "job" not in cluster.spec
    assert manifests.of_kind("FlinkSessionJob")[0]["spec"]["deploymentName"] == cluster.name == "session-agent"


def test_an_archive_of_skills_is_in_its_configmap_as_it_is(rendered: dict[str, Manifests]) -> None:
    skills = next(found for found in rendered["skills-configmap"].of_kind("ConfigMap") if "binaryData" in found)
    archive = zipfile.ZipFile(io.BytesIO(b64decode(skills["binaryData"]["skills.zip"])))
    assert archive.namelist() == ["stub/SKILL.md"]
    (cluster,) = clusters(rendered["skills-configmap"])
    volumes = {volume["name"]: volume for volume in cluster.pods["taskmanager"]["spec"]["volumes"]}
    assert volumes["skills"]["configMap"]["name"] == skills["metadata"]["name"]


def test_git_sync_fetches_before_flink_starts_and_goes_on_beside_it(rendered: dict[str, Manifests]) -> None:
    (cluster,) = clusters(rendered["skills-git-sync"])
    spec = cluster.pods["taskmanager"]["spec"]
    first, beside = spec["initContainers"][0], spec["containers"][1]
    assert first["image"] == beside["image"]
    settings = [{v["name"]: v["value"] for v in container["env"]} for container in (first, beside)]
    assert settings[0].pop("GITSYNC_ONE_TIME") == "true"
    assert {key: value for key, value in settings[1].items() if key in settings[0]} == settings[0]


def test_the_incidents_of_the_demo_are_rows_of_its_table(rendered: dict[str, Manifests]) -> None:
    data = rendered["local"].of_kind("ConfigMap")[0]["data"]
    rows = [json.loads(line) for line in data["incidents.jsonl"].splitlines()]
    assert rows
    for row in rows:
        assert set(row) == {"job", "incident", "flink", "source", "lines"}
        assert all(f"{column} " in data["job.yaml"] for column in row)


def test_a_strategic_merge_that_replaces_a_list_is_found(tmp_path: Path) -> None:
    """A list of a custom resource has no merge key for kustomize: the list of the patch is all that is left."""
    overlay = tmp_path / "overlay"
    overlay.mkdir()
    up = Path(*[".."] * (len(overlay.resolve().parts) - 1))
    (overlay / "kustomization.yaml").write_text(
        yaml.safe_dump(
            {
                "resources": [str(up / (DEPLOY / "overlays" / "local").relative_to("/"))],
                "patches": [
                    {
                        "target": {"kind": "FlinkDeployment"},
                        "patch": yaml.safe_dump(
                            {
                                "apiVersion": "flink.apache.org/v1beta1",
                                "kind": "FlinkDeployment",
                                "metadata": {"name": "any"},
                                "spec": {
                                    "podTemplate": {
                                        "spec": {
                                            "containers": [
                                                {"name": MAIN, "env": [{"name": "REGION", "value": "eu-central-1"}]}
                                            ]
                                        }
                                    }
                                },
                            }
                        ),
                    }
                ],
            }
        ),
        "utf-8",
    )
    found = [str(finding) for finding in check(render(overlay))]
    assert any("readOnlyRootFilesystem" in line for line in found)
    assert any("execution.checkpointing.dir: /flink-data/checkpoints is on no volume" in line for line in found)
    assert any("skills.store.dir" in line for line in found)


def test_an_overlay_that_cannot_be_rendered_says_why(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "kustomization.yaml").write_text("resources: [missing.yaml]\n", "utf-8")
    with pytest.raises(RenderError, match=r"missing\.yaml"):
        render(tmp_path)
    assert main([str(tmp_path)]) == 2
    assert "missing.yaml" in capsys.readouterr().err


def test_the_command_names_what_is_wrong_and_fails(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "role.yaml").write_text(
        yaml.safe_dump(
            {
                "apiVersion": "rbac.authorization.k8s.io/v1",
                "kind": "Role",
                "metadata": {"name": "all"},
                "rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["*"]}],
            }
        ),
        "utf-8",
    )
    (tmp_path / "kustomization.yaml").write_text("resources: [role.yaml]\n", "utf-8")
    assert main([str(tmp_path)]) == 1
    out = capsys.readouterr().out
    assert "1 objects, 1 wrong" in out
    assert "Role all: verbs has '*'" in out


BY_NAME = {rule.__name__: rule for rule in RULES}


@pytest.mark.parametrize("broken", BROKEN, ids=lambda broken: f"{broken.rule}-{broken.name}".replace(" ", "-"))
def test_the_rule_finds_what_is_wrong(broken: Broken, rendered: dict[str, Manifests]) -> None:
    manifests = rendered[broken.overlay]
    rule = BY_NAME[broken.rule]
    assert list(rule(manifests)) == [], "the overlay is not good to begin with"
    found = [str(finding) for finding in rule(changed(manifests, broken.change))]
    assert any(re.search(broken.words, line) for line in found), found


def test_every_rule_has_an_overlay_that_it_finds_wrong() -> None:
    assert {broken.rule for broken in BROKEN} == set(BY_NAME)
    assert len(BY_NAME) == len(RULES)


def test_a_thing_that_is_wrong_in_both_pods_is_said_for_each_and_once(rendered: dict[str, Manifests]) -> None:
    wrong = next(broken for broken in BROKEN if broken.name == "privileged")
    found = check(changed(rendered["production"], wrong.change))
    assert len(found) == 2
    assert {word for finding in found for word in ("jobmanager", "taskmanager") if word in finding.place} == {
        "jobmanager",
        "taskmanager",
    }


def test_by_name_each_element_meets_its_own() -> None:
    lower = {"containers": [{"name": "a", "image": "a:1"}, {"name": "b", "env": [{"name": "X", "value": "1"}]}]}
    upper = {"containers": [{"name": "b", "env": [{"name": "Y", "value": "2"}]}, {"name": "c"}]}
    assert merged(lower, upper, by_name=True) == {
        "containers": [
            {"name": "a", "image": "a:1"},
            {"name": "b", "env": [{"name": "X", "value": "1"}, {"name": "Y", "value": "2"}]},
            {"name": "c"},
        ]
    }


def test_by_position_the_first_meets_the_first() -> None:
    lower = {"volumes": [{"name": "a", "emptyDir": {}}, {"name": "b", "emptyDir": {}}]}
    upper = {"volumes": [{"name": "c", "configMap": {"name": "m"}}]}
    assert merged(lower, upper, by_name=False) == {
        "volumes": [{"name": "c", "emptyDir": {}, "configMap": {"name": "m"}}, {"name": "b", "emptyDir": {}}]
    }


def test_elements_without_a_name_are_merged_by_position_even_so() -> None:
    lower = {"tolerations": [{"key": "a"}], "args": ["x", "y"]}
    upper = {"tolerations": [{"key": "b"}, {"key": "c"}], "args": ["z"]}
    assert merged(lower, upper, by_name=True) == {"tolerations": [{"key": "b"}, {"key": "c"}], "args": ["x", "y"]}


def test_two_elements_of_one_name_become_one() -> None:
    lower = {"volumeMounts": [{"name": "v", "mountPath": "/a"}, {"name": "v", "mountPath": "/b"}]}
    upper = {"volumeMounts": [{"name": "w", "mountPath": "/c"}]}
    assert merged(lower, upper, by_name=True) == {
        "volumeMounts": [{"name": "v", "mountPath": "/b"}, {"name": "w", "mountPath": "/c"}]
    }


def test_the_layers_stay_as_they_are() -> None:
    lower: dict[str, Any] = {"a": [{"name": "x", "b": {"c": 1}}]}
    upper: dict[str, Any] = {"a": [{"name": "x", "b": {"d": 2}}]}
    merged(lower, upper, by_name=True)["a"][0]["b"]["c"] = 9
    assert lower == {"a": [{"name": "x", "b": {"c": 1}}]}
    assert upper == {"a": [{"name": "x", "b": {"d": 2}}]}


def test_a_pod_has_what_flink_gives_it() -> None:
    spec = {
        "image": "flink-skills:1.0",
        "serviceAccount": "jm",
        "flinkConfiguration": {"kubernetes": {"taskmanager": {"service-account": "tm"}}, "rest.port": 8081},
        "podTemplate": {"spec": {"containers": [{"name": MAIN}]}},
    }
    cluster = Cluster(Manifests("x", ()), {"metadata": {"name": "c"}, "spec": spec})
    pod = cluster.pods["taskmanager"]
    assert pod["metadata"]["labels"] == {"app": "c", "component": "taskmanager", "type": "flink-native-kubernetes"}
    assert pod["spec"]["serviceAccountName"] == "tm"
    assert pod["spec"]["containers"][0]["image"] == "flink-skills:1.0"
    assert cluster.pods["jobmanager"]["spec"]["serviceAccountName"] == "jm"
    assert cluster.configuration["rest.port"] == "8081"


@pytest.mark.parametrize(
    ("text", "size"),
    [("1", 1), ("64 mb", 64 << 20), ("4096m", 4 << 30), ("2Gi", 2 << 30), ("2 gigs", None), ("", None)],
)
def test_amounts_of_memory(text: str, size: int | None) -> None:
    assert read_memory(text) == size
