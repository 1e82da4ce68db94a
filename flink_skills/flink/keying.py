"""From a stream of any type to the operator's input: pairs of canonical key text and event bytes."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from pyflink.common import Row, RowKind, Types
from pyflink.datastream import DataStream, KeyedStream, KeySelector
from pyflink.datastream.functions import FlatMapFunction, KeyedProcessFunction, RuntimeContext
from pyflink.util.java_utils import is_instance_of

from flink_skills.agents.event import Record, field_of
from flink_skills.agents.keys import key_failure_text, key_to_text
from flink_skills.errors import ConfigError, SkillsError

__all__ = ["as_record", "key_in_python", "origin_of", "row_fields"]


def key_in_python(stream: DataStream, key_selector: Any) -> DataStream:
    """Key ``stream`` in one Python stage. ``key_selector`` is a callable, a ``KeySelector``, a field name, a list of
    them, or None for the key of a keyed stream."""
    if key_selector is None:
        if not isinstance(stream, KeyedStream):
            raise ConfigError(
                "from_datastream: give a key_selector (a callable or a field name), or a stream that is keyed"
            )
        return stream.process(_KeepKey(), output_type=_pair()).name("key events")
    stream = origin_of(stream)
    # As many subtasks as the stage before: another number would shuffle events and lose the order of a key.
    parallelism = stream._j_data_stream.getTransformation().getParallelism()
    keyed = stream.flat_map(_KeyEvents(key_selector), output_type=_pair())
    return keyed.name("key events").set_parallelism(parallelism)


def origin_of(stream: DataStream) -> DataStream:
    """The stream below a keyed one, whose elements are the events and not pairs of key and event."""
    return stream._origin_stream if isinstance(stream, KeyedStream) else stream


def row_fields(stream: DataStream) -> list[str] | None:
    """Field names of a stream of rows; None where the stream's type does not tell them."""
    j_type = stream._j_data_stream.getType()
    if is_instance_of(j_type, "org.apache.flink.api.java.typeutils.RowTypeInfo"):
        return [str(name) for name in j_type.getFieldNames()]
    if is_instance_of(j_type, "org.apache.flink.table.types.DataTypeQueryable"):
        logical = j_type.getDataType().getLogicalType()
        if is_instance_of(logical, "org.apache.flink.table.types.logical.RowType"):
            return [str(name) for name in logical.getFieldNames()]
    return None


def _pair() -> Any:
    return Types.ROW([Types.STRING(), Types.PICKLED_BYTE_ARRAY()])


def as_record(event: Any) -> Any:
    """A row with field names as a :class:`Record`, rows inside of it as well; anything else as it is."""
    if isinstance(event, Row):
        fields = getattr(event, "_fields", None)
        if fields:
            return Record(zip(fields, map(as_record, event), strict=True))
        return tuple(map(as_record, event))
    if isinstance(event, list):
        return [as_record(item) for item in event]
    return event


def _holds(event: Any) -> bool:
    """Whether an element is an event: the row before an update is none, the row after it follows. Raises
    :class:`ConfigError` for a deletion."""
    kind = event.get_row_kind() if isinstance(event, Row) else RowKind.INSERT
    if kind == RowKind.DELETE:
        raise ConfigError(
            "the agent's input has a DELETE row, and a turn that has run cannot be taken back. Filter deletes out, or "
            "use a query that only inserts or updates."
        )
    return bool(kind != RowKind.UPDATE_BEFORE)


class _KeyEvents(FlatMapFunction):  # type: ignore[misc]
    """An event without a usable key goes on under a failure key, where it ends as an error record: one bad event must
    not stop the others."""

    def __init__(self, key_selector: Callable[[Any], Any] | KeySelector | str | list[str]) -> None:
        self._selector = key_selector

    def open(self, runtime_context: RuntimeContext) -> None:
        if isinstance(self._selector, KeySelector):
            self._selector.open(runtime_context)

    def close(self) -> None:
        if isinstance(self._selector, KeySelector):
            self._selector.close()

    def flat_map(self, value: Any) -> Iterable[Row]:
        if not _holds(value):
            return
        event = as_record(value)
        try:
            key = key_to_text(self._key(event if isinstance(self._selector, (str, list)) else value))
        except SkillsError as error:
            key = key_failure_text(str(error))
        except Exception as error:  # the selector is the user's
            key = key_failure_text(f"the key selector failed: {type(error).__name__}: {error}")
        yield Row(key, event)

    def _key(self, event: Any) -> Any:
        if isinstance(self._selector, str):
            return field_of(event, self._selector)
        if isinstance(self._selector, list):
            return tuple(field_of(event, name) for name in self._selector)
        if isinstance(self._selector, KeySelector):
            return self._selector.get_key(event)
        return self._selector(event)


class _KeepKey(KeyedProcessFunction):  # type: ignore[misc]
    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Iterable[Row]:
        if not _holds(value):
            return
        try:
            key = key_to_text(ctx.get_current_key())
        except SkillsError as error:
            key = key_failure_text(str(error))
        yield Row(key, as_record(value))
