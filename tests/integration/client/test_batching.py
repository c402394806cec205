"""Batches: what goes into one record, what their ids look like, and what comes again of them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer as RawProducer

import pulsar_on_kafka as pulsar
from pulsar_on_kafka.admin import AdminClient
from tests.integration.client.test_encryption import key_pair
from tests.seeds import first_of
from tests.steps import EARLIEST, PATIENCE_MS, SHARED, Unique, counted, nothing_comes, payloads, receive, receive_rest
from tests.waiting import until

LATE_MS = 600_000
"""A delay that does not pass in a test, which has three minutes: batches end by a limit or by flush()."""


def batching(client: pulsar.Client, topic: str, **options: Any) -> pulsar.Producer:
    options = {"batching_max_publish_delay_ms": LATE_MS, **options}
    return client.create_producer(topic, batching_enabled=True, **options)


def send_batch(producer: pulsar.Producer, *texts: str, **options: Any) -> list[Any]:
    """Send these in one flush and give their ids, in the order of sending."""
    ids: dict[str, Any] = {}

    def sent(text: str) -> Callable[[Any, Any], None]:
        def answer(result: pulsar.Result, message_id: Any) -> None:
            assert result == pulsar.Result.Ok
            ids[text] = message_id

        return answer

    for text in texts:
        producer.send_async(text.encode(), sent(text), **options)
    producer.flush()
    return [ids[text] for text in texts]


def receive_all(consumers: list[pulsar.Consumer], count: int) -> list[list[pulsar.Message]]:
    """What each consumer gets of `count` messages, and nothing comes after them."""
    found: list[list[pulsar.Message]] = [[] for _ in consumers]

    def complete() -> bool:
        for part, consumer in zip(found, consumers, strict=True):
            part += receive_rest(consumer, 100)
        return sum(map(len, found)) >= count

    until(complete, f"{count} messages")
    return found


def places(ids: list[Any]) -> list[tuple[int, int]]:
    return [(message_id.entry_id(), message_id.batch_index()) for message_id in ids]


def test_a_batch_is_one_entry(client: pulsar.Client, unique: Unique) -> None:
    topic = unique()
    consumer = client.subscribe(topic, "s", initial_position=EARLIEST)
    producer = batching(client, topic)
    ids = send_batch(producer, "a", "b", "c") + send_batch(producer, "d")
    assert places(ids) == [(0, 0), (0, 1), (0, 2), (1, 0)]
    assert producer.last_sequence_id() == 3
    # As pulsar-client 3.13.0 writes them: ... 20 batch index, 30 batch size.
    assert [message_id.serialize()[-4:].hex() for message_id in ids] == ["20003003", "20013003", "20023003", "20003001"]
    messages = receive(consumer, 4)
    assert payloads(messages) == ["a", "b", "c", "d"]
    assert [message.message_id() for message in messages] == ids
    assert [pulsar.MessageId.deserialize(i.serialize()).serialize() for i in ids] == [i.serialize() for i in ids]


def test_each_message_of_a_batch_carries_its_own(client: pulsar.Client, unique: Unique) -> None:
    topic = unique()
    consumer = client.subscribe(topic, "s", initial_position=EARLIEST)
    producer = batching(client, topic, producer_name="press")
    producer.send_async(b"plain", None)
    producer.send_async(
        b"rich", None, {"ü": "漢"}, partition_key="k", ordering_key="o", event_timestamp=5, sequence_id=70
    )
    producer.send_async(b"", None, ordering_key="only")
    producer.send_async(None, None)
    producer.flush()
    plain, rich, empty, null = receive(consumer, 4)
    assert (plain.properties(), plain.partition_key(), plain.ordering_key(), plain.event_timestamp()) == ({}, "", "", 0)
    assert (rich.data(), rich.properties(), rich.partition_key()) == (b"rich", {"ü": "漢"}, "k")
    assert (rich.ordering_key(), rich.event_timestamp(), rich.producer_name()) == ("o", 5, "press")
    assert (empty.data(), empty.has_null_value(), empty.partition_key(), empty.ordering_key()) == (
        b"",
        False,
        "",
        "only",
    )
    assert (null.data(), null.has_null_value()) == (b"", True)
    assert places([m.message_id() for m in (plain, rich, empty, null)]) == [(0, 0), (0, 1), (0, 2), (0, 3)]


def test_limits_end_a_batch(client: pulsar.Client, unique: Unique) -> None:
    by_count = batching(client, unique(), batching_max_messages=2)
    assert places(send_batch(by_count, "a", "b", "c", "d", "e")) == [(0, 0), (0, 1), (1, 0), (1, 1), (2, 0)]
    by_size = batching(client, unique(), batching_max_allowed_size_in_bytes=100)
    assert places(send_batch(by_size, "a" * 40, "b" * 40, "c" * 40)) == [(0, 0), (0, 1), (1, 0)]
    one_each = batching(client, unique(), batching_max_allowed_size_in_bytes=0)
    assert places(send_batch(one_each, "a", "b")) == [(0, 0), (1, 0)]
    at_once = batching(client, unique(), batching_max_publish_delay_ms=0)
    assert places(send_batch(at_once, "a", "b")) == [(0, 0), (1, 0)]


def test_the_delay_ends_a_batch_and_a_send_waits_for_it(client: pulsar.Client, unique: Unique) -> None:
    producer = batching(client, unique(), batching_max_publish_delay_ms=200)
    found: list[Any] = []
    producer.send_async(b"a", lambda _, message_id: found.append(message_id))
    start_s = time.monotonic()
    found.append(producer.send(b"b"))
    assert time.monotonic() - start_s > 0.1
    assert places(found) == [(0, 0), (0, 1)]
    assert places([producer.send(b"c")]) == [(1, 0)]


def test_close_sends_what_waits(client: pulsar.Client, unique: Unique) -> None:
    topic = unique()
    consumer = client.subscribe(topic, "s", initial_position=EARLIEST)
    producer = batching(client, topic)
    producer.send_async(b"a", None)
    producer.close()
    assert payloads(receive(consumer, 1)) == ["a"]


def test_messages_that_wait_for_their_batch_count_as_pending(client: pulsar.Client, unique: Unique) -> None:
    producer = batching(client, unique(), max_pending_messages=5)
    results: list[Any] = []
    for _ in range(8):
        producer.send_async(b"x", lambda result, _: results.append(result))
    until(lambda: len(results) == 8, "all to be answered")  # the full queue ended the batch
    assert sorted(map(str, results)) == ["Result.Ok"] * 5 + ["Result.ProducerQueueIsFull"] * 3
    blocking = batching(client, unique(), max_pending_messages=5, block_if_queue_full=True)
    assert len(send_batch(blocking, *map(str, range(23)))) == 23


def test_a_callback_may_send_into_a_full_queue(client: pulsar.Client, unique: Unique) -> None:
    producer = batching(client, unique(), max_pending_messages=2, block_if_queue_full=True)
    done = threading.Event()

    def again(result: Any, message_id: Any) -> None:
        producer.send_async(b"second", lambda *_: done.set())
        producer.send_async(b"third", None)

    producer.send_async(b"first", again)
    producer.send_async(b"first", None)
    until(lambda: (producer.flush(), done.is_set())[1], "the second message to be sent")


def test_messages_without_a_key_change_partitions_by_batch(
    client: pulsar.Client, admin: AdminClient, unique: Unique
) -> None:
    topic = unique()
    admin.create_partitioned_topic(topic, 3)
    producer = batching(client, topic, batching_max_messages=4)
    ids = send_batch(producer, *map(str, range(12)))
    used = [message_id.partition() for message_id in ids]
    assert sorted(used[::4]) == [0, 1, 2]
    assert used == [partition for partition in used[::4] for _ in range(4)]


def test_acks_inside_a_batch_survive_a_restart(client: pulsar.Client, service_url: str, unique: Unique) -> None:
    topic = unique()
    consumer = client.subscribe(topic, "s", SHARED, initial_position=EARLIEST)
    send_batch(batching(client, topic), *"abcde")
    a, b, c, d, e = receive(consumer, 5)
    consumer.acknowledge(b)
    consumer.acknowledge(d.message_id())
    consumer.acknowledge(pulsar.MessageId.deserialize(e.message_id().serialize()))
    consumer.close()
    consumer = client.subscribe(topic, "s", SHARED)
    again = receive(consumer, 2)
    assert payloads(again) == ["a", "c"]
    assert [message.message_id() for message in again] == [a.message_id(), c.message_id()]
    for message in again:
        consumer.acknowledge(message)
    consumer.close()
    assert receive_rest(client.subscribe(topic, "s", SHARED)) == []


def test_an_id_made_by_hand_acknowledges_one_message(client: pulsar.Client, unique: Unique) -> None:
    topic = unique()
    consumer = client.subscribe(topic, "s", initial_position=EARLIEST)
    first, _, _ = send_batch(batching(client, topic), *"abc")
    receive(consumer, 3)
    consumer.acknowledge(pulsar.MessageId(-1, first.ledger_id(), first.entry_id(), 1))
    with pytest.raises(pulsar.InvalidMessage, match="expected 0 to 2"):
        consumer.acknowledge(pulsar.MessageId(-1, first.ledger_id(), first.entry_id(), 3))
    consumer.close()
    consumer = client.subscribe(topic, "s")
    assert payloads(receive(consumer, 2)) == ["a", "c"]
    consumer.acknowledge(pulsar.MessageId(-1, first.ledger_id(), first.entry_id(), -1))  # the whole entry
    consumer.close()
    assert receive_rest(client.subscribe(topic, "s")) == []


def test_a_parsed_message_acknowledges_one_message(client: pulsar.Client, unique: Unique) -> None:
    topic, other = unique(), unique()
    consumer = client.subscribe(topic, "s", initial_position=EARLIEST)
    several = client.subscribe([topic, other], "several", initial_position=EARLIEST)
    send_batch(batching(client, topic), *"abc")
    received = receive(consumer, 3)
    receive(several, 3)
    data = b"".join(b"\0\0\0\2\x18\1" + message.data() for message in received)
    parsed = pulsar.MessageBatch().with_message_id(received[0].message_id()).parse_from(data, 3)
    assert [message.message_id() for message in parsed] == [message.message_id() for message in received]
    assert parsed[1].topic_name() == received[1].topic_name()
    for each in (consumer, several):
        each.acknowledge(parsed[1])
        each.close()
    assert payloads(receive(client.subscribe(topic, "s"), 2)) == ["a", "c"]
    assert payloads(receive(client.subscribe([topic, other], "several"), 2)) == ["a", "c"]


@pytest.mark.parametrize("kind", [SHARED, pulsar.ConsumerType.Exclusive])
def test_redelivery_leaves_out_what_is_acknowledged(
    client: pulsar.Client, unique: Unique, kind: pulsar.ConsumerType
) -> None:
    topic = unique()
    consumer = client.subscribe(topic, "s", kind, initial_position=EARLIEST, negative_ack_redelivery_delay_ms=100)
    send_batch(batching(client, topic), *"abcde")
    messages = receive(consumer, 5)
    consumer.acknowledge(messages[1])
    consumer.acknowledge(messages[3])
    consumer.negative_acknowledge(messages[2])
    if kind is SHARED:  # the others are its consumer's still
        assert counted(receive_rest(consumer, least=1)) == [("c", 1)]
    else:
        assert counted(receive(consumer, 3)) == [("a", 0), ("c", 0), ("e", 0)]
    consumer.acknowledge(messages[0])
    consumer.redeliver_unacknowledged_messages()
    assert payloads(receive(consumer, 2)) == ["c", "e"]
    assert nothing_comes(consumer)


def test_a_closed_consumers_rest_of_a_batch_goes_to_another(client: pulsar.Client, unique: Unique) -> None:
    topic = unique()
    joe = client.subscribe(topic, "s", SHARED, initial_position=EARLIEST)
    send_batch(batching(client, topic), *"abcd")
    messages = receive(joe, 4)
    ann = client.subscribe(topic, "s", SHARED)
    joe.acknowledge(messages[0])
    joe.close()
    assert payloads(receive(ann, 3)) == ["b", "c", "d"]


@pytest.mark.parametrize("inclusive", first_of(1, [True, False]))
def test_seek_into_a_batch(client: pulsar.Client, unique: Unique, inclusive: bool) -> None:
    """Seeks into a batch end where pulsar-client 3.13.0's do."""
    topic = unique()
    consumer = client.subscribe(topic, "s", start_message_id_inclusive=inclusive)
    producer = batching(client, topic)
    ids = send_batch(producer, *"abcde") + send_batch(producer, *"fg")
    receive(consumer, 7)
    consumer.seek(ids[2])
    assert "".join(payloads(receive_rest(consumer))) == ("cdefg" if inclusive else "defg")
    consumer.seek(pulsar.MessageId(-1, ids[0].ledger_id(), ids[0].entry_id(), 2))
    assert "".join(payloads(receive_rest(consumer))) == ("cdefg" if inclusive else "defg")
    consumer.seek(pulsar.MessageId(-1, ids[0].ledger_id(), ids[0].entry_id(), -1))
    assert "".join(payloads(receive_rest(consumer))) == "abcdefg"
    consumer.seek(ids[4])
    assert "".join(payloads(receive_rest(consumer))) == ("efg" if inclusive else "fg")


