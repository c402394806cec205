"""Exchanges snapshots with other clusters, for subscriptions that are replicated in that way. In rounds.

For each partition: the round reads on, writes the markers that `SnapshotExchange` returns, applies the progress in
other clusters' markers, and reports the own progress when a mark-delete passed a snapshot. Replicators carry the
markers. Progress that was applied or reported once is not applied again: see `progress_records`.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import replace
from typing import Any, Final

from pyroaring import BitMap

from pulsar_on_kafka.base import errors
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.broker.metadata.policies import REPLICATION_CLUSTERS
from pulsar_on_kafka.broker.metadata.producers.fences import Fences
from pulsar_on_kafka.broker.metadata.subscriptions.subscription import Subscription
from pulsar_on_kafka.broker.metadata.topics import Topic
from pulsar_on_kafka.broker.node.node import Node
from pulsar_on_kafka.broker.replication_state.acks import ReplicatedAcks
from pulsar_on_kafka.broker.replication_state.progress import tell
from pulsar_on_kafka.broker.replication_state.progress_heads import HeadAt, Subject
from pulsar_on_kafka.broker.replication_state.progress_log import ProgressLog
from pulsar_on_kafka.broker.replication_state.snapshot_exchange import SnapshotExchange, Wished
from pulsar_on_kafka.broker.subscriptions.requests.cursor_admin import acknowledge_ledgers
from pulsar_on_kafka.kafka.appends import Group, NewRecord, append_apart
from pulsar_on_kafka.kafka.reading.range_reader import OffsetRange, RangeReader
from pulsar_on_kafka.kafka.records import CommittedOffset, KafkaRecord, headers_of
from pulsar_on_kafka.service.replication.subscriptions.progress_records import (
    NOTHING_DONE,
    STALE_S,
    Part,
    ProgressWords,
    SyncRound,
)
from pulsar_on_kafka_mapping.errors import CorruptRecord
from pulsar_on_kafka_mapping.records.message_record import decode_headers
from pulsar_on_kafka_mapping.records.original_position import copy_headers
from pulsar_on_kafka_mapping.records.record_headers import MARKER, REPLICATE_TO
from pulsar_on_kafka_mapping.records.subscription_markers import (
    SubscriptionMarker,
    SubscriptionUpdate,
    decode_marker,
    encode_marker,
)
from pulsar_on_kafka_mapping.state.clusters.subscription_progress import BLOCK, SNAPSHOTS, Origin
from pulsar_on_kafka_mapping.state.metadata.metadata_records import ReplicatedBy

_log: Final = logging.getLogger(__name__)

AT_ONCE: Final = 200_000
"""Records of one partition that are read in one go."""
_READ_S: Final = 10.0
_Place = tuple[str, int]
"""Kafka's id of the topic, and partition."""


