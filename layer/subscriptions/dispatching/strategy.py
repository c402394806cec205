"""A strategy chooses the consumer that gets the next messages of a partition. Pure: endpoints in, choice out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pulsar_on_kafka.subscriptions.records.endpoint import Endpoint

ROUND_ROBIN_BATCH: Final = 20
"""Messages a consumer gets before it is the next one's turn. Source: Pulsar's `dispatcherMaxRoundRobinBatchSize`."""

MOST_AT_ONCE: Final = 500
"""The same at most for a consumer in another process, when that many wait."""


def active_consumer(endpoints: Sequence[Endpoint], partition: int) -> Endpoint | None:
    """The one consumer of an Exclusive or Failover subscription that gets `partition`.

    Among the consumers of the highest priority level (the lowest number), sorted by name, partition i takes number
    i modulo their count. Source: AbstractDispatcherSingleActiveConsumer.pickAndScheduleActiveConsumer.
    """
    candidates = [endpoint for endpoint in endpoints if not endpoint.closed]
    if not candidates:
        return None
    highest = min(endpoint.priority for endpoint in candidates)
    ranked = sorted((e for e in candidates if e.priority == highest), key=lambda endpoint: endpoint.name)
    return ranked[partition % len(ranked)]


class RoundRobin:
    """Turns of a Shared subscription: by priority level, then one batch each.

    Source: PersistentDispatcherMultipleConsumers.
    """

    def __init__(self) -> None:
        self._last: Endpoint | None = None

    def next(
        self, endpoints: Sequence[Endpoint], waiting: int = 0, *, few_at_once: bool = False
    ) -> tuple[Endpoint, int] | None:
        """Whose turn it is and how many messages it may get; None when nobody takes any.

        One in another process gets its share of what is `waiting` in one turn, so that it has long runs to read.
        `few_at_once`: others wait for the acknowledgement of these. Of this process's consumers it is seen at once, of
        others only when they report (`lessee.ACKS_S`), so it is the turn of one here that has nothing in hand, if any.
        """
        ready = [(endpoint, permits) for endpoint in endpoints if (permits := endpoint.shared_permits()) > 0]
        if not ready:
            return None
        if len(endpoints) == 1:
            return ready[0]
        level = min(endpoint.priority for endpoint, _ in ready)
        turn = [entry for entry in ready if entry[0].priority == level]
        order = {id(endpoint): number for number, endpoint in enumerate(endpoints)}
        last = order.get(id(self._last), -1)
        at_hand = [each for each in turn if few_at_once and not each[0].is_remote and not each[0].unacked]
        chosen = next((entry for entry in at_hand or turn if order[id(entry[0])] > last), (at_hand or turn)[0])
        self._last = chosen[0]
        most = ROUND_ROBIN_BATCH
        if chosen[0].is_remote:
            most = min(MOST_AT_ONCE, max(most, waiting // len(turn)))
        return chosen[0], min(chosen[1], most)
