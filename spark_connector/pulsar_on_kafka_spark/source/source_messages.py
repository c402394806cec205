"""The records of a plan become messages, by the code that consumers use.

Topics of plain messages need none of it: their records are messages (`PlannedTopic.plain`).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from pulsar_on_kafka.broker.cursor.batch_acks import BatchAckSet
from pulsar_on_kafka.broker.subscriptions.records.batches import Begun, messages_of
from pulsar_on_kafka.broker.subscriptions.records.chunks import WholeMessage
from pulsar_on_kafka.broker.subscriptions.records.consumer_inbox import Endpoint, PartitionConsumer
from pulsar_on_kafka.broker.subscriptions.records.decryption import OnFailure, RecordDecryptor, is_encrypted
from pulsar_on_kafka.client.values.message import BatchedMessage, Message, ReceivedMessage
from pulsar_on_kafka.crypto.decryptor import Decryptor
from pulsar_on_kafka.kafka.records import headers_of, packed_headers_of
from pulsar_on_kafka_mapping.errors import MappingError
from pulsar_on_kafka_mapping.ids.txn_id import TxnId
from pulsar_on_kafka_mapping.records.message_record import is_plain
from pulsar_on_kafka_mapping.records.record_headers import CHUNK, DELIVER_AT, MARKER, TXN
from pulsar_on_kafka_mapping.records.transaction_headers import MARKER_KEY
from pulsar_on_kafka_spark.base.errors import NotReadable
from pulsar_on_kafka_spark.options.read_options import FAIL
from pulsar_on_kafka_spark.source.partition_plan import PartitionPlan


def without_markers(records: Sequence[Any]) -> Sequence[Any]:
    """Records of a topic of plain messages without markers of transactions, by their key."""
    return [record for record in records if record.value() is not None or record.key() != MARKER_KEY]


class MessageMaker:
    """Makes the messages of one plan. Memory: those of the records given at once, and one message in chunks."""

    def __init__(self, plan: PartitionPlan) -> None:
        options = plan.topic.options
        reader = options.crypto_key_reader
        self._plan = plan
        self._unsealed = frozenset(txn.to_bytes() for txn in plan.unsealed)
        self._decryptor = RecordDecryptor(
            None if reader is None else Decryptor(reader), OnFailure[options.crypto_failure_action]
        )
        endpoint = Endpoint("spark", 1, delivery_type=ReceivedMessage, decryptor=self._decryptor)
        self._slot = plan.slot()
        self._consumer = PartitionConsumer(self._slot, endpoint)
        self._begun = None if plan.begun is None else Begun(*plan.begun)
        self._acknowledged = {offset: BatchAckSet(*acks) for offset, acks in plan.batches.items()}

    def messages(self, records: Sequence[Any]) -> list[Message[Any]]:
        """The messages of a run of records.

        Raises:
            NotReadable: one cannot be decrypted, or is a chunk that was not announced.
        """
        chosen = records if all(map(is_plain, map(packed_headers_of, records))) else self._chosen(records)
        return self._made([record for record in chosen if not self._is_aborted(record)])

    def chunked(self, offsets: Sequence[int], total_bytes: int, chunks: Sequence[Any]) -> list[Message[Any]]:
        """The message of these chunks, unless some are missing; none where it is unreadable or not due."""
        if len(chunks) < len(offsets):
            return []
        by_offset = {record.offset(): record for record in chunks}
        parts = [by_offset[offset] for offset in offsets]
        whole = WholeMessage(offsets, total_bytes, parts[-1], parts)
        return [] if self._is_left_out(whole) else self._made([whole])

    def _chosen(self, records: Sequence[Any]) -> list[Any]:
        chosen = []
        for record in records:
            if is_plain(packed_headers_of(record)):
                chosen.append(record)
            elif not self._is_left_out(record):
                self._check_chunk(record)
                chosen.append(record)
        return chosen

    def _is_left_out(self, record: Any) -> bool:
        """Whether it is a marker, or to be delivered later."""
        due_ms = self._plan.topic.delayed_until_ms
        for name, value in headers_of(record) or ():
            if name == MARKER:
                return True
            if name == DELIVER_AT and due_ms is not None and (_number(value) or 0) > due_ms:
                return True
        return False

    def _is_aborted(self, record: Any) -> bool:
        """Whether it is of an aborted transaction, or of one whose id cannot be read: consumers skip such a record."""
        txns = [value for name, value in headers_of(record) or () if name == TXN]
        return bool(txns) and (txns[-1] in self._unsealed or not _is_txn_id(txns[-1]))

    def _check_chunk(self, record: Any) -> None:
        if any(name == CHUNK for name, _ in headers_of(record) or ()) and not self._plan.topic.may_have_chunks:
            raise NotReadable(
                f"the record at partition {self._plan.partition}, offset {record.offset()} is a chunk of a message, "
                "where none was announced: read with chunkedMessages=true"
            )

    def _made(self, records: Sequence[Any]) -> list[Message[Any]]:
        failures = self._decryptor.failures
        found: list[Any] = messages_of(records, self._consumer, self._begun, self._acknowledged)
        self._slot.acks.clear()  # of what was discarded; a read acknowledges nothing
        if self._decryptor.failures > failures and self._plan.topic.options.crypto_failure_action == FAIL:
            raise NotReadable(self._refusal(records))
        return found if self._plan.ended is None else [each for each in found if not self._is_behind_end(each)]

    def _refusal(self, records: Sequence[Any]) -> str:
        sealed = next((r for r in records if is_encrypted(r)), records[0])
        topic, partition = self._plan.topic.schemas.topic, self._plan.partition
        return (
            f"the message of {topic}, partition {partition}, offset {sealed.offset()} is "
            "encrypted and cannot be opened: cryptoPrivateKeyPath names the private key's file on the executors; "
            "cryptoFailureAction=DISCARD omits such messages, CONSUME returns their bytes"
        )

    def _is_behind_end(self, message: Message[Any]) -> bool:
        offset, last = self._plan.ended or (-1, 0)
        return isinstance(message, BatchedMessage) and message.offset == offset and message.batch_index > last


@lru_cache(maxsize=1024)
def _is_txn_id(text: bytes | None) -> bool:
    try:
        TxnId.from_bytes(text or b"")
    except MappingError:
        return False
    return True


def _number(value: bytes | None) -> int | None:
    try:
        return int(value or b"")
    except ValueError:
        return None
