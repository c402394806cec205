"""Dispatches a Shared subscription: new messages in turns of 20, entries to redeliver from Kafka again.

All of it runs in the member's thread.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from pulsar_on_kafka.broker.subscriptions.dispatching.delivery_counts import DeadLettering, DeliveryCounting
from pulsar_on_kafka.broker.subscriptions.dispatching.redelivery_reads import RedeliveryReads
from pulsar_on_kafka.broker.subscriptions.dispatching.strategy import RoundRobin
from pulsar_on_kafka.broker.subscriptions.partition.owned_partition import OwnedPartition
from pulsar_on_kafka.broker.subscriptions.records.consumer_inbox import Endpoint

_REPLAY_BATCH: Final = 1000


class SharedDispatch:
    """The turns of the consumers. Entries to redeliver go first; the limit of unacknowledged messages stops only new
    messages.

    Memory: one reference to the last consumer.
    """

    def __init__(
        self,
        reads: RedeliveryReads,
        dead_lettering: DeadLettering,
        counting: DeliveryCounting,
        owned: Mapping[int, OwnedPartition],
        endpoints: Sequence[Endpoint],
    ) -> None:
        self._reads = reads
        self._dead_lettering = dead_lettering
        self._counting = counting
        self._owned = owned
        self._endpoints = endpoints
        self._round_robin = RoundRobin()
        self._room = 0
        """New messages that the limit of unacknowledged messages leaves for this step."""

    def takes_any(self) -> bool:
        """Some consumer has permits again, and an inbox that is at most half full."""
        return any(e.has_room_again() and e.shared_permits() > 0 for e in self._endpoints)

    def dispatch(self, room: int) -> bool:
        """Move messages to inboxes by their permits, up to `room` new ones; True when any moved."""
        self._room = room
        handed = False
        isolating = [each for each in self._owned.values() if each.guard is not None and each.guard.isolates]
        others = [each for each in self._owned.values() if each not in isolating]
        for owned in others:
            self._reads.forget(owned)
            if owned.has_redeliveries:
                handed = self._redeliver(owned, self._endpoints) or handed
        for owned in isolating:
            if not (owned.quiet or owned.is_held_back):
                handed = self._dispatch_beside_suspects(owned) or handed
        for owned in others:
            while self._room > 0 and owned.buffered and owned.waits_for_room():
                turn = self._round_robin.next(self._endpoints, owned.buffered)
                if turn is None:
                    return handed
                endpoint, permits = turn
                offsets, records = owned.take(owned.room(min(permits, self._room)))
                if not offsets:
                    break
                self._deliver(owned, endpoint, offsets, records)
                handed = True
        return handed

    def _deliver(self, owned: OwnedPartition, endpoint: Endpoint, offsets: list[int], records: list[Any]) -> None:
        before = endpoint.unacked
        owned.deliver(endpoint.feed(owned.slot), offsets, records, hold=True)
        self._room -= endpoint.unacked - before

    def _dispatch_beside_suspects(self, owned: OwnedPartition) -> bool:
        """Give each process in turn what the guard allows it: suspects, other redeliveries, new messages."""
        guard, handed = owned.guard, False
        assert guard is not None  # noqa: S101 - the caller has checked
        nodes = self._counting.nodes()
        guard.begin(nodes)
        for node in nodes:
            endpoints = [endpoint for endpoint in self._endpoints if endpoint.node == node]
            if not any(endpoint.shared_permits() > 0 for endpoint in endpoints):
                continue
            handed = self._redeliver(owned, endpoints, node, new=self._room > 0 and owned.buffered > 0) or handed
            while self._room > 0 and owned.buffered:
                place = self._counting.place(owned, node, new=True)
                turn = self._round_robin.next(endpoints, owned.buffered)
                room = owned.room(guard.isolation.room(place))
                if turn is None or not room:
                    break
                endpoint, permits = turn
                offsets, records = owned.take(min(permits, room, self._room))
                if not offsets:
                    break
                self._deliver(owned, endpoint, offsets, records)
                guard.isolation.flowed(node, len(offsets))
                handed = True
        return handed

    def _redeliver(
        self, owned: OwnedPartition, endpoints: Sequence[Endpoint], node: str | None = None, *, new: bool = False
    ) -> bool:
        """Read entries to redeliver from Kafka, lowest first, as many as inboxes take.

        `node`: there are suspects, and `endpoints` are this process's alone; `new`: new messages wait as well.
        """
        room = 0
        for endpoint in endpoints:
            room += max(0, endpoint.shared_permits())
            if room >= _REPLAY_BATCH:
                break
        room = owned.room(room)
        redeliveries = owned.redeliveries
        owned.release_due(min(room, _REPLAY_BATCH) - len(redeliveries.waiting))
        place = None if node is None else self._counting.place(owned, node, new=new)
        lowest = redeliveries.lowest(_REPLAY_BATCH if place else min(room, _REPLAY_BATCH))
        requested = self._counting.admit(owned, lowest, place)[:room]
        if not requested:
            return False
        found = self._reads.read(owned, requested, lowest if place else ())
        redeliveries.taken(found.records)
        records = {offset: found.records[offset] for offset in requested if offset in found.records}
        offsets = owned.readable(records, redelivered=True)
        offsets = self._dead_lettering.divert(owned, offsets, records)
        while offsets:
            turn = self._round_robin.next(endpoints, len(offsets))
            if turn is None:
                redeliveries.put_back(offsets)
                break
            endpoint, permits = turn
            permits = owned.room(permits)
            if permits <= 0:  # a batch before it had more messages than the rate allows
                redeliveries.put_back(offsets)
                break
            count = owned.entries.fitting(offsets, permits)
            part, offsets = offsets[:count], offsets[count:]
            if owned.guard is not None:
                owned.guard.handed_out_again(part)
                if node is not None:
                    owned.guard.isolation.flowed(node, len(part))
            self._deliver(owned, endpoint, part, [records[offset] for offset in part])
        return bool(records or found.gone)
