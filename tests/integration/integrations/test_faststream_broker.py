"""`PulsarBroker` on a real broker: what FastStream promises of each of its brokers, and what Pulsar adds."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from datetime import timedelta
from typing import Any

import pytest
from faststream import AckPolicy, FastStream, TestApp
from faststream.exceptions import FeatureNotSupportedException, NackMessage, RejectMessage, StopConsume
from pydantic import BaseModel

import pulsar_on_kafka as pulsar
from pulsar_on_kafka.asyncio import PulsarException
from pulsar_on_kafka.integrations.faststream import (
    PulsarBroker,
    PulsarMessage,
    PulsarResponse,
    TestPulsarBroker,
)
from tests.steps import EARLIEST, Unique, nothing_comes, payloads, receive
from tests.waiting import PATIENCE_S

pytestmark = pytest.mark.kafka
SHARED = pulsar.ConsumerType.Shared
SOON_MS = 50


class Inbox:
    """What handlers got, in order; `await inbox.of(n)` waits for that many."""

    def __init__(self) -> None:
        self.got: list[Any] = []
        self._more = asyncio.Condition()

    async def put(self, item: Any) -> None:
        async with self._more:
            self.got.append(item)
            self._more.notify_all()

    async def of(self, count: int) -> list[Any]:
        async with self._more:
            await asyncio.wait_for(self._more.wait_for(lambda: len(self.got) >= count), PATIENCE_S)
        return self.got


class Order(BaseModel):
    id: int
    paid: bool = False


Run = Callable[[PulsarBroker, Unique, Inbox], Coroutine[Any, Any, None]]


@pytest.fixture
def run(service_url: str, unique: Unique) -> Callable[[Run], None]:
    def run_on_a_broker(test: Run) -> None:
        async def main() -> None:
            broker = PulsarBroker(service_url, reply_topic=unique("replies"))
            try:
                await test(broker, unique, Inbox())
            finally:
                await broker.stop()

        asyncio.run(main())

    return run_on_a_broker


def test_handlers_get_models_and_what_they_return_is_published(run: Callable[[Run], None]) -> None:
    async def test(broker: PulsarBroker, unique: Unique, inbox: Inbox) -> None:
        orders, invoices = unique("orders"), unique("invoices")

        @broker.subscriber(orders, "billing")
        @broker.publisher(invoices, key="k", headers={"by": "billing"})
        async def bill(order: Order) -> PulsarResponse:
            return PulsarResponse({"invoice": order.id}, headers={"n": str(order.id)}, event_timestamp=7)

        @broker.subscriber(invoices, subscription="archive")
        async def archive(invoice: dict[str, int], message: PulsarMessage) -> None:
            await inbox.put((invoice, message))

        topic, others = unique("bodies"), Inbox()

        @broker.subscriber(topic, "s")
        async def take(body: Any) -> None:
            await others.put(body)

        await broker.start()
        for body in (b"\xff\x00", "text", 7, None, [1, 2]):
            await broker.publish(body, topic)
        assert await others.of(5) == [b"\xff\x00", "text", 7, b"", [1, 2]]
        sent = await broker.publish(Order(id=3), orders, correlation_id="c-3")
        assert isinstance(sent, pulsar.MessageId)
        [(invoice, message)] = await inbox.of(1)
        assert invoice == {"invoice": 3}
        assert {"by": "billing", "n": "3"}.items() <= message.headers.items()
        assert (message.correlation_id, message.content_type) == ("c-3", "application/json")
        assert (message.raw_message.partition_key(), message.raw_message.event_timestamp()) == ("k", 7)

    run(test)


CASES = (
    (AckPolicy.NACK_ON_ERROR, ValueError, "redelivered"),
    (AckPolicy.ACK, ValueError, "acknowledged"),
    (AckPolicy.ACK_FIRST, ValueError, "acknowledged"),
    (AckPolicy.REJECT_ON_ERROR, ValueError, "letter"),
    (AckPolicy.ACK, NackMessage, "redelivered"),
    (AckPolicy.ACK, RejectMessage, "letter"),
    (AckPolicy.MANUAL, ValueError, "kept"),
)
"""An acknowledgement policy, the error of a handler at the first delivery, and what becomes of the message."""


def test_the_policy_decides_what_becomes_of_a_message_whose_handler_fails(
    run: Callable[[Run], None], client: pulsar.Client, unique: Unique
) -> None:
    topics = [unique(f"case-{number}") for number in range(len(CASES))]
    letters = unique("letters")

    async def test(broker: PulsarBroker, unique: Unique, inbox: Inbox) -> None:
        def subscribe(topic: str, policy: AckPolicy, error: type[Exception]) -> None:
            @broker.subscriber(
                topic,
                "s",
                ack_policy=policy,
                consumer_type=SHARED,
                negative_ack_redelivery_delay_ms=SOON_MS,
                dead_letter_policy=pulsar.ConsumerDeadLetterPolicy(1000, letters, initial_subscription_name="look"),
            )
            async def fail_once(body: str, message: PulsarMessage) -> None:
                await inbox.put((body, message.raw_message.redelivery_count()))
                if message.raw_message.redelivery_count() == 0:
                    raise error

        for topic, (policy, error, _) in zip(topics, CASES, strict=True):
            subscribe(topic, policy, error)
        await broker.start()
        await asyncio.gather(*(broker.publish(str(number), topic) for number, topic in enumerate(topics)))
        got = await inbox.of(len(CASES) + 2)
        again = {str(number) for number, (_, _, ends) in enumerate(CASES) if ends == "redelivered"}
        assert {body for body, redeliveries in got if redeliveries} == again
        found = await asyncio.to_thread(receive, client.subscribe(letters, "look", SHARED), 2)
        assert {letter.properties()["REAL_TOPIC"].rpartition("/")[2] for letter in found} == {
            topic for topic, (_, _, ends) in zip(topics, CASES, strict=True) if ends == "letter"
        }

    run(test)
    left = client.subscribe(topics, "s", SHARED)
    assert payloads(receive(left, 1)) == [str(len(CASES) - 1)]
    assert nothing_comes(left)


def test_a_message_is_settled_once_and_stop_waits_for_the_one_in_hand(
    run: Callable[[Run], None], client: pulsar.Client
) -> None:
    topics: list[str] = []

    async def test(broker: PulsarBroker, unique: Unique, inbox: Inbox) -> None:
        topics.append(unique())
        go = asyncio.Event()

        @broker.subscriber(topics[0], "s", ack_policy=AckPolicy.MANUAL, consumer_type=SHARED)
        async def settle(body: str, message: PulsarMessage) -> None:
            await inbox.put(body)
            if body == "ack":
                await message.ack()
                await message.nack()
            elif body == "reject":
                await message.reject()
            elif body == "slow":
                await go.wait()
                await message.ack()

        await broker.start()
        for body in ("ack", "reject", "neither", "slow"):
            await broker.publish(body, topics[0])
        await inbox.of(4)
        stopping = asyncio.create_task(broker.stop())
        await asyncio.sleep(0)
        assert not stopping.done()
        go.set()
        await stopping

    run(test)
    left = client.subscribe(topics[0], "s", SHARED)
    assert payloads(receive(left, 1)) == ["neither"]
    assert nothing_comes(left)


def test_max_workers_handles_as_many_at_a_time_and_stop_consume_ends_one_subscriber(run: Callable[[Run], None]) -> None:
    async def test(broker: PulsarBroker, unique: Unique, inbox: Inbox) -> None:
        many, ends = unique("many"), unique("ends")
        waiting: list[int] = []
        together = asyncio.Event()

        @broker.subscriber(many, "s", consumer_type=SHARED, max_workers=3)
        async def wait_for_the_others(body: int) -> None:
            waiting.append(body)
            if len(waiting) == 3:
                together.set()
            await together.wait()
            await inbox.put(body)

        @broker.subscriber(ends, "s", ack_policy=AckPolicy.ACK)
        async def end(body: str) -> None:
            await inbox.put(body)
            raise StopConsume

        await broker.start()
        await broker.publish("last", ends)
        assert await inbox.of(1) == ["last"]
        await broker.publish("skipped", ends)
        await asyncio.gather(*(broker.publish(n, many) for n in range(6)))
        assert sorted((await inbox.of(7))[1:]) == list(range(6))

    run(test)


def test_a_message_whose_handler_outlives_the_graceful_timeout_is_redelivered(
    service_url: str, unique: Unique, client: pulsar.Client
) -> None:
    topic, inbox = unique(), Inbox()

    async def main() -> None:
        broker = PulsarBroker(service_url, graceful_timeout=0.1)

        @broker.subscriber(topic, "s", consumer_type=SHARED)
        async def never_end(body: str) -> None:
            await inbox.put(body)
            await asyncio.Event().wait()

        await broker.start()
        await broker.publish("a", topic)
        await inbox.of(1)
        await broker.stop()

    asyncio.run(main())
    assert payloads(receive(client.subscribe(topic, "s", SHARED), 1)) == ["a"]


def test_requests_get_the_reply_with_their_correlation_id(run: Callable[[Run], None]) -> None:
    async def test(broker: PulsarBroker, unique: Unique, inbox: Inbox) -> None:
        topic = unique()

        @broker.subscriber(topic, "s")
        async def double(number: int) -> int:
            return 2 * number

        publisher = broker.publisher(topic)
        await broker.start()
        replies = await asyncio.gather(
            *(broker.request(n, topic, correlation_id=f"c{n}", timeout=PATIENCE_S) for n in range(5))
        )
        assert [await reply.decode() for reply in replies] == [0, 2, 4, 6, 8]
        assert [reply.correlation_id for reply in replies] == [f"c{n}" for n in range(5)]
        assert await (await publisher.request(21, timeout=PATIENCE_S)).decode() == 42
        with pytest.raises(TimeoutError):
            await broker.request(1, unique("nobody"), timeout=0.2)

    run(test)


def test_a_broker_without_reply_topic_refuses_requests_and_batches(service_url: str, unique: Unique) -> None:
    async def main() -> None:
        async with PulsarBroker(service_url) as broker:
            with pytest.raises(FeatureNotSupportedException, match="reply_topic"):
                await broker.request(1, unique())
            with pytest.raises(FeatureNotSupportedException, match="batch"):
                await broker.publish_batch(1, 2, queue=unique())

    asyncio.run(main())


def test_patterns_delays_and_keys_are_pulsars(run: Callable[[Run], None]) -> None:
    async def test(broker: PulsarBroker, unique: Unique, inbox: Inbox) -> None:
        topic = unique()

        pattern = f"public/default/{topic}-.*"

        @broker.subscriber(pattern, "s", is_pattern_topic=True, consumer_type=SHARED, initial_position=EARLIEST)
        async def take(body: str, message: PulsarMessage) -> None:
            raw = message.raw_message
            await inbox.put((body, raw.partition_key(), raw.ordering_key()))

        await broker.connect()
        await broker.publish("late", f"{topic}-1", deliver_after=timedelta(seconds=1.5))
        await broker.publish("soon", f"{topic}-1", key="k", ordering_key="o")
        await broker.start()
        assert await inbox.of(2) == [("soon", "k", "o"), ("late", "", "")]

    run(test)


def test_get_one_and_iteration_take_messages_without_a_handler(run: Callable[[Run], None]) -> None:
    async def test(broker: PulsarBroker, unique: Unique, inbox: Inbox) -> None:
        topic = unique()
        await broker.start()
        one = broker.subscriber(topic, "one", initial_position=EARLIEST)
        await one.start()
        assert await one.get_one(timeout=0.01) is None
        for body in ("a", "b", "c"):
            await broker.publish(body, topic)
        first = await one.get_one(timeout=PATIENCE_S)
        assert first is not None
        assert await first.decode() == "a"
        await first.ack()
        async for message in one:
            await inbox.put(await message.decode())
            if len(inbox.got) == 2:
                break
        assert inbox.got == ["b", "c"]
        await one.stop()

    run(test)


def test_ping_tells_whether_the_cluster_answers(service_url: str) -> None:
    async def main() -> None:
        broker = PulsarBroker(service_url)
        assert not await broker.ping()
        async with broker:
            assert await broker.ping(timeout=PATIENCE_S)
        async with PulsarBroker("kafka://127.0.0.1:1", client_options={"operation_timeout_seconds": 1}) as nowhere:
            assert not await nowhere.ping(timeout=0.5)

    asyncio.run(main())


def test_with_real_goes_through_the_cluster_and_records_calls(service_url: str, unique: Unique) -> None:
    async def main() -> None:
        broker, topic = PulsarBroker(service_url), unique()

        @broker.subscriber(topic, "s")
        async def take(order: Order) -> None: ...

        app = FastStream(broker)
        async with TestPulsarBroker(broker, with_real=True, connect_only=True) as real, TestApp(app):
            await real.publish({"id": 5}, topic)
            await take.wait_call(timeout=PATIENCE_S)
            take.mock.assert_called_once_with({"id": 5})

    asyncio.run(main())


def test_a_topic_that_cannot_be_opened_fails_the_start(service_url: str) -> None:
    async def main() -> None:
        broker = PulsarBroker(service_url)

        @broker.subscriber("persistent://no-such/tenant/orders", "s")
        async def take(body: Any) -> None: ...

        try:
            with pytest.raises(PulsarException, match="no-such"):
                await broker.start()
        finally:
            await broker.stop()

    asyncio.run(main())
