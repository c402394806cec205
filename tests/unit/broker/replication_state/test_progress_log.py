"""The progress log is written and read: heads, segments, and whose head counts."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest
from pyroaring import BitMap, BitMap64

from pulsar_on_kafka.base.clock import SystemClock
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.base.errors import Fenced
from pulsar_on_kafka.broker.replication_state.acks import ReplicatedAcks
from pulsar_on_kafka.broker.replication_state.progress import Progress
from pulsar_on_kafka.broker.replication_state.progress_heads import Subject
from pulsar_on_kafka.broker.replication_state.progress_log import ProgressLog, ProgressWriter
from pulsar_on_kafka.statelog.api import LogRecord
from pulsar_on_kafka_mapping.state.clusters.subscription_progress import (
    BLOCK,
    SAYS,
    Origin,
    ProgressHead,
    SavedAcks,
    SegmentPlace,
    decode_head,
    encode_head,
)
from pulsar_on_kafka_mapping.state.cursors.cursor_state import Deliveries
from pulsar_on_kafka_mapping.state.state_keys import ProgressSegmentKey, decode_key
from pulsar_on_kafka_mapping.state.state_topics import SUBSCRIPTION_PROGRESS
from tests.memory_log import MemoryStateLog

SUBJECT = Subject("persistent://public/default/orders", 3, "billing", "eu", SAYS)
PARTITION = SUBSCRIPTION_PROGRESS.partition_for(SUBJECT.topic)
EU, US = Origin("eu", 17), Origin("us", 4)
LIFE = (17, 42)
NEVER = Deadline.after(3600)


@pytest.fixture
def log() -> MemoryStateLog:
    return MemoryStateLog()


def holes(seed: int, blocks: int) -> Progress:
    """More than a head has room for, in each block."""
    generator = random.Random(seed)
    own, copies = ReplicatedAcks(BLOCK, 1000), ReplicatedAcks(BLOCK)
    for block in range(blocks):
        own.add(block * BLOCK, BitMap(generator.sample(range(2000, BLOCK), 3000)))
    copies.add(7, BitMap(range(0, 100, 3)))
    copies.add_batch(5000, (10, 0b1011))
    return {EU: own, US: copies}


def read(log: MemoryStateLog) -> Progress | None:
    reader = ProgressLog(log, SystemClock())
    found = reader.newest(SUBJECT, NEVER)
    return None if found is None else reader.all_of(SUBJECT, found[1], NEVER)


def plain(progress: Progress | None) -> object:
    if progress is None:
        return None
    return {
        origin: (acks.below, {block: (list(h.acked), dict(h.batches)) for block, h in acks.blocks().items()})
        for origin, acks in progress.items()
    }


def live_segments(log: MemoryStateLog) -> set[tuple[str, int]]:
    """(session, save) of the segments that are not tombstoned."""
    newest: dict[bytes, bytes | None] = {}
    for batch in records(log):
        newest.update({record.key: record.value for record in batch})
    keys = [decode_key(key) for key, value in newest.items() if value is not None]
    return {(key.session, key.save) for key in keys if isinstance(key, ProgressSegmentKey)}


def records(log: MemoryStateLog) -> Iterator[list[LogRecord]]:
    return log.read(SUBSCRIPTION_PROGRESS, PARTITION, 0, log.end_offset(SUBSCRIPTION_PROGRESS, PARTITION, NEVER), NEVER)


def test_what_is_written_is_read_and_only_what_changed_is_written_again(log: MemoryStateLog) -> None:
    writer = ProgressWriter(ProgressLog(log, SystemClock()), SUBJECT)
    said = holes(1, blocks=5)
    writer.write(LIFE, said, {}, NEVER)
    assert plain(read(log)) == plain(said)
    end = log.end_offset(SUBSCRIPTION_PROGRESS, PARTITION, NEVER)
    writer.write(LIFE, said, {}, NEVER)
    assert log.end_offset(SUBSCRIPTION_PROGRESS, PARTITION, NEVER) == end  # nothing new to say
    said[EU].add(2 * BLOCK, BitMap([5]))
    writer.write(LIFE, said, {}, NEVER)
    # One segment, the head, and the tombstone of the segment that it replaced.
    assert log.end_offset(SUBSCRIPTION_PROGRESS, PARTITION, NEVER) == end + 3
    log.compact(random.Random(3))
    assert plain(read(log)) == plain(said)
    assert {save for _, save in live_segments(log)} == {1, 3}


def test_a_writer_that_was_stopped_is_not_heard_and_removes_nothing(log: MemoryStateLog) -> None:
    stopped, next_one = (ProgressWriter(ProgressLog(log, SystemClock()), SUBJECT) for _ in range(2))
    stopped.write(LIFE, holes(1, blocks=2), {}, NEVER)
    said = holes(2, blocks=3)
    next_one.write(LIFE, said, {}, NEVER)
    assert len({session for session, _ in live_segments(log)}) == 1  # the former one's are gone
    with pytest.raises(Fenced, match="another writer reports"):
        stopped.write(LIFE, holes(3, blocks=4), {}, NEVER)
    assert plain(read(log)) == plain(said)
    stopped.write(LIFE, holes(4, blocks=1), {}, NEVER)  # it takes over
    assert plain(read(log)) == plain(holes(4, blocks=1))


def test_a_subject_that_is_forgotten_leaves_nothing(log: MemoryStateLog) -> None:
    progress = ProgressLog(log, SystemClock())
    ProgressWriter(progress, SUBJECT).write(LIFE, holes(1, blocks=2), {}, NEVER)
    progress.forget(SUBJECT, NEVER)
    assert read(log) is None
    assert live_segments(log) == set()


def test_a_head_is_read_as_it_was_written() -> None:
    here = holes(1, blocks=1)[US].blocks()
    apart = {7: (SegmentPlace(1, 2, 3), SegmentPlace(1, 3, 4))}
    told = Deliveries(0, counts={(3, 2): BitMap64([7])}, put_off={1_000: BitMap64([9])})
    head = ProgressHead(LIFE, {EU: SavedAcks(12, here), US: SavedAcks(0, {}, apart)}, {US: told, EU: Deliveries(9)})
    found = decode_head(encode_head(head))
    assert (found.life, found.deliveries, found.origins[US]) == (head.life, head.deliveries, head.origins[US])
    assert found.origins[EU] == head.origins[EU]
