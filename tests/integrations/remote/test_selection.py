"""The backend as a job gets it: by the options of its configuration."""

from __future__ import annotations

from pathlib import Path

import pytest

from flink_skills.errors import IsolationError
from flink_skills.execution import IsolationLevel
from flink_skills.execution.isolation import open_backend
from flink_skills.execution.workspace import WorkspaceManager
from flink_skills.options import SkillConfig
from tests.integrations.remote.cluster import TOKEN, Cluster
from tests.integrations.remote.conftest import Key


def options(cluster: Cluster) -> dict[str, str]:
    given = {f"skills.shell.remote.{name}": value for name, value in cluster.options.items()}
    return {
        **given,
        "skills.shell.backend": "remote",
        "skills.shell.min-isolation": "REMOTE",
        "skills.shell.remote.token": "${env:SANDBOX_TOKEN}",
    }


async def test_a_job_gets_level_remote(cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SANDBOX_TOKEN", TOKEN)
    config = SkillConfig(options(cluster))

    backend, report = await open_backend(config, WorkspaceManager(tmp_path / "workspaces"))
    try:
        assert (report.level, report.backend, report.net) == (IsolationLevel.REMOTE, "remote", "denied")
        assert "only_as_strong_as_runtime_class:gvisor" in report.not_enforced
        assert (await Key(backend, tmp_path / "ws_1").run("echo", "hi")).stdout == b"hi\n"
    finally:
        await backend.close()
    assert cluster.claims == []


async def test_a_job_fails_to_open_with_the_reason(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SANDBOX_TOKEN", TOKEN)
    cluster.remove("sandboxtemplates", "python")

    with pytest.raises(IsolationError, match="SandboxTemplate 'python' does not exist"):
        await open_backend(SkillConfig(options(cluster)), WorkspaceManager(tmp_path / "workspaces"))
