"""Letters (dead letters, retry letters) are copies of messages: they keep the encryption, the schema version and the
origin of their messages. That what is encrypted stays so is ours beyond the official clients."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from pulsar_on_kafka.base import errors
from pulsar_on_kafka.client.connection.session import Session
from pulsar_on_kafka.client.producer.producer import Producer
from pulsar_on_kafka.client.producer.producer_opening import ProducerOptions, open_producer
from pulsar_on_kafka.client.values.message import Message
from pulsar_on_kafka.crypto.encryptor import TAG_BYTES, Produce
from pulsar_on_kafka.exceptions import AlreadyClosed, PulsarException
from pulsar_on_kafka.kafka.records import headers_of
from pulsar_on_kafka.mapping.errors import MappingError
from pulsar_on_kafka.mapping.ids.native_message_id import NativeMessageId
from pulsar_on_kafka.mapping.ids.schema_version import SchemaVersion
from pulsar_on_kafka.mapping.names.topic_name import TopicName
from pulsar_on_kafka.mapping.records.message_record import encryption_info
from pulsar_on_kafka.mapping.records.record_headers import BATCH, ENCRYPTION
from pulsar_on_kafka.registry.model import SchemaPolicies
from pulsar_on_kafka.schema_compat import CompatibilityStrategy
from pulsar_on_kafka.sending.official_errors import pulsar_errors
from pulsar_on_kafka.sending.outgoing_schema import LetterSchema, version_header

_log: Final = logging.getLogger(__name__)

ORIGIN_MESSAGE_ID: Final = "ORIGIN_MESSAGE_ID"
ORIGIN_MESSAGE_IDY_TIME: Final = "ORIGIN_MESSAGE_IDY_TIME"
"""The same as `ORIGIN_MESSAGE_ID`: Java's name for it is older than its spelling."""

REAL_TOPIC: Final = "REAL_TOPIC"
REAL_SUBSCRIPTION: Final = "REAL_SUBSCRIPTION"
_ACCEPTED: Final = SchemaPolicies(strategy=CompatibilityStrategy.ALWAYS_COMPATIBLE)


class LetterProducers:
    """The producers of one consumer's letters, which are the session's. Thread-safe. Memory: a producer for each topic
    of letters."""

    def __init__(self, session: Session, subscription: str) -> None:
        self._session = session
        self._subscription = subscription
        self._producers: dict[str, Producer] = {}
        self._lock = threading.Lock()
        self._sealing = LetterSealing()
        self._closed = False

    @contextmanager
    def copying(self, message: Message, topic: str, initial_subscription: str) -> Iterator[Producer]:
        """A producer of `topic`; what this thread sends by it in here is a copy of `message`. Topic and subscription
        ('' for none) are made when they are not there. Raises as `Client.create_producer`."""
        producer = self._producer(topic, initial_subscription)
        with pulsar_errors():
            version = self._version(message, topic)
        with self._sealing.like(message, *version):
            yield producer

    def _producer(self, topic: str, initial_subscription: str) -> Producer:
        session = self._session
        with self._lock:
            if self._closed:
                raise AlreadyClosed(f"the consumer of subscription {self._subscription} is closed")
            producer = self._producers.get(topic)
            if producer is not None:
                return producer
            if initial_subscription:
                with pulsar_errors():
                    session.node().memberships.create_subscription(
                        TopicName.parse(topic), initial_subscription, session.deadline()
                    )
            options = ProducerOptions(topic, schema=LetterSchema(), block_if_queue_full=True, chunking_enabled=True)
            producer = self._producers[topic] = open_producer(options, session, self._sealing)
            return producer

    def _version(self, message: Message, topic: str) -> list[tuple[str, bytes]]:
        """The header that names the schema which a message's payload was written with, registered in the letters'
        topic; none for one that was sent without a schema, or with one that is not to be had (which is logged).

        Source: ConsumerImpl.processPossibleToDLQ and doReconsumeLater of Java's client, whose copies carry the reader
        schema of each message. Differs from Pulsar: the C++ and Python clients' copies carry the consumer's own schema,
        whatever wrote them. Schemas are registered in the order in which copies come, unjudged: they were judged where
        the messages were sent, and where a copy is refused (as by Java's client) its message is delivered again for
        ever.

        Raises:
            LayerError: Kafka did not say in time; the copy is to be made again.
        """
        written = message.written_with()
        if written is None:
            return []
        schemas, deadline = self._session.node().schemas, self._session.deadline()
        try:
            version = SchemaVersion.from_header(written)
            writer = schemas.schema(TopicName.parse(message.topic_name()), version, deadline).info
            registered = schemas.for_producer(TopicName.parse(topic), writer, deadline, _ACCEPTED)
        except (errors.Refused, errors.Corrupt, errors.NotAuthorized, MappingError) as refused:
            _log.warning("topic=%s gets a copy of %s without its schema: %s", topic, message.message_id(), refused)
            return []
        return [] if registered is None else [version_header(registered)]

    def close(self) -> None:
        """Close the producers. Twice is fine."""
        with self._lock:
            self._closed = True
            producers = list(self._producers.values())
            self._producers.clear()
        for producer in producers:
            try:
                producer.close()
            except PulsarException as failure:
                _log.warning("subscription=%s letters: %s", self._subscription, failure)


