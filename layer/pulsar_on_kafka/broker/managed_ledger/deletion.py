"""The deletion worker judges each event that requests the deletion of a ledger's data. Pure.

Any program may publish such an event, and it may arrive late, twice, or after its sender died halfway. So the event is
not trusted: a range of a log is deleted only if the id itself belongs to this incarnation of this topic and partition,
if the partition's list begins behind it, and if it is not needed. Kafka deletes prefixes only, so everything below the
ledger's end is deleted. Source: PIP-186.
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
"""The default limit of a list of deletions, the oldest ones first."""


class DeletionVerdict(str, Enum):
    """DELETE: now, everything below an offset. DONE: it was deleted already. WAIT: perhaps later; judge again. REFUSE:
    never; the event is wrong."""

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
    """The partition's topic is being deleted: it is not needed, and its list does not count."""

    place: LedgerPlace
    layout: LedgerLayout
    log: LogRange


class PartitionGone(NamedTuple):
    """No topic of that name lives; this was the last that did."""

    incarnation: int


PartitionState: TypeAlias = PartitionNow | PartitionDeleting | PartitionGone | None


def deletes_by_ledger(deleting: TopicRecord) -> bool:
    """Whether a topic has ledgers that this project may delete."""
    return not deleting.bound and TopicName.parse(deleting.name).is_persistent


def judge(
    topic: str, partition: int, ledger_id: int, now: PartitionState, *, trusted: bool = False, former: int = 0
) -> Judgement:
    """The judgement of an event that names these.

    Args:
        topic: full name of the partitioned topic, as `partition` and `ledger_id` from the event.
        now: the present partition of that name; None when no topic ever had it, or this project may not delete its
            data.
        trusted: this process took the ledger off its list.
        former: the topic's previous incarnation, 0 for none. Its Kafka topic was deleted with its data, perhaps before
            all deletions requested in it were handled.
    """
    try:
        fields = unpack_ledger_id(ledger_id)
    except MappingError as error:
        return Judgement(DeletionVerdict.REFUSE, str(error))
    if former and fields.incarnation == former:
        return Judgement(DeletionVerdict.DONE, f"life {former} of topic {topic} is gone with its data")
    if now is None:
        return Judgement(
            DeletionVerdict.REFUSE, f"there is no partition {partition} of {topic} with ledgers of this product"
        )
    if isinstance(now, PartitionGone):
        if fields.incarnation == now.incarnation:
            return Judgement(DeletionVerdict.DONE, f"topic {topic} is gone with its data")
        return Judgement(
            DeletionVerdict.REFUSE, f"topic {topic} is gone, and ledger {ledger_id} was not one of its last life"
        )
    life = now.place.incarnation
    if (topic, partition) != (now.place.topic, now.place.partition):
        raise ValueError(f"partition {partition} of {topic} was requested, {now.place} was read")
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
