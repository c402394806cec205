"""SQL over Kafka's partition and offset for the place of a record: message ids and names of partitions.

The bytes of a message id (see `mapping.ids.message_id`) are one `concat` of as few binaries as can be, since that is
what costs most: of a partition's ledger; of an entry's lowest byte; of the rest of the entry, and the partition. Each
is looked up in a table that is a literal. Where no table can be that large a varint is taken byte by byte, with an
empty one for each byte that the number does not need: few branches, little code (what becomes too long the JVM does not
compile), and each part is evaluated once. (Casting a number to binary would be shorter, and is not allowed in ANSI
mode, which is Spark 4's default.)

All of it is text: an expression costs the driver one parsing, not one call to the JVM for each of its parts.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Final

from pulsar_on_kafka.broker.metadata.topics import Topic
from pulsar_on_kafka_mapping.encoding.varint import varint
from pulsar_on_kafka_mapping.ids.ledger_ids import RANGE_BITS
from pulsar_on_kafka_spark.base.sql_text import binary, text

_LEDGER_TAG: Final = 0x08
_ENTRY_TAG: Final = 0x10
_PARTITION_TAG: Final = 0x18
_BATCH_INDEX_TAG: Final = 0x20
_BATCH_SIZE_TAG: Final = 0x30
_FIRST_CHUNK_TAG: Final = 0x3A
_GROUP: Final = 7
_INT_GROUPS: Final = 5
_LENGTH_GROUPS: Final = 1
"""The groups of a message's first chunk: at most 9 bytes of ledger id, 4 of entry id and 2 of partition, each with its
tag."""
_LEDGER_GROUPS: Final = 9
_OF_ONE_BYTE: Final = 1 << _GROUP
_LOW_GROUPS: Final = RANGE_BITS // _GROUP
_MAX_LISTED: Final = 4096
"""Values in a table: at most 64 kB of text, unless there are more partitions. Spark writes its plans as text several
times for each query, with all their literals, and executors look up faster in what their caches hold."""
_BYTES: Final = binary(bytes(range(256)))


def topic_name(topic: Topic, partition: str) -> str:
    """Give the name as `Message.topic_name()` does: with the partition's suffix on a partitioned topic."""
    if not topic.partitioned:
        return text(str(topic.name))
    names = ", ".join(text(f"{topic.name.base}-partition-{number}") for number in range(topic.partitions))
    return f"get(array({names}), {partition})"  # Spark makes the array once, and copies no name


def message_id(topic: Topic, partition: str, offset: str, end: int, first_chunk: str | None = None) -> str:
    """The bytes that `Message.message_id().serialize()` gives of a message in no batch. No offset is `end` or more.
    `first_chunk` (an offset) is null for one without chunks."""
    place = f"concat({', '.join(_place(topic, partition, offset, end))})"
    if first_chunk is None:
        return place
    first = f"concat({', '.join(_place(topic, partition, first_chunk, end))})"
    length = _varint(f"octet_length({first})", _LENGTH_GROUPS)[0]
    field = f"concat({binary(bytes([_FIRST_CHUNK_TAG]))}, {length}, {first})"
    return f"concat({place}, if({first_chunk} is null, X'', {field}))"


def message_id_in_batch(entry_id: str, batch_index: str, size_field: str) -> str:
    """The same of a message in a batch: `entry_id` is `message_id` of the batch's record, which like `size_field` is
    made once for all messages of the batch."""
    return f"concat({entry_id}, {_field(_BATCH_INDEX_TAG, batch_index)}, {size_field})"


def batch_size_field(batch_size: str) -> str:
    """The field with the batch's size in ids of messages in a batch."""
    return _field(_BATCH_SIZE_TAG, batch_size)


def message_id_text(topic: Topic, partition: str, offset: str) -> str:
    """The text of the id of a message in no batch: ledger:entry, and on a partitioned topic :partition."""
    size = topic.layout.entries_per_ledger
    first = f"cast({topic.layout.ledger_id(0, 0)}L + shiftleft(cast({partition} as bigint), {RANGE_BITS})"
    parts = [f"{first} + ({offset} div {size}L) as string)", f"cast({offset} % {size}L as string)"]
    return f"concat_ws(':', {', '.join([*parts, partition] if topic.partitioned else parts)})"


def message_id_text_in_batch(topic: Topic, entry_text: str, batch_index: str, batch_size: str) -> str:
    """The same of a message in a batch, of the text of the batch's record: ledger:entry:partition:index:size, with
    partition -1 on a topic without partitions."""
    beside = [] if topic.partitioned else ["'-1'"]
    return f"concat_ws(':', {', '.join([entry_text, *beside, batch_index, batch_size])})"


