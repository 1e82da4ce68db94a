"""Navigation of the built site."""

from __future__ import annotations

from typing import Any

import yaml

from tests.docs.pages import ROOT

__all__ = ["pages_of", "read_navigation"]


class _Loader(yaml.SafeLoader):
    """Loader that reads Python tags, which mkdocs allows, as strings."""


_Loader.add_multi_constructor("tag:yaml.org,2002:python/", lambda loader, suffix, node: suffix)


def read_navigation() -> list[Any]:
    """Return the value of ``nav`` in ``mkdocs.yml``: names of pages, and sections with their entries."""
    settings = yaml.load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"), _Loader)  # a SafeLoader
    navigation: list[Any] = settings["nav"]
    return navigation


def pages_of(entry: Any) -> list[str]:
    """Return the pages of an entry, relative to ``docs``."""
    if isinstance(entry, str):
        return [entry]
    values = entry.values() if isinstance(entry, dict) else entry
    return [page for value in values for page in pages_of(value)]
