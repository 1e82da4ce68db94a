from __future__ import annotations

from tests.kit.agents import isolation, open_agent, script, skill_folder

__all__ = ["isolation", "open_agent", "script", "skill_folder"]
