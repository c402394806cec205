"""Dead letters are copies of messages that exceeded their delivery count, for inspection. Retry letters are copies of
messages that an application requests again later, which the official client does not have. Both keep the encryption,
the schema version and the origin of their messages; the official client does not keep the encryption."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

from pulsar_on_kafka.base import errors
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.base.worker import QueueWorker
from pulsar_on_kafka.broker.publishing.arguments import check_range, check_type, check_type_or_none
from pulsar_on_kafka.broker.publishing.official_errors import pulsar_errors
from pulsar_on_kafka.broker.publishing.outgoing_schema import LetterSchema, version_header
from pulsar_on_kafka.broker.schema_registry.confluent_forms import ConfluentHeaders
from pulsar_on_kafka.broker.schema_registry.model import SchemaPolicies
from pulsar_on_kafka.broker.subscriptions.records.consumer_inbox import Delivery
from pulsar_on_kafka.client.connection.session import Session
from pulsar_on_kafka.client.producer.producer import Producer, ProducerOptions, open_producer
from pulsar_on_kafka.client.values.dead_letter_policy import (
    ConsumerDeadLetterPolicy,
    DeadLetterPolicy,
    RedeliveryBackoff,
)
from pulsar_on_kafka.client.values.message import Message, acknowledge_in_slot
from pulsar_on_kafka.crypto.encryptor import Produce
from pulsar_on_kafka.exceptions import (
    AlreadyClosed,
    AuthorizationError,
    CryptoError,
    IncompatibleSchema,
    InvalidConfiguration,
    InvalidMessage,
    MessageTooBig,
    NotAllowedError,
    PulsarException,
    Result,
    TopicNotFound,
    TopicTerminated,
)
from pulsar_on_kafka.exceptions import InvalidTopicName as NoTopicName
from pulsar_on_kafka.kafka.records import headers_of
from pulsar_on_kafka_mapping.encoding.decimals import decimal_or_none
from pulsar_on_kafka_mapping.errors import InvalidTopicName, MappingError
from pulsar_on_kafka_mapping.ids.native_message_id import NativeMessageId
from pulsar_on_kafka_mapping.ids.schema_version import SchemaVersion
from pulsar_on_kafka_mapping.names.topic_name import TopicName
from pulsar_on_kafka_mapping.records.encryption_header import TAG_BYTES
from pulsar_on_kafka_mapping.records.message_record import encryption_info
from pulsar_on_kafka_mapping.records.record_headers import BATCH, COMPRESSION, DELIVERIES, ENCRYPTION
from pulsar_on_kafka_mapping.wire.stored_entries import split_properties
from pulsar_on_kafka_schema_compat import CompatibilityStrategy

_log: Final = logging.getLogger(__name__)

ORIGIN_MESSAGE_ID: Final = "ORIGIN_MESSAGE_ID"
ORIGIN_MESSAGE_IDY_TIME: Final = "ORIGIN_MESSAGE_IDY_TIME"
"""The same as `ORIGIN_MESSAGE_ID`: Java's name for it is older than its spelling."""

REFUSAL_REASON: Final = "REFUSAL_REASON"
"""The last reason of a message's negative acknowledgements and retries. Not in other clients."""

REAL_TOPIC: Final = "REAL_TOPIC"
REAL_SUBSCRIPTION: Final = "REAL_SUBSCRIPTION"
_ACCEPTED: Final = SchemaPolicies(strategy=CompatibilityStrategy.ALWAYS_COMPATIBLE)


