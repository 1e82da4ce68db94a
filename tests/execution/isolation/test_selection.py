"""A backend is chosen by what it proves when a worker opens. Examines the internals of execution.backend_registry."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import psutil
import pytest
import yaml

from flink_skills.errors import ConfigError, ExecutionError, IsolationError, UnknownNameError
from flink_skills.execution import (
    BackendSettings,
    CommandRequest,
    CommandResult,
    ExecutionBackend,
    IsolationLevel,
    IsolationReport,
    WorkspaceManager,
    backend_names,
    backend_registry,
    command_user,
    register_backend,
    unregister_backend,
)
from flink_skills.execution.backends import HygieneBackend, LandlockBackend
from flink_skills.execution.isolation import REQUIRED, choose_backend, open_backend
from flink_skills.options import SkillConfig
from tests.kit.no_isolation import NoIsolationBackend


@pytest.fixture(autouse=True)
def own_registry() -> Iterator[None]:
    yield
    for name in backend_names():
        unregister_backend(name)


@pytest.fixture
def workspaces(tmp_path: Path) -> WorkspaceManager:
    return WorkspaceManager(tmp_path / "workspaces", user=command_user(SkillConfig()))


@pytest.fixture
async def no_process_left() -> AsyncIterator[None]:
    before = {child.pid for child in psutil.Process().children()}
    yield
    assert {child.pid for child in psutil.Process().children()} <= before


def config(**options: str) -> SkillConfig:
    return SkillConfig({f"skills.shell.{name.replace('_', '-')}": value for name, value in options.items()})


@pytest.mark.row("H8", "K6")
@pytest.mark.usefixtures("no_process_left")
async def test_landlock_proves_its_level_and_says_what_is_open(workspaces: WorkspaceManager) -> None:
    backend, report = await open_backend(config(backend="landlock"), workspaces)
    await backend.close()
    assert (report.level, report.backend, report.net) == (IsolationLevel.LANDLOCK, "landlock", "denied")
    assert REQUIRED[IsolationLevel.LANDLOCK] | REQUIRED[IsolationLevel.HYGIENE] <= set(report.proved)
    assert report.not_enforced == ("metadata_outside", "shared_kernel")
    assert report.uid != 0
    assert report.landlock_abi > 0
    assert list(workspaces.root.glob("*canary*")) == []


@pytest.mark.row("H8")
@pytest.mark.usefixtures("no_process_left")
async def test_hygiene_is_taken_only_by_who_says_so(workspaces: WorkspaceManager) -> None:
    with pytest.raises(
        IsolationError, match=r"hygiene: reached HYGIENE only.*read outside.*min-isolation: HYGIENE"
    ) as raised:
        await open_backend(config(backend="hygiene"), workspaces)
    assert raised.value.report.level is IsolationLevel.HYGIENE
    backend, report = await open_backend(config(backend="hygiene", min_isolation="HYGIENE"), workspaces)
    await backend.close()
    assert report.level is IsolationLevel.HYGIENE
    assert {"read_outside", "other_workspace"} <= set(report.not_enforced)


class Bragging(NoIsolationBackend):
    """Says more of itself than it does."""

    level = IsolationLevel.NAMESPACE


class Forgetful(LandlockBackend):
    """Is set up well, but for one folder too many."""

    def confinement(self, request: CommandRequest, *, tty: bool = False):  # type: ignore[no-untyped-def]
        found = super().confinement(request, tty=tty)
        return found._replace(read=(*found.read, str(Path(request.root).parent)))


class OfAnOldKernel(LandlockBackend):
    """Reaches no more than a kernel without scopes of Landlock."""

    level = IsolationLevel.LANDLOCK_PARTIAL


class Broken(HygieneBackend):
    async def start(self) -> None:
        raise ExecutionError("it lacks a part: fix it")


class Crashing(HygieneBackend):
    async def run(self, request: CommandRequest) -> CommandResult:
        return CommandResult(error="it fell over")


@pytest.mark.row("K6")
@pytest.mark.parametrize(
    ("factory", "level"), [(Bragging, IsolationLevel.NONE), (Forgetful, IsolationLevel.HYGIENE)], ids=["none", "leaky"]
)
async def test_what_a_backend_claims_counts_for_nothing(
    factory: Callable[[BackendSettings], ExecutionBackend], level: IsolationLevel, workspaces: WorkspaceManager
) -> None:
    backend_registry.register_backend("theirs", factory)
    backend, report = await choose_backend(config(backend="theirs"), workspaces)
    if backend is not None:
        await backend.close()
    assert report.level is level
    if level is IsolationLevel.NONE:
        assert "does not stop" in report.skipped["theirs"]
    with pytest.raises(IsolationError):
        await open_backend(config(backend="theirs"), workspaces)


async def test_an_old_kernel_is_told_what_to_do_with_and_without_the_manifests(workspaces: WorkspaceManager) -> None:
    register_backend("landlock", OfAnOldKernel, replace=True)
    with pytest.raises(IsolationError) as raised:
        await open_backend(config(backend="landlock"), workspaces)
    message = str(raised.value)
    assert "landlock: reached LANDLOCK_PARTIAL only" in message
    assert "nodes with Linux 6.12 or newer" in message
    (component,) = re.findall(r"skills\.shell\.min-isolation: LANDLOCK_PARTIAL; on Kubernetes: (deploy/\S+)\)", message)
    patch = (Path(__file__).parents[3] / component / "patch.yaml").read_text(encoding="utf-8")
    assert yaml.safe_load(patch) == [
        {"op": "replace", "path": "/spec/flinkConfiguration/skills.shell.min-isolation", "value": "LANDLOCK_PARTIAL"}
    ]


@pytest.mark.usefixtures("no_process_left")
@pytest.mark.parametrize("factory", [Broken, Crashing])
async def test_the_next_one_is_taken_where_one_cannot_be_used(
    factory: Callable[[BackendSettings], ExecutionBackend], workspaces: WorkspaceManager
) -> None:
    register_backend("bwrap", factory, replace=True)
    backend, report = await open_backend(SkillConfig(), workspaces)
    await backend.close()
    assert report.backend == "landlock"
    assert report.skipped["bwrap"] in ("it lacks a part: fix it", "it fell over")


async def test_none_that_works(workspaces: WorkspaceManager) -> None:
    for name in ("bwrap", "landlock"):
        register_backend(name, Broken, replace=True)
    backend, report = await choose_backend(SkillConfig(), workspaces)
    assert (backend, report.level) == (None, IsolationLevel.NONE)
    assert set(report.skipped) == {"bwrap", "landlock"}
    with pytest.raises(IsolationError, match=r"landlock: it lacks a part.*flink-skills doctor"):
        await open_backend(SkillConfig(), workspaces)


async def test_network_that_is_allowed_is_not_called_stopped(workspaces: WorkspaceManager) -> None:
    backend, report = await open_backend(config(backend="landlock", network="allow"), workspaces)
    await backend.close()
    assert (report.level, report.net) == (IsolationLevel.LANDLOCK, "allowed")
    assert not {"tcp", "udp"} & set(report.proved)
    assert {"unix_socket", "abstract_socket", "kernel_sockets"} <= set(report.proved)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"network": "allow", "network_hosts": "example.org"}, "cannot limit commands to single hosts"),
        ({"network_hosts": "example.org"}, "requires skills.shell.network: allow"),
    ],
)
async def test_hosts_that_nobody_can_enforce(options: dict[str, str], says: str, workspaces: WorkspaceManager) -> None:
    with pytest.raises(ConfigError, match=says):
        await choose_backend(config(**options), workspaces)


@pytest.mark.parametrize("name", ["landlok", "none"])
async def test_a_backend_that_nobody_knows(name: str, workspaces: WorkspaceManager) -> None:
    with pytest.raises(UnknownNameError):
        await choose_backend(config(backend=name), workspaces)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root switches users")
async def test_workspaces_of_another_user_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="commands run as"):
        await choose_backend(SkillConfig(), WorkspaceManager(tmp_path / "w"))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may lack what root needs")
async def test_root_that_cannot_become_another_user_is_refused(
    workspaces: WorkspaceManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("flink_skills.execution.backend_registry._effective_capabilities", lambda: 0)
    backend, report = await choose_backend(SkillConfig(), workspaces)
    assert backend is None
    with pytest.raises(IsolationError, match=r"root without CAP_CHOWN.*runAsUser: 9999") as refused:
        await open_backend(SkillConfig(), workspaces)
    assert "accept less" not in str(refused.value)  # it would not help
    assert "root without" in report.skipped["all"]


@pytest.mark.parametrize(
    ("report", "acceptable"),
    [
        (IsolationReport(IsolationLevel.LANDLOCK, backend="landlock"), IsolationLevel.LANDLOCK),
        (IsolationReport(IsolationLevel.NONE, skipped={"bwrap": "x", "landlock": "y"}), IsolationLevel.HYGIENE),
        (IsolationReport(IsolationLevel.NONE, skipped={"bwrap": "x", "landlock": "y", "hygiene": "z"}), None),
        (IsolationReport(IsolationLevel.NONE, skipped={"bwrap": "the only one that the job allows"}), None),
        (IsolationReport(IsolationLevel.NONE, skipped={"all": "root"}), None),
    ],
)
def test_a_lower_level_is_named_only_where_it_helps(report: IsolationReport, acceptable: IsolationLevel | None) -> None:
    assert report.acceptable is acceptable


_REFUSED = """
import asyncio, os, sys
from pathlib import Path
from unittest import mock
import pyseccomp

# A listener of the container: the kernel accepts only one.
outer = pyseccomp.SyscallFilter(pyseccomp.ALLOW)
outer.add_rule(pyseccomp.NOTIFY, "acct")
outer.load()

from flink_skills.errors import IsolationError
from flink_skills.execution import WorkspaceManager, command_user
from flink_skills.execution.isolation import open_backend
from flink_skills.options import SkillConfig

config = SkillConfig({"skills.shell.backend": "landlock"})
with mock.patch("flink_skills.execution.backends.landlock.abi_version", return_value=5):
    try:
        asyncio.run(open_backend(config, WorkspaceManager(Path(sys.argv[1]), user=command_user(config))))
    except IsolationError as error:
        print(error.report.level.name)
        print(error.report.to_json()["shortfall"])
        print(error)
"""


def test_a_container_that_refuses_a_listener_is_named(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _REFUSED, str(tmp_path / "workspaces")],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    level, shortfall, error = done.stdout.splitlines()
    assert level == "LANDLOCK_PARTIAL"
    assert "seccomp: Device or resource busy" in shortfall
    assert "landlock: reached LANDLOCK_PARTIAL only" in error
    assert f": {shortfall}." in error