def test_limits_of_the_consumer_count_messages(client: pulsar.Client, unique: Unique) -> None:
    topic = unique()
    joe = client.subscribe(topic, "s", SHARED, initial_position=EARLIEST, receiver_queue_size=3)
    producer = batching(client, topic)
    for start in range(0, 50, 5):
        send_batch(producer, *map(str, range(start, start + 5)))
    assert payloads(receive(joe, 1)) == ["0"]
    ann = client.subscribe(topic, "s", SHARED)
    # Joe's four are more than his inbox takes: he gets no further batch until there is room.
    assert payloads(receive(ann, 45)) == list(map(str, range(5, 50)))
    assert payloads(receive(joe, 4)) == ["1", "2", "3", "4"]


def test_a_batch_that_cannot_be_read_is_skipped_and_told(
    client: pulsar.Client, admin: AdminClient, service_url: str, unique: Unique, caplog: pytest.LogCaptureFixture
) -> None:
    topic = unique()
    consumer = client.subscribe(topic, "s", SHARED, initial_position=EARLIEST)
    producer = batching(client, topic)
    send_batch(producer, "before")
    raw = RawProducer({"bootstrap.servers": service_url.removeprefix("kafka://")})
    kafka_topic = admin.topic_stats(topic).kafka_topic
    for header in (b"1:3", b"nonsense"):
        raw.produce(kafka_topic, b"no batch", partition=0, headers=[("__pulsar.batch", header)])
    raw.flush()
    send_batch(producer, "after")
    messages = receive(consumer, 2)
    assert payloads(messages) == ["before", "after"]
    assert caplog.text.count("is skipped and acknowledged") == 2
    for message in messages:
        consumer.acknowledge(message)
    consumer.close()
    assert admin.topic_stats(topic).subscriptions["s"] == 0


