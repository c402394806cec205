"""`Consumer`: receives and acknowledges the messages of one subscription."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Annotated, Any, Final, Generic, cast

from pulsar_on_kafka.base import errors
from pulsar_on_kafka.base.commands import outcome
from pulsar_on_kafka.base.deadline import Deadline, wait_until
from pulsar_on_kafka.broker.metadata.policies import MAX_NUMBER
from pulsar_on_kafka.broker.metadata.subscriptions.subscription import Subscription
from pulsar_on_kafka.broker.node.node import Node
from pulsar_on_kafka.broker.publishing.arguments import check_texts, check_type, check_type_or_none, of_type
from pulsar_on_kafka.broker.publishing.official_errors import pulsar_errors
from pulsar_on_kafka.broker.publishing.transactional_sends import Transaction
from pulsar_on_kafka.broker.subscriptions.member.member import SubscriptionMember
from pulsar_on_kafka.broker.subscriptions.records.consumer_inbox import Endpoint, PartitionAcks
from pulsar_on_kafka.client.connection.session import Session
from pulsar_on_kafka.client.consumer.dead_letters import DeadLetterWriter
from pulsar_on_kafka.client.consumer.draining import drain, drain_deadline
from pulsar_on_kafka.client.consumer.message_positions import Places
from pulsar_on_kafka.client.consumer.transactional_acks import AckUnderWay, begin_acknowledging, cumulative, individual
from pulsar_on_kafka.client.receiving.batch_receive import ConsumerBatchReceivePolicy, Inbox
from pulsar_on_kafka.client.receiving.receiving import Receiving
from pulsar_on_kafka.client.receiving.start_position import TopicPositions
from pulsar_on_kafka.client.values.dead_letter_policy import ConsumerDeadLetterPolicy, RedeliveryBackoff
from pulsar_on_kafka.client.values.encryption import consumer_encryption
from pulsar_on_kafka.client.values.enums import (
    ConsumerCryptoFailureAction,
    ConsumerType,
    InitialPosition,
    RegexSubscriptionMode,
    SubscriptionMode,
)
from pulsar_on_kafka.client.values.key_shared import ConsumerKeySharedPolicy
from pulsar_on_kafka.client.values.message import BatchedMessage, Message, ReceivedMessage
from pulsar_on_kafka.client.values.message_id import MessageId, ReceivedId, native
from pulsar_on_kafka.client.values.option_tables import BYTES, ELSEWHERE, OptionRange, check_table
from pulsar_on_kafka.client.values.stats_log import StatsLine
from pulsar_on_kafka.crypto.keys import CryptoKeyReader
from pulsar_on_kafka.exceptions import (
    BrokerMetadataError,
    CumulativeAcknowledgementNotAllowedError,
    InvalidConfiguration,
    NotConnected,
    OperationNotSupported,
    UnknownError,
)
from pulsar_on_kafka.schema.plain import Schema
from pulsar_on_kafka.schema.value_type import V
from pulsar_on_kafka_mapping.ids.ledger_ids import LedgerLayout
from pulsar_on_kafka_mapping.ids.native_message_id import (
    BatchedMessageId,
    NativeMessageId,
    PartitionOrigin,
    StoredMessageId,
)
from pulsar_on_kafka_mapping.names.subscription_group import check_subscription_name
from pulsar_on_kafka_mapping.state.transactions.pending_acks import TxnAck

_log = logging.getLogger(__name__)


MessageListener = Callable[["Consumer[V]", Message[V]], None]


MIN_ACK_TIMEOUT_MS: Final = 10_000
"""The official client's minimum."""


