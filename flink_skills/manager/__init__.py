"""The skills of a job: catalog, scopes, filters, menu, activation, refresh and lock."""

from flink_skills.manager.activation import Activation, ResourceText
from flink_skills.manager.lockfile import SkillLock
from flink_skills.manager.menu import MenuEntry, parse_menu, render_menu
from flink_skills.manager.scope import SkillScope
from flink_skills.manager.skill_catalog import Refreshed
from flink_skills.manager.skill_manager import AgentSkillManager
from flink_skills.manager.view import AuditEvent, SkillView

__all__ = [
    "Activation",
    "AgentSkillManager",
    "AuditEvent",
    "MenuEntry",
    "Refreshed",
    "ResourceText",
    "SkillLock",
    "SkillScope",
    "SkillView",
    "parse_menu",
    "render_menu",
]
