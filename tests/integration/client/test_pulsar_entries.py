"""What the official clients wrote to a real Pulsar, as records of Kafka: each kind of consumer reads what they read."""

from __future__ import annotations

import base64
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

import pulsar_on_kafka as pulsar
from pulsar_on_kafka.admin import AdminClient
from pulsar_on_kafka.kafka.records import headers_of
from pulsar_on_kafka.schema import AutoConsumeSchema
from pulsar_on_kafka_mapping.ids.txn_id import TxnId
from pulsar_on_kafka_schema_compat.base.schema_model import SchemaInfo, SchemaType
from tests.pulsar_entries import Case, cases, payload_text, private_key
from tests.pulsar_entries.stored import differences, records_of, write
from tests.steps import EARLIEST, PATIENCE_MS, SHARED, Process, Unique, nothing_comes, receive, receive_rest

pytestmark = pytest.mark.kafka

CASES = cases()
EVERYTHING = Case(
    "everything",
    [entry for each in CASES for entry in each.entries],
    [told for each in CASES for told in each.messages],
)
BATCH = next(each for each in CASES if each.name == "java: ZSTD batch")


def named(name: str) -> Case:
    return next(each for each in CASES if each.name == name)


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> pulsar.CryptoKeyReader:
    private = tmp_path_factory.mktemp("keys") / "private.pem"
    private.write_bytes(private_key())
    return pulsar.CryptoKeyReader("/nowhere/public.pem", str(private))


Put = Callable[..., str]


@pytest.fixture
def put(client: pulsar.Client, admin: AdminClient, unique: Unique, bootstrap: str) -> Put:
    """A new topic with these cases."""

    def made(*several: Case, schema: SchemaInfo | None = None) -> str:
        topic = unique()
        admin.create_topic(topic)
        if schema is not None:
            assert admin.create_schema(topic, schema) == 0
        for case in several:
            write(bootstrap, f"public.default.{topic}", records_of(case, now_ms=int(time.time() * 1000)))
        return topic

    return made


@pytest.mark.parametrize("type_", ["Exclusive", "Failover", "Shared", "KeyShared"])
def test_a_consumer_reads_everything_and_its_acknowledgements_count(
    client: pulsar.Client, admin: AdminClient, put: Put, keys: pulsar.CryptoKeyReader, type_: str
) -> None:
    topic = put(EVERYTHING)
    consumer = client.subscribe(
        topic, "s", pulsar.ConsumerType[type_], initial_position=EARLIEST, crypto_key_reader=keys,
        batch_index_ack_enabled=True,
    )  # fmt: skip
    found = receive(consumer, len(EVERYTHING.messages))
    assert not differences(sorted(found, key=lambda each: (each.offset, each.message_id().batch_index())), EVERYTHING)
    assert nothing_comes(consumer)
    for message in found:
        consumer.acknowledge(message)
    consumer.close()
    assert admin.subscription_stats(topic, "s").backlog == 0


def test_a_reader_reads_everything_and_begins_inside_of_a_batch(
    client: pulsar.Client, put: Put, keys: pulsar.CryptoKeyReader
) -> None:
    topic = put(EVERYTHING)
    found = []
    reader = client.create_reader(topic, pulsar.MessageId.earliest, crypto_key_reader=keys)
    while reader.has_message_available():
        found.append(reader.read_next(PATIENCE_MS))
    reader.close()
    assert not differences(found, EVERYTHING)
    inside = next(each for each in found if each.message_id().batch_index() == 2)
    reader = client.create_reader(topic, inside.message_id(), crypto_key_reader=keys)
    assert reader.read_next(PATIENCE_MS).message_id().batch_index() == 3
    reader.close()


def test_what_was_refused_comes_again_and_what_was_acknowledged_of_a_batch_does_not(
    client: pulsar.Client, put: Put, keys: pulsar.CryptoKeyReader
) -> None:
    several = [
        named("python: LZ4 single"),
        BATCH,
        named("java: SNAPPY chunks encrypted"),
        named("java: ZLib batch encrypted"),
    ]
    topic = put(*several)
    expected = [told for each in several for told in each.messages]
    consumer = client.subscribe(
        topic, "s", SHARED, initial_position=EARLIEST, crypto_key_reader=keys, batch_index_ack_enabled=True,
        negative_ack_redelivery_delay_ms=100,
    )  # fmt: skip
    first = receive(consumer, len(expected))
    assert not differences(first, Case("first", [], expected))
    for number, message in enumerate(first):
        if number % 2:
            consumer.acknowledge(message)
        else:
            consumer.negative_acknowledge(message)
    again = receive(consumer, len(first[::2]))
    again.sort(key=lambda each: (each.offset, each.message_id().batch_index()))
    assert not differences(again, Case("again", [], expected[::2]))
    assert {each.redelivery_count() for each in again} == {1}
    consumer.close()
    consumer = client.subscribe(topic, "s", SHARED, crypto_key_reader=keys, batch_index_ack_enabled=True)
    left = receive(consumer, len(again))
    assert [each.message_id() for each in left] == [each.message_id() for each in again], "after a new owner, too"
    consumer.close()


