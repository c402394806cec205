"""Nobody is given a record of an open or aborted transaction: consumers of all types, readers, table views."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest
from confluent_kafka import Producer as KafkaProducer

import pulsar_on_kafka as pulsar
from pulsar_on_kafka.admin import AdminClient
from pulsar_on_kafka.broker.subscriptions.records import read_committed
from pulsar_on_kafka.broker.transactions.buffer.model import DataPartition
from pulsar_on_kafka_mapping.ids.txn_id import TxnId
from pulsar_on_kafka_mapping.names.topic_name import TopicName, kafka_topic
from pulsar_on_kafka_mapping.records.record_headers import TXN
from tests.integration.transaction_support import read_all
from tests.integration.transactions_by_hand import WrittenByHand
from tests.kafka_records import headers_of, place_of
from tests.steps import Unique, payloads, receive, receive_rest, send
from tests.waiting import until

KIND = pulsar.ConsumerType
EARLIEST = pulsar.MessageId.earliest
PATIENCE_MS = 60_000


class Hand(WrittenByHand):
    """Ends transactions in the order in which a coordinator does it."""

    def begin_here(self, *partitions: int) -> TxnId:
        txn = self.begin()
        for partition in partitions or (0,):
            self.opened(txn, 0, partition)
        return txn

    def say(self, txn: TxnId | None, *texts: str, partition: int = 0) -> list[int]:
        return [self.send(txn, text.encode(), partition) for text in texts]

    def commit(self, txn: TxnId, partition: int = 0, *, marker: bool = True) -> None:
        if marker:
            self.marker(txn, committed=True, partition=partition)
        self.open_gone(txn, partition)

    def abort(self, txn: TxnId, offsets: Sequence[int], partition: int = 0, *, marker: bool = True) -> None:
        end = max(offsets) + 1
        if marker:
            end = self.marker(txn, committed=False, partition=partition)
        self.aborted(txn, offsets, end, partition=partition)
        self.open_gone(txn, partition)


@pytest.fixture
def hand(client: pulsar.Client, admin: AdminClient, unique: Unique) -> Iterator[Hand]:
    topic = unique()
    client.create_producer(topic).close()
    made = Hand(admin, topic)
    yield made
    made.finish()


def subscribe(client: pulsar.Client, topic: str, kind: pulsar.ConsumerType, name: str = "s") -> pulsar.Consumer:
    return client.subscribe(topic, name, consumer_type=kind, initial_position=pulsar.InitialPosition.Earliest)


def texts(consumer: pulsar.Consumer, count: int) -> list[str]:
    """The next ones, each acknowledged."""
    found = [consumer.receive(PATIENCE_MS) for _ in range(count)]
    for message in found:
        consumer.acknowledge(message)
    return payloads(found)


# Consumers ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("marker", [True, False])
def test_who_comes_later_sees_the_same(client: pulsar.Client, hand: Hand, marker: bool) -> None:
    """Without markers, too: what is on record of the transactions is asked for."""
    committed, aborted, still = hand.begin_here(), hand.begin_here(), hand.begin_here()
    hand.say(committed, "c1")
    lost = hand.say(aborted, "a1", "a2")
    hand.say(committed, "c2")
    hand.say(None, "plain")
    hand.say(still, "open")
    hand.say(None, "behind")
    hand.commit(committed, marker=marker)
    hand.abort(aborted, lost, marker=marker)
    consumer = subscribe(client, hand.name, KIND.Exclusive)
    assert texts(consumer, 3) == ["c1", "c2", "plain"]
    assert receive_rest(consumer) == []
    hand.commit(still, marker=marker)
    assert texts(consumer, 2) == ["open", "behind"]


def test_the_marker_alone_lets_messages_go(client: pulsar.Client, hand: Hand) -> None:
    """Before the entry of the transaction is gone."""
    consumer = subscribe(client, hand.name, KIND.Shared)
    kept, lost = hand.begin_here(), hand.begin_here()
    hand.say(kept, "c")
    hand.say(lost, "a")
    hand.say(None, "plain")
    hand.marker(kept, committed=True)
    assert texts(consumer, 1) == ["c"]
    hand.marker(lost, committed=False)
    assert texts(consumer, 1) == ["plain"]


def test_a_consumer_that_is_made_anew_goes_on_where_a_transaction_was_open(client: pulsar.Client, hand: Hand) -> None:
    txn = hand.begin_here()
    hand.say(None, "0")
    hand.say(txn, "1")
    hand.say(None, "2", "3")
    consumer = subscribe(client, hand.name, KIND.Shared)
    assert texts(consumer, 1) == ["0"]
    consumer.close()
    consumer = subscribe(client, hand.name, KIND.Shared)
    assert receive_rest(consumer) == []
    hand.commit(txn)
    assert texts(consumer, 3) == ["1", "2", "3"]


@pytest.mark.parametrize("kind", [KIND.Exclusive, KIND.Shared], ids=lambda k: k.name)
def test_what_is_refused_comes_again_without_what_was_aborted(
    client: pulsar.Client, hand: Hand, kind: pulsar.ConsumerType
) -> None:
    consumer = client.subscribe(
        hand.name, "s", consumer_type=kind, negative_ack_redelivery_delay_ms=100,
        initial_position=pulsar.InitialPosition.Earliest,
    )  # fmt: skip
    kept, lost, still = hand.begin_here(), hand.begin_here(), hand.begin_here()
    hand.say(kept, "0")
    offsets = hand.say(lost, "never")
    hand.say(kept, "1")
    hand.commit(kept)
    hand.abort(lost, offsets)
    hand.say(still, "2")
    for message in receive(consumer, 2):
        consumer.negative_acknowledge(message)
    assert sorted(texts(consumer, 2)) == ["0", "1"]
    assert receive_rest(consumer) == []
    hand.commit(still)
    assert texts(consumer, 1) == ["2"]


def test_a_seek_into_the_middle_of_transactions(client: pulsar.Client, hand: Hand) -> None:
    kept, lost, still = hand.begin_here(), hand.begin_here(), hand.begin_here()
    hand.say(kept, "0")
    offsets = hand.say(lost, "never")
    hand.say(kept, "1")
    offsets += hand.say(lost, "never")
    hand.say(kept, "2")
    hand.abort(lost, offsets)
    hand.commit(kept)
    hand.say(still, "open")
    consumer = subscribe(client, hand.name, KIND.Exclusive)
    messages = receive(consumer, 3)
    assert payloads(messages) == ["0", "1", "2"]
    consumer.seek(messages[0].message_id())
    assert texts(consumer, 2) == ["1", "2"]
    consumer.seek(EARLIEST)
    assert texts(consumer, 3) == ["0", "1", "2"]
    hand.commit(still)
    assert texts(consumer, 1) == ["open"]


def test_every_partition_waits_for_itself(client: pulsar.Client, admin: AdminClient, unique: Unique) -> None:
    topic = unique()
    admin.create_partitioned_topic(topic, 2)
    hand = Hand(admin, topic)
    consumer = subscribe(client, topic, KIND.Shared)
    txn, other = hand.begin_here(0, 1), hand.begin_here(1)
    hand.say(txn, "0a")
    hand.say(txn, "1a", partition=1)
    hand.say(other, "1b", partition=1)
    hand.say(None, "0", partition=0)
    assert receive_rest(consumer) == []
    hand.commit(txn)
    assert texts(consumer, 2) == ["0a", "0"]
    hand.commit(txn, 1)
    assert texts(consumer, 1) == ["1a"]
    hand.commit(other, 1)
    assert texts(consumer, 1) == ["1b"]
    hand.finish()


def test_several_topics_and_a_pattern(client: pulsar.Client, admin: AdminClient, unique: Unique) -> None:
    prefix = unique()
    hands = []
    for number in range(2):
        client.create_producer(f"{prefix}-{number}").close()
        hands.append(Hand(admin, f"{prefix}-{number}", coordinator=13 + number))
    both = client.subscribe([hand.name for hand in hands], "s", initial_position=pulsar.InitialPosition.Earliest)
    for hand in hands:
        kept, lost = hand.begin_here(), hand.begin_here()
        hand.abort(lost, hand.say(lost, "never"))
        hand.say(kept, "kept")
        assert receive_rest(both) == []
        hand.commit(kept)
        assert texts(both, 1) == ["kept"]
        hand.finish()


def test_more_than_may_wait_in_memory_is_read_when_the_transaction_is_over(
    client: pulsar.Client, hand: Hand, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(read_committed, "MAX_RECORDS", 20)
    consumer = subscribe(client, hand.name, KIND.Shared)
    reader = client.create_reader(hand.name, EARLIEST)
    txn = hand.begin_here()
    hand.say(txn, "first")
    send(client, hand.name, 200)
    assert receive_rest(consumer) == []
    assert not reader.has_message_available()
    hand.commit(txn)
    assert texts(consumer, 201) == ["first", *map(str, range(200))]
    assert [reader.read_next(PATIENCE_MS).data() for _ in range(201)][-1] == b"199"
    assert not reader.has_message_available()


# Other entries --------------------------------------------------------------------------------------------------------


def copied_into(hand: Hand, service_url: str, topic: str, txn: TxnId) -> list[int]:
    """The records of another topic, as if they had been sent in a transaction; gives their offsets."""
    bootstrap = service_url.removeprefix("kafka://")
    producer = KafkaProducer({"bootstrap.servers": bootstrap, "message.max.bytes": 10_000_000})
    offsets: list[int] = []
    for record in read_all(bootstrap, kafka_topic(TopicName.parse(topic))):
        producer.produce(
            hand.topic.kafka_topic, record.value(), record.key(), 0,
            on_delivery=lambda error, copy: offsets.append(place_of(copy)[1]),
            headers=[*headers_of(record), (TXN, txn.to_bytes())],
        )  # fmt: skip
    assert producer.flush(60) == 0
    return offsets


@pytest.mark.parametrize("kind", [KIND.Exclusive, KIND.Shared], ids=lambda k: k.name)
def test_batches_and_chunked_messages(
    client: pulsar.Client, hand: Hand, service_url: str, unique: Unique, kind: pulsar.ConsumerType
) -> None:
    made = unique()
    batching = client.create_producer(made, batching_enabled=True, batching_max_publish_delay_ms=10_000)
    for number in range(5):
        batching.send_async(str(number).encode(), None)
    batching.flush()
    batching.close()
    chunking = client.create_producer(made, chunking_enabled=True)
    chunking.send(b"x" * 6_000_000)
    chunking.close()
    kept, lost = hand.begin_here(), hand.begin_here()
    offsets = copied_into(hand, service_url, made, lost)
    assert len(offsets) == 3
    copied_into(hand, service_url, made, kept)
    consumer = subscribe(client, hand.name, kind)
    assert receive_rest(consumer) == []
    hand.abort(lost, offsets)
    assert receive_rest(consumer) == []
    hand.commit(kept)
    assert texts(consumer, 5) == list("01234")
    whole = consumer.receive(PATIENCE_MS)
    assert len(whole.data()) == 6_000_000
    consumer.acknowledge(whole)
    consumer.close()
    assert receive_rest(subscribe(client, hand.name, kind)) == []
    reader = client.create_reader(hand.name, EARLIEST)
    assert [len(reader.read_next(PATIENCE_MS).data()) for _ in range(6)] == [1] * 5 + [6_000_000]
    assert not reader.has_message_available()


# Readers --------------------------------------------------------------------------------------------------------------


def test_a_reader_seeks_among_transactions(client: pulsar.Client, hand: Hand) -> None:
    first, lost, still = hand.begin_here(), hand.begin_here(), hand.begin_here()
    hand.say(first, "0", "1")
    offsets = hand.say(lost, "never")
    hand.say(first, "2")
    hand.abort(lost, offsets)
    hand.commit(first)
    hand.say(still, "open")
    reader = client.create_reader(hand.name, EARLIEST)
    messages = [reader.read_next(PATIENCE_MS) for _ in range(3)]
    assert payloads(messages) == ["0", "1", "2"]
    reader.seek(messages[1].message_id())
    assert reader.read_next(PATIENCE_MS).data() == b"2"
    assert not reader.has_message_available()
    reader.seek(EARLIEST)
    hand.commit(still)
    assert [reader.read_next(PATIENCE_MS).data() for _ in range(4)] == [b"0", b"1", b"2", b"open"]


def test_a_table_view_shows_what_is_committed(client: pulsar.Client, hand: Hand) -> None:
    txn, lost = hand.begin_here(), hand.begin_here()
    kafka = KafkaProducer({"bootstrap.servers": hand.node.settings.bootstrap})

    def put(txn: TxnId, key: str, value: str) -> int:
        placed: list[int] = []
        kafka.produce(
            hand.topic.kafka_topic, value, key, 0, headers=[(TXN, txn.to_bytes())],
            on_delivery=lambda error, record: placed.append(place_of(record)[1]),
        )  # fmt: skip
        assert kafka.flush(60) == 0
        return placed[0]

    put(txn, "a", "1")
    offsets = [put(lost, "a", "never"), put(lost, "b", "never")]
    view = client.create_table_view(hand.name)
    assert view.get("a") is None
    hand.abort(lost, offsets)
    hand.commit(txn)
    until(lambda: view.get("a") == b"1", "the committed value")
    assert view.get("b") is None


def test_compacted_reading_folds_what_is_committed(client: pulsar.Client, admin: AdminClient, hand: Hand) -> None:
    producer = client.create_producer(hand.name)
    producer.send(b"old", partition_key="k")
    kafka = KafkaProducer({"bootstrap.servers": hand.node.settings.bootstrap})
    lost, still = hand.begin_here(), hand.begin_here()
    for txn, value in ((lost, b"never"), (still, b"open")):
        kafka.produce(hand.topic.kafka_topic, value, b"k", 0, headers=[(TXN, txn.to_bytes())])
        assert kafka.flush(60) == 0
    hand.abort(lost, [1])
    producer.send(b"newest", partition_key="k")
    admin.compact(hand.name)
    reader = client.create_reader(hand.name, EARLIEST, is_read_compacted=True)
    assert reader.read_next(PATIENCE_MS).data() == b"old"
    assert not reader.has_message_available()
    hand.commit(still)
    reader = client.create_reader(hand.name, EARLIEST, is_read_compacted=True)
    assert reader.read_next(PATIENCE_MS).data() == b"newest"
    assert not reader.has_message_available()


def test_who_meets_a_record_behind_its_marker_tells_the_others(client: pulsar.Client, hand: Hand) -> None:
    consumer = subscribe(client, hand.name, KIND.Shared)
    txn = hand.begin_here()
    hand.say(txn, "in time")
    hand.commit(txn)
    (late,) = hand.say(txn, "late")
    (behind,) = hand.say(None, "behind")
    assert texts(consumer, 2) == ["in time", "behind"]
    where = DataPartition(hand.name, 0, hand.topic.layout.incarnation)

    def known() -> bool:
        return late in hand.node.transaction_views.buffers.query(
            hand.name, lambda entries: entries.void(where, txn), hand._deadline()
        )

    until(known, "the late record to be on record as void")
    reader = client.create_reader(hand.name, EARLIEST)
    reader.seek(pulsar.MessageId(-1, hand.topic.layout.position(0, late - 1)[0], late - 1, -1))
    assert reader.read_next(PATIENCE_MS).data() == b"behind"
    assert behind == late + 1


# Sent with the SDK ----------------------------------------------------------------------------------------------------