class SnapshotSync:
    """Syncs snapshots, in one thread. Memory: `SnapshotExchange` and `Fences` for each partition concerned, and a
    number for each partition of a subscription."""

    def __init__(
        self,
        node: Node,
        reader: RangeReader,
        words: ProgressWords,
        peers: Callable[[str], ProgressLog | None],
    ) -> None:
        """`peers`: another cluster's state topic by its name; None while it cannot be reached."""
        self._node = node
        self._reader = reader
        self._words = words
        self._peers = peers
        self._exchanges: dict[_Place, SnapshotExchange] = {}
        self._fences: dict[_Place, Fences] = {}
        self._stands: dict[tuple[str, str], tuple[Mapping[int, CommittedOffset], dict[int, int]]] = {}
        """The commits of the group and the cursors' positions, by Kafka's id of the topic, and subscription."""
        self._idle: dict[tuple[str, int, str], tuple[int, int]] = {}
        """The end of the reading, and the cursor's position, in the last round."""

    def round(
        self, local: str, subscriptions: Sequence[Subscription], heads: Mapping[Subject, HeadAt], deadline: Deadline
    ) -> SyncRound:
        """Exchanges snapshots for these subscriptions: those that are replicated by snapshots here, and those that
        other clusters report by `heads`. All others are forgotten.

        Raises:
            LayerError: nothing can be done now. A failure of one topic is logged and does not affect others.
        """
        topics: dict[str, list[Subscription]] = {}
        for each in subscriptions:
            topics.setdefault(each.topic.kafka_topic_id, []).append(each)
        self._exchanges = {place: each for place, each in self._exchanges.items() if place[0] in topics}
        self._fences = {place: each for place, each in self._fences.items() if place in self._exchanges}
        self._stands = {place: each for place, each in self._stands.items() if place[0] in topics}
        self._idle = {place: each for place, each in self._idle.items() if place[0] in topics}
        done = NOTHING_DONE
        for found in topics.values():
            name = found[0].topic.name
            try:
                done = done.plus(self._of_topic(local, found[0].topic, found, heads, deadline))
            except errors.Closed:
                raise
            except errors.LayerError as failure:
                deadline.check(f"snapshots of {name}")
                _log.warning("topic=%s its snapshots are not exchanged now: %s", name, failure)
        return done

    def _of_topic(
        self,
        local: str,
        topic: Topic,
        subscriptions: Sequence[Subscription],
        heads: Mapping[Subject, HeadAt],
        deadline: Deadline,
    ) -> SyncRound:
        policy = self._node.applied_to([topic.name], REPLICATION_CLUSTERS, deadline)[topic.name]
        stands = {each.name: self._stand(each, deadline) for each in subscriptions}
        served = sorted({partition for found in stands.values() for partition in found})
        ends = self._node.admin.end_offsets(topic.kafka_topic, served, deadline)
        exchanges = self._open(topic, Origin(local, topic.layout.incarnation), ends, stands, deadline)
        telling = [each for each in subscriptions if each.replicated_by is ReplicatedBy.SNAPSHOTS]
        for partition, exchange in exchanges.items():
            exchange.follow({each.name for each in telling if partition in stands[each.name]})
        behind = self._read_on(topic, exchanges, ends, deadline.at_most(_READ_S))
        others = self._announced(local, telling, frozenset(policy) - {local}, deadline)
        markers: dict[int, list[SubscriptionMarker]] = {}
        told = taken = 0
        try:
            for partition, exchange in exchanges.items():
                one = [_on(each, partition) for each in subscriptions if partition in stands[each.name]]
                taken += self._take_over(partition, exchange, {each.name: each for each in one}, heads, deadline)
                for each in one:
                    stand = stands[each.name][partition]
                    self._pass_markers(Part(each, partition), exchange, ends, stand, deadline)
                updates = [
                    self._update(Part(each, partition), exchange, stands[each.name][partition], deadline)
                    for each in one
                    if each.replicated_by is ReplicatedBy.SNAPSHOTS
                ]
                markers[partition] = [update for update in updates if update is not None]
                told += len(markers[partition])
                now_ms = int(1000 * self._node.clock.monotonic())
                markers[partition] += exchange.markers(now_ms, others, secrets.token_hex(16))
            self._write(topic, markers, deadline)
        except errors.LayerError:
            for exchange in exchanges.values():
                exchange.lost()
            raise
        return SyncRound(sum(map(len, stands.values())), told, taken, behind)

    def _stand(self, subscription: Subscription, deadline: Deadline) -> dict[int, int]:
        """The offset below which everything is acknowledged, by partition, as last saved."""
        topic, place = subscription.topic, (subscription.topic.kafka_topic_id, subscription.name)
        commits = self._node.admin.committed(
            subscription.whole_group, topic.kafka_topic, list(subscription.served), deadline
        )
        known = self._stands.get(place)
        if known is not None and known[0] == commits and not subscription.by_partition:
            return known[1]
        cursors = self._node.memberships.cursors.read(subscription, deadline)
        found = {partition: cursor.state.next_unacked for partition, cursor in cursors.items()}
        self._stands[place] = commits, found
        return found

    def _open(
        self,
        topic: Topic,
        here: Origin,
        ends: Mapping[int, int],
        stands: Mapping[str, Mapping[int, int]],
        deadline: Deadline,
    ) -> dict[int, SnapshotExchange]:
        """The exchanges. For a new partition, or one of which a subscription needs earlier records, the log is read
        from the lowest mark-delete on."""
        lowest = {p: min(found[p] for found in stands.values() if p in found) for p in ends}
        places = {partition: (topic.kafka_topic_id, partition) for partition in ends}
        new = [p for p in ends if (known := self._exchanges.get(places[p])) is None or lowest[p] < known.first]
        starts = self._node.admin.start_offsets(topic.kafka_topic, new, deadline) if new else {}
        for partition in new:
            fences = Fences(self._node.producers.fences(topic, partition, deadline))
            self._fences[places[partition]] = fences
            self._exchanges[places[partition]] = SnapshotExchange(here, lowest[partition], starts[partition])
        found = {partition: self._exchanges[places[partition]] for partition in ends}
        for partition, exchange in found.items():
            exchange.forget_below(lowest[partition])
        return found

    def _read_on(
        self, topic: Topic, exchanges: Mapping[int, SnapshotExchange], ends: Mapping[int, int], deadline: Deadline
    ) -> int:
        ranges = [
            OffsetRange(
                topic.kafka_topic, partition, exchange.position, min(ends[partition], exchange.position + AT_ONCE)
            )
            for partition, exchange in exchanges.items()
            if exchange.position < ends[partition]
        ]

        def take(number: int, records: list[KafkaRecord]) -> None:
            partition = ranges[number].partition
            hear(exchanges[partition], self._fences[topic.kafka_topic_id, partition], records)

        failed = self._reader.read(ranges, take, deadline)
        for number, each in enumerate(ranges):
            if number not in failed:
                exchanges[each.partition].reached(each.end, ends[each.partition])
        for number, failure in failed.items():
            if isinstance(failure, errors.OffsetOutOfRange):  # the log begins later by now
                del self._exchanges[topic.kafka_topic_id, ranges[number].partition]
            raise failure
        return sum(max(0, ends[partition] - exchange.position) for partition, exchange in exchanges.items())

    def _announced(
        self, local: str, telling: Sequence[Subscription], others: Set[str], deadline: Deadline
    ) -> frozenset[str]:
        """Announces to the other clusters which subscriptions are reported by snapshots. Returns the clusters to
        request a snapshot from: all of them, or none while one is unreachable. Source: Pulsar's `startNewSnapshot`."""
        if not telling:
            return frozenset()
        for cluster in sorted(others):
            log = self._peers(cluster)
            if log is None:
                return frozenset()
            try:
                for each in telling:
                    for partition in each.served:
                        part = Part(each, partition)
                        self._words.say(cluster, log, part, part.subject(local, SNAPSHOTS), {}, deadline)
            except errors.LayerError as failure:
                _log.warning(
                    "topic=%s cluster %s gets no request for a snapshot: %s", telling[0].topic.name, cluster, failure
                )
                return frozenset()
        return frozenset(others)

    def _take_over(
        self,
        partition: int,
        exchange: SnapshotExchange,
        subscriptions: Mapping[str, Subscription],
        heads: Mapping[Subject, HeadAt],
        deadline: Deadline,
    ) -> int:
        done = 0
        for wished, upto in exchange.updates():
            subscription = subscriptions.get(wished.subscription)
            if subscription is None:
                continue
            part = Part(subscription, partition)
            subject = part.subject(wished.cluster, SNAPSHOTS)
            at = heads.get(subject)
            if at is None:
                continue  # its word is on the way; or it is gone there
            if self._node.progress.head(subject, at, deadline).life == wished.life:
                done += self._apply(part, exchange, wished, upto, deadline)
            exchange.applied(wished, upto)
        return done

    def _apply(self, part: Part, exchange: SnapshotExchange, wished: Wished, upto: int, deadline: Deadline) -> bool:
        """Applies new acknowledgements of another cluster, except for messages that it never had. Returns whether there
        were any."""
        node, here, (subscription, partition) = self._node, exchange.here, part
        looked = Deadline.after(STALE_S)
        known = self._words.known(part, wished.cluster, deadline)
        below = known[here].below if here in known else 0
        if upto < below:
            return False
        cursor = node.memberships.cursors.read(subscription, deadline)[partition].state
        start, left = exchange.news(wished.cluster, upto, cursor.next_unacked, below)
        if left:
            if looked.passed():
                raise errors.DeadlineExceeded(f"it took too long to look at {subscription.name}")
            self._acknowledge(part, start, left, deadline)
        tell(known, {here: ReplicatedAcks(BLOCK, upto + 1)})
        self._words.know(part, wished.cluster, known, deadline)
        return bool(left)

    def _pass_markers(
        self,
        part: Part,
        exchange: SnapshotExchange,
        ends: Mapping[int, int],
        next_unacked: int,
        deadline: Deadline,
    ) -> None:
        """Acknowledges markers behind the last message where no consumer does. Consumers get a round's time to do
        so."""
        subscription, partition = part
        place = (subscription.topic.kafka_topic_id, partition, subscription.name)
        idle = self._idle.get(place) == (exchange.position, next_unacked)
        self._idle[place] = exchange.position, next_unacked
        if idle and exchange.position >= ends[partition] and exchange.only_markers_from(next_unacked):
            left = BitMap()
            left.add_range(0, exchange.position - next_unacked)
            self._acknowledge(part, next_unacked, left, deadline)

    def _acknowledge(self, part: Part, start: int, left: BitMap, deadline: Deadline) -> None:
        """`left`: offsets that count from `start`."""
        subscription, partition = part
        acks = ReplicatedAcks(subscription.topic.layout.entries_per_ledger)
        acks.add(start, left)
        cursors = self._node.memberships.live_cursors
        acknowledge_ledgers(cursors, self._node.admin, subscription, {partition: acks.blocks()}, deadline)

    def _update(
        self, part: Part, exchange: SnapshotExchange, next_unacked: int, deadline: Deadline
    ) -> SubscriptionUpdate | None:
        """The report to other clusters, because mark-delete passed a snapshot. From now on their reports of the same
        progress are known."""
        name = part.subscription.name
        snapshot = exchange.passed(name, next_unacked)
        if snapshot is None:
            return None
        news: dict[Origin, int] = {}
        for origin, upto in snapshot.upto.items():
            known = self._words.known(part, origin.cluster, deadline)
            if exchange.here in known and known[exchange.here].below > snapshot.local:
                continue
            tell(known, {exchange.here: ReplicatedAcks(BLOCK, snapshot.local + 1)})
            self._words.know(part, origin.cluster, known, deadline)
            news[origin] = upto
        exchange.told(name, snapshot)
        if not news:
            return None
        return SubscriptionUpdate(name, exchange.here.cluster, part.life, news)

    def _write(self, topic: Topic, markers: Mapping[int, Sequence[SubscriptionMarker]], deadline: Deadline) -> None:
        groups: list[Group] = []
        for partition, found in markers.items():
            encoded = [encode_marker(marker) for marker in found]
            if encoded:
                groups.append((topic.kafka_topic, partition, [NewRecord(None, value, said) for said, value in encoded]))
        if groups:
            self._node.producers.more_than_plain(topic, deadline)
            append_apart(self._node.state_producer, groups, deadline)


