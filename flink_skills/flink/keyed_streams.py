"""Keyed events and keyed answers of a stream, made in Java if the type of the stream allows it, otherwise in Python."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from pyflink.common import Instant, Row, RowKind, Types
from pyflink.common.typeinfo import RowTypeInfo
from pyflink.datastream import DataStream, KeyedStream, KeySelector
from pyflink.datastream.functions import FlatMapFunction, KeyedProcessFunction, RuntimeContext
from pyflink.util.exceptions import JavaException
from pyflink.util.java_utils import is_instance_of

from flink_skills.agents.rows.wait_record import WaitIds
from flink_skills.agents.state.event import Record, to_plain
from flink_skills.agents.state.keys import check_key_selector, key_text_of, key_to_text, selected_key
from flink_skills.errors import ConfigError, UnknownNameError
from flink_skills.flink.bridge import add_bridge, string_array

if TYPE_CHECKING:
    from pyflink.datastream import DataStream, StreamExecutionEnvironment

#: Returns the id or the name of the wait that an element answers, and None for an event.
Wait: TypeAlias = "Callable[[Any], str | None]"

# Names and shapes of the fields of a row, as plain data that can be sent.
Shape: TypeAlias = "tuple[tuple[str, Shape | None], ...]"
_ROW_TYPE = "org.apache.flink.api.java.typeutils.RowTypeInfo"
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.timezone.utc)


def key_in_python(stream: DataStream, key_selector: Any, wait: Wait | None = None) -> DataStream:
    """Key ``stream`` in one Python stage.

    Args:
        stream: Any stream.
        key_selector: A callable, a ``KeySelector``, a field name, a list of them, or None for the key of a keyed
            stream.
        wait: Adds the wait that an element answers as a third field. None: the elements have two fields.
    """
    check_in_python(stream, key_selector)
    if key_selector is None:
        kept = _KeepKey(_shape_of(origin_of(stream)), wait)
        return stream.process(kept, output_type=_keyed_type(wait)).name("key events")
    stream = origin_of(stream)
    # As many subtasks as the stage before: another number would shuffle events and lose the order of a key.
    parallelism = stream._j_data_stream.getTransformation().getParallelism()
    keyed = stream.flat_map(_KeyEvents(key_selector, _shape_of(stream), wait), output_type=_keyed_type(wait))
    return keyed.name("key events").set_parallelism(parallelism)


def check_in_python(stream: DataStream, key_selector: Any) -> None:
    """Raise :class:`ConfigError` if a Python stage cannot key ``stream``."""
    if key_selector is None and not isinstance(stream, KeyedStream):
        raise ConfigError(
            "from_datastream: give a key_selector (a callable or a field name), or a stream that is keyed"
        )
    _shape_of(origin_of(stream))


def origin_of(stream: DataStream) -> DataStream:
    """Return the stream below a keyed one, whose elements are the events instead of pairs of key and event."""
    return stream._origin_stream if isinstance(stream, KeyedStream) else stream


def row_fields(stream: DataStream) -> list[str] | None:
    """Return the field names of a stream of rows. Return None if the stream's type does not contain them."""
    j_type = stream._j_data_stream.getType()
    if is_instance_of(j_type, _ROW_TYPE):
        return [str(name) for name in j_type.getFieldNames()]
    if is_instance_of(j_type, "org.apache.flink.table.types.DataTypeQueryable"):
        logical = j_type.getDataType().getLogicalType()
        if is_instance_of(logical, "org.apache.flink.table.types.logical.RowType"):
            return [str(name) for name in logical.getFieldNames()]
    return None


def _keyed_type(wait: Wait | None) -> Any:
    fields = [Types.STRING(), Types.PICKLED_BYTE_ARRAY()]
    return Types.ROW(fields if wait is None else [*fields, Types.STRING()])


def _keyed(key: Any, event: Any, wait: Wait | None) -> Row:
    return Row(str(key), event) if wait is None else Row(str(key), event, wait(event))


def _shape_of(stream: DataStream) -> Shape | None:
    """Return names and shapes of the fields of a stream of rows. Return None for other streams.

    Raises :class:`ConfigError` before the job runs if Flink cannot pass a column of a table to Python.
    """
    try:
        return _shape(stream.get_type())
    except TypeError:  # a type that PyFlink does not know: no Python function has made these elements
        return None
    except JavaException as error:
        raise ConfigError(
            f"the key is computed in Python, and Flink cannot pass these rows to Python ({_first_line(error)}): use "
            "key columns of strings, whole numbers or booleans, which are read without Python, or CAST that column "
            "to another type, such as STRING"
        ) from None


def _first_line(error: JavaException) -> str:
    lines = str(error).strip().splitlines()
    return lines[0].rpartition("Exception: ")[2] if lines else type(error).__name__


def _shape(type_info: Any) -> Shape | None:
    if not isinstance(type_info, RowTypeInfo):
        return None
    fields = zip(type_info.get_field_names(), type_info.get_field_types(), strict=True)
    return tuple((str(name), _shape(of)) for name, of in fields)


