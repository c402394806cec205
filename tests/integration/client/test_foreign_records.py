"""Absurd records by plain Kafka clients, among our own: everybody reads on, and what can be read is delivered."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest

import pulsar_on_kafka as pulsar
from pulsar_on_kafka.admin import AdminClient
from tests.foreign_records import NOT_UTF8, Foreign, ForeignProducer, absurd_records, odd_batch
from tests.steps import EARLIEST, PATIENCE_MS, Process, Unique
from tests.waiting import until

_FIRST, _LAST = b"first", b"last"

pytestmark = pytest.mark.kafka


@pytest.fixture
def foreign(bootstrap: str) -> Iterator[ForeignProducer]:
    producer = ForeignProducer(bootstrap)
    yield producer
    producer.close()


@pytest.fixture
def topic(client: pulsar.Client, unique: Unique, foreign: ForeignProducer) -> str:
    """Ours, absurd ones, ours."""
    name = unique()
    producer = client.create_producer(name)
    producer.send(_FIRST)
    foreign.send(f"public.default.{name}", absurd_records())
    producer.send(_LAST, partition_key="last")
    return name


def _ask_everything(message: pulsar.Message) -> bytes:
    for accessor in (
        "properties", "partition_key", "ordering_key", "event_timestamp", "publish_timestamp", "redelivery_count",
        "value", "schema_version", "topic_name", "message_id", "producer_name", "has_null_value", "encryption_context",
    ):  # fmt: skip
        getattr(message, accessor)()
    return message.data()


def _receive_to_the_last(consumer: Any) -> list[bytes]:
    found: list[bytes] = []
    while not found or found[-1] != _LAST:
        message = consumer.receive(PATIENCE_MS)
        found.append(_ask_everything(message))
        consumer.acknowledge(message)
    return found


@pytest.mark.parametrize("type_", ["Exclusive", "Failover", "Shared", "KeyShared"])
def test_a_consumer_goes_on(client: pulsar.Client, topic: str, admin: AdminClient, type_: str) -> None:
    consumer = client.subscribe(topic, "s", consumer_type=pulsar.ConsumerType[type_], initial_position=EARLIEST)
    found = _receive_to_the_last(consumer)
    assert found[0] == _FIRST
    assert found.count(b"foreign") > 30
    consumer.close()
    left = admin.subscription_stats(topic, "s").backlog
    assert left == 2  # those that cannot be decrypted; what else cannot be read is acknowledged, as Pulsar does


def test_a_reader_and_a_consumer_of_several_topics_go_on(client: pulsar.Client, topic: str) -> None:
    reader = client.create_reader(topic, pulsar.MessageId.earliest)
    read: list[bytes] = []
    while not read or read[-1] != _LAST:
        read.append(_ask_everything(reader.read_next(PATIENCE_MS)))
    reader.close()
    consumer = client.subscribe([topic], "several", initial_position=EARLIEST)
    assert sorted(_receive_to_the_last(consumer)) == sorted(read)
    consumer.close()


def test_a_table_view_goes_on(client: pulsar.Client, topic: str) -> None:
    view = client.create_table_view(topic)
    assert view.get("last") == _LAST
    view.close()


@pytest.mark.parametrize("type_", ["Exclusive", "Shared"])
def test_odd_messages_of_a_batch_cost_no_neighbour(
    process: Process, admin: AdminClient, unique: Unique, foreign: ForeignProducer, type_: str,
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    """Also where another process owns the partition. What cannot be read is reported, and alone acknowledged."""
    name = unique()
    clients = [process() for _ in range(2 if type_ == "Shared" else 1)]
    consumers = [each.subscribe(name, "s", pulsar.ConsumerType[type_], initial_position=EARLIEST) for each in clients]
    foreign.send(f"public.default.{name}", [odd_batch(), odd_batch()])
    found: list[tuple[bytes, pulsar.Message, pulsar.Consumer]] = []

    def received() -> bool:
        for consumer in consumers:
            with suppress(pulsar.Timeout):
                message = consumer.receive(100)
                found.append((_ask_everything(message), message, consumer))
        return len(found) == 8

    with caplog.at_level(logging.ERROR):
        until(received, lambda: f"eight messages, not {found}")
    assert sorted(data for data, _, _ in found) == [b"0", b"0", b"1", b"1", b"2", b"2", b"4", b"4"]
    assert [each.properties() for data, each, _ in found if data == b"2"] == [{"file": "caf\xe9.txt"}] * 2
    assert "2 of the 6 messages of its batch" in caplog.text
    reader = clients[0].create_reader(name, pulsar.MessageId.earliest)
    assert [reader.read_next(PATIENCE_MS).data() for _ in range(8)] == [b"0", b"1", b"2", b"4"] * 2
    assert admin.subscription_stats(name, "s").backlog == 2
    for _, message, consumer in found:
        consumer.acknowledge(message)
    until(lambda: admin.subscription_stats(name, "s").backlog == 0, "the rest of both entries to be acknowledged")


def test_what_is_wrong_with_a_header_costs_that_header_alone(
    client: pulsar.Client, unique: Unique, foreign: ForeignProducer, caplog: pytest.LogCaptureFixture
) -> None:
    name = unique()
    consumer = client.subscribe(name, "s", initial_position=EARLIEST)
    foreign.send(
        f"public.default.{name}",
        [
            Foreign([(b"colour", b"red"), (NOT_UTF8, b"1"), (b"shape", b"round")]),
            Foreign([(b"colour", b"red"), (b"__pulsar.event_time", b"9" * 5000), (b"__pulsar.ordering_key", b"o")]),
        ],
    )
    with caplog.at_level(logging.WARNING):
        first, second = consumer.receive(PATIENCE_MS), consumer.receive(PATIENCE_MS)
        assert first.properties() == {"colour": "red", "shape": "round"}
        assert (second.properties(), second.event_timestamp(), second.ordering_key()) == ({"colour": "red"}, 0, "o")
    assert "offset=0: headers whose name is not UTF-8 are left out, 2 others are kept" in caplog.text
    assert "is read without one of its headers: header __pulsar.event_time is b'999" in caplog.text
    consumer.close()
