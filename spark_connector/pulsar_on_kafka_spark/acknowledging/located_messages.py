"""A DataFrame, or a list of message ids, names messages: put together as bitmaps, in the JVM.

Rows are found by `__messageId` (binary or text, also messages of batch entries) or by `__partition` and `__offset`.
What reaches Python is 4 KiB for each 32,768 offsets that were met, and a word for each 64 messages of batch entries
named in part.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import reduce
from typing import Any, Final

from pyroaring import BitMap64
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from pulsar_on_kafka.broker.metadata.topics import Topic
from pulsar_on_kafka_mapping.errors import InvalidMessageId, MappingError
from pulsar_on_kafka_mapping.ids.ledger_ids import PARTITION_BITS, RANGE_BITS
from pulsar_on_kafka_mapping.ids.message_id import MessageIdParts, decode_message_id
from pulsar_on_kafka_spark.base.errors import NotReadable
from pulsar_on_kafka_spark.planning.batch_plan import Entries
from pulsar_on_kafka_spark.planning.excluded_offsets import set_bits

_BUCKET: Final = 32_768
_FULL: Final = b"\xff" * (_BUCKET // 8)
_WORD: Final = 64

# Fields of a serialized message id (mapping.ids.message_id) in hexadecimal digits, in the order in which they are
# written.
_VARINT: Final = "((?:[89A-F].)*[0-7].)"
_MESSAGE_ID: Final = f"^08{_VARINT}10{_VARINT}(?:18{_VARINT})?(?:20{_VARINT}30{_VARINT})?(?:3A.*)?$"
_TEXT: Final = r"([0-9]{1,19}):([0-9]{1,19})(?::(-1|[0-9]{1,9})(?::([0-9]{1,9}):([0-9]{1,9}))?)?"
"""The same fields in a text."""
_LOW_DIGITS: Final = 14
"""The digits of a varint's bytes that one bigint holds."""

Located = dict[str, dict[int, Entries]]
"""Entries by topic and partition, as in `batch_plan.ByTopic`; `batches` are bits of the messages that were named,
`whole` entries of which all were.
"""


def located(messages: DataFrame, topics: Iterable[Topic]) -> Located:
    """The messages of a DataFrame. Evaluates it once, twice when it has messages of batch entries.

    Raises:
        NotReadable: a row cannot be found by its columns, or is of another topic, or of a former life of one.
    """
    rows = _rows(messages, single := list(topics))
    bitmaps = (
        rows.groupBy("life", "partition", (F.col("index") >= 0).alias("inside"), _bucket().alias("bucket"))
        .agg(F.bitmap_construct_agg(F.col("offset") % _BUCKET).alias("bits"))
        .collect()
    )
    by_life = {topic.layout.incarnation: topic for topic in single}
    found: dict[tuple[int, int], BitMap64] = {}
    inside = False
    for row in bitmaps:
        if row["partition"] is None:
            raise NotReadable(
                "a row has no __messageId that can be read (a text of a message in a batch ends with the batch's size, "
                "ledger:entry:partition:index:size), or no __partition and __offset"
            )
        inside = inside or row["inside"]
        if not row["inside"]:
            _add_bits(found.setdefault((row["life"], row["partition"]), BitMap64()), row["bucket"], bytes(row["bits"]))
    some: dict[tuple[int, int], dict[int, tuple[int, int]]] = {}
    if inside:
        for row in _words(rows).collect():
            _add_words(found, some, row)
    return _by_topic(found, some, by_life)


def located_offsets(records: DataFrame) -> dict[int, BitMap64]:
    """Offsets of Kafka's records, by partition. Evaluates them once."""
    bits = F.bitmap_construct_agg(F.col("offset") % _BUCKET).alias("bits")
    found: dict[int, BitMap64] = {}
    for row in records.groupBy("partition", _bucket().alias("bucket")).agg(bits).collect():
        _add_bits(found.setdefault(row["partition"], BitMap64()), row["bucket"], bytes(row["bits"]))
    return found


