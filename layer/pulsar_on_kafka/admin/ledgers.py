"""Ledgers: the part of `AdminClient` that looks at a topic's lists, and has them made anew."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Final

from pulsar_on_kafka.admin.context import AdminContext, raising_pulsar_errors
from pulsar_on_kafka.admin.stored.log_tails import LogTails, bytes_from
from pulsar_on_kafka.base import errors
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.broker.managed_ledger.inspection import LedgerInfo, infos
from pulsar_on_kafka.broker.managed_ledger.kafka_topics import KafkaDataTopics
from pulsar_on_kafka.broker.managed_ledger.ledger_list_update import LogRange
from pulsar_on_kafka.broker.managed_ledger.model import LedgerPlace
from pulsar_on_kafka.broker.managed_ledger.owner import LedgerOwner
from pulsar_on_kafka.broker.metadata.topics import Topic
from pulsar_on_kafka.broker.node.node import Node
from pulsar_on_kafka.client.receiving.start_position import start_offset
from pulsar_on_kafka.kafka.reading.range_reader import RangeReader
from pulsar_on_kafka_mapping.errors import MappingError
from pulsar_on_kafka_mapping.ids.ledger_ids import unpack_ledger_id
from pulsar_on_kafka_mapping.ids.native_message_id import NativeMessageId
from pulsar_on_kafka_mapping.names.topic_name import TopicName
from pulsar_on_kafka_mapping.state.state_topics import LEDGERS

_log: Final = logging.getLogger(__name__)


@raising_pulsar_errors
class LedgerAdmin(AdminContext):
    """Any process reads the lists; the numbers of entries are those of Kafka's log as it is now."""

    def __init__(self, node: Node, timeout_s: float) -> None:
        super().__init__(node, timeout_s)
        self._tails = LogTails()

    def list_ledgers(self, topic: str) -> list[LedgerInfo]:
        """The ledgers of a topic (or of one partition, by its name), in order. Source: the `ledgers` of Pulsar's
        internal stats.

        Ledgers that no maintenance has put on the list yet are there too, with nothing measured.

        Raises:
            TopicNotFound: there is none.
            NotAllowedError: the topic is not persistent.
        """
        deadline = self._deadline()
        name = TopicName.parse(topic)
        found = self.node.topics.find(name, deadline)
        if found is None:
            raise errors.NoSuchTopic(f"topic {name} does not exist")
        return self._infos(found, range(found.partitions) if name.partition < 0 else [name.partition], deadline)

    def measured_ledgers(self, topic: str) -> list[LedgerInfo]:
        """`list_ledgers`, whose sizes and errors cover all entries: what no maintenance has measured yet is sampled
        now, 512 records of each partition at most. Memory: see `LogTails`."""
        found = self.list_ledgers(topic)
        deadline, fetcher = self._deadline(), self.node.fetcher
        opened = self._topic_around(topic, deadline)
        return [self._tails.measured(opened, each, fetcher, deadline) for each in found]

    def backlog_size(self, topic: str, message_id: NativeMessageId) -> int:
        """The approximate bytes of a topic without partitions, or of a partition, behind a message id. Source: Pulsar's
        `get-backlog-size`. Raises TopicNotFound.

        Differs from Pulsar: there all bytes are behind `latest`.
        """
        deadline = self._deadline()
        found, partition = self._one_partition(topic, deadline)
        starts, ends = self._log_ends(found, deadline, [partition])
        low, end = starts[partition], ends[partition]
        offset = start_offset(found.layout, partition, message_id, inclusive=False, low=low, end=end)
        return bytes_from(self.measured_ledgers(topic), offset)

    def get_ledger(self, ledger_id: int) -> LedgerInfo:
        """One ledger of any topic. Ours, not Pulsar's.

        Raises:
            TopicNotFound: no topic that lives has it (any more).
        """
        deadline = self._deadline()
        try:
            incarnation, partition, _ = unpack_ledger_id(ledger_id)
        except MappingError as error:
            raise errors.InvalidOption(str(error)) from error
        gone = errors.NoSuchTopic(f"no topic has ledger {ledger_id}: it never was, or its topic was deleted")
        record = next((r for r in self.node.topics.records.active(deadline) if r.incarnation == incarnation), None)
        topic = None if record is None else self.node.topics.find(TopicName.parse(record.name), deadline)
        if topic is None or topic.layout.incarnation != incarnation or partition >= topic.partitions:
            raise gone
        found = [each for each in self._infos(topic, [partition], deadline) if each.ledger_id == ledger_id]
        if not found:
            raise errors.NoSuchTopic(f"{topic.name} has no ledger {ledger_id}: it was deleted, or is not written yet")
        return found[0]

    def rebuild_ledgers(self, told: Callable[[int, int], None] = lambda done, of: None) -> int:
        """Writes the lists of all topics anew from Kafka's logs; returns the number of ledgers written. Not in Pulsar.
        `told` receives the numbers of finished and of all partitions of `ledgers`. Ledgers that were taken off a list
        to be deleted stay off it.

        Maintenance in other processes continues from there by itself.

        Raises:
            Timeout: it took longer than the operation time-out; the written lists stay.
        """
        node = self.node
        reader = RangeReader(node.settings.sampler())
        try:
            data = KafkaDataTopics(node.topics, node.admin, reader)
            written = 0
            for number in range(LEDGERS.partitions):
                written += self._rebuild(LedgerOwner(node.log, number, data, node.clock), data)
                told(number + 1, LEDGERS.partitions)
            return written
        finally:
            reader.close()

    def _rebuild(self, owner: LedgerOwner, data: KafkaDataTopics) -> int:
        """Rebuilds one partition of `ledgers`; its maintainer may take it back meanwhile, so failures are retried."""
        patience = self._deadline()
        while True:
            deadline = self._deadline()
            try:
                owner.take_over(deadline)
                data.look([owner.state_partition], deadline)
                done = owner.rebuild(deadline)
            except errors.Fenced:
                if patience.passed():
                    raise
                continue
            if done.more:
                _log.warning("ledgers=%d some could not be measured now: maintenance will", owner.state_partition)
            return done.written

    def _infos(self, topic: Topic, partitions: Sequence[int], deadline: Deadline) -> list[LedgerInfo]:
        if not topic.name.is_persistent:
            raise errors.Refused(f"topic {topic.name} is not persistent: it has no ledgers")
        name, life = str(topic.name.base), topic.layout.incarnation
        places = [LedgerPlace(name, life, partition) for partition in partitions]
        lists = self.node.ledger_views.query(
            name, lambda found: {place: found.ledgers(place) for place in places}, deadline
        )
        starts, ends = self._log_ends(topic, deadline, partitions)
        return list(infos(lists, topic, {p: LogRange(starts[p], ends[p]) for p in partitions}))
