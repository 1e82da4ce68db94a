"""Promises about commands, on the kernel of ``KERNEL``, as root and as an unprivileged user.

``ESCAPE_BACKENDS=landlock`` attacks only this backend, and fails if it does not start. Each run of the suite writes its
report and its summary to ``build/kernel``.
"""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Callable
from typing import Any

import pytest

from tests.kit.outcomes import read_report

from . import machine
from .conftest import IN_THE_MACHINE
from .machine import USER, Setting
from .packages import CHECKOUT
from .summary import summary

pytestmark = [pytest.mark.kernel, pytest.mark.usefixtures("kernel")]

FOLDER = CHECKOUT / "build/kernel"
SUITE = "tests/execution/escape"
# A restricted pod on a node that closes namespaces comes first.
SETTINGS = [Setting(uid, namespaces) for uid in (USER, 0) for namespaces in (False, True)]
# The attacks of one command each, and what the canaries prove; the rest of the suite takes three times as long.
SHORT = (f"{SUITE}/test_levels.py", f"{SUITE}/test_attempts.py")
_TAIL = 6_000
_BACKENDS = ("hygiene", "landlock", "bwrap")


def attack(setting: Setting, tests: tuple[str, ...], name: str, record_property: Callable[[str, object], None]) -> None:
    """Run the suite in a machine, write its report and summary, and fail with its failures."""
    # A test keeps two CPUs busy, with its worker and its command. More at a time and emulated code misses the deadlines
    # of the product: 20 s for the canaries.
    side_by_side = str(max(1, (os.cpu_count() or 1) // 2))
    command = ["python", "-m", "pytest", "-p", "no:cacheprovider", "-q", "-n", side_by_side]
    command += ["-o", "junit_family=xunit1", "--junitxml=/results/junit.xml", "-m", "not nightly"]
    environment = {}
    if backends := os.environ.get("ESCAPE_BACKENDS", ""):
        environment["ESCAPE_BACKENDS"] = backends
        others = [backend for backend in _BACKENDS if backend not in backends.split(",")]
        command += ["-k", " and ".join(f"not {backend}" for backend in others)]
    began = time.monotonic()
    try:
        ran = machine.run(*command, *tests, setting=setting, environment=environment, timeout=7200)
    except subprocess.TimeoutExpired as late:
        pytest.fail(f"the suite did not end:\n{(late.stdout or b'').decode(errors='replace')[-_TAIL:]}", pytrace=False)
    report = ran.results.get("junit.xml")
    assert report is not None, f"pytest in the machine ended with {ran.exit_code} and no report:\n{ran.output[-_TAIL:]}"
    found = {**summary(report), "tests": name, "seconds": round(time.monotonic() - began)}
    write_summary(found, setting, report)
    outcome = read_report(report, where=f"on Linux {found['kernel']} ({setting.name})")
    levels = [f"{backend} {about['level']}" for backend, about in found["backends"].items() if about["level"]]
    record_property(
        IN_THE_MACHINE, f"Linux {found['kernel']}, uid {found['uid']}, {', '.join(levels)}, {found['seconds']} s"
    )
    for line in outcome.summary():
        record_property(IN_THE_MACHINE, line)
    if verdict := outcome.verdict():
        pytest.fail(verdict, pytrace=False)
    assert ran.exit_code == 0, ran.output[-_TAIL:]


def write_summary(found: dict[str, Any], setting: Setting, report: bytes = b"") -> None:
    FOLDER.mkdir(parents=True, exist_ok=True)
    name = f"{found['kernel']}-{setting.name}-{found['tests']}"
    (FOLDER / f"{name}.json").write_text(json.dumps(found, indent=2) + "\n")
    if report:
        (FOLDER / f"{name}.xml").write_bytes(report)


@pytest.mark.parametrize("setting", SETTINGS, ids=lambda setting: setting.name)
def test_doctor_says_where_it_is(setting: Setting) -> None:
    text = "flink-skills doctor --format json >/results/report.json 2>/dev/null; uname -r; exit 0"
    ran = machine.run("sh", "-c", text, setting=setting, timeout=900)
    report = json.loads(ran.results["report.json"])
    assert report["kernel"] == ran.output.strip()
    assert report["uid"] == (setting.uid or 65534)  # a worker that is root switches
    if report["landlock_abi"]:
        assert report["level"] in ("LANDLOCK_PARTIAL", "LANDLOCK", "NAMESPACE")
    if not setting.user_namespaces:
        assert report["level"] != "NAMESPACE"
    about = {"level": report["level"], "passed": len(report["proved"]), "failed": 0, "skipped": {}}
    facts = {"kernel": report["kernel"], "landlock_abi": str(report["landlock_abi"]), "uid": str(setting.uid)}
    namespaces = "yes" if setting.user_namespaces else "closed"
    found = {**facts, "user_namespaces": namespaces, "backends": {report["backend"]: about}, "tests": "canaries"}
    write_summary(found, setting)


def test_attacks_as_in_a_restricted_pod(record_property: Callable[[str, object], None]) -> None:
    attack(SETTINGS[0], SHORT, "attempts", record_property)


@pytest.mark.nightly
@pytest.mark.parametrize("setting", SETTINGS, ids=lambda setting: setting.name)
def test_all_attacks(setting: Setting, record_property: Callable[[str, object], None]) -> None:
    attack(setting, (SUITE,), "all", record_property)
