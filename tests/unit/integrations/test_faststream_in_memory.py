"""`TestPulsarBroker`, and what of a broker needs no cluster: routers, middlewares, parsers, errors, documents."""

from __future__ import annotations

import asyncio
import json
import logging
import subprocess
import sys
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from faststream import AckPolicy, BaseMiddleware, Context, Depends, FastStream, TestApp
from faststream.exceptions import IncorrectState, SetupError, SubscriberNotFound
from pydantic import BaseModel, ValidationError

import pulsar_on_kafka as pulsar
from pulsar_on_kafka.asyncio import PulsarException
from pulsar_on_kafka.integrations.faststream import (
    AsyncAPI,
    PulsarBroker,
    PulsarMessage,
    PulsarPublisher,
    PulsarRoute,
    PulsarRouter,
    TestPulsarBroker,
)

MESSAGE = Context("message")


class Order(BaseModel):
    id: int


def play(broker: PulsarBroker, test: Callable[[PulsarBroker], Coroutine[Any, Any, None]]) -> None:
    async def main() -> None:
        async with TestPulsarBroker(broker) as started:
            await test(started)

    asyncio.run(main())


def test_the_package_imports_nothing_of_it_and_names_the_extra() -> None:
    code = "import pulsar_on_kafka, sys; pulsar_on_kafka.Client; assert 'faststream' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
    code = "import sys; sys.modules['faststream'] = None\nimport pulsar_on_kafka.integrations.faststream"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60)
    assert "pip install 'pulsar-on-kafka[faststream]'" in ended.stderr


def test_handlers_and_publishers_record_their_calls() -> None:
    broker = PulsarBroker()
    publisher = broker.publisher("invoices")

    @broker.subscriber("orders", "billing")
    @publisher
    async def bill(order: Order) -> str:
        return f"invoice {order.id}"

    async def test(started: PulsarBroker) -> None:
        await started.publish(Order(id=1), "persistent://public/default/orders")
        bill.mock.assert_called_once_with({"id": 1})
        publisher.mock.assert_called_once_with("invoice 1")
        assert await started.ping()
        with pytest.raises(ValidationError):
            await started.publish({"id": "none"}, "orders")

    play(broker, test)


def test_each_subscription_has_the_message_once() -> None:
    broker, got = PulsarBroker(), []

    def subscribe(name: str, topic: str, subscription: str, **options: Any) -> None:
        @broker.subscriber(topic, subscription, **options)
        async def take(body: str) -> None:
            got.append(name)

    subscribe("worker", "orders", "billing")
    subscribe("worker", "orders", "billing")
    subscribe("archive", "orders", "archive")
    subscribe("pattern", "public/default/ord.*", "all", is_pattern_topic=True)
    subscribe("other", "others", "billing")

    async def test(started: PulsarBroker) -> None:
        await started.publish("a", "orders")

    play(broker, test)
    assert sorted(got) == ["archive", "pattern", "worker"]


def test_requests_return_what_the_handler_returns() -> None:
    broker = PulsarBroker()

    @broker.subscriber("numbers", "s")
    async def double(number: int) -> int:
        return 2 * number

    async def test(started: PulsarBroker) -> None:
        reply = await started.request(21, "numbers", correlation_id="c")
        assert (await reply.decode(), reply.correlation_id) == (42, "c")
        with pytest.raises(SubscriberNotFound, match="nobody"):
            await started.request(1, "nobody")

    play(broker, test)


def test_routers_prefix_topics_and_middlewares_see_every_message() -> None:
    seen: list[str] = []

    class Watch(BaseMiddleware[Any, Any]):
        async def consume_scope(self, call_next: Any, msg: Any) -> Any:
            seen.append(f"consume {msg.raw_message.topic_name().rpartition('/')[2]}")
            return await super().consume_scope(call_next, msg)

        async def publish_scope(self, call_next: Any, cmd: Any) -> Any:
            seen.append(f"publish {cmd.destination}")
            return await super().publish_scope(call_next, cmd)

    async def shout(body: str) -> str:
        return body.upper()

    broker = PulsarBroker(middlewares=[Watch])
    inner = PulsarRouter("billing-", [PulsarRoute(shout, "orders", "s", publishers=[PulsarPublisher("results")])])

    @inner.subscriber("results", subscription="s")
    async def take(body: str, n: int = Depends(lambda: 3), message: Any = MESSAGE) -> None:
        seen.append(f"{body} {n} {message.headers['correlation_id']}")

    outer = PulsarRouter("team-", routers=[inner], ack_policy=AckPolicy.MANUAL)
    broker.include_router(outer)
    assert {each.ack_policy for each in broker.subscribers} == {AckPolicy.NACK_ON_ERROR}

    async def test(started: PulsarBroker) -> None:
        await started.publish("a", "team-billing-orders", correlation_id="c")

    play(broker, test)
    assert seen == [
        "publish team-billing-orders",
        "consume team-billing-orders",
        "publish team-billing-results",
        "consume team-billing-results",
        "A 3 c",
    ]


def test_filters_parsers_and_decoders_are_faststreams() -> None:
    broker = PulsarBroker()
    got: list[tuple[Any, ...]] = []

    async def parse(message: Any, original: Any) -> Any:
        parsed = await original(message)
        parsed.headers["parsed"] = "yes"
        return parsed

    async def decode(message: Any, original: Any) -> Any:
        return {"decoded": await original(message)}

    subscriber = broker.subscriber("orders", "s", parser=parse, decoder=decode)

    @subscriber(filter=lambda message: message.headers.get("kind") == "order")
    async def order(body: Any, message: PulsarMessage) -> None:
        got.append(("order", body, message.headers["parsed"]))

    @subscriber
    async def other(body: Any) -> None:
        got.append(("other", body))

    async def test(started: PulsarBroker) -> None:
        await started.publish(1, "orders", headers={"kind": "order"})
        await started.publish(2, "orders")

    play(broker, test)
    assert got == [("order", {"decoded": 1}, "yes"), ("other", {"decoded": 2})]


