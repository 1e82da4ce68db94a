"""``flink-skills doctor``: the isolation of commands on this host."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from flink_skills.cli.command_options import FAILED, Assignments, Format, OutputFormat, configuration

if TYPE_CHECKING:
    from flink_skills.execution import IsolationLevel, IsolationReport
    from flink_skills.options import SkillConfig

__all__ = ["doctor"]


def doctor(
    *,
    min_level: Annotated[
        str | None,
        typer.Option(
            "--min-level",
            metavar="LEVEL",
            help="Required isolation level: NONE, HYGIENE, LANDLOCK_PARTIAL, LANDLOCK, NAMESPACE or REMOTE. Default: "
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
    from flink_skills.cli.printing import print_json
    from flink_skills.execution.workspace.scratch import check_commands

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
    import asyncio

    from flink_skills.cli.printing import print_error
    from flink_skills.cli.signal_guard import SignalGuard
    from flink_skills.errors import ExecutionError
    from flink_skills.execution import WorkspaceManager
    from flink_skills.execution.isolation.selection import choose_backend
    from flink_skills.execution.workspace.scratch import scratch_workspaces

    reports: list[IsolationReport] = []

    async def examine(workspaces: WorkspaceManager) -> None:
        backend, report = await choose_backend(config, workspaces)
        reports.append(report)
        if backend is not None:
            await backend.close()

    with SignalGuard() as guard:
        try:
            with scratch_workspaces(config) as workspaces:
                asyncio.run(guard.run_cancellable(examine(workspaces)))
        except asyncio.CancelledError:
            raise typer.Exit(guard.exit_code) from None
        except ExecutionError as error:  # The scratch directory cannot be created or removed.
            print_error(str(error))
            if not reports:
                raise typer.Exit(FAILED) from None
    return reports[0]


def _print(report: IsolationReport, style: str) -> None:
    from flink_skills.cli.ops.isolation_text import enforced_sentence, gap_sentence, level_sentence, requirements
    from flink_skills.cli.printing import Column, print_line, print_table
    from flink_skills.cli.run.exec_limits import LIMITS, limit_text

    version = f" ({report.backend_version})" if report.backend_version else ""
    seconds = f"{report.milliseconds / 1000:.2f} s"
    abi = report.landlock_abi or "none"
    print_line((report.level.name, style), f": {level_sentence(report.level)}")
    print_line(f"Backend {report.backend or 'none'}{version}. Commands run as uid {report.uid}, network {report.net}.")
    print_line(f"Kernel {report.kernel}, Landlock ABI {abi}, seccomp of this process {report.seccomp_outer}.")
    if report.shortfall:
        print_line(f"{report.shortfall[0].upper()}{report.shortfall[1:]}.")
    if report.cgroups:
        print_line("Each command has a cgroup, in which the kernel enforces its limits of memory and processes.")
    elif report.no_cgroups:
        print_line(f"The launcher alone enforces limits, without a delegated cgroup v2: {report.no_cgroups}.")
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
            [name, "\n".join(filter(None, (reason, requirements(name))))] for name, reason in report.skipped.items()
        ]
        print_table([Column("BACKEND"), Column("REASON AND REQUIREMENTS", wrapped=True)], rows)


def _print_too_low(report: IsolationReport, required: IsolationLevel) -> None:
    from flink_skills.cli.printing import print_error

    lower = report.acceptable
    alternative = "" if lower is None else f", or set skills.shell.min-isolation to {lower.name}"
    print_error(
        f"isolation level {required.name} is not available on this host; the best level is {report.level.name}. "
        f"Fix the problems above{alternative}."
    )
