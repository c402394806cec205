"""Drains of consumers: they take no more messages, and settle those that the application has received.

All of it runs in the member's thread.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final

from pyroaring import BitMap64

from pulsar_on_kafka.base.clock import Clock
from pulsar_on_kafka.broker.subscriptions.dispatching.dispatcher import Dispatcher
from pulsar_on_kafka.broker.subscriptions.leases.leased_partition import LeasedPartition
from pulsar_on_kafka.broker.subscriptions.leases.lessee import Lessee
from pulsar_on_kafka.broker.subscriptions.partition import held_entries
from pulsar_on_kafka.broker.subscriptions.partition.in_flight import DeliveriesInFlight
from pulsar_on_kafka.broker.subscriptions.partition.owned_partition import OwnedPartition
from pulsar_on_kafka.broker.subscriptions.records.consumer_inbox import Delivery, Endpoint

_HAND_OVER_AFTER_S: Final = 1.0
"""A drain that ends before moves the partitions once, when the process leaves its group."""


class ConsumerDrains:
    """Hands the messages in draining inboxes back, and knows which messages the application has yet to settle.

    A negatively acknowledged message is settled: it is redelivered to another consumer. The rest of a batch entry of
    which the application received a part stays with the consumer until it leaves, because an entry has one holder. On
    Exclusive and Failover everything stays so, because of the order.

    If all consumers of this process drain for longer than a second (Shared, Key_Shared), the process gives its
    partitions to others before it leaves, and holds the messages as a member of the lease protocol.

    `owned` and `endpoints` are the member's own. `in_order`: Exclusive and Failover. `lessee`: None where messages go
    to this process's consumers only. Memory: two numbers for each message in an inbox, until its consumer has left.
    """

    def __init__(
        self,
        clock: Clock,
        dispatcher: Dispatcher,
        lessee: Lessee | None,
        owned: Mapping[int, OwnedPartition],
        endpoints: Sequence[Endpoint],
        yield_partitions: Callable[[], None],
        *,
        in_order: bool,
    ) -> None:
        self._clock = clock
        self._dispatcher = dispatcher
        self._lessee = lessee
        self._owned = owned
        self._endpoints = endpoints
        self._yield_partitions = yield_partitions
        self._in_order = in_order
        self._since_s: float | None = None
        """The time since when all consumers of this process drain."""
        self._yields = False

    def begin(self, endpoint: Endpoint) -> None:
        """Take the messages out of a draining consumer's inbox, for other consumers."""
        if endpoint.closed:
            return
        taken: dict[int, list[Delivery]] = {}
        for delivery in endpoint.empty():
            taken.setdefault(delivery.feed.slot.number, []).append(delivery)
        if not self._in_order:
            for number in taken.keys() & self._owned.keys():
                owned = self._owned[number]
                not_received = owned.in_flight.not_received(taken[number], owned.chunks.known)
                refused = self._dispatcher.redelivery.waiting(owned)
                owned.take_back(endpoint.feed(owned.slot), not_received - refused)
        if self._lessee is not None:
            self._lessee.take_back(endpoint, taken)
        self._dispatcher.stop_serving(endpoint)

    def unsettled(self, endpoint: Endpoint) -> int:
        """The number of entries that the consumer's application received and has not settled."""
        count = self._unsettled(endpoint)
        if count and self._lessee is not None and not self._in_order:
            self._hand_over(self._lessee)
        return count

    def _hand_over(self, lessee: Lessee) -> None:
        now_s = self._clock.monotonic()
        if not all(each.draining or each.is_remote for each in self._endpoints):
            self._since_s = None
        elif self._since_s is None:
            self._since_s = now_s
        elif self._owned and now_s - self._since_s >= _HAND_OVER_AFTER_S:
            lessee.announces = True  # or the next owner would redeliver the messages that this process holds
            if lessee.is_known and not self._yields:
                self._yields = True
                self._yield_partitions()

    def _unsettled(self, endpoint: Endpoint) -> int:
        count = 0
        for owned in self._owned.values():
            if not self._in_order:
                held = owned.in_flight.held_by(endpoint.feed(owned.slot))
                refused = self._dispatcher.redelivery.waiting(owned)
                count += self._count(endpoint, owned.number, owned.in_flight, held, refused)
            elif owned.active is endpoint.feed(owned.slot):
                count += self._in_order_of(endpoint, owned)
        for number, leased in {} if self._lessee is None else self._lessee.partitions.items():
            count += self._leased(endpoint, number, leased)
        return count

    def _leased(self, endpoint: Endpoint, number: int, leased: LeasedPartition) -> int:
        held = leased.in_flight.held_by(endpoint.feed(leased.slot))
        return self._count(endpoint, number, leased.in_flight, held, leased.refused)

    def _count(
        self,
        endpoint: Endpoint,
        number: int,
        in_flight: DeliveriesInFlight,
        held: Collection[int],
        refused: BitMap64,
    ) -> int:
        messages, redelivery = in_flight.unacked_in, self._dispatcher.redelivery
        return sum(
            messages.get(offset, 1)
            > endpoint.not_received.get((number, offset), (0, 1))[0]
            + redelivery.refused_in_batch(number, offset, endpoint)
            for offset in held
            if offset not in refused
        )

    def _in_order_of(self, endpoint: Endpoint, owned: OwnedPartition) -> int:
        count, refused = 0, self._dispatcher.redelivery.waiting(owned)
        for entry in held_entries.received_in_order(owned):
            missing, size = endpoint.not_received.get((owned.number, entry.offset), (0, 1))
            messages = 1 if entry.chunks else entry.messages if entry.acked is not None else size
            count += messages > missing and entry.offset not in refused
        return count