def test_refused_options(client: pulsar.Client, unique: Unique) -> None:
    topic = unique()
    with pytest.raises(ValueError, match="can't be enabled together"):
        client.create_producer(topic, batching_enabled=True, chunking_enabled=True)
    with pytest.raises(ValueError, match="greater than 1"):
        client.create_producer(topic, batching_max_messages=1)
    for name in ("batching_max_messages", "batching_max_allowed_size_in_bytes", "batching_max_publish_delay_ms"):
        wrong: dict[str, Any] = {name: -1}
        with pytest.raises(TypeError, match=name):
            client.create_producer(topic, **wrong)
    producer = batching(client, topic)
    with pytest.raises(pulsar.MessageTooBig):
        producer.send(b"x" * (6 * 1024 * 1024))
    with pytest.raises(TypeError, match="properties are text"):
        producer.send_async(b"x", None, {"a": 1})  # type: ignore[dict-item]


def test_mixed_with_plain_messages(client: pulsar.Client, unique: Unique) -> None:
    topic = unique()
    consumer = client.subscribe(topic, "s", SHARED, initial_position=EARLIEST)
    producer, plain = batching(client, topic), client.create_producer(topic)
    for number in range(0, 40, 4):
        send_batch(producer, str(number), str(number + 1), str(number + 2))
        plain.send(str(number + 3).encode())
    messages = receive(consumer, 40)
    assert payloads(messages) == list(map(str, range(40)))
    for message in messages:
        if int(message.data()) % 7:
            consumer.acknowledge(message)
    consumer.close()
    consumer = client.subscribe(topic, "s", SHARED)
    assert payloads(receive(consumer, 6)) == ["0", "7", "14", "21", "28", "35"]
    assert nothing_comes(consumer)


