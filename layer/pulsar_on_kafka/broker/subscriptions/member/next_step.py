"""The time of a member's next step: everything that can become due, and the wake-ups for everything else."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import inf
from typing import Final, NamedTuple

from pulsar_on_kafka.broker.subscriptions.dispatching.dispatcher import Dispatcher
from pulsar_on_kafka.broker.subscriptions.dispatching.subscription_context import SubscriptionHandle
from pulsar_on_kafka.broker.subscriptions.leases.leasing import Leasing
from pulsar_on_kafka.broker.subscriptions.member.fetching import PartitionReader
from pulsar_on_kafka.broker.subscriptions.member.ownership import Ownership
from pulsar_on_kafka.broker.subscriptions.partition.owned_partition import OwnedPartition
from pulsar_on_kafka.broker.subscriptions.records.consumer_inbox import Endpoint, PartitionAcks

_ACKS_INTERVAL_S: Final = 0.01
"""The time for which acknowledgements are gathered after the first one, where messages wait for them."""
_STARVED_INTERVAL_S: Final = 0.02
"""The shortest time between two steps that find no room."""
_STARVED_CHECK_S: Final = 1.0
"""The longest one: room appears, for example, when another process's report is applied."""
_PAUSE_AFTER_S: Final = 1.0


class NextStep(NamedTuple):
    due_s: float
    """The time of the next step on the monotonic clock, unless records or a wake-up come first; infinite if only these
    begin it."""
    reads: bool
    """Records are of use now; otherwise they stay with the membership."""


class StepProgress(NamedTuple):
    """The progress of a step, up to `now_s` (monotonic)."""

    now_s: float
    active: bool
    """Records came, or commands."""
    handed: bool
    """Messages were put into inboxes."""
    acked: bool
    """Acknowledgements were applied."""
    awaits_save: bool
    """Messages wait for a save."""


