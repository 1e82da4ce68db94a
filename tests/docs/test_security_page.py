"""Compare the security pages with the escape suite, the recorded kernels and the manifests."""

from __future__ import annotations

import ast
import importlib.util
import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml

from deploy.check.pods import MAIN, clusters, containers
from deploy.check.render import render
from flink_skills.execution import IsolationLevel
from flink_skills.telemetry import METRICS, metric
from tests.docs.observability import FOLDER, alert_expressions, dashboard, dashboard_expressions, names_in
from tests.docs.pages import ROOT, all_pages, name_of, yaml_of
from tests.execution.escape.probes.kit import Attempt
from tests.execution.escape.test_attempts import ATTEMPTS

PAGE = ROOT / "docs/attacks.md"
LEVELS = ROOT / "docs/isolation.md"
LETTERS = {"HYGIENE": "H", "LANDLOCK_PARTIAL": "P", "LANDLOCK": "L", "NAMESPACE": "N"}
SUITE = ROOT / "tests/execution/escape"
SHOWN = ("all", "attempts", "canaries")


def table() -> dict[str, dict[str, str]]:
    """Return the rows of "Stopped attacks by level" by their first cell."""
    text = PAGE.read_text(encoding="utf-8")
    section = text[text.index("## Stopped attacks by level") :]
    lines = [line for line in section.splitlines() if line.startswith("|")]
    heads, *rows = [[cell.strip().strip("`") for cell in line.strip("|").split("|")] for line in lines[:1] + lines[2:]]
    found = {}
    for row in rows:
        if len(row) != len(heads):
            break  # the next table
        found[row[0]] = dict(zip(heads[1:], row[1:], strict=True))
    return found


def shown_by(cell: str) -> tuple[set[str], set[int]]:
    """The attempts that a cell names, and its rows: ``1, 3-6, not `name`, `other` ``."""
    names: set[str] = set()
    rows: set[int] = set()
    without: set[str] = set()
    for part in cell.split(", "):
        if numbers := re.fullmatch(r"(\d+)(?:-(\d+))?", part):
            first, last = int(numbers[1]), int(numbers[2] or numbers[1])
            rows |= set(range(first, last + 1))
        elif name := re.fullmatch(r"(not )?`?(\w+)`?", part):
            assert name[2] in ATTEMPTS, f"there is no attempt {name[2]}"
            (without if name[1] else names).add(name[2])
        else:
            pytest.fail(f"cannot read {part!r} in {cell!r}")
    names |= {one.name for one in ATTEMPTS.values() if one.row in rows}
    assert without <= names, without - names
    return names - without, rows


def verdict(attempts: list[Attempt], letter: str) -> str:
    """What the suite expects of the attempts at a level, in the words of the table."""
    stopped = [letter in one.stopped for one in attempts]
    assert all(stopped) or not any(stopped), f"not all the same at {letter}: {[one.name for one in attempts]}"
    return "stopped" if stopped[0] else "open"


def rows_with_a_test() -> set[int]:
    texts = [path.read_text(encoding="utf-8") for path in SUITE.glob("test_*.py")]
    return {int(number) for text in texts for number in re.findall(r"def test_row(\d+)_", text)}


@pytest.mark.parametrize("claim", table())
def test_the_suite_shows_what_the_table_claims(claim: str) -> None:
    row = table()[claim]
    names, rows = shown_by(row["Shown by"])
    attempts = [ATTEMPTS[name] for name in sorted(names)]
    for level, letter in LETTERS.items():
        if attempts:
            assert row[level] == verdict(attempts, letter), level
    with_attempts = {one.row for one in ATTEMPTS.values()}
    assert rows <= with_attempts | rows_with_a_test()


def test_the_table_has_every_attempt_once() -> None:
    found = [name for row in table().values() for name in shown_by(row["Shown by"])[0]]
    assert sorted(found) == sorted(ATTEMPTS)


def test_the_table_has_every_row_that_is_about_an_escape() -> None:
    rows = {one.row for one in ATTEMPTS.values()} | rows_with_a_test()
    named = {number for row in table().values() for number in shown_by(row["Shown by"])[1]}
    by_name = {ATTEMPTS[name].row for row in table().values() for name in shown_by(row["Shown by"])[0]}
    # 45 and 47: what works, and works at the same time.
    assert rows - named - by_name == {45, 47}


def test_each_column_names_the_kernels_that_showed_it() -> None:
    """A kernel showed a level where a backend proved it and no test of this backend failed."""
    shown: dict[str, dict[str, set[str]]] = {level: {tests: set() for tests in SHOWN} for level in LETTERS}
    for path in sorted((ROOT / "tests/kernel/shown").glob("*.json")):
        run = json.loads(path.read_text(encoding="utf-8"))
        release = ".".join(run["kernel"].split(".")[:2])
        for about in run["backends"].values():
            if about["level"] in shown and about["passed"] and not about["failed"]:
                # The complete suite has the attempts, and these have the canaries.
                for tests in SHOWN[SHOWN.index(run["tests"]) :]:
                    shown[about["level"]][tests].add(release)
    text = PAGE.read_text(encoding="utf-8")
    section = text[text.index("Kernels that showed each column") :]
    rows = re.findall(r"^\| `([A-Z_]+)` \|(.*)\|$", section, re.MULTILINE)[: len(LETTERS)]
    cells = {level: dict(zip(SHOWN, rest.split("|"), strict=True)) for level, rest in rows}
    assert {level: {name: _releases(cell) for name, cell in row.items()} for level, row in cells.items()} == shown