def test_the_last_id_names_the_last_message_of_a_batch(client: pulsar.Client, unique: Unique) -> None:
    topic = unique()
    consumer = client.subscribe(topic, "s")
    producer = batching(client, topic)
    last = send_batch(producer, *"abc")[-1]
    found = consumer.get_last_message_id()
    assert found == last
    assert found.serialize() == last.serialize()[:-2]  # without the batch's size, as pulsar-client 3.13.0
    last = client.create_producer(topic).send(b"d")
    assert consumer.get_last_message_id() == last


@pytest.mark.parametrize("inclusive", [False, True])
def test_a_reader_begins_inside_a_batch(client: pulsar.Client, unique: Unique, inclusive: bool) -> None:
    topic = unique()
    producer = batching(client, topic)
    ids = send_batch(producer, *"abcde") + send_batch(producer, *"fg")
    client.create_producer(topic).send(b"h")

    def read_from(start: Any) -> str:
        reader = client.create_reader(topic, start, start_message_id_inclusive=inclusive)
        found = []
        while reader.has_message_available():
            found.append(reader.read_next(15_000))
        reader.close()
        return "".join(payloads(found))

    assert read_from(pulsar.MessageId.earliest) == "abcdefgh"
    assert read_from(ids[2]) == ("cdefgh" if inclusive else "defgh")
    assert read_from(ids[4]) == ("efgh" if inclusive else "fgh")
    assert read_from(pulsar.MessageId(-1, ids[0].ledger_id(), 0, -1)) == "abcdefgh"
    assert read_from(ids[6]) == ("gh" if inclusive else "h")