@dataclass(frozen=True, slots=True)
class ConsumerOptions(Generic[V]):
    """The official options of `subscribe`, and ours, which are given by keyword only.

    One class, since pyright does not infer `V` from inherited fields.
    """

    topic: str | list[str] | re.Pattern[str]
    subscription_name: str
    consumer_type: ConsumerType = ConsumerType.Exclusive
    schema: Schema[V] = BYTES
    message_listener: MessageListener[V] | None = None
    receiver_queue_size: Annotated[int, OptionRange(0)] = 1000
    max_total_receiver_queue_size_across_partitions: Annotated[int, OptionRange(0)] = 50000
    consumer_name: str | None = None
    unacked_messages_timeout_ms: int | None = None
    broker_consumer_stats_cache_time_ms: int = 30000
    negative_ack_redelivery_delay_ms: Annotated[int, OptionRange(0)] = 60000
    is_read_compacted: bool = False
    properties: dict[str, str] | None = None
    pattern_auto_discovery_period: int = 60
    initial_position: InitialPosition = InitialPosition.Latest
    crypto_key_reader: Annotated[CryptoKeyReader | None, ELSEWHERE] = field(default=None, repr=False)
    replicate_subscription_state_enabled: Annotated[bool, ELSEWHERE] = False
    max_pending_chunked_message: int = 10
    auto_ack_oldest_chunked_message_on_queue_full: bool = False
    start_message_id_inclusive: bool = False
    batch_receive_policy: ConsumerBatchReceivePolicy | None = None
    key_shared_policy: ConsumerKeySharedPolicy | None = None
    batch_index_ack_enabled: bool = False
    regex_subscription_mode: RegexSubscriptionMode = RegexSubscriptionMode.PersistentOnly
    dead_letter_policy: ConsumerDeadLetterPolicy | None = None
    crypto_failure_action: ConsumerCryptoFailureAction = ConsumerCryptoFailureAction.FAIL
    negative_ack_redelivery_backoff: RedeliveryBackoff | None = field(default=None, kw_only=True)
    priority_level: Annotated[int, OptionRange(0)] = field(default=0, kw_only=True)
    retry_enable: bool = field(default=False, kw_only=True)
    retry_letter_backoff: RedeliveryBackoff | None = field(default=None, kw_only=True)
    expire_time_of_incomplete_chunked_message_ms: Annotated[int, OptionRange(1)] = field(default=60_000, kw_only=True)
    subscription_mode: SubscriptionMode = field(default=SubscriptionMode.Durable, kw_only=True)
    max_unacked_messages_on_consumer: Annotated[int | None, OptionRange(0, MAX_NUMBER)] = field(
        default=None, kw_only=True
    )
    ordered_redelivery: bool | None = field(default=None, kw_only=True)

    def check(self) -> None:
        """Raises ValueError, TypeError or InvalidConfiguration, naming the value and what was expected."""
        check_table(self)
        of_type(bool, "replicate_subscription_state_enabled", self.replicate_subscription_state_enabled)
        consumer_encryption(self.crypto_key_reader, self.crypto_failure_action)
        if self.max_pending_chunked_message < 0:  # TypeError, as officially
            raise TypeError(f"max_pending_chunked_message must be 0 or more, got {self.max_pending_chunked_message}")
        timeout_ms = self.unacked_messages_timeout_ms
        if timeout_ms and timeout_ms < MIN_ACK_TIMEOUT_MS:
            raise ValueError(f"unacked_messages_timeout_ms must be at least {MIN_ACK_TIMEOUT_MS}, got {timeout_ms}")
        kind = self.consumer_type
        if self.is_read_compacted and kind not in (ConsumerType.Exclusive, ConsumerType.Failover):
            raise InvalidConfiguration(f"is_read_compacted is for Exclusive and Failover, not {kind.name}")
        if self.retry_letter_backoff is not None and not self.retry_enable:
            raise InvalidConfiguration("retry_letter_backoff is for retry letters: set retry_enable=True")
        if self.max_unacked_messages_on_consumer is not None and kind not in (
            ConsumerType.Shared,
            ConsumerType.KeyShared,
        ):
            raise InvalidConfiguration(f"max_unacked_messages_on_consumer is for Shared and KeyShared, not {kind.name}")
        if self.subscription_mode is SubscriptionMode.NonDurable and self.replicate_subscription_state_enabled:
            raise InvalidConfiguration("replicate_subscription_state_enabled: a NonDurable subscription has no state")
        if self.ordered_redelivery is not None:
            self._check_ordered(kind, ordered=self.ordered_redelivery)
        check_texts("properties", self.properties)
        with pulsar_errors():
            check_subscription_name(self.subscription_name)
            if self.dead_letter_policy is not None:
                self.dead_letter_policy.check_names()

    def _check_ordered(self, kind: ConsumerType, *, ordered: bool) -> None:
        if kind is ConsumerType.Shared:
            raise InvalidConfiguration("ordered_redelivery is for Key_Shared, Exclusive and Failover, not Shared")
        policy = self.key_shared_policy
        if ordered and policy is not None and policy.allow_out_of_order_delivery:
            raise InvalidConfiguration("ordered_redelivery: the key_shared_policy has allow_out_of_order_delivery=True")

    def check_cumulative(self) -> None:
        """Raises CumulativeAcknowledgementNotAllowedError on a Shared or Key_Shared subscription."""
        if self.consumer_type in (ConsumerType.Shared, ConsumerType.KeyShared):
            raise CumulativeAcknowledgementNotAllowedError(
                f"subscription {self.subscription_name} is {self.consumer_type.name}: acknowledge messages one by one"
            )


