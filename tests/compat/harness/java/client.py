"""Java's client, producers and consumers with the calls of the official Python client's.

An option that is not known here is a TypeError. Transactions, which Python's client lacks, begin with
`Client.new_transaction`.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable, Sequence
from typing import Any, Final

from tests.compat.harness.java.bridge import Bridge, Handle, Options
from tests.compat.harness.java.runtime import JavaAddress


class JavaTransaction:
    """`native` is Java's. Both calls wait for the outcome."""

    def __init__(self, bridge: Bridge, native: Any) -> None:
        self._bridge = bridge
        self.native = native

    @property
    def state(self) -> str:
        """The name in Java's `Transaction.State`."""
        return str(self.native.getState())

    @property
    def txn_id(self) -> tuple[int, int]:
        """Both halves, the coordinator in the high 16 bits of the first."""
        found = self.native.getTxnID()
        return int(found.getMostSigBits()), int(found.getLeastSigBits())

    def commit(self) -> None:
        self._bridge.call(lambda: self.native.commit().get())

    def abort(self) -> None:
        self._bridge.call(lambda: self.native.abort().get())


class JavaMessageId:
    """Id of one entry, or of one message of a batch. `native` is Java's."""

    def __init__(self, native: Any) -> None:
        self.native = native

    def ledger_id(self) -> int:
        return int(self.native.getLedgerId())

    def entry_id(self) -> int:
        return int(self.native.getEntryId())

    def partition(self) -> int:
        return int(self.native.getPartitionIndex())

    def batch_index(self) -> int:
        return int(self.native.getBatchIndex())

    def serialize(self) -> bytes:
        return bytes(self.native.toByteArray())

    def __str__(self) -> str:
        return str(self.native.toString())

    def __eq__(self, other: object) -> bool:
        return bool(self.native.equals(other.native)) if isinstance(other, JavaMessageId) else NotImplemented

    __hash__ = None  # type: ignore[assignment]


def native_id(bridge: Bridge, message_id: Any) -> Any:
    """Java's id for one of either client."""
    if isinstance(message_id, JavaMessageId):
        return message_id.native
    return bridge.call(bridge.api.MessageId.fromByteArray, message_id.serialize())


class JavaMessage:
    """`native` is Java's."""

    def __init__(self, native: Any) -> None:
        self.native = native

    def data(self) -> bytes:
        return bytes(self.native.getData())

    def has_null_value(self) -> bool:
        return self.native.getData() is None

    def properties(self) -> dict[str, str]:
        return {str(name): str(value) for name, value in self.native.getProperties().items()}

    def message_id(self) -> JavaMessageId:
        return JavaMessageId(self.native.getMessageId())

    def topic_name(self) -> str:
        return str(self.native.getTopicName())

    def producer_name(self) -> str:
        return str(self.native.getProducerName())

    def redelivery_count(self) -> int:
        return int(self.native.getRedeliveryCount())

    def publish_timestamp(self) -> int:
        return int(self.native.getPublishTime())

    def event_timestamp(self) -> int:
        return int(self.native.getEventTime())

    def partition_key(self) -> str:
        """'' for none, as in Python."""
        return str(self.native.getKey()) if self.native.hasKey() else ""

    def ordering_key(self) -> str:
        return bytes(self.native.getOrderingKey()).decode() if self.native.hasOrderingKey() else ""


SendCallback = Callable[[Any, "JavaMessageId | None"], None]


class JavaProducer(Handle):
    def __init__(self, bridge: Bridge, native: Any) -> None:
        super().__init__(bridge, native)
        self._under_way: list[tuple[Any, SendCallback | None]] = []

    def producer_name(self) -> str:
        return str(self.native.getProducerName())

    def last_sequence_id(self) -> int:
        return int(self.native.getLastSequenceId())

    def send(self, content: bytes | None, txn: JavaTransaction | None = None, **options: Any) -> JavaMessageId:
        return JavaMessageId(self._bridge.call(self._message(content, txn, options).send))

    def send_async(
        self,
        content: bytes | None,
        callback: SendCallback | None,
        txn: JavaTransaction | None = None,
        **options: Any,
    ) -> None:
        """The callback is called by `flush`, with the result and the id: no Java thread calls into Python."""
        self._under_way.append((self._message(content, txn, options).sendAsync(), callback))

    def flush(self) -> None:
        self._bridge.call(self.native.flush)
        under_way, self._under_way = self._under_way, []
        for future, callback in under_way:
            result, sent = self._bridge.settled(future)
            if callback is not None:
                callback(result, None if sent is None else JavaMessageId(sent))

    def _message(self, content: bytes | None, txn: JavaTransaction | None, options: dict[str, Any]) -> Any:
        given = Options("send", options)
        make = self.native.newMessage
        message = make() if txn is None else self._bridge.call(make, txn.native)
        message.value(content).properties(given.take("properties") or {})
        key, ordering_key = given.take("partition_key"), given.take("ordering_key")
        event_time, sequence_id = given.take("event_timestamp"), given.take("sequence_id")
        deliver_after = given.take("deliver_after")
        given.done()
        if key is not None:
            message.key(key)
        if ordering_key is not None:
            message.orderingKey(ordering_key.encode())
        if event_time is not None:
            message.eventTime(event_time)
        if sequence_id is not None:
            message.sequenceId(sequence_id)
        if deliver_after is not None:
            message.deliverAfter(int(deliver_after.total_seconds() * 1000), self._bridge.ms)
        return message