def test_a_message_in_memory_has_its_keys_and_times_and_is_settled_once() -> None:
    broker = PulsarBroker()

    @broker.subscriber("orders", "s", ack_policy=AckPolicy.MANUAL)
    async def take(body: bytes, message: PulsarMessage) -> None:
        raw = message.raw_message
        assert (raw.partition_key(), raw.ordering_key(), raw.event_timestamp()) == ("k", "o", 7)
        assert (raw.data(), raw.value(), raw.topic_name()) == (b"a", b"a", "persistent://public/default/orders")
        assert (raw.properties()["n"], raw.redelivery_count(), message.message_id) == ("1", 0, str(raw.message_id()))
        await message.ack()
        await message.reject()
        assert message.committed is not None
        assert message.committed.value == "ACKED"

    async def test(started: PulsarBroker) -> None:
        sent = await started.publish(b"a", "orders", key="k", ordering_key="o", event_timestamp=7, headers={"n": "1"})
        assert isinstance(sent, pulsar.MessageId)

    play(broker, test)


def test_subscribers_may_start_during_a_test() -> None:
    broker, got = PulsarBroker(), []

    async def test(started: PulsarBroker) -> None:
        subscriber = started.subscriber("orders", "s")

        @subscriber
        async def take(body: str) -> None:
            got.append(body)

        await subscriber.start()
        await started.publish("a", "orders")
        await subscriber.stop()

    play(broker, test)
    assert got == ["a"]
    with pytest.raises(IncorrectState, match="not connected"):
        asyncio.run(broker.subscriber("orders", "s").get_one())


def test_an_application_runs_on_the_test_broker() -> None:
    broker, events = PulsarBroker(), []
    app = FastStream(broker)

    @app.after_startup
    async def first() -> None:
        await broker.publish("a", "orders")

    @broker.subscriber("orders", "s")
    async def take(body: str) -> None:
        events.append(body)

    async def main() -> None:
        async with TestPulsarBroker(broker, connect_only=True), TestApp(app):
            assert events == ["a"]

    asyncio.run(main())


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"max_workers": 0}, SetupError, "max_workers must be at least 1, got 0"),
        ({"receiver_queue_size": -1}, (ValueError, PulsarException), "receiver_queue_size"),
        ({"unacked_messages_timeout_ms": 5}, ValueError, "at least 10000, got 5"),
        ({"no_such_option": 1}, TypeError, "no_such_option"),
        ({"consumer_type": "Shared"}, (ValueError, TypeError), "consumer_type"),
    ],
)
def test_wrong_options_are_refused_where_they_are_written(
    options: dict[str, Any], error: type[Exception], text: str
) -> None:
    with pytest.raises(error, match=text):
        PulsarBroker().subscriber("orders", "s", **options)


def test_a_broker_that_is_not_connected_publishes_nothing() -> None:
    with pytest.raises(IncorrectState, match="not connected"):
        asyncio.run(PulsarBroker().publish("a", "orders"))


def test_a_router_of_another_broker_is_refused() -> None:
    with pytest.raises(SetupError, match="a PulsarRouter is expected, got object"):
        PulsarBroker().include_router(object())  # type: ignore[arg-type]


def test_log_lines_name_topic_and_subscription(capsys: pytest.CaptureFixture[str]) -> None:
    broker = PulsarBroker(logger=logging.getLogger("faststream-test"))
    subscriber = broker.subscriber("orders", "billing")
    assert subscriber.get_log_context(None) == {"topic": "orders", "subscription": "billing", "message_id": ""}


@pytest.mark.parametrize("version", ["3.0.0", "2.6.0"])
def test_the_asyncapi_document_names_channels_types_and_pulsars_bindings(version: str) -> None:
    broker = PulsarBroker("kafka://a:9092", description="Orders")

    @broker.subscriber("shop/eu/orders", "billing")
    @broker.publisher("non-persistent://shop/eu/invoices")
    async def bill(order: Order) -> int:
        """Bills an order."""
        return 1

    @broker.subscriber("shop/eu/.*", "audit", is_pattern_topic=True)
    async def audit(body: bytes) -> None: ...

    document = json.loads(AsyncAPI(broker, title="Billing", schema_version=version).to_specification().to_json())
    binding = {"namespace": "eu", "bindingVersion": "0.1.0"}

    def named(name: str) -> str:
        return name.replace("/", ".") if version == "3.0.0" else name

    orders = document["channels"][named("shop/eu/orders:Bill")]
    assert orders["bindings"] == {"pulsar": {**binding, "persistence": "persistent"}}
    [invoices] = [channel for name, channel in document["channels"].items() if "invoices" in name]
    assert invoices["bindings"] == {"pulsar": {**binding, "persistence": "non-persistent"}}
    assert "bindings" not in document["channels"][named("shop/eu/.*:Audit")]
    server = document["servers"]["development"]
    assert server["bindings"] == {"pulsar": {"tenant": "shop", "bindingVersion": "0.1.0"}}
    assert (server["protocol"], server["description"]) == ("kafka", "Orders")
    assert document["components"]["schemas"]["Order"]["properties"] == {"id": {"title": "Id", "type": "integer"}}
    if version == "3.0.0":
        assert orders["address"] == "shop/eu/orders"
        assert {name: each["action"] for name, each in document["operations"].items()} == {
            "shop.eu.orders:BillSubscribe": "receive",
            "shop.eu..*:AuditSubscribe": "receive",
            "non-persistent:..shop.eu.invoices:Publisher": "send",
        }