def located_ids(ids: Iterable[Any], topics: Iterable[Topic]) -> Located:
    """The same of message ids: objects with `serialize()`, their bytes, or texts as the columns of `textColumns` have
    them. Raises NotReadable."""
    found: dict[tuple[int, int], BitMap64] = {}
    some: dict[tuple[int, int], dict[int, tuple[int, int]]] = {}
    by_life = {topic.layout.incarnation: topic for topic in topics}
    for one in ids:
        try:
            parts = message_id_parts(one)
        except (TypeError, MappingError) as wrong:
            raise NotReadable(f"{one!r:.80} is no message id: {wrong}") from wrong
        life, partition = divmod(parts.ledger_id >> RANGE_BITS, 1 << PARTITION_BITS)
        topic = by_life.get(life)
        if topic is None:
            raise NotReadable(_foreign(life, by_life))
        offset = topic.layout.kafka_offset(partition, parts.ledger_id, parts.entry_id)
        if parts.batch_index < 0 or parts.batch_size <= 0:
            found.setdefault((life, partition), BitMap64()).add(offset)
            continue
        sets = some.setdefault((life, partition), {})
        size, bits = sets.get(offset, (parts.batch_size, 0))
        sets[offset] = size, bits | 1 << parts.batch_index
    for place, sets in some.items():
        for offset in [offset for offset, (size, bits) in sets.items() if bits == (1 << size) - 1]:
            del sets[offset]
            found.setdefault(place, BitMap64()).add(offset)
    return _by_topic(found, some, by_life)


def message_id_parts(message_id: Any) -> MessageIdParts:
    """The fields of an object with `serialize()`, its bytes, or a text of `textColumns`. Raises TypeError,
    MappingError."""
    if not isinstance(message_id, str):
        serialized = message_id.serialize() if hasattr(message_id, "serialize") else message_id
        return decode_message_id(bytes(serialized))
    found = re.fullmatch(_TEXT, message_id)
    if found is None:
        raise InvalidMessageId("expected ledger:entry[:partition[:index:size]]")
    ledger, entry, partition, index, size = found.groups()
    return MessageIdParts(int(ledger), int(entry), int(partition or -1), int(index or -1), int(size or 0))


def _rows(messages: DataFrame, topics: list[Topic]) -> DataFrame:
    """Columns life, partition, offset, index (-1: of no batch) and size; nulls in a row that cannot be found."""
    if "__messageId" in messages.columns:
        as_text = dict(messages.dtypes)["__messageId"] == "string"
        return _placed(_of_texts(messages) if as_text else _of_binaries(messages), topics)
    if not {"__partition", "__offset"} <= set(messages.columns):
        raise NotReadable(
            f"columns are {', '.join(messages.columns)}: expected __messageId, or __partition and __offset"
        )
    if len(topics) > 1:
        raise NotReadable("__partition and __offset do not name the topic, and there are several: expected __messageId")
    index: Column = F.lit(-1)
    if "__batchIndex" in messages.columns:
        # Only the message ids contain the size of a batch.
        index = F.when(messages["__batchIndex"].isNull(), -1).otherwise(
            F.raise_error(F.lit("messages of batch entries are found by __messageId"))
        )
    return messages.select(
        F.lit(topics[0].layout.incarnation).cast("bigint").alias("life"),
        messages["__partition"].cast("int").alias("partition"),
        messages["__offset"].cast("bigint").alias("offset"),
        index.cast("int").alias("index"),
        F.lit(0).cast("int").alias("size"),
    )


def _of_texts(messages: DataFrame) -> DataFrame:
    """Ledger, entry, index and size of each row's id; nulls for one that cannot be read."""
    text = F.col("__messageId")
    groups = {name: F.regexp_extract(text, f"^{_TEXT}$", group + 1) for group, name in enumerate(_FIELDS)}
    numbers = {name: F.when(part != "", part).try_cast("bigint") for name, part in groups.items()}
    return messages.select(
        numbers["ledger"].alias("ledger"),
        numbers["entry"].alias("entry"),
        F.coalesce(numbers["index"], F.lit(-1)).cast("int").alias("index"),
        numbers["size"].cast("int").alias("size"),
    )


def _of_binaries(messages: DataFrame) -> DataFrame:
    digits = messages.select(F.hex(messages["__messageId"]).alias("digits"))
    fields = digits.select(
        *(F.regexp_extract("digits", _MESSAGE_ID, group + 1).alias(name) for group, name in enumerate(_FIELDS))
    )
    # A projection of its own: within one, each byte's expression would hold the text's conversion once more, and the
    # code that Spark generates would soon be too long to be compiled.
    bytes_of = fields.select(*(part for name in _PLACE_FIELDS for part in _converted(name)))
    return bytes_of.select(
        _number("ledger", 9).alias("ledger"),
        _number("entry", 5).alias("entry"),
        F.coalesce(_number("index", 5), F.lit(-1)).cast("int").alias("index"),
        _number("size", 5).cast("int").alias("size"),
    )


