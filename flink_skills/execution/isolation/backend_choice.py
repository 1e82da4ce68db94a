"""Choice of a worker execution backend when it opens, by the level that the backend proves."""

from __future__ import annotations

import os
import platform
import time
from dataclasses import replace

from landlockpy import abi_version

from flink_skills.errors import ConfigError, ExecutionError, IsolationError
from flink_skills.execution.backend_registry import create_backend, limits_from, settings_from
from flink_skills.execution.execution_backend import BackendSettings, ExecutionBackend
from flink_skills.execution.host import own_status
from flink_skills.execution.isolation.canaries import REQUIRED, prove, proved_level
from flink_skills.execution.isolation_report import IsolationLevel, IsolationReport
from flink_skills.execution.workspace import WorkspaceManager
from flink_skills.options import SkillConfig, SkillOptions

_AUTOMATIC = ("bwrap", "landlock")
_WITHOUT_FILES = "hygiene"
# Gaps that canaries cannot detect, of all levels that share the kernel of the host.
_KNOWN_GAPS = ("shared_kernel",)
# The component of the project's manifests that accepts the level of kernels with an incomplete Landlock.
_FOR_OLD_KERNELS = "deploy/components/older-nodes"
_SECCOMP = {"0": "disabled", "1": "strict", "2": "filter"}


async def open_backend(config: SkillConfig, workspaces: WorkspaceManager) -> tuple[ExecutionBackend, IsolationReport]:
    """Return a started backend that has proved ``skills.shell.min-isolation``, and the report.

    Raises :class:`IsolationError` with the reasons and the fix if there is none.
    """
    backend, report = await choose_backend(config, workspaces)
    wanted = IsolationLevel.parse(config.get(SkillOptions.SHELL_MIN_ISOLATION))
    if backend is not None and report.level >= wanted:
        return backend, report
    if backend is not None:
        await backend.close()
    raise IsolationError(_refusal(report, wanted), report)


async def choose_backend(
    config: SkillConfig, workspaces: WorkspaceManager
) -> tuple[ExecutionBackend | None, IsolationReport]:
    """Return the best backend of this host for the options of a job, started, and the report.

    Return None and a report of level ``NONE`` if no backend can be used. The level can be lower than the job requires.
    Raises :class:`ConfigError` for options that are invalid on any host, such as an unknown backend.
    """
    if config.get(SkillOptions.SHELL_NETWORK_HOSTS) and config.get(SkillOptions.SHELL_NETWORK) != "allow":
        raise ConfigError(
            f"option {SkillOptions.SHELL_NETWORK_HOSTS.key} requires {SkillOptions.SHELL_NETWORK.key}: allow; without "
            "it, commands cannot reach any host"
        )
    began = time.monotonic()
    about = _about_host(config)
    skipped: dict[str, str] = {}
    try:
        settings = settings_from(config)
    except IsolationError as error:
        return None, replace(about, skipped={"all": str(error)})
    if settings.user != workspaces.user:
        raise ConfigError(
            f"the workspaces belong to {workspaces.user}, but commands run as {settings.user}: use the same user"
        )
    about = replace(about, uid=settings.user.uid if settings.user else os.geteuid())
    best: ExecutionBackend | None = None
    best_report = about
    for name in _candidates(config):
        # Outside of the following: an unknown name or an invalid option is not a problem of this host.
        backend = create_backend(name, settings)
        unused: ExecutionBackend | None = backend
        try:
            report = await _examine(name, backend, settings, workspaces, about)
            if report.level > best_report.level:
                unused, best, best_report = best, backend, report
            elif report.level < IsolationLevel.HYGIENE:
                skipped[name] = f"the backend does not stop {_listed(report.not_enforced)}"
        except ExecutionError as error:
            skipped[name] = str(error)
        except BaseException:
            if best is not None:
                await best.close()
            raise
        finally:
            if unused is not None:
                await unused.close()
        if best is not None and best_report.level >= best.level:
            break
    took = (time.monotonic() - began) * 1000
    return best, replace(best_report, skipped=skipped, milliseconds=took)


