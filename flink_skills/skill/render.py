"""Write a ``SKILL.md``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import yaml

__all__ = ["render_skill_file"]


def render_skill_file(fields: Mapping[str, Any], body: str) -> str:
    """Front matter of the fields, in their order, and the body.

    >>> print(render_skill_file({"name": "a", "description": "b: c"}, "Do."))
    ---
    name: a
    description: 'b: c'
    ---
    <BLANKLINE>
    Do.
    <BLANKLINE>
    """
    written = yaml.safe_dump(
        dict(fields),
        allow_unicode=True,
        sort_keys=False,
        width=1_000_000,
    )
    return f"---\n{written}---\n\n{body.strip(chr(10))}\n"
