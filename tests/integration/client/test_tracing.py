"""Spans of what is sent and received, as OpenTelemetry's SDK exports them. Docs: docs/tracing.md."""

from __future__ import annotations

import asyncio
import json
import re
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from opentelemetry import baggage, trace
from opentelemetry import context as otel
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind

import pulsar_on_kafka as pulsar
import pulsar_on_kafka.asyncio as pulsar_asyncio
from pulsar_on_kafka.admin import AdminClient
from pulsar_on_kafka.client.tracing import ACKNOWLEDGMENT, context_of
from tests.programs import ROOT, run_program
from tests.steps import EARLIEST, PATIENCE_MS, SHARED, Unique, send
from tests.waiting import until


class Spans:
    """What was exported, and a provider that exports it."""

    def __init__(self) -> None:
        self.exporter = InMemorySpanExporter()
        self.provider = TracerProvider()
        self.provider.add_span_processor(SimpleSpanProcessor(self.exporter))

    def named(self, name: str) -> list[ReadableSpan]:
        return [span for span in self.exporter.get_finished_spans() if span.name == name]

    def names(self) -> list[str]:
        return [span.name for span in self.exporter.get_finished_spans()]

    def one(self, name: str) -> ReadableSpan:
        until(
            lambda: self.named(name), lambda: f"{name!r} among {[s.name for s in self.exporter.get_finished_spans()]}"
        )
        (found,) = self.named(name)
        return found


@pytest.fixture
def spans() -> Spans:
    return Spans()


@pytest.fixture
def traced(spans: Spans, service_url: str) -> Iterator[pulsar.Client]:
    client = pulsar.Client(service_url, tracing=spans.provider)
    yield client
    client.shutdown()


def full(topic: str) -> str:
    return f"persistent://public/default/{topic}"


def attributes(span: ReadableSpan) -> dict[str, object]:
    return dict(span.attributes or {})


def context(span: ReadableSpan) -> tuple[int, int]:
    return span.context.trace_id, span.context.span_id


def parent(span: ReadableSpan) -> tuple[int, int]:
    assert span.parent is not None
    return span.parent.trace_id, span.parent.span_id


def links(span: ReadableSpan) -> list[tuple[int, int]]:
    return [(link.context.trace_id, link.context.span_id) for link in span.links]


def test_a_trace_goes_from_the_program_that_sends_to_the_one_that_works(
    traced: pulsar.Client, spans: Spans, unique: Unique
) -> None:
    topic = unique()
    tracer = spans.provider.get_tracer("the program")
    consumer = traced.subscribe(topic, "s", SHARED, initial_position=EARLIEST, consumer_name="worker")
    producer = traced.create_producer(topic, producer_name=unique("sender"))
    token = otel.attach(baggage.set_baggage("order", "7"))
    with tracer.start_as_current_span("a request"):
        message_id = producer.send(b"x", {"a": "1"})
    otel.detach(token)
    message = consumer.receive(PATIENCE_MS)
    with tracer.start_as_current_span("bill", context=context_of(message)):
        assert baggage.get_baggage("order") is None  # not of this thread, but of the context:
        assert baggage.get_baggage("order", context_of(message)) == "7"
    assert spans.named(f"process {full(topic)}") == []  # until it is acknowledged
    consumer.acknowledge(message)

    request, sent = spans.one("a request"), spans.one(f"send {full(topic)}")
    received, processed, billed = (
        spans.one(f"receive {full(topic)}"), spans.one(f"process {full(topic)}"), spans.one("bill")
    )  # fmt: skip
    assert message.properties().keys() == {"a", "traceparent", "baggage"}
    carried = message.properties()["traceparent"]
    assert carried[:-2] == f"00-{request.context.trace_id:032x}-{sent.context.span_id:016x}-"
    assert parent(sent) == context(request)
    assert parent(processed) == context(sent)
    assert parent(billed) == context(processed)
    assert links(received) == [context(sent)]
    assert links(processed) == [context(received)]
    assert [span.kind for span in (sent, received, processed)] == [
        SpanKind.PRODUCER, SpanKind.CLIENT, SpanKind.CONSUMER,
    ]  # fmt: skip
    everywhere = {"messaging.system": "pulsar", "messaging.destination.name": full(topic)}
    of_message = {**everywhere, "messaging.message.id": str(message_id)}
    of_subscription = {**of_message, "messaging.destination.subscription.name": "s"}
    assert attributes(sent) == {
        **of_message, "messaging.operation.name": "send", "messaging.operation.type": "send",
        "messaging.client.id": producer.producer_name(),
    }  # fmt: skip
    assert attributes(received) == {
        **of_subscription, "messaging.operation.name": "receive", "messaging.operation.type": "receive",
    }  # fmt: skip
    assert attributes(processed) == {
        **of_subscription, "messaging.operation.name": "process", "messaging.operation.type": "process",
        ACKNOWLEDGMENT: "acknowledge",
    }  # fmt: skip


