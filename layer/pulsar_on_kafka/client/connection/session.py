"""A session holds what one Client has open, from its first producer or consumer until its `close`."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, Protocol

from pulsar_on_kafka.base import errors
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.base.scheduler import Scheduler
from pulsar_on_kafka.broker.metadata.topic_watch import POLICIES_S, TopicWatch
from pulsar_on_kafka.broker.metadata.topics import Topic
from pulsar_on_kafka.broker.node.fallback_roles import LOOK_S
from pulsar_on_kafka.broker.node.node import Node, acquire, release
from pulsar_on_kafka.broker.node.services import ProducerPolicies
from pulsar_on_kafka.broker.publishing.arguments import check_range
from pulsar_on_kafka.broker.publishing.official_errors import pulsar_errors
from pulsar_on_kafka.broker.publishing.transactional_sends import Transaction
from pulsar_on_kafka.client.connection.connection import ClientOptions
from pulsar_on_kafka.client.connection.listener import ListenerThreads
from pulsar_on_kafka.client.values.stats_log import StatsLine, StatsLog
from pulsar_on_kafka.exceptions import AlreadyClosed, ConnectError, InvalidConfiguration
from pulsar_on_kafka.kafka.settings import KafkaSettings

_log: Final = logging.getLogger(__name__)

if TYPE_CHECKING:
    from pulsar_on_kafka.broker.node.metrics.server import MetricsServer

DISCOVERY_S: Final = 5.0
"""The interval at which new partitions are discovered. The official client's is a minute."""


class Grows(Protocol):
    def grow(self, partitions: int, deadline: Deadline) -> None: ...


class FollowsPolicies(Protocol):
    """A producer that receives its topic's policies."""

    def follow_policies(self, policies: ProducerPolicies, deadline: Deadline) -> None:
        """Raises LayerError: not possible now; called again."""


class FollowsTopic(Grows, FollowsPolicies, Protocol):
    """A producer that receives changes of its topic from the session."""


class OpenProducer(Protocol):
    """A session calls these methods of a producer."""

    def stats_line(self) -> StatsLine: ...
    def close(self) -> None: ...


class OpenConsumer(Protocol):
    """A session calls these methods of a consumer."""

    def stats_lines(self) -> list[StatsLine]: ...
    def begin_draining(self) -> None: ...
    def is_drained(self) -> bool: ...
    def stop_receiving(self) -> None: ...
    def leave(self) -> None: ...


class OpenReader(Grows, Protocol):
    """A session calls these methods of a reader."""

    @property
    def opened_topic(self) -> Topic: ...
    def stats_line(self) -> StatsLine: ...
    def leave(self) -> None: ...


def update_policies(
    node: Node, watched: Sequence[tuple[FollowsPolicies, Topic]], deadline: Callable[[], Deadline]
) -> None:
    """Reads the state topics `topics` and `namespaces`, those of their partitions that hold topics in use. `deadline`
    gives a new one for each call to the cluster."""
    reported = node.producer_policies({topic.name.base for _, topic in watched}, deadline())
    for user, topic in watched:
        requested = reported[topic.name.base]
        try:
            user.follow_policies(requested, deadline())
        except errors.LayerError as failure:  # tried again with the next look
            _log.warning("topic=%s a producer cannot follow its policies yet: %s", topic.name, failure)


