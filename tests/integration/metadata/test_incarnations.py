"""Topics are deleted by force and made anew while every kind of handle on them is open.

The judge: the id that was reported for a message finds this message, or is of the deleted incarnation; nothing of the
deleted incarnation's handles is in the new one. Each handle ends with the error that docs/differences.md promises.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

import pytest

import pulsar_on_kafka as pulsar
from pulsar_on_kafka import ProducerAccessMode
from pulsar_on_kafka.admin import AdminClient
from tests.seeds import first_of
from tests.steps import EARLIEST, EXCLUSIVE, FAILOVER, KEY_SHARED, PATIENCE_MS, SHARED, Process, Unique, receive
from tests.waiting import until

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(600)]

BEFORE: Final = 5
"""Messages of the first incarnation."""


@dataclass(frozen=True)
class Way:
    """How a topic is made anew: after how long, and with how many messages."""

    name: str
    gap_s: float
    messages: int

    def __str__(self) -> str:
        return self.name


WAYS: Final = (
    Way("at once, with more messages", 0, BEFORE + 7),
    Way("at once, with fewer messages", 0, BEFORE - 2),
    Way("after a while, with more messages", 3, BEFORE + 7),
    Way("after a while, with fewer messages", 3, BEFORE - 2),
)


def made_anew(admin: AdminClient, topics: list[str], way: Way) -> None:
    for topic in topics:
        admin.delete_topic(topic, force=True)
    threading.Event().wait(way.gap_s)
    for topic in topics:
        admin.create_topic(topic)


def messages_in(client: pulsar.Client, topic: str) -> dict[str, bytes]:
    """What the topic holds now, by message id."""
    reader = client.create_reader(topic, pulsar.MessageId.earliest)
    found: dict[str, bytes] = {}
    while reader.has_message_available():
        message = reader.read_next(PATIENCE_MS)
        found[str(message.message_id())] = message.data()
    reader.close()
    return found


# Senders --------------------------------------------------------------------------------------------------------------

Open = Callable[[pulsar.Client, str], Any]

LARGE: Final = 6 * 1024 * 1024


def _plain(client: pulsar.Client, topic: str, **options: Any) -> Callable[[bytes], Any]:
    return client.create_producer(topic, send_timeout_millis=20_000, **options).send


def _batching(client: pulsar.Client, topic: str) -> Callable[[bytes], Any]:
    return _plain(client, topic, batching_enabled=True, batching_max_publish_delay_ms=5)


def _chunking(client: pulsar.Client, topic: str) -> Callable[[bytes], Any]:
    send = _plain(client, topic, chunking_enabled=True)
    return lambda payload: send(payload + bytes(LARGE))


def _in_transactions(client: pulsar.Client, topic: str) -> Callable[[bytes], Any]:
    producer = client.create_producer(topic, send_timeout_millis=20_000)

    def send(payload: bytes) -> Any:
        txn = client.new_transaction(20_000)
        sent = producer.send(payload, txn=txn)
        txn.commit()
        return sent

    return send


def _with_mode(mode: ProducerAccessMode) -> Open:
    return lambda client, topic: _plain(client, topic, access_mode=mode, producer_name="only")


SENDERS: Final[dict[str, Open]] = {
    "shared": _plain,
    "named": lambda client, topic: _plain(client, topic, producer_name="named"),
    "exclusive": _with_mode(ProducerAccessMode.Exclusive),
    "exclusive with fencing": _with_mode(ProducerAccessMode.ExclusiveWithFencing),
    "waits for exclusive": _with_mode(ProducerAccessMode.WaitForExclusive),
    "batching": _batching,
    "chunking": _chunking,
    "transaction": _in_transactions,
}


@dataclass
class Pump:
    """Sends one message after the other, until the producer is told that its topic is gone."""

    kind: str
    send: Callable[[bytes], Any]
    ids: dict[str, bytes] = field(default_factory=dict)
    errors: list[Exception] = field(default_factory=list)

    def run(self, stop: threading.Event) -> None:
        number = 0
        while not stop.wait(0.005) and not self.is_told():
            number += 1
            payload = f"{self.kind} {number}".encode()
            try:
                self.ids[str(self.send(payload))] = payload
            except pulsar.PulsarException as failure:
                self.errors.append(failure)

    def is_told(self) -> bool:
        return any(isinstance(each, pulsar.TopicNotFound) for each in self.errors)


@pytest.fixture
def transactional(process: Process) -> pulsar.Client:
    return process(enable_transaction=True)


@pytest.mark.parametrize("way", first_of(1, WAYS[::2]), ids=str)
def test_what_a_producer_sends_is_found_by_its_id_or_went_with_its_topic(
    transactional: pulsar.Client, client: pulsar.Client, admin_elsewhere: AdminClient, unique: Unique, way: Way
) -> None:
    topics = {kind: unique(kind.replace(" ", "-")) for kind in SENDERS}
    for topic in topics.values():
        admin_elsewhere.create_topic(topic)
    pumps = {kind: Pump(kind, opens(transactional, topics[kind])) for kind, opens in SENDERS.items()}
    stop = threading.Event()
    threads = [threading.Thread(target=pump.run, args=(stop,)) for pump in pumps.values()]
    for thread in threads:
        thread.start()
    until(lambda: all(pump.ids for pump in pumps.values()), "each producer to have sent")
    made_anew(admin_elsewhere, list(topics.values()), way)
    try:
        until(
            lambda: all(pump.is_told() for pump in pumps.values()),
            lambda: f"TopicNotFound for {[(p.kind, p.errors[-1:]) for p in pumps.values() if not p.is_told()]}",
            60,
        )
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    for kind, pump in pumps.items():
        now = messages_in(client, topics[kind])
        assert not now, f"{kind}: sent to the deleted topic, and stored in the one made anew"
        new = client.create_producer(topics[kind]).send(b"new")
        ledger = str(new).split(",")[0]
        assert not [each for each in pump.ids if each.split(",")[0] == ledger], f"{kind}: ids of the new incarnation"
        assert messages_in(client, topics[kind]) == {str(new): b"new"}


def test_a_producer_that_comes_after_the_deletion_is_judged_by_the_new_topics_schema(
    client: pulsar.Client, process: Process, admin_elsewhere: AdminClient, unique: Unique
) -> None:
    class Before(pulsar.schema.Record):
        x = pulsar.schema.Long()

    class After(pulsar.schema.Record):
        y = pulsar.schema.String(required=True)

    topic = unique()
    old = client.create_producer(topic, schema=pulsar.schema.AvroSchema(Before))
    old.send(Before(x=1))
    admin_elsewhere.delete_topic(topic, force=True)
    admin_elsewhere.create_topic(topic)
    new = process().create_producer(topic, schema=pulsar.schema.AvroSchema(After))
    new.send(After(y="y"))
    with pytest.raises(pulsar.TopicNotFound):
        old.send(Before(x=2))
    with pytest.raises(pulsar.IncompatibleSchema):
        client.create_producer(topic, schema=pulsar.schema.AvroSchema(Before))
    consumer = process().subscribe(topic, "s", schema=pulsar.schema.AvroSchema(After), initial_position=EARLIEST)
    (message,) = receive(consumer, 1)
    assert message.value().y == "y"


# Receivers ------------------------------------------------------------------------------------------------------------


@dataclass
class Receiver:
    """A handle that receives, with what it got since its topic was deleted."""

    next: Callable[[int], pulsar.Message | None]
    """The next message within so many milliseconds, or None."""
    got: list[tuple[str, bytes]] = field(default_factory=list)
    error: Exception | None = None

    def drain(self) -> bool:
        """Whether it has ended with an error."""
        try:
            while self.error is None and (message := self.next(50)) is not None:
                self.got.append((str(message.message_id()), message.data()))
        except pulsar.Timeout:
            pass
        except pulsar.PulsarException as failure:
            self.error = failure
        return self.error is not None


def _consumer(consumer_type: pulsar.ConsumerType) -> Callable[[pulsar.Client, str], Receiver]:
    def opened(client: pulsar.Client, topic: str) -> Receiver:
        consumer = client.subscribe(topic, "s", consumer_type, initial_position=EARLIEST)
        for message in receive(consumer, BEFORE):
            consumer.acknowledge(message)
        return Receiver(consumer.receive)

    return opened


def _reader(client: pulsar.Client, topic: str) -> Receiver:
    reader = client.create_reader(topic, pulsar.MessageId.earliest)
    for _ in range(BEFORE):
        reader.read_next(PATIENCE_MS)
    return Receiver(reader.read_next)


def _available(client: pulsar.Client, topic: str) -> Receiver:
    """A reader that asks whether there is a message."""
    reader = client.create_reader(topic, pulsar.MessageId.earliest)
    for _ in range(BEFORE):
        reader.read_next(PATIENCE_MS)
    return Receiver(lambda _: reader.read_next(PATIENCE_MS) if reader.has_message_available() else None)


RECEIVERS: Final[dict[str, Callable[[pulsar.Client, str], Receiver]]] = {
    "exclusive": _consumer(EXCLUSIVE),
    "failover": _consumer(FAILOVER),
    "shared": _consumer(SHARED),
    "key shared": _consumer(KEY_SHARED),
    "reader": _reader,
    "reader that asks": _available,
}


@pytest.mark.parametrize("way", first_of(2, [WAYS[0], WAYS[3], *WAYS[1:3]]), ids=str)
def test_what_is_received_has_the_id_under_which_it_is_found(
    client: pulsar.Client, process: Process, admin_elsewhere: AdminClient, unique: Unique, way: Way
) -> None:
    topics = {kind: unique(kind.replace(" ", "-")) for kind in RECEIVERS}
    elsewhere = process()
    for topic in topics.values():
        admin_elsewhere.create_topic(topic)
        _fill(elsewhere, topic, "old", BEFORE)
    receivers = {kind: opens(client, topics[kind]) for kind, opens in RECEIVERS.items()}
    made_anew(admin_elsewhere, list(topics.values()), way)
    sent = {kind: _fill(elsewhere, topic, "new", way.messages) for kind, topic in topics.items()}
    until(
        lambda: 0 not in [each.drain() for each in receivers.values()],
        lambda: f"the end of {[kind for kind, each in receivers.items() if each.error is None]}",
        60,
    )
    for kind, receiver in receivers.items():
        assert isinstance(receiver.error, pulsar.TopicNotFound), f"{kind}: {receiver.error!r}"
        assert receiver.got == [], f"{kind} got messages of the topic made anew"
        assert messages_in(elsewhere, topics[kind]) == sent[kind]


@pytest.mark.parametrize("kind", [EXCLUSIVE, FAILOVER, SHARED, KEY_SHARED], ids=lambda kind: kind.name)
@pytest.mark.parametrize("same_client", [True, False], ids=["same client", "another process"])
def test_a_consumer_subscribes_while_one_of_the_deleted_topic_has_not_noticed(
    client: pulsar.Client, process: Process, admin_elsewhere: AdminClient, unique: Unique, kind: Any, same_client: bool
) -> None:
    topic, elsewhere = unique(), process()
    admin_elsewhere.create_topic(topic)
    _fill(elsewhere, topic, "old", 1)
    old = client.subscribe(topic, "s", kind, initial_position=EARLIEST)
    receive(old, 1)
    made_anew(admin_elsewhere, [topic], WAYS[0])
    new = (client if same_client else elsewhere).subscribe(topic, "s", kind, initial_position=EARLIEST)
    sent = _fill(process(), topic, "new", BEFORE)
    assert {str(message.message_id()): message.data() for message in receive(new, BEFORE)} == sent
    with pytest.raises(pulsar.TopicNotFound):
        old.receive(PATIENCE_MS)
    old.close()
    assert messages_in(elsewhere, topic) == sent


def _fill(client: pulsar.Client, topic: str, name: str, count: int) -> dict[str, bytes]:
    producer = client.create_producer(topic)
    payloads = [f"{name} {number}".encode() for number in range(count)]
    sent = {str(producer.send(payload, partition_key=payload.decode())): payload for payload in payloads}
    producer.close()
    return sent


@pytest.fixture
def table_topic(admin_elsewhere: AdminClient, process: Process, unique: Unique) -> str:
    topic = unique()
    admin_elsewhere.create_topic(topic)
    _fill(process(), topic, "old", BEFORE)
    return topic


@pytest.mark.parametrize("way", first_of(1, WAYS), ids=str)
def test_a_table_view_takes_nothing_from_a_topic_that_was_made_anew(
    client: pulsar.Client, process: Process, admin_elsewhere: AdminClient, table_topic: str, way: Way
) -> None:
    view = client.create_table_view(table_topic)
    keys: list[str] = []
    made_anew(admin_elsewhere, [table_topic], way)
    sent = _fill(process(), table_topic, "new", way.messages)
    until(lambda: not view._reader.is_connected(), "the view's reader to end")
    view.for_each(lambda key, _: keys.append(key))
    assert sorted(keys) == [f"old {number}" for number in range(BEFORE)]
    again = process().create_table_view(table_topic)
    assert len(again) == len(sent)


def test_letters_go_to_a_dead_letter_topic_that_was_made_anew(
    client: pulsar.Client, process: Process, admin_elsewhere: AdminClient, unique: Unique
) -> None:
    topic, letters = unique(), unique("letters")
    admin_elsewhere.create_topic(letters)
    policy = pulsar.ConsumerDeadLetterPolicy(1, dead_letter_topic=letters)
    consumer = client.subscribe(
        topic, "s", SHARED, negative_ack_redelivery_delay_ms=1, dead_letter_policy=policy, initial_position=EARLIEST
    )
    producer = client.create_producer(topic)
    for payload in (b"first", b"second"):
        producer.send(payload)
        for message in (consumer.receive(PATIENCE_MS) for _ in range(2)):
            consumer.negative_acknowledge(message)
        (letter,) = receive(process().subscribe(letters, "s", initial_position=EARLIEST), 1)
        assert letter.data() == payload
        made_anew(admin_elsewhere, [letters], WAYS[0])
