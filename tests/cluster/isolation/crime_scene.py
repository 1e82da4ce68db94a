"""What surrounds the intruders: a job of theirs, the model that leads them on, and the books of what they reached."""

from __future__ import annotations

import itertools
import json
import re
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flink_skills.testing import Call, Reply, ScriptedModelServer
from tests.kit.cluster import StandaloneCluster, wait_until

__all__ = ["CrimeScene", "Reached", "Report"]

MAX_NAMES = 64  # as scripts/pry.py has it
HERE = Path(__file__).parent


@dataclass(frozen=True)
class Reached:
    """What an attempt on ``path`` came to: ``text`` of a file, ``names`` in ``folder``, or neither when it did harm."""

    path: str
    way: str
    text: str | None = None
    folder: str = ""
    names: tuple[str, ...] = ()

    @property
    def full(self) -> bool:
        """Whether there are more names than are told."""
        return len(self.names) >= MAX_NAMES


@dataclass(frozen=True)
class Report:
    """What a command says of its attempts: what it reached, and how often which error stopped it."""

    reached: list[Reached]
    stopped: dict[str, int]
    environment: dict[str, str]
    text: str

    @property
    def attempts(self) -> int:
        return len(self.reached) + sum(self.stopped.values())

    def leaks(self, granted: Iterable[str]) -> list[Reached]:
        """What was reached and is not on the way to ``granted`` paths.

        A command with a view of its own can list folders that hold the way to its workspace there, and nothing else.
        """
        ways = {str(way) for path in granted for way in (Path(path), *Path(path).parents)}
        return [each for each in self.reached if not each.folder or each.full or not _children(each) <= ways]


def _children(reached: Reached) -> set[str]:
    return {str(Path(reached.folder, name)) for name in reached.names}


class CrimeScene:
    """One job in ``cluster``, and the commands that its model asks for, all below ``folder``.

    Each event says what its command is: its ``what`` is a name in :attr:`commands`.
    """

    def __init__(self, cluster: StandaloneCluster, folder: Path) -> None:
        self._cluster = cluster
        self._events, self._results = folder / "events", folder / "results"
        self._events.mkdir(parents=True)
        self._files = itertools.count()
        self.server = ScriptedModelServer(self._reply)
        self.commands: dict[str, str] = {}
        self.job = ""

    def submit(self, options: Mapping[str, str]) -> None:
        self.job = self._cluster.submit(
            HERE / "job.py",
            *("--events", str(self._events), "--results", str(self._results)),
            *("--model-url", self.server.url, "--skills", str(HERE / "skills")),
            *(word for key, value in options.items() for word in ("--option", f"{key}={value}")),
            python_files=[HERE / "intruders.py"],
        )
        self._cluster.wait(self.job, "RUNNING", 120)

    def tell(self, keys: Iterable[str], command: str) -> str:
        """An event for each of ``keys`` that makes its model run ``command``; returns the name of both."""
        name = f"crime-{next(self._files)}"
        self.commands[name] = command
        hidden = self._events / f".{name}"
        hidden.write_text("".join(f"{key},{name}\n" for key in keys))
        hidden.rename(self._events / name)
        return name

    def answer(self, key: str, name: str, within: float = 60) -> str:
        """The committed result of an event."""
        return str(wait_until(lambda: self._answers().get((key, name)), within, f"the answer of {key} to {name}"))

    def does(self, key: str, command: str) -> str:
        """Have a command run for ``key``; its output as the model sees it."""
        return self.answer(key, self.tell([key], command))

    def tries(self, key: str, how: str, paths: Iterable[object]) -> Report:
        """Have ``key`` try to ``read`` or ``harm`` these paths."""
        words = shlex.join(["python3", "scripts/pry.py", how, *map(str, paths)])
        text = self.does(key, words)
        found = re.search(r"^pried=(.*)$", text, re.MULTILINE)
        assert found is not None, text
        told = json.loads(found[1])
        return Report([Reached(**each) for each in told["reached"]], told["stopped"], told["environment"], text)

    def _answers(self) -> dict[tuple[str, str], str]:
        answers = {}
        for file in self._results.glob("*/part-*"):
            for line in file.read_text().splitlines():
                told = json.loads(line)
                assert (told["key"], told["what"]) not in answers, "a result was committed twice"
                answers[told["key"], told["what"]] = told["answer"]
        return answers

    def _reply(self, body: dict[str, Any]) -> Reply:
        users = [str(message["content"]) for message in body["messages"] if message["role"] == "user"]
        found = re.search(r"Event \S+ (\S+)\.", users[-1])
        assert found is not None, users
        calls = [
            Call("load_skill", {"name": "pry"}),
            Call("execute_shell_command", {"command": self.commands[found[1]]}),
        ]
        done = sum(message["role"] == "tool" for message in body["messages"])
        return Reply(tool_calls=(calls[done],)) if done < len(calls) else Reply(text="{last_tool}")