def test_key_shared_gives_an_entry_to_one_consumer(client: pulsar.Client, unique: Unique) -> None:
    topic = unique()
    kind = pulsar.ConsumerType.KeyShared
    consumers = [client.subscribe(topic, "s", kind, initial_position=EARLIEST) for _ in range(2)]
    producer = batching(client, topic, batching_type=pulsar.BatchingType.KeyBased)
    for number in range(60):
        producer.send_async(str(number).encode(), None, partition_key=f"k{number % 12}")
    producer.flush()
    got = receive_all(consumers, 60)
    assert sorted(int(m.data()) for part in got for m in part) == list(range(60))
    keys = [{message.partition_key() for message in part} for part in got]
    assert not keys[0] & keys[1]
    for part in got:
        for message in part:
            if int(message.data()) >= 12:
                consumers[0 if part is got[0] else 1].acknowledge(message)
    for consumer in consumers:
        consumer.redeliver_unacknowledged_messages()
    again = receive_all(consumers, 12)
    assert sorted(int(m.data()) for part in again for m in part) == list(range(12))


def test_dead_letters_out_of_a_batch(client: pulsar.Client, unique: Unique) -> None:
    topic = unique()
    letters = client.subscribe(f"{topic}-dead", "look", initial_position=EARLIEST)
    consumer = client.subscribe(
        topic,
        "s",
        SHARED,
        initial_position=EARLIEST,
        negative_ack_redelivery_delay_ms=50,
        dead_letter_policy=pulsar.ConsumerDeadLetterPolicy(1, f"{topic}-dead"),
    )
    send_batch(batching(client, topic), *"abcd")
    messages = receive(consumer, 4)
    consumer.negative_acknowledge(messages[1])
    (again,) = receive_rest(consumer, least=1)
    assert (payloads([again]), again.redelivery_count()) == (["b"], 1)
    consumer.negative_acknowledge(again)
    assert payloads(receive(letters, 1)) == ["b"]
    for message in messages[2:]:
        consumer.acknowledge(message)
    consumer.negative_acknowledge(messages[0])
    consumer.negative_acknowledge(receive(consumer, 1)[0])
    assert payloads(receive(letters, 1)) == ["a"]
    consumer.close()
    assert receive_rest(client.subscribe(topic, "s", SHARED)) == []