def check_letter_topic(session: Session, what: str, topic: str) -> None:
    """Raise where letters could never be written to the topic: its name is none, or its namespace is not there.

    A missing right raises nothing: an operator may grant it later, and the letter that lacks it names it.

    Raises:
        InvalidTopicName, errors.NoSuchNamespace, errors.NoSuchTopic: name the letters, the topic and the reason.
    """
    try:
        with suppress(errors.NotAuthorized):
            session.node().topics.check_openable(TopicName.parse(topic), session.deadline())
    except (InvalidTopicName, errors.NoSuchNamespace, errors.NoSuchTopic) as refused:
        raise type(refused)(f"{what} cannot be written to topic {topic!r}: {refused}") from refused


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
    def copying(
        self,
        message: Message,
        topic: str,
        initial_subscription: str,
        properties: Mapping[str, str],
        *headers: tuple[str, bytes],
    ) -> Iterator[tuple[Producer, dict[str, str]]]:
        """A producer of `topic`, and the properties to send; what this thread sends by it in here is a copy of
        `message`, with these headers besides.

        A property whose name no header can have, as a batch or a client of a gateway may have it, goes along among
        them. Topic and subscription ('' for none) are made when they are not there. Raises as `Client.create_producer`.
        """
        producer = self._producer(topic, initial_subscription)
        with pulsar_errors():
            version = self._version(message, topic)
            in_headers, kept = split_properties(properties)
        with self._sealing.like(message, *version, *headers, *kept):
            yield producer, in_headers

    def send_copy(
        self,
        message: Message,
        topic: str,
        properties: Mapping[str, str],
        answer: Callable[[Result, Any], None],
        *headers: tuple[str, bytes],
        initial_subscription: str = "",
        keeps_event_time: bool = True,
        **options: Any,
    ) -> None:
        """Send a copy of `message` with these properties; see `copying`. `options` are those of `send_async`. Raises as
        `Client.create_producer` and `Producer.send_async`."""
        with self.copying(message, topic, initial_subscription, properties, *headers) as (producer, in_headers):
            producer.send_async(
                message.payload(),
                answer,
                properties=in_headers,
                partition_key=message.record_key(),
                ordering_key=message.ordering_key() or None,
                event_timestamp=(message.event_timestamp() or None) if keeps_event_time else None,
                **options,
            )

    def _producer(self, topic: str, initial_subscription: str) -> Producer:
        session = self._session
        with self._lock:
            if self._closed:
                raise AlreadyClosed(f"the consumer of subscription {self._subscription} is closed")
            producer = self._producers.get(topic)
            if producer is not None and producer.is_connected():
                return producer
            if producer is not None:  # its topic was deleted
                self._close(producer)
            if initial_subscription:
                with pulsar_errors():
                    session.node().memberships.create_subscription(
                        TopicName.parse(topic), initial_subscription, session.deadline()
                    )
            options = ProducerOptions(
                topic, schema=LetterSchema(), block_if_queue_full=True, chunking_enabled=self._takes_chunks(topic)
            )
            producer = self._producers[topic] = open_producer(options, session, self._sealing)
            return producer

    def _takes_chunks(self, topic: str) -> bool:
        """Whether a letter may be stored in several records."""
        session = self._session
        with pulsar_errors():
            node = session.node()
            return not node.limits.of(
                node.topics.open(TopicName.parse(topic), session.deadline()), session.deadline()
            ).compacted

    def _version(self, message: Message, topic: str) -> list[tuple[str, bytes]]:
        """The header that names the schema of a message's payload, registered in the letters' topic; none for one that
        was sent without a schema, or with an unreadable one (which is logged).

        Source: ConsumerImpl.processPossibleToDLQ and doReconsumeLater of Java's client, whose copies carry the reader
        schema of each message. Differs from Pulsar: the C++ and Python clients' copies carry the consumer's own schema,
        whatever wrote them. Schemas are registered in the order of the copies, without a check: they were checked where
        the messages were sent, and where a copy is refused (as by Java's client) its message is redelivered for ever.

        Raises:
            LayerError: Kafka did not reply in time; the copy must be made again.
        """
        written = message.written_with()
        if written is None:
            return []
        schemas, deadline = self._session.node().schemas, self._session.deadline()
        try:
            version = SchemaVersion.from_header(written)
            writer = schemas.schema(TopicName.parse(message.topic_name()), version, deadline).info
            letters = TopicName.parse(topic).base
            registered = schemas.for_producer(letters, writer, deadline, _ACCEPTED)
            if registered is None:
                return []
            ids: ConfluentHeaders = ()
            if message.encryption_context() is None and schemas.requires_confluent_ids(letters, deadline):
                ids = schemas.confluent_headers(letters, registered, deadline)
        except (errors.Refused, errors.Corrupt, errors.NotAuthorized, MappingError) as refused:
            _log.warning("topic=%s gets a copy of %s without its schema: %s", topic, message.message_id(), refused)
            return []
        return [version_header(registered), *ids]

    def close(self) -> None:
        """Close the producers. Twice is fine."""
        with self._lock:
            self._closed = True
            producers = list(self._producers.values())
            self._producers.clear()
        for producer in producers:
            self._close(producer)

    def _close(self, producer: Producer) -> None:
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


