"""Messages that are found and taken back before they are delivered, with and without consumers."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest

import pulsar_on_kafka as pulsar
from pulsar_on_kafka.admin import AdminClient, FoundMessage, cancelling
from tests.integration.client.test_encryption import key_pair
from tests.integration.command_line import CommandLine
from tests.steps import SHARED, SILENCE_MS, Process, Unique, nothing_comes, payloads, receive, receive_rest
from tests.waiting import until

pytestmark = pytest.mark.kafka

HOUR = timedelta(hours=1)


@pytest.fixture
def admin(admin_elsewhere: AdminClient) -> AdminClient:
    return admin_elsewhere


@pytest.fixture
def topic(admin: AdminClient, unique: Unique) -> str:
    return a_topic(admin, unique())


def a_topic(admin: AdminClient, name: str, partitions: int = 0) -> str:
    """A topic with the subscriptions a and b; 0: without partitions."""
    if partitions:
        admin.create_partitioned_topic(name, partitions)
    else:
        admin.create_topic(name)
    for subscription in ("a", "b"):
        admin.create_subscription(name, subscription, from_earliest=True)
    return name


def check_rest(client: pulsar.Client, topic: str, subscription: str, expected: list[str]) -> None:
    """What a fresh consumer gets; it acknowledges nothing."""
    consumer = client.subscribe(topic, subscription, consumer_type=SHARED)
    assert sorted(payloads(receive_rest(consumer, SILENCE_MS, least=len(expected)))) == expected
    consumer.close()


def receive_one(consumer: pulsar.Consumer) -> list[pulsar.Message]:
    try:
        return [consumer.receive(100)]
    except pulsar.Timeout:
        return []


def delayed_until_seen(consumer: pulsar.Consumer, count: int) -> None:
    """Wait until the owner has set so many messages aside."""
    member = consumer._member

    def is_seen() -> bool:
        return [each.delayed for each in member.stats(consumer._deadline())] == [count]

    until(is_seen, f"{count} messages to be delayed")


def test_messages_are_found_by_id_key_property_and_delay(client: pulsar.Client, admin: AdminClient, topic: str) -> None:
    producer = client.create_producer(topic)
    ids = [
        producer.send(b"0", {"colour": "red", "__pulsar.x": "1"}, partition_key="k"),
        producer.send(b"1", {"colour": "red"}, deliver_after=HOUR),
        producer.send(b"2", {"colour": "blue"}, partition_key="k", deliver_after=HOUR),
        producer.send(b"3", ordering_key="k", deliver_at=1),
    ]
    reader_of_a = client.subscribe(topic, "a", SHARED)
    receive(reader_of_a, 2)
    reader_of_a.acknowledge(ids[0])
    reader_of_a.flush()

    def found(**by: object) -> list[int]:
        return [ids.index(each.message_id) for each in admin.find_messages(topic, **by)]  # type: ignore[arg-type]

    assert found(key="k") == [0, 2]
    assert found(key="k", subscription="a") == [2]
    assert found(properties={"colour": "red"}) == [0, 1]
    assert found(properties={"colour": "red", "__pulsar.x": "1"}) == [0]
    assert found(delayed=True) == [1, 2]
    assert found(key="k", delayed=True, properties={"colour": "blue"}) == [2]
    assert found(message_ids=[ids[3], ids[0]]) == [0, 3]
    assert found(message_ids=[ids[1]], key="k") == []
    first, second = admin.find_messages(topic, key="k")
    assert (first.key, first.deliver_at_ms, first.subscriptions) == ("k", 0, ("b",))
    assert second.subscriptions == ("a", "b")
    assert second.deliver_at_ms - second.publish_time_ms == pytest.approx(3_600_000, abs=60_000)


def test_delayed_messages_are_cancelled(client: pulsar.Client, admin: AdminClient, topic: str) -> None:
    """One subscription has a consumer, the other one has none."""
    producer = client.create_producer(topic)
    for number in range(20):
        producer.send(b"%02d" % number, {"n": str(number % 4)}, deliver_after=HOUR)
    consumer = client.subscribe(topic, "a", SHARED)
    delayed_until_seen(consumer, 20)
    assert admin.cancel_messages(topic, properties={"n": "1"}) == {"a": 5, "b": 5}
    assert admin.cancel_messages(topic, properties={"n": "2"}, subscription="a") == {"a": 5}
    assert admin.cancel_messages(topic, properties={"n": "1"}) == {}
    assert [each.subscriptions for each in admin.find_messages(topic, properties={"n": "2"})] == 5 * [("b",)]
    delayed_until_seen(consumer, 10)
    admin.reschedule_messages(topic, deliver_at=0, delayed=True)
    assert sorted(payloads(receive_rest(consumer, SILENCE_MS, least=10))) == [
        f"{n:02d}" for n in range(20) if n % 4 in (0, 3)
    ]
    check_rest(client, topic, "b", [f"{n:02d}" for n in range(20) if n % 4 != 1])


def test_a_message_that_a_consumer_holds_stays_with_it_and_does_not_come_back(
    client: pulsar.Client, process: Process, admin: AdminClient, topic: str
) -> None:
    """Also with a consumer of another process than the owner's."""
    options = {"consumer_type": SHARED, "receiver_queue_size": 1, "negative_ack_redelivery_delay_ms": 1}
    consumers = [each.subscribe(topic, "a", **options) for each in (client, process())]  # type: ignore[arg-type]
    producer = client.create_producer(topic)
    ids = [producer.send(str(number).encode()) for number in range(8)]
    held = {consumers[0]: receive(consumers[0], 4)}
    held[consumers[1]] = receive(consumers[1], 3)  # one more may be in the inbox of the former
    while sum(map(len, held.values())) < 8:
        for consumer in consumers:
            held[consumer] += receive_one(consumer)
    assert admin.cancel_messages(topic, message_ids=ids, subscription="a") == {"a": 8}
    for consumer, messages in held.items():
        consumer.acknowledge(messages.pop())
        for message in messages:
            consumer.negative_acknowledge(message)
    assert all(map(nothing_comes, consumers))
    for consumer in consumers:
        consumer.close()
    check_rest(client, topic, "a", [])
    check_rest(client, topic, "b", [str(number) for number in range(8)])


