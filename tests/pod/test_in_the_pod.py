"""What is promised of commands holds in a restricted pod, for a worker and commands of the same user."""

from __future__ import annotations

import ctypes
import json
import os
import signal
import subprocess
from collections.abc import Callable
from typing import Any

import pytest

from . import bundle, pod
from .conftest import IN_THE_POD
from .inner import run_tests

pytestmark = [pytest.mark.pod, pytest.mark.usefixtures("runc")]

LANDLOCK_ABI = max(0, ctypes.CDLL(None).syscall(444, None, 0, 1))
LANDLOCK = LANDLOCK_ABI >= 6
FULL_LEVEL = pytest.mark.skipif(not LANDLOCK, reason=f"the kernel's Landlock has ABI {LANDLOCK_ABI}, signals need 6")

SUITES = {
    "escape": ["tests/execution/escape"],
    # What may differ in a pod, for its user or for want of rights.
    "execution": [
        "tests/execution/isolation",
        "tests/execution/workspace",
        *(f"tests/execution/test_local_{about}.py" for about in ("commands", "limits", "signals")),
    ],
    "command-line": ["tests/cli/test_doctor.py", "tests/cli/test_exec.py"],
}


@pytest.mark.parametrize("suite", SUITES)
def test_suite(suite: str, record_property: Callable[[str, object], None]) -> None:
    required = {"ESCAPE_BACKENDS": "landlock"} if LANDLOCK_ABI else {}
    outcome = run_tests(*SUITES[suite], "-m", "not nightly", environment=required)
    for line in outcome.summary():
        record_property(IN_THE_POD, line)
    if verdict := outcome.verdict():
        pytest.fail(verdict, pytrace=False)


def doctor(profile_name: str) -> dict[str, Any]:
    command = "flink-skills doctor --format json > /results/report.json"
    ran = pod.run("sh", "-c", command, profile_name=profile_name, timeout=120)
    assert ran.exit_code == 0, ran.output
    report: dict[str, Any] = json.loads(ran.results["report.json"])
    return report


@FULL_LEVEL
def test_doctor_proves_landlock() -> None:
    report = doctor("kubernetes")
    assert (report["level"], report["backend"], report["uid"]) == ("LANDLOCK", "landlock", bundle.USER)
    assert report["landlock_abi"] == LANDLOCK_ABI
    assert report["seccomp_outer"] == "filter"
    assert report["not_enforced"] == ["metadata_outside", "shared_kernel"]
    assert "bwrap" in report["skipped"]


@FULL_LEVEL
def test_doctor_where_namespaces_are_allowed_but_proc_is_masked() -> None:
    """User namespaces alone do not make bwrap work, so what starts must be tried and not guessed."""
    report = doctor("podman")
    assert (report["level"], report["backend"]) == ("LANDLOCK", "landlock")
    assert "bwrap" in report["skipped"]


@FULL_LEVEL
def test_a_command_gets_neither_the_secret_nor_the_token() -> None:
    steal = "cat /proc/1/environ /proc/$PPID/environ /var/run/secrets/kubernetes.io/serviceaccount/token; env; echo end"
    ran = pod.run("sh", "-c", 'flink-skills exec -- "$0" > /results/result.json', steal, timeout=120)
    assert ran.exit_code == 0, ran.output
    result = json.loads(ran.results["result.json"])
    assert (result["exit_code"], result["level"]) == (0, "LANDLOCK")
    assert result["stdout"].endswith("end\n")
    assert pod.SECRET not in result["stdout"]
    assert result["stderr"].count("Permission denied") == 3


@FULL_LEVEL
def test_processes_of_the_user_in_other_pods_leave_room_for_commands() -> None:
    """The kernel's limit of processes holds for the user on the whole node, and Flink's images share one user."""
    others = subprocess.Popen(
        ["/bin/sh", "-c", "for i in $(seq 1200); do sleep 600 & done; echo all; wait"],
        user=bundle.USER,
        group=bundle.USER,
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    try:
        assert others.stdout is not None
        assert others.stdout.readline() == b"all\n"
        ran = pod.run("sh", "-c", "flink-skills exec -- 'true | echo fine' > /results/result.json", timeout=120)
    finally:
        os.killpg(others.pid, signal.SIGKILL)
        others.communicate()
    assert ran.exit_code == 0, ran.output
    result = json.loads(ran.results["result.json"])
    assert (result["exit_code"], result["stdout"]) == (0, "fine\n"), result
