"""A topic's lists of ledgers, brought up to what its log has now: for those who look, in any process."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from pulsar_on_kafka.broker.managed_ledger.ledger_list_update import NOTHING, LogRange, changes
from pulsar_on_kafka.broker.managed_ledger.model import Ledger, LedgerPlace
from pulsar_on_kafka.broker.metadata.topics import Topic
from pulsar_on_kafka_mapping.state.metadata.ledger_records import LedgerState


@dataclass(frozen=True, slots=True)
class LedgerInfo:
    """One ledger.

    Attributes:
        partition: Kafka's partition, 0 for a non-partitioned topic.
        first_offset: the first offset of it that Kafka still has.
        end_offset: the present end of its entries, exclusive.
        size: estimated bytes of the entries below `measured_to`, before Kafka's compression.
        size_error: 19 of 20 estimates are within this distance of the true size; 0 for an exact one.
        measured_to: the offset, exclusive, up to which the list is measured; `first_offset` for a ledger that is not on
            the list yet.
        first_publish_ms: Unix time of its first entry, 0 where that is not known.
        last_publish_ms: of its newest entry below `measured_to`, 0 where that is not known.
    """

    ledger_id: int
    topic: str
    partition: int
    ledger_index: int
    state: LedgerState
    first_offset: int
    end_offset: int
    size: int
    size_error: int
    measured_to: int
    first_publish_ms: int
    last_publish_ms: int
    properties: Mapping[str, str]

    @property
    def entries(self) -> int:
        """Offsets, markers and void records among them."""
        return self.end_offset - self.first_offset


def infos(
    lists: Mapping[LedgerPlace, Sequence[Ledger]], topic: Topic, logs: Mapping[int, LogRange]
) -> Iterator[LedgerInfo]:
    """The ledgers of these partitions of a topic, in order; `lists` were read before `logs`."""
    for partition, log in sorted(logs.items()):
        place = LedgerPlace(str(topic.name.base), topic.layout.incarnation, partition)
        listed = lists[place]
        now = {ledger.id: ledger for ledger in listed}
        measured = {ledger.id: ledger.end for ledger in listed}
        for change in changes(listed, place, topic.layout, log, look_again=True):
            now[change.ledger_id] = Ledger(change.ledger_id, change.written(NOTHING))
            measured[change.ledger_id] = change.measure_from
        for ledger_id, ledger in sorted(now.items()):
            if ledger.state is not LedgerState.REMOVED:
                yield _info(ledger, measured[ledger_id])


def _info(ledger: Ledger, measured_to: int) -> LedgerInfo:
    _, partition, index = ledger.fields
    record = ledger.record
    return LedgerInfo(
        ledger.id,
        record.topic,
        partition,
        index,
        record.state,
        record.first,
        record.end,
        record.bytes,
        record.bytes_error,
        measured_to,
        record.first_publish_ms,
        record.last_publish_ms,
        record.properties,
    )
