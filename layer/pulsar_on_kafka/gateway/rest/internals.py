"""Internal statistics over REST: ledgers and cursors, with the field names of Pulsar's managed ledgers.

Fields without a value here are omitted: BookKeeper's ledgers of cursors, pending reads, and the read position of a
cursor whose owner does not reply.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pulsar_on_kafka.admin import AdminClient, LedgerInfo, PartitionCursor
from pulsar_on_kafka.gateway.handlers.lookups import partitions_of
from pulsar_on_kafka.gateway.rest.cursors import check_persistent
from pulsar_on_kafka.gateway.rest.positions import EntryPosition
from pulsar_on_kafka.gateway.rest.request import RestError, RestRequest
from pulsar_on_kafka_mapping.names.topic_name import TopicName


def stats(request: RestRequest) -> dict[str, Any]:
    """The ledgers and cursors of a topic without partitions, or of one partition."""
    check_persistent(request)
    name = TopicName.parse(request.topic)
    if partitions_of(request.admin.node, request.topic, request.deadline(), may_be_made=False):
        raise RestError(404, f"topic {name} is partitioned: GET .../{request.names['topic']}/partitioned-internalStats")
    return _TopicInternals(request, name).stats(max(0, name.partition))


def partitioned_stats(request: RestRequest) -> dict[str, Any]:
    """The same of all partitions, by their names."""
    check_persistent(request)
    name = TopicName.parse(request.topic)
    count = partitions_of(request.admin.node, request.topic, request.deadline(), may_be_made=False)
    if not count:
        raise RestError(404, f"topic {name} is not partitioned")
    found = _TopicInternals(request, name)
    return {
        "metadata": {"partitions": count},
        "partitions": {str(name.with_partition(partition)): found.stats(partition) for partition in range(count)},
    }


def info(request: RestRequest) -> dict[str, Any]:
    """The ledgers and cursors as they are stored; of a partitioned topic, by partition."""
    check_persistent(request)
    name = TopicName.parse(request.topic)
    count = partitions_of(request.admin.node, request.topic, request.deadline(), may_be_made=False)
    found = _TopicInternals(request, name)
    if not count:
        return found.info(max(0, name.partition))
    return {
        "version": 0,
        "partitions": {str(name.with_partition(partition)): found.info(partition) for partition in range(count)},
    }


def ledgers_by_partition(admin: AdminClient, topic: str) -> dict[int, list[LedgerInfo]]:
    """The ledgers with their sizes of a topic or of one partition, by partition."""
    found: dict[int, list[LedgerInfo]] = {}
    for ledger in admin.measured_ledgers(topic):
        found.setdefault(ledger.partition, []).append(ledger)
    return found


class _TopicInternals:
    """The ledgers and the durable subscriptions' cursors of a topic or of one partition, read once from the cluster."""

    def __init__(self, request: RestRequest, name: TopicName) -> None:
        admin, whole = request.admin, str(name.base)
        self._ledgers = ledgers_by_partition(admin, str(name))
        stats = [admin.subscription_stats(whole, each) for each in admin.list_subscriptions(whole)]
        self._owned = {each.subscription: {p.partition for p in each.partitions if p.owner} for each in stats}
        self._cursors: dict[int, dict[str, PartitionCursor]] = {}
        self._read: dict[str, dict[int, int]] = {}
        for each in stats:
            if not each.durable or name.partition not in (-1, *(p.partition for p in each.partitions)):
                continue
            for cursor in admin.subscription_cursors(str(name), each.subscription):
                self._cursors.setdefault(cursor.partition, {})[each.subscription] = cursor
            self._read[each.subscription] = admin.read_positions(str(name), each.subscription)
        topic = admin.node.topics.find(name.base, request.deadline())
        if topic is None:
            raise RestError(404, f"topic {name.base} was deleted")
        self._topic = topic

    def stats(self, partition: int) -> dict[str, Any]:
        ledgers = self._ledgers[partition]
        last = ledgers[-1]
        end = self._topic.terminated.get(partition, last.end_offset)
        return {
            "entriesAddedCounter": last.end_offset,
            "numberOfEntries": sum(each.entries for each in ledgers),
            "totalSize": sum(each.size for each in ledgers),
            "currentLedgerEntries": last.entries,
            "currentLedgerSize": last.size,
            "lastConfirmedEntry": str(EntryPosition.at(self._topic.layout, partition, end - 1)),
            "state": "Terminated" if partition in self._topic.terminated else "LedgerOpened",
            "ledgers": [
                {
                    "ledgerId": each.ledger_id,
                    "entries": each.entries,
                    "size": each.size,
                    "offloaded": False,
                    "underReplicated": False,
                }
                for each in ledgers
            ],
            "cursors": {
                name: _cursor(cursor, self._read[name].get(partition), active=partition in self._owned[name])
                for name, cursor in self._cursors.get(partition, {}).items()
            },
        }

    def info(self, partition: int) -> dict[str, Any]:
        return {
            "version": 0,
            "ledgers": [
                {
                    "ledgerId": each.ledger_id,
                    "entries": each.entries,
                    "size": each.size,
                    "timestamp": each.last_publish_ms,
                    "isOffloaded": False,
                }
                for each in self._ledgers[partition]
            ],
            "cursors": {
                name: {
                    "version": 0,
                    "markDelete": _of_cursor(cursor, cursor.mark_delete).parts(),
                    "individualDeletedMessages": [
                        {"from": low.parts(), "to": high.parts()} for low, high in _ranges(cursor)
                    ],
                }
                for name, cursor in self._cursors.get(partition, {}).items()
            },
        }


def _cursor(cursor: PartitionCursor, read_position: int | None, *, active: bool) -> dict[str, Any]:
    ranges = list(_ranges(cursor))
    batches = {str(_of_cursor(cursor, offset)): indexes for offset, indexes in cursor.acknowledged_in_batches()}
    read = {} if read_position is None else {"readPosition": str(_of_cursor(cursor, read_position))}
    return {
        "markDeletePosition": str(_of_cursor(cursor, cursor.mark_delete)),
        **read,
        "messagesConsumedCounter": cursor.end - cursor.backlog,
        "individuallyDeletedMessages": f"[{','.join(f'({low}..{high}]' for low, high in ranges)}]",
        "batchDeletedIndexes": batches,
        "state": "Open",
        "active": active,
        "totalNonContiguousDeletedMessagesRange": len(ranges),
        "properties": {},
    }


def _ranges(cursor: PartitionCursor) -> Iterator[tuple[EntryPosition, EntryPosition]]:
    """The individually acknowledged ranges, as in Pulsar: open below, closed above, each within one ledger."""
    for first, last in cursor.acknowledged_ranges():
        while first <= last:
            ledger, entry = _of_cursor(cursor, first)
            upto = min(last, first - entry + cursor.entries_per_ledger - 1)
            yield EntryPosition(ledger, entry - 1), EntryPosition(ledger, entry + upto - first)
            first = upto + 1


def _of_cursor(cursor: PartitionCursor, offset: int) -> EntryPosition:
    return EntryPosition.at(cursor.layout, cursor.partition, offset)