class Consumer(Receiving["Consumer[Any]", V]):
    """A consumer of one subscription. Thread-safe. Source: `pulsar.Consumer`.

    Memory: an inbox of `receiver_queue_size` messages, besides what its subscription's member holds.
    """

    _close_called = False
    _saved_at_close = False
    """A drain has saved everything: `flush` has nothing to wait for, also when the consumer has left."""

    def __init__(
        self,
        node: Node,
        session: Session,
        subscription: Subscription,
        member: SubscriptionMember,
        endpoint: Endpoint,
        options: ConsumerOptions,
        dead_letters: DeadLetterWriter | None,
    ) -> None:
        self._node = node
        self._subscription = subscription
        self._member = member
        super().__init__(
            cast("Inbox", endpoint),  # it makes Messages
            session,
            subscription.name,
            options.batch_receive_policy,
            options.message_listener,
        )
        self._endpoint = endpoint
        self._places = Places(node, subscription, member, session.operation_timeout_s)
        self._open_inbox: Endpoint | None = endpoint  # None once closed, so that the fast paths need no other check
        self._options = options
        self._nack_delay_s = options.negative_ack_redelivery_delay_ms / 1000
        self._transient = not subscription.topic.name.is_persistent
        self._dead_letters = dead_letters
        self._on_close = session.consumer_closed
        self._losses_seen = member.losses()
        self._begin_to_listen()

    @property
    def endpoint(self) -> Endpoint:
        """The inbox of its messages. Not in the official client, for consumers of several topics."""
        return self._endpoint

    def endpoints(self) -> list[Endpoint]:
        """The inboxes of messages, one for each topic. Not in the official client, for clients that follow a map of
        tenants."""
        return [self._endpoint]

    def layouts(self) -> list[LedgerLayout]:
        """The layouts of its messages' ids. Not in the official client, for clients that follow a map of tenants."""
        return [self._member.slot(self._subscription.partition or 0).layout]

    def stats_lines(self) -> list[StatsLine]:
        """The line of this consumer in the log of statistics. Not in the official client."""
        inbox, subscription = self._endpoint, self._subscription
        who = f"consumer={inbox.name} subscription={subscription.name} topic={subscription.place}"
        now = {"inbox": len(inbox.queue), "unacknowledged": inbox.unacked}
        return [StatsLine(who, {"received": inbox.delivered}, now)]

    # Acknowledging ------------------------------------------------------------------------------------------------

    def acknowledge(
        self, message: Message | NativeMessageId | Any, *, txn: Transaction | None = None, wait: bool = False
    ) -> None:
        """Acknowledges one message. It is durable within `ack_persist_interval_ms`; with `wait` when this returns.

        With `txn` the transaction holds it, durably, when this returns: no other consumer gets it, it is acknowledged
        when the transaction is committed, and redelivered when that is aborted. Not in the official client, after
        Java's `acknowledgeAsync`.

        Raises:
            AlreadyClosed: the consumer was closed.
            TypeError: neither a message nor an id.
            InvalidMessage: an id of another topic.
            TransactionConflict, InvalidTxnStatusError, NotConnected, Timeout and others: with `txn`, see
                `transactional_acks.begin_acknowledging`.
        """
        if txn is not None:
            self.begin_acknowledging(message, txn).wait()
            return
        if type(message) is ReceivedMessage and message.feed.endpoint is self._open_inbox:
            message.feed.slot.ack(message.offset)
        elif type(message) is BatchedMessage and message.feed.endpoint is self._open_inbox:
            message.feed.slot.ack_in_batch((message.offset, message.batch_index, message.entry.size))
        else:
            slot, offset = self._locate(message)
            place = self._places.in_batch(message, slot, offset)
            if place is None:
                slot.ack(offset)
                if (first := self._places.first_chunk(message, slot)) is not None:
                    slot.ack(first)
            else:
                slot.ack_in_batch((offset, *place))
        if wait:
            self.flush()

    def acknowledge_cumulative(
        self, message: Message | NativeMessageId | Any, *, txn: Transaction | None = None, wait: bool = False
    ) -> None:
        """Acknowledge this message and every one before it in its partition; in a transaction with `txn`, as
        `acknowledge` does.

        Raises:
            CumulativeAcknowledgementNotAllowedError: on a Shared or Key_Shared subscription.
        """
        if txn is not None:
            self.begin_acknowledging_cumulative(message, txn).wait()
            return
        slot, offset = self._located_for_cumulative(message)
        place = self._places.in_batch(message, slot, offset)
        if place is None:
            slot.ack_upto(offset)
        else:
            slot.ack_upto_in_batch((offset, *place))
        if wait:
            self.flush()

    def begin_acknowledging(self, message: Message | NativeMessageId | Any, txn: Transaction) -> AckUnderWay:
        """`acknowledge` in a transaction, up to where its answer has to be waited for. Ours, for asyncio."""
        slot, offset = self._locate(message)
        place = self._places.in_batch(message, slot, offset)
        first = None if isinstance(message, Message) else self._places.first_chunk(message, slot)
        return self._begin_acknowledging(txn, slot, individual(offset, place, first))

    def begin_acknowledging_cumulative(self, message: Message | NativeMessageId | Any, txn: Transaction) -> AckUnderWay:
        """The same of `acknowledge_cumulative`."""
        slot, offset = self._located_for_cumulative(message)
        return self._begin_acknowledging(txn, slot, cumulative(offset, self._places.in_batch(message, slot, offset)))

    def _located_for_cumulative(self, message: Message | NativeMessageId | Any) -> tuple[PartitionAcks, int]:
        located = self._locate(message)
        self._options.check_cumulative()
        return located

    def _begin_acknowledging(self, txn: Transaction, slot: PartitionAcks, ack: TxnAck) -> AckUnderWay:
        if self._transient:
            raise OperationNotSupported(
                f"{self._subscription.topic.name} is not persistent: no transaction can be there"
            )
        return begin_acknowledging(
            txn, self._member, self._subscription, slot.number, ack, self._deadline(), self._node.cluster_id
        )

    def negative_acknowledge(
        self, message: Message | NativeMessageId | MessageId, *, reason: str | None = None
    ) -> None:
        """Requests redelivery of this message after the negative-ack delay.

        On Exclusive and Failover all unacknowledged messages are redelivered then, as with the official client. On a
        closed consumer this does nothing: its unacknowledged messages are redelivered anyway.

        `reason` becomes the property REFUSAL_REASON of the dead letter, should the message become one; the last reason
        counts. Its first 500 bytes of UTF-8 are kept, for the last 10,000 such messages of a partition
        (docs/delivery-counts.md). Not in the official client.

        Raises:
            ValueError: `reason` is no str.
        """
        check_type_or_none(str, "reason", reason)
        if native(message) is not None and not isinstance(message, NativeMessageId):
            raise TypeError("negative_acknowledge takes a message or the id that message.message_id() gave")
        if self._closed or self._transient:
            return
        slot, offset = self._locate(message)
        delay_s, backoff = self._nack_delay_s, self._options.negative_ack_redelivery_backoff
        if backoff is not None:
            delay_s = backoff.next(message.redelivery_count() if isinstance(message, Message) else 0) / 1000
        place = self._places.in_batch(message, slot, offset) if self._member.type.is_shared else None
        if reason and self._member.type.is_shared:  # elsewhere there are no dead letters
            slot.reasons.put(offset, -1 if place is None else place[0], reason)
        self._member.negative_acknowledge(slot, offset, self._endpoint, delay_s, place)

    def reconsume_later(
        self,
        message: Message,
        delay_ms: int | None = None,
        properties: dict[str, str] | None = None,
        *,
        reason: str | None = None,
    ) -> None:
        """Sends a copy of this message that is delivered after `delay_ms` (0 to ten years), and acknowledges the
        message. Without `delay_ms` the `retry_letter_backoff` of `subscribe` decides: its `next` gets the number of
        earlier retries, which the copies carry from process to process.

        The copy's property REFUSAL_REASON is the `reason`, up to 500 bytes of UTF-8.

        For consumers made with `retry_enable`. Returns when the copy is durable and the message acknowledged; a crash
        between the two leaves both. `properties` are added to the copy's (see `client.consumer.dead_letters`). Not in
        the official client; source: Java's `Consumer.reconsumeLater`.

        Differs from Pulsar: the message is not redelivered by itself when this fails.

        Raises:
            InvalidConfiguration: the consumer was made without `retry_enable`, the delay is out of range, or there is
                neither a delay nor a backoff.
            TypeError: not a message.
            OperationNotSupported: a message of another topic.
            InvalidMessage: its property RECONSUMETIMES is no number.
            Timeout, AlreadyClosed and others: see `Producer.send`; the message stays unacknowledged.
        """
        self._check_open()
        raise InvalidConfiguration(
            f"reconsume_later method not supported: the consumer of {self.topic()} was made without retry_enable=True"
        )

    def redeliver_unacknowledged_messages(self) -> None:
        """Requests redelivery of all unacknowledged messages of this consumer, now. Does nothing on a closed one."""
        if not self._closed and not self._transient:
            self._member.redeliver_unacknowledged(self._endpoint)

    def flush(self, timeout_millis: int | None = None) -> None:
        """Return when everything acknowledged so far is durable. Ours beyond the official client.

        Raises:
            Timeout: not in time (default: the client's operation timeout).
            NotConnected: the partition was lost to another process meanwhile.
        """
        if self._closed and self._saved_at_close:
            return
        self._check_open()
        deadline = self._deadline() if timeout_millis is None else Deadline.after_ms(timeout_millis)
        with pulsar_errors():
            try:
                losses = self._member.save(deadline)
            except errors.Closed:
                if self._saved_at_close:
                    return
                raise
        if losses > self._losses_seen:
            self._losses_seen = losses
            raise NotConnected(
                f"subscription {self.subscription_name()}: a partition went to another process before everything "
                "acknowledged on it was saved; those messages will be delivered again"
            )

    def _locate(self, message: object) -> tuple[PartitionAcks, int]:
        self._check_open()
        return self._places.locate(message)

    # Positions ----------------------------------------------------------------------------------------------------

    def seek(self, messageid: NativeMessageId | Any) -> None:
        """Set the subscription to a message id, or to the first message published at or after a time (`int`, Unix ms).

        Everything before counts as acknowledged, everything after as not. After a seek to an id the next message is
        the one behind it, unless the consumer was made with `start_message_id_inclusive`.

        All consumers of the subscription get what is there, also those of other processes, and nothing of what
        waited in their inboxes. On a non-persistent topic nothing happens, as officially.

        Raises:
            ValueError: neither an id nor an int.
            Timeout: another process owns a partition and did not answer; it may be moved or not.
        """
        self._check_open()
        if native(messageid) is None:
            check_type(int, "messageid", messageid)
        if self._transient:
            return
        deadline = self._deadline()
        with pulsar_errors():
            commands = self._places.seek_targets(
                messageid, deadline, inclusive=self._options.start_message_id_inclusive
            )
            self._member.wait_until_assigned(deadline)
            self._wait_for_new_partitions(commands, deadline)
            self._member.have_saved_elsewhere(deadline)
            self._node.memberships.live_cursors.change(self._subscription, commands, deadline)
            self._member.take_in(deadline)

    def _wait_for_new_partitions(self, partitions: Iterable[int], deadline: Deadline) -> None:
        """Waits for partitions that the topic got since this consumer was created: it takes some seconds until they
        have an owner."""
        new = {partition for partition in partitions if partition >= self._subscription.topic.partitions}
        if new:
            wait_until(lambda: self._closed or new.issubset(self._member.owned_partitions()), deadline)
            self._check_open()

    def get_last_message_id(self) -> ReceivedId:
        """Id of the last message of the topic that may be read; equal to `MessageId.earliest` where there is none.

        Markers and messages of open or aborted transactions are excluded (see `TopicPositions.last_message`).

        Raises:
            OperationNotSupported: on a partitioned topic, as officially.
            UnknownError: on a non-persistent topic, as officially.
            NotConnected: the consumer is closed, as officially (other calls raise AlreadyClosed).
        """
        if self._closed:
            raise NotConnected("get_last_message_id: the consumer is closed")
        topic, only = self._subscription.topic, self._subscription.partition
        if self._transient:
            raise UnknownError(f"get_last_message_id: {topic.name} is not persistent, so it has no last message")
        if topic.partitioned and only is None:
            raise OperationNotSupported(f"get_last_message_id: {topic.name} has {topic.partitions} partitions")
        partition = only or 0
        with pulsar_errors():
            last = TopicPositions(self._node, topic).last_message(partition, self._deadline())
        if last < 0:
            return cast("ReceivedId", NativeMessageId(-1, -1, -1, -1))
        origin = PartitionOrigin(topic.layout, topic.partition_field(partition), self.topic())
        size = self._places.messages_of(self._member.slot(partition), last)
        found = BatchedMessageId(origin, last, size - 1, 0) if size else StoredMessageId(origin, last)
        return cast("ReceivedId", found)

    # Itself -------------------------------------------------------------------------------------------------------

    def topic(self) -> str:
        """The topic's full name."""
        return self._subscription.place

    def is_connected(self) -> bool:
        """True until it is closed, or its subscription has failed for good; from the start, as officially."""
        return not self._closed and self._member.failure is None

    def unsubscribe(self) -> None:
        """Delete the subscription with everything acknowledged on it, and close this consumer.

        Raises:
            BrokerMetadataError: it has other consumers.
        """
        self._check_open()
        with pulsar_errors():
            try:
                self._node.memberships.unsubscribe(self._subscription, self._endpoint, self._deadline())
            except errors.SubscriptionBusy as busy:
                raise BrokerMetadataError(str(busy)) from busy
        self._mark_closed()
        self._end_dead_letters()

    def close(self, *, drain_timeout_ms: int | None = None) -> None:
        """Save what was acknowledged and leave; unacknowledged messages go to other consumers, or wait.

        With `drain_timeout_ms` (1 to a day; None and 0: no drain) the consumer first takes no more messages: receives
        raise AlreadyClosed, and messages that were not received go to other consumers at once. Then the call waits
        until the application has acknowledged or negatively acknowledged what it received, and its listener has
        returned. A listener that calls this settles its own message before. Not in the official client.

        After `unsubscribe` or the client's `close` it does nothing.

        Raises:
            ValueError: `close` was called before (as the official client does), or `drain_timeout_ms` is no int.
            InvalidConfiguration: `drain_timeout_ms` is out of range.
        """
        if self._close_called:
            raise ValueError(f"consumer {self.consumer_name()} is closed already")
        deadline = drain_deadline(drain_timeout_ms)
        self._close_called = True
        if deadline is not None:
            drain([self], deadline)
        self.leave()

    def begin_draining(self) -> None:
        """See `DrainingConsumer`; ours, for the client and for consumers of several topics."""
        if self._closed or self._draining:
            return
        self._draining = True
        self._member.begin_draining(self._endpoint)
        self._wake_waiting()

    def is_drained(self) -> bool:
        """See `DrainingConsumer`."""
        if self._closed:
            return True
        if not self._listener_is_done():
            return False
        deadline = self._deadline()
        try:
            if outcome(self._member.request_unsettled(self._endpoint), deadline, "the application's messages"):
                return False
            self._saved_at_close = self._member.save(deadline) == self._losses_seen
        except errors.DeadlineExceeded:
            return False
        except errors.LayerError:  # its membership is over, and other consumers get its messages
            return True
        return True

    def leave(self) -> None:
        """`close` on the client's behalf; a second call does nothing."""
        if self._closed:
            return
        self._mark_closed()
        self._end_dead_letters()
        with pulsar_errors():
            self._node.memberships.detach(self._subscription, self._endpoint, self._deadline())

    def _end_dead_letters(self) -> None:
        if self._dead_letters is not None:
            self._dead_letters.close()

    def stop_receiving(self) -> None:
        """Take no more messages: the client is closing all of its consumers. Ours, for the client."""
        self._inbox.close()

    def _mark_closed(self) -> None:
        self._closed = True
        self._open_inbox = None
        self._inbox.close()
        self._wake_waiting()
        self._on_close(self)
