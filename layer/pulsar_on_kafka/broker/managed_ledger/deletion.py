"""The deletion worker judges each event that asks for a ledger's data to be deleted. Pure.

Anybody may publish such an event, and it may come late, twice, or after its sender died halfway. So nothing in it is
believed: a range of a log goes only if the id itself says that it belongs to this life of this topic and partition, if
the partition's list begins behind it, and if nobody needs it. Kafka deletes prefixes only, so what goes is everything
below the ledger's end. Source: PIP-186.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final, NamedTuple, TypeAlias

from pulsar_on_kafka.broker.managed_ledger.ledger_list_update import LogRange
from pulsar_on_kafka.broker.managed_ledger.model import Ledger, LedgerPlace
from pulsar_on_kafka.broker.managed_ledger.trimming import Needs
from pulsar_on_kafka_mapping.errors import MappingError
from pulsar_on_kafka_mapping.ids.ledger_ids import LedgerLayout, unpack_ledger_id
from pulsar_on_kafka_mapping.names.topic_name import TopicName
from pulsar_on_kafka_mapping.state.metadata.metadata_records import TopicRecord

DELETIONS_SHOWN: Final = 100
"""A list of deletions shows so many, the oldest ones, unless it is told another number."""


class DeletionVerdict(str, Enum):
    """DELETE: now, everything below an offset. DONE: it is gone already. WAIT: perhaps later; ask again. REFUSE: never;
    whoever sent this was wrong."""

    DELETE = "DELETE"
    DONE = "DONE"
    WAIT = "WAIT"
    REFUSE = "REFUSE"


@dataclass(frozen=True, slots=True)
class Judgement:
    """`before`: with DELETE, the offset below which everything goes."""

    verdict: DeletionVerdict
    reason: str
    before: int = 0


class PartitionNow(NamedTuple):
    """A partition as the worker finds it: its list, its log, and who needs it, read in this order.

    `listed` is not looked at for a ledger that this process itself took off the list, so it need not be read then.
    """

    place: LedgerPlace
    layout: LedgerLayout
    listed: Sequence[Ledger]
    log: LogRange
    needs: Needs


class PartitionDeleting(NamedTuple):
    """Its topic is being deleted: nobody needs it, and its list says nothing any more."""

    place: LedgerPlace
    layout: LedgerLayout
    log: LogRange


class PartitionGone(NamedTuple):
    """No topic of that name lives; this was the last that did."""

    incarnation: int


PartitionState: TypeAlias = PartitionNow | PartitionDeleting | PartitionGone | None


def deletes_by_ledger(deleting: TopicRecord) -> bool:
    """Whether a topic has ledgers that are this project's to delete."""
    return not deleting.bound and TopicName.parse(deleting.name).is_persistent


def judge(
    topic: str, partition: int, ledger_id: int, now: PartitionState, *, trusted: bool = False, former: int = 0
) -> Judgement:
    """The judgement of an event that names these.

    Args:
        topic: full name of the partitioned topic, as `partition` and `ledger_id` from the event.
        now: the partition of that name as it is; None when no topic ever had it, or its data is not ours to delete.
        trusted: this process took the ledger off its list.
        former: the incarnation of the topic's life before this one, 0 for none. Its Kafka topic went with its data,
            perhaps before every deletion that was asked for in it had come to its turn.
    """
    try:
        fields = unpack_ledger_id(ledger_id)
    except MappingError as error:
        return Judgement(DeletionVerdict.REFUSE, str(error))
    if former and fields.incarnation == former:
        return Judgement(DeletionVerdict.DONE, f"life {former} of topic {topic} is gone with its data")
    if now is None:
        return Judgement(DeletionVerdict.REFUSE, f"there is no partition {partition} of {topic} with ledgers of ours")
    if isinstance(now, PartitionGone):
        if fields.incarnation == now.incarnation:
            return Judgement(DeletionVerdict.DONE, f"topic {topic} is gone with its data")
        return Judgement(
            DeletionVerdict.REFUSE, f"topic {topic} is gone, and ledger {ledger_id} was not one of its last life"
        )
    life = now.place.incarnation
    if (topic, partition) != (now.place.topic, now.place.partition):
        raise ValueError(f"partition {partition} of {topic} was asked about, {now.place} was looked at")
    if (fields.incarnation, fields.partition) != (life, partition):
        return Judgement(
            DeletionVerdict.REFUSE,
            f"ledger {ledger_id} is of life {fields.incarnation}, partition {fields.partition}; "
            f"partition {partition} of {topic} is of life {life}",
        )
    if isinstance(now, PartitionDeleting):
        return _judge_deleting(fields.ledger_index, now)
    return _judge_living(fields.ledger_index, now, trusted=trusted)


def _judge_deleting(ledger_index: int, now: PartitionDeleting) -> Judgement:
    first, end = now.layout.ledger_range(ledger_index)
    if end <= now.log.start:
        return Judgement(DeletionVerdict.DONE, f"offsets {first} to {end} are gone")
    if first > now.log.end:
        return Judgement(DeletionVerdict.REFUSE, f"there is no ledger at offset {first}: the log ends at {now.log.end}")
    return Judgement(DeletionVerdict.DELETE, f"topic {now.place.topic} is being deleted", min(end, now.log.end))


def _judge_living(ledger_index: int, now: PartitionNow, *, trusted: bool) -> Judgement:
    topic, _, partition = now.place
    ledger_id = now.layout.ledger_id(partition, ledger_index)
    first, end = now.layout.ledger_range(ledger_index)
    if end <= now.log.start:
        return Judgement(DeletionVerdict.DONE, f"offsets {first} to {end} are gone")
    if end > now.log.end:
        return Judgement(DeletionVerdict.REFUSE, f"ledger {ledger_id} is not closed: the log ends at {now.log.end}")
    if not trusted and not now.listed:  # nothing listed is no proof that something was taken off the list
        return Judgement(DeletionVerdict.WAIT, f"partition {partition} of {topic} has no list of ledgers now")
    if not trusted and now.listed[0].ledger_index <= ledger_index:
        return Judgement(DeletionVerdict.WAIT, f"ledger {now.listed[0].id}, or one behind it, is listed")
    needed = now.needs.first_needed()
    if needed is not None and needed < end:
        return Judgement(DeletionVerdict.WAIT, f"offset {needed} is needed")
    return Judgement(DeletionVerdict.DELETE, f"offsets below {end} are neither listed nor needed", end)
