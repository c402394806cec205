"""The SDK's clients behind kombu's connections: topics of queues and exchanges, and the messages sent to them.

All connections of a process with the same address and options share one `KombuCluster`.
"""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import Any, Final

from pulsar_on_kafka.admin import AdminClient
from pulsar_on_kafka.base.forks import OfOneProcess, after_fork_in_child, process_lock
from pulsar_on_kafka.client.client import Client
from pulsar_on_kafka.client.consumer.consumer import Consumer
from pulsar_on_kafka.client.producer.producer import Producer
from pulsar_on_kafka.client.values.enums import ConsumerType, InitialPosition, SubscriptionMode
from pulsar_on_kafka.exceptions import (
    NotAllowedError,
    PulsarException,
    Result,
    SubscriptionNotFound,
    TopicNotFound,
)
from pulsar_on_kafka.integrations.celery.messages import (
    BINDINGS_TOPIC,
    deliver_at_ms,
    encode,
    exchange_topic,
    is_transient,
    queue_topic,
)
from pulsar_on_kafka.integrations.celery.options import KombuAddress, TransportOptions

_log: Final = logging.getLogger(__name__)

Binding = tuple[str, str, str]
"""(exchange, queue, routing key)."""

ACK_PERSIST_INTERVAL_MS: Final = 100
"""A finished task is run again after a kill within this time; the SDK's default is a second."""
BINDINGS_S: Final = 10.0
"""Bindings of other processes are read again after so long, and at once for a key without a queue."""
MAX_QUEUE_SIZE: Final = 1000
_ADMIN_ARGUMENTS: Final = (
    "authentication", "instance", "kafka_config", "tls_allow_insecure_connection", "tls_trust_certs_file_path",
    "tls_validate_hostname",
)  # fmt: skip
_UNUSED_QUEUE: Final = {
    "delete_while_inactive": True,
    "inactive_topic_delete_mode": "delete_when_no_subscriptions",
    "max_inactive_duration_seconds": 60,
}
"""Policies of a topic whose queue ends with its consumer: a killed process leaves no topic behind."""


