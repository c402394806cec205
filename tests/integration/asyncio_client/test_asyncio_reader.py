"""The asyncio reader against a real broker."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest

import pulsar_on_kafka as pulsar
import pulsar_on_kafka.asyncio as pulsar_asyncio
from tests.steps import Unique

PATIENCE_S = 15.0


def test_cancelled_reads_lose_nothing_and_keep_the_order(
    client: pulsar.Client, service_url: str, unique: Unique
) -> None:
    topic = unique()
    producer = client.create_producer(topic)

    async def main() -> None:
        opened = pulsar_asyncio.Client(service_url)
        reader = await opened.create_reader(topic, pulsar.MessageId.earliest)
        assert not await reader.has_message_available()
        found: list[str] = []
        for number in range(40):
            with suppress(asyncio.TimeoutError):
                found.append((await asyncio.wait_for(reader.read_next(), 0.01)).data().decode())
            producer.send(str(number).encode())
        while len(found) < 40:
            found.append((await asyncio.wait_for(reader.read_next(), PATIENCE_S)).data().decode())
        assert found == [str(number) for number in range(40)]
        opened.shutdown()

    asyncio.run(main())


def test_a_waiting_read_hears_of_the_close_and_a_seek_starts_over(
    client: pulsar.Client, service_url: str, unique: Unique
) -> None:
    topic = unique()
    producer = client.create_producer(topic)
    ids = [producer.send(text) for text in (b"a", b"b", b"c")]

    async def main() -> None:
        opened = pulsar_asyncio.Client(service_url)
        reader = await opened.create_reader(topic, ids[0])
        assert [(await reader.read_next()).data() for _ in range(2)] == [b"b", b"c"]
        waiting = asyncio.ensure_future(reader.read_next())
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(asyncio.shield(waiting), 0.1)
        await reader.seek(pulsar.MessageId.earliest)
        assert (await asyncio.wait_for(waiting, PATIENCE_S)).data() == b"a"
        assert [(await reader.read_next()).data() for _ in range(2)] == [b"b", b"c"]
        waiting = asyncio.ensure_future(reader.read_next())
        await asyncio.sleep(0)
        await reader.close()
        with pytest.raises(pulsar_asyncio.PulsarException) as closed:
            await asyncio.wait_for(waiting, PATIENCE_S)
        assert closed.value.error() is pulsar.Result.AlreadyClosed
        opened.shutdown()

    asyncio.run(main())