class _Receiver(Handle):
    def _received(self, receive: Callable[..., Any], timeout_millis: int) -> JavaMessage:
        """Raises the official Timeout. There is no waiting without an end here."""
        found = self._bridge.call(receive, timeout_millis, self._bridge.ms)
        if found is None:
            raise self._bridge.timeout()
        return JavaMessage(found)

    def seek(self, where: Any) -> None:
        """`where` is an id or a time in ms."""
        self._bridge.call(self.native.seek, where if isinstance(where, int) else native_id(self._bridge, where))


class JavaConsumer(_Receiver):
    def subscription_name(self) -> str:
        return str(self.native.getSubscription())

    def consumer_name(self) -> str:
        return str(self.native.getConsumerName())

    def receive(self, timeout_millis: int) -> JavaMessage:
        return self._received(self.native.receive, timeout_millis)

    def acknowledge(self, message: JavaMessage | JavaMessageId, txn: JavaTransaction | None = None) -> None:
        self._acknowledge(self.native.acknowledge, self.native.acknowledgeAsync, message, txn)

    def acknowledge_cumulative(self, message: JavaMessage | JavaMessageId, txn: JavaTransaction | None = None) -> None:
        self._acknowledge(self.native.acknowledgeCumulative, self.native.acknowledgeCumulativeAsync, message, txn)

    def _acknowledge(
        self,
        plain: Callable[..., Any],
        transactional: Callable[..., Any],
        message: JavaMessage | JavaMessageId,
        txn: JavaTransaction | None,
    ) -> None:
        if txn is None:
            self._bridge.call(plain, message.native)
        else:
            which = message.native if isinstance(message, JavaMessageId) else message.native.getMessageId()
            self._bridge.call(lambda: transactional(which, txn.native).get())

    def negative_acknowledge(self, message: JavaMessage | JavaMessageId) -> None:
        self._bridge.call(self.native.negativeAcknowledge, message.native)

    def reconsume_later(self, message: JavaMessage, delay_ms: int, properties: dict[str, str] | None = None) -> None:
        if properties is None:
            self._bridge.call(self.native.reconsumeLater, message.native, delay_ms, self._bridge.ms)
        else:
            self._bridge.call(self.native.reconsumeLater, message.native, properties, delay_ms, self._bridge.ms)

    def redeliver_unacknowledged_messages(self) -> None:
        self._bridge.call(self.native.redeliverUnacknowledgedMessages)

    def get_last_message_id(self) -> JavaMessageId:
        return JavaMessageId(self._bridge.call(self.native.getLastMessageId))

    def unsubscribe(self) -> None:
        self._bridge.call(self.native.unsubscribe)


class JavaReader(_Receiver):
    def read_next(self, timeout_millis: int) -> JavaMessage:
        return self._received(self.native.readNext, timeout_millis)

    def has_message_available(self) -> bool:
        return bool(self._bridge.call(self.native.hasMessageAvailable))


_TYPES: Final = {"Exclusive": "Exclusive", "Shared": "Shared", "Failover": "Failover", "KeyShared": "Key_Shared"}