def as_record(event: Any, shape: Shape | None = None) -> Any:
    """Return a row with field names as a :class:`Record`, including nested rows, and any other value unchanged.

    ``shape`` is the shape of the stream's type. A row that a Python function returned has only values.
    """
    if isinstance(event, Row):
        known = shape if shape is not None and len(shape) == len(event) else None
        names = getattr(event, "_fields", None) or [name for name, _ in known or ()]
        inner = dict(known or ())
        if names:
            return Record((name, as_record(item, inner.get(name))) for name, item in zip(names, event, strict=True))
        return tuple(map(as_record, event))
    if isinstance(event, list):
        return [as_record(item) for item in event]
    return event


def _holds(event: Any) -> bool:
    """Return True if an element is an event. The row before an update is not, because the row after it follows.

    Raises:
        ConfigError: The row is a deletion.
    """
    kind = event.get_row_kind() if isinstance(event, Row) else RowKind.INSERT
    if kind == RowKind.DELETE:
        raise ConfigError(
            "The input of the agent has a DELETE row, but a finished turn cannot be reverted. Filter out deletes, or "
            "use a query that only inserts or updates."
        )
    return bool(kind != RowKind.UPDATE_BEFORE)


def _plain_key(key: Any) -> Any:
    """Return a key without types of Flink, with rows as dicts or tuples. Raises :class:`ConfigError`."""
    if isinstance(key, Row):
        return _plain_key(as_record(key))
    if isinstance(key, (list, tuple)):
        return tuple(map(_plain_key, key))
    if isinstance(key, dict):
        return {name: _plain_key(value) for name, value in key.items()}
    if isinstance(key, Instant):
        if key.nanos % 1000:
            raise ConfigError(
                f"a key is an instant with nanoseconds ({key.seconds}.{key.nanos:09d}): cut it to microseconds, as in "
                "CAST(… AS TIMESTAMP_LTZ(6)), or use text"
            )
        return _EPOCH + dt.timedelta(seconds=key.seconds, microseconds=key.nanos // 1000)
    return key


class _KeyEvents(FlatMapFunction):  # type: ignore[misc]
    """Keys events.

    An event without a usable key gets a failure key, and its turn becomes an error record. It does not stop others.
    """

    def __init__(
        self,
        key_selector: Callable[[Any], Any] | KeySelector | str | list[str],
        shape: Shape | None,
        wait: Wait | None,
    ) -> None:
        self._selector = key_selector
        self._shape = shape
        self._wait = wait

    def open(self, runtime_context: RuntimeContext) -> None:
        if isinstance(self._selector, KeySelector):
            self._selector.open(runtime_context)

    def close(self) -> None:
        if isinstance(self._selector, KeySelector):
            self._selector.close()

    def flat_map(self, value: Any) -> Iterable[Row]:
        if not _holds(value):
            return
        event = as_record(value, self._shape)
        element = event if isinstance(self._selector, (str, list)) else value
        yield _keyed(key_text_of(lambda: _plain_key(selected_key(element, self._selector))), event, self._wait)


class _KeepKey(KeyedProcessFunction):  # type: ignore[misc]
    def __init__(self, shape: Shape | None, wait: Wait | None) -> None:
        self._shape = shape
        self._wait = wait

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Iterable[Row]:
        if not _holds(value):
            return
        key = key_text_of(lambda: _plain_key(ctx.get_current_key()))
        yield _keyed(key, as_record(value, self._shape), self._wait)


#: The fields of control records.
CONTROL_FIELDS = ("action", "agent", "skill", "tool", "key", "reason", "by")


def control_records(flink: StreamExecutionEnvironment, stream: DataStream) -> Any:
    """Return the Java stream of control records of a stream. Its elements are rows, dicts or JSON objects.

    Raises :class:`UnknownNameError` if rows have no field ``action``. Other fields of rows are ignored.
    """
    bridge, fields = add_bridge(flink), row_fields(stream)
    if fields is None:
        records = stream.map(_control_record, output_type=Types.STRING()).name("read control records")
        return bridge.controlRecords(records._j_data_stream)
    if "action" not in fields:
        raise UnknownNameError("field", "action", fields, place="the rows of control records")
    return bridge.controlRecords(stream._j_data_stream, string_array([of for of in CONTROL_FIELDS if of in fields]))


def _control_record(record: Any) -> str:
    # The operator reports what is not a record.
    if isinstance(record, str):
        return record
    found = as_record(record)
    if isinstance(found, dict) and not isinstance(found.get("key", ""), str):
        found = {**found, "key": json.loads(key_to_text(_plain_key(found["key"])))}
    return json.dumps(to_plain(found), default=str)


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
        #: The names of the fields of all elements, None if the type of the stream does not contain them.
        self.fields: Sequence[str] | None = row_fields(origin_of(stream))
        self._by: Any = None
        if self.fields is not None and keys:
            for key in keys:
                if key not in self.fields:
                    raise UnknownNameError("key field", key, self.fields, place="the stream's rows")
            if all(self._bridge.canKeyInJava(self._stream._j_data_stream, key) for key in keys):
                self._by = key_selector if isinstance(key_selector, str) else string_array(keys)
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
