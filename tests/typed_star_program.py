"""A program that imports everything, as the official client's documentation does: see `typed_user_program.py`."""

from __future__ import annotations

from pulsar_on_kafka import *  # noqa: F403


def main() -> None:
    client = Client("kafka://localhost:9092")  # noqa: F405
    consumer = client.subscribe("orders", "billing", consumer_type=ConsumerType.KeyShared)  # noqa: F405
    try:
        message: Message = consumer.receive(1000)  # noqa: F405
        consumer.acknowledge(message)
    except (Timeout, AlreadyClosed, ConsumerBusy) as failure:  # noqa: F405
        print(failure)
    except PulsarException as failure:  # noqa: F405
        print(str(failure))
    start: MessageId = MessageId.latest  # noqa: F405
    client.create_reader("orders", start).close()
    client.close()
