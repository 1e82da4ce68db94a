from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from flink_skills.artifacts import ArtifactStore
from flink_skills.manager import SkillView
from flink_skills.options import SkillConfig
from flink_skills.tools import SkillSettings, load_effect
from tests.tools.conftest import Conversation

Talk = Callable[..., Awaitable[Conversation]]


@pytest.fixture
def talk_with(view: SkillView, shell_with, tmp_path: Path) -> Talk:  # type: ignore[no-untyped-def]
    """Starts a conversation that has loaded ``billing``, with options; ``artifacts=False`` is a job without a place."""

    async def start(*, artifacts: bool = True, loaded: bool = True, **options: object) -> Conversation:
        values = {f"skills.{name.replace('__', '.').replace('_', '-')}": value for name, value in options.items()}
        if artifacts:
            values["skills.artifacts.dir"] = (tmp_path / "artifacts").as_uri()
        config = SkillConfig(values)
        shell = await shell_with(**values)
        talk = Conversation(
            view,
            shell,
            settings=SkillSettings(tools=("skill_load", "skill_run")),
            config=config,
            artifacts=ArtifactStore.open(config),
        )
        talk.context.owner = "agent-1/k"
        if loaded:
            talk.skill_state.apply(load_effect("billing", "digest"))
        return talk

    return start


@pytest.fixture
async def talk(talk_with: Talk) -> Conversation:
    return await talk_with()