def letter_properties(message: Message, origin_of: Mapping[str, str], reason: str | None) -> dict[str, str]:
    """The properties of a message's dead letter. A letter that dies keeps its first origin."""
    properties = {**origin_of, **message.properties()}
    return properties | {REFUSAL_REASON: reason} if reason else properties


class LetterSealing:
    """Keeps a copy readable for exactly the consumers that could read its message.

    A payload that the consumer decrypted is encrypted again with its own data key, so no public key is needed; one that
    it could not decrypt is copied unchanged. A clear payload stays so. Thread-safe.
    """

    def __init__(self) -> None:
        self._copied = threading.local()

    @contextmanager
    def like(self, message: Message, *headers: tuple[str, bytes]) -> Iterator[None]:
        """Marks the sends of this thread in the block as copies of `message`, with these additional headers."""
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
        """The overhead of the copy that this thread makes now."""
        message = getattr(self._copied, "message", None)
        headers = [] if message is None else headers_of(message.record) or []
        sealed = sum(TAG_BYTES + len(name) + len(value or b"") for name, value in headers if name == ENCRYPTION)
        return sealed + sum(len(name) + len(value) for name, value in getattr(self._copied, "headers", ()))


_OF_A_SEALED_VALUE: Final = (ENCRYPTION, BATCH, COMPRESSION)


def _sealed(message: Message, value: bytes) -> tuple[bytes, list[tuple[str, Any]]]:
    context = message.encryption_context()
    if context is None:
        return value, []
    headers = headers_of(message.record) or []
    if context.is_decryption_failed():
        return value, [header for header in headers if header[0] in _OF_A_SEALED_VALUE]
    info = encryption_info(headers)
    assert info is not None  # noqa: S101 - there is a context
    ciphertext, header = message.feed.endpoint.decryptor.seal_again(value, info)
    return ciphertext, [(ENCRYPTION, header)]


DLQ_SUFFIX: Final = "-DLQ"
_CLOSE_S: Final = 10.0
MAX_REFUSED: Final = 10_000

Kept = Callable[[Delivery], None]

_FINAL: Final[tuple[type[PulsarException], ...]] = (
    AuthorizationError,
    CryptoError,
    IncompatibleSchema,
    InvalidConfiguration,
    InvalidMessage,
    MessageTooBig,
    NoTopicName,
    NotAllowedError,
    TopicNotFound,
    TopicTerminated,
)
"""Errors that another attempt does not change; all others pass."""
_FINAL_RESULTS: Final = frozenset(each.result for each in _FINAL)


