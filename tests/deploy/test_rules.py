"""Each rule finds what it is for, and says nothing about the overlays of the project."""

from __future__ import annotations

import re

import pytest

from deploy.check.checking import check
from deploy.check.finding import Manifests
from deploy.check.rules import RULES
from tests.deploy.broken import BROKEN, Broken, changed

BY_NAME = {rule.__name__: rule for rule in RULES}


@pytest.mark.parametrize("broken", BROKEN, ids=lambda broken: f"{broken.rule}-{broken.name}".replace(" ", "-"))
def test_the_rule_finds_what_is_wrong(broken: Broken, rendered: dict[str, Manifests]) -> None:
    manifests = rendered[broken.overlay]
    rule = BY_NAME[broken.rule]
    assert list(rule(manifests)) == [], "the overlay is not good to begin with"
    found = [str(finding) for finding in rule(changed(manifests, broken.change))]
    assert any(re.search(broken.words, line) for line in found), found


def test_every_rule_has_an_overlay_that_it_finds_wrong() -> None:
    assert {broken.rule for broken in BROKEN} == set(BY_NAME)
    assert len(BY_NAME) == len(RULES)


def test_a_thing_that_is_wrong_in_both_pods_is_said_for_each_and_once(rendered: dict[str, Manifests]) -> None:
    wrong = next(broken for broken in BROKEN if broken.name == "privileged")
    found = check(changed(rendered["production"], wrong.change))
    assert len(found) == 2
    assert {word for finding in found for word in ("jobmanager", "taskmanager") if word in finding.place} == {
        "jobmanager",
        "taskmanager",
    }
