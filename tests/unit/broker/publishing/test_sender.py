"""A sender chooses the way of its messages once. librdkafka is a list; the real one is in integration."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError

from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.base.errors import ProducerExcluded
from pulsar_on_kafka.broker.publishing.outgoing_schema import OutgoingSchema
from pulsar_on_kafka.broker.publishing.transactional_sends import Transaction
from pulsar_on_kafka.client.producer.producer import Producer
from pulsar_on_kafka.exceptions import AlreadyClosed, InvalidConfiguration, MessageTooBig, ProducerFenced, Result
from pulsar_on_kafka.kafka.settings import MAX_MESSAGE_BYTES
from pulsar_on_kafka.schema import BytesSchema, StringSchema
from pulsar_on_kafka_mapping.ids.txn_id import TxnId
from pulsar_on_kafka_mapping.records.message_record import decode_headers
from tests.producer_stage import Kind, Stage, sender_of

KINDS = list(Kind)


class Heard:
    """What a sender's callback heard."""

    def __init__(self) -> None:
        self.results: list[Result] = []
        self.ids: list[Any] = []

    def __call__(self, result: Result, message_id: Any) -> None:
        self.results.append(result)
        self.ids.append(message_id)


def opened(stage: Stage, kind: Kind = Kind.SINGLE, schema: Any = None, **options: Any) -> Producer:
    return stage.producer(OutgoingSchema(schema or BytesSchema(), None), kind, **options)


@pytest.mark.parametrize("kind", KINDS)
def test_who_was_sent_before_is_a_duplicate(kind: Kind) -> None:
    stage, heard = Stage(), Heard()
    producer = opened(stage, kind, deduplicated=True)
    for sequence in (5, 5, 4, 6):
        producer.send_async(b"a", heard, sequence_id=sequence)
        producer.flush()
    assert heard.results == [Result.Ok] * 4
    assert [message_id.entry_id() for message_id in heard.ids] == [0, -1, -1, 0]
    assert len(stage.kafka.records) == 2
    assert producer.last_sequence_id() == 6


@pytest.mark.parametrize("kind", KINDS)
def test_what_has_no_id_gets_the_next_one(kind: Kind) -> None:
    stage = Stage()
    producer = opened(stage, kind, deduplicated=True)
    for content in (b"a", b"b", b"c"):
        producer.send_async(content, None)
        producer.flush()
    assert [record.headers[0][1] for record in stage.kafka.records] == [
        text if kind is not Kind.BATCHES else text.encode() for text in ("0:0:p", "1:0:p", "2:0:p")
    ]


def test_a_duplicate_in_chunks_is_not_sent_again() -> None:
    stage, heard = Stage(), Heard()
    producer = opened(stage, Kind.CHUNKS, deduplicated=True)
    for _ in range(2):
        producer.send_async(b"x" * 250_000, heard, sequence_id=7)
        producer.flush()
    assert heard.results == [Result.Ok] * 2
    assert len(stage.kafka.records) == 3
    assert producer.send_counts() == producer.sender.send_counts()
    assert (producer.send_counts().sent, producer.send_counts().pending) == (2, 0)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("schema", [BytesSchema(), StringSchema()])
def test_a_key_makes_the_same_record_whatever_is_said_besides(kind: Kind, schema: Any) -> None:
    content = b"a" if isinstance(schema, BytesSchema) else "a"
    records = []
    said: list[dict[str, Any]] = [{}, {"properties": {}}]
    for more in said:
        stage = Stage()
        producer = opened(stage, kind, schema)
        producer.send_async(content, None, partition_key="k", **more)
        producer.flush()
        records += stage.kafka.records
    assert records[0] == records[1]
    assert records[0].key == b"k"


@pytest.mark.parametrize("kind", KINDS)
def test_an_exclusive_producer_says_where_it_begins_before_its_receipt(kind: Kind) -> None:
    stage = Stage()
    fenced_before: list[bool] = []
    producer = opened(stage, kind, exclusive=True)
    producer.send_async(b"a", lambda *_: fenced_before.append(bool(stage.fenced)))
    producer.flush()
    assert fenced_before == [True]
    assert stage.fenced == [(0, 0)]
    producer.close()
    assert stage.fenced == [(0, 0), None]


def test_an_exclusive_producer_that_lost_its_claim_gives_no_receipt() -> None:
    class Lost(Stage):
        def confirm(self, deadline: Deadline) -> None:
            raise ProducerExcluded("somebody else has it")

    stage, heard = Lost(), Heard()
    producer = opened(stage, exclusive=True)
    producer.send_async(b"a", heard)
    with pytest.raises(ProducerFenced):
        producer.flush()
    assert heard.results == [Result.ProducerFenced]


