"""A broker of each module's own: scenarios leave their topics, which go with it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from pulsar_on_kafka.embedded import Broker, BrokerOptions, EmbeddedBroker
from tests.brokers import available
from tests.steps import Missing


@pytest.fixture(scope="module")
def kafka_broker(missing: Missing) -> Iterator[Broker]:
    with available(missing, EmbeddedBroker(BrokerOptions(heap_mb=512))) as broker:
        yield broker
