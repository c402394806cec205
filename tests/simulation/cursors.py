"""One cursor on the state log in memory, and what its owner does around the store."""

from __future__ import annotations

import random
from collections.abc import Sequence

from pulsar_on_kafka.base import errors
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.broker.cursor import segments as segments_module
from pulsar_on_kafka.broker.cursor.cursor_machine import CursorState
from pulsar_on_kafka.broker.cursor.identity import CursorIdentity, new_session
from pulsar_on_kafka.broker.cursor.saved_cursor import RecoveredCursor, Save, SavedCursor
from pulsar_on_kafka.broker.cursor.segments import MARKER_SEGMENT
from pulsar_on_kafka.broker.cursor.store import CursorStore
from pulsar_on_kafka.broker.subscriptions.partition.owned_partition import OwnedPartition
from pulsar_on_kafka.broker.subscriptions.partition.partition_options import PartitionTerms
from pulsar_on_kafka.broker.subscriptions.records.consumer_inbox import PartitionAcks
from pulsar_on_kafka.kafka.records import CommittedOffset
from pulsar_on_kafka.statelog.api import LogRecord, StateLog
from pulsar_on_kafka_mapping.ids.ledger_ids import LedgerLayout
from pulsar_on_kafka_mapping.state.cursors.cursor_marker import MarkerRef, SegmentRef
from pulsar_on_kafka_mapping.state.state_topics import StateTopic
from tests.memory_log import MemoryStateLog

TOPIC = "persistent://public/default/orders"
TOPIC_ID = "abcdefghijklmnopqrstuv"
DEADLINE = Deadline.never()


class LogThatBreaks(MemoryStateLog):
    """Fails the append call number `at` (from 1), before or after it was written; `None` never."""

    def __init__(self) -> None:
        super().__init__()
        self.at: int | None = None
        self.written_all_the_same = False
        self.unreadable = False

    def append_many(
        self, topic: StateTopic, partition: int, records: Sequence[tuple[bytes, bytes | None]], deadline: Deadline
    ) -> list[int]:
        assert all(len(value or b"") <= segments_module.LARGEST_RECORD_BYTES for _, value in records)
        if self.at is not None:
            self.at -= 1
            if self.at == 0:
                self.at = None
                if self.written_all_the_same:
                    super().append_many(topic, partition, records, deadline)
                raise errors.AppendOutcomeUnknown("the broker went away")
        return super().append_many(topic, partition, records, deadline)

    def read_at(
        self, topic: StateTopic, partition: int, offsets: Sequence[int], deadline: Deadline
    ) -> dict[int, LogRecord]:
        if self.unreadable:
            raise errors.ConnectFailed("the broker went away")
        return super().read_at(topic, partition, offsets, deadline)


def an_identity(entries_per_ledger: int = 10, topic_id: str = TOPIC_ID) -> CursorIdentity:
    return CursorIdentity(TOPIC, 3, "audit", "public.default.orders", topic_id, 7, 9, entries_per_ledger)


def owned_by(
    identity: CursorIdentity, state: CursorState, saved: SavedCursor | None = None, terms: PartitionTerms | None = None
) -> OwnedPartition:
    """By its first owner, or by one that accepted the save of its take-over."""
    slot = PartitionAcks(TOPIC, 3, 3, LedgerLayout(7, identity.entries_per_ledger))
    return OwnedPartition(slot, identity, state, saved or SavedCursor(identity.lineage(new_session(), 1, 0)), terms)


def taken_over(store: CursorStore, identity: CursorIdentity, found: RecoveredCursor) -> tuple[OwnedPartition, Save]:
    """Take a cursor over like `Ownership`; the save is to be committed."""
    save = store.take_over(identity, found, DEADLINE)
    saved = found.saved or SavedCursor(save.saved.lineage)
    return owned_by(identity, found.state, saved, PartitionTerms(store=store)), save


def send_away(owned: OwnedPartition, rng: random.Random, share: float) -> None:
    """What the owner does when memory is short."""
    for index in owned.cursor.ledgers_with_state():
        if index in owned.saves.saved.segments and index not in owned.cursor.dirty_ledgers and rng.random() < share:
            owned.cursor.send_away(index, owned.saves.saved.segments[index].summary.size_bytes)


def prepared(store: CursorStore, owned: OwnedPartition) -> Save:
    return store.prepare(owned.identity, owned.cursor, owned.saves.saved, owned.saves.begin(), DEADLINE)


def every_reference_is_there(log: StateLog, identity: CursorIdentity, *commits: CommittedOffset | None) -> None:
    """All that these commits and checkpoints name can be read, and no two of the records have one key."""
    store = CursorStore(log)
    for commit in commits:
        if commit is None:
            continue
        found = store.recover(identity, commit, None, 0, DEADLINE)
        store.load_all(identity, found, DEADLINE)
        names = [name_of(ref) for ref in (found.saved.references() if found.saved is not None else ())]
        assert len(names) == len(set(names)), f"two live records have one key: {sorted(names)}"


def name_of(ref: SegmentRef | MarkerRef) -> tuple[bytes, int, int]:
    return (ref.session, ref.save, ref.segment if isinstance(ref, SegmentRef) else MARKER_SEGMENT)


def state_of(cursor: CursorState) -> tuple[int, list[int], dict[int, tuple[int, int]]]:
    return (
        cursor.next_unacked,
        list(cursor.deleted),
        {offset: (acks.batch_size, acks.acked) for offset, acks in cursor.batches.items()},
    )
