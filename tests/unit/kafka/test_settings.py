"""Options of librdkafka: which of them are the user's."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import pytest
from confluent_kafka import Consumer

from pulsar_on_kafka.base.errors import InvalidOption
from pulsar_on_kafka.client.connection.cluster_settings import peer_settings
from pulsar_on_kafka.kafka.settings import KafkaSettings
from pulsar_on_kafka_mapping.state.clusters.cluster_registry import ClusterAddress

NOT_TEXT = {"logger"}
OF_ONE = {"queued.min.messages", "retry.backoff.ms", "retry.backoff.max.ms"}
"""One kind of handle has a value of ours, all others the user's."""


def handles(settings: KafkaSettings) -> list[dict[str, Any]]:
    return [
        settings.reader(fetch_queue_kbytes=1),
        settings.sampler(),
        settings.tail(client_id="c", fetch_queue_kbytes=1),
        settings.shared_tail(client_id="c", fetch_queue_kbytes=1),
        settings.group_member(group_id="g", client_id="c", fetch_queue_kbytes=1, partitioned=True),
        settings.producer(compression="none", message_timeout_ms=1, linger_ms=1),
        settings.offset_writer(),
    ]


BARE = handles(KafkaSettings("a:1"))
NAMES = sorted({name for config in BARE for name in config} - NOT_TEXT)


@pytest.mark.parametrize("name", NAMES)
def test_an_option_of_ours_is_refused_or_the_users(name: str) -> None:
    """It reaches a handle whose value is ours, or the user hears that it does not."""
    given = KafkaSettings("a:1", {name: "1234"})
    looked_at = [config for bare, config in zip(BARE, handles(given), strict=True) if name in bare or name in OF_ONE]
    if "1234" not in [config[name] for config in looked_at]:
        with pytest.raises(InvalidOption, match=re.escape(name)):
            given.check()


ALIASES = {
    "compression.codec": "lz4",
    "delivery.timeout.ms": "5000",
    "max.partition.fetch.bytes": "1000",
    "metadata.broker.list": "b:1",
    "queue.buffering.max.ms": "5",
}


@pytest.mark.parametrize("name", sorted(ALIASES))
def test_nor_is_it_by_another_name(name: str) -> None:
    assert Consumer({"group.id": "g", "log_level": 0, name: ALIASES[name]}) is not None
    with pytest.raises(InvalidOption, match=re.escape(name)):
        KafkaSettings("a:1", {name: ALIASES[name]}).check()


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"message.timeout.ms": "5", "session.timeout.ms": "9000"},
         r"message.timeout.ms \(use create_producer's send_timeout_millis\), session.timeout.ms: pulsar-on-kafka"),
        ({"group.id": "x", "linger.ms": "5"}, "may not set group.id: the guarantees rest on them"),
    ],
)  # fmt: skip
def test_what_is_not_the_users_is_named(options: Mapping[str, str], told: str) -> None:
    with pytest.raises(InvalidOption, match=told):
        KafkaSettings("a:1", options).check()


def test_a_cluster_that_0_2_registered_with_such_an_option_is_reached_as_ever() -> None:
    address = ClusterAddress("kafka://e:9092", {"linger.ms": "5", "client.rack": "r"}, {})
    settings = peer_settings(address, {"sasl.username": "ada"})
    assert settings.overrides == {"client.rack": "r", "sasl.username": "ada"}
    with pytest.raises(InvalidOption, match=r"linger\.ms"):
        peer_settings(address, {"linger.ms": "5"})


def test_a_producer_is_compressed_as_it_says_or_else_as_the_user_does() -> None:
    given = KafkaSettings("a:1", {"compression.type": "zstd"})
    given.check()
    made = [given.producer(compression=name, message_timeout_ms=1, linger_ms=1) for name in ("none", "lz4")]
    assert [config["compression.type"] for config in made] == ["zstd", "lz4"]
