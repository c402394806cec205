"""The asyncio classes of the official client: `import layer.asyncio` for `import pulsar.asyncio`.

    async def main():
        client = layer.asyncio.Client("kafka://localhost:9092")
        producer = await client.create_producer("orders")
        await producer.send(b"hello")
        await client.close()

Names, parameters, defaults and the one exception are those of `pulsar.asyncio`, which are not the blocking client's:
producers batch by default, and every failure is a `PulsarException` whose `error()` gives a `Result`.
"""

from __future__ import annotations

from layer.asyncio.client import Client
from layer.asyncio.consumer import Consumer
from layer.asyncio.errors import PulsarException
from layer.asyncio.producer import Producer
from layer.asyncio.reader import Reader
from layer.asyncio.transaction import Transaction

__all__ = ["Client", "Consumer", "Producer", "PulsarException", "Reader", "Transaction"]
