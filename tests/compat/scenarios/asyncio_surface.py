"""The asyncio client."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

from tests.compat.harness.driver import ScenarioRun
from tests.compat.harness.scenario import scenario

AREA = "asyncio"


def _play(run: ScenarioRun, play: Callable[[Any], Awaitable[None]]) -> None:
    """Run `play` with an asyncio client."""

    async def main() -> None:
        client = run.asyncio.Client(run.service_url, operation_timeout_seconds=20)
        try:
            await play(client)
        finally:
            client.shutdown()

    asyncio.run(main())


async def _attempt(run: ScenarioRun, what: str, call: Awaitable[Any]) -> None:
    try:
        await call
    except Exception as error:
        run.record(what, f"error {run.error_name(error)}")
    else:
        run.record(what, "works")


@scenario(area=AREA, title="Sending, receiving and acknowledging")
def messages(run: ScenarioRun) -> None:
    topic = run.topic()

    async def play(client: Any) -> None:
        consumer = await client.subscribe(topic, "sub")
        producer = await client.create_producer(topic)
        for number in range(3):
            await producer.send(str(number).encode(), properties={"n": str(number)})
        for _ in range(3):
            message = await consumer.receive()
            run.record("received", run.view(message, "data", "properties"))
            await consumer.acknowledge(message)
        run.record("names", [producer.topic(), consumer.topic(), consumer.subscription_name()])
        await producer.close()
        await consumer.close()
        await client.close()

    _play(run, play)
    run.record_messages("left", run.rest(run.consumer(topic)))


@scenario(area=AREA, title="Sends at the same time go in batches")
def batches(run: ScenarioRun) -> None:
    topic = run.topic()
    watcher = run.consumer(topic, "watcher")

    async def play(client: Any) -> None:
        producer = await client.create_producer(topic, batching_max_publish_delay_ms=1000)
        ids = await asyncio.gather(*(producer.send(str(number).encode()) for number in range(5)))
        run.record("ids", list(ids))

    _play(run, play)
    run.record_messages("received", run.receive(watcher, 5))


@scenario(area=AREA, title="Failures are PulsarException with a result")
def failures(run: ScenarioRun) -> None:
    topic = run.topic()

    async def play(client: Any) -> None:
        consumer = await client.subscribe(topic, "sub")
        await _attempt(run, "a second Exclusive", client.subscribe(topic, "sub"))
        await _attempt(run, "a bad name", client.create_producer("a/b"))
        await _attempt(run, "no namespace", client.create_producer("public/no-such-namespace/t"))
        await consumer.close()
        await _attempt(run, "receive after close", consumer.receive())
        producer = await client.create_producer(topic)
        await producer.close()
        await _attempt(run, "send after close", producer.send(b"x"))

    _play(run, play)


@scenario(area=AREA, title="Cumulative and negative acknowledgements, seek, unsubscribe")
def consumer_calls(run: ScenarioRun) -> None:
    topic = run.topic()
    ids: list[Any] = []

    async def play(client: Any) -> None:
        consumer = await client.subscribe(topic, "sub", negative_ack_redelivery_delay_ms=200)
        producer = await client.create_producer(topic, batching_enabled=False)
        for number in range(4):
            ids.append(await producer.send(str(number).encode()))
        received = [await consumer.receive() for _ in range(4)]
        await consumer.acknowledge_cumulative(received[1])
        await consumer.negative_acknowledge(received[2])
        run.record("again", run.view(await consumer.receive()))
        last = await consumer.get_last_message_id()
        run.record("last", [last.entry_id(), last.ledger_id() == ids[-1].ledger_id()])
        await consumer.seek(ids[0])
        run.record("after the seek", run.view(await consumer.receive()))
        await consumer.unsubscribe()

    _play(run, play)


@scenario(area=AREA, title="A reader")
def reader(run: ScenarioRun) -> None:
    topic = run.topic()
    run.send(topic, ["0", "1", "2"])

    async def play(client: Any) -> None:
        found = await client.create_reader(topic, run.sdk.MessageId.earliest)
        while await found.has_message_available():
            run.record("read", run.view(await found.read_next()))
        await found.close()

    _play(run, play)


@scenario(area=AREA, title="Partitions, and receivers that wait while others send")
def concurrent(run: ScenarioRun) -> None:
    topic = run.topic(partitions=2)

    async def play(client: Any) -> None:
        run.record("partitions", await client.get_topic_partitions(topic))
        consumer = await client.subscribe(topic, "sub", run.sdk.ConsumerType.Shared)
        waiting = [asyncio.ensure_future(consumer.receive()) for _ in range(4)]
        producer = await client.create_producer(topic, batching_enabled=False)
        for number in range(4):
            await producer.send(str(number).encode())
        run.record_set("received", await asyncio.gather(*waiting))

    _play(run, play)


@scenario(area=AREA, title="Two consumers of a Shared subscription, in tasks")
def shared_tasks(run: ScenarioRun) -> None:
    topic = run.topic()

    async def play(client: Any) -> None:
        consumers = [await client.subscribe(topic, "sub", run.sdk.ConsumerType.Shared) for _ in range(2)]
        producer = await client.create_producer(topic)
        received: list[Any] = []

        async def take(consumer: Any) -> None:
            while len(received) < 20:
                try:
                    message = await asyncio.wait_for(asyncio.shield(asyncio.ensure_future(consumer.receive())), 1)
                except asyncio.TimeoutError:
                    return
                await consumer.acknowledge(message)
                received.append(message)

        for number in range(20):
            await producer.send(str(number).encode())
        await asyncio.gather(*(take(consumer) for consumer in consumers))
        run.record_set("received", received)

    _play(run, play)
    run.record_messages("left", run.rest(run.consumer(topic, kind="Shared")))


@scenario(area=AREA, title="Negative acknowledgements on Shared, counted")
def negative(run: ScenarioRun) -> None:
    topic = run.topic()

    async def play(client: Any) -> None:
        consumer = await client.subscribe(
            topic, "sub", run.sdk.ConsumerType.Shared, negative_ack_redelivery_delay_ms=200
        )
        producer = await client.create_producer(topic)
        await producer.send(b"x", partition_key="k", event_timestamp=5)
        for _ in range(3):
            message = await consumer.receive()
            run.record("received", run.view(message, "data", "redelivery_count", "partition_key", "event_timestamp"))
            await consumer.negative_acknowledge(message)

    _play(run, play)


@scenario(area=AREA, title="Seeking by time and to the ends; acknowledging by id")
def seeking(run: ScenarioRun) -> None:
    topic = run.topic()

    async def play(client: Any) -> None:
        consumer = await client.subscribe(topic, "sub")
        producer = await client.create_producer(topic, batching_enabled=False)
        for number in range(3):
            await producer.send(str(number).encode())
        messages = [await consumer.receive() for _ in range(3)]
        for message in messages:
            await consumer.acknowledge(message.message_id())
        await consumer.seek(messages[0].publish_timestamp())
        run.record("by time", run.view(await consumer.receive()))
        await consumer.seek(run.sdk.MessageId.wrap(run.sdk.MessageId.earliest))
        run.record("earliest", run.view(await consumer.receive()))
        await consumer.seek(run.sdk.MessageId.wrap(run.sdk.MessageId.latest))
        await producer.send(b"after")
        run.record("latest", run.view(await consumer.receive()))

    _play(run, play)


@scenario(area=AREA, title="Keys, delays and sequence ids of a producer")
def sending(run: ScenarioRun) -> None:
    topic = run.topic()

    async def play(client: Any) -> None:
        consumer = await client.subscribe(topic, "sub", run.sdk.ConsumerType.KeyShared)
        producer = await client.create_producer(topic, producer_name="p", initial_sequence_id=4)
        await producer.send(b"late", partition_key="k", deliver_after=timedelta(seconds=4))
        await producer.send(b"now", partition_key="k")
        run.record("last", producer.last_sequence_id())
        run.record("name", producer.producer_name())
        run.record_messages("received", [await consumer.receive() for _ in range(2)])
        await producer.flush()
        await _attempt(run, "too big", producer.send(bytes(6_000_000)))
        await _attempt(run, "a text", producer.send("text"))

    _play(run, play)