class KombuCluster(OfOneProcess):
    """One cluster and namespace, as kombu's connections of this process use it. Thread-safe.

    Memory: one producer for each topic that was sent to, and the bindings of the namespace.
    """

    def __init__(self, address: KombuAddress, options: TransportOptions, connect_timeout_s: float) -> None:
        """Raises ConnectError: no broker replied within `connect_timeout_s`."""
        arguments = {"ack_persist_interval_ms": ACK_PERSIST_INTERVAL_MS, **address.security, **options.client}
        arguments["connection_timeout_ms"] = int(connect_timeout_s * 1000)
        self.namespace = address.namespace
        self.options = options
        self.admin = AdminClient(
            address.service_url,
            connection_timeout_ms=arguments["connection_timeout_ms"],
            **{name: arguments[name] for name in _ADMIN_ARGUMENTS if name in arguments},
        )
        self.client = Client(address.service_url, **arguments)
        self._lock = threading.Lock()
        self._producers: dict[str, Producer] = {}
        self._there: set[str] = set()
        self._absent_since: dict[str, float] = {}
        self._steps: dict[str, tuple[int, ...]] = {}
        self._fanouts: dict[str, set[str]] = {}
        """Topics of fanout exchanges by durable queue."""
        self._bindings: frozenset[Binding] = frozenset()
        self._bindings_read_s = -BINDINGS_S

    def close(self) -> None:
        """Waits for unconfirmed messages, then closes the clients."""
        for producer in list(self._producers.values()):
            with suppress(PulsarException):
                producer.flush()
        self.client.shutdown()
        self.admin.close()

    def now_ms(self) -> int:
        """The brokers' time."""
        return self.admin.node.clock.now_ms()

    # Queues -------------------------------------------------------------------------------------------------------

    def declare(self, queue: str, *, prioritized: bool) -> None:
        """Creates the topics of a queue and their subscriptions, if they are not there."""
        steps = tuple(self.options.priority_steps) if prioritized else (0,)
        for step in steps:
            self._create(queue_topic(self.namespace, queue, step), self.options.subscription, from_earliest=True)
        self._steps[queue] = steps

    def _create(self, topic: str, subscription: str | None, *, from_earliest: bool) -> None:
        if subscription is None and topic in self._there:
            return
        try:
            subscriptions = self.admin.list_subscriptions(topic)
        except TopicNotFound:
            self._create_topic(topic)
            subscriptions = []
        if subscription is not None and subscription not in subscriptions:
            # Another process may create the same one at the same time.
            with suppress(NotAllowedError):
                self.admin.create_subscription(topic, subscription, from_earliest=from_earliest)
        self._there.add(topic)

    def _create_topic(self, topic: str) -> None:
        partitions = self.options.partitions
        with suppress(NotAllowedError):
            if partitions:
                self.admin.create_partitioned_topic(topic, partitions)
            else:
                self.admin.create_topic(topic)

    def places(self, queue: str) -> list[tuple[str, str]]:
        """The topics and subscriptions of a durable queue, the most urgent priority first; then those of the fanout
        exchanges to which this process bound it."""
        own = [
            (queue_topic(self.namespace, queue, step), self.options.subscription)
            for step in reversed(self.steps(queue))
        ]
        return own + [(topic, queue) for topic in sorted(self._fanouts.get(queue, ()))]

    def exists(self, topic: str) -> bool:
        """Whether the topic exists; found topics are remembered."""
        if topic not in self._there:
            try:
                self.admin.list_partitions(topic)
            except TopicNotFound:
                return False
            self._there.add(topic)
        return True

    def size(self, queue: str) -> int:
        """Messages of a queue that are not acknowledged, delayed ones included; 0 for one that does not exist."""
        return sum(self.backlog(*place) for place in self.places(queue))

    def backlog(self, topic: str, subscription: str) -> int:
        """Messages that are not acknowledged; 0 for a topic or a subscription that does not exist."""
        try:
            return self.admin.subscription_stats(topic, subscription).backlog
        except (TopicNotFound, SubscriptionNotFound):
            return 0

    def has_consumers(self, queue: str) -> bool:
        """Whether any process has a consumer of the durable queue."""
        for topic, subscription in self.places(queue):
            with suppress(TopicNotFound, SubscriptionNotFound):
                if self.admin.subscription_stats(topic, subscription).consumers:
                    return True
        return False

    def purge(self, queue: str) -> int:
        """Acknowledges everything in a queue; returns the number of messages."""
        purged = 0
        for topic, subscription in self.places(queue):
            found = self.backlog(topic, subscription)
            if found:
                self.admin.clear_backlog(topic, subscription)
            purged += found
        return purged

    def delete(self, queue: str) -> None:
        """Deletes a queue's topics, or its subscription of a fanout exchange, and its bindings."""
        for topic, subscription in self.places(queue):
            with suppress(TopicNotFound, SubscriptionNotFound):
                if topic in self._fanouts.get(queue, ()):
                    self.admin.unsubscribe(topic, subscription, force=True)
                else:
                    self.delete_topic(topic)
        self._steps.pop(queue, None)
        self._fanouts.pop(queue, None)
        for binding in [each for each in self._bindings if each[1] == queue]:
            self.unbind(binding)

    def delete_topic(self, topic: str) -> None:
        """Raises TopicNotFound."""
        self._forget(topic)
        self.admin.delete_topic(topic, force=True)

    def _forget(self, topic: str) -> None:
        self._there.discard(topic)
        producer = self._producers.pop(topic, None)
        if producer is not None:
            with suppress(PulsarException):
                producer.close()

    # Exchanges ----------------------------------------------------------------------------------------------------

    def bind_fanout(self, exchange: str, queue: str | None) -> None:
        """Creates the topic of an exchange, and the subscription of a durable queue, which gets what follows."""
        topic = exchange_topic(self.namespace, exchange)
        self._create(topic, queue, from_earliest=False)
        if queue is not None:
            self._fanouts.setdefault(queue, set()).add(topic)

    def delete_exchange(self, exchange: str) -> None:
        """Deletes an exchange's topic and bindings."""
        with suppress(TopicNotFound):
            self.delete_topic(exchange_topic(self.namespace, exchange))
        for binding in [each for each in self.bindings(fresh=True) if each[0] == exchange]:
            self.unbind(binding)

    def _bindings_topic(self) -> str:
        return f"persistent://{self.namespace}/{BINDINGS_TOPIC}"

    def bind(self, binding: Binding) -> None:
        """Records a durable queue's binding for all processes.

        Raises:
            InvalidConfiguration: the namespace's bindings take more than 64 KiB, which is some 500.
        """
        if binding in self._bindings or binding in self.bindings(fresh=True):
            return
        self._create(self._bindings_topic(), None, from_earliest=False)
        self.admin.update_topic_properties(self._bindings_topic(), {json.dumps(binding): "1"})
        self._bindings |= {binding}

    def unbind(self, binding: Binding) -> None:
        """Removes the record of a binding; nothing happens without one."""
        self._bindings -= {binding}
        with suppress(TopicNotFound):
            self.admin.remove_topic_property(self._bindings_topic(), json.dumps(binding))

    def bindings(self, now_s: float = 0.0, *, fresh: bool = False) -> frozenset[Binding]:
        """Recorded bindings, at most `BINDINGS_S` old at `now_s` (monotonic clock); with `fresh` those of now."""
        if fresh or now_s - self._bindings_read_s >= BINDINGS_S:
            self._bindings_read_s = max(now_s, self._bindings_read_s)
            try:
                found = self.admin.topic_properties(self._bindings_topic())
            except TopicNotFound:
                found = {}
            self._bindings = frozenset(_parsed(found))
        return self._bindings

    # Messages -----------------------------------------------------------------------------------------------------

    def is_declared(self, queue: str) -> bool:
        """Whether this process declared the durable queue."""
        return queue in self._steps

    def steps(self, queue: str) -> tuple[int, ...]:
        """The priorities of a queue, ascending; those of a queue that this process has not declared are unknown."""
        return self._steps.get(queue, (0,))

    def has_exchange(self, exchange: str, now_s: float, max_age_s: float) -> bool:
        """Whether the exchange has a topic, and so queues that read it; a negative result is at most `max_age_s` old at
        `now_s` (monotonic clock)."""
        topic = exchange_topic(self.namespace, exchange)
        if topic in self._there:
            return True
        if now_s - self._absent_since.get(exchange, -max_age_s) < max_age_s:
            return False
        if self.exists(topic):
            self._absent_since.pop(exchange, None)
            return True
        self._absent_since[exchange] = now_s
        return False

    def send(self, topic: str, message: Mapping[str, Any]) -> None:
        """Sends to an existing topic. A topic that was deleted and created again gets a new producer.

        Raises:
            TopicNotFound: it was deleted.
            Timeout, MessageTooBig, AuthorizationError and others: see `Producer.send`.
        """
        try:
            self._send(topic, message)
        except TopicNotFound:
            self._forget(topic)
            if not self.exists(topic):
                raise
            self._send(topic, message)

    def _send(self, topic: str, message: Mapping[str, Any]) -> None:
        payload, properties = encode(message)
        producer, deliver_at = self._producer(topic), deliver_at_ms(message)
        if self.options.confirm_publish and not is_transient(message):
            producer.send(payload, properties, deliver_at=deliver_at)
        else:
            producer.send_async(payload, _Unconfirmed(topic), properties, deliver_at=deliver_at)

    def _producer(self, topic: str) -> Producer:
        producer = self._producers.get(topic)
        if producer is None:
            with self._lock:
                producer = self._producers.get(topic)
                if producer is None:
                    producer = self.client.create_producer(topic, block_if_queue_full=True)
                    self._producers[topic] = producer
        return producer

    # Consumers ----------------------------------------------------------------------------------------------------

    def consumer(self, topic: str, subscription: str, size: int) -> Consumer[bytes]:
        """A consumer of a durable queue's subscription."""
        return self.client.subscribe(
            topic,
            subscription,
            ConsumerType.Shared,
            receiver_queue_size=size,
            negative_ack_redelivery_delay_ms=self.options.requeue_delay_ms,
            initial_position=InitialPosition.Earliest,
            dead_letter_policy=self.options.dead_letter_policy(),
        )

    def ending_consumer(self, topic: str, queue: str, *, from_earliest: bool) -> Consumer[bytes]:
        """A consumer of a queue that ends with its last consumer, in any process."""
        return self.client.subscribe(
            topic,
            queue,
            ConsumerType.Shared,
            receiver_queue_size=MAX_QUEUE_SIZE,
            negative_ack_redelivery_delay_ms=self.options.requeue_delay_ms,
            initial_position=InitialPosition.Earliest if from_earliest else InitialPosition.Latest,
            subscription_mode=SubscriptionMode.NonDurable,
        )

    def ending_topic(self, queue: str) -> str:
        """The topic of a queue without an exchange that ends with its consumers."""
        return queue_topic(self.namespace, queue)

    def create_ending_topic(self, queue: str) -> str:
        """Creates that topic; returns its name."""
        topic = self.ending_topic(queue)
        if not self.exists(topic):
            with suppress(NotAllowedError):
                self.admin.create_topic(topic)
            self.admin.set_policies(topic, _UNUSED_QUEUE)
            self._there.add(topic)
        return topic


