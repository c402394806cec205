"""Letters that can never be written: a name is refused when subscribing, and no message waits in silence."""

from __future__ import annotations

import struct
from contextlib import suppress
from typing import Any

import pytest

import pulsar_on_kafka as pulsar
from pulsar_on_kafka.admin import AdminClient
from pulsar_on_kafka_mapping.wire.message_metadata import encode_fields
from tests.foreign_records import Foreign, ForeignProducer
from tests.steps import EARLIEST, PATIENCE_MS, SHARED, Unique
from tests.waiting import until

pytestmark = pytest.mark.kafka


def dead(topic: str | None = None) -> dict[str, Any]:
    return {"dead_letter_policy": pulsar.ConsumerDeadLetterPolicy(1, topic)}


@pytest.mark.parametrize(
    ("subscription", "options", "error", "complaint"),
    [
        ("s", dead("persistent://public/default/a/b/c"), pulsar.exceptions.InvalidTopicName, "V1 name"),
        ("s", dead("persistent://public/nowhere/dead"), pulsar.exceptions.TopicNotFound, "public/nowhere does not"),
        ("a/b", dead(), pulsar.exceptions.InvalidTopicName, "a/b-DLQ', a V1 name"),
        ("s", dead("public/default/nope-partition-7"), pulsar.exceptions.TopicNotFound, "has no partition 7"),
        ("a/b", {"retry_enable": True}, pulsar.exceptions.InvalidTopicName, "a/b-RETRY', a V1 name"),
        ("s", {"retry_enable": True, **dead("a/b/c/d")}, pulsar.exceptions.InvalidTopicName, "a/b/c/d"),
    ],
)
def test_a_topic_that_letters_can_never_have_is_refused_when_subscribing(
    client: pulsar.Client, admin: AdminClient, unique: Unique, subscription: str, options: dict[str, Any],
    error: type[Exception], complaint: str,
) -> None:  # fmt: skip
    topic = unique()
    with pytest.raises(error, match=complaint):
        client.subscribe(topic, subscription, SHARED, **options)
    if complaint != "V1 name" and "retry_enable" not in options:
        with pytest.raises(error, match=f"dead letters of subscription '{subscription}' cannot be written to topic"):
            client.subscribe(topic, subscription, SHARED, **options)
    client.subscribe(topic, subscription).close()  # no letter comes of an exclusive consumer


def test_a_message_whose_letter_is_refused_is_delivered_again_and_its_letter_tried_again(
    client: pulsar.Client, admin: AdminClient, unique: Unique, caplog: pytest.LogCaptureFixture
) -> None:
    topic, namespace = unique(), f"public/{unique('letters')}"
    admin.create_namespace(namespace)
    consumer = client.subscribe(topic, "s", SHARED, negative_ack_redelivery_delay_ms=1, **dead(f"{namespace}/dead"))
    admin.delete_namespace(namespace)
    client.create_producer(topic).send(b"dies")
    for _ in range(4):  # twice as the policy says; then each refusal gives the application another look
        consumer.negative_acknowledge(consumer.receive(PATIENCE_MS))
    assert f"is refused, its message is delivered again: namespace {namespace} does not exist" in caplog.text
    admin.create_namespace(namespace)

    def is_buried() -> bool:
        with suppress(pulsar.Timeout):
            consumer.negative_acknowledge(consumer.receive(100))
        return admin.subscription_stats(topic, "s").backlog == 0

    until(is_buried, "the letter to be written")
    letters = client.subscribe(f"{namespace}/dead", "look", initial_position=EARLIEST)
    assert letters.receive(PATIENCE_MS).data() == b"dies"
    letters.close()
    consumer.close()


@pytest.mark.parametrize("retry", [False, True])
def test_a_property_that_no_header_can_have_goes_along(
    client: pulsar.Client, admin: AdminClient, unique: Unique, bootstrap: str, retry: bool
) -> None:
    """Into the letter, and back from it."""
    topic, dead_topic = unique(), unique("dead")
    options = {"retry_enable": True} if retry else {"negative_ack_redelivery_delay_ms": 1}
    policy = pulsar.ConsumerDeadLetterPolicy(1, dead_topic, "look")
    consumer = client.subscribe(topic, "s", SHARED, dead_letter_policy=policy, **options)
    metadata = encode_fields([(1, encode_fields([(1, b"a\x00b"), (2, b"v")])), (3, 4)])
    foreign = ForeignProducer(bootstrap)
    value = struct.pack(">I", len(metadata)) + metadata + b"dies"
    foreign.send(f"public.default.{topic}", [Foreign([(b"__pulsar.batch", b"2:1")], value)])
    foreign.close()
    for _ in range(2):
        message = consumer.receive(PATIENCE_MS)
        assert message.properties()["a\x00b"] == "v"
        if retry:
            consumer.reconsume_later(message, 1)
        else:
            consumer.negative_acknowledge(message)
    letters = client.subscribe(dead_topic, "look")
    letter = letters.receive(PATIENCE_MS)
    assert (letter.data(), letter.properties()["a\x00b"]) == (b"dies", "v")
    letters.close()
    back = unique("back")
    client.subscribe(back, "s").close()
    admin.redrive_dead_letters(dead_topic, to=back)
    again = client.subscribe(back, "s").receive(PATIENCE_MS)
    assert again.properties() == {"a\x00b": "v"}
    consumer.close()