class Inner:
    """A transaction without a coordinator."""

    id = TxnId(1, 2)

    def __init__(self) -> None:
        self.registered: list[tuple[str, int]] = []
        self.operations = 0
        self.failures: list[str | None] = []

    def begin_operation(self) -> None:
        self.operations += 1

    def end_operation(self, failure: str | None = None) -> None:
        self.operations -= 1
        self.failures.append(failure)

    def has_registered(self, topic: str, partition: int) -> bool:
        return (topic, partition) in self.registered

    def register_partition(self, topic: str, partition: int, deadline: Deadline, partitions: int) -> None:
        self.registered.append((topic, partition))

    def has_time(self) -> bool:
        return True

    def now_ms(self) -> int:
        return 1_700_000_000_000


@pytest.mark.parametrize("exclusive", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_a_send_in_a_transaction_is_an_operation_of_it(kind: Kind, exclusive: bool) -> None:
    stage, inner, heard = Stage(), Inner(), Heard()
    txn: Any = Transaction(inner, 1.0, "c")  # type: ignore[arg-type]
    producer = opened(stage, kind, exclusive=exclusive)
    producer.send_async(b"a", heard, txn=txn)
    producer.send_async(b"b", heard, properties={"p": "q"}, txn=txn)
    producer.flush()
    assert inner.registered == [("persistent://public/default/orders", 0)]
    assert (inner.operations, inner.failures, heard.results) == (0, [None, None], [Result.Ok] * 2)
    for record in stage.kafka.records:
        assert decode_headers(record.headers[1:]).txn == inner.id


def test_what_is_refused_in_a_transaction_makes_it_fail() -> None:
    stage, inner, heard = Stage(), Inner(), Heard()
    txn: Any = Transaction(inner, 1.0, "c")  # type: ignore[arg-type]
    producer = opened(stage)
    producer.send_async(b"x" * (MAX_MESSAGE_BYTES + 1), heard, txn=txn)
    with pytest.raises(MessageTooBig):
        producer.send(b"x" * (MAX_MESSAGE_BYTES + 1), txn=txn)
    assert heard.results == [Result.MessageTooBig]
    assert inner.operations == 0
    assert all(inner.failures)


def test_a_transaction_is_of_this_cluster_and_is_one() -> None:
    producer = opened(Stage())
    elsewhere: Any = Transaction(Inner(), 1.0, "another")  # type: ignore[arg-type]
    with pytest.raises(InvalidConfiguration, match="another"):
        producer.send(b"a", txn=elsewhere)
    other: Any = SimpleNamespace(cluster_id="c")
    with pytest.raises(ValueError, match="txn"):
        producer.send(b"a", txn=other)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("schema", [BytesSchema(), StringSchema()])
def test_who_was_closed_or_thrown_out_takes_nothing(kind: Kind, schema: Any) -> None:
    content = b"a" if isinstance(schema, BytesSchema) else "a"
    closed, out, heard = opened(Stage(), kind, schema), opened(Stage(), kind, schema), Heard()
    closed.close()
    assert sender_of(out)._throw_out(ProducerExcluded("by another"), Deadline.after(0)) == 0
    for producer, refusal in ((closed, AlreadyClosed), (out, ProducerFenced)):
        assert not producer.is_connected()
        with pytest.raises(refusal):
            producer.send(content)
        with pytest.raises(refusal):
            producer.send_async(content, None, partition_key="k")
        producer.send_async(content, heard)
    assert heard.results == [Result.AlreadyClosed, Result.ProducerFenced]


def test_a_method_that_a_program_puts_on_the_class_is_called(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    official = Producer.send_async

    def observed(self: Producer, content: Any, callback: Any, *args: Any, **options: Any) -> None:
        seen.append(content)
        official(self, content, callback, *args, **options)

    monkeypatch.setattr(Producer, "send_async", observed)
    stage, heard = Stage(), Heard()
    producer = opened(stage)
    producer.send_async(b"a", heard, partition_key="k")
    producer.flush()
    assert (seen, heard.results) == ([b"a"], [Result.Ok])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("code", "unsettled"), [(None, 0), (KafkaError._MSG_TIMED_OUT, 1), (KafkaError._PURGE_QUEUE, 0)]
)
def test_a_closed_producer_tells_of_records_that_may_still_be_stored(
    kind: Kind, code: int | None, unsettled: int
) -> None:
    stage, heard = Stage(), Heard()
    stage.kafka.error = None if code is None else KafkaError(code)
    producer = opened(stage, kind)
    producer.send_async(b"1", heard)
    producer.close()
    assert len(heard.results) == 1
    assert stage.unsettled == [unsettled]
