"""``flink-skills doctor``: what isolates the commands of skills on this machine."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from flink_skills.cli.words import FAILED, Assignments, Format, OutputFormat, configuration

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
            show_default=False,
            help="The isolation to demand, like skills.shell.min-isolation (LANDLOCK by default): NONE, HYGIENE, "
            "LANDLOCK_PARTIAL, LANDLOCK, NAMESPACE or REMOTE.",
        ),
    ] = None,
    format_: OutputFormat = Format.TEXT,
    set_: Assignments = None,
) -> None:
    """Find out how well this machine isolates the commands of skills, by trying what a command must not be able to do.

    Run it where the job's commands run, in the TaskManager's container and as its user, with the job's options
    skills.shell.* as --set. Exit code 0; 1 when the isolation is below --min-level; 2 for bad usage.

    Examples:

        flink-skills doctor

        flink-skills doctor --min-level NAMESPACE --format json --set skills.shell.backend=bwrap
    """
    from flink_skills.cli.output import print_json
    from flink_skills.execution.workspace.scratch import check_commands

    config = configuration(set_)
    wanted = _wanted(min_level, config)
    check_commands(config)
    report = _examine(config)
    if format_ is Format.JSON:
        print_json(report.to_json())
    else:
        _print(report, "bold green" if report.level >= wanted else "bold red")
    if report.level < wanted:
        _say_too_low(report, wanted)
        raise typer.Exit(FAILED)


def _wanted(word: str | None, config: SkillConfig) -> IsolationLevel:
    """The level that is demanded; the options demand it too, because they decide what is tried."""
    from flink_skills.errors import ConfigError
    from flink_skills.execution import IsolationLevel
    from flink_skills.options import SkillOptions

    if word is None:
        return IsolationLevel.parse(config.get(SkillOptions.SHELL_MIN_ISOLATION))
    try:
        wanted = IsolationLevel.parse(word)
    except ConfigError as error:
        raise ConfigError(f"--min-level: {error}") from None
    config.set(SkillOptions.SHELL_MIN_ISOLATION, max(wanted, IsolationLevel.HYGIENE).name)
    return wanted


def _examine(config: SkillConfig) -> IsolationReport:
    import asyncio

    from flink_skills.cli.interruption import Interruption
    from flink_skills.cli.output import complain
    from flink_skills.errors import ExecutionError
    from flink_skills.execution import WorkspaceManager
    from flink_skills.execution.isolation.selection import choose_backend
    from flink_skills.execution.workspace.scratch import scratch_workspaces

    found: list[IsolationReport] = []

    async def examine(workspaces: WorkspaceManager) -> None:
        backend, report = await choose_backend(config, workspaces)
        found.append(report)
        if backend is not None:
            await backend.close()

    with Interruption() as interruption:
        try:
            with scratch_workspaces(config) as workspaces:
                asyncio.run(interruption.until_then(examine(workspaces)))
        except asyncio.CancelledError:
            raise typer.Exit(interruption.exit_code) from None
        except ExecutionError as error:  # no folder, or something in it that cannot be removed
            complain(str(error))
            if not found:
                raise typer.Exit(FAILED) from None
    return found[0]


def _print(report: IsolationReport, style: str) -> None:
    from flink_skills.cli.isolation_words import cannot, gap, level_sentence, way_to
    from flink_skills.cli.limit_words import LIMITS, limit_text
    from flink_skills.cli.output import Column, print_line, print_table

    version = f" ({report.backend_version})" if report.backend_version else ""
    seconds = f"{report.milliseconds / 1000:.2f} s"
    abi = report.landlock_abi or "none"
    print_line((report.level.name, style), f": {level_sentence(report.level)}")
    print_line(f"Backend {report.backend or 'none'}{version}; commands run as uid {report.uid}, network {report.net}.")
    print_line(f"Kernel {report.kernel}, Landlock ABI {abi}, seccomp of this process {report.seccomp_outer}.")
    if report.shortfall:
        print_line(f"{report.shortfall[0].upper()}{report.shortfall[1:]}.")
    heading = f"Tried within {seconds}, and stopped:" if report.proved else ""
    for title, rows in (
        (heading, [[name, cannot(name)] for name in report.proved]),
        ("Not enforced:", [[name, gap(name)] for name in report.not_enforced]),
    ):
        if rows:
            sys.stdout.write(f"\n{title}\n")
            print_table([Column("NAME"), Column("WHAT IT MEANS", wrapped=True)], rows)
    sys.stdout.write("\nLimits of each command:\n")
    limits = report.limits.to_json()
    print_table(
        [Column("NAME"), Column("VALUE", right=True), Column("OF WHAT, AND THE OPTION THAT SETS IT", wrapped=True)],
        [
            [name, limit_text(name, value), f"{LIMITS[name].what} ({LIMITS[name].option.key})"]
            for name, value in limits.items()
        ],
    )
    if report.skipped:
        sys.stdout.write("\nNot used:\n")
        rows = [[name, "\n".join(filter(None, (reason, way_to(name))))] for name, reason in report.skipped.items()]
        print_table([Column("BACKEND"), Column("WHY, AND WHAT IT TAKES", wrapped=True)], rows)


def _say_too_low(report: IsolationReport, wanted: IsolationLevel) -> None:
    from flink_skills.cli.output import complain

    less = report.acceptable
    accept = "" if less is None else f", or have the job accept less (skills.shell.min-isolation: {less.name})"
    complain(
        f"commands cannot be isolated at {wanted.name} here, only at {report.level.name}: "
        f"mend what is said above{accept}"
    )
