"""Encrypted records on their way to a consumer: opened with its keys, or what it said for when that fails.

A record is opened before anything looks into its value, and only where its headers say that it is encrypted.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from enum import Enum
from typing import Any, Protocol

from pulsar_on_kafka.base.errors import CryptoFailed
from pulsar_on_kafka.broker.subscriptions.records.chunks import WholeMessage
from pulsar_on_kafka.broker.subscriptions.records.compressed import compression_of
from pulsar_on_kafka.kafka.records import KafkaRecord, headers_of, packed_headers_of
from pulsar_on_kafka_mapping.errors import CorruptRecord
from pulsar_on_kafka_mapping.records.encryption_header import EncryptionInfo
from pulsar_on_kafka_mapping.records.message_record import Headers, encryption_info, is_plain
from pulsar_on_kafka_mapping.records.record_headers import ENCRYPTION
from pulsar_on_kafka_mapping.wire.compression import decompress

_log = logging.getLogger(__name__)


class OnFailure(Enum):
    """The fate of a message that cannot be decrypted. Source: `pulsar.ConsumerCryptoFailureAction`.

    FAIL: it is not delivered and stays unacknowledged. DISCARD: it is acknowledged. CONSUME: it is delivered as it is,
    a batch entry as one message.
    """

    FAIL = 0
    DISCARD = 1
    CONSUME = 2


class Cipher(Protocol):
    def decrypt(self, value: bytes, info: EncryptionInfo) -> bytes:
        """Raises CryptoFailed."""

    def encrypt_again(self, value: bytes, info: EncryptionInfo) -> tuple[bytes, bytes]:
        """With the same data key: the ciphertext, and the header that goes with it. Raises CryptoFailed."""


class Slot(Protocol):
    """A partition as its consumers see it."""

    @property
    def topic_name(self) -> str: ...

    @property
    def ack(self) -> Callable[[int], None]:
        """Acknowledges an offset."""


class OpenedRecord:
    """A record with its plain value; everything else is the original's."""

    __slots__ = ("_record", "_value")

    def __init__(self, record: KafkaRecord, value: bytes) -> None:
        self._record = record
        self._value = value

    def value(self) -> bytes:
        return self._value

    def topic(self) -> str:
        return self._record.topic()

    def partition(self) -> int:
        return self._record.partition()

    def offset(self) -> int:
        return self._record.offset()

    def key(self) -> bytes | None:
        return self._record.key()

    def headers(self) -> Headers | bytes | None:
        return packed_headers_of(self._record)

    def timestamp(self) -> tuple[int, int]:
        return self._record.timestamp()

    def __len__(self) -> int:
        return len(self._value)


def uncompressed_record(record: Any) -> Any:
    """The record of one message, with its value uncompressed where a client of Pulsar's compressed it.

    Raises:
        CorruptRecord: the value is not what the headers say.
    """
    info = compression_of(record)
    return record if info is None else OpenedRecord(record, decompress(record.value() or b"", info))


class RecordDecryptor:
    """One consumer's keys and wish. Counts what it could not decrypt."""

    def __init__(self, cipher: Cipher | None = None, on_failure: OnFailure = OnFailure.FAIL) -> None:
        self._cipher = cipher
        self._on_failure = on_failure
        self.failures = 0

    def look(self, record: Any, slot: Slot, consumer: str) -> tuple[Any | None, bool]:
        """The result of `open`, and whether its value is readable; a record in clear is returned unchanged. `consumer`
        is its name."""
        if is_plain(packed_headers_of(record)) or not is_encrypted(record):
            return record, True
        if type(record) is WholeMessage:
            return self._look_into_chunks(record, slot, consumer)
        plain = self.open(record, slot, consumer)
        return plain, isinstance(plain, OpenedRecord) or record.value() is None

    def _look_into_chunks(self, record: WholeMessage, slot: Slot, consumer: str) -> tuple[WholeMessage | None, bool]:
        opened = [self.look(chunk, slot, consumer) for chunk in record.chunks()]
        chunks = [chunk for chunk, _ in opened if chunk is not None]
        if len(chunks) == len(opened):
            readable = all(each for _, each in opened)
            return record.with_chunks(chunks, decrypted=readable), readable
        if self._on_failure is OnFailure.DISCARD:
            slot.ack(record.offset())
        return None, False

    def open(self, record: Any, slot: Slot, consumer: str) -> Any | None:
        """The record to deliver, or None for none; one that is discarded is acknowledged on the way."""
        try:
            info = encryption_info(headers_of(record))
            value = record.value()
            if info is None or value is None:
                return record
            if self._cipher is None:
                raise CryptoFailed("the consumer has no crypto_key_reader")
            return OpenedRecord(record, self._cipher.decrypt(value, info))
        except (CryptoFailed, CorruptRecord) as failure:
            return self._failed(record, slot, consumer, failure)
        except Exception as failure:  # the application's key reader's
            return self._failed(record, slot, consumer, failure)

    def seal_again(self, value: bytes, info: EncryptionInfo) -> tuple[bytes, bytes]:
        """A value that was opened here is to be sent on: the ciphertext, and its header.

        Raises:
            CryptoFailed: its key cannot be had any more.
        """
        if self._cipher is None:
            raise CryptoFailed("the consumer has no crypto_key_reader")
        return self._cipher.encrypt_again(value, info)

    def _failed(self, record: Any, slot: Slot, consumer: str, failure: Exception) -> Any | None:
        self.failures += 1
        if self.failures & (self.failures - 1) == 0:  # the first, second, fourth ... one
            _log.warning(
                "consumer=%s topic=%s offset=%d cannot be decrypted (%d so far, %s): %s", consumer,
                slot.topic_name, record.offset(), self.failures, self._on_failure.name, failure,
            )  # fmt: skip
        if self._on_failure is OnFailure.CONSUME:
            return record
        if self._on_failure is OnFailure.DISCARD:
            slot.ack(record.offset())
        return None


def is_encrypted(record: Any) -> bool:
    return any(name == ENCRYPTION for name, _ in headers_of(record) or ())
