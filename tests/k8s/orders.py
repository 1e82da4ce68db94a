"""The job of the tutorial with its overlay, as tests use it.

The tables of the job are directories on the volume, because the cluster of the tests has no image of a Kafka broker.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from tests.docs.pages import ROOT
from tests.k8s.deployment import DATA, IMAGE, without_claims
from tests.k8s.kubectl import Kubectl, wait_until
from tests.k8s.volume import STATE

NAME = "orders-agent"
EXAMPLES = ROOT / "examples/tutorial"
JOB_MANAGER, TASK_MANAGER = (f"app={NAME},component={component}" for component in ("jobmanager", "taskmanager"))
_START = 900.0
#: Options of a table that is a directory.
FILES = (
    "'connector' = 'filesystem', 'path' = 'file://{path}', 'format' = 'json', 'source.monitor-interval' = '1 s', "
    "'sink.rolling-policy.rollover-interval' = '2 s', 'sink.rolling-policy.check-interval' = '1 s'"
)


class Orders:
    """A copy of the tutorial's files, and the job that they deploy."""

    def __init__(self, kubectl: Kubectl, folder: Path) -> None:
        self.kubectl = kubectl
        self.folder = folder
        self._desk = kubectl.pod("app=desk")
        shutil.copytree(EXAMPLES, folder, dirs_exist_ok=True)
        (folder / "deploy").symlink_to(ROOT / "deploy")
        overlay = folder / "kubernetes"
        shutil.copy(folder / "agent.yaml", overlay)
        self.job = overlay / "job.yaml"
        self.agent = overlay / "agent.yaml"
        self.job.write_text(_on_files(self.job.read_text(encoding="utf-8")), encoding="utf-8")
        kustomization = yaml.safe_load((overlay / "kustomization.yaml").read_text(encoding="utf-8"))
        name, _, tag = IMAGE.rpartition(":")
        kustomization["images"] = [{"name": "flink-skills", "newName": name, "newTag": tag}]
        (overlay / "kustomization.yaml").write_text(yaml.safe_dump(kustomization), encoding="utf-8")

    def deploy(self, state: str = "running") -> None:
        """Pack the skills, apply the overlay and wait until the job is in ``state``: running or suspended."""
        words = [sys.executable, "-m", "flink_skills.cli", "pack", "skills", "-o", "kubernetes/skills.zip"]
        subprocess.run(words, cwd=self.folder, check=True, capture_output=True)
        # The tests' own claim takes the name of the overlay's.
        text = self.kubectl.run("kustomize", str(self.folder / "kubernetes")).replace("orders-state", STATE)
        objects = without_claims(text)
        for item in objects:
            if item["kind"] == "FlinkDeployment":
                item["spec"]["job"]["state"] = state
        self.kubectl.apply(*objects)

        def reached() -> bool:
            found = self.kubectl.get("flinkdeployment", NAME)
            status = found.get("status", {})
            assert status.get("lifecycleState") != "FAILED", f"the operator gave up: {status.get('error')}"
            current = status.get("observedGeneration") == found["metadata"]["generation"]
            if state == "suspended":
                pods = self.kubectl.names("pods", f"app={NAME}")
                return current and status.get("lifecycleState") == "SUSPENDED" and not pods
            job = status.get("jobStatus", {}).get("state")
            return bool(current and job == "RUNNING" and status.get("lifecycleState") == "STABLE")

        wait_until(reached, _START, f"{NAME} to be {state}")

    def send(self, table: str, name: str, rows: Sequence[Mapping[str, Any]]) -> None:
        """Write rows as one new file of a table."""
        lines = "".join(f"{json.dumps(row)}\n" for row in rows)
        folder = f"{DATA}/{table}"
        script = f"mkdir -p {folder} && cd {folder} && cat > .{name} && mv .{name} {name}.jsonl"
        self.in_desk(script, lines)

    def rows(self, table: str) -> list[dict[str, Any]]:
        """Return the committed rows of a table."""
        text = self.in_desk(f'for file in {DATA}/{table}/*; do [ ! -f "$file" ] || cat "$file"; done')
        return [json.loads(line) for line in text.split("\n") if line]

    def answer(self, orders: Sequence[dict[str, str]]) -> dict[str, str]:
        """Send the orders as one file, and return the answers by order when all have arrived."""
        self.send("orders", orders[0]["order_id"], orders)
        return self.answers([order["order_id"] for order in orders])

    def answers(self, ids: Sequence[str]) -> dict[str, str]:
        """Return the answers to these orders when all have arrived. An order with two answers is an error."""

        def complete() -> dict[str, str] | None:
            found = [row for row in self.rows("answers") if row["order_id"] in ids]
            answers = {row["order_id"]: row["answer"] for row in found}
            assert len(answers) == len(found), found
            return answers if len(answers) == len(ids) else None

        return wait_until(complete, 240, f"answers to {len(ids)} orders")

    def in_desk(self, script: str, stdin: str = "") -> str:
        """Return the output of a script in the pod with the job's volume."""
        return self.kubectl.execute(self._desk, "sh", "-ec", script, stdin=stdin)


def _on_files(job: str) -> str:
    """Replace each Kafka table of a job file by a directory of the volume that has its name."""
    return re.sub(
        r"(CREATE TABLE (\w+) \([^)]*\)\s+WITH )\('connector' = 'kafka'.*?\);",
        lambda match: f"{match[1]}({FILES.format(path=f'{DATA}/{match[2]}')});",
        job,
        flags=re.DOTALL,
    )