class DeadLetterWriter:
    """The writer publishes one consumer's dead letters. A thread of its own opens topics and publishes, from the first
    letter on.

    A letter is acknowledged when every in-sync replica has it. It carries payload, key, ordering key and properties,
    and `REAL_TOPIC` and `ORIGIN_MESSAGE_ID` as properties. Source: ConsumerImpl.processPossibleToDLQ of the official
    client; like there, event times do not go along, and a letter that dies keeps its first origin. Differs from Pulsar:
    what was encrypted stays encrypted, and a letter's schema is the one that its message was written with (letters.py).

    With `as_java`, for consumers that have retry letters, they are as Java's client writes them, event time and all.

    A failure that passes is tried again after a second. A letter that is refused for good is logged as an error, and
    its message is delivered to the application once more, as in Pulsar; refused there, its letter is tried again.

    Memory: the letters under way; the dispatcher bounds their number.
    """

    def __init__(
        self, policy: DeadLetterPolicy, subscription: str, producers: LetterProducers, *, as_java: bool = False
    ) -> None:
        self._policy = policy
        self._subscription = subscription
        self._as_java = as_java
        self._producers = producers
        self._letters: QueueWorker[tuple[Delivery, Kept]] = QueueWorker(
            f"pok-dead-letters {subscription}", self._publish_all, last=producers.close
        )
        self._until = Deadline.never()
        self._refused: dict[tuple[str, int], None] = {}
        """Topics and offsets of letters that were refused, until their messages are delivered again; the newest
        `MAX_REFUSED`. A letter that is forgotten here is tried again."""

    def take_refused(self, letter_topic: str, offset: int) -> bool:
        """Whether the letter of the message at an offset was refused permanently since the last call."""
        try:
            del self._refused[letter_topic, offset]
        except KeyError:
            return False
        return True

    @property
    def max_redeliver_count(self) -> int:
        return self._policy.getMaxRedeliverCount()

    def publish_dead_letters(self, letters: Sequence[Delivery], kept: Kept) -> None:
        """Queue the letters for the writer's thread; a closed writer gives them to `kept` at once."""
        if not self._letters.put([(letter, kept) for letter in letters]):
            for letter in letters:
                kept(letter)

    def close(self) -> None:
        """Publish what is under way, as far as ten seconds reach, and end the thread; the rest stays where it is. Twice
        is fine."""
        self._until = Deadline.after(_CLOSE_S)
        if not self._letters.close(self._until):
            _log.warning("subscription=%s its last dead letters are not published yet", self._subscription)

    def _publish_all(self, letters: Sequence[tuple[Delivery, Kept]]) -> None:
        for letter, kept in letters:
            if self._until.passed():
                kept(letter)
                continue
            try:
                self._publish(letter, kept)
            except Exception as failure:  # the letter stays where it is and is tried again
                self._not_stored(letter, kept, failure, final=isinstance(failure, (*_FINAL, TypeError, ValueError)))

    def _not_stored(self, letter: Delivery, kept: Kept, reason: object, *, final: bool) -> None:
        if final:
            self._refused[letter.feed.slot.topic_name, letter.offset] = None
            while len(self._refused) > MAX_REFUSED:
                self._refused.pop(next(iter(self._refused)), None)
            _log.error(
                "subscription=%s the dead letter of %s is refused, its message is delivered again: %s",
                self._subscription, letter, reason,
            )  # fmt: skip
        else:
            _log.warning("subscription=%s cannot publish a dead letter yet: %s", self._subscription, reason)
        kept(letter)

    def _publish(self, letter: Delivery, kept: Kept) -> None:
        assert isinstance(letter, Message)  # noqa: S101 - this consumer's endpoint makes Messages
        topic = self._policy.getDeadLetterTopic() or f"{letter.topic_name()}-{self._subscription}{DLQ_SUFFIX}"

        def stored(result: Result, _: Any) -> None:
            if result is Result.Ok:
                acknowledge_in_slot(letter)
                return
            self._not_stored(letter, kept, result, final=result in _FINAL_RESULTS)

        delivered = (DELIVERIES, b"%d" % letter.redelivery_count())
        reason = letter.feed.slot.reasons.get(letter.offset, letter.message_id().batch_index())
        properties = letter_properties(letter, self._origin(letter), reason)
        initial = self._policy.getInitialSubscriptionName()
        self._producers.send_copy(
            letter, topic, properties, stored, delivered, initial_subscription=initial, keeps_event_time=self._as_java
        )

    def _origin(self, letter: Message) -> dict[str, str]:
        return origin_as_java(letter, self._subscription, put_off=False) if self._as_java else origin(letter)


DELAY_TIME: Final = "DELAY_TIME"
RECONSUMETIMES: Final = "RECONSUMETIMES"
RETRY_SUFFIX: Final = "-RETRY"
DEFAULT_MAX_REDELIVER_COUNT: Final = 16
"""Java's, for a consumer with `retry_enable` and no dead letter policy."""

MAX_DELAY_MS: Final = 10 * 365 * 86_400_000
"""Ten years."""


def check_retry(message: object, delay_ms: object, properties: dict[str, str] | None, reason: object = None) -> None:
    """Raises the errors of `Consumer.reconsume_later` about its arguments."""
    if not isinstance(message, Message):
        raise TypeError(f"reconsume_later takes a message, got {type(message).__name__}: {message!r:.60}")
    check_type_or_none(int, "delay_ms", delay_ms)
    if isinstance(delay_ms, int):
        check_range("delay_ms", delay_ms, 0, MAX_DELAY_MS)
    check_type_or_none(str, "reason", reason)
    check_type_or_none(dict, "properties", properties)
    for key, value in (properties or {}).items():
        check_type(str, "a key of properties", key)
        check_type(str, f"properties[{key!r}]", value)


