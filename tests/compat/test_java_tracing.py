"""A trace that begins in a program on Pulsar's Java client goes on in the SDK: the program sends through a gateway, and
the span of the SDK's consumer is a child of the program's."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import pulsar_on_kafka as sdk
from pulsar_on_kafka.admin import AdminClient
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.gateway.server import Gateway, GatewaySettings
from tests.compat.harness.java.bridge import Bridge
from tests.compat.harness.java.runtime import JavaRuntime
from tests.compat.java_tracing import tracing_jars
from tests.steps import EARLIEST, PATIENCE_MS, Unique

pytestmark = [pytest.mark.pulsar, pytest.mark.kafka, pytest.mark.timeout(600)]


@pytest.fixture
def java() -> Iterator[Bridge]:
    with JavaRuntime(tracing_jars()) as runtime:
        yield Bridge(runtime.address, sdk)


@pytest.fixture
def gateway(admin: AdminClient) -> Iterator[str]:
    made = Gateway(admin.node, GatewaySettings(port=0))
    yield made.address()
    made.close(Deadline.after(60))


def test_a_java_producers_trace_is_continued(java: Bridge, gateway: str, service_url: str, unique: Unique) -> None:
    topic = unique()
    exported, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exported))
    client = sdk.Client(service_url, tracing=provider)
    consumer = client.subscribe(topic, "s", initial_position=EARLIEST)

    trace_id, span_id = _sent(java, gateway, topic)

    message = consumer.receive(PATIENCE_MS)
    assert message.data() == b"from Java"
    assert message.properties()["traceparent"].split("-")[:3] == ["00", trace_id, span_id]
    consumer.acknowledge(message)
    client.close()
    (received, processed) = (span for span in exported.get_finished_spans() if span.name.split()[1] == full(topic))
    assert received.name.startswith("receive ")
    assert [f"{link.context.span_id:016x}" for link in received.links] == [span_id]
    assert processed.name.startswith("process ")
    assert processed.context is not None
    assert processed.parent is not None
    assert (f"{processed.context.trace_id:032x}", f"{processed.parent.span_id:016x}") == (trace_id, span_id)


def full(topic: str) -> str:
    return f"persistent://public/default/{topic}"


def _sent(java: Bridge, gateway: str, topic: str) -> tuple[str, str]:
    """One message, sent by a program with a span of its own; gives its trace and span.

    The program puts its context into the message as Pulsar has it (`TracingContext.injectContext`): up to 4.2.4 the
    client's own producer interceptor does not. It is never `eligible`, because only its `beforeSend` would make it so.
    """
    otel: Any = java.jvm.io.opentelemetry
    propagator = otel.api.trace.propagation.W3CTraceContextPropagator.getInstance()
    telemetry = (
        otel.sdk.OpenTelemetrySdk.builder()
        .setTracerProvider(otel.sdk.trace.SdkTracerProvider.builder().build())
        .setPropagators(otel.context.propagation.ContextPropagators.create(propagator))
        .build()
    )
    builder = java.api.PulsarClient.builder().serviceUrl(gateway).openTelemetry(telemetry).enableTracing(True)
    client = java.call(builder.build)
    producer = java.call(client.newProducer().topic(topic).create)
    span = telemetry.getTracer("checkout").spanBuilder("checkout").startSpan()
    message = producer.newMessage()
    java.jvm.org.apache.pulsar.client.impl.tracing.TracingContext.injectContext(
        message, _context_of(java, span), propagator
    )
    java.call(message.value(b"from Java").send)
    span.end()
    java.call(client.close)
    context = span.getSpanContext()
    return str(context.getTraceId()), str(context.getSpanId())


def _context_of(java: Bridge, span: Any) -> Any:
    """`span.storeInContext(Context.root())`; py4j calls no default methods of interfaces."""
    kinds = java._gateway.new_array(java.jvm.java.lang.Class, 1)
    kinds[0] = java.jvm.java.lang.Class.forName("io.opentelemetry.context.Context")
    arguments = java._gateway.new_array(java.jvm.java.lang.Object, 1)
    arguments[0] = java.jvm.io.opentelemetry.context.Context.root()
    stored = java.jvm.java.lang.Class.forName("io.opentelemetry.api.trace.Span").getMethod("storeInContext", kinds)
    return stored.invoke(span, arguments)
