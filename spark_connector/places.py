"""Where a record lies, as SQL over Kafka's partition and offset: message ids and names of partitions.

The bytes of a message id (see `mapping.message_id`) come out of one `unhex` of one text. A varint of n bytes is the n
groups of 7 bits with their continuation bits, put together as one number, whose hexadecimal digits they are; the tag
before it keeps the digits even in number. (Casting a number to binary would be shorter, and is not allowed in ANSI
mode, which is Spark 4's default.)
"""

from __future__ import annotations

from functools import reduce
from typing import Final

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 - everybody calls it so

from layer.metadata.topics import Topic
from mapping.ledger import PARTITION_BITS, RANGE_BITS
from mapping.varint import write_varint

_LEDGER_TAG: Final = 0x08
_ENTRY_TAG: Final = 0x10
_PARTITION_TAG: Final = 0x18
_BATCH_INDEX_TAG: Final = 0x20
_BATCH_SIZE_TAG: Final = 0x30
_LOW_GROUPS: Final = 4
"""Of a ledger id: 28 bits, the range's 23 and 5 of the partition. What is above them is the same for 32 partitions."""
_LOW_BITS: Final = 7 * _LOW_GROUPS


def topic_name(topic: Topic, partition: Column) -> Column:
    """As `Message.topic_name()`: with the partition's suffix on a partitioned topic."""
    if not topic.partitioned:
        return F.lit(str(topic.name))
    return F.concat(F.lit(str(topic.name.base) + "-partition-"), partition.cast("string"))


def message_id(topic: Topic, partition: Column, offset: Column, first_chunk: Column | None = None) -> Column:
    """The bytes that `Message.message_id().serialize()` gives of a message in no batch. `first_chunk` (an offset) is
    null for one without chunks."""
    digits = [_position(topic, partition, offset), _partition_field(topic, partition)]
    if first_chunk is not None:
        first = F.concat(F.lit("0"), _position(topic, partition, first_chunk), _partition_field(topic, partition))
        length = (F.length(first) / 2).cast("bigint")
        digits.append(F.when(first_chunk.isNull(), "").otherwise(F.concat(F.hex(F.lit(0x3A00) + length), first)))
    return F.unhex(F.concat(*digits))


def message_id_in_batch(entry_id: Column, batch_index: Column, size_field: Column) -> Column:
    """The same of a message in a batch: `entry_id` is `message_id` of the batch's record, which like `size_field` is
    made once for all messages of the batch."""
    return F.concat(entry_id, F.unhex(_tagged(_BATCH_INDEX_TAG, batch_index, 5)), size_field)


def batch_size_field(batch_size: Column) -> Column:
    """What ids of messages in a batch say of the batch's size."""
    return F.unhex(_tagged(_BATCH_SIZE_TAG, batch_size, 5))


def _position(topic: Topic, partition: Column, offset: Column) -> Column:
    """Digits of ledger and entry id; the first one, a 0, is missing, as `unhex` puts it there."""
    size = topic.layout.entries_per_ledger
    ledger = F.call_function("div", offset, F.lit(size)) if size > 1 else offset
    base = topic.layout.ledger_id(0, 0)
    low_partition_bits = _LOW_BITS - RANGE_BITS
    wide = topic.partitions > 1 << low_partition_bits
    low_partition = partition.cast("bigint").bitwiseAND((1 << low_partition_bits) - 1)
    low = F.shiftleft(low_partition, RANGE_BITS).bitwiseOR(ledger)
    high: Column = F.lit(base >> _LOW_BITS)
    if wide:
        high = high.bitwiseOR(F.shiftright(partition.cast("bigint"), low_partition_bits))
    entry = _tagged(_ENTRY_TAG, offset % size, 4)
    short = _tagged(_LEDGER_TAG, low, _LOW_GROUPS)
    if base == 0 and not wide:
        return F.concat(short, entry)
    long = F.concat(
        F.hex(F.lit(_LEDGER_TAG << 8 * _LOW_GROUPS).bitwiseOR(_groups(low, _LOW_GROUPS, continued=True))),
        _varint(high, 5) if wide else F.lit(_digits_of(base >> _LOW_BITS)),
    )
    return F.concat(F.when(high == 0, short).otherwise(long) if base == 0 else long, entry)


def _partition_field(topic: Topic, partition: Column) -> Column:
    if not topic.partitioned:
        return F.lit("")
    return _tagged(_PARTITION_TAG, partition.cast("bigint"), -(-PARTITION_BITS // 7))


def _tagged(tag: int, number: Column, most_groups: int) -> Column:
    """Digits of a field; of a tag below 16 without its leading 0."""
    found = _with_tag(tag, number, most_groups)
    for groups in range(most_groups - 1, 0, -1):
        found = F.when(number < (1 << 7 * groups), _with_tag(tag, number, groups)).otherwise(found)
    return F.hex(found)


def _with_tag(tag: int, number: Column, groups: int) -> Column:
    return F.lit(tag << 8 * groups).bitwiseOR(_groups(number.cast("bigint"), groups, continued=False))


def _varint(number: Column, most_groups: int) -> Column:
    """Digits of a number without tag."""
    found = _padded(number, most_groups)
    for groups in range(most_groups - 1, 0, -1):
        found = F.when(number < (1 << 7 * groups), _padded(number, groups)).otherwise(found)
    return found


def _padded(number: Column, groups: int) -> Column:
    digits = F.hex(_groups(number, groups, continued=False))
    return F.lpad(digits, 2, "0") if groups == 1 else digits


def _groups(number: Column, groups: int, *, continued: bool) -> Column:
    """The lowest `groups` groups of 7 bits as bytes, the lowest one first; `continued`: others follow."""
    placed = []
    for group in range(groups):
        bits = (F.shiftright(number, 7 * group) if group else number).bitwiseAND(0x7F)
        if group < groups - 1 or continued:
            bits = bits.bitwiseOR(0x80)
        shift = 8 * (groups - 1 - group)
        placed.append(F.shiftleft(bits, shift) if shift else bits)
    return reduce(Column.bitwiseOR, placed)


def _digits_of(number: int) -> str:
    """The varint of a number that is known now."""
    out = bytearray()
    write_varint(out, number)
    return out.hex().upper()
