"""The log triage job of ``deploy/overlays/local`` in a namespace of its own: what tests do with it and ask of it."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import shlex
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from tests.k8s.kubectl import Kubectl, wait_until

CHECKOUT = Path(__file__).resolve().parents[2]
DEPLOY = CHECKOUT / "deploy"
NAME = "log-triage-agent"
DATA = "/flink-data"
#: The image as it was loaded into the cluster; its second version has another tag.
IMAGE = os.environ.get("FLINK_SKILLS_TEST_IMAGE", "localhost/flink-skills:test")
IMAGE_2 = os.environ.get("FLINK_SKILLS_TEST_IMAGE_2", "localhost/flink-skills:test-2")
JOB_MANAGER = f"app={NAME},component=jobmanager"
TASK_MANAGER = f"app={NAME},component=taskmanager"
#: The name and the key of the secret that the probing skill must not see.
SECRET = "PLANTED_API_KEY"
PLANTED_VALUE = secrets.token_hex(16)
_START = 900.0  # seconds for two JVMs and a Python to start on a busy machine


@dataclass(frozen=True)
class Variant:
    """A change of the overlay: the image, components of ``deploy/components``, files of ConfigMaps, JSON patches."""

    image: str = IMAGE
    components: Sequence[str] = ()
    config_maps: Mapping[str, Sequence[Path]] = field(default_factory=dict)
    patches: Sequence[Mapping[str, Any]] = ()


@contextlib.contextmanager
def overlay(kubectl: Kubectl, variant: Variant) -> Iterator[Path]:
    """A kustomization of the local overlay with the variant's changes, in the tests' namespace."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name).resolve()
        shutil.copy(DEPLOY / "base" / "flink-kinds.yaml", folder)
        image, _, tag = variant.image.rpartition(":")
        for files in variant.config_maps.values():
            for file in files:
                shutil.copy(file, folder)
        patch = {"target": {"kind": "FlinkDeployment"}, "patch": json.dumps(list(variant.patches))}
        kustomization = {
            "apiVersion": "kustomize.config.k8s.io/v1beta1",
            "kind": "Kustomization",
            "namespace": kubectl.namespace,
            "resources": [os.path.relpath(DEPLOY / "overlays" / "local", folder)],
            "components": [os.path.relpath(DEPLOY / "components" / of, folder) for of in variant.components],
            "configurations": ["flink-kinds.yaml"],
            "images": [{"name": "flink-skills", "newName": image, "newTag": tag}],
            "configMapGenerator": [
                {"name": of, "files": [file.name for file in files]} for of, files in variant.config_maps.items()
            ],
            "patches": [patch] if variant.patches else [],
        }
        (folder / "kustomization.yaml").write_text(yaml.safe_dump(kustomization))
        yield folder


def render(kubectl: Kubectl, variant: Variant) -> list[dict[str, Any]]:
    """The objects of the overlay with the variant's changes, as ``kubectl kustomize`` makes them."""
    with overlay(kubectl, variant) as folder:
        return without_claims(kubectl.run("kustomize", str(folder)))


def without_claims(text: str) -> list[dict[str, Any]]:
    """The objects in a YAML text. The tests' own claims are there already, on the volumes that this cluster has."""
    return [found for found in yaml.safe_load_all(text) if found and found["kind"] != "PersistentVolumeClaim"]


def add(path: str, value: object) -> dict[str, object]:
    """A JSON patch that adds or replaces."""
    return {"op": "add", "path": path, "value": value}


#: What the tests need besides the overlay: the secret in the pods, in both forms, and the skills of the jar.
PLANTED = (
    add("/spec/flinkConfiguration/skills.from.resources", "skills"),
    add(
        "/spec/podTemplate/spec/containers/0/env/-",
        {"name": SECRET, "valueFrom": {"secretKeyRef": {"name": "planted", "key": "key"}}},
    ),
    add("/spec/podTemplate/spec/volumes/-", {"name": "planted", "secret": {"secretName": "planted"}}),
    add(
        "/spec/podTemplate/spec/containers/0/volumeMounts/-",
        {"name": "planted", "mountPath": "/etc/planted", "readOnly": True},
    ),
)


