"""The export of one partition: its messages, its copies in Pulsar, and its acknowledgements."""

from __future__ import annotations

import secrets
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from pyroaring import BitMap64

from pulsar_on_kafka.base import errors
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.broker.metadata.subscriptions.subscription import Subscription
from pulsar_on_kafka.broker.metadata.topics import Topic
from pulsar_on_kafka.broker.node.node import Node
from pulsar_on_kafka.broker.replication_state.acks import ReplicatedAcks, of_cursor
from pulsar_on_kafka.client.values.message import Message
from pulsar_on_kafka.clusters.migration.from_pulsar.admin import PulsarAdmin, PulsarPartition
from pulsar_on_kafka.clusters.migration.from_pulsar.entry_positions import (
    Acknowledged,
    Position,
    place_of,
    position_at,
)
from pulsar_on_kafka.clusters.migration.from_pulsar.existing_copies import CopiesHere, copies_here
from pulsar_on_kafka.clusters.migration.from_pulsar.reading import PulsarReading
from pulsar_on_kafka.clusters.migration.to_pulsar.acknowledging import acknowledge_in_pulsar
from pulsar_on_kafka.clusters.migration.to_pulsar.exported_copies import (
    MAX_INDEX,
    ExportedCopies,
    OriginalsInPulsar,
    export_name,
    original_at,
)
from pulsar_on_kafka.clusters.migration.to_pulsar.messages_here import PartitionMessages
from pulsar_on_kafka.clusters.migration.to_pulsar.outgoing import (
    PreparedMessage,
    digest_of_message,
    outgoing,
)
from pulsar_on_kafka.clusters.migration.to_pulsar.sending import PartitionSender
from pulsar_on_kafka.kafka.records import packed_headers_of
from pulsar_on_kafka_mapping.errors import CorruptRecord, MappingError
from pulsar_on_kafka_mapping.records.message_record import RecordHeaders, decode_headers
from pulsar_on_kafka_mapping.state.cursors.cursor_requests import SaveNow
from pulsar_on_kafka_schema_compat import SchemaInfo

_CALL_S: Final = 60.0
_READ_S: Final = 24 * 3_600.0
_BACK_RECORDS: Final = 10_000
"""A run begins to read so many records before the last exported message: earlier chunks of the next one may lie
there."""
_POSITIONS_KEPT: Final = 10_000


@dataclass(frozen=True, slots=True)
class ExportedMessages:
    """`left_out`: copies of entries that Pulsar has. `open_transaction`: the offset at which the run ended, since the
    transaction of the message is open."""

    messages: int
    bytes: int
    left_out: int
    open_transaction: int | None


@dataclass(frozen=True, slots=True)
class SubscriptionDifference:
    """A subscription on both sides: the messages that a fresh consumer would get of those that both sides have."""

    name: str
    left_there: int
    left_here: int
    only_there: int
    only_here: int

    @property
    def good(self) -> bool:
        return not self.only_there and not self.only_here


@dataclass(frozen=True, slots=True)
class ComparedExport:
    """A partition on both sides. Messages that Pulsar has the same (`equal`), otherwise (`changed`), or not
    (`missing`; `trimmed`: not any more). `repeated`: copies of messages that have one already. `first`: where the first
    difference is."""

    topic: str
    partition: int
    equal: int
    changed: int
    missing: int
    trimmed: int
    repeated: int
    first: str
    subscriptions: tuple[SubscriptionDifference, ...]

    def problems(self) -> Iterator[str]:
        """One sentence each."""
        place = f"{self.topic} partition {self.partition}"
        if self.changed or self.missing:
            yield (
                f"{place}: {self.missing} messages are missing in Pulsar, {self.changed} differ, the first at "
                f"{self.first}"
            )
        if self.repeated:
            yield f"{place}: {self.repeated} messages are in Pulsar more than once"
        for each in self.subscriptions:
            if not each.good:
                yield (
                    f"{place}: subscription {each.name} has {each.only_there} messages left in Pulsar alone, "
                    f"{each.only_here} here alone"
                )


