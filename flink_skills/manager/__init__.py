"""The skills of a job: catalog, scopes, filters, menu, activation, refresh and lock."""

from typing import TYPE_CHECKING

from flink_skills.lazy import lazy_names

if TYPE_CHECKING:
    from flink_skills.manager.lockfile import SkillLock as SkillLock
    from flink_skills.manager.menu import MenuEntry as MenuEntry
    from flink_skills.manager.menu import parse_menu as parse_menu
    from flink_skills.manager.menu import render_menu as render_menu
    from flink_skills.manager.scope import SkillScope as SkillScope
    from flink_skills.manager.skill_catalog import Refreshed as Refreshed
    from flink_skills.manager.skill_manager import AgentSkillManager as AgentSkillManager
    from flink_skills.manager.view import AuditEvent as AuditEvent
    from flink_skills.manager.view import SkillView as SkillView
else:
    __all__, __getattr__, __dir__ = lazy_names(__name__)
