"""Arguments are checked before anything is created: what a call refuses leaves no topic behind."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final

import pytest

import pulsar_on_kafka as pulsar
import pulsar_on_kafka.asyncio
from pulsar_on_kafka.admin import AdminClient
from tests.steps import SHARED, Unique

pytestmark = pytest.mark.kafka

Refused = Callable[[pulsar.Client, str], object]
_NAMELESS: Final = pulsar.ConsumerDeadLetterPolicy(1, "persistent://nowhere")
_NO_SUBSCRIPTION: Final = pulsar.ConsumerDeadLetterPolicy(1, initial_subscription_name="a\nb")
_NO_RETRY: Final = pulsar.ConsumerDeadLetterPolicy(1, retry_letter_topic="a//b")

SUBSCRIBE: Final[tuple[dict[str, Any], ...]] = (
    {"receiver_queue_size": -1},
    {"max_total_receiver_queue_size_across_partitions": -1},
    {"subscription_name": ""},
    {"subscription_name": "a\tb"},
    {"unacked_messages_timeout_ms": 9_999},
    {"negative_ack_redelivery_delay_ms": -1},
    {"priority_level": -1},
    {"properties": {"a": 1}},
    {"consumer_type": SHARED, "is_read_compacted": True},
    {"consumer_type": SHARED, "dead_letter_policy": _NAMELESS},
    {"consumer_type": SHARED, "dead_letter_policy": _NO_SUBSCRIPTION},
    {"consumer_type": SHARED, "dead_letter_policy": _NO_RETRY, "retry_enable": True},
    {"max_pending_chunked_message": -1},
    {"expire_time_of_incomplete_chunked_message_ms": 0},
    {"crypto_key_reader": "none"},
    {"replicate_subscription_state_enabled": 1},
)  # fmt: skip
PRODUCE: Final[tuple[dict[str, Any], ...]] = (
    {"max_pending_messages": -1},
    {"max_pending_messages_across_partitions": -1},
    {"send_timeout_millis": -1},
    {"batching_max_messages": 1},
    {"batching_enabled": True, "chunking_enabled": True},
    {"encryption_key": "a-key"},
    {"message_routing_mode": pulsar.PartitionsRoutingMode.CustomPartition},
    {"properties": {"a": "b" * 1_000_000}},
    {"hashing_scheme": "JavaStringHash"},
)
READ: Final[tuple[dict[str, Any], ...]] = (
    {"receiver_queue_size": -1},
    {"start_message_id": "earliest"},
    {"crypto_key_reader": "none"},
    {"reader_name": 1},
)


@pytest.fixture
def made(admin: AdminClient, unique: Unique) -> Callable[[Callable[[str], object]], list[str]]:
    """What a call that is refused has made: it is given a name that nobody has."""

    def attempt(call: Callable[[str], object]) -> list[str]:
        topic = unique()
        with pytest.raises((pulsar.PulsarException, pulsar.asyncio.PulsarException, ValueError, TypeError)):
            call(topic)
        return [name for name in admin.list_topics("public/default") if topic in name]

    return attempt


Made = Callable[[Callable[[str], object]], list[str]]


@pytest.mark.parametrize("options", SUBSCRIBE, ids=lambda options: ",".join(options))
def test_a_consumer_that_is_refused_leaves_no_topic(client: pulsar.Client, made: Made, options: dict[str, Any]) -> None:
    assert made(lambda topic: client.subscribe(**{"topic": topic, "subscription_name": "s", **options})) == []
    assert made(lambda topic: client.subscribe(**{"topic": [topic], "subscription_name": "s", **options})) == []


def test_what_is_not_persistent_has_no_compacted_reads_and_is_not_made(client: pulsar.Client, made: Made) -> None:
    transient = "non-persistent://public/default/{}"
    earliest = pulsar.MessageId.earliest
    assert made(lambda topic: client.subscribe(transient.format(topic), "s", is_read_compacted=True)) == []
    assert made(lambda topic: client.create_reader(transient.format(topic), earliest, is_read_compacted=True)) == []


@pytest.mark.parametrize("options", PRODUCE, ids=lambda options: ",".join(options))
def test_a_producer_that_is_refused_leaves_no_topic(client: pulsar.Client, made: Made, options: dict[str, Any]) -> None:
    assert made(lambda topic: client.create_producer(topic, **options)) == []


@pytest.mark.parametrize("options", READ, ids=lambda options: ",".join(options))
def test_a_reader_that_is_refused_leaves_no_topic(client: pulsar.Client, made: Made, options: dict[str, Any]) -> None:
    given = {"start_message_id": pulsar.MessageId.earliest, **options}
    assert made(lambda topic: client.create_reader(topic, **given)) == []


def test_a_table_view_that_is_refused_leaves_no_topic(client: pulsar.Client, made: Made) -> None:
    assert made(lambda topic: client.create_table_view(topic, subscription_name=1)) == []  # type: ignore[arg-type]
    assert made(lambda topic: client.create_table_view(topic, schema="bytes")) == []  # type: ignore[arg-type]


def test_asyncio_s_calls_leave_none(service_url: str, made: Made) -> None:
    async def attempt(call: Callable[[pulsar.asyncio.Client], Any]) -> None:
        client = pulsar.asyncio.Client(service_url)
        try:
            await call(client)
        finally:
            await client.close()

    def awaited(call: Callable[[pulsar.asyncio.Client, str], Any]) -> Callable[[str], object]:
        return lambda topic: asyncio.run(attempt(lambda client: call(client, topic)))

    assert made(awaited(lambda client, topic: client.subscribe(topic, "s", receiver_queue_size=-1))) == []
    assert made(awaited(lambda client, topic: client.subscribe(topic, ""))) == []
    assert made(awaited(lambda client, topic: client.create_producer(topic, max_pending_messages=-1))) == []


def test_administrators_calls_leave_none(admin: AdminClient, made: Made) -> None:
    assert made(lambda topic: admin.create_topic(topic, entries_per_ledger=0)) == []
    assert made(lambda topic: admin.create_partitioned_topic(topic, 2, entries_per_ledger=4_194_305)) == []
    assert made(lambda topic: admin.create_partitioned_topic(topic, 8_193)) == []
    assert made(lambda topic: admin.create_partitioned_topic(topic, 0)) == []
    assert made(lambda topic: admin.create_subscription(topic, "")) == []
    assert made(lambda topic: admin.bind_topic(topic, "no such topic")) == []
    assert made(lambda topic: admin.set_policy(topic, "retention", "never")) == []
