"""``ctx.state``: the state of a key as the agent's code has it, and the form in which it is kept."""

from __future__ import annotations

import copy
import logging
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import BaseModel, ValidationError

from flink_skills.agents.error_text import error_text
from flink_skills.agents.event import Record, to_plain
from flink_skills.errors import TurnError

__all__ = ["changed_state", "new_state", "plain_state"]

_log = logging.getLogger("flink_skills.runtime")


def new_state(declared: Any, kept: Any) -> Any:
    """A state from its kept form: a dict, or of the ``declared`` model.

    Raises :class:`TurnError` where what is kept does not fit the model.
    """
    if declared is None:
        return copy.deepcopy(kept) if kept is not None else {}
    try:
        return declared() if kept is None else declared.model_validate(kept)
    except ValidationError as error:
        problems = "; ".join(
            f"{'.'.join(map(str, problem['loc'])) or 'all of it'}: {problem['msg']}"
            for problem in error.errors(include_url=False, include_input=False)
        )
        raise TurnError(
            f"the state of this key does not fit state_type {declared.__name__} ({problems}): give new fields a "
            "default, and read what has another form now with a model_validator(mode='before')"
        ) from None
    except BaseException as error:  # validators are the user's code
        raise TurnError(
            f"the state of this key cannot be read, because state_type {declared.__name__} raised {error_text(error)}"
        ) from error


def plain_state(state: Any) -> Any:
    """The form of a state that is kept; None when there is nothing to keep."""
    if isinstance(state, BaseModel):
        return state.model_dump(mode="json")
    if not state:
        return None
    plain = to_plain(state)
    if plain != state and not isinstance(state, Record):
        # Tuples and the like come back as lists: say so now and not as a surprise in the next turn.
        _log.debug("ctx.state was kept as JSON, some of its values changed their type")
    return plain


def changed_state(state: Any, changed: Mapping[str, Any], gone: Sequence[str]) -> Any:
    """``state`` with what an agent that shares it has changed: in place, but for a model that is frozen.

    Fields that a model does not have are left out. Raises :class:`TurnError` for values that do not fit it.
    """
    if not isinstance(state, BaseModel):
        state.update(copy.deepcopy(dict(changed)))
        for key in gone:
            state.pop(key, None)
        return state
    known = {key: value for key, value in changed.items() if key in type(state).model_fields}
    new = new_state(type(state), {**state.model_dump(mode="json"), **known})
    if type(state).model_config.get("frozen"):
        return new
    for key in known:
        setattr(state, key, getattr(new, key))
    return state