class Job:
    """The deployed job. ``desk`` is a pod of the tests' own, with the job's volume: events in, answers out."""

    def __init__(self, kubectl: Kubectl, desk: str) -> None:
        self.kubectl = kubectl
        self._desk = desk
        self._batches = 0

    def deploy(self, variant: Variant) -> None:
        """Apply the overlay, or an upgrade of it, and wait until the operator says that it runs and is stable."""
        self.kubectl.apply(*render(self.kubectl, variant))

        def stable() -> bool:
            found = self.kubectl.get("flinkdeployment", NAME)
            status = found.get("status", {})
            error = status.get("error")
            assert not (error and status.get("lifecycleState") == "FAILED"), f"the operator gave up: {error}"
            return bool(
                status.get("observedGeneration") == found["metadata"]["generation"]
                and status.get("jobStatus", {}).get("state") == "RUNNING"
                and status.get("lifecycleState") == "STABLE"
            )

        wait_until(stable, _START, f"{NAME} with {variant.image} to run")

    def send(self, events: Sequence[Mapping[str, Any]]) -> list[str]:
        """Give events to the job as one file that appears at once; returns their ids."""
        self._batches += 1
        path = f"{DATA}/incidents"
        whole = {"flink": "", "source": "", "lines": []}
        lines = "".join(json.dumps({**whole, **event}) + "\n" for event in events)
        # Files whose name begins with a dot are not read.
        script = f"cat > {path}/.coming && mv {path}/.coming {path}/batch-{self._batches}.jsonl"
        self.kubectl.execute(self._desk, "sh", "-ec", script, stdin=lines)
        return [event["incident"] for event in events]

    def answers(self) -> list[dict[str, Any]]:
        """The committed outputs, in no order."""
        script = f'for file in {DATA}/answers/*; do if [ -f "$file" ]; then cat "$file"; fi; done'
        lines = self.kubectl.execute(self._desk, "sh", "-ec", script).split("\n")
        return [json.loads(line) for line in lines if line]

    def wait_for(self, ids: Sequence[str], deadline: float = 240) -> dict[str, list[str]]:
        """The answers to these events, once there is one to each; all that came to each are in it."""

        def complete() -> dict[str, list[str]] | None:
            found: dict[str, list[str]] = {name: [] for name in ids}
            for answer in self.answers():
                if answer["incident"] in found:
                    found[answer["incident"]].append(answer["answer"])
            return found if all(found.values()) else None

        return wait_until(complete, deadline, f"answers to {len(ids)} events")

    def ask(self, incident: str, text: str, *more: str, key: str = "tests") -> Any:
        """Send one event and return its one answer, JSON."""
        answer = self.answer(incident, text, *more, key=key)
        try:
            return json.loads(answer)
        except ValueError:
            raise AssertionError(f"{incident}: {answer}") from None

    def answer(self, incident: str, text: str, *more: str, key: str = "tests") -> str:
        """Send one event and return its one answer, whatever it is."""
        found = self.wait_for(self.send([{"job": key, "incident": incident, "lines": [text, *more]}]))[incident]
        assert len(found) == 1, f"{incident} was answered {len(found)} times"
        return str(found[0])

    def shell(self, command: str) -> str:
        """The output of a command in the folder of the volume."""
        return self.kubectl.execute(self._desk, "sh", "-ec", f"cd {DATA} && {command}")

    def task_manager(self) -> str:
        """The TaskManager's pod."""
        return self.kubectl.pod(TASK_MANAGER)

    def doctor(self, *arguments: str) -> dict[str, Any]:
        """What ``flink-skills doctor`` says in the TaskManager's pod."""
        command = ["flink-skills", "doctor", "--format", "json", *arguments]
        text = self.kubectl.execute(self.task_manager(), "sh", "-c", f"{shlex.join(command)} || true")
        return dict(json.loads(text))
