"""`Producer`: sends messages to a topic."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any, Final, Protocol

from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.base.meters import SendCounts
from pulsar_on_kafka.client.values.stats_log import StatsLine
from pulsar_on_kafka.client.values.transaction import Transaction
from pulsar_on_kafka.mapping.ids.native_message_id import NativeMessageId
from pulsar_on_kafka.sending.in_flight import SendCallback, SendResult
from pulsar_on_kafka.sending.official_errors import pulsar_errors
from pulsar_on_kafka.sending.outgoing_schema import RecordKey


class Sends(Protocol):
    """What a producer stands for: the `Sender` on its cluster, or one that goes from cluster to cluster."""

    @property
    def name(self) -> str: ...
    @property
    def send(self) -> Callable[..., None]: ...
    def topic(self) -> str: ...
    def last_sequence_id(self) -> int: ...
    def send_counts(self) -> SendCounts: ...
    def is_connected(self) -> bool: ...
    def wait_for_all(self, deadline: Deadline) -> int: ...
    def flush(self) -> None: ...
    def close(self, told: Callable[[], None]) -> None: ...


class Producer:
    """A producer publishes to one topic. Thread-safe. Source: `pulsar.Producer`.

    Memory: at most `max_pending_messages` unanswered messages; beyond that `send_async` waits
    (`block_if_queue_full`) or answers `ProducerQueueIsFull`.
    """

    def __init__(self, sender: Sends, on_close: Callable[[Producer], None]) -> None:
        self.sender = sender
        self._on_close = on_close
        if type(self).send_async is _SEND_ASYNC:  # nobody has put a method of his own there
            # The way of messages was chosen when this was opened: by the method below each would cost one more call.
            self.send_async = sender.send  # type: ignore[method-assign]

    def topic(self) -> str:
        return self.sender.topic()

    def producer_name(self) -> str:
        return self.sender.name

    def last_sequence_id(self) -> int:
        """Sequence id of the message that was stored last; -1 (or the initial one) before the first. Each partition
        counts for itself: of several the highest. Source: PartitionedProducerImpl of the official client."""
        return self.sender.last_sequence_id()

    def send_counts(self) -> SendCounts:
        return self.sender.send_counts()

    def stats_line(self) -> StatsLine:
        counts = self.send_counts()
        return StatsLine(
            f"producer={self.producer_name()} topic={self.topic()}",
            {"sent": counts.sent, "failed": counts.failed},
            {"pending": counts.pending},
        )

    def is_connected(self) -> bool:
        return self.sender.is_connected()

    def send(
        self,
        content: Any,
        properties: dict[str, str] | None = None,
        partition_key: str | RecordKey | None = None,
        ordering_key: str | None = None,
        sequence_id: int | None = None,
        replication_clusters: Sequence[str] | None = None,
        disable_replication: bool = False,
        event_timestamp: int | None = None,
        deliver_at: int | None = None,
        deliver_after: timedelta | None = None,
        *,
        txn: Transaction | None = None,
    ) -> NativeMessageId:
        """Send one message and wait until every in-sync replica has it.

        In a transaction (`txn`) nobody sees it before the commit; it goes in a record of its own. The first message of
        a transaction to a partition waits until the coordinator knows of it.

        With `deliver_at` (Unix time in ms) or `deliver_after`, which wins, Shared and Key_Shared subscriptions deliver
        it then: never earlier, and within 0.1 s when a consumer takes it (Pulsar: within 1 s, perhaps earlier).
        Exclusive and Failover subscriptions and readers deliver it at once, as in Pulsar. 0 and times that have passed
        are at once everywhere.

        Raises:
            MessageTooBig, ProducerQueueIsFull, Timeout, AlreadyClosed: as the official client.
            InvalidTxnStatusError: the transaction is not open.
        """
        answer = SendResult()
        self.send_async(
            content, answer, properties, partition_key, ordering_key, sequence_id, replication_clusters,
            disable_replication, event_timestamp, deliver_at, deliver_after, txn=txn,
        )  # fmt: skip
        with pulsar_errors():
            return answer.answer()

    def send_async(
        self,
        content: Any,
        callback: SendCallback | None,
        properties: dict[str, str] | None = None,
        partition_key: str | RecordKey | None = None,
        ordering_key: str | None = None,
        sequence_id: int | None = None,
        replication_clusters: Sequence[str] | None = None,
        disable_replication: bool = False,
        event_timestamp: int | None = None,
        deliver_at: int | None = None,
        deliver_after: timedelta | None = None,
        *,
        txn: Transaction | None = None,
    ) -> None:
        """Send one message; `callback(result, message_id)` is called from another thread or from a later send.

        A refusal (closed, too big, queue full) goes to the callback as well, as officially. What a callback raises is
        logged. A synchronous send waits for its batch like any other message, as officially.
        """
        self.sender.send(
            content, callback, properties, partition_key, ordering_key, sequence_id, replication_clusters,
            disable_replication, event_timestamp, deliver_at, deliver_after, txn,
        )  # fmt: skip

    def flush(self) -> None:
        """Return when everything sent before this call was answered (stored or failed).

        Raises:
            AlreadyClosed: it was closed.
            ProducerFenced: another exclusive producer has the topic now; some of it may be void.
        """
        self.sender.flush()

    def close(self) -> None:
        """Wait for what is under way, then refuse further calls.

        Raises:
            AlreadyClosed: it was closed before.
            Timeout: messages are still unanswered after 30 s.
        """
        self.sender.close(lambda: self._on_close(self))


_SEND_ASYNC: Final = Producer.send_async
