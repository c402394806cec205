"""The controller assigns the segments of topics to V5 consumers, for the subscriptions of one gateway's topics.

The gateway that serves a topic's name, without a partition's suffix, controls all subscriptions of the topic. Names of
consumers are on record (`broker.metadata.subscriptions.consumer_registrations`), so that the next controller assigns
alike. Two controllers at once do no harm: a segment's subscription is Exclusive, so a second consumer of the segment
is refused until the first one closes. Source: Pulsar's ScalableTopicController, 5.0.1. Decision:
mapping/decisions/0032.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from typing import Final, NamedTuple

from pulsar_on_kafka.base.scheduler import Scheduler
from pulsar_on_kafka.broker.metadata.subscriptions.consumer_registrations import Registrations
from pulsar_on_kafka.broker.metadata.topic_watch import POLICIES_S, TopicWatch
from pulsar_on_kafka.broker.metadata.topics import Topic
from pulsar_on_kafka.broker.node.node import Node
from pulsar_on_kafka.gateway.fleet.membership import FleetMembership
from pulsar_on_kafka.gateway.protocol.error_codes import error_code_of
from pulsar_on_kafka.gateway.protocol.fair_pool import FairPool
from pulsar_on_kafka.gateway.protocol.request_queue import OnError, operation_deadline
from pulsar_on_kafka.gateway.streams.layout_lookup import TopicWithLayout, find_layout
from pulsar_on_kafka.gateway.streams.subscription_coordinator import SegmentAssignment, SubscriptionCoordinator
from pulsar_on_kafka.gateway.tenants.served_tenants import ServedTenants
from pulsar_on_kafka_mapping.names.topic_name import TopicName
from pulsar_on_kafka_mapping.routing.topic_layouts import TopicLayout, topic_layout
from pulsar_on_kafka_mapping.state.metadata.metadata_records import LifeState
from pulsar_on_kafka_mapping.wire.commands import ServerError

_log: Final = logging.getLogger(__name__)

MAX_SUBSCRIPTIONS: Final = 10_000
"""Subscriptions with V5 consumers that share segments, of one gateway."""
_TENANT_S: Final = 10.0
"""Connections with consumers of a tenant that has moved to another cluster end after this time."""
_RETRY_INTERVAL_S: Final = 1.0
"""Consumers whose grace time has ended are removed from the record again after a failure."""


@dataclass(eq=False)
class StreamConsumer:
    """A V5 consumer on one connection. `send` sends it an assignment; `end` ends its connection, so that it looks for
    its controller again."""

    topic: TopicName
    bundle: int
    subscription: str
    name: str
    send: Callable[[SegmentAssignment], None]
    end: Callable[[str], None]
    is_open: bool = True
    """False after the consumer left, or its connection ended."""

    def __str__(self) -> str:
        return f"{self.topic}/{self.subscription} consumer={self.name!r:.100}"


class _Recorded(NamedTuple):
    found: TopicWithLayout
    registrations: Registrations


@dataclass(frozen=True, slots=True)
class _Change:
    """A change of the record. `begin` returns the work for another thread, or None if the change is needless. The work
    returns None if this incarnation of the topic has no record. `done` is called after the record was applied."""

    begin: Callable[[], Callable[[], _Recorded | None] | None]
    done: Callable[[], None]
    failed: OnError


class _ControlledSubscription:
    """One subscription. Its changes are made one after the other."""

    def __init__(self, topic: TopicName, bundle: int, name: str) -> None:
        self.topic_name = topic
        self.bundle = bundle
        self.name = name
        self.found: TopicWithLayout | None = None
        """The incarnation of the topic that `coordinator` is for; None before the first consumer is on record."""
        self.coordinator: SubscriptionCoordinator[StreamConsumer] | None = None
        self.changes: deque[_Change] = deque()
        self.is_changing = False
        self.timer: asyncio.TimerHandle | None = None
        self.retry_s = 0.0
        """Not before this time the record is changed again without a request, after a failure."""
        self.is_forgotten = False

    @property
    def key(self) -> tuple[str, str]:
        return str(self.topic_name), self.name

    @property
    def is_unused(self) -> bool:
        return not (self.changes or self.is_changing) and (self.coordinator is None or self.coordinator.is_empty)


class StreamController:
    """For the event loop.

    Memory: `MAX_SUBSCRIPTIONS` subscriptions, each with the names of 1,000 consumers at most. A subscription is
    forgotten when its last consumer has left, or the last grace time has ended.
    """

    def __init__(
        self,
        node: Node,
        loop: asyncio.AbstractEventLoop,
        soon: Callable[[Callable[[], None]], None],
        pool: FairPool,
        sharing: FleetMembership,
        scheduler: Scheduler,
        grace_s: float,
    ) -> None:
        """`soon` has the loop call a function, from any thread."""
        self._node = node
        self._loop = loop
        self._soon = soon
        self._pool = pool
        self._sharing = sharing
        self._grace_s = grace_s
        self._subscriptions: dict[tuple[str, str], _ControlledSubscription] = {}
        self._layouts = TopicWatch[_ControlledSubscription](scheduler, POLICIES_S, self._look_at_topics)

    def __len__(self) -> int:
        return len(self._subscriptions)

    # Consumers ----------------------------------------------------------------------------------------------------

    def register(self, consumer: StreamConsumer, then: Callable[[SegmentAssignment], None], refused: OnError) -> None:
        """Register a consumer, and call `then` with its segments. Later assignments are sent to the consumer.

        `refused` gets: TopicNotFound, NotAllowed for too many consumers or subscriptions, and failures of Kafka.
        """
        key = str(consumer.topic), consumer.subscription
        found = self._subscriptions.get(key)
        if found is None:
            if len(self._subscriptions) >= MAX_SUBSCRIPTIONS:
                refused(ServerError.NOT_ALLOWED, f"{MAX_SUBSCRIPTIONS} subscriptions share segments here, the maximum")
                return
            found = _ControlledSubscription(consumer.topic, consumer.bundle, consumer.subscription)
            self._subscriptions[key] = found
        subscription = found

        def begin() -> Callable[[], _Recorded | None] | None:
            return partial(self._add, subscription, [consumer.name]) if consumer.is_open else None

        def done() -> None:
            coordinator = subscription.coordinator
            if not consumer.is_open or coordinator is None:
                refused(ServerError.SERVICE_NOT_READY, "closed before it was registered")
                return
            coordinator.connect(consumer.name, consumer)
            _log.info("subscription=%s is registered, one of %d", consumer, len(coordinator.names))
            then(coordinator.report(consumer.name))

        self._change(subscription, _Change(begin, done, refused))

    def unregister(self, consumer: StreamConsumer, then: Callable[[], None], refused: OnError) -> None:
        """A consumer leaves: its segments go to the others at once. A consumer that is not registered by its
        connection changes nothing."""
        consumer.is_open = False
        subscription = self._subscriptions.get((str(consumer.topic), consumer.subscription))
        if subscription is None:
            then()
            return

        def begin() -> Callable[[], _Recorded | None] | None:
            coordinator, found = subscription.coordinator, subscription.found
            if coordinator is None or found is None:
                return None
            if not coordinator.disconnect(consumer.name, consumer, self._now_s()):
                return None
            _log.info("subscription=%s leaves", consumer)
            return partial(self._remove, subscription, found, [consumer.name])

        self._change(subscription, _Change(begin, then, refused))

    def disconnect(self, consumer: StreamConsumer) -> None:
        """The consumer's connection has ended: its segments stay its own for the grace time."""
        consumer.is_open = False
        subscription = self._subscriptions.get((str(consumer.topic), consumer.subscription))
        if subscription is not None and subscription.coordinator is not None:
            if subscription.coordinator.disconnect(consumer.name, consumer, self._now_s()):
                _log.info("subscription=%s is disconnected, and has %.0f s", consumer, self._grace_s)
            self._settle(subscription)

    def follow(self) -> None:
        """Forget the subscriptions of topics that another gateway serves. Their consumers' connections end."""
        for subscription in list(self._subscriptions.values()):
            if url := self._sharing.elsewhere(subscription.bundle):
                self._forget(subscription, f"{url} is the controller of topic {subscription.topic_name}")

    def follow_tenants(self, tenants: ServedTenants) -> None:
        """The same for tenants that another cluster serves. The clients' acknowledgements have some time before."""
        for subscription in self._subscriptions.values():
            serving = tenants.of_topic(str(subscription.topic_name))
            if not (serving.is_here or serving.is_switching):
                self._loop.call_later(_TENANT_S, self._leave_with_tenant, subscription, tenants)

    def _leave_with_tenant(self, subscription: _ControlledSubscription, tenants: ServedTenants) -> None:
        serving = tenants.of_topic(str(subscription.topic_name))
        if not serving.is_here:
            self._forget(subscription, serving.reason)

    # Changes ------------------------------------------------------------------------------------------------------

    def _change(self, subscription: _ControlledSubscription, change: _Change) -> None:
        subscription.changes.append(change)
        self._next_change(subscription)

    def _next_change(self, subscription: _ControlledSubscription) -> None:
        while subscription.changes and not subscription.is_changing:
            change = subscription.changes.popleft()
            work = change.begin()
            if work is None:
                change.done()
                continue
            subscription.is_changing = True
            future = self._pool.submit(work, caller=self, topic=str(subscription.topic_name))
            future.add_done_callback(partial(self._in_loop, self._changed, subscription, change))
        self._settle(subscription)

    def _changed(
        self, subscription: _ControlledSubscription, change: _Change, future: Future[_Recorded | None]
    ) -> None:
        subscription.is_changing = False
        failure = future.exception()
        try:
            if subscription.is_forgotten:
                change.failed(ServerError.SERVICE_NOT_READY, f"another gateway controls {subscription.topic_name}")
            elif failure is None:
                self._apply(subscription, future.result())
                change.done()
            elif isinstance(failure, Exception):
                change.failed(*error_code_of(failure))
        finally:
            self._next_change(subscription)

    def _apply(self, subscription: _ControlledSubscription, recorded: _Recorded | None) -> None:
        if recorded is None:
            self._forget(subscription, f"topic {subscription.topic_name} was deleted")
            return
        found, known = recorded.found, subscription.found
        coordinator = subscription.coordinator
        if coordinator is None or known is None or known.topic.kafka_topic_id != found.topic.kafka_topic_id:
            self._end_connections(subscription, f"topic {subscription.topic_name} was created again")
            coordinator = subscription.coordinator = SubscriptionCoordinator(found.layout, self._grace_s)
            self._layouts.watch(found.topic, subscription)
        elif found.layout.epoch > coordinator.layout.epoch:
            coordinator.change_layout(found.layout)
        subscription.found = found
        coordinator.recorded(*recorded.registrations, self._now_s())

    def _settle(self, subscription: _ControlledSubscription) -> None:
        """Report changed assignments, and wait for the next end of a grace time."""
        if subscription.timer is not None:
            subscription.timer.cancel()
            subscription.timer = None
        coordinator = subscription.coordinator
        if coordinator is not None:
            for consumer, assignment in coordinator.updates():
                consumer.send(assignment)
            due_s = -math.inf if coordinator.unrecorded() else coordinator.next_expiry_s
            if due_s < math.inf:
                delay_s = max(0.0, max(due_s, subscription.retry_s) - self._now_s())
                subscription.timer = self._loop.call_later(delay_s, self._correct_record, subscription)
        if subscription.is_unused and self._subscriptions.get(subscription.key) is subscription:
            del self._subscriptions[subscription.key]
            self._layouts.unwatch(subscription)

    def _correct_record(self, subscription: _ControlledSubscription) -> None:
        """Remove the consumers whose grace time has ended. Add connected ones that another gateway has removed."""

        def begin() -> Callable[[], _Recorded | None] | None:
            coordinator, found = subscription.coordinator, subscription.found
            if coordinator is None or found is None:
                return None
            if missing := coordinator.unrecorded():
                return partial(self._add, subscription, missing)
            if expired := coordinator.expired(self._now_s()):
                _log.info("subscription=%s/%s consumers do not return: %.600r", *subscription.key, expired)
                return partial(self._remove, subscription, found, expired)
            return None

        def failed(code: ServerError, reason: str) -> None:
            _log.warning("subscription=%s/%s its consumers cannot be recorded now: %s", *subscription.key, reason)
            subscription.retry_s = self._now_s() + _RETRY_INTERVAL_S

        subscription.timer = None
        self._change(subscription, _Change(begin, _nothing, failed))

    # Other threads ------------------------------------------------------------------------------------------------

    def _add(self, subscription: _ControlledSubscription, names: Sequence[str]) -> _Recorded:
        deadline = operation_deadline()
        found = find_layout(self._node, str(subscription.topic_name), deadline, create=False)
        return _Recorded(found, self._node.registrations.add(found.topic, subscription.name, names, deadline))

    def _remove(
        self, subscription: _ControlledSubscription, found: TopicWithLayout, names: Sequence[str]
    ) -> _Recorded | None:
        left = self._node.registrations.remove(found.topic, subscription.name, names, operation_deadline())
        return None if left is None else _Recorded(found, left)

    def _look_at_topics(self, watched: Sequence[tuple[_ControlledSubscription, Topic]]) -> None:
        """Find topics that have more partitions, or are gone. Reads the state topic `topics`."""
        records = self._node.topics.records.of({topic.name.base for _, topic in watched}, operation_deadline())
        for subscription, topic in watched:
            record = records[topic.name.base]
            if record is None or (record.state, record.incarnation) != (LifeState.ACTIVE, topic.layout.incarnation):
                self._in_loop(self._forget, subscription, f"topic {topic.name} was deleted")
            else:
                layout = topic_layout(topic.name.base, record.partitions, record.incarnation)
                self._in_loop(self._grow, subscription, layout)

    def _in_loop(self, call: Callable[..., None], *arguments: object) -> None:
        self._soon(partial(call, *arguments))

    # The loop -----------------------------------------------------------------------------------------------------

    def _grow(self, subscription: _ControlledSubscription, layout: TopicLayout) -> None:
        coordinator = subscription.coordinator
        if coordinator is not None and layout.epoch > coordinator.layout.epoch:
            coordinator.change_layout(layout)
            self._settle(subscription)

    def _forget(self, subscription: _ControlledSubscription, reason: str) -> None:
        """This gateway no longer controls the subscription. Its consumers look for the controller again."""
        if self._subscriptions.get(subscription.key) is not subscription:
            return
        del self._subscriptions[subscription.key]
        self._layouts.unwatch(subscription)
        if subscription.timer is not None:
            subscription.timer.cancel()
            subscription.timer = None
        self._end_connections(subscription, reason)
        subscription.is_forgotten = True
        subscription.coordinator = None
        changes, subscription.changes = subscription.changes, deque()
        for change in changes:
            change.failed(ServerError.SERVICE_NOT_READY, reason)

    @staticmethod
    def _end_connections(subscription: _ControlledSubscription, reason: str) -> None:
        for consumer in [] if subscription.coordinator is None else subscription.coordinator.connections:
            consumer.end(reason)

    def _now_s(self) -> float:
        return self._node.clock.monotonic()


def _nothing() -> None:
    """A change that no client waits for."""
