"""End-to-end encryption: what a broker sees, and what consumers with and without the key get.

The expectations of the failure actions were taken down from pulsar-client 3.13.0 on a real Pulsar.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

import pulsar_on_kafka as pulsar
from tests.steps import (
    EARLIEST,
    PATIENCE_MS,
    SHARED,
    SILENCE_MS,
    Unique,
    nothing_comes,
    payloads,
    receive,
    receive_rest,
)

pytestmark = pytest.mark.kafka


def key_pair(folder: Path, name: str) -> pulsar.CryptoKeyReader:
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    private, public = folder / f"{name}.private.pem", folder / f"{name}.public.pem"
    private.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
        )
    )
    public.write_bytes(
        key.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    )
    return pulsar.CryptoKeyReader(str(public), str(private))


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> pulsar.CryptoKeyReader:
    return key_pair(tmp_path_factory.mktemp("keys"), "ours")


@pytest.fixture(scope="module")
def wrong(tmp_path_factory: pytest.TempPathFactory) -> pulsar.CryptoKeyReader:
    return key_pair(tmp_path_factory.mktemp("keys"), "wrong")


MISSING = pulsar.CryptoKeyReader("/nowhere/public.pem", "/nowhere/private.pem")


def producer(client: pulsar.Client, topic: str, keys: pulsar.CryptoKeyReader) -> pulsar.Producer:
    return client.create_producer(topic, encryption_key="k1", crypto_key_reader=keys)


def value_in_kafka(bootstrap: str, topic: str) -> bytes | None:
    reader = Consumer({"bootstrap.servers": bootstrap, "group.id": "look", "enable.auto.commit": False})
    reader.assign([TopicPartition(f"public.default.{topic}", 0, 0)])
    record = reader.poll(15)
    reader.close()
    assert record is not None
    value = record.value()
    assert value is None or isinstance(value, bytes)
    return value


def test_only_the_key_s_holder_can_read(
    client: pulsar.Client, bootstrap: str, keys: pulsar.CryptoKeyReader, unique: Unique
) -> None:
    topic = unique()
    consumer = client.subscribe(topic, "s", initial_position=EARLIEST, crypto_key_reader=keys)
    sender = producer(client, topic, keys)
    sender.send(b"a secret", partition_key="k", properties={"a": "b"})
    sender.send(b"")
    sender.send(None)
    client.create_producer(topic).send(b"in clear")
    secret, empty, null, clear = receive(consumer, 4)
    assert payloads([secret, empty, null, clear]) == ["a secret", "", "", "in clear"]
    assert (secret.partition_key(), secret.properties()) == ("k", {"a": "b"})
    context = secret.encryption_context()
    assert context is not None
    assert str(context) == (
        "EncryptionContext(algorithm=, compression_type=NONE, uncompressed_message_size=0, "
        "is_decryption_failed=False, keys=[EncryptionKey(key=k1, value_len=256, metadata={})])"
    )
    assert (len(context.param()), context.batch_size()) == (12, -1)
    assert empty.encryption_context() is not None
    assert null.has_null_value()
    assert clear.encryption_context() is None
    in_kafka = value_in_kafka(bootstrap, topic)
    assert in_kafka is not None
    assert len(in_kafka) == len(b"a secret") + 16
    assert b"secret" not in in_kafka


@pytest.mark.parametrize(("kind", "held"), [(SHARED, "wrong"), (pulsar.ConsumerType.Exclusive, "missing")])
@pytest.mark.parametrize("action", list(pulsar.ConsumerCryptoFailureAction))
def test_what_becomes_of_a_message_that_cannot_be_decrypted(
    client: pulsar.Client, keys: pulsar.CryptoKeyReader, wrong: pulsar.CryptoKeyReader, unique: Unique,
    kind: pulsar.ConsumerType, held: str, action: pulsar.ConsumerCryptoFailureAction,
) -> None:  # fmt: skip
    topic = unique()
    reader = {"wrong": wrong, "missing": MISSING}[held]
    consumer = client.subscribe(topic, "s", kind, crypto_key_reader=reader, crypto_failure_action=action)
    producer(client, topic, keys).send(b"secret", partition_key="k", properties={"a": "b"})
    client.create_producer(topic).send(b"clear")
    if action is pulsar.ConsumerCryptoFailureAction.CONSUME:
        sealed = consumer.receive(PATIENCE_MS)
        context = sealed.encryption_context()
        assert context is not None
        assert context.is_decryption_failed()
        assert (len(sealed.data()), sealed.partition_key(), sealed.properties()) == (22, "k", {"a": "b"})
        consumer.acknowledge(sealed)
    message = consumer.receive(PATIENCE_MS)
    assert message.data() == b"clear"
    consumer.acknowledge(message)
    assert nothing_comes(consumer)
    consumer.close()
    again = client.subscribe(topic, "s", kind, crypto_key_reader=keys)
    left = [b"secret"] if action is pulsar.ConsumerCryptoFailureAction.FAIL else []
    found = receive_rest(again, SILENCE_MS, least=len(left))
    assert [(message.data(), message.redelivery_count()) for message in found] == [(data, 0) for data in left]


def test_redelivered_messages_are_decrypted_again(
    client: pulsar.Client, keys: pulsar.CryptoKeyReader, unique: Unique
) -> None:
    topic = unique()
    consumer = client.subscribe(
        topic, "s", SHARED, crypto_key_reader=keys, negative_ack_redelivery_delay_ms=100, initial_position=EARLIEST
    )
    sender = producer(client, topic, keys)
    for number in range(50):
        sender.send_async(str(number).encode(), None)
    sender.flush()
    for message in receive(consumer, 50):
        consumer.negative_acknowledge(message)
    assert sorted(payloads(receive(consumer, 50)), key=int) == [str(number) for number in range(50)]


def test_dead_letters_are_readable_for_who_has_the_key(
    client: pulsar.Client, keys: pulsar.CryptoKeyReader, unique: Unique
) -> None:
    topic, dead = unique(), unique("dead")
    graveyard = client.subscribe(dead, "s", initial_position=EARLIEST, crypto_key_reader=keys)
    consumer = client.subscribe(
        topic, "s", SHARED, crypto_key_reader=keys, negative_ack_redelivery_delay_ms=50,
        dead_letter_policy=pulsar.ConsumerDeadLetterPolicy(1, dead),
    )  # fmt: skip
    producer(client, topic, keys).send(b"poison")
    for _ in range(2):
        consumer.negative_acknowledge(consumer.receive(PATIENCE_MS))
    assert graveyard.receive(PATIENCE_MS).data() == b"poison"


def test_readers_decrypt(client: pulsar.Client, keys: pulsar.CryptoKeyReader, unique: Unique) -> None:
    topic = unique()
    producer(client, topic, keys).send(b"secret")
    client.create_producer(topic).send(b"clear")
    with_key = client.create_reader(topic, pulsar.MessageId.earliest, crypto_key_reader=keys)
    assert [with_key.read_next(PATIENCE_MS).data() for _ in range(2)] == [b"secret", b"clear"]
    without = client.create_reader(topic, pulsar.MessageId.earliest)
    assert without.read_next(PATIENCE_MS).data() == b"clear"
    consuming = client.create_reader(
        topic, pulsar.MessageId.earliest, crypto_failure_action=pulsar.ConsumerCryptoFailureAction.CONSUME
    )
    context = consuming.read_next(PATIENCE_MS).encryption_context()
    assert context is not None
    assert context.is_decryption_failed()


def test_a_producer_never_sends_in_clear_by_mistake(
    client: pulsar.Client, keys: pulsar.CryptoKeyReader, tmp_path: Path, unique: Unique
) -> None:
    topic = unique()
    garbage = tmp_path / "garbage.pem"
    garbage.write_text("no key")
    for reader in (MISSING, pulsar.CryptoKeyReader(str(garbage), str(garbage))):
        with pytest.raises(pulsar.CryptoError, match="k1"):
            producer(client, topic, reader)
    for options in ({"encryption_key": "k1"}, {"encryption_key": "", "crypto_key_reader": keys}):
        refused: Any = options
        with pytest.raises(pulsar.InvalidConfiguration, match="clear"):
            client.create_producer(topic, **refused)


def test_a_batch_is_encrypted_as_a_whole(client: pulsar.Client, keys: pulsar.CryptoKeyReader, unique: Unique) -> None:
    topic = unique()
    consumer = client.subscribe(topic, "s", crypto_key_reader=keys)
    sealed = client.subscribe(topic, "sealed", crypto_failure_action=pulsar.ConsumerCryptoFailureAction.CONSUME)
    sender = client.create_producer(
        topic, encryption_key="k1", crypto_key_reader=keys, batching_enabled=True, batching_max_publish_delay_ms=200
    )
    for number in range(3):
        sender.send_async(str(number).encode(), None)
    sender.flush()
    messages = receive(consumer, 3)
    assert payloads(messages) == ["0", "1", "2"]
    contexts = [message.encryption_context() for message in messages]
    assert [c.batch_size() for c in contexts if c is not None and not c.is_decryption_failed()] == [3, 3, 3]
    whole = sealed.receive(PATIENCE_MS)
    context = whole.encryption_context()
    assert context is not None
    assert (context.batch_size(), context.is_decryption_failed(), whole.message_id().batch_index()) == (3, True, -1)
    assert nothing_comes(sealed)


@pytest.mark.parametrize("batched", [False, True], ids=["single", "batched"])
def test_dead_letters_of_encrypted_messages_stay_encrypted(
    client: pulsar.Client, bootstrap: str, keys: pulsar.CryptoKeyReader, unique: Unique, batched: bool
) -> None:
    topic, dead = unique(), unique("dead")
    policy = pulsar.ConsumerDeadLetterPolicy(1, dead, "inspector")
    consumer = client.subscribe(
        topic, "s", SHARED, initial_position=EARLIEST, crypto_key_reader=keys, dead_letter_policy=policy,
        negative_ack_redelivery_delay_ms=100,
    )  # fmt: skip
    sender = client.create_producer(topic, encryption_key="k1", crypto_key_reader=keys, batching_enabled=batched)
    sender.send_async(b"a secret", None, properties={"a": "b"})
    sender.send_async(b"another", None)
    sender.flush()
    for _ in range(2):
        for message in receive(consumer, 2):
            consumer.negative_acknowledge(message)
    reader = client.create_reader(dead, pulsar.MessageId.earliest, crypto_key_reader=keys)
    letters = [reader.read_next(PATIENCE_MS) for _ in range(2)]
    assert sorted(payloads(letters)) == ["a secret", "another"]
    origin = {letter.data(): letter.properties() for letter in letters}[b"a secret"]
    assert origin["a"] == "b"
    assert origin["REAL_TOPIC"] == consumer.topic()
    stored = value_in_kafka(bootstrap, dead)
    assert stored is not None
    assert b"secret" not in stored
    assert b"another" not in stored
    blind = client.subscribe(
        dead, "blind", initial_position=EARLIEST, crypto_failure_action=pulsar.ConsumerCryptoFailureAction.CONSUME
    )
    for letter in receive(blind, 2):
        context = letter.encryption_context()
        assert context is not None
        assert context.is_decryption_failed()


def test_retry_letters_of_encrypted_messages_stay_encrypted_until_they_are_dead(
    client: pulsar.Client, bootstrap: str, keys: pulsar.CryptoKeyReader, unique: Unique
) -> None:
    topic = unique()
    consumer = client.subscribe(
        topic, "s", SHARED, initial_position=EARLIEST, crypto_key_reader=keys, retry_enable=True,
        dead_letter_policy=pulsar.ConsumerDeadLetterPolicy(1),
    )  # fmt: skip
    producer(client, topic, keys).send(b"a secret", {"a": "b"}, partition_key="k")
    consumer.reconsume_later(consumer.receive(PATIENCE_MS), 100)
    letter = consumer.receive(PATIENCE_MS)
    assert letter.topic_name().endswith("-s-RETRY")
    assert (letter.data(), letter.partition_key(), letter.properties()["a"]) == (b"a secret", "k", "b")
    consumer.reconsume_later(letter, 0)
    dead = client.create_reader(f"{topic}-s-DLQ", pulsar.MessageId.earliest, crypto_key_reader=keys)
    assert dead.read_next(PATIENCE_MS).data() == b"a secret"
    for copies in ("RETRY", "DLQ"):
        stored = value_in_kafka(bootstrap, f"{topic}-s-{copies}")
        assert stored is not None
        assert b"secret" not in stored


@pytest.mark.parametrize("batched", [False, True], ids=["single", "batched"])
@pytest.mark.parametrize("put_off", [False, True], ids=["refused", "put off"])
def test_what_could_not_be_decrypted_is_copied_as_it_is(
    client: pulsar.Client, bootstrap: str, keys: pulsar.CryptoKeyReader, unique: Unique, batched: bool,
    put_off: bool,
) -> None:  # fmt: skip
    topic = unique()
    blind = client.subscribe(
        topic, "s", SHARED, initial_position=EARLIEST, negative_ack_redelivery_delay_ms=100, retry_enable=True,
        dead_letter_policy=pulsar.ConsumerDeadLetterPolicy(1),
        crypto_failure_action=pulsar.ConsumerCryptoFailureAction.CONSUME,
    )  # fmt: skip
    sender = client.create_producer(topic, encryption_key="k1", crypto_key_reader=keys, batching_enabled=batched)
    sender.send(b"a secret", {"a": "b"})
    for _ in range(2):
        message = blind.receive(PATIENCE_MS)
        context = message.encryption_context()
        assert context is not None
        assert context.is_decryption_failed()
        assert b"secret" not in message.data()
        if put_off:
            blind.reconsume_later(message, 0)
        else:
            blind.negative_acknowledge(message)
    dead = client.create_reader(f"{topic}-s-DLQ", pulsar.MessageId.earliest, crypto_key_reader=keys)
    assert dead.read_next(PATIENCE_MS).data() == b"a secret"
    assert value_in_kafka(bootstrap, f"{topic}-s-DLQ") == value_in_kafka(bootstrap, topic)
