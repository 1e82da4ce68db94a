"""Keyed events and keyed answers of a stream, in Java where the type of the stream allows it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from flink_skills.agents.state.key_selection import check_key_selector
from flink_skills.errors import UnknownNameError
from flink_skills.flink.bridge import add_bridge, text_array
from flink_skills.flink.keying import Wait, check_in_python, key_in_python, origin_of, row_fields
from flink_skills.flink.wait_ids import WaitIds

if TYPE_CHECKING:
    from pyflink.datastream import DataStream, StreamExecutionEnvironment

__all__ = ["EventKeys"]


class EventKeys:
    """The key of the elements of a stream.

    Args:
        flink: The execution environment of the stream.
        stream: Any PyFlink stream.
        key_selector: As in ``from_datastream``.
        place: The call, for messages.

    Raises:
        UnknownNameError: The rows of the stream have no such field.
        ConfigError: The key selector cannot be used.
    """

    def __init__(self, flink: StreamExecutionEnvironment, stream: DataStream, key_selector: Any, place: str) -> None:
        keys = check_key_selector(key_selector, place)
        self.flink = flink
        self._bridge = add_bridge(flink)
        self._stream = stream if key_selector is None else origin_of(stream)
        self._selector = key_selector
        #: The names of the fields of all elements, None if the type of the stream does not tell them.
        self.fields: Sequence[str] | None = row_fields(origin_of(stream))
        self._by: Any = None
        if self.fields is not None and keys:
            for key in keys:
                if key not in self.fields:
                    raise UnknownNameError("key field", key, self.fields, place="the stream's rows")
            if all(self._bridge.canKeyInJava(self._stream._j_data_stream, key) for key in keys):
                self._by = key_selector if isinstance(key_selector, str) else text_array(keys)
        if self._by is None:
            check_in_python(self._stream, key_selector)

    @property
    def form(self) -> str:
        """The format of the bytes of elements, as a plan names it."""
        return "pickle" if self._by is None else "record"

    def events(self, wait_field: str = "") -> Any:
        """Return the Java stream of keyed events. Elements with a value in ``wait_field`` are answers."""
        java = self._stream._j_data_stream
        if self._by is None:
            wait = WaitIds(wait_field, answers=False) if wait_field else None
            return key_in_python(self._stream, self._selector, wait)._j_data_stream
        keyed = (
            self._bridge.keyEvents(java, self._by, wait_field) if wait_field else self._bridge.keyRows(java, self._by)
        )
        # As many subtasks as the stage before: another number would shuffle events and lose a key's order.
        keyed.setParallelism(java.getTransformation().getParallelism())
        return keyed

    def answers(self, wait_id: str | Callable[[Any], Any]) -> Any:
        """Return the Java stream of keyed answers."""
        if isinstance(wait_id, str) and self.fields is not None and wait_id not in self.fields:
            raise UnknownNameError("wait field", wait_id, self.fields, place="the rows of the answers")
        if self._by is not None and isinstance(wait_id, str):
            return self._bridge.keyAnswers(self._stream._j_data_stream, self._by, wait_id)
        wait: Wait = WaitIds(wait_id, answers=True)
        return key_in_python(self._stream, self._selector, wait)._j_data_stream
