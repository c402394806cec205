"""Help for the tests of users' programs: a real broker, and what is new for each test. docs/testing.md

`pulsar_on_kafka.testing.pytest_plugin` has the same as fixtures. Each run of pytest imports this: what a test needs is
imported when it begins.
"""

from __future__ import annotations

import atexit
import re
import secrets
import unittest
from contextlib import ExitStack
from functools import cache
from typing import TYPE_CHECKING, ClassVar, Final

if TYPE_CHECKING:
    from pulsar_on_kafka.client.client import Client
    from pulsar_on_kafka.client.consumer.consumer import Consumer
    from pulsar_on_kafka.embedded import Broker

SUBSCRIPTION: Final = "test"
_LONGEST: Final = 80


def new_topic(test: str = "test") -> str:
    """A full name that no topic has had, with the name of a test in it."""
    readable = re.sub(r"[^\w.]+", "-", test).strip("-")[-_LONGEST:]
    return f"persistent://public/default/{readable}-{secrets.token_hex(4)}"


def subscribe(client: Client, topic: str) -> Consumer:
    """A Shared consumer of everything in `topic`, on the subscription `test`."""
    from pulsar_on_kafka.client.values.enums import ConsumerType, InitialPosition

    return client.subscribe(topic, SUBSCRIPTION, ConsumerType.Shared, initial_position=InitialPosition.Earliest)


@cache
def shared_broker() -> Broker:
    """The broker of this process: that of POK_BOOTSTRAP, else an embedded one, which ends with the process.

    Raises:
        EmbeddedBrokerError: there is none to be had; one line on what to do.
    """
    from pulsar_on_kafka.embedded import open_broker

    opened = ExitStack()
    broker = opened.enter_context(open_broker())
    atexit.register(opened.close)
    return broker


class BrokerTestCase(unittest.TestCase):
    """A test case on the broker of this process. Each test has a client, closed after it, and a topic of its own."""

    service_url: ClassVar[str]
    client: Client
    topic: str

    @classmethod
    def setUpClass(cls) -> None:
        super().setUpClass()
        cls.service_url = f"kafka://{shared_broker().bootstrap}"

    def setUp(self) -> None:
        super().setUp()
        from pulsar_on_kafka.client.client import Client

        self.client = Client(self.service_url)
        self.addCleanup(self.client.shutdown)
        self.topic = new_topic(self.id())

    def consumer(self) -> Consumer:
        """A consumer of all of the test's topic (`subscribe`)."""
        return subscribe(self.client, self.topic)
