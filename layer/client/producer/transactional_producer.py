"""The half of a producer that sends in transactions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any, Final

from pulsar_on_kafka.client.producer.transactional_sends import TransactionalSend, taking_part
from pulsar_on_kafka.client.values.enums import PartitionsRoutingMode
from pulsar_on_kafka.client.values.options import check_type
from pulsar_on_kafka.client.values.transaction import Transaction
from pulsar_on_kafka.exceptions import AlreadyClosed, MessageTooBig, NotAllowedError, ProducerFenced, PulsarException
from pulsar_on_kafka.kafka.producer import KafkaProducer
from pulsar_on_kafka.kafka.settings import MAX_MESSAGE_BYTES
from pulsar_on_kafka.mapping.records.message_record import MessageMetadata
from pulsar_on_kafka.mapping.records.record_headers import PRODUCER
from pulsar_on_kafka.metadata.topics import Topic
from pulsar_on_kafka.sending.in_flight import SendCallback
from pulsar_on_kafka.sending.outgoing_message import OutgoingMessage, is_more_than_plain, key_and_metadata
from pulsar_on_kafka.sending.outgoing_schema import Marks, OutgoingSchema
from pulsar_on_kafka.sending.outlet import Headers, Outlet
from pulsar_on_kafka.sending.record_key import RecordKey
from pulsar_on_kafka.sending.routing import MessageRouter, Routing

_POLL_MASK: Final = 127
_NOTHING_SAID: Final = (None,) * 8


class TransactionalProducer(Outlet):
    """Sends that are operations of a transaction: the steps of `Producer.send_async` in calls of their own, with the
    record's time from the transaction."""

    def __init__(
        self,
        topic: Topic,
        kafka: KafkaProducer,
        *,
        cluster_id: str,
        schema: OutgoingSchema,
        fixed_partition: int | None,
        routing: PartitionsRoutingMode,
        router: MessageRouter | None,
        **options: Any,
    ) -> None:
        """`options`: as `Outlet`; `cluster_id` is Kafka's, of the cluster that `kafka` writes to."""
        super().__init__(topic, kafka, fixed_partition=fixed_partition, **options)
        self._cluster_id = cluster_id
        self._registered_name = str(topic.name.base)
        self._took_part = False
        """It has sent in a transaction, or might have."""
        self._marks = schema.marks
        self._thrown_out: str | None = None
        self._schema = schema.schema
        self._shape = schema.shape if schema.shapes else None
        self._whole_bytes = MAX_MESSAGE_BYTES
        """A payload above it is not sent like any other."""
        self._routing = Routing(
            topic.partitions,
            partitioned=topic.partitioned,
            to_one=routing is PartitionsRoutingMode.UseSinglePartition,
            router=router,
            fixed=fixed_partition,
        )
        self._single = self._routing.single
        self._router = self._routing.router
        self._spread = self._routing.spread

    def _send_in(
        self,
        txn: Transaction,
        callback: SendCallback | None,
        content: Any,
        properties: dict[str, str] | None,
        partition_key: str | RecordKey | None,
        ordering_key: str | None,
        sequence_id: int | None,
        replication_clusters: Sequence[str] | None,
        disable_replication: bool,
        event_timestamp: int | None,
        deliver_at: int | None,
        deliver_after: timedelta | None,
    ) -> None:
        """`send_async` in a transaction. What a wrong argument raises is raised to everybody, and the transaction may
        still be committed."""
        if type(txn) is not Transaction:
            check_type(Transaction, "txn", txn)
        if txn.cluster_id != self._cluster_id:
            txn.check_cluster(self._cluster_id, f"a message to {self.topic()}")
        taken = self._taking_part(txn, callback)
        if taken is None:
            return
        part, to_call = taken
        try:
            marks = self._marks
            if self._shape is not None:
                payload, partition_key, marks = self._shape(content, partition_key)
            else:
                payload = self._encode(content)
            if self._ended(part):
                return
            key: bytes | None = None
            said: MessageMetadata | None = None
            metadata = txn.plain_metadata
            options = (
                properties, partition_key, ordering_key, sequence_id, replication_clusters, event_timestamp, deliver_at,
                deliver_after,
            )  # fmt: skip
            if disable_replication or options != _NOTHING_SAID:
                key, said = key_and_metadata(
                    properties, partition_key, ordering_key, sequence_id, replication_clusters, disable_replication,
                    event_timestamp, deliver_at, deliver_after,
                )  # fmt: skip
                metadata = metadata if said is None else replace(said, txn=txn.txn_id)
            first = not self._took_part or payload is None or said is not None
            if first and not self._may_take_part(part, payload, said):
                return
            if self._router is not None:
                outgoing = OutgoingMessage(payload, properties, partition_key, ordering_key, event_timestamp)
                partition = self._routing.ask(outgoing)
            else:
                partition = self._partition_of(key if partition_key else None)
            part.register(self._registered_name, partition, self._topic.partitions)
            self._send_part(part, to_call, payload, key, metadata, partition, sequence_id, marks)
        except PulsarException as refusal:
            if not part.tell(refusal):
                raise
        except BaseException:
            part.end(None)
            raise

    def _may_take_part(self, part: TransactionalSend, payload: bytes | None, said: MessageMetadata | None) -> bool:
        """Whether such a message of a transaction may be sent, what readers have to know being on record; else the
        caller was told why not."""
        if not self._took_part:
            if not self._topic.name.is_persistent:
                raise NotAllowedError(f"{self.topic()} is not persistent: there are no transactions")
            self._took_part = self._needs_headers(part, markers=True)
        rich = payload is None or (said is not None and is_more_than_plain(said))
        return self._took_part and (not rich or self._needs_headers(part))

    def _taking_part(
        self, txn: Transaction, callback: SendCallback | None
    ) -> tuple[TransactionalSend, SendCallback] | None:
        """The send as an operation of the transaction, and what is to be called with its report; None when the sender
        was told that the transaction is not open."""
        part = taking_part(txn, callback)
        return None if part is None else (part, part)

    def _partition_of(self, key: bytes | None) -> int:
        return self._single if key is None and self._single is not None else self._spread(key)

    def _send_part(
        self,
        part: TransactionalSend,
        callback: SendCallback,
        payload: bytes | None,
        key: bytes | None,
        metadata: MessageMetadata,
        partition: int,
        sequence_id: int | None,
        marks: Marks,
    ) -> None:
        if payload is not None and len(payload) > self._whole_bytes:
            self._send_chunks(payload, callback, marks, key, metadata, partition, sequence_id, part.stamp)
            return
        ticket = self._ticket_now(callback)
        if ticket is None:
            return
        ticket.origin = origin = self._origins[partition]
        ticket.sequence = sequence = origin.next_sequence_id() if sequence_id is None else sequence_id
        ticket.callback = callback
        headers: Headers = [(PRODUCER, f"{sequence}{self._producer_header}"), *part.headers(metadata), *marks]
        if not self._offer(ticket, payload, key, partition, headers, part.stamp):
            return
        if sequence & _POLL_MASK == 0:  # each time would make the polling thread step back for longer than a send takes
            self._kafka.poll_inline()
        if self._kafka.asleep:
            self._kafka.wake()

    def _ended(self, callback: SendCallback | None) -> bool:
        """The producer was closed or thrown out, which the caller was told."""
        if self._closed:
            self._tell(callback, AlreadyClosed(f"producer {self._name} of {self.topic()} is closed"))
        elif self._thrown_out is not None:
            self._tell(callback, ProducerFenced(self._thrown_out))
        else:
            return False
        return True

    def _encode(self, content: Any) -> bytes | None:
        if content is None:
            return None
        return self._schema.encode(content)

    def _send_large(self, payload: bytes, callback: SendCallback | None, marks: Marks, *options: Any) -> None:
        self._too_big(payload, callback)

    def _send_chunks(self, payload: bytes, callback: SendCallback | None, *options: Any) -> None:
        """A message of a transaction that is above the limit."""
        self._too_big(payload, callback)

    def _too_big(self, payload: bytes, callback: SendCallback | None) -> None:
        self._tell(callback, MessageTooBig(f"{len(payload)} bytes of payload, the limit is {MAX_MESSAGE_BYTES}"))