def _place(topic: Topic, partition: str, offset: str, end: int) -> list[str]:
    """Binaries of ledger id, entry id and partition, each with its tag."""
    size = topic.layout.entries_per_ledger
    index = f"({offset} div {size}L)" if size > 1 else f"({offset})"  # Spark 4.2 takes a bare offset for a clause
    ledger = _ledger(topic, partition, index, max(0, end - 1) // size)
    return ledger + _entry_and_partition(topic, partition, f"cast({offset} % {size}L as int)", size - 1)


def _ledger(topic: Topic, partition: str, index: str, last: int) -> list[str]:
    """Binaries of the ledger id, with its tag and the entry's. `last`: the highest index of a ledger."""
    tag, entry_tag = bytes([_LEDGER_TAG]), bytes([_ENTRY_TAG])
    low = _low_groups(last, topic.partitions)
    if low and not topic.layout.incarnation:  # ids of the first topic of all differ in length, their low groups, too
        ledger = f"(shiftleft(cast({partition} as bigint), {RANGE_BITS}) | {index})"
        return [binary(tag), *_varint(ledger, _LEDGER_GROUPS), binary(entry_tag)]
    parts = [binary(tag)] if low else []
    for group in range(low):  # all of them are followed by others
        parts.append(f"substring({_BYTES}, 129 + cast(shiftright({index}, {_GROUP * group}) & 127 as int), 1)")
    shift = _GROUP * low
    steps = (last >> shift) + 1
    rest = [
        (b"" if low else tag) + varint(topic.layout.ledger_id(number, step << shift) >> shift) + entry_tag
        for number in range(topic.partitions)
        for step in range(steps)
    ]
    step = f"shiftright({index}, {shift})" if low else index
    # In the order of the ids, so that those of one length are in a row.
    return [*parts, _looked_up(rest, f"({partition} * {steps} + cast({step} as int))")]


def _entry_and_partition(topic: Topic, partition: str, entry: str, last: int) -> list[str]:
    """Binaries of an entry id, an int up to `last`, and of the partition with its tag."""
    fields = [b""]
    if topic.partitioned:
        fields = [bytes([_PARTITION_TAG]) + varint(number) for number in range(topic.partitions)]
    together = len(fields) <= _OF_ONE_BYTE
    with_entry = fields if together else [b""]
    low = _low_groups(last, len(with_entry))
    shift = _GROUP * low
    rest = [
        (b"" if low and not step else varint(step)) + field
        for step in range((last >> shift) + 1)
        for field in with_entry
    ]
    step = f"shiftright({entry}, {shift})" if low else entry
    which = f"({step} * {topic.partitions} + {partition})" if len(with_entry) > 1 else step
    parts = [*_varint(entry, low + 1)[:low], _looked_up(rest, which)]
    return parts if together else [*parts, _looked_up(fields, partition)]


def _low_groups(last: int, partitions: int) -> int:
    """The number of the lowest groups of numbers up to `last` that are bytes by themselves, so that a table has the
    rest of each number, for each partition. All of them are below the partition in a ledger id."""
    low = 0
    while (rest := last >> _GROUP * low) and (rest + 1) * partitions > _MAX_LISTED and low < _LOW_GROUPS:
        low += 1
    return low


def _looked_up(values: Sequence[bytes], index: str) -> str:
    """The value at an index, an int: a piece of a literal that has them all, of each length in a row. An array would
    take Spark's parser longer for each value."""
    if len(values) == 1:
        return binary(values[0])
    start, at, length = 0, "", ""
    for size, run in groupby(enumerate(values), lambda each: len(each[1])):
        numbers = [number for number, _ in run]
        place, its_size = f"{1 + start - size * numbers[0]} + {size} * {index}", str(size)
        at = f"if({index} < {numbers[0]}, {at}, {place})" if at else place
        length = f"if({index} < {numbers[0]}, {length}, {its_size})" if length else its_size
        start += size * len(numbers)
    return f"substring({binary(b''.join(values))}, {at}, {length})"


def _field(tag: int, number: str) -> str:
    """A tag, and an int as varint."""
    return f"concat({', '.join([binary(bytes([tag])), *_varint(number, _INT_GROUPS)])})"


def _varint(number: str, groups: int) -> list[str]:
    """A binary for each group of 7 bits, the lowest one first; empty where the number (of at most `groups`) needs
    none."""
    found = []
    for group in range(groups):
        shifted = f"shiftright({number}, {_GROUP * group})" if group else number
        bits = f"cast({shifted} & 127 as int)"
        more = f"{number} >= {1 << _GROUP * (group + 1)}L"
        # substring counts from 1; the highest bit of a byte announces another one
        at = f"1 + {bits}" if group == groups - 1 else f"if({more}, 129, 1) + {bits}"
        length = f"if({number} >= {1 << _GROUP * group}L, 1, 0)" if group else "1"
        found.append(f"substring({_BYTES}, {at}, {length})")
    return found