@pytest.mark.long
@pytest.mark.parametrize("kind", [SHARED, pulsar.ConsumerType.KeyShared])
def test_only_what_is_refused_or_takes_too_long_comes_again(
    client: pulsar.Client, unique: Unique, kind: pulsar.ConsumerType
) -> None:
    topic = unique()
    options: dict[str, Any] = {"negative_ack_redelivery_delay_ms": 50, "unacked_messages_timeout_ms": 10_000}
    consumer = client.subscribe(topic, "s", kind, initial_position=EARLIEST, **options)
    producer = client.create_producer(
        topic, batching_enabled=True, batching_max_messages=1000, batching_max_publish_delay_ms=5000
    )
    send_batch(producer, *map(str, range(1000)), **({} if kind is SHARED else {"partition_key": "k"}))
    held = receive(consumer, 300)
    consumer.negative_acknowledge(held[7])
    texts: list[str] = []
    while not texts or texts[-1] != "7":  # behind what waits in the inbox
        message = consumer.receive(PATIENCE_MS)
        texts.append(message.data().decode())
        consumer.acknowledge(message)
    assert (message.redelivery_count(), texts[:-1]) == (1, [str(number) for number in range(300, 1000)])
    for message in held[8:]:
        consumer.acknowledge(message)
    assert counted(receive(consumer, 7)) == [(str(number), 1) for number in range(7)]  # they took too long
    consumer.close()
    other = client.subscribe(topic, "s", kind)
    assert payloads(receive(other, 7)) == [str(number) for number in range(7)]
    assert nothing_comes(other)


def test_an_exclusive_producers_batches(client: pulsar.Client, unique: Unique) -> None:
    topic = unique()
    consumer = client.subscribe(topic, "s", initial_position=EARLIEST)
    producer = batching(client, topic, access_mode=pulsar.ProducerAccessMode.Exclusive)
    ids = send_batch(producer, *"abc")
    assert places(ids) == [(0, 0), (0, 1), (0, 2)]
    assert [message.message_id() for message in receive(consumer, 3)] == ids
    producer.close()


def test_delayed_messages_of_a_batching_producer_go_alone(client: pulsar.Client, unique: Unique) -> None:
    topic = unique()
    consumer = client.subscribe(topic, "s", SHARED, initial_position=EARLIEST)
    producer = batching(client, topic)
    ids: list[Any] = []
    for text, delay in (("a", None), ("late", timedelta(seconds=1)), ("b", None)):
        producer.send_async(text.encode(), lambda _, message_id: ids.append(message_id), deliver_after=delay)
    producer.flush()
    assert places(ids) == [(0, 0), (1, -1), (2, 0)]
    assert payloads(receive(consumer, 3)) == ["a", "b", "late"]


def test_encrypted_batches(client: pulsar.Client, unique: Unique, tmp_path: Path) -> None:
    topic = unique()
    keys = key_pair(tmp_path, "ours")
    reading = client.subscribe(topic, "s", SHARED, initial_position=EARLIEST, crypto_key_reader=keys)
    blind = client.subscribe(
        topic,
        "blind",
        initial_position=EARLIEST,
        crypto_failure_action=pulsar.ConsumerCryptoFailureAction.CONSUME,
    )
    send_batch(batching(client, topic, encryption_key="ours", crypto_key_reader=keys), *"abc")
    messages = receive(reading, 3)
    assert payloads(messages) == ["a", "b", "c"]
    context = messages[0].encryption_context()
    assert context is not None
    assert (context.batch_size(), context.is_decryption_failed()) == (3, False)
    assert len(receive_rest(blind, least=1)) == 1  # the entry as it is, as one message
    reading.acknowledge(messages[1])
    reading.redeliver_unacknowledged_messages()
    assert payloads(receive(reading, 2)) == ["a", "c"]
