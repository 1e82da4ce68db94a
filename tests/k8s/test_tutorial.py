"""Steps 9 and 10 of the tutorial: its overlay under the operator, and a new version of its skill and back."""

from __future__ import annotations

import json
import shutil
import subprocess

import pytest

from tests.docs.pages import ROOT, blocks_of
from tests.k8s.deployment import DATA
from tests.k8s.kubectl import Kubectl
from tests.k8s.orders import EXAMPLES, TASK_MANAGER, Orders

pytestmark = pytest.mark.k8s


@pytest.fixture(scope="module")
def shop(operator: None, namespace: Kubectl, tmp_path_factory: pytest.TempPathFactory) -> Orders:
    found = Orders(namespace, tmp_path_factory.mktemp("shop"))
    found.in_desk(f"mkdir -p {DATA}/orders {DATA}/answers")
    found.deploy()
    return found


def test_the_orders_of_the_tutorial_are_answered_in_a_restricted_pod(shop: Orders) -> None:
    orders = [json.loads(line) for line in (EXAMPLES / "orders.jsonl").read_text().splitlines()]
    answers = shop.answer(orders)
    assert answers["A-1"] == "Order A-1 arrived 3 days late. Shipping is free."
    report = json.loads(
        shop.kubectl.execute(shop.kubectl.pod(TASK_MANAGER), "flink-skills", "doctor", "--format", "json")
    )
    assert report["level"] in ("LANDLOCK", "NAMESPACE"), report


def test_a_new_version_of_the_skill_answers_and_can_be_rolled_back(shop: Orders) -> None:
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
