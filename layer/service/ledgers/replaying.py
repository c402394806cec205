"""Asks once more for deletions that were given up."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from pulsar_on_kafka.client.client import Client
from pulsar_on_kafka.client.consumer.retry_letters import DELAY_TIME, RECONSUMETIMES
from pulsar_on_kafka.client.values.enums import ConsumerType, InitialPosition
from pulsar_on_kafka.exceptions import Timeout
from pulsar_on_kafka.ledgers.deletion_topics import DEAD_LETTERS, OPERATOR, REASON
from pulsar_on_kafka.ledgers.group import EVENTS

_DROPPED: Final = (RECONSUMETIMES, DELAY_TIME, REASON)
_QUIET_MS: Final = 5_000


def replay(client: Client, most: int, told: Callable[[int], None] = lambda more: None) -> int:
    """Publish up to `most` dead letters as events again, each with all its attempts, and acknowledge them; gives how
    many there were. A crash between the two leaves both, which does no harm.

    Ends before `most` when nothing came for 5 s: another process has the rest in its hands. `told` hears of each.
    Raises PulsarExceptions: what was replayed stays so.
    """
    consumer = client.subscribe(DEAD_LETTERS, OPERATOR, ConsumerType.Shared, initial_position=InitialPosition.Earliest)
    producer = client.create_producer(EVENTS, block_if_queue_full=True)
    done = 0
    try:
        while done < most:
            try:
                letter = consumer.receive(_QUIET_MS)
            except Timeout:
                break
            properties = {name: value for name, value in letter.properties().items() if name not in _DROPPED}
            producer.send(letter.data(), properties=properties, partition_key=letter.partition_key() or None)
            consumer.acknowledge(letter)
            done += 1
            told(1)
    finally:
        producer.close()
        consumer.close()
    return done