class StepTimer:
    """Finds the time of a member's next step, and watches inboxes and acknowledgements until then.

    Memory: one reference for each partition while its acknowledgements are watched.
    """

    def __init__(
        self,
        handle: SubscriptionHandle,
        dispatcher: Dispatcher,
        reader: PartitionReader,
        ownership: Ownership,
        leasing: Leasing | None,
        owned: Mapping[int, OwnedPartition],
        endpoints: Sequence[Endpoint],
        wake: Callable[[], None],
        save_interval_s: float,
    ) -> None:
        self._handle = handle
        self._dispatcher = dispatcher
        self._reader = reader
        self._ownership = ownership
        self._leasing = leasing
        self._owned = owned
        self._endpoints = endpoints
        self._wake = wake
        self._save_interval_s = save_interval_s
        self._last_handed_s = -inf
        self._last_active_s = 0.0
        self._last_save_s = 0.0
        self._starved_since_s: float | None = None
        self._watched: list[Endpoint] = []
        self._watched_slots: list[PartitionAcks] = []

    def begin(self) -> None:
        """End all watching: a step begins."""
        for endpoint in self._watched:
            endpoint.unwatch()
        for slot in self._watched_slots:
            slot.unwatch()
        self._watched.clear()
        self._watched_slots.clear()

    def saves_at(self, now_s: float) -> bool:
        """Whether a save interval has passed; the next one begins now."""
        if now_s - self._last_save_s < self._save_interval_s:
            return False
        self._last_save_s = now_s
        return True

    def next(self, done: StepProgress) -> NextStep:
        dispatcher, reader, now_s = self._dispatcher, self._reader, done.now_s
        if done.active or done.handed or done.acked:
            self._last_active_s = now_s
        if done.handed:
            self._last_handed_s = now_s
        stuck = dispatcher.has_undelivered()
        if stuck and not done.handed:
            return self._starve(done)
        self._starved_since_s = None
        reader.resume_drained()
        if stuck:
            return NextStep(now_s, not reader.has_plenty() or dispatcher.other_partition_flows())
        waits = dispatcher.has_waiting()
        due_s = self._due_s(done, now_s if done.handed or not waits else now_s + _STARVED_INTERVAL_S)
        if waits or reader.awaits_consumer:
            room_s = max(self._await_room(now_s), now_s if done.handed else now_s + _STARVED_INTERVAL_S)
            due_s = min(due_s, room_s, now_s + _STARVED_CHECK_S if waits else inf)
        due_s = self._await_acknowledgement(due_s, done, waits=waits)
        if self._leasing is not None and self._leasing.waits_for_owners:
            self._watched += self._endpoints
            if not self._leasing.watch_inboxes():
                due_s = now_s
        return NextStep(due_s, reads=True)

    def _starve(self, done: StepProgress) -> NextStep:
        """Wait for room in an inbox, and pause fetching if that takes long. Partitions whose consumers have room are
        still read (Failover)."""
        now_s = done.now_s
        first = self._starved_since_s is None
        since_s = self._starved_since_s = now_s if self._starved_since_s is None else self._starved_since_s
        flows = self._dispatcher.other_partition_flows()
        paused = now_s - since_s > _PAUSE_AFTER_S
        if flows:
            self._reader.resume_drained()
        if paused and flows:
            self._reader.pause_undelivered()
        elif paused:
            self._reader.pause_all()
        due_s = max(self._due_s(done, now_s), now_s + _STARVED_INTERVAL_S)
        room_s = self._await_room(now_s)
        if not self._dispatcher.has_undelivered():  # a receiver drained its inbox after the dispatch
            room_s = now_s
        if self._dispatcher.replay_failed or not first:
            room_s = max(room_s, now_s + _STARVED_INTERVAL_S)
        due_s = self._await_acknowledgement(min(due_s, room_s), done, waits=True)
        return NextStep(min(due_s, now_s + _STARVED_CHECK_S), reads=flows or paused)

    def _await_room(self, now_s: float) -> float:
        """Have the member woken by room in an inbox; returns `now_s` if an inbox that messages wait for has room."""
        for endpoint in self._endpoints:
            if not endpoint.has_room_again() or endpoint.shared_permits() <= 0:
                endpoint.watch()
                self._watched.append(endpoint)
        # A receiver that drained its inbox before `watch` does not wake the member; this check finds it.
        if self._reader.awaits_consumer:
            return now_s if any(endpoint.permits() > 0 for endpoint in self._endpoints) else inf
        return now_s if self._dispatcher.takes_any() else inf

    def _await_acknowledgement(self, due_s: float, done: StepProgress, *, waits: bool) -> float:
        """Have the member woken by the next acknowledgement, or gather more of them if some have just come. While
        messages are delivered, acknowledgements are applied at the end of the save interval, unless messages wait for
        them."""
        rests = self._last_active_s < self._last_save_s
        if not (rests or self._reports_acknowledgements() or (waits and self._dispatcher.awaits_acknowledgements())):
            return due_s
        if done.acked:
            return min(due_s, done.now_s + _ACKS_INTERVAL_S)
        for slot in self._handle.slots():
            slot.watch(self._wake)
            self._watched_slots.append(slot)
        # An acknowledgement before `watch` does not wake the member; this check finds it.
        if any(owned.slot.has_acknowledgements() for owned in self._owned.values()):
            return min(due_s, done.now_s + _ACKS_INTERVAL_S)
        return due_s

    def _reports_acknowledgements(self) -> bool:
        """The next acknowledgement of another process's message begins a report."""
        leasing = self._leasing
        return leasing is not None and leasing.reports_to_owners and not leasing.gathers_acknowledgements

    def _due_s(self, done: StepProgress, redeliveries_from_s: float) -> float:
        """`redeliveries_from_s`: before that time no redelivery is tried again."""
        now_s, counting = done.now_s, self._dispatcher.counting
        due_s = min(
            self._reader.next_due(),
            self._dispatcher.limits.next_due(),
            self._ownership.transactions.next_due(now_s),
            now_s + counting.poll_limit(now_s - self._last_handed_s),
            self._next_save(),
        )
        if done.awaits_save:
            due_s = min(due_s, self._ownership.saver.urgent_due(now_s))
        if self._leasing is not None:
            due_s = min(due_s, self._leasing.next_due(now_s))
        redelivery_s = self._dispatcher.redelivery.next_due()
        # With suspects, due entries can lack room for long without counting as a wait for room.
        if redelivery_s is None or counting.has_suspects:
            return due_s
        return min(due_s, max(redelivery_s, redeliveries_from_s))

    def _next_save(self) -> float:
        """The end of the save interval while there is anything to do then; otherwise the next checkpoint."""
        due_s = self._last_save_s + self._save_interval_s
        if self._last_active_s >= self._last_save_s or self._ownership.has_periodic_work:
            return due_s
        return max(due_s, self._ownership.saver.next_checkpoint())
