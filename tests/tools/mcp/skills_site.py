"""A server of skills over HTTP in this process, and managers that use it."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

from flink_skills import AgentSkillManager, SkillConfig
from tests.tools.mcp.skills_server import SkillsServer, http_server

OPEN = {"skills.source.allow-http": "true", "skills.source.allow-private": "true"}
MARKDOWN = "---\nname: {name}\ndescription: Does {name}.\n{more}---\n\n# {name}\n\nRead refs/notes.md\n"


def write_skill(folder: Path, more: str = "") -> Path:
    """Write a skill with a reference and a script."""
    for name, text in {
        "SKILL.md": MARKDOWN.format(name=folder.name, more=more),
        "refs/notes.md": f"Notes of {folder.name}\n",
        "scripts/run.sh": "#!/bin/sh\necho run\n",
    }.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


class Site:
    """A server of skills over HTTP in this process, and managers that use it."""

    def __init__(self, folder: Path, store: Path) -> None:
        self.folder = folder
        self.store = store
        self.faults: dict[str, Any] = {}
        self.server = SkillsServer(folder, self.faults)
        self._http = http_server(self.server)
        threading.Thread(target=self._http.serve_forever, args=(0.01,), daemon=True).start()

    @property
    def url(self) -> str:
        return f"mcp+http://127.0.0.1:{self._http.server_port}/mcp"

    def source(self, label: str = "acme", **settings: Any) -> dict[str, Any]:
        return {"url": self.url, "label": label, "timeout": 5, **settings}

    def manager(self, *sources: Any, **options: Any) -> AgentSkillManager:
        config = SkillConfig({**OPEN, "skills.store.dir": str(self.store), **options.pop("config", {})})
        return AgentSkillManager(urls=list(sources) or [self.source()], config=config, **options)

    def asked(self, method: str) -> list[str]:
        return [uri for name, uri in self.server.requests if name == method]

    def close(self) -> None:
        self._http.shutdown()
        self._http.server_close()