def hear(exchange: SnapshotExchange, fences: Fences, records: Sequence[Any]) -> None:
    """Passes a run of records in offset order to an exchange. Markers that a replicator copied after another one had
    taken over are void: earlier messages may not be here."""
    for record in records:
        marks = False
        named: bytes | None = None
        headers = headers_of(record) or ()
        for name, value in headers:
            if name == MARKER:
                marks = True
            elif name == REPLICATE_TO:
                named = value or b""
        offset = record.offset()
        if not marks:
            exchange.message(offset, None if named is None else (*_named(named), _copied_from(headers)))
            continue
        fences.learn([offset], [record], [0])
        if fences.void_in([offset], [record]):
            continue
        try:
            marker = decode_marker(headers, record.value())
        except CorruptRecord as reason:
            _log.error("offset=%d a marker of snapshots is passed over: %s", offset, reason)
            continue
        if marker is not None:
            exchange.marker(offset, marker, _copied_from(headers))


def _named(value: bytes) -> tuple[str, ...]:
    """The clusters that a message is for; none of what cannot be read, which no replicator copies."""
    try:
        return decode_headers([(REPLICATE_TO, value)]).replicate_to or ()
    except CorruptRecord:
        return ()


def _copied_from(headers: Sequence[tuple[str, bytes | None]]) -> str:
    copy = copy_headers(headers)
    return "" if copy is None else copy.cluster.decode("utf-8", "replace")


def _on(subscription: Subscription, partition: int) -> Subscription:
    return replace(subscription, partition=None, partitions=(partition,))
