from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from flink_skills.manager import AgentSkillManager
from flink_skills.tools import SkillSettings
from tests.tools.conftest import Conversation

Weather = """---
name: weather
description: Knows the weather.
---
Ask for a city first.

Tools:
- get_weather
# - get_history
- get_forecast

Overview
- get_nothing
"""

RUNS_NOTHING = (
    *("skill_list", "skill_load", "skill_unload", "skill_list_docs", "skill_select_docs"),
    *("skill_list_tools", "skill_select_tools"),
)


def full(**settings: object) -> SkillSettings:
    """The settings of ``full``, of which only the tools that run nothing."""
    values = {"profile": "", "tools": RUNS_NOTHING, "lifetime": "turn", "content": "system"} | settings
    return SkillSettings(**values)  # type: ignore[arg-type]


@pytest.fixture
def documented(skills: Path) -> Path:
    """The folder of skills, with one that has documents of all kinds and tools."""
    for name, text in {
        "SKILL.md": Weather,
        "guide.md": "The guide is in __BASE_DIR__.",
        "references/cities.txt": "Oslo, Rome",
        "references/units.md": "Celsius",
        "references/.hidden.md": "not to be listed",
        ".git/notes.md": "not to be listed",
        "data.csv": "1,2",
        "scripts/ask.sh": "echo sunny\n",
    }.items():
        path = skills / "weather" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return skills


Talking = Callable[..., Conversation]


@pytest.fixture
def talking(documented: Path, tmp_path: Path) -> Talking:
    """Starts conversations on the skills of ``documented``, without a shell."""

    def start(
        *, names: list[str] | None = None, settings: SkillSettings | None = None, **services: object
    ) -> Conversation:
        manager = AgentSkillManager(paths=[str(documented)], store_dir=str(tmp_path / "store"))
        return Conversation(manager.view(names), None, settings=settings or full(), **services)

    return start


@pytest.fixture
def talk_full(talking: Talking) -> Conversation:
    return talking(names=["weather", "billing", "log-triage"])