def _candidates(config: SkillConfig) -> tuple[str, ...]:
    name = config.get(SkillOptions.SHELL_BACKEND)
    if name != "auto":
        return (name,)
    wanted = IsolationLevel.parse(config.get(SkillOptions.SHELL_MIN_ISOLATION))
    return (*_AUTOMATIC, _WITHOUT_FILES) if wanted <= IsolationLevel.HYGIENE else _AUTOMATIC


async def _examine(
    name: str,
    backend: ExecutionBackend,
    settings: BackendSettings,
    workspaces: WorkspaceManager,
    about: IsolationReport,
) -> IsolationReport:
    """Start ``backend`` and report what it proves. Raises :class:`ExecutionError` if it cannot be used."""
    if settings.hosts and not backend.enforces_hosts:
        raise ConfigError(
            f"option {SkillOptions.SHELL_NETWORK_HOSTS.key}: backend {name} cannot limit commands to single "
            "hosts: remove the option, and limit the pod's network with a NetworkPolicy or an egress proxy"
        )
    await backend.start()
    about = replace(about, backend=name, backend_version=backend.version)
    if backend.proves_itself:
        return replace(about, level=backend.level, proved=backend.proved, not_enforced=backend.not_enforced)
    findings = await prove(backend, workspaces, settings)
    level, missing = proved_level(findings, settings)
    level = min(level, backend.level)
    shared = _KNOWN_GAPS if IsolationLevel.NONE < level < IsolationLevel.REMOTE else ()
    gaps = {*findings.open, *missing, *shared, *backend.not_enforced}
    return replace(
        about,
        level=level,
        proved=tuple(sorted(findings.stopped)),
        not_enforced=tuple(sorted(gaps)),
        shortfall=backend.shortfall,
    )


def _about_host(config: SkillConfig) -> IsolationReport:
    return IsolationReport(
        level=IsolationLevel.NONE,
        limits=limits_from(config),
        net="allowed" if config.get(SkillOptions.SHELL_NETWORK) == "allow" else "denied",
        kernel=platform.release(),
        landlock_abi=abi_version(),
        seccomp_outer=_SECCOMP.get(own_status("Seccomp"), "unknown"),
        uid=os.geteuid(),
    )


def _refusal(report: IsolationReport, wanted: IsolationLevel) -> str:
    reasons = [f"{name}: {reason}" for name, reason in report.skipped.items()]
    if report.backend:
        needed = frozenset[str]().union(*(names for level, names in REQUIRED.items() if level <= wanted))
        open_names = tuple(name for name in report.not_enforced if name in needed)
        open_ = _listed(open_names) if open_names else ""
        why = f", because it does not stop {open_}" if open_ else ""
        why += f": {report.shortfall}" if report.shortfall else ""
        reasons.append(f"{report.backend}: reached {report.level.name} only{why}")
    ways = ["turn commands off (skills.shell.enabled: false, or skills.tools: knowledge_only)"]
    component = ""
    if report.level is IsolationLevel.LANDLOCK_PARTIAL:
        if not report.shortfall:
            ways.insert(0, "use nodes with Linux 6.12 or newer")
        component = f"; on Kubernetes: {_FOR_OLD_KERNELS}"
    if report.acceptable is not None:
        ways.append(f"accept less (skills.shell.min-isolation: {report.acceptable.name}{component})")
    return (
        f"commands cannot be isolated at {wanted.name} on this machine (kernel {report.kernel}, Landlock ABI "
        f"{report.landlock_abi}). {'; '.join(reasons)}. Fix the machine ('flink-skills doctor' lists all problems), "
        f"or {', or '.join(ways)}"
    )


def _listed(names: tuple[str, ...]) -> str:
    return ", ".join(name.replace("_", " ") for name in names) or "nothing"
