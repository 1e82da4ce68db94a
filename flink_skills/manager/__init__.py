"""The skills of a job: catalog, scopes, filters, menu, activation, refresh and lock."""

from flink_skills.manager.activation import Activation
from flink_skills.manager.audit import AuditEvent
from flink_skills.manager.lockfile import SkillLock
from flink_skills.manager.manager import AgentSkillManager
from flink_skills.manager.menu import MenuEntry, parse_menu, render_menu
from flink_skills.manager.paging import ResourceText
from flink_skills.manager.refresh import Refreshed
from flink_skills.manager.scope import SkillScope
from flink_skills.manager.view import SkillView

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
