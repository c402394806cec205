"""Topic names and Kafka topics, rule by rule."""

from __future__ import annotations

import re

import pytest

from pulsar_on_kafka_mapping.encoding.escaping import units
from pulsar_on_kafka_mapping.errors import InvalidTopicName
from pulsar_on_kafka_mapping.names.read_back import topic_from_kafka
from pulsar_on_kafka_mapping.names.topic_name import MAX_KAFKA_TOPIC_CHARS, TopicName, kafka_topic, other_kafka_topic


def persistent(local_name: str, partition: int = -1) -> TopicName:
    return TopicName("persistent", "public", "default", local_name, partition)


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("orders", persistent("orders")),
        ("acme/eu/orders", TopicName("persistent", "acme", "eu", "orders")),
        ("non-persistent://acme/eu/ticks", TopicName("non-persistent", "acme", "eu", "ticks")),
        ("topic://acme/eu/orders-partition-2", TopicName("persistent", "acme", "eu", "orders", 2)),
        ("orders-partition-12", persistent("orders", 12)),
        ("-partition-3", persistent("-partition-3")),
        ("a-partition-01", persistent("a-partition-01")),
        ("a-partition--1", persistent("a-partition--1")),
        ("a-partition-", persistent("a-partition-")),
        ("a-partition-2147483648", persistent("a-partition-2147483648")),
        ("a-partition-٣", persistent("a-partition-٣")),
    ],
)
def test_a_name_says_its_parts(text: str, name: TopicName) -> None:
    """The partition's suffix is canonical, or belongs to the local name."""
    assert TopicName.parse(text) == name


def test_a_name_is_written_in_full() -> None:
    name = persistent("orders", 12)
    assert str(name) == "persistent://public/default/orders-partition-12"
    assert str(name.base) == "persistent://public/default/orders"
    assert name.base.with_partition(12) == name
    assert name.namespace_name == "public/default"
    assert name.is_persistent
    assert not TopicName.parse("non-persistent://acme/eu/ticks").is_persistent


def test_a_partition_of_a_partition_is_refused() -> None:
    with pytest.raises(InvalidTopicName, match="'a-partition-1' names a partition"):
        TopicName.parse("a-partition-1-partition-2")


def test_partition_below_minus_one_is_refused() -> None:
    with pytest.raises(InvalidTopicName, match="partition is -2"):
        persistent("orders", -2)


def test_a_v1_name_is_refused_as_such() -> None:
    with pytest.raises(InvalidTopicName, match="V1 name"):
        TopicName.parse("persistent://acme/us-west/eu/orders")


@pytest.mark.parametrize(
    "text",
    ["", "a/b", "/", "a//b", "a/b/c/d", "persistent://a/b", "persistent://a/b/", "persistent:///b/c", "kafka://a/b/c"],
)
def test_what_is_no_name_is_refused_with_its_value(text: str) -> None:
    with pytest.raises(InvalidTopicName, match=re.escape(repr(text))):
        TopicName.parse(text)


@pytest.mark.parametrize("tenant", ["a b", "é", "a\n", "a,b", "a+b"])
def test_a_tenant_has_the_letters_of_pulsars_named_entity(tenant: str) -> None:
    with pytest.raises(InvalidTopicName, match="tenant"):
        TopicName.parse(f"{tenant}/ns/orders")


@pytest.mark.parametrize("local_name", ["a\tb", "a\x00", "a\x7f", "a\x85", "a\ud800"])
def test_control_characters_and_lone_surrogates_are_refused(local_name: str) -> None:
    with pytest.raises(InvalidTopicName, match="control character"):
        TopicName.parse(local_name)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("orders-eu", "public.default.orders-eu"),
        ("my_topic", "public.default.my_topic"),
        ("a.b", "public.default.a-x2e-b"),
        ("a-xb", "public.default.a-x2d-xb"),
        ("Größe", "public.default.Gr-xf6--xdf-e"),
        ("my_co/eu.west/a", "my-x5f-co.eu-x2e-west.a"),
        ("non-persistent://public/default/ticks", "non-persistent-x-public.default.ticks"),
        ("persistent://pulsar/system/__transaction_log", "pulsar.system.__transaction_log"),
        ("orders-partition-3", "public.default.orders"),
    ],
)
def test_kafka_topic_of(name: str, expected: str) -> None:
    assert kafka_topic(TopicName.parse(name)) == expected


def test_a_name_of_249_characters_is_written_out() -> None:
    name = persistent("a" * (249 - len("public.default.")))
    assert len(kafka_topic(name)) == 249
    assert topic_from_kafka(kafka_topic(name)) == name


def test_a_longer_name_gets_a_hash_and_is_not_read_back() -> None:
    name = persistent("a" * 300)
    assert re.fullmatch(r"public\.default\.a+-xh[0-9a-f]{32}-", kafka_topic(name))
    assert len(kafka_topic(name)) == 249
    assert topic_from_kafka(kafka_topic(name)) is None


def test_a_hash_never_follows_half_an_escape() -> None:
    # Cut anywhere, '-x2d' before '-xh...-' would be the form of another, shorter name.
    for padding in range(6):
        text = kafka_topic(persistent("a" * padding + "-x" * 200))
        assert units(text)[-36:] == list(text[-36:])


@pytest.mark.parametrize(
    "text",
    [
        "orders",
        "a.b",
        "a.b.c.d",
        "a..c",
        "__consumer_offsets",
        "a_b.c.d",
        "a.b.-x2D-",
        "a.b.-x2d-",
        "a.b.c-partition-0",
        "non-persistent-x-a.b",
    ],
)
def test_foreign_kafka_topics_are_none(text: str) -> None:
    assert topic_from_kafka(text) is None


@pytest.mark.parametrize("local_name", ["orders", "x" * 225, "x" * 400])
def test_the_kafka_topic_beside_a_taken_one_is_no_other_topics(local_name: str) -> None:
    taken = kafka_topic(persistent(local_name))
    others = {other_kafka_topic(taken, version) for version in (7, 8)}
    assert len(others | {taken}) == 3
    for other in others:
        assert len(other) <= MAX_KAFKA_TOPIC_CHARS
        assert topic_from_kafka(other) is None
