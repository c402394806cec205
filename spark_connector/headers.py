"""What a record's headers say, as SQL over Spark's `headers` column (see `mapping.headers`, `mapping.message_record`).

System headers are looked up by `array_position`, which is compiled. Properties need lambdas, which Spark interprets row
by row: they are for those who ask for properties. Of several headers of one name the last one counts.
"""

from __future__ import annotations

from functools import reduce

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812

from mapping.headers import EVENT_TIME, ORDERING_KEY, PREFIX, PRODUCER, PROPERTY_ESCAPE, PUBLISH_TIME, SCHEMA_VERSION


class RecordHeaders:
    """Expressions over one column of headers (an array of structs of key and value, or null)."""

    def __init__(self, headers: Column) -> None:
        self._headers = headers
        self._names = F.reverse(headers["key"])
        self._values = F.reverse(headers["value"])

    def has(self, name: str) -> Column:
        """Never null."""
        return F.coalesce(F.array_contains(self._headers["key"], name), F.lit(False))

    def value(self, name: str) -> Column:
        """Binary; null where there is none, or a null one."""
        return F.get(self._values, F.array_position(self._names, name).cast("int") - 1)

    def text(self, name: str) -> Column:
        return self.value(name).cast("string")

    def number(self, name: str) -> Column:
        """A decimal header as bigint; null also where it is none."""
        return self.text(name).try_cast("bigint")

    # What messages show -------------------------------------------------------------------------------------------

    def key(self, key: Column) -> Column:
        """The partition key: the Kafka key, unless that is an ordering key."""
        return F.when(self._only_ordering(), None).otherwise(key)

    def ordering_key(self, key: Column) -> Column:
        return F.when(self._only_ordering(), key).otherwise(self.value(ORDERING_KEY))

    def _only_ordering(self) -> Column:
        return self.has(ORDERING_KEY) & self.value(ORDERING_KEY).isNull()

    def publish_time(self, timestamp: Column) -> Column:
        """The record's timestamp, but for a replicated one."""
        return F.coalesce(F.timestamp_millis(self.number(PUBLISH_TIME)), timestamp)

    def event_time(self) -> Column:
        """Null where the sender said none."""
        millis = self.number(EVENT_TIME)
        return F.when(millis != 0, F.timestamp_millis(millis))

    def producer_name(self) -> Column:
        """Null for a record of a plain Kafka client."""
        said = self.text(PRODUCER)
        return F.substr(said, F.length(F.substring_index(said, ":", 2)) + 2)

    def sequence_id(self) -> Column:
        """Null for a record of a plain Kafka client."""
        return F.substring_index(self.text(PRODUCER), ":", 1).try_cast("bigint")

    def schema_version(self) -> Column:
        """The version's number; null for a message without schema."""
        return F.conv(F.hex(self.value(SCHEMA_VERSION)), 16, 10).cast("bigint")

    def properties(self) -> Column:
        """A map; empty where there are none. A value that is no UTF-8 is read as Latin-1."""
        headers = F.coalesce(self._headers, F.array())
        theirs = F.filter(headers, lambda one: ~_is_system(one["key"]))
        named = F.transform(
            theirs,
            lambda one: F.struct(_property_name(one["key"]).alias("key"), _property_text(one["value"]).alias("value")),
        )

        def is_last(one: Column, i: Column) -> Column:
            return ~F.array_contains(F.slice(named["key"], i + 2, F.size(named)), one["key"])

        last = F.filter(named, is_last)
        # Most records have nothing but what the SDK always says, which is told without a lambda.
        usual = reduce(Column.__add__, (self.has(name).cast("int") for name in (PRODUCER, SCHEMA_VERSION, EVENT_TIME)))
        none = F.map_from_arrays(F.array().cast("array<string>"), F.array().cast("array<string>"))
        return F.when(F.size(headers) == usual, none).otherwise(F.map_from_entries(last))


def _is_system(name: Column) -> Column:
    return F.startswith(name, F.lit(PREFIX)) & ~F.startswith(name, F.lit(PROPERTY_ESCAPE))


def _property_name(name: Column) -> Column:
    return F.when(
        F.startswith(name, F.lit(PROPERTY_ESCAPE)), F.substr(name, F.lit(len(PROPERTY_ESCAPE) + 1))
    ).otherwise(name)


def _property_text(value: Column) -> Column:
    text = value.cast("string")
    return F.coalesce(F.when(F.is_valid_utf8(text), text).otherwise(F.decode(value, "ISO-8859-1")), F.lit(""))
