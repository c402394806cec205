"""The steps of a message from a request to what is ready to be numbered: transaction, shape and partition."""

from __future__ import annotations

from typing import Protocol

from msgspec import structs

from pulsar_on_kafka.broker.publishing.arguments import check_type
from pulsar_on_kafka.broker.publishing.exclusive_receipts import Receipts
from pulsar_on_kafka.broker.publishing.in_flight import SendCallback
from pulsar_on_kafka.broker.publishing.official_errors import pulsar_errors
from pulsar_on_kafka.broker.publishing.outgoing_message import (
    UNCHOSEN,
    OutgoingMessage,
    ReadyMessage,
    SendRequest,
    needs_headers,
)
from pulsar_on_kafka.broker.publishing.outgoing_schema import OutgoingSchema
from pulsar_on_kafka.broker.publishing.outlet import AnyOutlet
from pulsar_on_kafka.broker.publishing.routing import Routing
from pulsar_on_kafka.broker.publishing.transactional_sends import Transaction, TransactionalSend, taking_part
from pulsar_on_kafka.exceptions import NotAllowedError, PulsarException
from pulsar_on_kafka.schema.plain import BytesSchema


class Way(Protocol):
    """The way of messages to records: one by one, or in batches."""

    def put(self, message: ReadyMessage) -> None:
        """Numbers a message and sends it; refusals go to its sender. Raises PulsarException to a waiting sender."""

    def unkeyed(self) -> int:
        """The partition of a message that no key and no router chooses it for."""


class PlainPipeline:
    """The pipeline of messages that have only a content, which need no further check. Until `end`."""

    __slots__ = ("encode", "marks", "taken")

    def __init__(self, schema: OutgoingSchema, *, requested: bool) -> None:
        """`requested`: only the schema applies, and only to the payload."""
        plain = requested and not schema.shapes
        self.taken: type[bytes] | None = bytes if plain and type(schema.schema) is BytesSchema else None
        """Content of this type is the payload."""
        self.encode = schema.schema.encode if plain and self.taken is None else None
        """Makes the payload of other content."""
        self.marks = schema.marks

    def end(self) -> None:
        """The producer was closed or thrown out: every send has to look."""
        self.taken = self.encode = None


class Steps:
    """The steps of one producer's messages, as its topic and its options require them. Thread-safe."""

    def __init__(self, outlet: AnyOutlet, schema: OutgoingSchema, routing: Routing, receipts: Receipts | None) -> None:
        self._outlet = outlet
        self._schema = schema.schema
        self._shape = schema.shape if schema.shapes else None
        self._marks = schema.marks
        self._routing = routing
        self._receipts = receipts
        self._limits = outlet.admitted.limits
        plain = receipts is None and routing.router is None and not self._limits.compacted
        self.plain = PlainPipeline(schema, requested=plain)
        self._registered_name = str(outlet.admitted.topic.name.base)
        self._took_part = False
        """Whether the producer sent, or may have sent, in a transaction."""

    def take(self, request: SendRequest, way: Way) -> None:
        """Sends a message that is more than plain bytes.

        Raises: what a wrong argument raises; PulsarException, to a sender that waits for the answer.
        """
        if request.txn is not None:
            self._take_in(request.txn, request, way)
            return
        callback = request.callback if self._receipts is None else self._receipts.taken(request.callback)
        message = self._made(request, callback, None, way)
        if message is not None:
            way.put(message)

    def _take_in(self, txn: Transaction, request: SendRequest, way: Way) -> None:
        """Sends as an operation of the transaction. The exception for a wrong argument reaches every caller, and the
        transaction may still be committed."""
        check_type(Transaction, "txn", txn)
        admitted = self._outlet.admitted
        if txn.cluster_id != admitted.cluster_id:
            txn.check_cluster(admitted.cluster_id, f"a message to {self._outlet.topic()}")
        part = taking_part(txn, request.callback)
        if part is None:
            return
        try:
            message = self._made(request, part, txn, way)
            if message is not None:
                part.register(self._registered_name, message.partition, admitted.topic.partitions)
                if self._receipts is not None:  # the transaction gets the result when the receipt is confirmed
                    message = structs.replace(message, callback=self._receipts.taken(part))
                way.put(message)
        except PulsarException as refusal:
            if not part.report_refusal(refusal):
                raise
        except BaseException:
            part.end(None)
            raise

    def _made(
        self, request: SendRequest, callback: SendCallback | None, txn: Transaction | None, way: Way
    ) -> ReadyMessage | None:
        """The message to send; None when the sender got the reason for a refusal."""
        content, partition_key, marks = request.content, request.partition_key, self._marks
        payload: bytes | None
        if self._shape is None:
            payload = None if content is None else self._schema.encode(content)
        else:
            payload, partition_key, marks = self._shape(content, partition_key)
            request = structs.replace(request, partition_key=partition_key)
        if self._outlet.refuses(callback):
            return None
        if self._limits.compacted:
            with pulsar_errors():
                self._limits.check(has_key=bool(partition_key), in_transaction=txn is not None)
        key, metadata = request.key_and_metadata(self._outlet.admitted.now_ms)
        rich = payload is None or (metadata is not None and needs_headers(metadata))
        if rich and not self._outlet.on_record(callback):
            return None
        stamp, encoded = None, None
        if txn is not None:
            if not self._took_part and not self._may_take_part(callback):
                return None
            if metadata is None:
                metadata, encoded = txn.plain_metadata, txn.plain_headers
            else:
                metadata = structs.replace(metadata, txn=txn.txn_id)
            assert isinstance(callback, TransactionalSend)  # noqa: S101 - `_take_in` made it
            stamp = callback.stamp
        if self._routing.router is not None:
            partition = self._application_choice(request, payload)
        elif request.partition_key and key is not None and self._routing.by_key:
            routing = self._routing
            is_text = isinstance(request.partition_key, str)
            partition = routing.spread(key) if is_text else routing.spread_bytes(key)
        else:  # an ordering key alone does not choose it
            partition = UNCHOSEN if txn is None else way.unkeyed()
        return ReadyMessage(payload, key, metadata, partition, callback, request.sequence_id, marks, stamp, encoded)

    def _may_take_part(self, callback: SendCallback | None) -> bool:
        """Whether the log's description mentions markers; otherwise the sender got the reason."""
        if not self._outlet.admitted.topic.name.is_persistent:
            raise NotAllowedError(f"{self._outlet.topic()} is not persistent: there are no transactions")
        self._took_part = self._outlet.on_record(callback, markers=True)
        return self._took_part

    def _application_choice(self, request: SendRequest, payload: bytes | None) -> int:
        return self._routing.application_choice(
            OutgoingMessage(
                payload, request.properties, request.partition_key, request.ordering_key, request.event_timestamp
            )
        )