def test_messages_of_batches_and_in_chunks(client: pulsar.Client, admin: AdminClient, topic: str) -> None:
    producer = client.create_producer(topic, batching_enabled=True, batching_max_publish_delay_ms=60_000)
    ids: list[object] = []
    for number in range(6):
        producer.send_async(
            str(number).encode(), lambda _, at: ids.append(at), {"n": str(number % 2)}, partition_key=f"k{number}"
        )
    producer.flush()
    large = client.create_producer(topic, chunking_enabled=True)
    chunked = large.send(b"x" * 11_000_000, {"n": "large"})
    large.send(b"y" * 11_000_000, {"n": "large"})
    large.send(b"z" * 11_000_000, {"n": "last"})
    (first, second) = admin.find_messages(topic, properties={"n": "large"})
    assert (first.message_id, first.message_id.first_chunk()) == (chunked, chunked.first_chunk())
    assert admin.cancel_messages(topic, key="k1") == {"a": 1, "b": 1}
    assert admin.cancel_messages(topic, message_ids=[ids[2]], subscription="a") == {"a": 1}
    assert admin.cancel_messages(topic, message_ids=[first.message_id]) == {"a": 3, "b": 3}
    (third,) = admin.find_messages(topic, properties={"n": "last"})
    short = [pulsar.MessageId(-1, m.message_id.ledger_id(), m.message_id.entry_id()) for m in (second, third)]
    assert admin.cancel_messages(topic, message_ids=short) == {"a": 6, "b": 6}
    check_rest(client, topic, "a", ["0", "3", "4", "5"])
    whole = pulsar.MessageId(-1, ids[0].ledger_id(), ids[0].entry_id())  # type: ignore[attr-defined]
    assert admin.cancel_messages(topic, message_ids=[whole], subscription="a") == {"a": 4}
    check_rest(client, topic, "a", [])
    check_rest(client, topic, "b", ["0", "2", "3", "4", "5"])


def test_one_partition_and_all_of_them(client: pulsar.Client, admin: AdminClient, unique: Unique) -> None:
    topic = unique()
    admin.create_partitioned_topic(topic, 3)
    admin.create_subscription(topic, "a", from_earliest=True)
    producer = client.create_producer(topic)
    ids = [producer.send(str(number).encode(), partition_key=f"k{number}") for number in range(30)]
    named = [each for each in ids if each.partition() == 1]
    everything = {"properties": {}, "message_ids": ids}
    assert len(list(admin.find_messages(f"{topic}-partition-1", message_ids=named))) == len(named)
    with pytest.raises(pulsar.NotAllowedError, match="names partition"):
        admin.find_messages(f"{topic}-partition-1", **everything)  # type: ignore[arg-type]
    assert admin.cancel_messages(topic, message_ids=named) == {"a": len(named)}
    assert admin.cancel_messages(topic, **everything) == {"a": 30 - len(named)}  # type: ignore[arg-type]
    check_rest(client, topic, "a", [])


