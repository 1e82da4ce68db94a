"""What the dashboard and the alerts ask Prometheus for."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import yaml

from tests.docs.pages import ROOT

FOLDER = ROOT / "deploy/observability"

_NAME = re.compile(r"\bflink_\w+")


def dashboard() -> dict[str, Any]:
    content: dict[str, Any] = json.loads((FOLDER / "grafana-dashboard.json").read_text(encoding="utf-8"))
    return content


def dashboard_expressions() -> Iterator[str]:
    """The expressions of all panels, and the queries of the variables."""
    content = dashboard()
    for panel in content["panels"]:
        for target in panel.get("targets", ()):
            yield target["expr"]
    for variable in content["templating"]["list"]:
        if variable["type"] == "query":
            yield variable["query"]["query"]


def alert_expressions() -> Iterator[str]:
    content = yaml.safe_load((FOLDER / "alerts.yaml").read_text(encoding="utf-8"))
    for group in content["spec"]["groups"]:
        for rule in group["rules"]:
            yield rule["expr"]


def names_in(expression: str) -> set[str]:
    """The names of metrics in an expression."""
    return set(_NAME.findall(expression))
