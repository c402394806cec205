"""SQL over Kafka's partition and offset says where a record lies: message ids and names of partitions.

The bytes of a message id (see `mapping.ids.message_id`) are one `concat` of short binaries. A varint is taken byte by
byte from a table of all bytes, with an empty one for each byte that the number does not need: no branches, little code
(what becomes too long the JVM does not compile), and each part is evaluated once. (Casting a number to binary would be
shorter, and is not allowed in ANSI mode, which is Spark 4's default.)

All of it is text: an expression costs the driver one parsing, not one call to the JVM for each of its parts.
"""

from __future__ import annotations

from typing import Final

from pulsar_on_kafka.mapping.encoding.varint import write_varint
from pulsar_on_kafka.mapping.ids.ledger_ids import PARTITION_BITS, RANGE_BITS
from pulsar_on_kafka.metadata.topics import Topic
from pulsar_on_kafka.spark.base.sql_text import binary, text

_LEDGER_TAG: Final = 0x08
_ENTRY_TAG: Final = 0x10
_PARTITION_TAG: Final = 0x18
_BATCH_INDEX_TAG: Final = 0x20
_BATCH_SIZE_TAG: Final = 0x30
_FIRST_CHUNK_TAG: Final = 0x3A
_GROUP: Final = 7
_LOW_GROUPS: Final = 4
"""Of a ledger id: 28 bits, the range's 23 and 5 of the partition. What is above them is the same for 32 partitions."""
_LOW_BITS: Final = _GROUP * _LOW_GROUPS
_INT_GROUPS: Final = 5
_LENGTH_GROUPS: Final = 1
"""Of a message's first chunk: at most 9 bytes of ledger id, 4 of entry id and 2 of partition, each with its tag."""
_LEDGER_GROUPS: Final = 9
_ENTRY_GROUPS: Final = 4
_PARTITION_GROUPS: Final = -(-PARTITION_BITS // _GROUP)
_BYTES: Final = binary(bytes(range(256)))


def topic_name(topic: Topic, partition: str) -> str:
    """Give the name as `Message.topic_name()` does: with the partition's suffix on a partitioned topic."""
    if not topic.partitioned:
        return text(str(topic.name))
    return f"concat({text(f'{topic.name.base}-partition-')}, cast({partition} as string))"


def message_id(topic: Topic, partition: str, offset: str, first_chunk: str | None = None) -> str:
    """The bytes that `Message.message_id().serialize()` gives of a message in no batch. `first_chunk` (an offset) is
    null for one without chunks."""
    place = f"concat({', '.join(_place(topic, partition, offset))})"
    if first_chunk is None:
        return place
    first = f"concat({', '.join(_place(topic, partition, first_chunk))})"
    length = _varint(f"octet_length({first})", _LENGTH_GROUPS)[0]
    field = f"concat({binary(bytes([_FIRST_CHUNK_TAG]))}, {length}, {first})"
    return f"concat({place}, if({first_chunk} is null, X'', {field}))"


def message_id_in_batch(entry_id: str, batch_index: str, size_field: str) -> str:
    """The same of a message in a batch: `entry_id` is `message_id` of the batch's record, which like `size_field` is
    made once for all messages of the batch."""
    return f"concat({entry_id}, {_field(_BATCH_INDEX_TAG, batch_index, _INT_GROUPS)}, {size_field})"


def batch_size_field(batch_size: str) -> str:
    """What ids of messages in a batch say of the batch's size."""
    return f"concat({_field(_BATCH_SIZE_TAG, batch_size, _INT_GROUPS)})"


def _place(topic: Topic, partition: str, offset: str) -> list[str]:
    """Binaries of ledger id, entry id and partition."""
    size = topic.layout.entries_per_ledger
    base = topic.layout.ledger_id(0, 0)
    index = f"({offset} div {size}L)" if size > 1 else f"({offset})"  # Spark 4.2 takes a bare offset for a clause
    ledger = f"({base}L | shiftleft(cast({partition} as bigint), {RANGE_BITS}) | {index})"
    wide = topic.partitions > 1 << _LOW_BITS - RANGE_BITS
    parts = [binary(bytes([_LEDGER_TAG]))]
    if base >> _LOW_BITS and not wide:
        high = bytearray()
        write_varint(high, base >> _LOW_BITS)
        parts += [*_varint(ledger, _LOW_GROUPS, continued=True), binary(bytes([*high, _ENTRY_TAG]))]
    else:
        parts += [*_varint(ledger, _LEDGER_GROUPS), binary(bytes([_ENTRY_TAG]))]
    parts += _varint(f"({offset} % {size}L)", _ENTRY_GROUPS)
    if topic.partitioned:
        parts.append(_field(_PARTITION_TAG, partition, _PARTITION_GROUPS))
    return parts


def _field(tag: int, number: str, most_groups: int) -> str:
    """Binaries, with commas between."""
    return ", ".join([binary(bytes([tag])), *_varint(number, most_groups)])


def _varint(number: str, groups: int, *, continued: bool = False) -> list[str]:
    """A binary for each group of 7 bits, the lowest one first; empty where the number (of at most `groups`) needs none.
    `continued`: of a longer number the lowest ones, all of which are there."""
    found = []
    for group in range(groups):
        shifted = f"shiftright({number}, {_GROUP * group})" if group else number
        bits = f"cast({shifted} & 127 as int)"
        more = f"{number} >= {1 << _GROUP * (group + 1)}L"
        # substring counts from 1; the highest bit of a byte says that another one follows
        at = f"129 + {bits}" if continued else f"1 + {bits}" if group == groups - 1 else f"if({more}, 129, 1) + {bits}"
        length = "1" if continued or not group else f"if({number} >= {1 << _GROUP * group}L, 1, 0)"
        found.append(f"substring({_BYTES}, {at}, {length})")
    return found
