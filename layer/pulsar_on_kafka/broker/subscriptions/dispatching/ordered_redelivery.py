"""Ordered redelivery: after a refusal, later messages of the key wait for the refused one (`refused_keys`).

Messages of the key that wait in an inbox of this process are taken back. What the application has received already
stays with it. On Exclusive and Failover the rule applies to the whole partition.

All of it runs in the member's thread, but for `slot_of`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial

from pulsar_on_kafka.base.clock import Clock
from pulsar_on_kafka.broker.subscriptions.dispatching.negative_acks import NegativeAcks
from pulsar_on_kafka.broker.subscriptions.partition.delivery_guard import Departure
from pulsar_on_kafka.broker.subscriptions.partition.key_order import KeyOrder
from pulsar_on_kafka.broker.subscriptions.partition.owned_partition import OwnedPartition
from pulsar_on_kafka.broker.subscriptions.partition.partition_options import WaitingKeys
from pulsar_on_kafka.broker.subscriptions.partition.refused_keys import WHOLE_PARTITION, RefusedKeys
from pulsar_on_kafka.broker.subscriptions.records.consumer_inbox import Endpoint, PartitionConsumer


class OrderedRedelivery:
    """Applies refusals to the partitions in `owned`. It does nothing while no consumer has `ordered_redelivery`, and
    nothing on Shared.

    `slot_elsewhere` returns the hash slot of a message of another owner's partition that a consumer here holds.
    """

    def __init__(
        self,
        clock: Clock,
        owned: Mapping[int, OwnedPartition],
        endpoints: Sequence[Endpoint],
        nacks: NegativeAcks,
        slot_elsewhere: Callable[[int, int], int | None],
        *,
        by_key: bool,
        whole: bool,
    ) -> None:
        """`by_key`: Key_Shared; `whole`: Exclusive and Failover."""
        self._clock = clock
        self._owned = owned
        self._endpoints = endpoints
        self._nacks = nacks
        self._slot_elsewhere = slot_elsewhere
        self._by_key = by_key
        self._whole = whole

    @property
    def in_use(self) -> bool:
        """Some consumer, in any process, has `ordered_redelivery`."""
        return (self._by_key or self._whole) and any(endpoint.ordered_redelivery for endpoint in self._endpoints)

    def attach(self) -> None:
        """A consumer was attached. All consumers of this process follow the first one that has `ordered_redelivery`."""
        for endpoint in self._endpoints if self.in_use else ():
            if not endpoint.is_remote:
                endpoint.keep_redelivery_order()
            refused = endpoint.refused_here
            if refused is not None:
                refused.slot_of, refused.wake = self.slot_of, endpoint.wake_member

    def slot_of(self, partition: int, offset: int) -> int | None:
        """The slot of a message that a consumer here holds. Any thread."""
        if self._whole:
            return WHOLE_PARTITION
        owned = self._owned.get(partition)
        if owned is None:
            return self._slot_elsewhere(partition, offset)
        return None if owned.keys is None else owned.keys.slot_of(offset)

    # Refusals -----------------------------------------------------------------------------------------------------

    def refuse(self, owned: OwnedPartition, offsets: Iterable[int]) -> None:
        """Later messages of the keys of these wait from now on."""
        if not self.in_use:
            return
        now_s, keys = self._clock.monotonic(), owned.keys
        for offset in offsets:
            if owned.is_acknowledged(offset):
                continue
            slot = None if keys is None else keys.slot_of(offset)
            if self._whole:
                if owned.went_out(offset):
                    owned.refused.add(offset, WHOLE_PARTITION, now_s)
            elif slot is None:
                owned.refused.unplaced.add(offset)
            else:
                owned.refused.add(offset, slot, now_s)

    def refuse_first(self, owned: OwnedPartition, offsets: Iterable[int]) -> None:
        """`refuse` for the first of these messages of each key: all of them are redelivered together."""
        if not self.in_use or owned.keys is None:
            return
        firsts: dict[int, int] = {}
        for offset in sorted(offsets):
            slot = owned.keys.slot_of(offset)
            if slot is not None:
                firsts.setdefault(slot, offset)
        self.refuse(owned, firsts.values())

    def pause(self, owned: OwnedPartition, offset: int) -> None:
        """A message was refused, and waits for its redelivery delay: nothing is delivered before that (Exclusive,
        Failover)."""
        if self._whole and owned.refused and owned.went_out(offset) and self.in_use:
            owned.awaits_rewind = True

    # What waits in inboxes ----------------------------------------------------------------------------------------

    def take_back(self, owned: OwnedPartition, refusals: Mapping[Endpoint, Sequence[int]]) -> None:
        """Take messages back that wait in these consumers' inboxes behind their refused ones. Further messages of a
        refused batch entry are dropped: the entry is redelivered as a whole."""
        if owned.awaits_rewind and owned.active is not None and not owned.active.endpoint.is_remote:
            owned.active.endpoint.discard(owned.slot)
        for endpoint, offsets in refusals.items():
            if endpoint.is_remote:
                continue
            if owned.keys is not None:
                dropped = frozenset(offsets)
                chosen = partial(_is_behind, owned.keys, owned.refused, dropped)
                taken = Counter(delivery.offset for delivery in endpoint.take_out(owned.slot, chosen))
                unreceived = {offset: number for offset, number in taken.items() if offset not in dropped}
                _take_unreceived(owned, endpoint.feed(owned.slot), unreceived)
            if endpoint.refused_here is not None:
                endpoint.refused_here.applied(owned.number, offsets)

    def take_passed_over(self, rewind: Callable[[OwnedPartition], None]) -> list[tuple[int, Endpoint, list[int]]]:
        """Take back what `receive` passed over of this process's partitions; returns what it passed over of others'.
        `rewind` redelivers a whole partition."""
        others: list[tuple[int, Endpoint, list[int]]] = []
        for endpoint in self._endpoints:
            if endpoint.refused_here is None or not endpoint.refused_here.passed_over:
                continue
            for number, offsets in endpoint.refused_here.take_passed_over().items():
                owned = self._owned.get(number)
                if owned is None:
                    others.append((number, endpoint, offsets))
                elif self._whole:
                    if not owned.awaits_rewind:  # the refusal did not count
                        rewind(owned)
                elif self._by_key:
                    # Other messages of their batch entries may lie in the inbox. A refused entry comes at its time.
                    more = endpoint.take_out(owned.slot, frozenset(offsets).__contains__)
                    delayed = self._nacks.offsets(number)
                    taken = Counter(o for o in (*offsets, *(each.offset for each in more)) if o not in delayed)
                    _take_unreceived(owned, endpoint.feed(owned.slot), taken)
        return others

    def return_unreceived(self, owned: OwnedPartition, consumer: PartitionConsumer, offsets: Iterable[int]) -> None:
        """A consumer in another process did not receive these."""
        _take_unreceived(owned, consumer, {o: owned.in_flight.unacked_in.get(o, 1) for o in offsets})

    # Statistics ---------------------------------------------------------------------------------------------------

    def waiting(self, owned: OwnedPartition) -> WaitingKeys | None:
        """The keys that wait for a refused message; None if there are none."""
        if self._whole:
            owned.refused.below(owned.is_acknowledged)
        oldest, keys = owned.refused.oldest(), owned.keys
        if oldest is None:
            return None
        messages = owned.buffered if keys is None else sum(map(keys.behind_refused, owned.refused.slots))
        for_s = round(self._clock.monotonic() - oldest.since_s, 1)
        return WaitingKeys(len(owned.refused), messages, oldest.offset, for_s)


def _take_unreceived(owned: OwnedPartition, consumer: PartitionConsumer, taken: Mapping[int, int]) -> None:
    """The consumer did not receive these entries, each with its number of messages that were in the inbox. They are
    redelivered, which does not count, unless the consumer received some messages of a batch entry."""
    in_flight = owned.in_flight
    back = [offset for offset in taken if in_flight.holders.get(offset) is consumer]
    partly = [o for o in back if o not in owned.chunks.known and taken[o] < in_flight.unacked_in.get(o, 1)]
    owned.take_back(consumer, set(back).difference(partly))
    in_flight.let_go(partly)
    owned.redeliveries.waiting.update(partly)
    if owned.guard is not None:
        owned.guard.departed(partly, Departure.LOST)


def _is_behind(keys: KeyOrder[Endpoint], refused: RefusedKeys, dropped: frozenset[int], offset: int) -> bool:
    slot = keys.slot_of(offset)
    return offset in dropped or (slot is not None and refused.holds_back(offset, slot))