def _placed(numbers: DataFrame, topics: list[Topic]) -> DataFrame:
    """The rows' places, of what `_of_texts` and `_of_binaries` give."""
    size: Column = F.lit(None).cast("bigint")
    life = F.shiftright("ledger", PARTITION_BITS + RANGE_BITS)
    for topic in topics:
        size = F.when(life == topic.layout.incarnation, topic.layout.entries_per_ledger).otherwise(size)
    base = F.col("ledger").bitwiseAND((1 << RANGE_BITS) - 1) * F.coalesce(size, F.lit(1))
    return numbers.select(
        life.alias("life"),
        F.shiftright("ledger", RANGE_BITS).bitwiseAND((1 << PARTITION_BITS) - 1).cast("int").alias("partition"),
        (base + F.col("entry")).alias("offset"),
        "index",
        "size",
    )


_FIELDS: Final = ("ledger", "entry", "of_partition", "index", "size")
_PLACE_FIELDS: Final = ("ledger", "entry", "index", "size")


def _converted(name: str) -> list[Column]:
    """A varint's hexadecimal digits as two numbers, of its first seven bytes and of the two behind; null for none."""
    digits = F.when(F.col(name) != "", F.col(name))
    parts = ((name, 1, _LOW_DIGITS), (f"{name}_behind", _LOW_DIGITS + 1, 4))
    return [
        F.conv(F.rpad(F.substr(digits, F.lit(start), F.lit(length)), length, "0"), 16, 10).cast("bigint").alias(part)
        for part, start, length in parts
    ]


def _number(name: str, max_bytes: int) -> Column:
    """A varint of that many bytes at most, from what `_converted` gives."""
    low, behind = F.col(name), F.col(f"{name}_behind")
    first = _LOW_DIGITS // 2
    groups = [_group(low, first - 1 - group, group) for group in range(min(max_bytes, first))]
    groups += [_group(behind, max_bytes - 1 - group, group) for group in range(first, max_bytes)]
    return reduce(Column.bitwiseOR, groups)


def _group(number: Column, byte: int, group: int) -> Column:
    return F.shiftleft(F.shiftright(number, 8 * byte).bitwiseAND(0x7F), 7 * group)


def _bucket() -> Column:
    return F.shiftright("offset", 15)


def _words(rows: DataFrame) -> DataFrame:
    """The number of named messages of each batch entry, and, unless all were, their bits."""
    words = (
        rows.where("index >= 0")
        .groupBy(
            "life", "partition", "offset", "size", F.call_function("div", F.col("index"), F.lit(_WORD)).alias("word")
        )
        .agg(F.bit_or(F.expr(f"shiftleft(1L, index % {_WORD})")).alias("bits"))
    )
    entries = words.groupBy("life", "partition", "offset", "size").agg(
        F.sum(F.bit_count("bits")).alias("named"), F.collect_list(F.struct("word", "bits")).alias("words")
    )
    return entries.select(
        "life", "partition", "offset", "size", F.when(F.col("named") < F.col("size"), F.col("words")).alias("words")
    )


def _add_bits(found: BitMap64, bucket: int, raw: bytes) -> None:
    base = bucket * _BUCKET
    if raw == _FULL:
        found.add_range(base, base + _BUCKET)
        return
    found.update([base + bit for bit in set_bits(raw)])


def _add_words(
    found: dict[tuple[int, int], BitMap64], some: dict[tuple[int, int], dict[int, tuple[int, int]]], row: Any
) -> None:
    place = row["life"], row["partition"]
    if row["words"] is None:
        found.setdefault(place, BitMap64()).add(row["offset"])
        return
    bits = 0
    for word in row["words"]:
        bits |= (word["bits"] & (1 << _WORD) - 1) << _WORD * word["word"]
    some.setdefault(place, {})[row["offset"]] = row["size"], bits


def _by_topic(
    found: Mapping[tuple[int, int], BitMap64],
    some: Mapping[tuple[int, int], Mapping[int, tuple[int, int]]],
    by_life: Mapping[int, Topic],
) -> Located:
    topics: Located = {}
    for life, partition in sorted({*found, *some}):
        topic = by_life.get(life)
        if topic is None:
            raise NotReadable(_foreign(life, by_life))
        entries = Entries(found.get((life, partition), BitMap64()), some.get((life, partition), {}))
        if entries:
            topics.setdefault(str(topic.name.base), {})[partition] = entries
    return topics


def _foreign(life: int, by_life: Mapping[int, Topic]) -> str:
    names = ", ".join(str(topic.name) for topic in by_life.values())
    return f"a message is of another topic (its incarnation is {life}), or of a former life of one of {names}"