class JavaClient:
    """`url` is pulsar://host:port."""

    def __init__(self, bridge: Bridge, url: str, **options: Any) -> None:
        self._bridge = bridge
        given = Options("Client", options)
        given.take("logger")  # a JVM of many clients logs nowhere
        seconds = bridge.jvm.java.util.concurrent.TimeUnit.SECONDS
        builder = bridge.api.PulsarClient.builder().serviceUrl(url)
        builder.operationTimeout(given.take("operation_timeout_seconds", 30), seconds)
        builder.enableTransaction(given.take("enable_transaction", False))
        given.done()
        self.native = bridge.call(builder.build)

    def create_producer(self, topic: str, **options: Any) -> JavaProducer:
        given = Options("create_producer", options)
        builder = self.native.newProducer().topic(topic)
        builder.enableBatching(given.take("batching_enabled", False))
        builder.batchingMaxPublishDelay(given.take("batching_max_publish_delay_ms", 10), self._bridge.ms)
        builder.batchingMaxMessages(given.take("batching_max_messages", 1000))
        builder.enableChunking(given.take("chunking_enabled", False))
        builder.sendTimeout(given.take("send_timeout_millis", 30_000), self._bridge.ms)
        builder.accessMode(self._enum("ProducerAccessMode", given.take("access_mode"), "Shared"))
        builder.properties(given.take("properties") or {})
        name, first = given.take("producer_name"), given.take("initial_sequence_id")
        given.done()
        if name is not None:
            builder.producerName(name)
        if first is not None:
            builder.initialSequenceId(first)
        return JavaProducer(self._bridge, self._bridge.call(builder.create))

    def subscribe(
        self, topic: str | Sequence[str] | re.Pattern[str], subscription_name: str, **options: Any
    ) -> JavaConsumer:
        given = Options("subscribe", options)
        builder = self.native.newConsumer().subscriptionName(subscription_name)
        if isinstance(topic, re.Pattern):
            builder.topicsPattern(topic.pattern)
        else:
            builder.topic(self._bridge.texts(*([topic] if isinstance(topic, str) else topic)))
        kind = getattr(given.take("consumer_type"), "name", "Exclusive")
        builder.subscriptionType(self._bridge.api.SubscriptionType.valueOf(_TYPES[kind]))
        position = self._enum("SubscriptionInitialPosition", given.take("initial_position"), "Latest")
        builder.subscriptionInitialPosition(position)
        builder.receiverQueueSize(given.take("receiver_queue_size", 1000))
        builder.negativeAckRedeliveryDelay(given.take("negative_ack_redelivery_delay_ms", 60_000), self._bridge.ms)
        builder.ackTimeout(given.take("unacked_messages_timeout_ms", 0) or 0, self._bridge.ms)
        builder.enableRetry(given.take("retry_enable", False))
        builder.properties(given.take("properties") or {})
        builder.readCompacted(given.take("is_read_compacted", False))
        builder.enableBatchIndexAcknowledgment(given.take("batch_index_ack_enabled", False))
        builder.priorityLevel(given.take("priority_level", 0))
        name, letters = given.take("consumer_name"), given.take("dead_letter_policy")
        keys, inclusive = given.take("key_shared_policy"), given.take("start_message_id_inclusive", False)
        discovery_s = given.take("pattern_auto_discovery_period", 60)
        builder.patternAutoDiscoveryPeriod(discovery_s, self._bridge.jvm.java.util.concurrent.TimeUnit.SECONDS)
        given.done()
        if inclusive:
            builder.startMessageIdInclusive()
        if name is not None:
            builder.consumerName(name)
        if letters is not None:
            builder.deadLetterPolicy(self._dead_letter_policy(letters))
        if keys is not None:
            builder.keySharedPolicy(self._key_shared_policy(keys))
        return JavaConsumer(self._bridge, self._bridge.call(builder.subscribe))

    def create_reader(self, topic: str, start_message_id: Any, **options: Any) -> JavaReader:
        given = Options("create_reader", options)
        builder = self.native.newReader().topic(topic).startMessageId(native_id(self._bridge, start_message_id))
        builder.readCompacted(given.take("is_read_compacted", False))
        builder.receiverQueueSize(given.take("receiver_queue_size", 1000))
        inclusive = given.take("start_message_id_inclusive", False)
        given.done()
        if inclusive:
            builder.startMessageIdInclusive()
        return JavaReader(self._bridge, self._bridge.call(builder.create))

    def new_transaction(self, timeout_ms: int = 60_000) -> JavaTransaction:
        """Begin a transaction, of a client made with `enable_transaction=True`."""

        def begun() -> Any:
            return self.native.newTransaction().withTransactionTimeout(timeout_ms, self._bridge.ms).build().get()

        return JavaTransaction(self._bridge, self._bridge.call(begun))

    def close(self) -> None:
        self._bridge.call(self.native.close)

    def _enum(self, name: str, value: Any, default: str) -> Any:
        return getattr(self._bridge.api, name).valueOf(getattr(value, "name", default))

    def _dead_letter_policy(self, policy: Any) -> Any:
        builder = self._bridge.api.DeadLetterPolicy.builder().maxRedeliverCount(policy.max_redeliver_count)
        if policy.dead_letter_topic:
            builder.deadLetterTopic(policy.dead_letter_topic)
        if policy.initial_subscription_name:
            builder.initialSubscriptionName(policy.initial_subscription_name)
        return builder.build()

    def _key_shared_policy(self, policy: Any) -> Any:
        java = self._bridge.api.KeySharedPolicy
        if policy.key_shared_mode.name == "Sticky":
            ranges = [self._bridge.api.Range.of(start, end) for start, end in policy.sticky_ranges or ()]
            made = self._bridge.call(java.stickyHashRange().ranges, ranges)
        else:
            made = java.autoSplitHashRange()
        made.setAllowOutOfOrderDelivery(policy.allow_out_of_order_delivery)
        return made


class JavaSdk:
    """The Java client drives a scenario through this `run.sdk`: enumerations, policies and exceptions are the official
    Python module's; what makes clients is Java's."""

    def __init__(self, address: JavaAddress) -> None:
        self._official: Any = importlib.import_module("pulsar")
        self._bridge = Bridge(address, self._official)

    def Client(self, url: str, **options: Any) -> JavaClient:  # noqa: N802 - the official name
        return JavaClient(self._bridge, url, **options)

    def end_jvm(self) -> None:
        """As `Bridge.end_jvm`."""
        self._bridge.end_jvm()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._official, name)
