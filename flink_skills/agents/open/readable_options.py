"""Options for the code of agents, with references replaced."""

from __future__ import annotations

from contextlib import suppress

from flink_skills.errors import ConfigError
from flink_skills.options import JobConfig, SkillConfig, SkillOptions
from flink_skills.sources.secrets import expand, replacements
from flink_skills.tools.commands.hidden import HiddenValues

__all__ = ["ReadableOptions"]


class ReadableOptions:
    """Options for the code of agents on this machine. References in custom keys are replaced at each read.

    Attributes:
        view: The options for agents and tools.
        hidden: The resolved values. Logs, events and spans do not show them.

    >>> os.environ["TENANT_KEY"] = "t0k3n-1"
    >>> options = ReadableOptions(SkillConfig({"skills.user.key": "${env:TENANT_KEY}"}))
    >>> options.view.get("skills.user.key"), options.hidden.in_text("sent t0k3n-1")
    ('t0k3n-1', 'sent [hidden]')
    """

    def __init__(self, config: SkillConfig) -> None:
        self.hidden = HiddenValues()
        self.view = JobConfig(config, self._resolve)
        family = SkillOptions.USER
        for name, text in config.family(family).items():
            # Hide the values before any code runs. A reference that cannot be resolved is an error where it is read.
            with suppress(ConfigError):
                self._resolve(family.prefix + name, text)

    def _resolve(self, key: str, text: str) -> str:
        try:
            # In a job file as well, "$${" represents "${".
            parts = [expand(part) for part in text.split("$${")]
        except ConfigError as error:
            raise ConfigError(f"option {key}: {error}") from None
        for inserted, reference in replacements(text):
            self.hidden.add(f"{key} {reference}", inserted)
        return "${".join(parts)
