"""Each message goes into one record, or into several when it is too big: the way of a producer without batching."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any, Final

from msgspec import structs

from pulsar_on_kafka.base.forks import OfOneProcess
from pulsar_on_kafka.broker.publishing.chunking import Chunking
from pulsar_on_kafka.broker.publishing.in_flight import SendCallback, SendsInFlight
from pulsar_on_kafka.broker.publishing.message_pipeline import Steps
from pulsar_on_kafka.broker.publishing.outgoing_message import UNCHOSEN, ReadyMessage, SendRequest
from pulsar_on_kafka.broker.publishing.outgoing_schema import RecordKey
from pulsar_on_kafka.broker.publishing.outlet import Outlet
from pulsar_on_kafka.broker.publishing.routing import Routing
from pulsar_on_kafka.broker.publishing.transactional_sends import Transaction
from pulsar_on_kafka.kafka.settings import MAX_MESSAGE_BYTES
from pulsar_on_kafka_mapping.records.message_record import Headers
from pulsar_on_kafka_mapping.records.record_headers import PRODUCER

_POLL_MASK: Final = 127


class SingleRecords(OfOneProcess):
    """The way of one producer's messages, each in records of its own. Thread-safe."""

    def __init__(
        self,
        outlet: Outlet[SendsInFlight],
        steps: Steps,
        routing: Routing,
        chunking: Chunking | None,
    ) -> None:
        self.plain = steps.plain
        self._outlet = outlet
        self._steps = steps
        self.wait_for_all = outlet.wait_for_all
        self._spread = routing.spread
        self._single = routing.single
        self._chunking = chunking
        self._whole_bytes = MAX_MESSAGE_BYTES if chunking is None else chunking.whole_bytes
        """A payload above it does not go into one record."""

    def send(  # noqa: C901 - the hot path: a call costs more than a branch
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
        txn: Transaction | None = None,
    ) -> None:
        """Send one message; arguments and answers as of `Producer.send_async`, which this is."""
        payload: bytes | None = None
        key: bytes | None = None
        if (
            properties is None
            and txn is None
            and ordering_key is None
            and sequence_id is None
            and event_timestamp is None
            and deliver_at is None
            and deliver_after is None
            and replication_clusters is None
            and not disable_replication
        ):
            plain = self.plain
            if type(content) is plain.taken:
                payload = content
            elif (encode := plain.encode) is not None and content is not None:
                payload = encode(content)
            if partition_key is not None:
                if type(partition_key) is str and partition_key:
                    key = partition_key.encode("utf-8")
                else:
                    payload = None  # it needs a closer look
        if payload is None or len(payload) > self._whole_bytes:
            request = SendRequest(
                content, callback, properties, partition_key, ordering_key, sequence_id, replication_clusters,
                disable_replication, event_timestamp, deliver_at, deliver_after, txn,
            )  # fmt: skip
            self._steps.take(request, self)
            return
        # Nearly every message takes this path. All of its work is in this function: each call or object would cost
        # more.
        outlet = self._outlet
        partition = self._single
        if key is not None or partition is None:
            partition = self._spread(key)
        try:
            ticket = outlet.take()
        except IndexError:
            waited = outlet.ticket(callback)
            if waited is None:
                return
            ticket = waited
        ticket.origin = origin = outlet.origins[partition]
        ticket.sequence = sequence = origin.next_sequence_id()
        ticket.callback = callback
        headers: Headers = [(PRODUCER, outlet.header % sequence)]
        if plain.marks:
            headers += plain.marks
        try:
            # topic, value, key, partition, callback, its alias, timestamp (0: now), headers; keywords cost more
            outlet.produce(outlet.kafka_topic, payload, key, partition, ticket.report, None, 0, headers)
        except Exception as refused:  # by librdkafka, or by a check before it: `after_refusal` distinguishes them
            again = outlet.after_refusal(refused, ticket)
            if again is None or not outlet.offer(again, payload, key, partition, headers):
                return
        kafka = outlet.kafka
        if sequence & _POLL_MASK == 0:  # each time would make the polling thread step back for longer than a send takes
            kafka.poll_inline()
        if kafka.asleep:
            kafka.wake()

    def put(self, message: ReadyMessage) -> None:
        """The same for a message that is more than plain bytes. Raises as `Way.put`."""
        outlet = self._outlet
        payload, key, partition, callback, stamp = (
            message.payload, message.key, message.partition, message.callback, message.stamp,
        )  # fmt: skip
        if partition == UNCHOSEN:
            partition = self._spread(None)
        if payload is not None and len(payload) > self._whole_bytes:
            if self._chunking is None:
                outlet.refuse_size(payload, callback)
            else:
                self._chunking.put(structs.replace(message, partition=partition))
            return
        described = message.metadata_headers()  # before a ticket is taken: it may refuse the message
        ticket = outlet.ticket(callback)
        if ticket is None:
            return
        ticket.origin = origin = outlet.origins[partition]
        given = message.sequence_id
        ticket.sequence = sequence = origin.next_sequence_id() if given is None else given
        ticket.callback = callback
        headers: Headers = [(PRODUCER, outlet.header % sequence), *described, *message.marks]
        if outlet.offer(ticket, payload, key, partition, headers, stamp):
            self._offered(sequence)

    def put_encoded(
        self,
        payload: bytes | None,
        key: bytes | None,
        partition: int,
        callback: SendCallback,
        sequence_id: int,
        described: Sequence[tuple[str, bytes | None]],
        at_ms: int,
    ) -> None:
        """`put` of a message of which everything is known, its size too. `described`: all of its headers but the
        producer's; they stay the caller's."""
        outlet = self._outlet
        ticket = outlet.ticket(callback)
        if ticket is None:
            return
        ticket.origin = outlet.origins[partition]
        ticket.sequence = sequence_id
        ticket.callback = callback
        headers: Headers = [(PRODUCER, outlet.header % sequence_id), *described]
        if outlet.offer(ticket, payload, key, partition, headers, lambda: at_ms):
            self._offered(sequence_id)

    def _offered(self, sequence: int) -> None:
        """Counts the message, as at the end of `send`."""
        kafka = self._outlet.kafka
        if sequence & _POLL_MASK == 0:
            kafka.poll_inline()
        if kafka.asleep:
            kafka.wake()

    def unkeyed(self) -> int:
        return self._spread(None)

    def grow(self, partitions: int) -> None:
        """The topic has so many partitions now."""
        outlet = self._outlet
        before = len(outlet.origins)
        outlet.grow(partitions)
        if outlet.deduplicates:
            self._have_counted(range(before, partitions))

    def use_deduplication(self) -> None:
        """Routes every message through deduplication, which numbers messages without a number."""
        self._outlet.deduplicate()  # first: a message without an id must pass deduplication, which assigns one
        self._have_counted(range(len(self._outlet.origins)))

    def _have_counted(self, partitions: range) -> None:
        for partition in partitions:
            self._outlet.admitted.deduplication.count(partition, self._outlet.origins[partition])

    def set_deduplication(self, *, active: bool) -> None:
        """Switches the judging of deduplication on or off."""
        self._outlet.admitted.deduplication.active = active
