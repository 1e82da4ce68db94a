"""Fetch through the product's own classes, as a job's options would have it."""

from __future__ import annotations

import io
import json
import time
import zipfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from flink_skills.errors import SourceError
from flink_skills.options import SkillConfig
from flink_skills.sources import RemoteFile, SourceContext, SourceTree, open_source
from tests.kit.waiting import MARGIN

SKILL = b"---\nname: greet\ndescription: Says hello.\n---\nHi\n"


def zip_bytes(entries: dict[str, bytes] | None = None) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, data in (entries or {"greet/SKILL.md": SKILL}).items():
            archive.writestr(zipfile.ZipInfo(name), data)
    return buffer.getvalue()


@dataclass
class Reader:
    """Reads URLs with these file system options, within ``seconds``, and a store below ``folder``."""

    folder: Path
    options: dict[str, dict[str, Any]] = field(default_factory=dict)
    seconds: float = 20.0
    more: dict[str, Any] = field(default_factory=dict)

    @property
    def context(self) -> SourceContext:
        values = {
            "skills.source.options": json.dumps(self.options),
            "skills.source.timeout": self.seconds,
            "skills.source.allow-http": True,
            "skills.source.allow-private": True,
            **self.more,
        }
        return SourceContext(SkillConfig(values), store_dir=str(self.folder / "store"))

    def fetch(self, url: str, *, limit: int = 1 << 20, target: str = "") -> bytes:
        path = target or str(self.folder / "fetched")
        RemoteFile(url, self.context).fetch(path, limit, time.monotonic() + self.seconds)
        return Path(path).read_bytes()

    def version(self, url: str) -> str | None:
        return RemoteFile(url, self.context).version(time.monotonic() + self.seconds)

    def failure(self, url: str, *, limit: int = 1 << 20, target: str = "") -> SourceError:
        """The one error, which came within the deadline."""
        began = time.monotonic()
        with pytest.raises(SourceError) as caught:
            self.fetch(url, limit=limit, target=target)
        assert time.monotonic() - began < self.seconds + MARGIN
        return caught.value

    def resolve(self, url: str) -> SourceTree:
        """The URL as a source of skills: fetched, unpacked, in the store."""
        [tree] = open_source("url", url, self.context).resolve()
        return tree