def origin(message: Message) -> dict[str, str]:
    """The origin's properties as the C++ and Python clients write them. Source: ConsumerImpl::processPossibleToDLQ."""
    return {ORIGIN_MESSAGE_ID: str(message.message_id()), REAL_TOPIC: message.topic_name()}


def origin_as_java(message: Message, subscription: str, *, put_off: bool) -> dict[str, str]:
    """The origin's properties as Java's client writes them, which alone knows retry letters: with its form of ids, and
    the topic of what was put off without its partition. Source: ConsumerImpl.getPropertiesMap.
    """
    message_id = java_text(message.message_id())
    return {
        REAL_TOPIC: str(TopicName.parse(message.topic_name()).base) if put_off else message.topic_name(),
        REAL_SUBSCRIPTION: subscription,
        ORIGIN_MESSAGE_IDY_TIME: message_id,
        ORIGIN_MESSAGE_ID: message_id,
    }


def java_text(message_id: NativeMessageId) -> str:
    """`toString()` of Java's ids: ledger:entry:partition, and :index in a batch; first chunk;last chunk."""
    text = f"{message_id.ledger_id()}:{message_id.entry_id()}:{message_id.partition()}"
    first = message_id.first_chunk()
    if first is not None:
        return f"{first.ledger_id}:{first.entry_id}:{message_id.partition()};{text}"
    return text if message_id.batch_index() < 0 else f"{text}:{message_id.batch_index()}"


class LetterSealing:
    """Sealing keeps a copy readable for those who could read its message, and for nobody else.

    What the consumer decrypted is encrypted again with the data key that came with it, so no public key is needed; what
    it could not decrypt is copied as it is. What was in clear stays so. Thread-safe.
    """

    def __init__(self) -> None:
        self._copied = threading.local()

    @contextmanager
    def like(self, message: Message, *headers: tuple[str, bytes]) -> Iterator[None]:
        """What this thread sends in here is a copy of `message`, and has these headers besides."""
        self._copied.message = message
        self._copied.headers = headers
        try:
            yield
        finally:
            self._copied.message = None
            self._copied.headers = ()

    def over(self, produce: Produce) -> Produce:
        """librdkafka's `produce` for copies: each gets the encryption of its message, and headers of its own."""

        def produce_sealed(
            topic: str, value: bytes | None, key: Any, partition: int, callback: Any, alias: Any, timestamp: int,
            headers: list[tuple[str, Any]],
        ) -> None:  # fmt: skip
            message = getattr(self._copied, "message", None)
            headers = [*headers, *getattr(self._copied, "headers", ())]
            if value is not None and message is not None:
                value, more = _sealed(message, value)
                headers += more
            produce(topic, value, key, partition, callback, alias, timestamp, headers)

        return produce_sealed

    def overhead_bytes(self) -> int:
        """Of the copy that this thread makes now."""
        message = getattr(self._copied, "message", None)
        headers = [] if message is None else headers_of(message.record) or []
        sealed = sum(TAG_BYTES + len(name) + len(value or b"") for name, value in headers if name == ENCRYPTION)
        return sealed + sum(len(name) + len(value) for name, value in getattr(self._copied, "headers", ()))


def _sealed(message: Message, value: bytes) -> tuple[bytes, list[tuple[str, Any]]]:
    context = message.encryption_context()
    if context is None:
        return value, []
    headers = headers_of(message.record) or []
    if context.is_decryption_failed():
        return value, [header for header in headers if header[0] in (ENCRYPTION, BATCH)]
    info = encryption_info(headers)
    assert info is not None  # noqa: S101 - there is a context
    ciphertext, header = message.feed.endpoint.unsealing.seal_again(value, info)
    return ciphertext, [(ENCRYPTION, header)]
