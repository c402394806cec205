"""SDK programs and official clients on the gateway, side by side: keys stay in order whoever writes them."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import pytest

import pulsar_on_kafka as sdk
from pulsar_on_kafka.admin import AdminClient
from pulsar_on_kafka.gateway.server import Gateway
from tests.steps import Process, Unique
from tests.waiting import until

pulsar: Any = pytest.importorskip("pulsar", reason="the official client, pulsar-client, is not installed")

pytestmark = pytest.mark.kafka


@pytest.fixture
def official(gateway: Gateway) -> Iterator[Any]:
    client = pulsar.Client(gateway.address(), logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    yield client
    client.close()


# Where keys go --------------------------------------------------------------------------------------------------------


KEYS = [*(f"key-{number}" for number in range(40)), "zoë", "\U0001f600"]


@pytest.mark.parametrize("batching", [False, True])
def test_a_key_has_one_partition_for_the_sdk_and_the_official_client(
    official: Any, client: sdk.Client, admin: AdminClient, unique: Unique, batching: bool
) -> None:
    topic = unique()
    admin.create_partitioned_topic(topic, 7)
    theirs = official.create_producer(topic, batching_enabled=batching)
    ours = client.create_producer(topic, hashing_scheme=sdk.HashingScheme.BoostHash, batching_enabled=batching)
    for key in KEYS:
        assert ours.send(b"x", partition_key=key).partition() == theirs.send(b"x", partition_key=key).partition(), key


def test_a_key_has_one_partition_for_the_sdk_and_java(
    java: Any, gateway: Gateway, client: sdk.Client, admin: AdminClient, unique: Unique
) -> None:
    topic = unique()
    admin.create_partitioned_topic(topic, 7)
    teller = java.Client(gateway.address())
    theirs = teller.create_producer(topic)
    ours = client.create_producer(topic, hashing_scheme=sdk.HashingScheme.JavaStringHash)
    for key in KEYS:
        assert ours.send(b"x", partition_key=key).partition() == theirs.send(b"x", partition_key=key).partition(), key
    teller.close()


def test_a_topic_knows_what_its_keys_are_routed_by(
    official: Any, process: Process, admin: AdminClient, unique: Unique, caplog: pytest.LogCaptureFixture
) -> None:
    """Of the official client by the keys that come; the next program that routes otherwise is warned."""
    topic = unique()
    admin.create_partitioned_topic(topic, 3)
    theirs = official.create_producer(topic, batching_enabled=False)
    for number in range(90):
        theirs.send_async(b"x", None, partition_key=f"key-{number}")
    theirs.flush()
    until(lambda: admin.topic_stats(topic).hashing_schemes == ("BoostHash",), "the topic to know")
    ours = process().create_producer(topic, hashing_scheme=sdk.HashingScheme.BoostHash)
    ours.send(b"x", partition_key="k")
    ours.close()
    assert not [record for record in caplog.records if topic in record.getMessage()]
    with caplog.at_level(logging.WARNING):
        other = process().create_producer(topic)
        other.send(b"x", partition_key="k")
        other.close()
    assert any(all(word in said for word in (topic, "BoostHash", "Crc32Hash")) for said in caplog.messages)
    assert admin.topic_stats(topic).hashing_schemes == ("BoostHash", "Crc32Hash")