def test_pieces_are_acknowledged_one_after_the_other(
    client: pulsar.Client, admin: AdminClient, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cancelling, "MESSAGES_AT_ONCE", 7)
    producer = client.create_producer(topic)
    for number in range(50):
        producer.send(str(number).encode(), partition_key=str(number % 2))
    assert admin.cancel_messages(topic, key="1") == {"a": 25, "b": 25}
    check_rest(client, topic, "b", sorted(str(number) for number in range(0, 50, 2)))


def test_a_key_in_an_encrypted_batch_is_not_seen(
    client: pulsar.Client, admin: AdminClient, topic: str, tmp_path: Path
) -> None:
    producer = client.create_producer(
        topic, batching_enabled=True, batching_max_publish_delay_ms=60_000,
        encryption_key="a", crypto_key_reader=key_pair(tmp_path, "a"),
    )  # fmt: skip
    ids: list[object] = []
    for number in range(3):
        producer.send_async(str(number).encode(), lambda _, at: ids.append(at), partition_key="k")
    producer.flush()
    assert admin.cancel_messages(topic, key="k") == {}
    (found,) = admin.find_messages(topic, message_ids=ids[1:2])
    assert (found.message_id, found.key) == (ids[1], "")
    assert admin.cancel_messages(topic, message_ids=ids) == {"a": 3, "b": 3}


def test_what_is_refused(admin: AdminClient, topic: str, client: pulsar.Client, unique: Unique) -> None:
    other = client.create_producer(unique()).send(b"x")
    with pytest.raises(pulsar.InvalidConfiguration, match="no message is named"):
        admin.cancel_messages(topic)
    with pytest.raises(pulsar.InvalidConfiguration, match="expected message ids, got str"):
        admin.cancel_messages(topic, message_ids=["0:0"])
    with pytest.raises(pulsar.PulsarException, match="expected"):
        admin.cancel_messages(topic, message_ids=[pulsar.MessageId(-1, other.ledger_id() + 2**40, 0)])
    with pytest.raises(pulsar.SubscriptionNotFound):
        admin.find_messages(topic, subscription="c", key="k")
    with pytest.raises(pulsar.TopicNotFound):
        admin.find_messages(unique(), key="k")


def test_messages_of_transactions(service_url: str, admin: AdminClient, topic: str) -> None:
    """Those of open and aborted ones are passed over."""
    with_transactions = pulsar.Client(service_url, enable_transaction=True)
    producer = with_transactions.create_producer(topic)
    states = [with_transactions.new_transaction() for _ in range(3)]
    ids = [producer.send(b"x", {"n": "1"}, txn=each) for each in states]
    states[0].commit()
    states[1].abort()
    found: Callable[[], list[FoundMessage]] = lambda: list(admin.find_messages(topic, properties={"n": "1"}))  # noqa: E731
    until(lambda: len(found()) == 1, "the committed message to be found")
    assert [each.message_id for each in found()] == ids[:1]
    states[2].abort()
    with_transactions.close()


def test_pok_messages(client: pulsar.Client, admin: AdminClient, topic: str, service_url: str, tmp_path: Path) -> None:
    pok = CommandLine(service_url, "messages")
    producer = client.create_producer(topic)
    for number in range(4):
        producer.send(str(number).encode(), {"n": str(number % 2)}, partition_key=f"k{number}", deliver_after=HOUR)
    lines = [line.split("\t") for line in pok("find", topic, "--delayed").stdout.splitlines()]
    assert [(key, on) for _, _, _, key, on in lines] == [(f"k{number}", "a,b") for number in range(4)]
    (found,) = [pok.json("find", topic, "--key", "k2", "-s", "a")]
    assert (found["message_id"], found["key"], found["subscriptions"]) == (lines[2][0], "k2", ["a"])
    assert found["deliver_at_ms"] > found["publish_time_ms"]
    assert "no message is named" in pok.refused("find", topic)
    told = pok("cancel", topic, "--filter", "n=1", exits=1).stderr
    assert told == (
        f"pok will cancel 2 messages on a, 2 messages on b of {topic}\npok: nothing was done: use --yes to do it\n"
    )
    done = pok("cancel", topic, "--filter", "n=1", "-s", "a", "--yes")
    assert done.stderr == f"pok will cancel messages of {topic} on a\n"
    assert done.stdout == "2 messages on a cancelled\n"
    listed = tmp_path / "ids"
    listed.write_text("".join(f"{line[0]}\n" for line in lines))
    assert pok.json("cancel", topic, "--ids-file", str(listed), "--yes") == {"cancelled": {"a": 2, "b": 4}}
    assert pok("cancel", topic, "--delayed", "--yes").stdout == "0 messages cancelled\n"
    assert "cannot be read" in pok("cancel", topic, "--ids-file", f"{listed}.none", exits=2).stderr
