"""The modules that a received record enters between Kafka's client and the consumer's inbox."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import msgspec
import pytest
from confluent_kafka import Message

import pulsar_on_kafka as pulsar
from pulsar_on_kafka.kafka.reading.record_batches import FetchedRecord
from tests.steps import Unique

MAX_MODULES = 12
_PACKAGE = "pulsar_on_kafka."
_SUBSCRIPTIONS = f"{_PACKAGE}broker.subscriptions."
_FETCH = f"{_SUBSCRIPTIONS}member.fetching"
_INBOX = f"{_SUBSCRIPTIONS}records.consumer_inbox"
_PAYLOAD = b"the followed record"


def holds(value: Any, depth: int = 4) -> bool:
    """Whether an argument is the followed record, or has it among its items, its fields or its `records`."""
    if depth and isinstance(value, msgspec.Struct):
        return holds(msgspec.structs.astuple(value), depth - 1)
    if depth and isinstance(value, list | tuple | dict):
        items = value.values() if isinstance(value, dict) else value
        return any(holds(item, depth - 1) for item in items)
    if depth and type(value).__module__.startswith(_SUBSCRIPTIONS) and (records := getattr(value, "records", None)):
        return holds(records, depth - 1)
    return isinstance(value, Message | FetchedRecord) and value.value() == _PAYLOAD


@contextmanager
def following() -> Iterator[list[str]]:
    """Modules whose functions received or returned the record, from the fetch on until the inbox has it.

    Only threads that start inside of the block are followed.
    """
    found: list[str] = []

    def follow(frame: FrameType, event: str, returned: Any) -> None:
        module = frame.f_globals.get("__name__", "")
        if not module.startswith(_PACKAGE if found else _FETCH) or _INBOX in found:
            return
        code = frame.f_code
        arguments = [frame.f_locals.get(name) for name in code.co_varnames[: code.co_argcount]]
        if (event == "call" and holds(arguments)) or (event == "return" and holds(returned)):
            found.append(module)

    threading.setprofile(follow)
    try:
        yield found
    finally:
        threading.setprofile(None)


@pytest.mark.parametrize("kind", [pulsar.ConsumerType.Shared, pulsar.ConsumerType.KeyShared])
def test_a_record_enters_few_modules(
    client: pulsar.Client, service_url: str, unique: Unique, kind: pulsar.ConsumerType
) -> None:
    topic = unique()
    producer = client.create_producer(topic)  # its threads have records of their own, and are not followed
    with following() as entered:
        receiving = pulsar.Client(service_url, kafka_config={"client.dns.lookup": "use_all_dns_ips"})  # has own threads
        consumer = receiving.subscribe(topic, "s", kind)
        producer.send(_PAYLOAD, partition_key="k")
        assert consumer.receive(60_000).data() == _PAYLOAD
        receiving.close()
    way = list(dict.fromkeys(entered))
    assert _INBOX in way, "the record is followed to the inbox"
    assert len(way) <= MAX_MODULES, "\n".join(way)