# What Pulsar's Java client 4.2 (TracingContext.injectContext, PIP-446) puts into the properties of a message: W3C's
# fields (tests/compat/test_java_tracing.py has that client itself). The ids are those of the examples in W3C's Trace
# Context.
OF_JAVA = {
    "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
    "tracestate": "rojo=00f067aa0ba902b7,congo=t61rcWkgMzE",
}


def test_a_java_producers_trace_is_continued(
    client: pulsar.Client, traced: pulsar.Client, spans: Spans, unique: Unique
) -> None:
    topic = unique()
    client.create_producer(topic).send(b"x", OF_JAVA)
    consumer = traced.subscribe(topic, "s", initial_position=EARLIEST)
    consumer.acknowledge(consumer.receive(PATIENCE_MS))
    java = (0x0AF7651916CD43DD8448EB211C80319C, 0xB7AD6B7169203331)
    processed = spans.one(f"process {full(topic)}")
    assert parent(processed) == java
    assert processed.context.trace_state.to_header() == OF_JAVA["tracestate"]
    assert links(spans.one(f"receive {full(topic)}")) == [java]


def test_a_context_that_the_program_puts_there_goes_along(traced: pulsar.Client, spans: Spans, unique: Unique) -> None:
    topic = unique()
    consumer = traced.subscribe(topic, "s", initial_position=EARLIEST)
    traced.create_producer(topic).send(b"x", OF_JAVA)
    assert consumer.receive(PATIENCE_MS).properties() == OF_JAVA
    sent = spans.one(f"send {full(topic)}")
    assert sent.kind is SpanKind.CLIENT
    assert links(sent) == [(0x0AF7651916CD43DD8448EB211C80319C, 0xB7AD6B7169203331)]


def how(spans: Spans, topic: str) -> list[object]:
    return [attributes(span).get(ACKNOWLEDGMENT) for span in spans.named(f"process {full(topic)}")]


@pytest.mark.parametrize(
    ("settle", "said"),
    [
        (lambda consumer, messages: consumer.acknowledge(messages[0].message_id()), ["acknowledge"]),
        (lambda consumer, messages: consumer.acknowledge_cumulative(messages[1]), ["cumulative_acknowledge"] * 2),
        (lambda consumer, messages: consumer.negative_acknowledge(messages[0]), ["negative_acknowledge"]),
        (lambda consumer, messages: consumer.redeliver_unacknowledged_messages(), ["negative_acknowledge"] * 3),
        (lambda consumer, messages: consumer.close(), [None] * 3),
        (lambda consumer, messages: consumer.unsubscribe(), [None] * 3),
    ],
    ids=["acknowledge", "cumulative", "negative", "redeliver", "close", "unsubscribe"],
)
def test_a_process_span_tells_how_it_ended(
    traced: pulsar.Client,
    spans: Spans,
    unique: Unique,
    settle: Callable[[pulsar.Consumer, list[pulsar.Message]], None],
    said: list[object],
) -> None:
    topic = unique()
    consumer = traced.subscribe(topic, "s", initial_position=EARLIEST)
    send(traced, topic, 3)
    settle(consumer, [consumer.receive(PATIENCE_MS) for _ in range(3)])
    assert how(spans, topic) == said


@pytest.mark.long
def test_an_acknowledgement_timeout_ends_a_span_and_the_redelivery_has_its_own(
    traced: pulsar.Client, spans: Spans, unique: Unique
) -> None:
    topic = unique()
    consumer = traced.subscribe(topic, "s", SHARED, initial_position=EARLIEST, unacked_messages_timeout_ms=10_000)
    send(traced, topic, 1)
    consumer.receive(PATIENCE_MS)
    again = consumer.receive(PATIENCE_MS)
    assert again.redelivery_count() == 1
    until(lambda: how(spans, topic) == ["ack_timeout"], lambda: f"ack_timeout, got {how(spans, topic)}")
    consumer.acknowledge(again)
    assert how(spans, topic) == ["ack_timeout", "acknowledge"]


def test_a_batch_is_received_in_one_span_that_is_linked_to_each_message(
    traced: pulsar.Client, spans: Spans, unique: Unique
) -> None:
    topic = unique()
    policy = pulsar.ConsumerBatchReceivePolicy(3, -1, PATIENCE_MS)
    consumer = traced.subscribe([topic], "s", SHARED, initial_position=EARLIEST, batch_receive_policy=policy)
    producer = traced.create_producer(topic, batching_enabled=True, batching_max_messages=3)
    for _ in range(3):
        producer.send_async(b"x", None)
    messages = consumer.batch_receive()
    producer.flush()  # a send's span ends when its sender has heard, which may be after a consumer has the message
    received = spans.one(f"receive {full(topic)}")
    assert attributes(received)["messaging.batch.message_count"] == 3
    sent = sorted(context(span) for span in spans.named(f"send {full(topic)}"))
    assert sorted(links(received)) == sent
    for message in messages:
        consumer.acknowledge(message)
    processed = spans.named(f"process {full(topic)}")
    assert sorted(parent(span) for span in processed) == sent
    assert len({attributes(span)["messaging.message.id"] for span in processed}) == 3


