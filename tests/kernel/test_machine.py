"""User, rights and files of a command in the virtual machine, and its end."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from . import machine, packages
from .machine import USER, Setting

pytestmark = [pytest.mark.kernel, pytest.mark.usefixtures("kernel")]

_FACTS = """\
import ctypes, json, os, subprocess, sys
status = dict(line.split(":", 1) for line in open("/proc/self/status"))
made = os.fork() or os._exit(0 if ctypes.CDLL(None).unshare(0x10000000) == 0 else 1)
namespaces = os.waitstatus_to_exitcode(os.waitpid(made, 0)[1]) == 0
json.dump({
    "ids": [*os.getresuid(), *os.getresgid(), *os.getgroups()],
    "capabilities": [int(status[name], 16) for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")],
    "no_new_privileges": status["NoNewPrivs"].strip(),
    "namespaces": namespaces,
    "python": sys.executable,
}, open("/results/facts.json", "w"))
open(sys.argv[1], "w").write("from the machine")
sys.exit(7)
"""


@pytest.mark.parametrize(("uid", "namespaces"), [(USER, False), (USER, True), (0, True)])
def test_who_runs_a_command(uid: int, namespaces: bool, tmp_path: Path) -> None:
    place = f"/tmp/planted-{os.getpid()}"
    ran = machine.run("python", "-c", _FACTS, place, setting=Setting(uid, namespaces), timeout=600)
    assert ran.exit_code == 7, ran.output
    facts = json.loads(ran.results["facts.json"])
    assert set(facts["ids"]) == {uid}
    assert facts["namespaces"] is namespaces
    assert facts["python"] == sys.executable
    if uid:
        assert (facts["capabilities"], facts["no_new_privileges"]) == ([0] * 5, "1")
    else:
        assert facts["capabilities"][2]
    assert not Path(place).exists()


def test_a_machine_that_takes_too_long_is_gone() -> None:
    with pytest.raises(subprocess.TimeoutExpired) as late:
        machine.run("sh", "-c", "echo begun; sleep 600", timeout=60)
    assert b"begun" in (late.value.stdout or b"")


def test_a_kernel_that_is_none_is_named(tmp_path: Path) -> None:
    image = tmp_path / "vmlinuz-none"
    image.write_bytes(b"no kernel" * 1000)
    with pytest.raises(machine.MachineError, match="the machine with none ended without a result"):
        machine.run("true", kernel=packages.Kernel(image), timeout=60)
