"""Dead letters on a real broker, as an administrator finds them, sees them, puts them back and drops them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import pulsar_on_kafka as pulsar
from pulsar_on_kafka.admin import AdminClient, LetterFilter
from pulsar_on_kafka.schema import AvroSchema, Record, String
from tests.integration.client.test_encryption import key_pair
from tests.steps import EARLIEST, SHARED, Process, Unique, payloads, receive, receive_rest
from tests.waiting import until

pytestmark = pytest.mark.kafka


class Order(Record):
    name = String()


def policy(times: int = 1, **options: str) -> pulsar.ConsumerDeadLetterPolicy:
    return pulsar.ConsumerDeadLetterPolicy(times, **options)


def kill(admin: AdminClient, client: pulsar.Client, topic: str, subscription: str, count: int, times: int = 1) -> str:
    """Have a consumer refuse `count` messages until they are dead; gives the name of the topic that they are in."""
    consumer = client.subscribe(
        topic,
        subscription,
        SHARED,
        initial_position=EARLIEST,
        negative_ack_redelivery_delay_ms=10,
        dead_letter_policy=policy(times),
    )
    for _ in range(count * (times + 1)):
        consumer.negative_acknowledge(consumer.receive(60_000))
    letters = f"{topic}-{subscription}-DLQ"
    until(lambda: left(admin, letters) == count, lambda: f"{count} dead letters, there are {left(admin, letters)}")
    consumer.close()
    return letters


def left(admin: AdminClient, letters: str) -> int:
    try:
        return sum(found.left for found in admin.dead_letter_topics(topic=letters))
    except pulsar.TopicNotFound:
        return 0


@pytest.fixture
def keys(tmp_path: Path) -> pulsar.CryptoKeyReader:
    return key_pair(tmp_path, "a")


def test_where_they_came_from_and_how_often_they_were_delivered(
    client: pulsar.Client, admin: AdminClient, unique: Unique
) -> None:
    topic = unique("orders")
    producer = client.create_producer(topic)
    ids = [producer.send(b"one", {"colour": "red"}, partition_key="k"), producer.send(b"two", {"reason": "too late"})]
    letters = kill(admin, client, topic, "billing", 2, times=2)
    (found,) = admin.dead_letter_topics(topic=topic)
    assert found.topic == f"persistent://public/default/{letters}"
    assert (found.origin, found.subscription, found.left) == (f"persistent://public/default/{topic}", "billing", 2)
    assert found.oldest_ms is not None
    assert admin.dead_letter_topics(topic=letters) == [found]
    assert found in admin.dead_letter_topics()
    one, two = sorted(admin.dead_letters(letters), key=lambda letter: letter.message.payload or b"")
    assert (one.origin_topic, one.origin_message_id) == (f"persistent://public/default/{topic}", str(ids[0]))
    assert (one.subscription, one.deliveries, one.reason, two.reason) == ("billing", 3, "", "too late")
    assert (one.message.key, one.properties) == ("k", {"colour": "red"})
    assert [each.message.payload for each in admin.dead_letters(letters, 1, LetterFilter(key="k"))] == [b"one"]


def test_looking_makes_nothing(client: pulsar.Client, admin: AdminClient, unique: Unique) -> None:
    topic = unique("orders")
    with pytest.raises(pulsar.TopicNotFound):
        admin.dead_letters(topic)
    with pytest.raises(pulsar.TopicNotFound):
        admin.dead_letter_topics(topic=topic)
    with pytest.raises(pulsar.TopicNotFound):
        admin.plan_redrive(topic)
    with pytest.raises(pulsar.TopicNotFound):
        admin.peek_messages(topic)
    client.create_producer(topic).send(b"one")
    letters = kill(admin, client, topic, "billing", 1)
    assert admin.plan_redrive(letters).to == {f"persistent://public/default/{topic}": 1}
    assert len(admin.dead_letters(letters)) == 1
    assert admin.list_subscriptions(letters) == []
    assert admin.dead_letter_topics(topic=topic)[0].left == 1


def test_they_go_back_as_they_were(client: pulsar.Client, admin: AdminClient, unique: Unique) -> None:
    topic = unique("orders")
    admin.create_partitioned_topic(topic, 2)
    producer = client.create_producer(topic, schema=AvroSchema(Order))
    for number in range(6):
        producer.send(Order(name=f"n{number}"), {"number": str(number)}, partition_key=f"k{number}", ordering_key="o")
    for each in range(2):
        kill(
            admin,
            client,
            f"{topic}-partition-{each}",
            "billing",
            len(admin.peek_messages(f"{topic}-partition-{each}", 10)),
        )
    found = admin.dead_letter_topics(topic=topic)
    assert sum(each.left for each in found) == 6
    before = {message.key: message for message in admin.peek_messages(topic, 6)}
    again = client.subscribe(topic, "again", SHARED, schema=AvroSchema(Order))
    moved = sum(admin.redrive_dead_letters(each.topic).letters for each in found)
    assert moved == 6
    messages = receive(again, 6)
    assert sorted(message.value().name for message in messages) == [f"n{number}" for number in range(6)]
    for message in messages:
        former = before[message.partition_key()]
        assert message.properties() == former.properties
        assert message.ordering_key() == "o"
        assert message.topic_name() == former.topic  # the partition, too
        assert message.schema_version() == messages[0].schema_version() != ""
    assert receive_rest(again) == []
    assert [each.left for each in admin.dead_letter_topics(topic=topic)] == [0] * len(found)
    assert sum(admin.redrive_dead_letters(each.topic).letters for each in found) == 0


@pytest.mark.long
def test_some_go_elsewhere_and_some_are_dropped(client: pulsar.Client, admin: AdminClient, unique: Unique) -> None:
    topic, elsewhere = unique("orders"), unique("elsewhere")
    producer = client.create_producer(topic)
    for number in range(5):
        producer.send(str(number).encode(), {"odd": str(number % 2)}, partition_key=str(number))
    letters = kill(admin, client, topic, "billing", 5)
    with pytest.raises(pulsar.TopicNotFound, match=elsewhere):
        admin.redrive_dead_letters(letters, to=elsewhere)
    with pytest.raises(pulsar.NotAllowedError, match="they are in"):
        admin.redrive_dead_letters(letters, to=letters)
    admin.create_topic(elsewhere)
    odd = LetterFilter(properties={"odd": "1"})
    assert admin.plan_redrive(letters, odd, to=elsewhere).letters == 2
    assert admin.redrive_dead_letters(letters, odd, to=elsewhere).letters == 2
    assert sorted(message.payload or b"" for message in admin.peek_messages(elsewhere)) == [b"1", b"3"]
    assert admin.dead_letter_topics(topic=letters)[0].left == 3
    first = admin.dead_letters(letters, 1)[0].message
    assert admin.drop_dead_letters(letters, LetterFilter.of([first.message_id])) == 1
    assert admin.redrive_dead_letters(letters, to=elsewhere, count=1).letters == 1
    assert admin.dead_letter_topics(topic=letters)[0].left == 1
    assert admin.drop_dead_letters(letters) == 1
    assert admin.dead_letters(letters) == []
    assert len(admin.peek_messages(elsewhere)) == 3


def test_batches_chunks_and_letters_without_an_origin(
    client: pulsar.Client, admin: AdminClient, process: Process, unique: Unique
) -> None:
    """What other programs put into such a topic."""
    letters, origin = unique("made") + "-DLQ", unique("orders")
    admin.create_topic(origin)
    whence = {"REAL_TOPIC": origin, "ORIGIN_MESSAGE_ID": "3:4:-1:0", "REAL_SUBSCRIPTION": "s", "RECONSUMETIMES": "4"}
    batching = client.create_producer(
        letters, batching_enabled=True, batching_type=pulsar.BatchingType.Default, batching_max_publish_delay_ms=1000
    )
    for number in range(4):
        batching.send_async(str(number).encode(), None, whence, partition_key=str(number))
    batching.flush()
    large = b"x" * 2_500_000
    client.create_producer(letters, chunking_enabled=True).send(large, whence)
    client.create_producer(letters).send(None, whence)
    client.create_producer(letters).send(b"nobody's")
    shown = admin.dead_letters(letters, 10)
    assert [each.message.payload for each in shown] == [b"0", b"1", b"2", b"3", large, None, b"nobody's"]
    assert (shown[0].origin_topic, shown[0].origin_message_id, shown[0].subscription) == (origin, "3:4:-1:0", "s")
    assert [each.deliveries for each in shown] == [4] * 6 + [None]
    assert admin.redrive_dead_letters(letters, LetterFilter(key="2")).letters == 1
    assert [each.message.payload for each in admin.dead_letters(letters, 3)] == [b"0", b"1", b"3"]
    done = admin.redrive_dead_letters(letters)
    assert (done.letters, done.without_origin) == (5, 1)
    found = [(message.payload, message.properties) for message in admin.peek_messages(origin, 20)]
    assert found == [(body, {}) for body in (b"2", b"0", b"1", b"3", large, None)]
    assert [each.message.payload for each in admin.dead_letters(letters)] == [b"nobody's"]


def test_a_message_of_a_batch_is_peeked_at_by_its_id(client: pulsar.Client, admin: AdminClient, unique: Unique) -> None:
    topic = unique()
    producer = client.create_producer(topic, batching_enabled=True, batching_max_publish_delay_ms=1000)
    for number in range(5):
        producer.send_async(str(number).encode(), None)
    producer.flush()
    messages = admin.peek_messages(topic)
    assert [message.payload for message in messages] == [b"0", b"1", b"2", b"3", b"4"]
    third = messages[2].message_id
    assert [each.payload for each in admin.peek_messages(topic, start=third)] == [b"2", b"3", b"4"]
    assert admin.list_subscriptions(topic) == []


def test_a_reset_to_a_message_of_a_batch(client: pulsar.Client, admin: AdminClient, unique: Unique) -> None:
    topic = unique()
    producer = client.create_producer(topic, batching_enabled=True, batching_max_publish_delay_ms=1000)
    for number in range(5):
        producer.send_async(str(number).encode(), None)
    producer.flush()
    admin.create_subscription(topic, "s", from_earliest=True)
    admin.reset_cursor(topic, "s", message_id=admin.peek_messages(topic)[3].message_id)
    consumer = client.subscribe(topic, "s")
    assert payloads(receive_rest(consumer, least=2)) == ["3", "4"]


@pytest.mark.long
def test_what_is_encrypted_stays_so(
    client: pulsar.Client, admin: AdminClient, unique: Unique, keys: pulsar.CryptoKeyReader
) -> None:
    """Nobody needs a key to see where it came from, nor to put it back: a message, and a batch nobody could read."""
    topic = unique("orders")
    options: dict[str, Any] = {"encryption_key": "k1", "crypto_key_reader": keys}
    client.create_producer(topic, **options).send(b"secret", {"colour": "red"}, partition_key="k")
    consumer = client.subscribe(
        topic, "billing", SHARED, initial_position=EARLIEST, negative_ack_redelivery_delay_ms=10,
        dead_letter_policy=policy(1), crypto_key_reader=keys,
    )  # fmt: skip
    for _ in range(2):
        consumer.negative_acknowledge(consumer.receive(60_000))
    letters = f"{topic}-billing-DLQ"
    until(lambda: left(admin, letters) == 1, "the dead letter")
    (letter,) = admin.dead_letters(letters)
    assert letter.message.encrypted
    assert letter.message.payload != b"secret"
    assert (letter.message.key, letter.properties, letter.deliveries) == ("k", {"colour": "red"}, 2)
    consumer.close()
    whence = {"REAL_TOPIC": topic}
    batching = client.create_producer(letters, batching_enabled=True, batching_max_publish_delay_ms=1000, **options)
    for number in range(3):
        batching.send_async(str(number).encode(), None, whence)
    batching.flush()
    again = client.subscribe(topic, "again", crypto_key_reader=keys)
    assert [each.message.encrypted for each in admin.dead_letters(letters)] == [True, True]
    assert admin.redrive_dead_letters(letters).letters == 1  # the batch's properties are encrypted: it names no origin
    assert payloads(receive_rest(again, least=1)) == ["secret"]
    assert admin.redrive_dead_letters(letters, to=topic).letters == 1
    assert payloads(receive_rest(again, least=3)) == ["0", "1", "2"]
