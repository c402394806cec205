"""The official encryption options, and the encryption context of a message."""

from __future__ import annotations

from pulsar_on_kafka.broker.publishing.arguments import check_type, check_type_or_none
from pulsar_on_kafka.broker.subscriptions.records.decryption import OnFailure, RecordDecryptor
from pulsar_on_kafka.client.values.enums import CompressionType, ConsumerCryptoFailureAction
from pulsar_on_kafka.crypto.decryptor import Decryptor
from pulsar_on_kafka.crypto.encryptor import Encryptor
from pulsar_on_kafka.crypto.keys import CryptoKeyReader
from pulsar_on_kafka.exceptions import InvalidConfiguration
from pulsar_on_kafka_mapping.records.encryption_header import EncryptedKey, EncryptionInfo
from pulsar_on_kafka_mapping.records.message_record import CompressionInfo


def producer_encryption(encryption_key: str | None, reader: CryptoKeyReader | None) -> Encryptor | None:
    """The encryptor of a producer's messages; None without a key, as officially a reader alone encrypts nothing.

    Raises:
        ValueError: a wrong type.
        InvalidConfiguration: a key and no reader, or an empty name. Differs from Pulsar, which then sends in clear.
        CryptoFailed: the public key cannot be read.
    """
    check_type_or_none(str, "encryption_key", encryption_key)
    _check_reader(reader)
    if encryption_key is None:
        return None
    if not encryption_key or reader is None:
        raise InvalidConfiguration(
            f"encryption_key {encryption_key!r} needs a name and a crypto_key_reader: nothing is sent in clear instead"
        )
    return Encryptor([encryption_key], reader)


def consumer_encryption(reader: CryptoKeyReader | None, on_failure: ConsumerCryptoFailureAction) -> RecordDecryptor:
    """The decryptor of a consumer's messages. Raises ValueError for a wrong type."""
    _check_reader(reader)
    check_type(ConsumerCryptoFailureAction, "crypto_failure_action", on_failure)
    return RecordDecryptor(None if reader is None else Decryptor(reader), OnFailure[on_failure.name])


def _check_reader(reader: object) -> None:
    if reader is not None and not isinstance(reader, CryptoKeyReader):
        raise ValueError("Argument crypto_key_reader is expected to be either None or of type 'CryptoKeyReader'")


class EncryptionKey:
    """A data key as it came with a message. Source: `pulsar.EncryptionKey`."""

    def __init__(self, key: EncryptedKey) -> None:
        self._key = key

    @property
    def key(self) -> str:
        """The name of the producer's key."""
        return self._key.name

    @property
    def value(self) -> bytes:
        """The data key, encrypted."""
        return self._key.value

    @property
    def metadata(self) -> dict[str, str]:
        """The metadata that the producer's key reader added."""
        return dict(self._key.metadata)

    def __str__(self) -> str:
        return f"EncryptionKey(key={self.key}, value_len={len(self.value)}, metadata={self.metadata})"

    __repr__ = __str__


class EncryptionContext:
    """The encryption context has what an application needs to decrypt a message itself. Source:
    `pulsar.EncryptionContext`.

    Differs from Pulsar: what this SDK sends is compressed by Kafka, which undoes it before, so that its
    `compression_type` is always NONE.
    """

    def __init__(
        self, info: EncryptionInfo, *, batch_size: int, failed: bool, compression: CompressionInfo | None = None
    ) -> None:
        self._info = info
        self._batch_size = batch_size
        self._failed = failed
        self._compression = compression

    def keys(self) -> list[EncryptionKey]:
        """The data key, encrypted with each of the producer's keys."""
        return [EncryptionKey(key) for key in self._info.keys]

    def param(self) -> bytes:
        """AES-GCM's initialization vector, 12 bytes."""
        return self._info.param

    def algorithm(self) -> str:
        """'' as with the official client."""
        return self._info.algorithm

    def compression_type(self) -> CompressionType:
        """The compression inside the encryption."""
        return CompressionType.NONE if self._compression is None else CompressionType(self._compression.codec.value)

    def uncompressed_message_size(self) -> int:
        """0 where nothing was compressed by the client."""
        return 0 if self._compression is None else self._compression.uncompressed_bytes

    def batch_size(self) -> int:
        """The number of messages in the batch; -1 for a message that was sent alone."""
        return self._batch_size

    def is_decryption_failed(self) -> bool:
        """The payload is still encrypted (`ConsumerCryptoFailureAction.CONSUME`)."""
        return self._failed

    def __str__(self) -> str:
        return (
            f"EncryptionContext(algorithm={self.algorithm()}, compression_type={self.compression_type().name}, "
            f"uncompressed_message_size={self.uncompressed_message_size()}, "
            f"is_decryption_failed={self.is_decryption_failed()}, "
            f"keys=[{', '.join(str(key) for key in self.keys())}])"
        )

    __repr__ = __str__
