"""Say why bubblewrap does not work on a machine, and what would help."""

from __future__ import annotations

from pathlib import Path

from flink_skills.execution.process_status import own_status

__all__ = ["explained"]

_ALLOW = "allow namespaces in the container's seccomp profile (clone, unshare, setns, mount, umount2, pivot_root)"
# What bubblewrap says, then what is missing and the mend. The first that matches.
_REASONS = (
    (
        ("Can't mount proc",),
        "a fresh /proc cannot be mounted, because the container's own is masked",
        "leave /proc unmasked (securityContext: procMount: Unmasked with hostUsers: false)",
    ),
    (
        ("ENOSPC", "max_"),
        "the machine's limit of namespaces is reached",
        "raise the node's sysctls user.max_user_namespaces and its like",
    ),
    (
        ("Resource temporarily unavailable", "Cannot allocate memory"),
        "there are too many processes, or too little memory, for another one",
        "raise the pod's limits of processes (podPidsLimit) and memory",
    ),
    (
        ("setns(",),
        "the namespaces are made but cannot be joined, because setns is not allowed",
        _ALLOW,
    ),
    (
        ("RTM_", "loopback", "uid map"),
        "namespaces are made without rights in them, as AppArmor does with programs it does not know",
        "give bubblewrap an AppArmor profile that says 'userns', or set kernel.apparmor_restrict_unprivileged_userns=0",
    ),
    (
        ("No permissions to creat",),
        "clone(NEWUSER) EPERM: {who} forbids namespaces",
        "{allow}",
    ),
    (
        ("does not support user namespaces", "Invalid argument"),
        "the kernel has no user namespaces",
        "use a node whose kernel has CONFIG_USER_NS",
    ),
    (
        ("Operation not permitted", "Permission denied"),
        "namespaces can be made, but nothing can be set up in them (seccomp or AppArmor)",
        f"{_ALLOW} and in its AppArmor profile (mount)",
    ),
)


def explained(said: str, program: str) -> str:
    """A sentence on what is missing and the mend, from what bubblewrap ``said``, which it ends with."""
    text = said or "it said nothing"
    for signs, reason, mend in _REASONS:
        if any(sign in text for sign in signs):
            who, allow = _who_forbids()
            return f"{reason.format(who=who)}: {mend.format(allow=allow)} ({_shortened(text)})"
    return f"{program} does not work here: replace or remove it ({_shortened(text)})"


def _who_forbids() -> tuple[str, str]:
    if _number("/proc/sys/user/max_user_namespaces") == 0:
        return "the sysctl user.max_user_namespaces=0", "raise it on the node"
    if _number("/proc/sys/kernel/unprivileged_userns_clone") == 0:
        return "the sysctl kernel.unprivileged_userns_clone=0", "set it to 1 on the node"
    if _number("/proc/sys/kernel/apparmor_restrict_unprivileged_userns") == 1:
        return "AppArmor", "set the node's sysctl kernel.apparmor_restrict_unprivileged_userns=0"
    if own_status("Seccomp") == "2":
        return "the container's seccomp profile", _ALLOW
    return "the kernel or one of its security modules", "allow namespaces for users on the node"


def _number(path: str) -> int | None:
    try:
        return int(Path(path).read_text())
    except (OSError, ValueError):
        return None


def _shortened(text: str) -> str:
    return text if len(text) <= 300 else text[:297] + "..."
