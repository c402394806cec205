"""Message ids of the cluster that a tenant left, which its clients still have. Their copies on this cluster are found.

A record of another Kafka cluster is a copy of one of this cluster, or the other way round, since a tenant moves only
when each cluster has everything (decision 0017). While it moves, messages are published on one cluster only, so both
have one order.

A tenant that was imported from a Pulsar cluster has copies of that cluster's entries (decision 0022). Pulsar's ledger
ids have less than 34 bits, so here they seem to be of incarnation 0, which no imported topic has.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.broker.lookup.replica_index import Copies
from pulsar_on_kafka.broker.metadata.topics import Topic
from pulsar_on_kafka.broker.node.node import Node
from pulsar_on_kafka.client.failover.redirected_acks import Extent, Late, LateAcks, meant_by
from pulsar_on_kafka.clusters.migration.from_pulsar.entries import INCARNATION
from pulsar_on_kafka.clusters.migration.from_pulsar.entry_positions import Position, place_of
from pulsar_on_kafka.exceptions import InvalidMessage
from pulsar_on_kafka.gateway.tenants.served_tenants import ServedTenants
from pulsar_on_kafka.kafka.records import headers_of
from pulsar_on_kafka_mapping.errors import CorruptRecord
from pulsar_on_kafka_mapping.ids.ledger_ids import unpack_ledger_id
from pulsar_on_kafka_mapping.records.original_position import copy_headers, original_of
from pulsar_on_kafka_mapping.wire.ack_sets import bits_of
from pulsar_on_kafka_mapping.wire.command_types import MessageIdField

_log: Final = logging.getLogger(__name__)

MAX_KNOWN: Final = 10_000
"""Topics of other clusters that are remembered."""
_MAX_LEDGER: Final = 2**63 - 1


class _Former(NamedTuple):
    cluster: str
    node: Node
    topic: Topic


class FormerIds:
    """Thread-safe; all methods may block. Memory: `MAX_KNOWN` topics."""

    def __init__(self, tenants: ServedTenants) -> None:
        self._tenants = tenants
        self._lock = threading.Lock()
        self._known: dict[tuple[str, int], _Former | None] = {}

    def may_occur(self, node: Node, tenant: str, deadline: Deadline) -> bool:
        """Whether clients of a tenant may have ids of another cluster: the gateway follows a map of tenants, or the
        tenant was imported from Pulsar. Raises StoreError."""
        return self._tenants.follows_map or node.imports.record(tenant, deadline) is not None

    def acknowledge(
        self,
        node: Node,
        topic: Topic,
        partition: int,
        subscription: str,
        ids: Sequence[MessageIdField],
        deadline: Deadline,
        *,
        cumulative: bool,
    ) -> None:
        """Acknowledge the copies of messages of another cluster. A message without a copy is redelivered.

        Raises:
            LayerError, PulsarException: not possible now.
        """
        late = LateAcks(subscription)
        imported = node.imports.record(topic.name.tenant, deadline)
        by_incarnation: dict[int, list[MessageIdField]] = {}
        for each in ids:
            if imported is not None and (place := _pulsar_place(each)) is not None:
                entry = Late(str(topic.name), partition, imported.origin, INCARNATION, place)
                late.add_each(list(_parts(entry, each, imported.origin, cumulative=cumulative)))
            elif each.ledgerId <= _MAX_LEDGER:
                by_incarnation.setdefault(unpack_ledger_id(each.ledgerId).incarnation, []).append(each)
        for fields in by_incarnation.values():
            former = self._former(topic, fields[0].ledgerId, deadline)
            if former is None:
                _log.info("subscription=%s/%s %d acknowledgements are of no known incarnation",
                          topic.name, subscription, len(fields))  # fmt: skip
                continue
            late.add_each(list(_late(former, partition, fields, deadline, cumulative=cumulative)))
        if late:
            late.settle(node, self._tenants.cluster, deadline)

    def start_behind(
        self, node: Node, topic: Topic, partition: int, field: MessageIdField, deadline: Deadline
    ) -> int | None:
        """The offset at which a reader continues that read this message on another cluster. It is behind the message,
        or at its entry if the client may lack a part of a batch. None: the id is not of another cluster.

        Raises:
            InvalidMessage: its record is not there any more.
        """
        if field.ledgerId > _MAX_LEDGER:
            return None
        own = unpack_ledger_id(topic.layout.without_generation(field.ledgerId)).incarnation
        if own == topic.layout.incarnation:
            return None
        batch = field.batch_index >= 0
        imported = node.imports.record(topic.name.tenant, deadline)
        if imported is not None and (place := _pulsar_place(field)) is not None:
            return _behind_copy(node, topic, partition, imported.origin, (INCARNATION, place - batch), deadline)
        former = self._former(topic, field.ledgerId, deadline)
        if former is None:
            return None
        incarnation = former.topic.layout.incarnation
        offset = former.topic.layout.kafka_offset(partition, field.ledgerId, field.entryId)
        for records in former.node.fetcher.read_at(former.topic.kafka_topic, partition, [offset], deadline):
            copied = copy_headers(headers_of(records[0]))
            found = None if copied is None else original_of(copied)
            if found is not None and found[0] == self._tenants.cluster:
                if found[1].incarnation == topic.layout.incarnation:
                    return found[1].kafka_offset + (0 if batch else 1)
                break
            return _behind_copy(node, topic, partition, former.cluster, (incarnation, offset - batch), deadline)
        raise InvalidMessage(
            f"message {field.ledgerId}:{field.entryId} is of cluster {former.cluster}, which does not have it any more"
        )

    def _former(self, topic: Topic, ledger_id: int, deadline: Deadline) -> _Former | None:
        """The topic on the other cluster that has this ledger."""
        key = str(topic.name), unpack_ledger_id(ledger_id).incarnation
        with self._lock:
            if key in self._known:
                return self._known[key]
        found = None
        for cluster, node in self._tenants.other_nodes():
            other = node.topics.find(topic.name, deadline)
            if other is None:
                continue
            found_id = unpack_ledger_id(other.layout.without_generation(ledger_id))
            if found_id.incarnation == other.layout.incarnation:
                found = _Former(cluster, node, other)
                break
        with self._lock:
            if len(self._known) >= MAX_KNOWN:
                self._known.clear()
            self._known[key] = found
        return found


def _behind_copy(
    node: Node, topic: Topic, partition: int, cluster: str, original: tuple[int, int], deadline: Deadline
) -> int:
    """The offset behind the last copy of what is not behind `original`, (incarnation, offset) on `cluster`."""
    copies = Copies(node.fetcher, topic.kafka_topic, partition, cluster)
    low = node.admin.start_offsets(topic.kafka_topic, [partition], deadline)[partition]
    end = node.admin.end_offsets(topic.kafka_topic, [partition], deadline)[partition]
    return copies.behind(original, low, end, deadline)


def _pulsar_place(field: MessageIdField) -> int | None:
    """The place of an entry of a Pulsar cluster. None: the id is none of a Pulsar cluster."""
    try:
        return place_of(Position(field.ledgerId, field.entryId))
    except CorruptRecord:
        return None


def _late(
    former: _Former, partition: int, fields: Sequence[MessageIdField], deadline: Deadline, *, cumulative: bool
) -> Iterator[Late]:
    layout, name = former.topic.layout, str(former.topic.name)
    offsets = {layout.kafka_offset(partition, each.ledgerId, each.entryId): each for each in fields}
    for records in former.node.fetcher.read_at(former.topic.kafka_topic, partition, sorted(offsets), deadline):
        for record in records:
            late = Late(name, partition, former.cluster, layout.incarnation, record.offset())
            for each in meant_by(late, record, cumulative=cumulative):
                yield from _parts(each, offsets[record.offset()], former.cluster, cumulative=cumulative)


def _parts(late: Late, field: MessageIdField, cluster: str, *, cumulative: bool) -> Iterator[Late]:
    """The messages of a batch entry that a command acknowledges, or the whole entry. `ack_set` has the others."""
    size = field.batch_size if field.ack_set else 0
    acknowledged: list[int] = []
    if size > 0:
        left: Any = bits_of(field.ack_set, size)
        acknowledged = [index for index in range(size) if not left >> index & 1]
    elif field.ack_set:
        return  # a part of unknown size: the entry is redelivered
    if cumulative:
        whole = late._replace(extent=Extent.UPTO, read_on=cluster)
        if not size:
            yield whole
        elif acknowledged and acknowledged[0] == 0:
            upto = next((index for index in range(size) if index not in set(acknowledged)), size) - 1
            yield whole._replace(batch_index=upto, batch_size=size)
    elif size:
        for index in acknowledged:
            yield late._replace(batch_index=index, batch_size=size)
    else:
        yield late