def _releases(cell: str) -> set[str]:
    return set(filter(None, cell.strip().split(", ")))


def test_every_level_has_a_row() -> None:
    text = LEVELS.read_text(encoding="utf-8")
    section = text[: text.index("## Selection")]
    listed = re.findall(r"^\| `([A-Z_]+)` \|", section, re.MULTILINE)
    assert listed == [level.name for level in sorted(IsolationLevel, reverse=True) if level]


def test_names_in_the_page_exist() -> None:
    for page in (PAGE, ROOT / "docs/approvals.md"):
        for path in re.findall(r"`(tests/[\w/.]+)`", page.read_text(encoding="utf-8")):
            assert (ROOT / path).exists(), path


@pytest.mark.parametrize("page", [page for page in all_pages() if yaml_of(page)], ids=name_of)
def test_yaml_is_yaml(page: Path) -> None:
    for text in yaml_of(page):
        documents = [document for document in yaml.safe_load_all(text) if document is not None]
        assert documents, f"{name_of(page)}: nothing in\n{text}"
        for document in documents:
            assert isinstance(document, dict | list), f"{name_of(page)}: no mapping or list in\n{text}"


def manifests(page: str) -> dict[str, Any]:
    """The Kubernetes objects of a page by their kind."""
    documents = [document for text in yaml_of(ROOT / page) for document in yaml.safe_load_all(text)]
    return {document["kind"]: document for document in documents if "kind" in document}


def test_the_overlay_for_production_hardens_as_the_page_says() -> None:
    manifests = render(ROOT / "deploy/overlays/production")
    (cluster,) = clusters(manifests)
    pod = cluster.pods["taskmanager"]["spec"]
    container = next(one for one in containers(cluster.pods["taskmanager"]) if one["name"] == MAIN)
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["runAsUser"] == 9999
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert container["securityContext"]["allowPrivilegeEscalation"] is False
    assert container["securityContext"]["readOnlyRootFilesystem"] is True
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    mounts = {mount["mountPath"]: mount["name"] for mount in container["volumeMounts"]}
    volumes = {volume["name"]: volume for volume in pod["volumes"]}
    workspaces = volumes[mounts[cluster.configuration["skills.workspace.dir"]]]
    assert "sizeLimit" in workspaces["emptyDir"]


def test_the_network_policy_closes_private_addresses() -> None:
    policy = yaml.safe_load((ROOT / "deploy/base/network-policy.yaml").read_text(encoding="utf-8"))
    assert set(policy["spec"]["policyTypes"]) == {"Ingress", "Egress"}
    blocks = [to["ipBlock"] for rule in policy["spec"]["egress"] for to in rule["to"] if "ipBlock" in to]
    (public,) = [block for block in blocks if block["cidr"] == "0.0.0.0/0"]
    assert "169.254.0.0/16" in public["except"]


def test_the_sandbox_template_denies_the_network() -> None:
    found = manifests("docs/remote.md")
    assert found["SandboxTemplate"]["spec"]["networkPolicy"]["egress"] == []
    pod = found["SandboxTemplate"]["spec"]["podTemplate"]["spec"]
    assert pod["automountServiceAccountToken"] is False
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert (
        found["SandboxWarmPool"]["spec"]["sandboxTemplateRef"]["name"] == found["SandboxTemplate"]["metadata"]["name"]
    )


TROUBLESHOOTING = ROOT / "docs/troubleshooting.md"
HEADER = "| Message | Cause | Fix |"
#: Stands for a part of a message that differs, on the page and in the strings of the code.
GAP = "…"
_PLACEHOLDER = re.compile(r"%(?:\.\d+)?[sdrgfi]|\{\w*\}|%0?\d*x")
_JAVA_STRING = re.compile(r'"((?:[^"\\\n]|\\.)*)"')


def lines_of_page() -> list[str]:
    return TROUBLESHOOTING.read_text(encoding="utf-8").splitlines()


def quoted_messages() -> list[str]:
    """Return the messages in the first column of the tables of messages."""
    messages: list[str] = []
    in_table = False
    for line in lines_of_page():
        in_table = line == HEADER or (in_table and line.startswith("|"))
        if in_table and line != HEADER and not line.startswith("|---"):
            messages += re.findall(r"`([^`]+)`", line.split(" | ")[0])
    return messages


