"""Shows the roles in docstrings (``:class:`SkillsError```) as code in the built API reference."""

from __future__ import annotations

import re
from typing import Any

import griffe

_ROLE = re.compile(r":[a-z]+:`~?(?:[\w.]+\.)?(\w+)`")


def without_roles(docstring: str) -> str:
    """Return the docstring with roles as code spans."""
    return _ROLE.sub(r"`\1`", docstring)


class DocstringRoles(griffe.Extension):
    """Turns roles into code spans, before docstrings are parsed."""

    def on_instance(self, *, obj: griffe.Object, **kwargs: Any) -> None:
        """Called for each object that has been read."""
        if obj.docstring is not None:
            obj.docstring.value = without_roles(obj.docstring.value)
