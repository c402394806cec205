"""Objects of this process that only a leak keeps alive."""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Callable
from typing import Final

from confluent_kafka import Message

from pulsar_on_kafka.broker.subscriptions.records.consumer_inbox import Endpoint
from pulsar_on_kafka.broker.subscriptions.records.reader_thread import Tail
from pulsar_on_kafka.gateway.connection import Connection
from tests.waiting import until

COUNTED: Final = (Message, Endpoint, Tail, Connection)


def live_objects() -> Counter[str]:
    """Counts records, inboxes, readers and connections that are alive after a full collection."""
    gc.collect()
    return Counter(kind.__name__ for each in gc.get_objects() for kind in COUNTED if isinstance(each, kind))


def leaves_nothing(use: Callable[[], object], times: int = 4) -> None:
    """Requires that repeated use keeps no more objects alive than one use."""
    use()
    before = live_objects()
    for _ in range(times):
        use()
    until(lambda: live_objects() <= before, lambda: f"{live_objects()} to be at most {before}")