def python_strings(source: str) -> Iterator[str]:
    """Yield the strings of a module except docstrings, with a gap for each value in them."""
    tree = ast.parse(source)
    docstrings = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if id(node) in docstrings:
            continue
        if isinstance(node, ast.JoinedStr):
            yield "".join(str(part.value) if isinstance(part, ast.Constant) else GAP for part in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield _PLACEHOLDER.sub(GAP, node.value)


def java_strings(source: str) -> Iterator[str]:
    """Yield the strings of a class. Concatenated literals are one string, with a gap for each value between them."""
    joined = re.sub(r'"\s*\+\s*"', "", source)
    joined = re.sub(r'"\s*\+\s*[\w.()]+\s*\+\s*"', GAP, joined)
    for string in _JAVA_STRING.findall(joined):
        yield _PLACEHOLDER.sub(GAP, string)


def text_strings(source: str) -> Iterator[str]:
    """Yield the lines of a file of messages, with a gap for each value in them."""
    yield from (_PLACEHOLDER.sub(GAP, line) for line in source.splitlines())


@cache
def strings_of_code() -> tuple[str, ...]:
    found: list[str] = []
    for folder, pattern, strings in (
        ("flink_skills", "*.py", python_strings),
        ("flink_skills", "*.txt", text_strings),
        ("java-bridge/src/main", "*.java", java_strings),
    ):
        for path in sorted(Path(ROOT, folder).rglob(pattern)):
            found += strings(path.read_text(encoding="utf-8"))
    return tuple(found)


def is_in_code(message: str) -> bool:
    """Return True if one string of the code has all parts of ``message``, in this order."""
    parts = [re.escape(part.strip()) for part in message.split(GAP) if part.strip()]
    wanted = re.compile(".*".join(parts))
    return any(wanted.search(string) for string in strings_of_code())


@pytest.mark.parametrize("message", quoted_messages())
def test_quoted_message_is_in_the_code(message: str) -> None:
    assert is_in_code(message), f"no string of the code has {message!r}: quote the message that users see"


def test_the_page_has_messages() -> None:
    assert len(quoted_messages()) > 50
    assert not is_in_code("the flux capacitor of … is empty")


def test_the_page_has_every_exit_code_of_a_worker() -> None:
    source = (ROOT / "flink_skills/worker/watchdog.py").read_text(encoding="utf-8")
    codes = set(re.findall(r"^[A-Z][A-Z_]* = (\d+)$", source, re.MULTILINE))
    rows = re.findall(r"^\| (\d+)\b", "\n".join(lines_of_page()), re.MULTILINE)
    assert codes
    assert codes <= set(rows)


LISTED = {of.prometheus: of for of in METRICS}
# Metrics of Flink itself in alerts, and whether each is a counter. A test with a cluster shows that they exist.
OF_FLINK = {
    "flink_taskmanager_job_task_operator_numRecordsIn": True,
    "flink_jobmanager_job_lastCheckpointCompletedTimestamp": False,
}
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
    assert names_in(expression) <= set(LISTED) | set(OF_FLINK)
    assert balanced(expression)
    ours = {label for name in names_in(expression) - set(OF_FLINK) for label in LISTED[name].labels}
    flinks = {"job_name", "operator_name", "tm_id"}
    grouped = {label.strip() for group in re.findall(r"by \(([^)]*)\)", expression) for label in group.split(",")}
    assert grouped <= ours | flinks
    for name in names_in(expression):
        # What counts is asked for by its rate, and only that.
        counts = OF_FLINK[name] if name in OF_FLINK else LISTED[name].kind == "counter"
        rated = re.search(rf"(?:rate|increase)\({name}\b", expression) is not None
        assert rated == counts or expression.startswith("label_values")
        if name in LISTED and LISTED[name].kind == "histogram":
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
        assert rule["annotations"]["summary"]
        # The reason of the level, and the section about the alert.
        assert rule["annotations"]["reason"]
        assert rule["annotations"]["runbook"] == f"docs/alerts.md#{rule['alert'].lower()}"
    sections = re.findall(r"^### (Agent\w+)$", (ROOT / "docs/alerts.md").read_text(), re.MULTILINE)
    assert sections == [rule["alert"] for rule in rules], "a section for each alert, in their order"


def test_alerts_fire_for_recorded_series(tmp_path: Path) -> None:
    promtool = shutil.which("promtool")
    rules = yaml.safe_load((FOLDER / "alerts.yaml").read_text())["spec"]
    tests = (FOLDER / "alerts.test.yaml").read_text()
    fired = set(re.findall(r'alertname="(\w+)"', tests))
    assert fired == {rule["alert"] for group in rules["groups"] for rule in group["rules"]}, "a test for each alert"
    if promtool is None:
        pytest.skip("promtool of Prometheus is not installed")
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump(rules))
    (tmp_path / "alerts.test.yaml").write_text(tests)
    for command in (["check", "rules", "rules.yaml"], ["test", "rules", "alerts.test.yaml"]):
        done = subprocess.run(
            [promtool, *command], cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