class _Unconfirmed:
    """Logs the failure of a message for which no publish waits."""

    def __init__(self, topic: str) -> None:
        self._topic = topic

    def __call__(self, result: Result, _: object) -> None:
        if result is not Result.Ok:
            _log.error("topic=%s an unconfirmed message was not stored: %s", self._topic, result)


def _parsed(properties: Mapping[str, str]) -> Iterator[Binding]:
    for key in properties:
        exchange, queue, routing_key = json.loads(key)
        yield exchange, queue, routing_key


# Sharing ----------------------------------------------------------------------------------------------------------

_SHARED: Final[dict[str, tuple[KombuCluster, int]]] = {}
_SHARED_LOCK: Final = process_lock()
after_fork_in_child(_SHARED.clear)


def acquire_cluster(key: str, opened: Callable[[], KombuCluster]) -> KombuCluster:
    """The cluster of this process with a key, opened if there is none; `release_cluster` gives it back."""
    with _SHARED_LOCK:
        cluster, users = _SHARED.get(key) or (opened(), 0)
        _SHARED[key] = (cluster, users + 1)
        return cluster


def release_cluster(key: str, cluster: KombuCluster) -> None:
    """Closes the cluster when its last user gives it back."""
    with _SHARED_LOCK:
        found = _SHARED.get(key)
        if found is None or found[0] is not cluster:
            return
        if found[1] > 1:
            _SHARED[key] = (cluster, found[1] - 1)
            return
        del _SHARED[key]
    cluster.close()
