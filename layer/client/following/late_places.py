"""Late acknowledgements name records in the log of the cluster that a tenant is on now.

A record is the same one in two logs only by where it was first published. So of everything that a program has done with
up to a message, those records count that were first published on the cluster where that message was read, or, when it
is a copy, on its origin: only of these the order is the same in both logs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from enum import Enum
from typing import Any, Final, NamedTuple

from pyroaring import BitMap64

from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.kafka.records import KafkaRecord, headers_of
from pulsar_on_kafka.lookup.copies import Copies, Reads
from pulsar_on_kafka.mapping.errors import CorruptRecord
from pulsar_on_kafka.mapping.records.message_record import ChunkInfo, goes_to
from pulsar_on_kafka.mapping.records.original_position import copy_headers, original_of
from pulsar_on_kafka.subscriptions.records.whole_message import chunk_info

_CHUNKS_WITHIN: Final = 100_000
"""Records that are looked through for the other chunks of a message, before its last one."""
_AT_ONCE: Final = 1_000


class Extent(Enum):
    """An acknowledgement names a record of a log, the chunks of a message, or everything up to a record."""

    RECORD = "record"
    CHUNKS = "chunks"
    """The message whose last chunk the record is."""
    UPTO = "upto"
    """Everything up to the record."""


class Late(NamedTuple):
    """A record that was first published on `cluster`, in the topic's life `incarnation`, at `offset`; of a batch entry
    the message `batch_index` of `batch_size` (0: the whole record). `read_on`: the cluster that was left with it."""

    topic: str
    partition: int
    cluster: str
    incarnation: int
    offset: int
    batch_index: int = 0
    batch_size: int = 0
    extent: Extent = Extent.RECORD
    read_on: str = ""


class Log(NamedTuple):
    """A log has the records of a partition in [low, end) on the cluster that has the tenant; all of them are of this
    `incarnation` of the topic. Nothing below `next_unacked` is unacknowledged."""

    reads: Reads
    kafka_topic: str
    cluster: str
    incarnation: int
    low: int
    end: int
    next_unacked: int


class Named(NamedTuple):
    """Offsets, and (number of messages, bits) of batch entries by offset."""

    offsets: BitMap64
    batches: dict[int, tuple[int, int]]


def named(several: Iterable[Late], log: Log, deadline: Deadline) -> Named:
    """What they name of what is there. Memory: one batch of records while it reads, and the offsets.

    Raises:
        StoreError: it cannot be read now.
    """
    late = list(several)
    places = _places([each for each in late if each.extent is not Extent.UPTO], log, deadline)
    offsets, batches = BitMap64(), dict[int, tuple[int, int]]()
    for each in late:
        found = _upto(each, log, deadline) if each.extent is Extent.UPTO else _at(each, places.get(each), log, deadline)
        offsets |= found.offsets
        for offset, (size, bits) in found.batches.items():
            batches[offset] = (size, bits | batches.get(offset, (0, 0))[1])
    return Named(offsets, batches)


def _at(late: Late, offset: int | None, log: Log, deadline: Deadline) -> Named:
    if offset is None:
        return Named(BitMap64(), {})
    if late.batch_size:
        return Named(BitMap64(), {offset: (late.batch_size, 1 << late.batch_index)})
    return Named(BitMap64(_chunks(late, log, offset, deadline) if late.extent is Extent.CHUNKS else [offset]), {})


def _places(late: Iterable[Late], log: Log, deadline: Deadline) -> dict[Late, int]:
    """Where the records lie here, of those that do."""
    found: dict[Late, int] = {}
    elsewhere: dict[str, list[Late]] = {}
    for each in late:
        if each.cluster != log.cluster:
            elsewhere.setdefault(each.cluster, []).append(each)
        elif each.incarnation == log.incarnation and log.low <= each.offset < log.end:
            found[each] = each.offset
    for cluster, group in elsewhere.items():
        copies = Copies(log.reads, log.kafka_topic, group[0].partition, cluster)
        lives = {each: (each.incarnation, each.offset) for each in group}
        places = copies.of_each(lives.values(), log.low, log.end, deadline)
        found.update((each, places[life]) for each, life in lives.items() if life in places)
    return found


def _chunks(late: Late, log: Log, last: int, deadline: Deadline) -> list[int]:
    """The chunks of the message that ends at `last`, by their uuid: looked for backwards, and of those that are not
    there any more none."""
    infos = [_chunk(record) for batch in _read(late, log, last, last + 1, deadline) for record in batch]
    if not infos or infos[0] is None:
        return [last]
    wanted = infos[0]
    found, ids, end = [last], {wanted.chunk_id}, last
    while len(ids) < wanted.chunks and end > max(log.low, last - _CHUNKS_WITHIN):
        start = max(log.low, end - _AT_ONCE)
        for batch in _read(late, log, start, end, deadline):
            for record in batch:
                info = _chunk(record)
                if info is not None and info.uuid == wanted.uuid:
                    found.append(record.offset())
                    ids.add(info.chunk_id)
        end = start
    return found


def _read(late: Late, log: Log, start: int, end: int, deadline: Deadline) -> Iterator[list[KafkaRecord]]:
    return log.reads.read(log.kafka_topic, late.partition, start, end, deadline)


def _upto(late: Late, log: Log, deadline: Deadline) -> Named:
    here = late.cluster == log.cluster
    if here and late.incarnation != log.incarnation:
        return Named(BitMap64(), {})
    start = max(log.low, log.next_unacked)
    if here:
        end = min(log.end, late.offset + 1)
    else:
        copies = Copies(log.reads, log.kafka_topic, late.partition, late.cluster)
        end = copies.behind((late.incarnation, late.offset), start, log.end, deadline) if start < log.end else start
    offsets, batches = BitMap64(), dict[int, tuple[int, int]]()
    chunks: dict[str, list[int]] = {}
    for batch in _read(late, log, start, end, deadline) if start < end else ():
        for record in batch:
            original = _original(late, log, record)
            if original is None or original > late.offset:
                continue
            offset = record.offset()
            info = _chunk(record)
            if info is not None:  # a message that ends behind it is not acknowledged
                chunks.setdefault(info.uuid, []).append(offset)
                if info.chunk_id == info.chunks - 1:
                    offsets.update(chunks.pop(info.uuid))
            elif late.batch_size and original == late.offset:
                batches[offset] = (late.batch_size, (1 << late.batch_index + 1) - 1)
            else:
                offsets.add(offset)
    return Named(offsets, batches)


def _original(late: Late, log: Log, record: Any) -> int | None:
    """The record's offset in the log that `late.offset` is of; None of one that is not in it."""
    headers = headers_of(record) or ()
    copy = copy_headers(headers)
    if late.cluster == log.cluster:
        if late.read_on == log.cluster:  # the tenant came back: it is the same log
            return int(record.offset())
        return int(record.offset()) if copy is None and goes_to(headers, late.read_on) else None
    found = None if copy is None else original_of(copy)
    if found is None or found[0] != late.cluster:
        return None
    return found[1].kafka_offset if found[1].incarnation == late.incarnation else None


def _chunk(record: Any) -> ChunkInfo | None:
    try:
        return chunk_info(record)
    except CorruptRecord:
        return None
