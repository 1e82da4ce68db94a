"""The page of metrics, the dashboard and the alerts are those of the list."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml

from flink_skills.telemetry import METRICS, metric
from tests.docs.observability import FOLDER, alert_expressions, dashboard, dashboard_expressions, names_in
from tests.docs.pages import ROOT

LISTED = {of.prometheus: of for of in METRICS}
WRITERS = {"docs/gen_metrics.py": "PAGE", "deploy/observability/gen_dashboard.py": "TARGET"}


def script(path: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(Path(path).stem, ROOT / path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("path", WRITERS)
def test_what_is_written_from_the_list_is_current(path: str) -> None:
    assert script(path).main(["--check"]) == 0, f"run: python {path}"


@pytest.mark.parametrize("path", WRITERS)
def test_what_is_not_current_is_found_and_fixed(path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = script(path)
    target = tmp_path / "target"
    old = getattr(module, WRITERS[path]).read_text()
    target.write_text(old.replace("requestFailures", "failedRequests"))
    monkeypatch.setattr(module, WRITERS[path], target)
    assert module.main(["--check"]) == 1
    assert module.main([]) == 0
    assert target.read_text() == old


def test_names_are_there_once() -> None:
    assert len(LISTED) == len(METRICS)
    assert all(re.fullmatch("[a-z][A-Za-z]+", of.name) for of in METRICS)
    with pytest.raises(KeyError):
        metric("inputTokens")


@pytest.mark.parametrize("expression", sorted({*dashboard_expressions(), *alert_expressions()}))
def test_expressions_ask_for_metrics_of_the_list_by_labels_that_they_have(expression: str) -> None:
    assert names_in(expression), "an expression without a metric"
    assert names_in(expression) <= set(LISTED)
    assert balanced(expression)
    ours = {label for name in names_in(expression) for label in LISTED[name].labels}
    flinks = {"job_name", "operator_name", "tm_id"}
    grouped = {label.strip() for group in re.findall(r"by \(([^)]*)\)", expression) for label in group.split(",")}
    assert grouped <= ours | flinks
    for name in names_in(expression):
        # What counts is asked for by its rate, and only that.
        counts = LISTED[name].kind == "counter"
        rated = re.search(rf"(?:rate|increase)\({name}\b", expression) is not None
        assert rated == counts or expression.startswith("label_values")
        if LISTED[name].kind == "histogram":
            assert re.search(rf'{name}\{{[^}}]*quantile="0\.\d+"', expression)


def balanced(expression: str) -> bool:
    left: list[str] = []
    for sign in re.sub(r'"[^"]*"', "", expression):
        if sign in "([{":
            left.append({"(": ")", "[": "]", "{": "}"}[sign])
        elif sign in ")]}" and (not left or left.pop() != sign):
            return False
    return not left


def test_every_metric_is_on_the_dashboard() -> None:
    shown = {name for expression in dashboard_expressions() for name in names_in(expression)}
    # Totals of times are there as means, what is in a log line only is not.
    missing = {LISTED[name].name for name in set(LISTED) - shown}
    assert missing == {"turnTime", "toolTime", "stepTime", "stepRuns", "stepFailures", "diagnosticInfos", "refreshes"}


def test_panels_have_places_of_their_own_and_a_data_source() -> None:
    content = dashboard()
    taken: set[tuple[int, int]] = set()
    for panel in content["panels"]:
        place = panel["gridPos"]
        cells = {(place["x"] + x, place["y"] + y) for x in range(place["w"]) for y in range(place["h"])}
        assert place["x"] + place["w"] <= 24
        assert not cells & taken, panel["title"]
        taken |= cells
        assert panel["type"] == "row" or panel["datasource"]["uid"] == "${datasource}"
    assert len({panel["id"] for panel in content["panels"]}) == len(content["panels"])
    variables = {variable["name"] for variable in content["templating"]["list"]}
    used = {name for text in dashboard_expressions() for name in re.findall(r"\$(\w+)", text)}
    assert used - {"__rate_interval", "__range"} <= variables == {"datasource", "job", "operator"}


def test_alerts_say_what_is_wrong_and_what_to_look_at() -> None:
    content: dict[str, Any] = yaml.safe_load((FOLDER / "alerts.yaml").read_text())
    assert content["kind"] == "PrometheusRule"
    rules = [rule for group in content["spec"]["groups"] for rule in group["rules"]]
    assert len({rule["alert"] for rule in rules}) == len(rules)
    for rule in rules:
        assert rule["labels"]["severity"] in ("warning", "critical")
        assert rule["annotations"]["summary"] and rule["annotations"]["description"]
    asked = {LISTED[name].name for expression in alert_expressions() for name in names_in(expression)}
    assert asked >= {"isolationLevel", "failures", "failedSources", "workerRestarts", "pending"}
