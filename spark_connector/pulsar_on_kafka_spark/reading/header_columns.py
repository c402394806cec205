"""SQL over Spark's `headers` column that decodes a record's headers (`mapping.records.record_headers`,
`message_record`).

System headers are looked up by `array_position`, which is compiled. Properties need lambdas, which Spark interprets row
by row: only columns with properties use them. Of several headers of one name the last one counts.
"""

from __future__ import annotations

from typing import Final

from pulsar_on_kafka_mapping.records.message_record import SCHEMA_VERSION_BYTES
from pulsar_on_kafka_mapping.records.record_headers import (
    EVENT_TIME,
    ORDERING_KEY,
    PREFIX,
    PRODUCER,
    PROPERTY_ESCAPE,
    SCHEMA_IDS,
    SCHEMA_VERSION,
    VALUE_SCHEMA_ID,
)
from pulsar_on_kafka_spark.base.sql_text import text as literal

YEAR_9999_MS: Final = 253_402_300_799_999

_PRODUCER: Final = r"\A[0-9]{1,20}:[0-9]{1,20}:"

NO_PROPERTIES: Final = "cast(map() as map<string, string>)"


def has(name: str) -> str:
    """Never null."""
    return f"coalesce(array_contains(headers.key, {literal(name)}), false)"


def value(name: str) -> str:
    """Binary; null where there is none, or a null one."""
    position = f"array_position(reverse(headers.key), {literal(name)})"
    return f"get(reverse(headers.value), cast({position} as int) - 1)"


def text(name: str) -> str:
    return f"cast({value(name)} as string)"


def number(name: str) -> str:
    """A decimal header as bigint; null also where it is none."""
    return f"try_cast({text(name)} as bigint)"


def key(key: str) -> str:
    """The partition key: the Kafka key, unless that is an ordering key."""
    return f"if({_only_ordering()}, null, {key})"


def ordering_key(key: str) -> str:
    return f"if({_only_ordering()}, {key}, {value(ORDERING_KEY)})"


def _only_ordering() -> str:
    return f"({has(ORDERING_KEY)} and {value(ORDERING_KEY)} is null)"


def publish_time(replicated: str, timestamp: str) -> str:
    """The record's timestamp, but for a `replicated` one, in milliseconds."""
    return f"coalesce({time(replicated)}, {timestamp})"


def event_time(millis: str) -> str:
    """The event time; null where the sender gave none, or 0."""
    return time(millis, first=1)


def time(millis: str, first: int = 0) -> str:
    """Null also for a time below `first`, and one that no Spark session can show: after the year 9999."""
    return f"timestamp_millis(if({millis} between {first} and {YEAR_9999_MS}L, {millis}, null))"


def producer_name() -> str:
    """Null for a record of a plain Kafka client."""
    reported = _producer()
    return f"substring({reported}, length(substring_index({reported}, ':', 2)) + 2)"


def sequence_id() -> str:
    """Null for a record of a plain Kafka client."""
    return f"try_cast(substring_index({_producer()}, ':', 1) as bigint)"


def _producer() -> str:
    """The producer's header; null where it cannot be read. Source: `message_record._read_producer`."""
    reported = f"try_validate_utf8({text(PRODUCER)})"
    return f"if({reported} rlike {literal(_PRODUCER)}, {reported}, null)"


def schema_version() -> str:
    """The version's number; null for a message without schema."""
    reported = value(SCHEMA_VERSION)
    plain = f"if(length({reported}) = {SCHEMA_VERSION_BYTES}, hex({reported}), null)"
    return f"try_cast(conv({plain}, 16, 10) as bigint)"


def properties() -> str:
    """The map of properties; empty without any. A value that is no UTF-8 is read as Latin-1.

    Spark examines each part of it a dozen times while it plans a read, even without properties: repeated parts are
    named by a lambda.
    """
    pair = f"struct({_property_name('one.key')} as key, {_property_text('one.value')} as value)"
    named = f"transform(filter(headers, one -> {_is_theirs('one.key')}), one -> {pair})"
    is_last = "not array_contains(slice(found.key, i + 2, size(found)), one.key)"
    last = f"transform(array({named}), found -> filter(found, (one, i) -> {is_last}))[0]"
    # Most records have only the headers that the SDK always writes; they are recognised without a lambda.
    common = (PRODUCER, SCHEMA_VERSION, EVENT_TIME, VALUE_SCHEMA_ID)
    usual = " + ".join(f"int(array_contains(headers.key, {literal(name)}))" for name in common)
    return f"if(coalesce(size(headers) = {usual}, true), {NO_PROPERTIES}, map_from_entries({last}))"


def _is_theirs(name: str) -> str:
    ids = ", ".join(map(literal, sorted(SCHEMA_IDS)))
    foreign = f"not startswith({name}, {literal(PREFIX)}) and {name} not in ({ids})"
    return f"({foreign} or startswith({name}, {literal(PROPERTY_ESCAPE)}))"


def _property_name(name: str) -> str:
    return f"substring({name}, if(startswith({name}, {literal(PROPERTY_ESCAPE)}), {len(PROPERTY_ESCAPE) + 1}, 1))"


def _property_text(value: str) -> str:
    return f"coalesce(try_validate_utf8(cast({value} as string)), decode({value}, 'ISO-8859-1'), '')"
