"""Say why bubblewrap does not work on a machine, and what would help."""

from __future__ import annotations

from pathlib import Path

from flink_skills.execution.process_status import own_status

__all__ = ["explained"]

_ALLOW = "allow namespaces in the container's seccomp profile (clone, unshare, setns, mount, umount2, pivot_root)"
# Message of bubblewrap, what is missing, and the fix. The first match applies.
_REASONS = (
    (
        ("Can't mount proc",),
        "a fresh /proc cannot be mounted, because the container's own is masked",
        "leave /proc unmasked (securityContext: procMount: Unmasked with hostUsers: false)",
    ),
    (
        ("ENOSPC", "max_"),
        "the node has reached its limit of namespaces",
        "raise the node's sysctls user.max_*_namespaces",
    ),
    (
        ("Resource temporarily unavailable", "Cannot allocate memory"),
        "too many processes or too little memory to start another process",
        "raise the pod's limits on processes (podPidsLimit) and memory",
    ),
    (
        ("setns(",),
        "namespaces can be created but not joined, because setns is not allowed",
        _ALLOW,
    ),
    (
        ("RTM_", "loopback", "uid map"),
        "namespaces are created without capabilities, as AppArmor does for programs without a profile",
        "give bubblewrap an AppArmor profile that says 'userns', or set kernel.apparmor_restrict_unprivileged_userns=0",
    ),
    (
        ("No permissions to creat",),
        "clone(NEWUSER) EPERM: {who} forbids namespaces",
        "{allow}",
    ),
    (
        ("does not support user namespaces", "Invalid argument"),  # prose: allow M01: text of bubblewrap
        "the kernel has no user namespaces",
        "use a node whose kernel has CONFIG_USER_NS",
    ),
    (
        ("Operation not permitted", "Permission denied"),
        "namespaces can be created, but nothing can be set up in them (seccomp or AppArmor)",
        f"{_ALLOW} and in its AppArmor profile (mount)",
    ),
)


def explained(said: str, program: str) -> str:
    """Return a sentence with what is missing, the fix, and the message ``said`` of bubblewrap at its end."""
    text = said or "bubblewrap printed nothing"
    for signs, reason, fix in _REASONS:
        if any(sign in text for sign in signs):
            who, allow = _who_forbids()
            return f"{reason.format(who=who)}: {fix.format(allow=allow)} ({_shortened(text)})"
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
