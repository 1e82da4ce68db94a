"""The emulated pod is what it claims to be."""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.kit.waiting import MARGIN

from . import bundle, pod

pytestmark = [pytest.mark.pod, pytest.mark.usefixtures("runc")]


def facts_of(profile_name: str) -> dict[str, Any]:
    ran = pod.run("python", "-m", "tests.pod.facts", profile_name=profile_name, timeout=120)
    assert ran.exit_code == 0, ran.output
    found: dict[str, Any] = json.loads(ran.results["facts.json"])
    return found


@pytest.fixture(scope="module")
def facts(runc: None) -> dict[str, Any]:
    return facts_of("kubernetes")


def test_user_without_capabilities(facts: dict[str, Any]) -> None:
    assert set(facts["ids"]) == {bundle.USER}
    status = facts["status"]
    assert {name: int(status[name], 16) for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")} == {
        "CapInh": 0, "CapPrm": 0, "CapEff": 0, "CapBnd": 0, "CapAmb": 0,
    }  # fmt: skip
    assert (status["NoNewPrivs"], status["Seccomp"]) == ("1", "2")


def test_no_namespaces(facts: dict[str, Any]) -> None:
    assert facts["unshare"] == {"user": "EPERM", "net": "EPERM", "mount": "EPERM"}
    assert facts["clone"]["user"] in ("EPERM", "no number")
    assert facts["clone"]["plain"] in ("done", "no number")
    assert facts["clone3"] == "ENOSYS"
    assert facts["setns"] == "EPERM"


def test_no_mounts_and_no_descriptors_of_others(facts: dict[str, Any]) -> None:
    calls = ("mount", "umount", "open_tree", "chroot", "pidfd_getfd")
    assert {name: facts[name] for name in calls} == dict.fromkeys(calls, "EPERM")


def test_proc_is_masked(facts: dict[str, Any]) -> None:
    assert [path for path, what in facts["masked"].items() if what == "something"] == []
    assert "empty" in facts["masked"].values()
    assert set(facts["proc_read_only"].values()) == {True}
    assert facts["core_pattern"] in ("EROFS", "EACCES")


def test_root_is_read_only(facts: dict[str, Any]) -> None:
    assert set(facts["write"].values()) <= {"EROFS", "EACCES"}
    assert facts["write"]["/"] == "EROFS"
    assert set(facts["write_own"].values()) == {"done"}


def test_landlock_is_the_kernels(facts: dict[str, Any]) -> None:
    assert facts["landlock_abi"] == ctypes.CDLL(None).syscall(444, None, 0, 1)


def test_processes_and_network_are_its_own(facts: dict[str, Any]) -> None:
    assert facts["processes"] == [1, facts["self"]]
    assert facts["interfaces"] == ["lo"]
    assert facts["loopback"] == "done"
    assert facts["outside"] == "ENETUNREACH"
    assert not {"vda", "sda", "kvm", "mem", "fuse"} & set(facts["devices"])


def test_there_is_something_to_steal(facts: dict[str, Any]) -> None:
    """A process that nobody confines reads these, so a test that cannot has met the product's confinement."""
    assert any(variable.startswith(f"{pod.SECRET}=") for variable in facts["first_environment"])
    assert len(facts["token"]) == 32


def test_the_package_is_this_checkout(facts: dict[str, Any]) -> None:
    assert Path(facts["execution"]).is_relative_to(bundle.CHECKOUT)


def test_it_is_the_profile_that_stops(runc: None) -> None:
    """With the same configuration but no profile, user namespaces work, where they work for users of the machine."""
    command = [sys.executable, "-c", "import ctypes, sys; sys.exit(ctypes.CDLL(None).unshare(0x10000000) != 0)"]
    machine = subprocess.run(
        ["setpriv", "--no-new-privs", "unshare", "--user", "true"],
        user=65534,
        group=65534,
        extra_groups=[],
        cwd="/",
        check=False,
        capture_output=True,
    )
    if machine.returncode != 0:
        pytest.skip(f"this machine lets no user make namespaces: {machine.stderr.decode().strip()}")
    for profile_name, code in (("kubernetes", 1), ("podman", 0), ("unconfined", 0)):
        assert pod.run(*command, profile_name=profile_name, timeout=60).exit_code == code, profile_name


def test_a_pod_that_takes_too_long_is_gone(runc: None) -> None:
    mark = f"tests-pod-{os.getpid()}"
    with pytest.raises(subprocess.TimeoutExpired) as late:
        pod.run("sh", "-c", "echo begun; sleep 600 & sleep 600", mark, timeout=3)
    assert b"begun" in (late.value.stdout or b"")
    assert processes_with(mark) == []


def test_a_pod_does_not_outlive_the_tests(runc: None, tmp_path: Path) -> None:
    mark = f"tests-pod-left-{os.getpid()}"
    command = [sys.executable, "-m", "tests.pod", "sh", "-c", "echo begun; sleep 600 & sleep 600", mark]
    env = {**os.environ, "TMPDIR": str(tmp_path)}
    with subprocess.Popen(command, cwd=bundle.CHECKOUT, env=env, stdout=subprocess.PIPE) as tests:
        assert tests.stdout is not None
        assert tests.stdout.readline() == b"begun\n"
        tests.kill()
    deadline = time.monotonic() + MARGIN
    while found := processes_with(mark):
        assert time.monotonic() < deadline, found


def test_orphans_are_taken_in(runc: None) -> None:
    text = "for i in 1 2 3; do setsid sh -c 'true & exit' & done; wait; until ! ps -eo stat= | grep Z; do :; done"
    ran = pod.run("sh", "-c", text, timeout=60)
    assert ran.exit_code == 0, ran.output


def processes_with(mark: str) -> list[str]:
    return [str(path) for path in Path("/proc").glob("[0-9]*/cmdline") if mark.encode() in _read(path)]


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:  # the process ended
        return b""
