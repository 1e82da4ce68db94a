"""An overlay becomes what Flink's own client needs."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
import yaml

from deploy.check.finding import Manifests
from deploy.check.pods import MAIN, clusters
from deploy.native import configuration, main, template
from tests.deploy.conftest import DEPLOY


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("native") / "out"
    main([str(DEPLOY / "overlays" / "local"), "--namespace", "agents", "--output", str(folder)])
    return folder


def test_all_but_the_operators_kinds_are_applied(written: Path) -> None:
    kinds = {found["kind"] for found in yaml.safe_load_all((written / "objects.yaml").read_text("utf-8"))}
    assert kinds == {
        "ServiceAccount",
        "Role",
        "RoleBinding",
        "ConfigMap",
        "PersistentVolumeClaim",
        "NetworkPolicy",
    }


def test_flink_is_told_what_the_operator_would_tell_it(written: Path) -> None:
    options = yaml.safe_load((written / "conf" / "config.yaml").read_text("utf-8"))
    assert options["kubernetes.namespace"] == "agents"
    assert options["kubernetes.cluster-id"] == "log-triage-agent"
    assert options["kubernetes.jobmanager.service-account"] == "log-triage-agent"
    assert options["kubernetes.taskmanager.service-account"] == "log-triage-agent-taskmanager"
    assert options["taskmanager.memory.process.size"] == "2048m"
    assert options["kubernetes.pod-template-file.taskmanager"] == "taskmanager.yaml"
    assert options["env.java.default-opts.all"].startswith("--add-exports=")
    assert not [key for key in options if key.startswith("kubernetes.operator.")]
    assert all(isinstance(value, str) for value in options.values())


def test_the_pods_log_as_the_operator_would_have_them(written: Path, rendered: dict[str, Manifests]) -> None:
    (cluster,) = clusters(rendered["local"])
    text = (written / "conf" / "log4j-console.properties").read_text("utf-8")
    assert text == cluster.spec["logConfiguration"]["log4j-console.properties"]


def test_the_script_runs_the_job_of_the_overlay(written: Path, tmp_path: Path) -> None:
    flink = tmp_path / "flink"
    flink.write_text('#!/bin/sh\necho "$FLINK_CONF_DIR"\nfor word; do echo "$word"; done\n', "utf-8")
    flink.chmod(0o755)
    environment = {"PATH": f"{tmp_path}:/usr/bin:/bin"}
    script = str(written / "run.sh")
    said = subprocess.run(["bash", script], env=environment, capture_output=True, text=True, check=True).stdout.split(
        "\n"
    )
    assert said[0] == str(written / "conf")
    assert said[1:4] == ["run", "--target", "kubernetes-application"]
    assert said[5:] == [
        "org.apache.flink.client.python.PythonDriver",
        "local:///opt/flink-skills/flink-python.jar",
        "-pym",
        "flink_skills.job",
        "--config",
        "/opt/flink/job/job.yaml",
        "",
    ]


def test_the_templates_are_whole_pods_and_leave_flinks_fields_to_flink(written: Path) -> None:
    pods = {
        role: yaml.safe_load((written / f"{role}.yaml").read_text("utf-8")) for role in ("jobmanager", "taskmanager")
    }
    for pod in pods.values():
        assert (pod["apiVersion"], pod["kind"]) == ("v1", "Pod")
        assert "serviceAccountName" not in pod["spec"]
        main_container = pod["spec"]["containers"][0]
        assert main_container["name"] == MAIN
        assert "image" not in main_container
        assert pod["metadata"]["labels"] == {"app.kubernetes.io/name": "log-triage"}
    mounts = {role: {m["name"] for m in pod["spec"]["containers"][0]["volumeMounts"]} for role, pod in pods.items()}
    assert mounts["taskmanager"] - mounts["jobmanager"] == {"workspaces"}
    assert pods["jobmanager"]["spec"]["initContainers"][0]["image"].startswith("flink-skills:")


def test_a_session_cluster_has_no_job_to_run(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    with pytest.raises(SystemExit):
        main([str(DEPLOY / "overlays" / "session"), "--namespace", "a", "--output", str(tmp_path)])
    assert "0 FlinkDeployments with a job" in capsys.readouterr().err


def test_sidecars_keep_their_images_and_standby_jobmanagers_their_number(rendered: dict[str, Manifests]) -> None:
    (cluster,) = clusters(rendered["skills-git-sync"])
    containers = yaml.safe_load(template(cluster, "taskmanager"))["spec"]["containers"]
    assert [container.get("image") for container in containers] == [None, "registry.k8s.io/git-sync/git-sync:v4.4.2"]
    (production,) = clusters(rendered["production"])
    assert configuration(production, "a")["kubernetes.jobmanager.replicas"] == "2"
