"""Cgroups of commands on the kernel of ``KERNEL``, in a cgroup v2 that is delegated as to a container or by systemd."""

from __future__ import annotations

import pytest

from tests.kit.outcomes import read_report

from . import machine
from .machine import USER

pytestmark = [pytest.mark.kernel, pytest.mark.usefixtures("kernel")]

# With cgroups, commands have the same limits, and rooms are used as before.
TESTS = ("tests/execution/cgroups", "tests/execution/test_local_limits.py", "tests/execution/test_bwrap_rooms.py")


@pytest.mark.parametrize(
    "words", [("--user", str(USER)), (), ("--marked", "--user", str(USER))], ids=["user", "root", "systemd"]
)
def test_commands_have_cgroups(words: tuple[str, ...]) -> None:
    tests = TESTS if words == ("--user", str(USER)) else TESTS[:1]
    command = ["python", "-m", "tests.kernel.delegated", *words, "python", "-m", "pytest", "-p", "no:cacheprovider"]
    command += ["-q", "-o", "junit_family=xunit1", "--junitxml=/results/junit.xml", "-m", "not nightly"]
    ran = machine.run(*command, *tests, timeout=3600)
    report = ran.results.get("junit.xml")
    assert report is not None, ran.output[-6000:]
    assert ran.exit_code == 0, ran.output[-6000:]
    read_report(report, where="in the machine")
    assert "no delegated cgroup v2" not in report.decode()
