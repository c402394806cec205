"""The asyncio classes of the official client: `import asyncio` for `import pulsar.asyncio`.

    async def main():
        client = asyncio.Client("kafka://localhost:9092")
        producer = await client.create_producer("orders")
        await producer.send(b"hello")
        await client.close()

Names, parameters, defaults and the one exception are those of `pulsar.asyncio`, which are not the blocking client's:
producers batch by default, and every failure is a `PulsarException` whose `error()` gives a `Result`.
"""

from __future__ import annotations

from pulsar_on_kafka.asyncio.bridge import PulsarException
from pulsar_on_kafka.asyncio.client import Client
from pulsar_on_kafka.asyncio.consumer import Consumer
from pulsar_on_kafka.asyncio.producer import Producer
from pulsar_on_kafka.asyncio.reader import Reader
from pulsar_on_kafka.asyncio.transaction import Transaction

__all__ = ["Client", "Consumer", "Producer", "PulsarException", "Reader", "Transaction"]
