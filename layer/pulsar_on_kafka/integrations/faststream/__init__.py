"""A FastStream broker: subscriptions with individual acknowledgements, on Kafka. docs/faststream.md

    from faststream import FastStream
    from pulsar_on_kafka.integrations.faststream import PulsarBroker

    broker = PulsarBroker("kafka://localhost:9092")

    @broker.subscriber("orders", subscription="billing")
    async def bill(order: dict) -> None: ...

    app = FastStream(broker)

It needs the extra `faststream`. It derives from classes of `faststream._internal`, which may change with each minor
version of FastStream. The extra therefore allows one minor version.
"""

from __future__ import annotations

try:
    import faststream as _faststream  # noqa: F401 - the error of the modules below would not name the extra
except ImportError as missing:
    raise ImportError("FastStream is not installed: pip install 'pulsar-on-kafka[faststream]'") from missing

from pulsar_on_kafka.integrations.faststream.annotations import PulsarMessage
from pulsar_on_kafka.integrations.faststream.asyncapi import AsyncAPI
from pulsar_on_kafka.integrations.faststream.broker import PulsarBroker
from pulsar_on_kafka.integrations.faststream.response import PulsarResponse
from pulsar_on_kafka.integrations.faststream.router import PulsarPublisher, PulsarRoute, PulsarRouter
from pulsar_on_kafka.integrations.faststream.testing import TestPulsarBroker

__all__ = [
    "AsyncAPI",
    "PulsarBroker",
    "PulsarMessage",
    "PulsarPublisher",
    "PulsarResponse",
    "PulsarRoute",
    "PulsarRouter",
    "TestPulsarBroker",
]
