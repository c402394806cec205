"""FastAPI: a request publishes an order, and a task of the application bills orders.

POK_URL=kafka://localhost:9092 uvicorn --app-dir examples fastapi_app:app
"""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI, Request

from pulsar_on_kafka import ConsumerType
from pulsar_on_kafka.asyncio import Client, Consumer

TOPIC = os.environ.get("ORDERS", "orders")


async def bill(consumer: Consumer[bytes]) -> None:
    while True:
        message = await consumer.receive()
        print("billed", message.data().decode(), flush=True)
        await consumer.acknowledge(message)


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    client = Client(os.environ["POK_URL"])
    app.state.producer = await client.create_producer(TOPIC)
    billing = asyncio.create_task(bill(await client.subscribe(TOPIC, "billing", ConsumerType.Shared)))
    yield
    billing.cancel()
    await client.close()


app = FastAPI(lifespan=lifespan)


@app.post("/orders/{number}")
async def order(number: int, request: Request) -> dict[str, str]:
    return {"message_id": str(await request.app.state.producer.send(f"order {number}".encode()))}
