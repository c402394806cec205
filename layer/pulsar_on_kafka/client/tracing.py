"""A traced client creates OpenTelemetry spans for the sends of its producers and the receives of its consumers.
docs/tracing.md

This module is imported only for `Client(..., tracing=...)`: `opentelemetry-api` is an extra.

Sources: OpenTelemetry's semantic conventions for messaging spans, and PIP-446 (Pulsar's Java client since 4.2).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from typing import Any, Final, NamedTuple

from opentelemetry import context as otel
from opentelemetry import propagate, trace
from opentelemetry.trace import Link, Span, SpanKind, Status, StatusCode

from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.base.meters import SendCounts
from pulsar_on_kafka.base.scheduler import Scheduler
from pulsar_on_kafka.broker.publishing.in_flight import NO_ID, OwnCallback, SendCallback, fail, is_waited_for
from pulsar_on_kafka.broker.publishing.transactional_sends import Transaction
from pulsar_on_kafka.client.consumer.consumer import Consumer, ConsumerOptions, MessageListener
from pulsar_on_kafka.client.consumer.transactional_acks import AckUnderWay
from pulsar_on_kafka.client.producer.producer import Producer, Sends
from pulsar_on_kafka.client.receiving.receiving import ReceiveCallback
from pulsar_on_kafka.client.values.message import Message
from pulsar_on_kafka.client.values.message_id import native
from pulsar_on_kafka.exceptions import PulsarException, Result
from pulsar_on_kafka_mapping.ids.native_message_id import NativeMessageId
from pulsar_on_kafka_mapping.names.topic_name import TopicName

ACKNOWLEDGMENT: Final = "messaging.pulsar.acknowledgment.type"
"""The end of a process span. Source: PIP-446."""
MAX_OPEN: Final = 50_000
"""Process spans of one consumer that are open at a time: as many as Pulsar lets a consumer leave unacknowledged."""

_SCHEMA_URL: Final = "https://opentelemetry.io/schemas/1.30.0"
_TIMEOUT_STEPS: Final = 10


class Tracing:
    """The tracer of one client's producers and consumers, with the propagator that is set when the client is created
    (W3C's trace context and baggage unless the program sets another)."""

    def __init__(self, provider: trace.TracerProvider | None) -> None:
        """None: the global provider."""
        self._tracer = trace.get_tracer("pulsar_on_kafka", tracer_provider=provider, schema_url=_SCHEMA_URL)
        self._propagator = propagate.get_global_textmap()

    def producer(self, producer: Producer) -> Producer:
        """The same producer, whose sends are spans."""
        sends = _TracedSends(producer.sender, self)
        producer.sender = sends
        if "send_async" in vars(producer):  # the way of messages that was chosen when it was opened
            producer.send_async = sends.send  # type: ignore[method-assign]
        return producer

    def consumer(self, options: ConsumerOptions, subscribe: Callable[[MessageListener | None], Consumer]) -> Consumer:
        """The consumer that `subscribe` opens with the listener that it is given; its messages are spans."""
        spans = _ProcessSpans(self, options)
        listener = options.message_listener

        def traced_listener(consumer: Consumer, message: Message) -> None:
            assert listener is not None  # noqa: S101 - it is only set where there is one
            _traced(consumer, spans)  # its first message may come before `subscribe` returns
            token = otel.attach(spans.begin(message))
            try:
                listener(consumer, message)
            finally:
                otel.detach(token)

        return _traced(subscribe(None if listener is None else traced_listener), spans)

    def inject(self, properties: dict[str, str], context: otel.Context) -> None:
        self._propagator.inject(properties, context)

    def origin(self, properties: Mapping[str, str]) -> trace.SpanContext:
        """The context that a message carries; an invalid one where it has none."""
        return trace.get_current_span(self.extract(properties, otel.Context())).get_span_context()

    def extract(self, properties: Mapping[str, str], context: otel.Context) -> otel.Context:
        return self._propagator.extract(properties, context)

    def carried(self, properties: Mapping[str, str]) -> bool:
        """Whether the program put a context into the properties itself: that context is kept."""
        return any(field in properties for field in self._propagator.fields)

    def span(
        self,
        operation: str,
        kind: SpanKind,
        topic: str,
        attributes: Mapping[str, str | int],
        *,
        context: otel.Context | None = None,
        links: list[Link] | None = None,
        start_ns: int | None = None,
    ) -> Span:
        """A span that has begun, of `topic` (a full name, perhaps with the suffix of a partition)."""
        base, partition = _place(topic)
        where = {"messaging.destination.partition.id": partition} if partition else {}
        return self._tracer.start_span(
            f"{operation} {base}",
            context,
            kind,
            {
                # Programs see Pulsar's topics, subscriptions and message ids, and a trace continues between them and
                # Pulsar's own clients: the storage in Kafka is not visible to them.
                "messaging.system": "pulsar",
                "messaging.operation.name": operation,
                "messaging.operation.type": operation,
                "messaging.destination.name": base,
                **where,
                **attributes,
            },
            links,
            start_ns,
        )


@cache
def _place(topic: str) -> tuple[str, str]:
    """A topic's name and its partition's number as a text, '' for none. Memory: the names of one process's topics."""
    name = TopicName.parse(topic)
    return str(name.base), "" if name.partition < 0 else str(name.partition)


def _end(span: Span, error: Exception | None = None, result: Result = Result.Ok) -> None:
    if error is not None:
        span.record_exception(error)
        span.set_attribute("error.type", type(error).__qualname__)
        span.set_status(Status(StatusCode.ERROR, str(error)))
    elif result is not Result.Ok:
        span.set_attribute("error.type", result.name)
        span.set_status(Status(StatusCode.ERROR, result.name))
    span.end()


class _TracedSends:
    """The traced sender begins a span with each message, puts its context into the message's properties, and ends it
    with the answer."""

    def __init__(self, sender: Sends, tracing: Tracing) -> None:
        self._sender = sender
        self._tracing = tracing
        self.flush = sender.flush
        self.close = sender.close
        self.topic = sender.topic
        self.is_connected = sender.is_connected
        self.last_sequence_id = sender.last_sequence_id
        self.wait_for_all: Callable[[Deadline], int] = sender.wait_for_all
        self.wait_for_callbacks = sender.wait_for_callbacks
        self.send_counts: Callable[[], SendCounts] = sender.send_counts

    @property
    def name(self) -> str:
        return self._sender.name

    def send(
        self,
        content: Any,
        callback: SendCallback | None,
        properties: object = None,
        *rest: Any,
        **options: Any,
    ) -> None:
        """Arguments and answers as of `Producer.send_async`."""
        if not isinstance(properties, dict | None):
            self._sender.send(content, callback, properties, *rest, **options)  # which refuses them
            return
        tracing, carrier = self._tracing, dict(properties or {})
        own = tracing.carried(carrier)
        links = [Link(origin)] if own and (origin := tracing.origin(carrier)).is_valid else []
        kind = SpanKind.CLIENT if own else SpanKind.PRODUCER
        who = {"messaging.client.id": self.name}
        span = tracing.span("send", kind, self.topic(), who, links=links)
        if not own:
            tracing.inject(carrier, trace.set_span_in_context(span))
        try:
            self._sender.send(content, _SendSpan(span, callback), carrier, *rest, **options)
        except BaseException as refused:
            _end(span, refused if isinstance(refused, Exception) else None)
            raise


class _SendSpan(OwnCallback):
    """The callback of a traced send ends its span, then calls the program's."""

    def __init__(self, span: Span, callback: SendCallback | None) -> None:
        self._span = span
        self._callback = callback
        self.waited_for = is_waited_for(callback)

    def __call__(self, result: Result, message_id: NativeMessageId) -> None:
        if message_id is not NO_ID:
            self._span.set_attribute("messaging.message.id", str(message_id))
        _end(self._span, result=result)
        if self._callback is not None:
            self._callback(result, message_id)

    def fail(self, failure: PulsarException) -> None:
        _end(self._span, failure)
        fail(self._callback, failure)


_Order = tuple[int, int, int, int]


class _Open(NamedTuple):
    span: Span
    since_s: float


class _ProcessSpans:
    """The process spans of one consumer: each begins when its message is received, and ends when that is acknowledged,
    refused, over its ack time-out, received again, or left by the consumer. Thread-safe.

    Memory: `MAX_OPEN` spans; beyond them the oldest one ends, without a word how.
    """

    def __init__(self, tracing: Tracing, options: ConsumerOptions) -> None:
        self._tracing = tracing
        self._subscription = options.subscription_name
        self._timeout_s = (options.unacked_messages_timeout_ms or 0) / 1000
        self._scheduler = Scheduler("pok-tracing")
        self._open: dict[tuple[str, _Order], _Open] = {}
        self._lock = threading.Lock()
        if self._timeout_s:
            self._scheduler.every(self._timeout_s / _TIMEOUT_STEPS, self._expire)

    def received(self, messages: list[Message], start_ns: int, *, batch: bool = False) -> None:
        """One receive gave these: a span of its own, linked to where they come from, and a process span for each."""
        if not messages and not batch:
            return
        tracing = self._tracing
        links = [Link(origin) for each in messages if (origin := tracing.origin(each.properties())).is_valid]
        attributes: dict[str, str | int] = {"messaging.destination.subscription.name": self._subscription}
        if batch:
            attributes["messaging.batch.message_count"] = len(messages)
        else:
            attributes["messaging.message.id"] = str(messages[0].message_id())
        if messages:
            topic = messages[0].topic_name()
            span = tracing.span("receive", SpanKind.CLIENT, topic, attributes, links=links, start_ns=start_ns)
            span.end()
            for message in messages:
                self.begin(message, span.get_span_context())

    def begin(self, message: Message, receive: trace.SpanContext | None = None) -> otel.Context:
        """Begin a message's process span: a child of the span that it was sent in, linked to the one that received it;
        the context to work on it in."""
        properties, message_id = message.properties(), message.message_id()
        context = self._tracing.extract(properties, otel.get_current())
        span = self._tracing.span(
            "process",
            SpanKind.CONSUMER,
            message.topic_name(),
            {
                "messaging.destination.subscription.name": self._subscription,
                "messaging.message.id": str(message_id),
            },
            context=context,
            links=[] if receive is None else [Link(receive)],
        )
        context = trace.set_span_in_context(span, context)
        message.trace_context = context  # type: ignore[misc] # a field of ReceivedMessage
        place = message_id.topic_of_message(), message_id._order()
        with self._lock:
            ended = [self._open.pop(place, None)]  # it came again
            self._open[place] = _Open(span, time.monotonic())
            if len(self._open) > MAX_OPEN:
                ended.append(self._open.pop(next(iter(self._open))))
        for each in ended:
            if each is not None:
                each.span.end()
        return context

    @contextmanager
    def ending(self, message: object, how: str, *, up_to: bool = False) -> Iterator[None]:
        """The block ends the span of a message, or with `up_to` those of its partition up to it; the span gets an
        exception of the block."""
        try:
            yield
        except Exception as error:
            self._end(message, how, up_to, error)
            raise
        self._end(message, how, up_to)

    def _end(self, message: object, how: str, up_to: bool, error: Exception | None = None) -> None:
        found = message.message_id() if isinstance(message, Message) else native(message)
        if found is None:
            return
        topic, order = found.topic_of_message(), found._order()
        with self._lock:
            if up_to:
                places = [
                    each for each in self._open if each[0] == topic and each[1][3] == order[3] and each[1] <= order
                ]
            else:
                places = [(topic, order)]
            ended = [opened for place in places if (opened := self._open.pop(place, None)) is not None]
        for each in ended:
            if error is None:
                each.span.set_attribute(ACKNOWLEDGMENT, how)
            _end(each.span, error)

    def end_all(self, how: str | None = None) -> None:
        with self._lock:
            ended, self._open = self._open, {}
        for each in ended.values():
            if how is not None:
                each.span.set_attribute(ACKNOWLEDGMENT, how)
            each.span.end()

    def _expire(self) -> None:
        due_s = time.monotonic() - self._timeout_s
        with self._lock:
            late = [place for place, opened in self._open.items() if opened.since_s <= due_s]
            ended = [self._open.pop(place) for place in late]
        for each in ended:
            each.span.set_attribute(ACKNOWLEDGMENT, "ack_timeout")
            each.span.end()

    def close(self) -> None:
        self._scheduler.close()
        self.end_all()


class _TracedCalls:
    """The traced methods of a consumer: the consumer has them as its own (`_traced`), for any class."""

    def __init__(self, consumer: Consumer, spans: _ProcessSpans) -> None:
        self._consumer = consumer
        self._own = type(consumer)
        self._spans = spans

    def receive(self, timeout_millis: int | None = None) -> Message:
        start_ns = time.time_ns()
        message = self._own.receive(self._consumer, timeout_millis)
        self._spans.received([message], start_ns)
        return message

    def batch_receive(self) -> list[Message]:
        start_ns = time.time_ns()
        messages = self._own.batch_receive(self._consumer)
        self._spans.received(messages, start_ns, batch=True)
        return messages

    def receive_async(self, callback: ReceiveCallback) -> None:
        start_ns, requesting = time.time_ns(), otel.get_current()

        def on_message(result: Result, message: Message | None) -> None:
            if message is not None:
                token = otel.attach(requesting)
                try:
                    self._spans.received([message], start_ns)
                finally:
                    otel.detach(token)
            callback(result, message)

        self._own.receive_async(self._consumer, on_message)

    def acknowledge(
        self, message: Message | NativeMessageId | Any, *, txn: Transaction | None = None, wait: bool = False
    ) -> None:
        with self._spans.ending(message, "acknowledge"):
            self._own.acknowledge(self._consumer, message, txn=txn, wait=wait)

    def acknowledge_cumulative(
        self, message: Message | NativeMessageId | Any, *, txn: Transaction | None = None, wait: bool = False
    ) -> None:
        with self._spans.ending(message, "cumulative_acknowledge", up_to=True):
            self._own.acknowledge_cumulative(self._consumer, message, txn=txn, wait=wait)

    def begin_acknowledging(self, message: Message | NativeMessageId | Any, txn: Transaction) -> AckUnderWay:
        with self._spans.ending(message, "acknowledge"):
            return self._own.begin_acknowledging(self._consumer, message, txn)

    def begin_acknowledging_cumulative(self, message: Message | NativeMessageId | Any, txn: Transaction) -> AckUnderWay:
        with self._spans.ending(message, "cumulative_acknowledge", up_to=True):
            return self._own.begin_acknowledging_cumulative(self._consumer, message, txn)

    def negative_acknowledge(self, message: Message | NativeMessageId, *, reason: str | None = None) -> None:
        with self._spans.ending(message, "negative_acknowledge"):
            self._own.negative_acknowledge(self._consumer, message, reason=reason)

    def reconsume_later(
        self,
        message: Message,
        delay_ms: int | None = None,
        properties: dict[str, str] | None = None,
        *,
        reason: str | None = None,
    ) -> None:
        with self._spans.ending(message, "acknowledge"):
            self._own.reconsume_later(self._consumer, message, delay_ms, properties, reason=reason)

    def redeliver_unacknowledged_messages(self) -> None:
        self._own.redeliver_unacknowledged_messages(self._consumer)
        self._spans.end_all("negative_acknowledge")

    def unsubscribe(self) -> None:
        self._own.unsubscribe(self._consumer)
        self._spans.close()

    def leave(self) -> None:
        self._own.leave(self._consumer)
        self._spans.close()


_CALLS: Final = tuple(name for name in vars(_TracedCalls) if not name.startswith("_"))


def _traced(consumer: Consumer, spans: _ProcessSpans) -> Consumer:
    """The same consumer, with spans; only once."""
    if "receive" not in vars(consumer):
        calls = _TracedCalls(consumer, spans)
        for name in _CALLS:
            setattr(consumer, name, getattr(calls, name))
    return consumer


def context_of(message: Message) -> otel.Context:
    """The context to work on a message in: `tracer.start_as_current_span("bill", context=context_of(message))`.

    That of its process span where the consumer is traced; else the one that the message carries.
    """
    found: otel.Context | None = getattr(message, "trace_context", None)
    return propagate.extract(message.properties()) if found is None else found
