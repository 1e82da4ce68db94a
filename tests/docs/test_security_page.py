"""Compare the security pages with the escape suite, the recorded kernels and the manifests."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from deploy.check.pods import MAIN, clusters, containers
from deploy.check.render import render
from flink_skills.execution import IsolationLevel
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
    for page in (PAGE, ROOT / "docs/tool-access.md"):
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
