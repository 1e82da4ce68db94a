"""Shows the roles in docstrings (``:class:`SkillsError```) as code in the built API reference."""

from __future__ import annotations

import re
from typing import Any

import griffe

_ROLE = re.compile(r":[a-z]+:`~?(?:[\w.]+\.)?(\w+)`")


class DocstringRoles(griffe.Extension):
    """Turns roles into code spans, before docstrings are parsed."""

    def on_instance(self, *, obj: griffe.Object, **kwargs: Any) -> None:
        """Called for each object that has been read."""
        if obj.docstring is not None:
            obj.docstring.value = _ROLE.sub(r"`\1`", obj.docstring.value)
