"""kombu's channel on the SDK: queues, bindings, publishing, consuming and acknowledging."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from contextlib import suppress
from queue import Empty
from time import monotonic
from typing import Any, Final, NamedTuple, cast

from kombu.transport import virtual

from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.client.values.message import Message as ReceivedMessage
from pulsar_on_kafka.exceptions import NotSupported, TopicNotFound
from pulsar_on_kafka.integrations.celery.cluster import KombuCluster
from pulsar_on_kafka.integrations.celery.messages import (
    decode,
    exchange_topic,
    is_transient,
    queue_topic,
    routing_key,
    step_of,
    time_to_live_ms,
)
from pulsar_on_kafka.integrations.celery.sources import QueueSources, Source

_log: Final = logging.getLogger(__name__)

ABSENT_S: Final = 1.0
"""For transient messages, an exchange without queues is looked up again after so long."""
GET_S: Final = 1.0
"""A synchronous get waits at most so long for a message that other consumers may hold."""
GET_OPEN_S: Final = 0.1
"""The same of a queue that has consumers here, to which messages come by themselves."""
_GET_STEP_MS: Final = 50
_MAX_INBOX: Final = 1000
_NOT_SUPPORTED: Final = ("max_length", "max_length_bytes")


class Received(NamedTuple):
    """A message of the SDK, and the consumer that settles it."""

    source: Source
    message: ReceivedMessage[bytes]

    def acknowledge(self) -> None:
        self.source.acknowledge(self.message)

    def requeue(self) -> None:
        self.source.requeue(self.message)


class KombuMessage(virtual.Message):
    """A received message; `received` is its original."""

    def __init__(self, payload: dict[str, Any], channel: Any = None, **kwargs: Any) -> None:
        self.received: Received = payload["received"]
        super().__init__(payload, channel=channel, **kwargs)


class UnsettledMessages(virtual.QoS):
    """Unacknowledged messages of a channel, at most the prefetch count. The SDK redelivers those of a closed channel or
    a dead process, so that nothing is restored at exit."""

    restore_at_shutdown = False

    def ack(self, delivery_tag: int) -> None:
        """Acknowledges a message; one that was settled before, or at its delivery (`no_ack`), is left as it is."""
        self._settle(delivery_tag, requeue=False)

    def reject(self, delivery_tag: int, requeue: bool = False) -> None:
        """Requests redelivery, or acknowledges."""
        self._settle(delivery_tag, requeue=requeue)

    def _settle(self, delivery_tag: int, *, requeue: bool) -> None:
        message = self._delivered.get(delivery_tag)
        if message is None or delivery_tag in self._dirty:
            return
        if requeue:
            message.received.requeue()
        else:
            message.received.acknowledge()
        self._quick_ack(delivery_tag)
        self.channel.has_room_again()

    def restore_unacked(self) -> list[Any]:
        """Requests redelivery of all of them, for `basic_recover`."""
        self._flush()
        while self._delivered:
            self._delivered.popitem()[1].received.requeue()
        self.channel.has_room_again()
        return []


class Channel(virtual.Channel):
    """A channel of kombu.

    A durable queue is a topic with one subscription of the type Shared. A queue that is exclusive, deletes itself or
    expires has non-durable subscriptions to the topics of its exchanges, and ends with its consumer.
    """

    QoS = UnsettledMessages
    Message = KombuMessage
    supports_fanout = True
    do_restore = False
    body_encoding = None
    connection: Any  # the Transport
    closed: bool
    _is_full = False

    @property
    def cluster(self) -> KombuCluster:
        """The connection's cluster."""
        return cast("KombuCluster", self.connection.cluster)

    # Queues -------------------------------------------------------------------------------------------------------

    def prepare_queue_arguments(self, arguments: Mapping[str, Any], **kwargs: Any) -> dict[str, Any]:
        """Adds `max_priority`, `expires` and `message_ttl` of a `kombu.Queue`. Raises NotSupported for its limits."""
        for name in _NOT_SUPPORTED:
            if kwargs.get(name) is not None:
                raise NotSupported(f"{name} of a queue: set a backlog quota on its topic")
        ttl_s = kwargs.get("message_ttl")
        added = {
            "x-max-priority": kwargs.get("max_priority"),
            "x-expires": kwargs.get("expires"),
            "x-message-ttl": None if ttl_s is None else int(ttl_s * 1000),
        }
        return {**arguments, **{name: value for name, value in added.items() if value is not None}}

    def _new_queue(
        self, queue: str, auto_delete: bool = False, exclusive: bool = False, arguments: Any = None, **_: Any
    ) -> None:
        arguments = arguments or {}
        if "x-message-ttl" in arguments:
            self.connection.ttls_ms[queue] = int(arguments["x-message-ttl"])
        if auto_delete or exclusive or "x-expires" in arguments:
            self.connection.ending.setdefault(queue, bool(auto_delete))
        else:
            self.cluster.declare(queue, prioritized="x-max-priority" in arguments)

    def _has_queue(self, queue: str, **_: Any) -> bool:
        return queue in self.connection.ending or self.cluster.exists(queue_topic(self.cluster.namespace, queue))

    def _size(self, queue: str) -> int:
        return 0 if queue in self.connection.ending else self.cluster.size(queue)

    def _purge(self, queue: str) -> int:
        return 0 if queue in self.connection.ending else self.cluster.purge(queue)

    def queue_delete(self, queue: str, if_unused: bool = False, if_empty: bool = False, **_: Any) -> None:
        """Deletes a queue with its messages, bindings and consumers; with `if_unused` only without consumers in any
        process, with `if_empty` only without messages."""
        if (if_empty and self._size(queue)) or (if_unused and self._is_used(queue)):
            return
        for exchange, key, arguments in list(self.state.queue_bindings(queue)):
            self.queue_unbind(queue, exchange, key, arguments)
        self.state.queue_bindings_delete(queue)
        if queue in self.connection.ending:
            self.connection.end_queue(queue)
        else:
            self.connection.close_queue(queue)
            self.cluster.delete(queue)

    def _is_used(self, queue: str) -> bool:
        return queue in self.connection.sources or (
            queue not in self.connection.ending and self.cluster.has_consumers(queue)
        )

    # Exchanges ----------------------------------------------------------------------------------------------------

    def _queue_bind(self, exchange: str, key: str, pattern: Any, queue: str) -> None:
        is_fanout = self.typeof(exchange).type == "fanout"
        if queue in self.connection.ending:
            bound = self.connection.selected.get((queue, exchange))
            if bound is not None:  # one consumer selects by all keys: several would share the messages
                bound.append((key, pattern, queue))
                return
            bound = self.connection.selected[queue, exchange] = [(key, pattern, queue)]
            self._select_from(exchange, queue, None if is_fanout else bound)
        elif is_fanout:
            self.cluster.bind_fanout(exchange, queue)
        else:
            self.cluster.bind((exchange, queue, key))

    def _select_from(self, exchange: str, queue: str, bound: list[Any] | None) -> None:
        """Opens the consumer of a queue that ends with it, on the topic of an exchange; it drops messages that match no
        binding (None: all match)."""
        self.cluster.bind_fanout(exchange, None)
        topic = exchange_topic(self.cluster.namespace, exchange)
        consumer = self.cluster.ending_consumer(topic, queue, from_earliest=False)
        lookup = self.typeof(exchange).lookup

        def matches(message: ReceivedMessage[bytes]) -> bool:
            published = routing_key(decode(b"", message.properties()))
            return bool(lookup(bound, exchange, published, None))

        self.connection.add_source(queue, Source(consumer, self.connection.wake, None if bound is None else matches))

    def queue_unbind(
        self, queue: str, exchange: str | None = None, routing_key: str = "", arguments: Any = None, **kwargs: Any
    ) -> None:
        """Removes a binding."""
        super().queue_unbind(queue, exchange, routing_key, arguments, **kwargs)
        bound = self.connection.selected.get((queue, exchange or "amq.direct"), [])
        bound[:] = [meta for meta in bound if meta[0] != routing_key]
        if queue not in self.connection.ending:
            self.cluster.unbind((exchange or "amq.direct", queue, routing_key))

    def exchange_delete(self, exchange: str, if_unused: bool = False, nowait: bool = False) -> None:
        """Deletes an exchange with its topic, its bindings, and the queues bound here that are empty and unused; with
        `if_unused` only an exchange without bindings."""
        recorded = self.cluster.bindings(fresh=True)
        if if_unused and (self.get_table(exchange) or any(of == exchange for of, _, _ in recorded)):
            return
        super().exchange_delete(exchange)
        self.cluster.delete_exchange(exchange)

    def _bound_queues(self, exchange: str, key: str, *, fresh: bool) -> set[str]:
        """Durable queues that get a message with this key."""
        kind = self.typeof(exchange)
        table = [
            meta
            for meta in self.state.exchanges.get(exchange, {}).get("table", ())
            if meta[2] not in self.connection.ending
        ]
        recorded = self.cluster.bindings(monotonic(), fresh=fresh)
        table += [kind.prepare_bind(queue, of, bound, None) for of, queue, bound in recorded if of == exchange]
        return set(kind.lookup(table, exchange, key, None))

    # Publishing ---------------------------------------------------------------------------------------------------

    def basic_publish(self, message: dict[str, Any], exchange: str, routing_key: str, **_: Any) -> None:
        """Publishes to the durable queues that are bound with the key, and to the exchange's topic for the others.
        Returns when the message is stored, unless it is transient or `confirm_publish` is off."""
        self._inplace_augment_message(message, exchange, routing_key)
        if not exchange:
            self._put(routing_key, message)
            return
        is_fanout, transient = self.typeof(exchange).type == "fanout", is_transient(message)
        queues: set[str] = set()
        if not is_fanout:
            queues = self._bound_queues(exchange, routing_key, fresh=False)
            if not queues and not transient:
                queues = self._bound_queues(exchange, routing_key, fresh=True)
        for queue in queues:
            self._put(queue, message)
        max_age_s = ABSENT_S if transient and not is_fanout else 0.0
        if self.cluster.has_exchange(exchange, monotonic(), max_age_s):
            with suppress(TopicNotFound):  # the exchange was deleted
                self.cluster.send(exchange_topic(self.cluster.namespace, exchange), message)
        elif not queues and not is_fanout and self.deadletter_queue:
            self._new_queue(self.deadletter_queue)
            self._put(self.deadletter_queue, message)

    def _put(self, queue: str, message: dict[str, Any], **_: Any) -> None:
        topic = queue_topic(self.cluster.namespace, queue, step_of(message, self.cluster.steps(queue)))
        try:
            if self.cluster.exists(topic):
                self.cluster.send(topic, message)
                return
        except TopicNotFound:
            if self.cluster.is_declared(queue):
                raise
        _log.warning("queue=%s a message was dropped, as AMQP does: the queue does not exist", queue)

    # Consuming ----------------------------------------------------------------------------------------------------

    def basic_consume(self, queue: str, no_ack: bool, callback: Any, consumer_tag: str, **kwargs: Any) -> None:
        """Delivers the queue's messages to `callback`, at most the prefetch count unacknowledged."""
        super().basic_consume(queue, no_ack, callback, consumer_tag, **kwargs)

        def deliver(payload: dict[str, Any]) -> Any:
            return callback(self._delivered(payload, no_ack=no_ack))

        self.connection._callbacks[queue] = deliver
        self._open(queue)
        self.connection.wake()

    def _delivered(self, payload: dict[str, Any], *, no_ack: bool) -> KombuMessage:
        message = KombuMessage(payload, channel=self)
        if no_ack:
            message.received.acknowledge()
        else:
            self.qos.append(message, message.delivery_tag)
        return message

    def _open(self, queue: str) -> None:
        if queue not in self.connection.sources:
            if queue in self.connection.ending:
                self._reopen_ending(queue)
            else:
                size = self.cluster.options.receiver_queue_size or min(
                    self.qos.prefetch_count or _MAX_INBOX, _MAX_INBOX
                )
                for topic, subscription in self.cluster.places(queue):
                    consumer = self.cluster.consumer(topic, subscription, size)
                    self.connection.add_source(queue, Source(consumer, self.connection.wake))

    def _reopen_ending(self, queue: str) -> None:
        bindings = list(self.state.queue_bindings(queue))
        for exchange, key, arguments in bindings:
            self._queue_bind(exchange, *self.typeof(exchange).prepare_bind(queue, exchange, key, arguments))
        if not bindings:
            topic = self.cluster.create_ending_topic(queue)
            consumer = self.cluster.ending_consumer(topic, queue, from_earliest=True)
            self.connection.add_source(queue, Source(consumer, self.connection.wake))
            self.connection.own_topics.add(topic)

    def basic_cancel(self, consumer_tag: str) -> None:
        """Ends a delivery. Messages in progress can still be acknowledged; those in the inbox go to other workers."""
        queue = self._tag_to_queue.get(consumer_tag)
        super().basic_cancel(consumer_tag)
        if queue is not None and queue not in self._active_queues and self.connection.ending.get(queue, True):
            self.connection.cancel_queue(queue)

    def drain_events(self, timeout: float | None = None, callback: Any = None) -> Any:
        """Delivers one message. Raises Empty when there is none, or the prefetch count is reached."""
        if self._consumers and not self.qos.can_consume():
            self._is_full = True
            if not self.qos.can_consume():  # no acknowledgement came between the two
                raise Empty
        return super().drain_events(timeout, callback)

    def has_room_again(self) -> None:
        """A message was settled: wakes the loop if it waits for room."""
        if self._is_full:
            self._is_full = False
            self.connection.wake()

    def basic_qos(self, prefetch_size: int = 0, prefetch_count: int = 0, apply_global: bool = False) -> None:
        """Sets the prefetch count; 0 for none."""
        super().basic_qos(prefetch_size, prefetch_count, apply_global)
        self.has_room_again()

    def _get(self, queue: str, timeout: float | None = None) -> dict[str, Any]:
        sources = self.connection.sources.get(queue)
        if sources is not None:
            while (found := sources.take()) is not None:
                payload = self._payload(queue, *found)
                if payload is not None:
                    return payload
        raise Empty

    def _payload(self, queue: str, source: Source, message: ReceivedMessage[bytes]) -> dict[str, Any] | None:
        """kombu's message; None for one whose time to live has passed."""
        received, payload = Received(source, message), decode(message.data(), message.properties())
        ttl_ms = time_to_live_ms(payload, self.connection.ttls_ms.get(queue))
        if ttl_ms is not None and self.cluster.now_ms() >= message.publish_timestamp() + ttl_ms:
            received.acknowledge()
            return None
        payload["received"] = received
        properties = payload["properties"]
        properties["delivery_tag"] = next(self._delivery_tags)
        properties["delivery_info"] = {
            **(properties.get("delivery_info") or {}),
            "redelivered": message.redelivery_count() > 0,
        }
        return payload

    def basic_get(self, queue: str, no_ack: bool = False, **_: Any) -> KombuMessage | None:
        """The next message of a queue; None when there is none that no other consumer holds, which may take a second
        to find out."""
        payload = self._waited_for(queue)
        return None if payload is None else self._delivered(payload, no_ack=no_ack)

    def _waited_for(self, queue: str) -> dict[str, Any] | None:
        if queue in self.connection.ending:
            self._open(queue)
        deadline = Deadline.after(GET_OPEN_S if queue in self.connection.sources else GET_S)
        while True:
            with suppress(Empty):
                return self._get(queue)
            if queue in self.connection.sources:
                self.connection.wait(_GET_STEP_MS / 1000)
                if deadline.passed():
                    return None
                continue
            payload = self._gotten(queue, deadline)
            if payload is not None or deadline.passed() or not self._size(queue):
                return payload

    def _gotten(self, queue: str, deadline: Deadline) -> dict[str, Any] | None:
        """Waits for the most urgent messages first, as long as there are any and the deadline has not passed."""
        for place, source in zip(self.cluster.places(queue), self._getters(queue).sources, strict=True):
            while True:
                message = source.wait(_GET_STEP_MS)
                payload = None if message is None else self._payload(queue, source, message)
                if payload is not None:
                    return payload
                if deadline.passed() or not self.cluster.backlog(*place):
                    break
        return None

    def _getters(self, queue: str) -> QueueSources:
        """Consumers that hold no message back, for synchronous gets."""
        getters: dict[str, QueueSources] = self.connection.getters
        if queue not in getters:
            getters[queue] = QueueSources(
                [Source(self.cluster.consumer(*place, 0), self.connection.wake) for place in self.cluster.places(queue)]
            )
        return getters[queue]

    def close(self) -> None:
        """Ends all deliveries; unacknowledged messages of its queues go to other consumers."""
        if self.closed:
            return
        if self.connection.is_forked():
            self.closed = True
            return
        connection, queues = self.connection, set(self._active_queues)
        super().close()
        for queue in queues:
            connection.close_cancelled(queue)
