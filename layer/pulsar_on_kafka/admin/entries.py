"""Entries: the part of `AdminClient` that reads single entries of a partition as they are stored."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain
from typing import Final, Literal

from pulsar_on_kafka.admin.context import raising_pulsar_errors
from pulsar_on_kafka.admin.cursors import CursorAdmin
from pulsar_on_kafka.admin.stored.partition_entries import EntryTransaction, PartitionEntries, StoredEntry
from pulsar_on_kafka.base import errors
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.broker.cursor.cursor_machine import CursorState
from pulsar_on_kafka.broker.metadata.topics import Topic
from pulsar_on_kafka.broker.subscriptions.records.batches import batch_size
from pulsar_on_kafka.client.receiving.start_position import TopicPositions, start_offset
from pulsar_on_kafka_mapping.errors import MappingError
from pulsar_on_kafka_mapping.ids.native_message_id import NativeMessageId

MAX_ANALYZED: Final = 10_000
"""Entries that one analysis of a backlog reads. Source: Pulsar's subscriptionBacklogScanMaxEntries."""


@dataclass(frozen=True, slots=True)
class BacklogAnalysis:
    """The result of reading a backlog. `complete`: all of it was read; otherwise the first `MAX_ANALYZED` entries.

    Entries of aborted transactions are not counted. `first` and `last` are the ids of the first and the last entry that
    was read, None without one.
    """

    entries: int
    messages: int
    first: NativeMessageId | None
    last: NativeMessageId | None
    complete: bool


@raising_pulsar_errors
class EntryAdmin(CursorAdmin):
    """A call is about one partition: a topic without partitions, or a partition by its name. Reading changes nothing,
    and is the same for every process."""

    def last_message_id(self, topic: str) -> NativeMessageId:
        """The id of the last message that consumers may receive now, of a batch that of its last message; the id before
        the first one (entry -1 at the beginning) where there is none. Raises TopicNotFound."""
        deadline = self._deadline()
        found, partition = self._one_partition(topic, deadline)
        positions = TopicPositions(self.node, found)
        offset = positions.last_message(partition, deadline)
        if offset < 0:
            return NativeMessageId(found.partition_field(partition), found.layout.ledger_id(partition, 0), -1, -1)
        place = found.layout.position(partition, offset)
        last = NativeMessageId(found.partition_field(partition), *place, -1)
        size = positions.messages_of_entry(partition, offset, deadline)
        return last.in_batch(size - 1, size) if size else last

    def stored_entry(self, topic: str, ledger_id: int, entry_id: int) -> StoredEntry | None:
        """One entry by its id; None: it does not exist (any more), or is no message. Raises TopicNotFound."""
        deadline = self._deadline()
        found, partition = self._one_partition(topic, deadline)
        try:
            offset = found.layout.kafka_offset(partition, ledger_id, entry_id)
        except MappingError:  # of another topic or partition
            return None
        return PartitionEntries(self.node, found, partition, deadline).at(offset)

    def examine_entry(self, topic: str, origin: Literal["earliest", "latest"], position: int) -> StoredEntry | None:
        """The entry at a position, from 1, counted from the log's start or from its end; the last one in that direction
        where there are fewer. None: the topic has no message.

        Markers are counted, as in Pulsar, and the next message in that direction is returned in their place.

        Raises:
            TopicNotFound: there is none.
            InvalidConfiguration: the origin is neither.
        """
        if origin not in ("earliest", "latest"):
            raise errors.InvalidOption(f"origin is {origin!r:.60}, expected earliest or latest")
        deadline = self._deadline()
        entries = self._entries(*self._one_partition(topic, deadline), deadline)
        beside = max(1, position) - 1
        if origin == "earliest":
            offset = min(entries.start + beside, entries.end - 1)
            return next(chain(entries.onwards(offset), entries.backwards(offset)), None)
        offset = max(entries.start, entries.end - 1 - beside)
        return next(chain(entries.backwards(offset), entries.onwards(offset)), None)

    def message_id_at(self, topic: str, timestamp_ms: int) -> NativeMessageId:
        """The id of the first message published at or after a time; behind the last one where all are older. Raises
        TopicNotFound."""
        deadline = self._deadline()
        found, partition = self._one_partition(topic, deadline)
        offset = TopicPositions(self.node, found).at_time([partition], timestamp_ms, deadline)[partition]
        return NativeMessageId(found.partition_field(partition), *found.layout.position(partition, offset), -1)

    def peek_entry(self, topic: str, subscription: str, position: int) -> StoredEntry | None:
        """The entry at a position, from 1, of a subscription's backlog as last saved; None: the backlog is shorter.

        Reads all entries before it. Differs from Pulsar: markers of transactions are no entries.

        Raises:
            TopicNotFound, SubscriptionNotFound: there is none.
            NotAllowedError: the topic is not persistent.
        """
        if position < 1:
            raise errors.InvalidOption(f"the position of a message is {position}, expected 1 or more")
        deadline = self._deadline()
        entries, state = self._backlog_of(topic, subscription, deadline)
        for number, entry in enumerate(entries.unacknowledged(state, 0), 1):
            if number == position:
                return entry
        return None

    def analyze_backlog(
        self, topic: str, subscription: str, *, start: NativeMessageId | None = None
    ) -> BacklogAnalysis:
        """Reads a subscription's backlog as last saved, from an id on, and counts its entries and messages. Raises as
        `peek_entry`."""
        deadline = self._deadline()
        entries, state = self._backlog_of(topic, subscription, deadline)
        found, partition = self._one_partition(topic, deadline)
        offset = 0
        if start is not None:
            low, end = entries.start, entries.end
            inclusive = start != NativeMessageId.latest
            offset = start_offset(found.layout, partition, start, inclusive=inclusive, low=low, end=end)
        read = messages = 0
        first: NativeMessageId | None = None
        last: NativeMessageId | None = None
        for entry in entries.unacknowledged(state, offset):
            if read == MAX_ANALYZED:
                return BacklogAnalysis(read, messages, first, last, complete=False)
            if entry.transaction is EntryTransaction.ABORTED:
                continue
            read += 1
            messages += batch_size(entry.record) or 1
            first, last = entry.message_id if first is None else first, entry.message_id
        return BacklogAnalysis(read, messages, first, last, complete=True)

    def backlog_times(self, topic: str, subscription: str) -> dict[int, int]:
        """The publish time (Unix ms) of the first entry of each partition's backlog, as last saved; partitions without
        a backlog are missing. Raises as `peek_entry`."""
        deadline = self._deadline()
        found, partitions = self._addressed(topic, subscription, deadline)
        entries = {partition: self._entries(found.topic, partition, deadline) for partition in partitions}
        starts = {partition: each.start for partition, each in entries.items()}
        times: dict[int, int] = {}
        for partition, cursor in self._whole_cursors(found, starts, deadline).items():
            first = next(entries[partition].unacknowledged(cursor.state, 0), None)
            if first is not None:
                times[partition] = first.record.timestamp()[1]
        return times

    def _backlog_of(self, topic: str, subscription: str, deadline: Deadline) -> tuple[PartitionEntries, CursorState]:
        opened, partition = self._one_partition(topic, deadline)
        found, _ = self._addressed(topic, subscription, deadline)
        entries = self._entries(opened, partition, deadline)
        return entries, self._whole_cursors(found, {partition: entries.start}, deadline)[partition].state

    def _entries(self, topic: Topic, partition: int, deadline: Deadline) -> PartitionEntries:
        return PartitionEntries(self.node, topic, partition, deadline)
