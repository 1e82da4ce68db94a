"""The chat model of the front desk: what it asks for in each case, step by step, and what it was told."""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from flink_skills.testing import Call, Reply
from tests.flink.skill_files import write_skill

__all__ = [
    "DESK",
    "LIBRARIAN",
    "NOTES",
    "Asked",
    "DeskModel",
    "Step",
    "call",
    "desk_cases",
    "read_again",
    "session_of",
    "tool_results",
    "value_of",
    "write_desk_skills",
]

Step = Sequence[Call] | Callable[["Asked"], Sequence[Call]]
"""The calls of a step, or a function that makes them of the request."""

TOOLS_PY = '''
"""What the ledger brings itself."""

import os


def double(number: int) -> int:
    """Twice a number."""
    print("not part of the answer")
    return 2 * number


def whose(text: str = "") -> str:
    """The process that runs the tools of the ledger."""
    return "worker" if "flink_skills" in os.environ.get("PYTHONPATH", "") else "sandbox"
'''
ASK = 'echo "Who are you?"; while read -r name; do echo "Hello, $name."; done; echo bye\n'


def write_desk_skills(folder: Path) -> tuple[Path, Path]:
    """The skills of the desk and the books of its librarian."""
    desk, books = folder / "desk", folder / "books"
    write_skill(
        desk,
        "ledger",
        body="Body of the ledger.\n\nTools:\n- weigh\n- total\n- find_city\n- of_turn\n",
        files={
            "guide.md": "Guide to the ledger.\n",
            "other.txt": "Other things about the ledger.\n",
            "tools.py": TOOLS_PY,
            "scripts/ask.sh": ASK,
        },
    )
    write_skill(desk, "atlas", body="Body of the atlas.\n\nTools:\n- find_city\n")
    write_skill(books, "law", body="Body of the law.\n")
    return desk, books


def call(name: str, /, **arguments: Any) -> Call:
    return Call(name, arguments)


@dataclass
class Asked:
    """A request of an agent's model: the ``step``-th of a turn, from 0."""

    agent: str
    case: str
    step: int
    body: dict[str, Any]

    @property
    def tools(self) -> set[str]:
        return {tool["function"]["name"] for tool in self.body.get("tools", ())}

    @property
    def system(self) -> str:
        return "\n".join(m["content"] for m in self.body["messages"] if m["role"] in ("system", "developer"))

    @property
    def told(self) -> list[str]:
        """What the tools of this conversation said so far."""
        return tool_results(self.body["messages"])

    @property
    def results(self) -> list[str]:
        """What the tools of this turn said so far."""
        return tool_results(_of_turn(self.body))


@dataclass
class DeskModel:
    """Asks for the steps of each case of each agent, by what its instructions say, then answers with the last result.

    ``before`` is awaited before each reply: a test may wait there, or kill somebody.
    """

    agents: Mapping[str, Mapping[str, Sequence[Step]]]
    before: Callable[[Asked], Awaitable[None]] | None = None
    asked: list[Asked] = field(default_factory=list)

    async def __call__(self, body: dict[str, Any]) -> Reply:
        turn = _of_turn(body)
        system = "\n".join(m["content"] for m in body["messages"] if m["role"] in ("system", "developer"))
        agent = next(name for name in self.agents if name in system)
        found = re.search(r'"case": ?"([^"]+)"', turn[0]["content"])
        case = found[1] if found is not None else turn[0]["content"]
        step = sum(message["role"] == "assistant" for message in turn)
        asked = Asked(agent, case, step, body)
        self.asked.append(asked)
        if self.before is not None:
            await self.before(asked)
        # "arrival of ada" is the case arrival.
        steps = self.agents[agent].get(case.partition(" ")[0], ())
        if step >= len(steps):
            return Reply("done: {last_tool}")
        wanted = steps[step]
        return Reply(tool_calls=tuple(wanted(asked) if callable(wanted) else wanted))

    def of(self, agent: str, case: str) -> list[Asked]:
        """The requests of a case, oldest first."""
        return [asked for asked in self.asked if (asked.agent, asked.case) == (agent, case)]


def _of_turn(body: Mapping[str, Any]) -> list[dict[str, Any]]:
    messages: list[dict[str, Any]] = body["messages"]
    last = max(at for at, message in enumerate(messages) if message["role"] == "user")
    return messages[last:]


def tool_results(messages: Sequence[Mapping[str, Any]]) -> list[str]:
    """The texts of tool results among messages."""
    return [message["content"] for message in messages if message["role"] == "tool"]


def session_of(results: Sequence[str]) -> str:
    """The id of the process that was started last."""
    found = [match[1] for text in results if (match := re.search(r'"session_id": ?"([^"]+)"', text))]
    return found[-1]


def value_of(text: str) -> dict[str, Any]:
    value: dict[str, Any] = json.loads(text)
    return value


DESK, LIBRARIAN = "You are the front desk.", "You look things up."
LOUD = "tr a-z A-Z < work/inputs/notes.txt > $OUTPUT_DIR/loud.txt"
AGAIN = {"from": "artifact://out/loud.txt", "to": "work/inputs/again.txt"}
NOTES = {"name": "notes.txt", "text": "some notes\n"}


def read_again(asked: Asked) -> list[Call]:
    """Reads what an earlier turn of the key saved."""
    return [call("skill_run", skill="ledger", command="cat work/inputs/again.txt", inputs=[AGAIN])]


def desk_cases(mark: str) -> dict[str, dict[str, list[Step]]]:
    """What desk and librarian do when somebody arrives and comes back.

    ``mark`` is in the command that is left running.
    """
    arrival: list[Step] = [
        [call("skill_list")],
        [call("skill_load", skill="ledger", docs=["guide.md"])],
        [call("skill_select_docs", skill="ledger", docs=["other.txt"], mode="add")],
        [call("skill_run", skill="ledger", command=LOUD, output_files=["out/*.txt"], save_as_artifacts=True)],
        [
            call("weigh", text="12345"),
            call("total", numbers=[1, 2, 3]),
            call("find_city", street="Elm Street"),
            call("of_turn"),
            call("double", number=21),
            call("whose"),
            call("ring"),
        ],
        lambda asked: [call("look_up", request=f"law for: {asked.case}")],
        [call("skill_exec", skill="ledger", command=f"sh scripts/ask.sh {mark}")],
    ]
    back: list[Step] = [
        lambda asked: [call("skill_write_stdin", session_id=session_of(asked.told), chars="Ada", submit=True)],
        read_again,
    ]
    return {DESK: {"arrival": arrival, "return": back}, LIBRARIAN: {"law": [[call("load_skill", name="law")]]}}
