"""A producer, consumer or reader that is refused leaves no handle, no thread, no member and no holder behind."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable
from typing import Any, Final

import pytest

import pulsar_on_kafka as pulsar
from pulsar_on_kafka.admin import AdminClient
from pulsar_on_kafka.kafka import handles
from pulsar_on_kafka.schema import AvroSchema, Integer, JsonSchema, Record, String
from tests.steps import EARLIEST, EXCLUSIVE, SHARED, Unique
from tests.waiting import until

pytestmark = pytest.mark.kafka

REPEATED: Final = 4


class Count(Record):
    n = Integer(required=True)


class Text(Record):
    n = String(required=True)


class NoKeys(pulsar.CryptoKeyReader):
    """A key reader without keys."""

    def __init__(self) -> None:
        """The official reader's wants files."""

    def get_public_key(self, key_name: str) -> Any:
        raise OSError(f"no key {key_name!r}")


Call = Callable[[pulsar.Client, str], object]

REFUSED: Final[dict[str, Call]] = {
    "a producer beside an exclusive one": lambda client, topic: client.create_producer(topic),
    "an exclusive producer beside another": lambda client, topic: client.create_producer(
        topic, access_mode=pulsar.ProducerAccessMode.Exclusive
    ),
    "a producer of a name that is taken": lambda client, topic: client.create_producer(topic, producer_name="taken"),
    "a producer of another schema": lambda client, topic: client.create_producer(topic, schema=JsonSchema(Text)),
    "a producer of a partition that is not there": lambda client, topic: client.create_producer(f"{topic}-partition-7"),
    "a producer without keys": lambda client, topic: client.create_producer(
        topic + "-open", encryption_key="k", crypto_key_reader=NoKeys()
    ),
    "a consumer of another type": lambda client, topic: client.subscribe(topic, "held", consumer_type=SHARED),
    "a second exclusive consumer": lambda client, topic: client.subscribe(topic, "held"),
    "a consumer of another schema": lambda client, topic: client.subscribe(topic, "other", schema=AvroSchema(Text)),
    "consumers of topics one of which is held": lambda client, topic: client.subscribe(
        [topic, topic + "-open"], "held"
    ),
    "a reader of another schema": lambda client, topic: client.create_reader(
        topic, pulsar.MessageId.earliest, schema=AvroSchema(Text)
    ),
}


@pytest.mark.parametrize("what", list(REFUSED))
def test_what_is_refused_again_and_again_leaves_nothing(
    client: pulsar.Client, admin: AdminClient, unique: Unique, what: str
) -> None:
    topic = unique()
    admin.create_partitioned_topic(topic, 2) if "partition" in what else None
    mode = pulsar.ProducerAccessMode
    exclusive = what.startswith("a producer beside")
    holder = client.create_producer(
        topic, schema=AvroSchema(Count), producer_name="taken",
        access_mode=mode.Exclusive if exclusive else mode.Shared,
    )  # fmt: skip
    held = client.subscribe(topic, "held", schema=AvroSchema(Count), consumer_type=EXCLUSIVE, initial_position=EARLIEST)
    client.create_producer(topic + "-open").close()

    def refused() -> None:
        with pytest.raises((pulsar.PulsarException, ValueError, TypeError, OSError)):
            REFUSED[what](client, topic)

    def left() -> dict[str, object]:
        gc.collect()  # a traceback may hold a handle
        return {
            "threads": sorted(thread.name for thread in threading.enumerate()),
            "handles": len(handles._LIVE),
            "subscriptions": [admin.list_subscriptions(name) for name in (topic, topic + "-open")],
            "publishers": [len(admin.topic_stats(name).publishers) for name in (topic, topic + "-open")],
        }

    holder.send(Count(n=0))
    assert held.receive(60_000).value().n == 0, "its member has opened the handles that it needs"
    refused()
    before = left()
    for _ in range(REPEATED):
        refused()
    until(lambda: left() == before, lambda: f"{left()} to be as before: {before}")
    holder.send(Count(n=1))
    assert held.receive(60_000).value().n == 1
    holder.close()
    held.close()
