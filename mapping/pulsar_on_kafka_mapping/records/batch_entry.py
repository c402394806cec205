"""A batch entry packs many messages into the value of one record: one Avro record of parallel arrays.

    payloads           array of bytes           one for each message, in order of batch index; empty for a null one
    null_payloads      null | array of int      batch indexes of the null ones, ascending
    keys               null | array of bytes    partition keys; empty where there is none
    null_keys          null | array of int      batch indexes without one, when `keys` is not null
    ordering_keys      null | array of bytes    likewise
    null_ordering_keys null | array of int
    properties         null | array of map of string
    event_times        null | array of long     Unix time in ms; 0 is none
    sequence_ids       null | array of long     -1 is none: the record's own (header) plus the batch index

A column is null when no message has what it holds. Columns, not records, because Spark then unpacks an entry inside the
JVM and fastavro is several times as fast; bytes beside a list of nulls, not
nullable items, because those halve the speed. Decision: mapping/decisions/0004.
"""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple, Protocol

from fastavro import parse_schema, schemaless_reader, schemaless_writer

from pulsar_on_kafka_mapping.encoding.varint import text_or_latin1
from pulsar_on_kafka_mapping.errors import CorruptRecord, MappingError
from pulsar_on_kafka_mapping.records.record_headers import PayloadFormat

FORMAT_VERSION: Final = int(PayloadFormat.COLUMNS)
"""The format in the header `__pulsar.batch`."""


def _column(name: str, items: object) -> dict[str, object]:
    return {"name": name, "type": ["null", {"type": "array", "items": items}], "default": None}


SCHEMA: Final[dict[str, Any]] = {
    "type": "record",
    "name": "BatchEntry",
    "namespace": "pulsar_on_kafka",
    "fields": [
        {"name": "payloads", "type": {"type": "array", "items": "bytes"}},
        _column("null_payloads", "int"),
        _column("keys", "bytes"),
        _column("null_keys", "int"),
        _column("ordering_keys", "bytes"),
        _column("null_ordering_keys", "int"),
        _column("properties", {"type": "map", "values": "string"}),
        _column("event_times", "long"),
        _column("sequence_ids", "long"),
    ],
}
"""The Avro schema, for Spark's `from_avro` too. Never changed: another layout is another FORMAT_VERSION."""

_PARSED: Final = parse_schema(SCHEMA)
_NONE: Final[Mapping[int, CorruptRecord]] = {}


class BatchMessage(NamedTuple):
    """A message stands in a batch. `sequence_id` None: the record's sequence id plus the batch index."""

    payload: bytes | None
    key: bytes | None = None
    ordering_key: bytes | None = None
    properties: Mapping[str, str] | None = None
    event_time_ms: int = 0
    sequence_id: int | None = None


class EntryMessages(Protocol):
    """The messages of an entry, in whichever form it has them."""

    @property
    def payloads(self) -> list[bytes]:
        """Payloads by batch index; b'' for a null one."""

    @property
    def unreadable(self) -> Mapping[int, CorruptRecord]:
        """Messages that cannot be read, by batch index."""

    def __len__(self) -> int: ...

    def payload(self, index: int) -> bytes | None:
        """Payload of the message with batch index `index` (0 to len - 1)."""

    def message(self, index: int) -> BatchMessage:
        """The message with batch index `index` (0 to len - 1). Raises IndexError beyond."""


class BatchColumns:
    """A decoded batch entry keeps its columns; `message(i)` puts one message together."""

    unreadable = _NONE
    """Columns are read as a whole, or not at all."""

    __slots__ = (
        "_event_times",
        "_keys",
        "_null_keys",
        "_null_ordering_keys",
        "_null_payloads",
        "_ordering_keys",
        "_properties",
        "_sequence_ids",
        "payloads",
    )

    def __init__(self, columns: Mapping[str, Any]) -> None:
        self.payloads: list[bytes] = columns["payloads"]
        """Payloads by batch index; b'' for a null one."""
        self._null_payloads: frozenset[int] = frozenset(columns["null_payloads"] or ())
        self._keys: list[bytes] | None = columns["keys"]
        self._null_keys: frozenset[int] = frozenset(columns["null_keys"] or ())
        self._ordering_keys: list[bytes] | None = columns["ordering_keys"]
        self._null_ordering_keys: frozenset[int] = frozenset(columns["null_ordering_keys"] or ())
        self._properties: list[dict[str, str]] | None = columns["properties"]
        self._event_times: list[int] | None = columns["event_times"]
        self._sequence_ids: list[int] | None = columns["sequence_ids"]

    def __len__(self) -> int:
        return len(self.payloads)

    def payload(self, index: int) -> bytes | None:
        """Payload of the message with batch index `index` (0 to len - 1)."""
        return None if index in self._null_payloads else self.payloads[index]

    def message(self, index: int) -> BatchMessage:
        """The message with batch index `index` (0 to len - 1). Raises IndexError beyond."""
        if not 0 <= index < len(self.payloads):
            raise IndexError(f"batch index is {index}, expected 0 to {len(self.payloads) - 1}")
        sequence_id = -1 if self._sequence_ids is None else self._sequence_ids[index]
        return BatchMessage(
            self.payload(index),
            None if self._keys is None or index in self._null_keys else self._keys[index],
            None if self._ordering_keys is None or index in self._null_ordering_keys else self._ordering_keys[index],
            (self._properties[index] or None) if self._properties is not None else None,
            0 if self._event_times is None else self._event_times[index],
            None if sequence_id < 0 else sequence_id,
        )


