"""End-to-end encryption, and what becomes of those who cannot read."""

from __future__ import annotations

from typing import Any

from tests.compat.harness.driver import ScenarioRun
from tests.compat.harness.scenario import scenario

AREA = "encryption"


def _keys(run: ScenarioRun) -> Any:
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import rsa

    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    private, public = run.directory / "private.pem", run.directory / "public.pem"
    private.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
        )
    )
    public.write_bytes(
        key.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    )
    return run.sdk.CryptoKeyReader(str(public), str(private))


@scenario(area=AREA, title="Encrypted and decrypted")
def encrypted(run: ScenarioRun) -> None:
    topic, keys = run.topic(), _keys(run)
    consumer = run.consumer(topic, crypto_key_reader=keys)
    producer = run.producer(topic, encryption_key="my-key", crypto_key_reader=keys)
    producer.send(b"secret", properties={"a": "b"})
    message = run.receive(consumer, 1)[0]
    run.record("received", run.view(message, "data", "properties"))
    context = message.encryption_context()
    run.record("context", context is not None and [[key.key for key in context.keys()], context.is_decryption_failed()])  # noqa: SIM118


@scenario(area=AREA, title="Without the key: CONSUME gives what cannot be read, DISCARD nothing")
def without_key(run: ScenarioRun) -> None:
    topic, keys = run.topic(), _keys(run)
    action = run.sdk.ConsumerCryptoFailureAction
    consume = run.consumer(topic, "consume", crypto_failure_action=action.CONSUME)
    discard = run.consumer(topic, "discard", crypto_failure_action=action.DISCARD)
    run.producer(topic, encryption_key="my-key", crypto_key_reader=keys).send(b"secret")
    run.send(topic, ["plain"])
    first, second = run.receive(consume, 2)
    run.record("consume", [first.data() != b"secret", run.view(second)])
    context = first.encryption_context()
    run.record("failed", context is not None and context.is_decryption_failed())
    run.record_messages("discard", run.receive(discard, 1))


@scenario(area=AREA, title="Without the key: FAIL gives nothing")
def without_key_fail(run: ScenarioRun) -> None:
    topic, keys = run.topic(), _keys(run)
    consumer = run.consumer(topic)
    run.producer(topic, encryption_key="my-key", crypto_key_reader=keys).send(b"secret")
    run.record_messages("received", run.rest(consumer))


@scenario(area=AREA, title="A key file that is not there")
def missing_key(run: ScenarioRun) -> None:
    nowhere = str(run.directory / "missing.pem")
    keys = run.sdk.CryptoKeyReader(nowhere, nowhere)
    run.attempt("producer", lambda: run.producer(run.topic(), encryption_key="k", crypto_key_reader=keys).send(b"x"))


def _secret(run: ScenarioRun, topic: str, keys: Any, texts: list[str], **options: Any) -> None:
    run.send(topic, texts, encryption_key="my-key", crypto_key_reader=keys, **options)


@scenario(area=AREA, title="What was discarded does not come to one who has the key")
def discarded(run: ScenarioRun) -> None:
    topic, keys = run.topic(), _keys(run)
    action = run.sdk.ConsumerCryptoFailureAction.DISCARD
    consumer = run.consumer(topic, crypto_failure_action=action)
    _secret(run, topic, keys, ["secret"])
    run.send(topic, ["plain"])
    run.record_messages("without the key", run.receive_acked(consumer, 1))
    run.until(lambda: run.admin.backlog(topic, "sub") == 0, "no backlog")
    consumer.close()
    run.record_messages("with it", run.rest(run.consumer(topic, crypto_key_reader=keys)))


@scenario(area=AREA, title="What failed comes to the next one, who has the key")
def failed(run: ScenarioRun) -> None:
    topic, keys = run.topic(), _keys(run)
    consumer = run.consumer(topic, kind="Shared")
    _secret(run, topic, keys, ["secret"])
    run.record_messages("without the key", run.rest(consumer))
    consumer.close()
    run.record_messages("with it", run.receive(run.consumer(topic, kind="Shared", crypto_key_reader=keys), 1))


@scenario(area=AREA, title="A batch is encrypted as a whole")
def batch(run: ScenarioRun) -> None:
    topic, keys = run.topic(), _keys(run)
    consumer = run.consumer(topic, crypto_key_reader=keys)
    blind = run.consumer(topic, "blind", crypto_failure_action=run.sdk.ConsumerCryptoFailureAction.CONSUME)
    producer = run.producer(
        topic,
        encryption_key="my-key",
        crypto_key_reader=keys,
        batching_enabled=True,
        batching_max_publish_delay_ms=10_000,
    )
    for text in ("a", "b", "c"):
        producer.send_async(text.encode(), None, properties={"text": text}, partition_key=text)
    producer.flush()
    run.record_messages("received", run.receive(consumer, 3), "data", "properties", "partition_key")
    whole = run.receive(blind, 1)[0]
    run.record("without the key", [whole.encryption_context().is_decryption_failed(), whole.message_id().entry_id()])
    run.record_messages("and then", run.rest(blind))


@scenario(area=AREA, title="A consumed message that could not be read is acknowledged as any other")
def consumed(run: ScenarioRun) -> None:
    topic, keys = run.topic(), _keys(run)
    options = {"crypto_failure_action": run.sdk.ConsumerCryptoFailureAction.CONSUME}
    consumer = run.consumer(topic, **options)
    _secret(run, topic, keys, ["one", "two"])
    first, _ = run.receive(consumer, 2)
    run.record("context", [[key.key for key in first.encryption_context().keys()], first.redelivery_count()])  # noqa: SIM118
    consumer.acknowledge(first)
    consumer.close()
    run.record_messages("with the key", run.rest(run.consumer(topic, crypto_key_reader=keys)))


@scenario(area=AREA, title="A reader with the key")
def reader(run: ScenarioRun) -> None:
    topic, keys = run.topic(), _keys(run)
    _secret(run, topic, keys, ["one", "two"])
    opened = run.reader(topic, run.sdk.MessageId.earliest, crypto_key_reader=keys)
    run.record_messages("read", run.read(opened, 2))


@scenario(area=AREA, title="Of partitions, with keys and compression")
def forms(run: ScenarioRun) -> None:
    topic, keys = run.topic(partitions=2), _keys(run)
    consumer = run.consumer(topic, kind="Shared", crypto_key_reader=keys)
    _secret(run, topic, keys, ["1", "2", "3", "4"], compression_type=run.sdk.CompressionType.LZ4)
    run.record_set("received", run.receive_acked(consumer, 4))
