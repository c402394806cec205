"""A pytest plugin: fixtures with a real broker, a client, a topic and a consumer. docs/testing.md

Every run of pytest in an environment with this package imports it, so what a fixture needs is imported by the fixture.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pulsar_on_kafka.client.client import Client
    from pulsar_on_kafka.client.consumer.consumer import Consumer
    from pulsar_on_kafka.embedded import Broker


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.getgroup("pok", "Pulsar semantics on Kafka").addoption(
        "--pok-broker",
        choices=["auto", "embedded", "docker", "external"],
        default="auto",
        help="where pok_broker comes from; auto: the cluster of POK_BOOTSTRAP if that is set, else an embedded broker",
    )


@pytest.fixture(scope="session")
def pok_broker(request: pytest.FixtureRequest) -> Iterator[Broker]:
    """A running Kafka (`bootstrap`), one for the session; with pytest-xdist one for each worker."""
    from pulsar_on_kafka.embedded import EmbeddedBrokerError, open_broker

    opened = open_broker(request.config.getoption("pok_broker"))
    try:
        broker = opened.__enter__()
    except EmbeddedBrokerError as missing:
        pytest.fail(str(missing), pytrace=False)
    try:
        yield broker
    finally:
        opened.__exit__(None, None, None)


@pytest.fixture(scope="session")
def pok_url(pok_broker: Broker) -> str:
    """The service URL of `pok_broker`, for `Client(...)` and POK_URL."""
    return f"kafka://{pok_broker.bootstrap}"


@pytest.fixture
def pok_client(pok_url: str) -> Iterator[Client]:
    """A client of the test's own, closed after it."""
    from pulsar_on_kafka.client.client import Client

    client = Client(pok_url)
    yield client
    client.shutdown()


@pytest.fixture
def pok_topic(request: pytest.FixtureRequest) -> str:
    """The full name of an unused topic."""
    from pulsar_on_kafka.testing import new_topic

    return new_topic(request.node.name)


@pytest.fixture
def pok_consumer(pok_client: Client, pok_topic: str) -> Consumer:
    """A Shared consumer of everything in `pok_topic`, on the subscription `test`."""
    from pulsar_on_kafka.testing import subscribe

    return subscribe(pok_client, pok_topic)
