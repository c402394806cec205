"""`asyncio` against a real broker."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from typing import Any

import pytest

import pulsar_on_kafka as pulsar
import pulsar_on_kafka.asyncio as pulsar_asyncio
from pulsar_on_kafka.asyncio import PulsarException
from tests.steps import EARLIEST, Unique

PATIENCE_S = 15.0


@asynccontextmanager
async def opened(service_url: str) -> AsyncIterator[pulsar_asyncio.Client]:
    client = pulsar_asyncio.Client(service_url)
    try:
        yield client
    finally:
        client.shutdown()


async def code_of(call: Awaitable[Any]) -> pulsar.Result:
    with pytest.raises(PulsarException) as caught:
        await call
    return caught.value.error()


def test_messages_go_and_come_and_are_acknowledged(service_url: str, unique: Unique) -> None:
    topic = unique()

    async def main() -> None:
        async with opened(service_url) as client:
            producer = await client.create_producer(topic, batching_enabled=False)
            sent = await asyncio.gather(
                *(producer.send(str(n).encode(), properties={"n": str(n)}, partition_key="k") for n in range(500))
            )
            assert [message_id.entry_id() for message_id in sent] == list(range(500))
            assert isinstance(sent[0], pulsar.MessageId)
            assert producer.last_sequence_id() == 499
            consumer = await client.subscribe(topic, "s", initial_position=EARLIEST)
            for number in range(500):
                message = await asyncio.wait_for(consumer.receive(), PATIENCE_S)
                assert (message.data(), message.properties()) == (str(number).encode(), {"n": str(number)})
                await consumer.acknowledge(message)
            assert (await consumer.get_last_message_id()).entry_id() == 499
            await consumer.close()
            await consumer.close()
            consumer = await client.subscribe(topic, "s")
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(consumer.receive(), 0.4)
            await consumer.seek(sent[497])
            assert (await asyncio.wait_for(consumer.receive(), PATIENCE_S)).data() == b"498"
            await consumer.unsubscribe()
            await producer.flush()
            await producer.close()
            assert await client.get_topic_partitions(topic) == [producer.topic()]
            await client.close()
            assert await code_of(client.close()) is pulsar.Result.AlreadyClosed

    asyncio.run(main())


def test_after_a_shutdown_everything_says_that_it_is_closed(service_url: str, unique: Unique) -> None:
    topic = unique()

    async def main() -> None:
        async with opened(service_url) as client:
            producer = await client.create_producer(topic)
            waiting = await client.create_producer(topic, block_if_queue_full=True, max_pending_messages=1)
            consumer = await client.subscribe(topic, "s")
            reader = await client.create_reader(topic, pulsar.MessageId.earliest)
            await producer.send(b"x")
            message = await asyncio.wait_for(consumer.receive(), PATIENCE_S)
            for found in (message.message_id(), await consumer.get_last_message_id()):
                assert isinstance(found, pulsar._pulsar.MessageId), "the native class, not the one around it"
            client.shutdown()
            for call in (
                lambda: producer.send(b"y"), lambda: waiting.send(b"y"), lambda: waiting.send(b"y"), producer.flush,
                consumer.receive, lambda: consumer.acknowledge(message), reader.read_next, client.close,
            ):  # fmt: skip
                assert await asyncio.wait_for(code_of(call()), PATIENCE_S) is pulsar.Result.AlreadyClosed

    asyncio.run(main())


@pytest.mark.parametrize("at_a_time", [1, 5])
def test_cancelled_receives_lose_nothing(service_url: str, unique: Unique, at_a_time: int) -> None:
    topic = unique()

    async def main() -> None:
        async with opened(service_url) as client:
            producer = await client.create_producer(topic, batching_enabled=False, block_if_queue_full=True)
            consumer = await client.subscribe(topic, "s")
            got: list[int] = []

            async def send_all() -> None:
                for start in range(0, 3000, 25):
                    await asyncio.gather(*(producer.send(b"%d" % n) for n in range(start, start + 25)))

            for _ in range(20):
                with pytest.raises(asyncio.TimeoutError):
                    await asyncio.wait_for(consumer.receive(), 0.01)
            sending = asyncio.ensure_future(send_all())
            cancelled = 0
            while len(got) < 3000:
                receives = [asyncio.ensure_future(consumer.receive()) for _ in range(at_a_time)]
                await asyncio.sleep(0 if cancelled % 3 else 0.0005)
                for receive in receives:
                    receive.cancel()
                for answer in await asyncio.gather(*receives, return_exceptions=True):
                    if isinstance(answer, pulsar.Message):
                        got.append(int(answer.data()))
                    else:
                        assert isinstance(answer, asyncio.CancelledError)
                        cancelled += 1
                assert cancelled < 1_000_000
            await sending
            # Of several receives a later one may be served, an earlier one cancelled: its message then follows.
            assert (got if at_a_time == 1 else sorted(got)) == list(range(3000))

    asyncio.run(asyncio.wait_for(main(), 120))


def test_twelve_thousand_receives_may_be_given_up(service_url: str, unique: Unique) -> None:
    topic = unique()

    async def main() -> None:
        async with opened(service_url) as client:
            consumer = await client.subscribe(topic, "s", receiver_queue_size=0)
            for _ in range(12):
                receives = [asyncio.ensure_future(consumer.receive()) for _ in range(1000)]
                await asyncio.sleep(0)
                for receive in receives:
                    receive.cancel()
                await asyncio.gather(*receives, return_exceptions=True)
            producer = await client.create_producer(topic, batching_enabled=False)
            await producer.send(b"at last")
            assert (await asyncio.wait_for(consumer.receive(), PATIENCE_S)).data() == b"at last"

    asyncio.run(main())


def test_a_full_queue_holds_up_its_senders_only(service_url: str, unique: Unique) -> None:
    topic = unique()

    async def main() -> None:
        async with opened(service_url) as client:
            producer = await client.create_producer(
                topic, batching_enabled=False, max_pending_messages=5, block_if_queue_full=True
            )
            longest, running = 0.0, True

            async def watch() -> None:
                nonlocal longest
                while running:
                    before = time.monotonic()
                    await asyncio.sleep(0.001)
                    longest = max(longest, time.monotonic() - before)

            watching = asyncio.ensure_future(watch())
            ids = await asyncio.gather(*(producer.send(b"%d" % n) for n in range(500)))
            running = False
            await watching
            assert [message_id.entry_id() for message_id in ids] == list(range(500))
            assert longest < 10.0  # blocked, it would stand still until a send gives up
            refusing = await client.create_producer(topic, batching_enabled=False, max_pending_messages=5)
            answers = await asyncio.gather(*(refusing.send(b"x") for _ in range(500)), return_exceptions=True)
            full = [answer for answer in answers if isinstance(answer, PulsarException)]
            assert full
            assert {answer.error() for answer in full} == {pulsar.Result.ProducerQueueIsFull}

    asyncio.run(main())


def test_a_consumer_with_messages_waiting_lets_others_run(service_url: str, unique: Unique) -> None:
    topic = unique()

    async def main() -> None:
        async with opened(service_url) as client:
            producer = await client.create_producer(topic, batching_enabled=False)
            consumer = await client.subscribe(topic, "s")
            await asyncio.gather(*(producer.send(b"x") for _ in range(900)))
            turns = 0

            async def other() -> None:
                nonlocal turns
                while True:
                    turns += 1
                    await asyncio.sleep(0)

            beside = asyncio.ensure_future(other())
            for _ in range(900):
                await consumer.acknowledge(await consumer.receive())
            beside.cancel()
            assert turns >= 40

    asyncio.run(main())