def encode_batch(messages: Sequence[BatchMessage]) -> bytes:
    """The record's value for 1 or more messages; their order is the order of batch indexes.

    Empty properties are none.

    Raises:
        MappingError: there is no message, or a value of one is of a wrong type or out of range (64 bits; sequence ids
            0 or more).
    """
    if not messages:
        raise MappingError("batch of no messages, expected 1 or more")
    payloads, keys, ordering_keys, properties, event_times, sequence_ids = zip(*messages, strict=True)
    return encode_columns(payloads, keys, ordering_keys, properties, event_times, sequence_ids)


def encode_columns(
    payloads: Sequence[bytes | None],
    keys: Sequence[bytes | None] | None = None,
    ordering_keys: Sequence[bytes | None] | None = None,
    properties: Sequence[Mapping[str, str] | None] | None = None,
    event_times: Sequence[int] | None = None,
    sequence_ids: Sequence[int | None] | None = None,
) -> bytes:
    """`encode_batch` of messages that are columns already: one item for each message, or None for a column of nothing.

    Raises:
        MappingError: as `encode_batch`.
    """
    count = len(payloads)
    filled_payloads, null_payloads = _split_nulls(payloads)
    filled_keys, null_keys = _key_columns(keys, count)
    filled_ordering_keys, null_ordering_keys = _key_columns(ordering_keys, count)
    columns = {
        "payloads": filled_payloads,
        "null_payloads": _present(null_payloads),
        "keys": filled_keys,
        "null_keys": null_keys,
        "ordering_keys": filled_ordering_keys,
        "null_ordering_keys": null_ordering_keys,
        "properties": _present([dict(each) if each else {} for each in properties])
        if properties is not None and any(properties)
        else None,
        "event_times": _present(list(event_times)) if event_times is not None and any(event_times) else None,
        "sequence_ids": _sequence_column(sequence_ids) if sequence_ids is not None else None,
    }
    out = io.BytesIO()
    try:
        schemaless_writer(out, _PARSED, columns)
    except (TypeError, ValueError, OverflowError, AttributeError) as error:
        raise MappingError(f"batch of {count} messages cannot be written: {error}") from error
    return out.getvalue()


def decode_batch(value: bytes, expected_count: int) -> BatchColumns:
    """Decodes a record's value; `expected_count` is the number of messages that its header names.

    A property that is no UTF-8 is read by `text_or_latin1`.

    Raises:
        CorruptRecord: the value is no batch entry of that many messages.
    """
    stream = io.BytesIO(value)
    try:
        try:
            columns = schemaless_reader(stream, _PARSED, None)
        except UnicodeDecodeError:
            stream.seek(0)
            columns = _with_texts(schemaless_reader(stream, _PARSED, None, handle_unicode_errors="surrogateescape"))
    except Exception as error:  # fastavro raises whatever the broken bytes lead it to
        raise CorruptRecord(
            f"batch entry of {len(value)} bytes, {value[:40]!r}, cannot be read: {type(error).__name__} {error}"
        ) from error
    if stream.tell() != len(value):
        raise CorruptRecord(f"batch entry ends at byte {stream.tell()}, expected {len(value)}")
    if not isinstance(columns, dict):
        raise CorruptRecord(f"batch entry is a {type(columns).__name__}, expected a record")
    _check(columns, expected_count)
    return BatchColumns(columns)


def _with_texts(columns: Any) -> Any:
    """Columns whose texts were read with `surrogateescape`."""

    def text(found: str) -> str:
        return text_or_latin1(found.encode("utf-8", "surrogateescape"))

    columns["properties"] = [{text(name): text(one[name]) for name in one} for one in columns["properties"]]
    return columns


def _key_columns(
    keys: Sequence[bytes | None] | None, count: int
) -> tuple[tuple[str, Sequence[Any]] | None, tuple[str, Sequence[Any]] | None]:
    """A column of keys and that of its nulls; both null when there is no key."""
    if keys is None:
        return None, None
    filled, nulls = _split_nulls(keys)
    return (None, None) if len(nulls) == count else (_present(filled), _present(nulls))


def _split_nulls(column: Sequence[bytes | None]) -> tuple[Sequence[bytes], list[int]]:
    """The column with b'' for null, and the indexes of its nulls."""
    if None not in column:
        return column, []  # type: ignore[return-value]
    nulls = [index for index, item in enumerate(column) if item is None]
    return [b"" if item is None else item for item in column], nulls


def _present(items: Sequence[Any]) -> tuple[str, Sequence[Any]] | None:
    """A nullable column, null when it is empty. The name of the union's branch saves fastavro the search for it."""
    return ("array", items) if items else None


def _sequence_column(sequence_ids: Sequence[int | None]) -> tuple[str, list[int]] | None:
    given = [number for number in sequence_ids if number is not None]
    if not given:
        return None
    if min(given) < 0:
        raise MappingError(f"sequence id is {min(given)}, expected 0 or more")
    return ("array", [-1 if number is None else number for number in sequence_ids])


def _check(columns: Mapping[str, Any], expected_count: int) -> None:
    if len(columns["payloads"]) != expected_count:
        raise CorruptRecord(f"batch entry has {len(columns['payloads'])} messages, expected {expected_count}")
    for name in ("keys", "ordering_keys", "properties", "event_times", "sequence_ids"):
        column = columns[name]
        if column is not None and len(column) != expected_count:
            raise CorruptRecord(f"batch entry has {len(column)} {name} for {expected_count} messages")
    for name, of in (
        ("null_payloads", "payloads"),
        ("null_keys", "keys"),
        ("null_ordering_keys", "ordering_keys"),
    ):
        for index in columns[name] or ():
            if columns[of] is None or not 0 <= index < expected_count or columns[of][index]:
                raise CorruptRecord(
                    f"batch entry calls {index} of {of} null, expected an empty one of {expected_count}"
                )