def retry_delay_ms(message: Message, backoff: RedeliveryBackoff | None) -> int:
    """The delay of a message's next retry letter by the consumer's backoff.

    Raises:
        InvalidConfiguration: there is no backoff, or its delay is out of range.
        InvalidMessage: the message's property RECONSUMETIMES is no number.
    """
    if backoff is None:
        raise InvalidConfiguration("reconsume_later needs delay_ms, or a consumer with retry_letter_backoff")
    delay_ms = backoff.next(retries_of(message.properties(), message.message_id()))
    check_type(int, "the delay of retry_letter_backoff", delay_ms)
    check_range("the delay of retry_letter_backoff", delay_ms, 0, MAX_DELAY_MS)
    return delay_ms


def retries_of(properties: Mapping[str, str], named: object) -> int:
    """The number of retries before that a letter's properties contain; 0 for other messages. Raises InvalidMessage,
    which names the message as `named`."""
    before = properties.get(RECONSUMETIMES, "0")
    times = decimal_or_none(before)
    if times is None:
        raise InvalidMessage(f"message {named}: property {RECONSUMETIMES} must be a number, got {before!r:.60}")
    return times


@dataclass(frozen=True, slots=True)
class RetryTopics:
    """One consumer's letters go to the retry topic, and after so many retries to the dead letter topic. Source:
    ConsumerBuilderImpl.subscribeAsync."""

    subscription: str
    retry_topic: str
    dead_letters: ConsumerDeadLetterPolicy
    """Always with a topic."""

    @classmethod
    def of(cls, topic: str, subscription: str, policy: ConsumerDeadLetterPolicy | None) -> RetryTopics:
        """`topic`: full name of the consumer's first topic, after which both topics are named that the policy does not
        name. Raises MappingError: what it names is no topic."""
        count = DEFAULT_MAX_REDELIVER_COUNT if policy is None else policy.max_redeliver_count
        dead = (policy and policy.dead_letter_topic) or f"{topic}-{subscription}{DLQ_SUFFIX}"
        initial = (policy and policy.initial_subscription_name) or None
        retry = (policy and policy.retry_letter_topic) or f"{topic}-{subscription}{RETRY_SUFFIX}"
        return cls(subscription, str(TopicName.parse(retry)), ConsumerDeadLetterPolicy(count, dead, initial))

    def letter(
        self, properties: Mapping[str, str], origin: Mapping[str, str], delay_ms: int, extra: Mapping[str, str]
    ) -> Letter:
        """The letter for a message with these properties and this origin. A letter of a letter keeps its origin.

        Raises:
            InvalidMessage: its property RECONSUMETIMES is no number.
        """
        combined = {**origin, **properties, **extra}
        times = retries_of(combined, origin[ORIGIN_MESSAGE_ID]) + 1
        combined |= {RECONSUMETIMES: str(times), DELAY_TIME: str(delay_ms)}
        if times > self.dead_letters.max_redeliver_count:
            return Letter(
                self.dead_letters.dead_letter_topic, self.dead_letters.initial_subscription_name, combined, None
            )
        return Letter(self.retry_topic, "", combined, timedelta(milliseconds=delay_ms))


@dataclass(frozen=True, slots=True)
class Letter:
    """A letter has a topic, properties and a delay of its own; payload, keys and event time are its message's."""

    topic: str
    initial_subscription: str
    """'' for none."""
    properties: dict[str, str]
    deliver_after: timedelta | None
    """None for at once."""


class RetryLetterWriter:
    """The writer publishes the retry letters of one consumer. Thread-safe. Source: ConsumerImpl.doReconsumeLater of
    Java's client.

    Memory: two producers at most; each caller waits for its letter, so what is under way is bounded by their number.
    """

    def __init__(self, topics: RetryTopics, producers: LetterProducers) -> None:
        self._topics = topics
        self._producers = producers
        self.close = producers.close

    def publish(self, message: Message, delay_ms: int, extra: Mapping[str, str]) -> None:
        """Return when every in-sync replica has the letter; any PulsarException when it is not sure to be there."""
        origin = origin_as_java(message, self._topics.subscription, put_off=True)
        letter = self._topics.letter(message.properties(), origin, delay_ms, extra)
        to = letter.topic, letter.initial_subscription, letter.properties
        with self._producers.copying(message, *to) as (producer, plain):
            producer.send(
                message.payload(),
                properties=plain,
                partition_key=message.record_key(),
                ordering_key=message.ordering_key() or None,
                event_timestamp=message.event_timestamp() or None,
                deliver_after=letter.deliver_after,
            )
