"""Steps 9 and 10 of the tutorial: its overlay under the operator, and a new version of its skill and back.

The tables of the job are files on the volume, because the cluster of the tests has no image of a Kafka broker.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
import yaml

from tests.docs.pages import ROOT, blocks_of
from tests.k8s.deployment import DATA, IMAGE, without_claims
from tests.k8s.kubectl import Kubectl, wait_until
from tests.k8s.volume import STATE

pytestmark = pytest.mark.k8s

NAME = "orders-agent"
EXAMPLES = ROOT / "examples/tutorial"
_START = 900.0
_FILES = (
    "'connector' = 'filesystem', 'path' = 'file://{path}', 'format' = 'json', 'source.monitor-interval' = '1 s', "
    "'sink.rolling-policy.rollover-interval' = '2 s', 'sink.rolling-policy.check-interval' = '1 s'"
)


class Shop:
    """A reader's directory, and the job that it deploys."""

    def __init__(self, kubectl: Kubectl, folder: Path) -> None:
        self.kubectl = kubectl
        self.folder = folder
        self._desk = kubectl.pod("app=desk")
        shutil.copytree(EXAMPLES, folder, dirs_exist_ok=True)
        (folder / "deploy").symlink_to(ROOT / "deploy")
        overlay = folder / "kubernetes"
        shutil.copy(folder / "agent.yaml", overlay)
        job = overlay / "job.yaml"
        job.write_text(_on_files(job.read_text(encoding="utf-8")), encoding="utf-8")
        kustomization = yaml.safe_load((overlay / "kustomization.yaml").read_text(encoding="utf-8"))
        name, _, tag = IMAGE.rpartition(":")
        kustomization["images"] = [{"name": "flink-skills", "newName": name, "newTag": tag}]
        (overlay / "kustomization.yaml").write_text(yaml.safe_dump(kustomization), encoding="utf-8")
        self._in_desk(f"mkdir -p {DATA}/orders {DATA}/answers")

    def deploy(self) -> None:
        """Pack the skills, apply the overlay and wait until the job is stable."""
        words = [sys.executable, "-m", "flink_skills.cli", "pack", "skills", "-o", "kubernetes/skills.zip"]
        subprocess.run(words, cwd=self.folder, check=True, capture_output=True)
        # The tests' own claim takes the name of the overlay's.
        text = self.kubectl.run("kustomize", str(self.folder / "kubernetes")).replace("orders-state", STATE)
        self.kubectl.apply(*without_claims(text))

        def stable() -> bool:
            found = self.kubectl.get("flinkdeployment", NAME)
            status = found.get("status", {})
            assert status.get("lifecycleState") != "FAILED", f"the operator gave up: {status.get('error')}"
            return bool(
                status.get("observedGeneration") == found["metadata"]["generation"]
                and status.get("jobStatus", {}).get("state") == "RUNNING"
                and status.get("lifecycleState") == "STABLE"
            )

        wait_until(stable, _START, f"{NAME} to run")

    def answer(self, orders: Sequence[dict[str, str]]) -> dict[str, str]:
        """Send the orders as one file, and return the answers by order when all have arrived."""
        lines = "".join(f"{json.dumps(order)}\n" for order in orders)
        name = orders[0]["order_id"]
        self._in_desk(f"cd {DATA}/orders && cat > .{name} && mv .{name} {name}.jsonl", lines)

        def complete() -> dict[str, str] | None:
            text = self._in_desk(f'for file in {DATA}/answers/*; do [ ! -f "$file" ] || cat "$file"; done')
            found = [json.loads(line) for line in text.splitlines()]
            wanted = [order["order_id"] for order in orders]
            answers = {row["order_id"]: row["answer"] for row in found if row["order_id"] in wanted}
            return answers if len(answers) == len(wanted) else None

        return wait_until(complete, 240, f"answers to {len(orders)} orders")

    def _in_desk(self, script: str, stdin: str = "") -> str:
        return self.kubectl.execute(self._desk, "sh", "-ec", script, stdin=stdin)


def _on_files(job: str) -> str:
    """Replace each Kafka table of a job file by a directory of the volume that has its name."""
    return re.sub(
        r"(CREATE TABLE (\w+) \([^)]*\)\s+WITH )\('connector' = 'kafka'.*?\);",
        lambda match: f"{match[1]}({_FILES.format(path=f'{DATA}/{match[2]}')});",
        job,
        flags=re.DOTALL,
    )


@pytest.fixture(scope="module")
def shop(operator: None, namespace: Kubectl, tmp_path_factory: pytest.TempPathFactory) -> Shop:
    found = Shop(namespace, tmp_path_factory.mktemp("shop"))
    found.deploy()
    return found


def test_the_orders_of_the_tutorial_are_answered_in_a_restricted_pod(shop: Shop) -> None:
    orders = [json.loads(line) for line in (EXAMPLES / "orders.jsonl").read_text().splitlines()]
    answers = shop.answer(orders)
    assert answers["A-1"] == "Order A-1 arrived 3 days late. Shipping is free."
    pod = shop.kubectl.pod(f"app={NAME},component=taskmanager")
    report = json.loads(shop.kubectl.execute(pod, "flink-skills", "doctor", "--format", "json"))
    assert report["level"] in ("LANDLOCK", "NAMESPACE"), report


def test_a_new_version_of_the_skill_answers_and_can_be_rolled_back(shop: Shop) -> None:
    (change,) = {
        line
        for block in blocks_of(ROOT / "docs/tutorial-kubernetes.md")
        for line in block.text.splitlines()
        if "voucher" in line
    }
    subprocess.run(["sh", "-ec", change], cwd=shop.folder, check=True)
    late = {"customer": "eva", "promised": "2026-03-02", "delivered": "2026-03-03"}
    shop.deploy()
    assert shop.answer([{"order_id": "E-1", **late}])["E-1"].endswith("You get a voucher.")
    script = "skills/late-orders/scripts/lateness.py"
    shutil.copy(EXAMPLES / script, shop.folder / script)
    shop.deploy()
    assert shop.answer([{"order_id": "E-2", **late}])["E-2"].endswith("Shipping is free.")
