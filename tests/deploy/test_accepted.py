"""What is right is not a finding: other ways to write the same thing, and what an overlay cannot know."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from deploy.check.arguments import read_arguments
from deploy.check.checking import check, needs
from deploy.check.finding import Manifests
from deploy.check.pods import clusters
from deploy.check.quantities import read_duration, read_ports, read_size
from deploy.check.render import render
from tests.deploy.broken.making import (
    Change,
    Objects,
    agent_file,
    arguments,
    both,
    budget,
    changed,
    configure,
    job_file,
    key_container,
    key_variable,
    main,
    one,
    options_of_the_job,
    pod,
    put,
    spec,
)
from tests.deploy.conftest import DEPLOY

CONFIG = "/opt/flink/job/job.yaml"


def from_secret(*names: str) -> Change:
    def change(objects: Objects) -> None:
        main(objects)["env"] += [
            {"name": name, "valueFrom": {"secretKeyRef": {"name": "kafka", "key": name}}} for name in names
        ]

    return change


def all_of_a_secret(objects: Objects) -> None:
    key_container(objects)["env"].remove(key_variable(objects))
    main(objects)["envFrom"] = [{"secretRef": {"name": "model"}}]


def secret_volume(objects: Objects) -> None:
    pod(objects)["volumes"].append({"name": "kafka", "secret": {"secretName": "kafka"}})
    main(objects)["volumeMounts"].append({"name": "kafka", "mountPath": "/etc/kafka", "readOnly": True})


def no_key(objects: Objects) -> None:
    key_container(objects)["env"].remove(key_variable(objects))


def own_model(setup: str) -> Change:
    return agent_file("model: openai:gpt-4.1-mini", f"chat_model_setups: {{m: {{{setup}}}}}")


def lock_in_the_config_map(objects: Objects) -> None:
    one(objects, "ConfigMap")["data"]["skills.lock"] = "{}"


def marked_as_baked(objects: Objects) -> None:
    one(objects, "FlinkDeployment")["metadata"]["annotations"] = {"flink-skills/skills-baked": "component"}


ACCEPTED: dict[str, Change] = {
    "budget in percent": budget(minAvailable="50%"),
    "budget from the other side": budget(maxUnavailable=1),
    "excluded agent": configure(
        job__autoscaler__enabled="true",
        job__autoscaler__vertex__exclude__ids="bc764cd8ddf7a0cff126f51c16239658;b938dfb9936ee2cb3db61e7e1c092f91",
    ),
    "agent with an evaluator": configure(
        job__autoscaler__enabled="true", job__autoscaler__metrics__custom_evaluators="capacity"
    ),
    "range of ports": configure(metrics__reporter__prom__port="9249-9260"),
    "config with a sign": arguments(f"--config={CONFIG}"),
    "assignments": arguments("--config", CONFIG, "--set", "skills.turn.timeout=1 min", "--set", "pipeline.name=x"),
    "options of the driver": put(
        "job", "args", value=["-pyfs", "/opt/x", "-pym", "flink_skills.job", "--config", CONFIG]
    ),
    "job file in the image": arguments("--config", "/opt/flink/usrlib/triage.yaml"),
    "main of one's own": both(
        put("job", "args", value=["-py", "/opt/flink/usrlib/job.py", "--topic", "x"]),
        configure(skills__from__urls=None),
    ),
    "key in all of a secret": all_of_a_secret,
    "key under another name": both(
        no_key, from_secret("MINE"), own_model("clazz: 'openai:gpt-4.1-mini', api_key_env: MINE")
    ),
    "key in a file of a secret": both(
        no_key, secret_volume, own_model("clazz: 'openai:gpt-4.1-mini', api_key_file: /etc/kafka/key")
    ),
    "local server without a key": both(no_key, own_model("clazz: 'openai:x', base_url: 'http://localhost:8000/v1'")),
    "public model": both(no_key, own_model("clazz: 'openai:x', base_url: 'https://models.example.com/v1'")),
    "address from a secret": both(
        from_secret("URL"), own_model("clazz: openai-compatible.setup, model: x, base_url: '${env:URL}'")
    ),
    "value from a secret": both(
        from_secret("GROUP"), job_file("'log-triage',\n    'scan", "'${env:GROUP}',\n    'scan")
    ),
    "value with a default": job_file("'group-offsets'", "'${env:START:-group-offsets}'"),
    "reference in a comment": job_file("'format' = 'json'", "-- '${env:START}', was once\n    'format' = 'json'"),
    "option from a secret": both(from_secret("LIMIT"), options_of_the_job("skills.run.timeout: '${env:LIMIT}'")),
    "folder from a secret": both(from_secret("DIR"), options_of_the_job("skills.workspace.dir: '${env:DIR}'")),
    "file of a secret": both(secret_volume, job_file("'group-offsets'", "'${file:/etc/kafka/start}'")),
    "brokers from a variable": both(
        lambda o: main(o)["env"].append({"name": "BROKERS", "value": "kafka-bootstrap.kafka:9092"}),
        job_file("'kafka-bootstrap.kafka:9092'", "'${env:BROKERS}'"),
    ),
    "brokers that were": job_file("'format' = 'json'", "-- 'bootstrap.servers' = 'old:9093'\n    'format' = 'json'"),
    "skills elsewhere below /opt": configure(skills__from__paths="/opt/triage/skills"),
    "skills elsewhere in the image": both(marked_as_baked, configure(skills__from__paths="/srv/skills")),
    "skills of the job's file": both(
        configure(skills__from__urls=None),
        job_file("agent: agent.yaml", "skills: {paths: [/opt/flink/skills]}\nagent: agent.yaml"),
    ),
    "lock file": both(lock_in_the_config_map, configure(skills__lock="/opt/flink/job/skills.lock")),
    "durations": configure(execution__checkpointing__interval="PT30S"),
    "managed memory by size": configure(taskmanager__memory__managed__size="256m"),
    "class in the image": job_file("agent: agent.yaml", "agent: triage.agents:Triage"),
    "table in the image": job_file("'topic' = 'failures'", "'path' = '/opt/flink/usrlib/data.json'"),
    "table in a store": job_file("'topic' = 'failures'", "'path' = 's3://my-bucket/failures'"),
}


@pytest.mark.parametrize("name", ACCEPTED)
def test_it_is_no_finding(name: str, rendered: dict[str, Manifests]) -> None:
    assert check(changed(rendered["production"], ACCEPTED[name])) == []


def test_a_copy_with_another_prefix_selects_its_own_pods(tmp_path: Path) -> None:
    shutil.copytree(DEPLOY, tmp_path / "deploy", ignore=shutil.ignore_patterns("__pycache__"))
    overlay = tmp_path / "deploy" / "overlays" / "other"
    shutil.copytree(DEPLOY / "overlays" / "production", overlay)
    file = overlay / "kustomization.yaml"
    file.write_text(file.read_text("utf-8").replace("namePrefix: log-triage-", "namePrefix: other-"), "utf-8")
    manifests = render(overlay)
    assert check(manifests) == []
    (cluster,) = clusters(manifests)
    (policy,) = manifests.of_kind("NetworkPolicy")
    (disruption,) = manifests.of_kind("PodDisruptionBudget")
    spread = cluster.pods["jobmanager"]["spec"]["topologySpreadConstraints"][0]
    for labels in (
        policy["spec"]["podSelector"]["matchLabels"],
        policy["spec"]["ingress"][0]["from"][0]["podSelector"]["matchLabels"],
        policy["spec"]["egress"][0]["to"][0]["podSelector"]["matchLabels"],
        disruption["spec"]["selector"]["matchLabels"],
        spread["labelSelector"]["matchLabels"],
    ):
        assert labels["app"] == "other-agent"


@pytest.mark.parametrize("odd", [7, "odd", ["odd"], {"odd": 7}, None], ids=str)
@pytest.mark.parametrize(
    "field",
    ["podTemplate", "jobManager", "taskManager", "job", "flinkConfiguration", "logConfiguration", "serviceAccount"],
)
def test_manifests_of_another_form_are_findings_and_no_traceback(
    field: str, odd: Any, rendered: dict[str, Manifests]
) -> None:
    manifests = changed(rendered["production"], put(field, value=odd))
    found = check(manifests)
    needs(manifests)
    assert found
    assert all(finding.place for finding in found)


def test_containers_and_volumes_of_another_form_are_findings(rendered: dict[str, Manifests]) -> None:
    def odd(objects: Objects) -> None:
        pod(objects)["containers"] = [{"image": "x:1.0"}]
        pod(objects)["volumes"] = ["tmp"]
        spec(objects)["job"]["args"] = [7, {"a": 1}]

    found = [str(finding) for finding in check(changed(rendered["production"], odd))]
    assert any(line.startswith("FlinkDeployment log-triage-agent") and "cannot read it" in line for line in found)


@pytest.mark.parametrize(
    ("words", "config"),
    [
        (["-pym", "flink_skills.job", "--config", "/a"], "/a"),
        (["--pyModule", "flink_skills.job", "--conf=/a"], "/a"),
        (["-pyexec", "python3", "-pym", "flink_skills.job", "--set", "a=b", "--config", "/a"], "/a"),
    ],
)
def test_arguments_are_read_as_the_main_reads_them(words: list[str], config: str) -> None:
    found = read_arguments(words)
    assert found is not None
    assert (found.config, found.problem) == (config, "")


def test_a_main_of_somebody_else_is_not_read() -> None:
    assert read_arguments(["-py", "/opt/flink/usrlib/job.py", "--config", "/a"]) is None


def test_durations_ports_and_sizes() -> None:
    assert [read_duration(text) for text in ("5 min", "PT1M30S", "500", "1 d", "5 sec s", "soon", "P")] == [
        300.0,
        90.0,
        0.5,
        86400.0,
        None,
        None,
        None,
    ]
    assert [read_ports(text) for text in ("9249", "1-3, 7", "3-1", "prom", "0")] == [
        {9249},
        {1, 2, 3, 7},
        set(),
        set(),
        set(),
    ]
    assert [read_size(text) for text in ("1Gi", "1G", "1.5Ki", "1e3", "2 gigs")] == [1 << 30, 10**9, 1536, 1000, None]