class PartitionExport:
    """One partition here and in Pulsar, for one thread. Memory: see `PartitionSender`, `PartitionMessages`,
    `PulsarReading` and `ExportedCopies`; `CopiesHere` where Pulsar has entries that were imported."""

    def __init__(
        self, node: Node, topic: Topic, number: int, name: str, pulsar: PulsarAdmin, originals: OriginalsInPulsar
    ) -> None:
        """`name`: the partition's in Pulsar."""
        self._node = node
        self._topic = topic
        self._number = number
        self._name = name
        self._pulsar = pulsar
        self._originals = originals
        self._index = secrets.randbelow(MAX_INDEX + 1)
        self._producer_name = export_name(node.cluster_id, topic.layout.incarnation, number)

    def send(
        self,
        client: Any,
        schemas: Mapping[bytes | None, SchemaInfo],
        reading: PulsarReading,
        private_key: str,
    ) -> ExportedMessages:
        """Sends the messages up to the log's end at the call that Pulsar lacks. `schemas`: by header.

        Raises:
            Refused: a message cannot be exported; names it and the reason.
            StoreError: one of the clusters cannot be read or written.
        """
        low, end = self._node.fetcher.watermarks(self._topic.kafka_topic, self._number, Deadline.after(_CALL_S))
        sender = PartitionSender(client, self._name, self._producer_name, schemas)
        messages = PartitionMessages(self._node, self._topic, self._number, private_key)
        left_out = 0
        try:
            stored = sender.last_sequence_id()
            if stored < 0:  # Pulsar forgets the sequence ids of a producer that was not seen for six hours
                stored = self.copies(reading, self._after_originals()).highest
            start = low if stored < 0 else max(low, original_at(stored).offset - _BACK_RECORDS)
            for message, prepared in self._prepared(messages.between(start, end, Deadline.after(_READ_S))):
                if prepared is None:
                    left_out += 1
                elif prepared.sequence_ids[0] > stored:
                    self._send(sender, message, prepared)
            sender.drain()
        except errors.Refused:
            sender.drain()  # the messages before it are stored
            raise
        finally:
            sender.close()
        return ExportedMessages(sender.counts.messages, sender.counts.bytes, left_out, messages.open_transaction)

    def acknowledge(self, reading: PulsarReading, client: Any, subscriptions: Sequence[Subscription]) -> dict[str, int]:
        """Acknowledges in Pulsar what is acknowledged here; returns the numbers of entries by subscription. Raises
        StoreError."""
        names = [each.name for each in subscriptions]
        there = self._pulsar.partition(self._name, names)
        if there.last.entry_id < 0 or not there.cursors:
            return {}
        start = min(done.end for done in there.cursors.values())
        copies = self.copies(reading, position_at(start))
        found = self._copies_here()
        applied = {}
        for each in subscriptions:
            done, acks = there.cursors.get(each.name), self._acknowledged(each)
            if done is not None and acks is not None:
                places = copies.with_chunks(copies.places(acks, done) | self._originals_left(found, acks, done))
                if places:
                    acknowledge_in_pulsar(client, self._pulsar, self._name, each.name, places)
                applied[each.name] = len(places)
        return applied

    def compare(
        self, reading: PulsarReading, subscriptions: Sequence[Subscription], private_key: str
    ) -> ComparedExport:
        """Reads every message of both sides. Raises as `send`."""
        low, end = self._node.fetcher.watermarks(self._topic.kafka_topic, self._number, Deadline.after(_CALL_S))
        copies = self.copies(reading, None, digests=True)
        counts = dict.fromkeys(("equal", "changed", "missing", "trimmed"), 0)
        first = ""
        messages = PartitionMessages(self._node, self._topic, self._number, private_key)
        for message, prepared in self._prepared(messages.between(low, end, Deadline.after(_READ_S))):
            if prepared is None:
                continue
            kind = self._compared(copies, prepared)
            counts[kind] += 1
            if kind in ("changed", "missing"):
                first = first or str(message.message_id())
        there = self._pulsar.partition(self._name, [each.name for each in subscriptions])
        found = self._copies_here()
        compared = []
        for each in subscriptions:
            acks = self._acknowledged(each)
            if acks is not None:
                compared.append(self._compare_subscription(each.name, acks, there, copies, found))
        topic, number = str(self._topic.name), self._number
        return ComparedExport(
            topic, number, **counts, repeated=copies.repeated, first=first, subscriptions=tuple(compared)
        )

    def copies(self, reading: PulsarReading, start: Position | None, *, digests: bool = False) -> ExportedCopies:
        """The copies in Pulsar from `start` on. Raises StoreError, Corrupt."""
        found = ExportedCopies()
        there = self._pulsar.partition(self._name, ())
        more_comes = partial(self._pulsar.more_comes, self._name, there)
        passed: deque[Position] = deque(maxlen=_POSITIONS_KEPT)
        for entry in reading.entries(self._name, start, there.last, more_comes, Deadline.after(_READ_S)):
            place = place_of(entry.position)
            if entry.first_chunk is not None:
                found.chunks[place] = tuple(_chunks(there, entry.first_chunk, entry.position, passed))
            passed.append(entry.position)
            message = entry.messages[0]
            if entry.producer_name == self._producer_name and message.sequence_id > 0:
                found.add(message.sequence_id, place, digest_of_message(message) if digests else None)
        return found

    def _prepared(self, messages: Iterator[Message]) -> Iterator[tuple[Message, PreparedMessage | None]]:
        """None instead of a copy of what Pulsar has."""
        record: object = None
        headers: RecordHeaders | None = None
        for message in messages:
            if headers is None or message.record is not record:
                record, headers = message.record, decode_headers(packed_headers_of(message.record), _unread)
            original = headers.original_id
            if original is not None and self._originals.has(
                headers.replicated_from, original.partition, original.kafka_offset
            ):
                yield message, None
                continue
            try:
                yield message, outgoing(message, headers, self._index)
            except (errors.Refused, MappingError) as refusal:
                raise self._refused(message, refusal) from refusal

    def _send(self, sender: PartitionSender, message: Message, prepared: PreparedMessage) -> None:
        try:
            sender.send(prepared)
        except errors.Refused as refusal:
            raise self._refused(message, refusal) from refusal

    def _refused(self, message: Message, why: Exception) -> errors.Refused:
        return errors.Refused(
            f"{self._topic.name} partition {self._number}: message {message.message_id()} at offset {message.offset} "
            f"cannot be exported: {why}"
        )

    def _after_originals(self) -> Position | None:
        return self._originals.upto if self._originals.any else None

    def _copies_here(self) -> CopiesHere | None:
        if not self._originals.any:
            return None
        cluster = self._originals.cluster
        return copies_here(self._node, self._topic, self._number, cluster, Deadline.after(_READ_S))

    def _originals_left(self, found: CopiesHere | None, acks: ReplicatedAcks, done: Acknowledged) -> BitMap64:
        if found is None:
            return BitMap64()
        return self._originals.places(found.runs(), found.index.start, acks, done)

    def _acknowledged(self, subscription: Subscription) -> ReplicatedAcks | None:
        """None: the subscription is not on this partition."""
        memberships, deadline = self._node.memberships, Deadline.after(_CALL_S)
        if self._number not in subscription.served:
            return None
        memberships.live_cursors.change(subscription, {self._number: SaveNow()}, deadline)
        return of_cursor(memberships.cursors.read(subscription, deadline)[self._number].state)

    def _compared(self, copies: ExportedCopies, prepared: PreparedMessage) -> str:
        first, last = prepared.sequence_ids
        digest = copies.digest(first, last)
        if digest is None:
            return "trimmed" if copies.sequences and last < copies.sequences[0] else "missing"
        return "equal" if digest == digest_of_message(prepared.content) else "changed"

    def _compare_subscription(
        self, name: str, acks: ReplicatedAcks, there: PulsarPartition, copies: ExportedCopies, found: CopiesHere | None
    ) -> SubscriptionDifference:
        done = there.cursors.get(name, Acknowledged(0))
        left_here, left_there = copies.left(acks, done)
        others = len(self._originals_left(found, acks, done))
        return SubscriptionDifference(
            name,
            len(left_there) + others,
            len(left_here),
            len(left_there - left_here) + others,
            len(left_here - left_there),
        )


def _chunks(there: PulsarPartition, first: Position, last: Position, others: Sequence[Position]) -> Iterator[int]:
    """The places of a message's chunks before the last one, without those of other messages between them."""
    between = {each for each in others if first < each < last}
    for position in there.behind(Position(first.ledger_id, first.entry_id - 1)):
        if position >= last:
            return
        if position not in between:
            yield place_of(position)


def _unread(reason: CorruptRecord) -> None:
    """A header that cannot be read counts as missing, as for every reader."""
