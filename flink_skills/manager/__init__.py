"""The skills of a job: catalog, scopes, filters, menu and activation."""

from flink_skills.manager.activation import Activation
from flink_skills.manager.manager import AgentSkillManager
from flink_skills.manager.menu import MenuEntry, parse_menu, render_menu
from flink_skills.manager.scope import SkillScope
from flink_skills.manager.view import ResourceText, SkillView

__all__ = [
    "Activation",
    "AgentSkillManager",
    "MenuEntry",
    "ResourceText",
    "SkillScope",
    "SkillView",
    "parse_menu",
    "render_menu",
]
