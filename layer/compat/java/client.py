"""Java's client, producers and consumers with the calls of the official Python client's.

An option that is not known here is a TypeError. Transactions, which Python's client lacks, begin with
`Client.new_transaction`.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Sequence
from typing import Any, Final

from pulsar_on_kafka.compat.java.bridge import Bridge, Options
from pulsar_on_kafka.compat.java.consumer import JavaConsumer, JavaReader
from pulsar_on_kafka.compat.java.messages import native_id
from pulsar_on_kafka.compat.java.producer import JavaProducer
from pulsar_on_kafka.compat.java.runtime import JavaAddress
from pulsar_on_kafka.compat.java.transaction import JavaTransaction

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

    def __getattr__(self, name: str) -> Any:
        return getattr(self._official, name)
