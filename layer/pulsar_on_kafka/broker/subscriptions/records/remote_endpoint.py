"""A consumer in another process, as the owner's dispatcher sees it: it has permits, and its messages become leases."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, Protocol

from pulsar_on_kafka.broker.subscriptions.records.consumer_inbox import (
    Delivery,
    DeliveryRules,
    Endpoint,
    PartitionAcks,
    PartitionConsumer,
)
from pulsar_on_kafka.broker.subscriptions.records.hash_ranges import KeySharedRule
from pulsar_on_kafka_mapping.state.cursors.lease_records import LeasedEntry, RemoteConsumer

_PLENTY: Final = 200
"""Messages; a consumer that has so many can wait some milliseconds for more."""


class Lend(Protocol):
    def __call__(self, partition: int, consumer: int, entries: Sequence[LeasedEntry], *, needed: bool) -> None:
        """`needed`: the consumer has not much else."""


class RemoteEndpoint(Endpoint):
    """A remote consumer may get what its process allows (`RemoteConsumer.limits`) less what was leased to it so far."""

    is_remote = True

    def __init__(
        self,
        reported: RemoteConsumer,
        node: str,
        lend: Lend,
        recall: Callable[[int], None],
        may_lease: Callable[[], bool],
    ) -> None:
        rule = KeySharedRule(reported.sticky_ranges, reported.allow_out_of_order)
        super().__init__(
            reported.name,
            0,
            delivery_type=Delivery,
            rules=DeliveryRules(reported.priority, reported.max_unacked, key_shared=rule),
        )
        self.max_redeliver_count = reported.max_redeliver_count
        """The limit of its dead letter policy: its process dead-letters messages that were delivered more often."""
        self._ordered_redelivery = reported.ordered_redelivery
        self.number = reported.number
        self.node = node
        self._lend = lend
        self._recall = recall
        self._may_lease = may_lease
        self._limit = 0
        self.leased = 0
        """Messages, in all."""

    @property
    def ordered_redelivery(self) -> bool:
        return self._ordered_redelivery

    def allow(self, limit: int) -> None:
        """Allows this many messages in all from now on."""
        self._limit = limit

    def permits(self) -> int:
        if self.closed or self.draining or self._limit <= self.leased or not self._may_lease():
            return 0
        return self._limit - self.leased

    def has_room_again(self) -> bool:
        return True

    def lend(self, consumer: PartitionConsumer, entries: Sequence[LeasedEntry]) -> None:
        if not entries:
            return
        messages = sum(entry.messages for entry in entries)
        self.leased += messages
        self.delivered += messages
        self._lend(consumer.slot.number, self.number, entries, needed=self.unacked - messages < _PLENTY)

    def deliver(self, deliveries: Sequence[Delivery]) -> None:
        """Raises TypeError: this consumer gets entries (`lend`)."""
        raise TypeError(f"consumer {self.name} of {self.node} is leased entries")

    def discard(self, slot: PartitionAcks | None) -> list[Delivery]:
        """Has its process drop the messages of a partition that it did not receive; they are not known here."""
        if slot is not None:
            self._recall(slot.number)
        return []

    def fail(self, failure: Exception) -> None:
        """Does nothing: its own process reports the failure."""