def test_dead_letters_are_plain_copies(client: pulsar.Client, put: Put, keys: pulsar.CryptoKeyReader) -> None:
    several = [named("java: LZ4 single"), named("python: ZSTD batch"), named("python: ZLib chunks")]
    topic = put(*several)
    policy = pulsar.ConsumerDeadLetterPolicy(1, f"{topic}-dead")
    letters = client.subscribe(f"{topic}-dead", "look", initial_position=EARLIEST)
    consumer = client.subscribe(
        topic, "s", SHARED, initial_position=EARLIEST, dead_letter_policy=policy, negative_ack_redelivery_delay_ms=50
    )
    expected = [told for each in several for told in each.messages]
    for _ in range(2):
        for message in receive(consumer, len(expected)):
            consumer.negative_acknowledge(message)
    found = receive(letters, len(expected))
    assert Counter(payload_text(each.data()) for each in found) == Counter(told["data"] or "" for told in expected)
    for each in found:
        assert not {"__pulsar.batch", "__pulsar.compression"}.intersection(
            name for name, _ in headers_of(each.record) or ()
        )
    consumer.close()
    letters.close()


def test_what_cannot_be_decrypted_is_handed_out_with_what_one_needs_to_know(client: pulsar.Client, put: Put) -> None:
    several = [named("java: LZ4 single encrypted"), named("java: SNAPPY batch encrypted")]
    topic = put(*several)
    consumer = client.subscribe(
        topic, "s", initial_position=EARLIEST, crypto_failure_action=pulsar.ConsumerCryptoFailureAction.CONSUME
    )
    found = receive_rest(consumer)
    assert len(found) == sum(len(each.entries) for each in several), "a batch is one message"
    context = found[-1].encryption_context()
    assert context is not None
    assert (context.compression_type(), context.batch_size()) == (pulsar.CompressionType.SNAPPY, 8)
    assert context.is_decryption_failed()
    assert context.uncompressed_message_size() > 100
    consumer.close()


def test_a_table_view_and_compacted_reading(client: pulsar.Client, admin: AdminClient, put: Put) -> None:
    several = [named("java: LZ4 batch"), named("java: ZSTD chunks"), named("python: SNAPPY batch")]
    topic = put(*several)
    newest: dict[str, str] = {}
    for told in (told for each in several for told in each.messages):
        key = told.get("partition_key") or (told.get("key") and _text_key(told["key"]))
        if key and told["data"]:
            newest[key] = told["data"]
        elif key:  # in a batch it takes its key with it
            newest.pop(key, None)
    assert len(newest) == 3
    view = client.create_table_view(topic)
    for key, data in newest.items():
        assert payload_text(view.get(key)) == data, key
    view.close()
    admin.compact(topic)
    reader = client.create_reader(topic, pulsar.MessageId.earliest, is_read_compacted=True)
    found = {}
    while reader.has_message_available():
        message = reader.read_next(PATIENCE_MS)
        assert message.partition_key() not in found
        found[message.partition_key()] = payload_text(message.data())
    reader.close()
    assert found == newest


def _text_key(key: str) -> str:
    raw = base64.b64decode(key)
    return raw.decode() if raw.isascii() else key


@pytest.mark.parametrize("case", [each for each in CASES if each.schema], ids=str)
def test_values_by_the_schema_that_they_were_written_with(client: pulsar.Client, put: Put, case: Case) -> None:
    assert case.schema is not None
    more = {name: value for name, value in case.schema.items() if name not in ("type", "definition")}
    info = SchemaInfo.declared(
        SchemaType[case.schema["type"]], base64.b64decode(case.schema["definition"]), "Order", more
    )
    topic = put(case, schema=info)
    consumer = client.subscribe(topic, "s", schema=AutoConsumeSchema(), initial_position=EARLIEST)
    found = receive(consumer, len(case.messages))
    assert [_shown(each.value()) for each in found] == [told["value"] for told in case.messages]
    consumer.close()


def _shown(value: Any) -> Any:
    if isinstance(value, tuple):
        return [value[0], _shown(value[1])]
    fields = value if isinstance(value, dict) else {"number": value.number, "note": value.note}
    return {"number": fields["number"], "note": fields["note"]}


def test_entries_of_a_transaction_come_with_its_end(process: Process, bootstrap: str, unique: Unique) -> None:
    client, topic, case = process(enable_transaction=True), unique(), named("java: ZSTD batch in a transaction")
    producer = client.create_producer(topic)
    consumer = client.subscribe(topic, "s", initial_position=EARLIEST)
    for ends in ("abort", "commit"):
        txn = client.new_transaction()
        producer.send(ends.encode(), txn=txn)
        write(
            bootstrap, f"public.default.{topic}",
            records_of(case, TxnId(*txn.txn_id), now_ms=int(time.time() * 1000)),
        )  # fmt: skip
        assert nothing_comes(consumer)
        getattr(txn, ends)()
    own, *found = receive(consumer, 1 + len(case.messages))
    assert own.data() == b"commit"
    assert not differences(found, case)
    assert nothing_comes(consumer)
    consumer.close()
