"""The translation of the runtimes' seccomp profile, decided for a process without capabilities."""

from __future__ import annotations

from typing import Any

import pytest

from . import profile

CLONE_FLAGS = 2114060288  # as the profiles of docker and CRI-O write it


def rules(*rules: dict[str, Any]) -> dict[str, Any]:
    return {
        "defaultAction": "SCMP_ACT_ERRNO",
        "defaultErrnoRet": 38,
        "defaultErrno": "ENOSYS",
        "archMap": [
            {"architecture": "SCMP_ARCH_X86_64", "subArchitectures": ["SCMP_ARCH_X86", "SCMP_ARCH_X32"]},
            {"architecture": "SCMP_ARCH_AARCH64", "subArchitectures": ["SCMP_ARCH_ARM"]},
            {"architecture": "SCMP_ARCH_S390X", "subArchitectures": None},
        ],
        "syscalls": list(rules),
    }


def rule(*names: str, action: str = "SCMP_ACT_ALLOW", **more: Any) -> dict[str, Any]:
    return {"names": list(names), "action": action, "args": [], "comment": "", "includes": {}, "excludes": {}, **more}


def allowed(profile_of_pod: dict[str, Any]) -> set[str]:
    return {name for rule in profile_of_pod["syscalls"] if rule["action"] == "SCMP_ACT_ALLOW" for name in rule["names"]}


def test_conditions_on_capabilities() -> None:
    given = rules(
        rule("read"),
        rule("bpf", includes={"caps": ["CAP_SYS_ADMIN"]}),
        rule("bpf", action="SCMP_ACT_ERRNO", excludes={"caps": ["CAP_SYS_ADMIN"]}, errnoRet=1, errno="EPERM"),
    )
    assert profile.as_published(given, "x86_64", "6.1.0")["syscalls"] == [
        {"names": ["read"], "action": "SCMP_ACT_ALLOW"},
        {"names": ["bpf"], "action": "SCMP_ACT_ERRNO", "errnoRet": 1},
    ]


@pytest.mark.parametrize(
    ("machine", "expected"),
    [("x86_64", {"both", "arch_prctl"}), ("aarch64", {"both", "not_here"}), ("s390x", {"not_here"})],
)
def test_conditions_on_processors(machine: str, expected: set[str]) -> None:
    given = rules(
        rule("arch_prctl", includes={"arches": ["amd64", "x32"]}),
        rule("both", includes={"arches": ["amd64", "arm64"]}),
        rule("not_here", excludes={"arches": ["amd64"]}),
    )
    assert allowed(profile.as_published(given, machine, "6.1.0")) == expected


@pytest.mark.parametrize(
    ("kernel", "expected"), [("4.4.0-87-generic", set()), ("4.8.0", {"ptrace"}), ("6.18.44", {"ptrace"})]
)
def test_conditions_on_kernels(kernel: str, expected: set[str]) -> None:
    given = rules(rule("ptrace", includes={"minKernel": "4.8"}))
    assert allowed(profile.as_published(given, "x86_64", kernel)) == expected


def test_processors_and_default() -> None:
    published = profile.as_published(rules(rule("read")), "x86_64", "6.1.0")
    assert published["architectures"] == ["SCMP_ARCH_X86_64", "SCMP_ARCH_X86", "SCMP_ARCH_X32"]
    assert (published["defaultAction"], published["defaultErrnoRet"]) == ("SCMP_ACT_ERRNO", 38)
    assert profile.as_published(rules(), "s390x", "6.1.0")["architectures"] == ["SCMP_ARCH_S390X"]


def test_arguments_are_kept() -> None:
    argument = {"index": 0, "value": 38, "op": "SCMP_CMP_LT"}
    published = profile.as_published(rules(rule("socket", args=[argument])), "x86_64", "6.1.0")
    assert published["syscalls"][0]["args"] == [{"valueTwo": 0, **argument}]


@pytest.mark.parametrize(("machine", "index"), [("x86_64", 0), ("aarch64", 0), ("s390x", 1)])
def test_kubernetes_takes_namespaces_and_mounts_away(machine: str, index: int) -> None:
    given = rules(rule("read", "clone", "clone3", "unshare", "mount", "keyctl"), rule("setns", "umount2"))
    result = profile.of_kubernetes(given, machine, "6.1.0")
    assert allowed(result) == {"read", "clone"}
    clone = next(rule for rule in result["syscalls"] if rule["names"] == ["clone"])
    assert clone["args"] == [{"index": index, "value": CLONE_FLAGS, "valueTwo": 0, "op": "SCMP_CMP_MASKED_EQ"}]
    assert {"names": ["clone3"], "action": "SCMP_ACT_ERRNO", "errnoRet": profile.ENOSYS} in result["syscalls"]
    assert result["defaultErrnoRet"] == profile.EPERM


def test_the_profile_of_this_machine() -> None:
    if not profile.PROFILE.is_file():
        pytest.skip(
            f"{profile.PROFILE} is not here (on Debian and Ubuntu: apt install golang-github-containers-common)"
        )
    ours = profile.load()
    kubernetes, podman = allowed(profile.of_kubernetes(ours)), allowed(profile.as_published(ours))
    needed = {"read", "execve", "clone", "socket", "seccomp", "prctl", "ptrace", "pidfd_open"}
    landlock = {"landlock_create_ruleset", "landlock_add_rule", "landlock_restrict_self"}
    assert needed | landlock <= kubernetes < podman
    assert not kubernetes & (profile.NEED_CAPABILITIES | {"clone3", "bpf", "perf_event_open", "kexec_load"})
