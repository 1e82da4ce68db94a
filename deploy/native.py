"""An overlay without the operator: what Flink's own client needs for ``flink run --target kubernetes-application``.

    python -m deploy.native deploy/overlays/local --namespace agents --output build/native

It writes ``objects.yaml`` (accounts, roles, ConfigMaps, policies, for ``kubectl apply``), the merged pod templates of
both roles, Flink's configuration (``conf``), and ``run.sh`` with the client's command.
"""

from __future__ import annotations

import argparse
import shlex
from pathlib import Path

import yaml

from deploy.check.pods import MAIN, Cluster, clusters
from deploy.check.render import render

__all__ = ["configuration", "main", "template"]

OF_THE_OPERATOR = "kubernetes.operator."


def main(arguments: list[str] | None = None) -> None:
    """Write the files of one overlay."""
    parser = argparse.ArgumentParser(
        prog="python -m deploy.native", description=str(__doc__).split("\n", maxsplit=1)[0]
    )
    parser.add_argument("overlay", type=Path, help="the folder of the overlay")
    parser.add_argument("--namespace", required=True, help="where the job is to run")
    parser.add_argument("--output", type=Path, default=Path("build/native"), help="the folder to write")
    given = parser.parse_args(arguments)
    manifests = render(given.overlay)
    found = [cluster for cluster in clusters(manifests) if "job" in cluster.spec]
    if len(found) != 1:
        parser.error(f"{given.overlay} has {len(found)} FlinkDeployments with a job, and must have one")
    cluster = found[0]
    given.output.mkdir(parents=True, exist_ok=True)
    others = [found for found in manifests.objects if not str(found["apiVersion"]).startswith("flink.apache.org/")]
    (given.output / "objects.yaml").write_text(yaml.safe_dump_all(others, sort_keys=False), encoding="utf-8")
    for role in cluster.pods:
        (given.output / f"{role}.yaml").write_text(template(cluster, role), encoding="utf-8")
    conf = given.output / "conf"
    conf.mkdir(exist_ok=True)
    (conf / "config.yaml").write_text(yaml.safe_dump(configuration(cluster, given.namespace)), encoding="utf-8")
    for text in cluster.spec.get("logConfiguration", {}).values():
        # The pods get the first one; the client itself reads the second one.
        for name in ("log4j-console.properties", "log4j-cli.properties"):
            (conf / name).write_text(text, encoding="utf-8")
    (given.output / "run.sh").write_text(_script(cluster), encoding="utf-8")


def _script(cluster: Cluster) -> str:
    job = cluster.spec["job"]
    words = ["flink", "run", "--target", "kubernetes-application", "--class", job["entryClass"], job["jarURI"]]
    return (
        "#!/usr/bin/env bash\nset -euo pipefail\n"
        'cd "$(dirname "$0")"\nexport FLINK_CONF_DIR=$PWD/conf\n'
        f"exec {shlex.join([*words, *job['args']])}\n"
    )


def template(cluster: Cluster, role: str) -> str:
    """The pod template of a role as Flink's client reads it: a whole pod, its templates merged."""
    pod = cluster.pods[role]
    spec = {key: value for key, value in pod["spec"].items() if key != "serviceAccountName"}
    spec["containers"] = [
        {key: value for key, value in container.items() if not (key == "image" and container["name"] == MAIN)}
        for container in spec["containers"]
    ]
    own = {"app", "component", "type"}  # Flink's
    metadata = {**pod["metadata"], "labels": {k: v for k, v in pod["metadata"]["labels"].items() if k not in own}}
    return yaml.safe_dump({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}, sort_keys=False)


def configuration(cluster: Cluster, namespace: str) -> dict[str, str]:
    """Flink's configuration; the fields that the operator reads become options."""
    spec = cluster.spec
    options = {key: value for key, value in cluster.configuration.items() if not key.startswith(OF_THE_OPERATOR)}
    options |= {
        "kubernetes.cluster-id": cluster.name,
        "kubernetes.namespace": namespace,
        "kubernetes.container.image.ref": spec["image"],
        "kubernetes.container.image.pull-policy": spec.get("imagePullPolicy", "IfNotPresent"),
        "kubernetes.jobmanager.replicas": str(spec["jobManager"].get("replicas", 1)),
        "parallelism.default": str(spec["job"]["parallelism"]),
    }
    for role, field in (("jobmanager", "jobManager"), ("taskmanager", "taskManager")):
        resource = spec[field]["resource"]
        options[f"kubernetes.{role}.service-account"] = str(cluster.account(role))
        options[f"kubernetes.{role}.cpu.amount"] = str(resource["cpu"])
        options[f"{role}.memory.process.size"] = resource["memory"]
        options[f"kubernetes.pod-template-file.{role}"] = f"{role}.yaml"
    return options


if __name__ == "__main__":
    main()