def test_a_listener_runs_in_its_messages_process_span(traced: pulsar.Client, spans: Spans, unique: Unique) -> None:
    topic, heard = unique(), threading.Event()
    tracer = spans.provider.get_tracer("the program")

    def listener(consumer: pulsar.Consumer, message: pulsar.Message) -> None:
        with tracer.start_as_current_span("bill"):
            consumer.acknowledge(message)
        heard.set()

    send(traced, topic, 1)
    traced.subscribe(topic, "s", message_listener=listener, initial_position=EARLIEST)
    assert heard.wait(60)
    processed = spans.one(f"process {full(topic)}")
    assert parent(spans.one("bill")) == context(processed)
    assert parent(processed) == context(spans.one(f"send {full(topic)}"))


def test_a_partition_is_an_attribute_and_not_part_of_the_name(
    traced: pulsar.Client, spans: Spans, unique: Unique, admin: AdminClient
) -> None:
    topic = unique()
    admin.create_partitioned_topic(topic, 2)
    consumer = traced.subscribe(topic, "s", initial_position=EARLIEST)
    send(traced, f"{topic}-partition-1", 1)
    consumer.acknowledge(consumer.receive(PATIENCE_MS))
    for name in ("send", "receive", "process"):
        assert attributes(spans.one(f"{name} {full(topic)}"))["messaging.destination.partition.id"] == "1"


def test_a_refused_message_is_a_failed_span(traced: pulsar.Client, spans: Spans, unique: Unique) -> None:
    topic = unique()
    producer = traced.create_producer(topic)
    with pytest.raises(pulsar.exceptions.MessageTooBig):
        producer.send(b"x" * 10_000_000)
    sent = spans.one(f"send {full(topic)}")
    assert attributes(sent)["error.type"] == "MessageTooBig"
    assert sent.status.status_code is trace.StatusCode.ERROR
    with pytest.raises(ValueError, match="properties"):
        producer.send(b"x", "no properties")  # type: ignore[arg-type]


def test_asyncio_continues_traces_too(spans: Spans, service_url: str, unique: Unique) -> None:
    topic = unique()
    tracer = spans.provider.get_tracer("the program")

    async def main() -> None:
        client = pulsar_asyncio.Client(service_url, tracing=spans.provider)
        consumer = await client.subscribe(topic, "s", initial_position=EARLIEST)
        producer = await client.create_producer(topic)
        waiting = asyncio.ensure_future(consumer.receive())
        with tracer.start_as_current_span("a request"):
            await producer.send(b"x")
        await consumer.acknowledge(await waiting)
        await client.close()

    asyncio.run(main())
    sent = spans.one(f"send {full(topic)}")
    assert parent(sent) == context(spans.one("a request"))
    assert parent(spans.one(f"process {full(topic)}")) == context(sent)
    assert links(spans.one(f"receive {full(topic)}")) == [context(sent)]


def test_what_a_transaction_holds_is_acknowledged(spans: Spans, service_url: str, unique: Unique) -> None:
    topic = unique()
    client = pulsar.Client(service_url, tracing=spans.provider, enable_transaction=True)
    consumer = client.subscribe(topic, "s", SHARED, initial_position=EARLIEST)
    send(client, topic, 1)
    transaction = client.new_transaction()
    consumer.acknowledge(consumer.receive(PATIENCE_MS), txn=transaction)
    transaction.commit()
    assert how(spans, topic) == ["acknowledge"]
    client.close()


def test_a_client_that_goes_with_its_tenant_is_traced_too(
    spans: Spans, service_url: str, unique: Unique, tmp_path: Path
) -> None:
    topic, tenants = unique(), tmp_path / "tenants.json"
    tenants.write_text(json.dumps({"clusters": {"here": service_url}, "tenants": {"public": "here"}}))
    client = pulsar.Client(f"pok+map://{tenants}", tracing=spans.provider)
    consumer = client.subscribe(topic, "s", SHARED, initial_position=EARLIEST)
    send(client, topic, 1)
    consumer.acknowledge(consumer.receive(PATIENCE_MS))
    client.close()
    assert parent(spans.one(f"process {full(topic)}")) == context(spans.one(f"send {full(topic)}"))
    assert how(spans, topic) == ["acknowledge"]


def test_the_program_of_the_page_prints_its_spans(service_url: str, unique: Unique) -> None:
    page = (ROOT / "docs" / "tracing.md").read_text(encoding="utf-8")
    (program,) = re.findall(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    program = program.replace("kafka://localhost:9092", service_url).replace('"orders"', repr(unique()))
    status, out, err = run_program(program)
    assert status == 0, err
    assert "b'order 7'" in out
    printed = re.findall(r'^    "name": "(\w+)', out, re.MULTILINE)
    assert sorted(printed) == ["bill", "checkout", "process", "receive", "send"]
    assert len(set(re.findall(r'"trace_id": "(\w+)"', out))) == 2  # `receive` stands alone, with a link
