"""A dead letter has the last reason of its refusals, whichever processes refuse the message and write the letter."""

from __future__ import annotations

from typing import Any

import pytest

import pulsar_on_kafka as pulsar
from pulsar_on_kafka.admin import AdminClient, DeadLetter
from tests.integration.subscriptions.test_leases import join, known_to_owner
from tests.programs import a_program
from tests.seeds import first_of
from tests.steps import EARLIEST, PATIENCE_MS, SHARED, Process, Unique, receive, send
from tests.waiting import until

pytestmark = pytest.mark.kafka


def options(redeliveries: int = 1) -> dict[str, Any]:
    return {
        "negative_ack_redelivery_delay_ms": 10,
        "dead_letter_policy": pulsar.ConsumerDeadLetterPolicy(redeliveries),
    }


def letters(admin: AdminClient, topic: str, count: int) -> list[DeadLetter]:
    def found() -> list[DeadLetter]:
        try:
            return list(admin.dead_letters(f"{topic}-s-DLQ"))
        except pulsar.TopicNotFound:
            return []

    return until(lambda: there if len(there := found()) == count else None, "the dead letters")


def test_a_reason_outlives_the_consumer_that_gave_it(process: Process, unique: Unique, admin: AdminClient) -> None:
    topic = unique()
    first = join(process, topic, **options())
    send(process(), topic, 2)
    for message, reason in zip(receive(first, 2), ("no price", "ü" * 1000), strict=True):
        first.negative_acknowledge(message, reason=reason)
    first.close()
    second = join(process, topic, **options())
    for message in receive(second, 2):
        second.negative_acknowledge(message)
    one, two = sorted(letters(admin, topic, 2), key=lambda letter: letter.message.payload or b"")
    assert (one.reason, two.reason) == ("no price", "ü" * 250)
    assert one.properties == {}  # a redriven message has none


@pytest.mark.kills
def test_a_reason_outlives_a_kill(process: Process, service_url: str, unique: Unique, admin: AdminClient) -> None:
    topic = unique()
    send(process(), topic, 1)
    killed = a_program(
        """
        client = pulsar.Client(sys.argv[1])
        consumer = client.subscribe(sys.argv[2], "s", pulsar.ConsumerType.Shared,
                                    initial_position=pulsar.InitialPosition.Earliest,
                                    negative_ack_redelivery_delay_ms=1000,
                                    dead_letter_policy=pulsar.ConsumerDeadLetterPolicy(1))
        consumer.negative_acknowledge(consumer.receive(60000), reason="no price")
        consumer.flush()
        print("saved", flush=True)
        sys.stdin.read()
        """,
        service_url, topic,
    )  # fmt: skip
    assert killed.stdout is not None
    assert killed.stdout.readline() == "saved\n"
    killed.kill()
    killed.communicate()
    second = join(process, topic, **options())
    second.negative_acknowledge(second.receive(PATIENCE_MS))
    (letter,) = letters(admin, topic, 1)
    assert letter.reason == "no price"


@pytest.mark.parametrize("writes", first_of(1, ["other", "owner"], 0))
def test_a_reason_goes_from_process_to_process(
    process: Process, unique: Unique, admin: AdminClient, writes: str
) -> None:
    topic = unique()
    policy = options()
    owner = join(process, topic, priority_level=1, **(policy if writes == "owner" else {}))
    refusing = join(process, topic, **policy)
    until(lambda: known_to_owner([owner, refusing]) == 2, "the owner to know both")
    send(process(), topic, 1)
    refusing.negative_acknowledge(refusing.receive(PATIENCE_MS), reason="no price")
    until(lambda: refusing._endpoint.delivered == 2, "the redelivery")
    third = join(process, topic, **policy)
    until(lambda: known_to_owner([owner, refusing, third]) == 3, "the owner to know the third one")
    refusing.close()
    message = third.receive(PATIENCE_MS)
    assert message.redelivery_count() == 1
    third.negative_acknowledge(message)
    (letter,) = letters(admin, topic, 1)
    assert letter.reason == "no price"


def test_messages_of_a_batch_have_their_own(client: pulsar.Client, unique: Unique, admin: AdminClient) -> None:
    topic = unique()
    consumer = client.subscribe(topic, "s", SHARED, initial_position=EARLIEST, **options())
    producer = client.create_producer(topic, batching_enabled=True, batching_max_publish_delay_ms=60_000)
    for text in "abc":
        producer.send_async(text.encode(), None)
    producer.flush()
    for _ in range(2):
        for message in receive(consumer, 3):
            consumer.negative_acknowledge(message, reason=f"refused {message.data().decode()}")
    found = letters(admin, topic, 3)
    assert sorted(letter.reason for letter in found) == ["refused a", "refused b", "refused c"]


def test_a_retry_letter_has_its_reason(client: pulsar.Client, unique: Unique, admin: AdminClient) -> None:
    topic = unique()
    consumer = client.subscribe(topic, "s", SHARED, initial_position=EARLIEST, retry_enable=True, **options())
    send(client, topic, 1)
    consumer.reconsume_later(consumer.receive(PATIENCE_MS), 1, reason="no price")
    again = consumer.receive(PATIENCE_MS)
    assert again.properties()["REFUSAL_REASON"] == "no price"
    consumer.reconsume_later(again, 1, reason="still none")
    (letter,) = letters(admin, topic, 1)
    assert (letter.reason, letter.deliveries) == ("still none", 2)
    with pytest.raises(ValueError, match="reason"):
        consumer.negative_acknowledge(again, reason=3)  # type: ignore[arg-type]
