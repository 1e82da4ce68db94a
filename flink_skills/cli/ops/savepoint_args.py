"""Arguments of commands that read a savepoint or checkpoint."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from flink_skills.errors import ConfigError

if TYPE_CHECKING:
    from flink_skills.flink.savepoints import Savepoint

__all__ = ["FlinkOptions", "SavepointPath", "agents_of", "key_candidates", "open_savepoint"]

SavepointPath = Annotated[
    str,
    typer.Argument(
        metavar="SAVEPOINT",
        show_default=False,
        help="Directory of a savepoint or a retained checkpoint: a path or a URL.",
    ),
]
FlinkOptions = Annotated[
    list[str] | None, typer.Option("-D", metavar="KEY=VALUE", help="Set an option of Flink. Can be repeated.")
]


def open_savepoint(location: str, flink: Iterable[str] | None) -> Savepoint:
    """Return the savepoint at ``location``, read with options ``KEY=VALUE`` of Flink.

    Raises:
        ConfigError: There is no savepoint, or it has no state of agents.
    """
    from flink_skills.flink.savepoints import Savepoint

    found = Savepoint(location, dict(_parse_assignments(flink or [])))
    if not found.agents:
        raise ConfigError(f"{found.location} contains no agent state. Check that a job with agents wrote it.")
    return found


def _parse_assignments(assignments: Iterable[str]) -> Iterator[tuple[str, str]]:
    for assignment in assignments:
        name, separator, value = assignment.partition("=")
        if not separator:
            raise typer.BadParameter(f"-D {assignment}: expected KEY=VALUE")
        yield name.strip(), value.strip()


def key_candidates(key: str | None) -> list[str | None]:
    """Return the canonical keys that a user can mean: the string itself, and the value if it is JSON."""
    from flink_skills.agents.state.keys import key_to_text

    if key is None:
        return [None]
    try:
        return [key_to_text(key), key_to_text(json.loads(key))]
    except (ValueError, RecursionError):
        return [key_to_text(key)]


def agents_of(savepoint: Savepoint, agent: str | None) -> list[str]:
    """Return the selected agent, or all agents in the savepoint."""
    return sorted(savepoint.agents) if agent is None else [agent]