class Session:
    """The node, the producers, consumers and readers of one client, and the threads that serve them. Thread-safe.

    Memory: an entry for each producer, consumer and reader until it is closed.
    """

    def __init__(self, options: ClientOptions, settings: KafkaSettings) -> None:
        self.operation_timeout_s = float(options.operation_timeout_seconds)
        self.ack_persist_interval_s = options.ack_persist_interval_ms / 1000
        self.max_pattern_topics = options.max_pattern_topics
        self._cursor_memory_limit_bytes = options.cursor_memory_limit_bytes
        self._transactions_enabled = options.enable_transaction
        self._stands_in = options.stands_in()
        self.threads = ListenerThreads(options.message_listener_threads)
        self.scheduler = Scheduler("pok-discovery")
        self._settings = settings
        self._connect_timeout_s = min(options.connection_timeout_ms / 1000, self.operation_timeout_s)
        self._discovery = TopicWatch[Grows](self.scheduler, DISCOVERY_S, self._update_partitions)
        self._policies = TopicWatch[FollowsTopic](self.scheduler, POLICIES_S, self._update_policies)
        self._stats_log = StatsLog(options.stats_interval_in_seconds, self._stats_lines, self.scheduler)
        self._metrics_server = None if options.metrics_port is None else serve_metrics(options.metrics_port)
        self._producers: set[OpenProducer] = set()
        self._consumers: set[OpenConsumer] = set()
        self._readers: set[OpenReader] = set()
        self._node: Node | None = None
        self._lock = threading.RLock()
        self._closed = False

    def node(self) -> Node:
        """The process's node for this cluster; the first call connects.

        Raises:
            AlreadyClosed: the client was closed.
            ConnectFailed: no broker answered in the connection timeout.
        """
        with self._lock:
            if self._closed:
                raise AlreadyClosed("the client is closed")
            if self._node is None:
                self._node = acquire(self._settings, Deadline.after(self._connect_timeout_s))
                self._node.store.budget.allow(self._cursor_memory_limit_bytes)
                if self._stands_in:
                    self._node.stand_in.use()
                    self.scheduler.every(LOOK_S, self._node.stand_in.look)
            return self._node

    def check_answers(self, deadline: Deadline) -> None:
        """Raises ConnectError: no broker answers now, though one may have when the process connected."""
        try:
            self.node().admin.cluster_id(deadline)
        except errors.LayerError as failure:
            raise ConnectError(str(failure)) from failure

    def new_transaction(self, timeout_ms: int) -> Transaction:
        """Raises as `Client.new_transaction`."""
        if not self._transactions_enabled:
            raise InvalidConfiguration("transactions are not enabled: make the Client with enable_transaction=True")
        check_range("timeout_ms", timeout_ms, 1)
        with pulsar_errors():
            deadline = self.deadline()
            node = self.node()
            begun = node.transactions.client(deadline).begin(timeout_ms, deadline)
            return Transaction(begun, self.operation_timeout_s, node.cluster_id)

    def deadline(self) -> Deadline:
        """A new one, for one call to the cluster."""
        return Deadline.after(self.operation_timeout_s)

    @property
    def metrics_port(self) -> int | None:
        return None if self._metrics_server is None else self._metrics_server.port

    def producer_opened(self, producer: OpenProducer, sender: FollowsTopic, topic: Topic) -> None:
        """`sender`: receives changes of the topic, as long as the producer is held."""
        self._producers.add(producer)
        self._discover(topic, sender)
        self._policies.watch(topic, sender)
        self._stats_log.start()

    def producer_closed(self, producer: OpenProducer, sender: FollowsTopic) -> None:
        self._producers.discard(producer)
        self._policies.unwatch(sender)

    def consumer_opened(self, consumer: OpenConsumer) -> None:
        self._consumers.add(consumer)
        self._stats_log.start()

    def consumer_closed(self, consumer: OpenConsumer) -> None:
        self._consumers.discard(consumer)

    def reader_opened(self, reader: OpenReader) -> None:
        self._readers.add(reader)
        self._discover(reader.opened_topic, reader)
        self._stats_log.start()

    def reader_closed(self, reader: OpenReader) -> None:
        self._readers.discard(reader)

    def _stats_lines(self) -> list[StatsLine]:
        producers = [producer.stats_line() for producer in list(self._producers)]
        consumers = [line for consumer in list(self._consumers) for line in consumer.stats_lines()]
        return producers + consumers + [reader.stats_line() for reader in list(self._readers)]

    def _discover(self, topic: Topic, user: Grows) -> None:
        """Watches the topic for new partitions; topics without partitions have none. Consumers get them from their
        group."""
        if topic.partitioned:
            self._discovery.watch(topic, user)

    def _update_partitions(self, watched: list[tuple[Grows, Topic]]) -> None:
        counts: dict[str, int] = {}
        for user, topic in watched:
            deadline = self.deadline()
            try:
                name = str(topic.name)
                if name not in counts:
                    counts[name] = self.node().topics.partitions_now(topic, deadline)
                user.grow(counts[name], deadline)
            except errors.LayerError as failure:  # calls of the user report the error
                _log.info("topic=%s new partitions not seen: %s", topic.name, failure)

    def _update_policies(self, watched: list[tuple[FollowsTopic, Topic]]) -> None:
        update_policies(self.node(), watched, self.deadline)

    def consumers(self) -> list[OpenConsumer]:
        return list(self._consumers)

    def close(self) -> None:
        """Close everything, end every thread.

        Raises:
            AlreadyClosed: it was closed before.
        """
        with self._lock:
            if self._closed:
                raise AlreadyClosed("the client is closed already")
            self._closed = True
            node, self._node = self._node, None
        try:
            self.scheduler.close()
            for consumer in list(self._consumers):
                consumer.stop_receiving()  # or the messages of the first to leave would go to the next one
            for consumer in list(self._consumers):
                consumer.leave()
            for reader in list(self._readers):
                reader.leave()
            for producer in list(self._producers):
                producer.close()
        finally:
            self.threads.close()
            if self._metrics_server is not None:
                release_metrics(self._metrics_server)
            if node is not None:
                if self._stands_in:
                    node.stand_in.let_go()
                release(node)


# Not at the top: most programs need no HTTP server.


def serve_metrics(port: int) -> MetricsServer:
    from pulsar_on_kafka.broker.node.metrics.server import serve

    with pulsar_errors():
        return serve(port)


def release_metrics(server: MetricsServer) -> None:
    from pulsar_on_kafka.broker.node.metrics.server import release

    release(server)
