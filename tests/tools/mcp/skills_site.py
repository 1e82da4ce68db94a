"""A server of skills over HTTP in this process or over stdio, and managers that use it."""

from __future__ import annotations

import json
import shlex
import sys
import threading
from pathlib import Path
from typing import Any

from flink_skills import AgentSkillManager, SkillConfig
from tests.tools.mcp.skills_server import SkillsServer, http_server

OPEN = {"skills.source.allow-http": "true", "skills.source.allow-private": "true"}
MARKDOWN = "---\nname: {name}\ndescription: Does {name}.\n{more}---\n\n# {name}\n\nRead refs/notes.md\n"
PROGRAM = Path(__file__).with_name("skills_server.py")


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


class Faults(dict[str, Any]):
    """Faults of a server, which are also in a file for a server in another process."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.path = path
        self._write()

    def _write(self) -> None:
        new = self.path.with_suffix(".new")
        new.write_text(json.dumps(self))
        new.replace(self.path)

    def __setitem__(self, name: str, value: Any) -> None:
        super().__setitem__(name, value)
        self._write()

    def update(self, *values: Any, **more: Any) -> None:
        super().update(*values, **more)
        self._write()

    def clear(self) -> None:
        super().clear()
        self._write()


class Site:
    """A server of skills, and managers that use it."""

    def __init__(self, folder: Path, store: Path, transport: str = "http") -> None:
        self.folder = folder
        self.store = store
        self._log = folder.with_suffix(".log")
        self.faults = Faults(folder.with_suffix(".json"))
        self.server = SkillsServer(folder, self.faults)
        self._http = http_server(self.server)
        self.is_program = transport == "stdio"
        threading.Thread(target=self._http.serve_forever, args=(0.01,), daemon=True).start()

    @property
    def url(self) -> str:
        if self.is_program:
            words = [sys.executable, PROGRAM, self.folder, self.faults.path, self._log]
            return f"mcp+stdio:{shlex.join(map(str, words))}"
        return f"mcp+http://127.0.0.1:{self._http.server_port}/mcp"

    def source(self, label: str = "acme", **settings: Any) -> dict[str, Any]:
        return {"url": self.url, "label": label, "timeout": 5, **settings}

    def manager(self, *sources: Any, **options: Any) -> AgentSkillManager:
        config = SkillConfig({**OPEN, "skills.store.dir": str(self.store), **options.pop("config", {})})
        return AgentSkillManager(urls=list(sources) or [self.source()], config=config, **options)

    def asked(self, method: str) -> list[str]:
        """Return the URIs of the requests with a method."""
        if self.is_program:
            lines = self._log.read_text().splitlines() if self._log.exists() else []
            return [line.partition(" ")[2] for line in lines if line.partition(" ")[0] == method]
        return [uri for name, uri in self.server.requests if name == method]

    def close(self) -> None:
        self._http.shutdown()
        self._http.server_close()
