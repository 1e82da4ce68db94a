"""The default seccomp profile of container runtimes, as the ``linux.seccomp`` part of an OCI configuration.

The profile is a file of the distribution (``golang-github-containers-common`` on Debian and Ubuntu) in the format of
docker and podman: rules with conditions on capabilities, processors and kernels, which ``runc`` does not know. They
are decided here, for a container without capabilities on this machine.
"""

from __future__ import annotations

import json
import platform
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

PROFILE = Path("/usr/share/containers/seccomp.json")

EPERM, ENOSYS = 1, 38

# Names of processors: of the kernel, and of profiles (which use Go's).
_PROCESSORS = {"x86_64": "amd64", "aarch64": "arm64", "ppc64le": "ppc64le", "s390x": "s390x", "riscv64": "riscv64"}
_ARCHITECTURES = {"x86_64": "SCMP_ARCH_X86_64", "aarch64": "SCMP_ARCH_AARCH64", "s390x": "SCMP_ARCH_S390X"}

# The distribution's file is podman's, which runs containers in containers: it lets everybody make namespaces and mount.
# The runtimes of Kubernetes do not (CRI-O takes namespaces out of this very file, containerd has a list of its own):
# there, each of these needs a capability, and a restricted pod has none.
_NAMESPACES = {"setns", "unshare"}
_MOUNTS = {
    *("mount", "mount_setattr", "move_mount", "open_tree", "pivot_root", "umount", "umount2"),
    *("fsconfig", "fsmount", "fsopen", "fspick"),
}
_OTHERS = {"keyctl", "add_key", "request_key", "pidfd_getfd", "reboot", "syslog", "mbind", "get_mempolicy"}
NEED_CAPABILITIES = frozenset(_NAMESPACES | _MOUNTS | _OTHERS | {"set_mempolicy"})

# CLONE_NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET
NAMESPACE_FLAGS = 0x20000 | 0x2000000 | 0x4000000 | 0x8000000 | 0x10000000 | 0x20000000 | 0x40000000


def as_published(profile: Mapping[str, Any], machine: str = "", kernel: str = "") -> dict[str, Any]:
    """``profile`` with all conditions decided, for a process without capabilities; podman's containers have this."""
    machine = machine or platform.machine()
    result: dict[str, Any] = {
        "defaultAction": profile["defaultAction"],
        "defaultErrnoRet": profile.get("defaultErrnoRet", EPERM),
        "architectures": list(_architectures(profile, machine)),
        "syscalls": [
            _plain(rule) for rule in profile["syscalls"] if _holds(rule, machine, kernel or platform.release())
        ],
    }
    return result


def of_kubernetes(profile: Mapping[str, Any], machine: str = "", kernel: str = "") -> dict[str, Any]:
    """:func:`as_published` without what a pod of the ``RuntimeDefault`` profile cannot do without capabilities."""
    result = as_published(profile, machine, kernel)
    gone = NEED_CAPABILITIES | {"clone", "clone3"}
    kept = [{**rule, "names": [name for name in rule["names"] if name not in gone]} for rule in result["syscalls"]]
    # clone's flags are its second argument on s390x. clone3 has them in memory, where a filter cannot look:
    # ENOSYS makes the C library fall back to clone.
    flags = {"index": int((machine or platform.machine()) == "s390x"), "value": NAMESPACE_FLAGS, "valueTwo": 0}
    result["syscalls"] = [
        *(rule for rule in kept if rule["names"]),
        {"names": ["clone"], "action": "SCMP_ACT_ALLOW", "args": [{**flags, "op": "SCMP_CMP_MASKED_EQ"}]},
        {"names": ["clone3"], "action": "SCMP_ACT_ERRNO", "errnoRet": ENOSYS},
    ]
    result["defaultErrnoRet"] = EPERM
    return result


def load() -> dict[str, Any]:
    profile: dict[str, Any] = json.loads(PROFILE.read_text())
    return profile


def _architectures(profile: Mapping[str, Any], machine: str) -> Iterator[str]:
    for entry in profile.get("archMap", ()):
        if entry["architecture"] == _ARCHITECTURES.get(machine):
            yield entry["architecture"]
            yield from entry.get("subArchitectures") or ()


def _holds(rule: Mapping[str, Any], machine: str, kernel: str) -> bool:
    includes, excludes = rule.get("includes") or {}, rule.get("excludes") or {}
    processor = _PROCESSORS.get(machine, machine)
    if includes.get("caps") or (includes.get("arches") and processor not in includes["arches"]):
        return False
    if processor in (excludes.get("arches") or ()):
        return False
    return "minKernel" not in includes or _version(kernel) >= _version(includes["minKernel"])


def _version(kernel: str) -> tuple[int, int]:
    major, minor = kernel.split("-", maxsplit=1)[0].split(".")[:2]
    return int(major), int(minor)


def _plain(rule: Mapping[str, Any]) -> dict[str, Any]:
    names: Iterable[str] = rule.get("names") or [rule["name"]]
    plain: dict[str, Any] = {"names": list(names), "action": rule["action"]}
    if rule.get("args"):
        plain["args"] = [{"valueTwo": 0, **argument} for argument in rule["args"]]
    if "errnoRet" in rule:
        plain["errnoRet"] = rule["errnoRet"]
    return plain
