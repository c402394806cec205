"""A producer's side: encrypts what goes into records.

Source: pulsar-client-cpp, lib/MessageCrypto.cc: AES-256-GCM, a random 12-byte vector per message, the 16-byte tag
behind the ciphertext, no associated data; the data key wrapped by RSA-OAEP (SHA-1, OpenSSL's default) per key name.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple, Protocol

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from pulsar_on_kafka.base.errors import CryptoFailed
from pulsar_on_kafka.crypto.keys import CryptoKeyReader
from pulsar_on_kafka_mapping.records.encryption_header import TAG_BYTES, EncryptedKey, encode_encryption, encode_keys
from pulsar_on_kafka_mapping.records.record_headers import ENCRYPTION

PARAM_BYTES: Final = 12
OAEP: Final = padding.OAEP(padding.MGF1(hashes.SHA1()), hashes.SHA1(), None)  # noqa: S303 - what Pulsar's clients use

_DATA_KEY_BITS: Final = 256
_DATA_KEY_LASTS_S: Final = 4 * 3600.0  # as in ProducerImpl
_MESSAGES_PER_DATA_KEY: Final = 2**31  # random 96-bit vectors: NIST allows 2^32

Produce = Callable[..., None]


class Sealer(Protocol):
    """Stands between a producer and librdkafka."""

    def over(self, produce: Produce) -> Produce: ...

    def overhead_bytes(self) -> int:
        """Bytes that encryption adds to a record, header included."""
        ...


class _DataKey(NamedTuple):
    encrypt: Callable[[bytes, bytes, bytes | None], bytes]
    header: bytes
    expires_s: float


class Encryptor:
    """One per producer; thread-safe. The data key is replaced every four hours."""

    def __init__(self, key_names: Sequence[str], reader: CryptoKeyReader) -> None:
        """Raises CryptoFailed when a public key cannot be had."""
        self._key_names = key_names
        self._reader = reader
        self._left = 0
        self._lock = threading.Lock()
        self._key = self._new_key()

    def _new_key(self) -> _DataKey:
        secret = AESGCM.generate_key(_DATA_KEY_BITS)
        keys = []
        for name in self._key_names:
            pem, metadata = self._reader.get_public_key(name)
            keys.append(EncryptedKey(name, _public_key(pem, name).encrypt(secret, OAEP), metadata))
        self._left = _MESSAGES_PER_DATA_KEY
        return _DataKey(AESGCM(secret).encrypt, encode_keys(keys), time.monotonic() + _DATA_KEY_LASTS_S)

    def _current(self) -> _DataKey:
        with self._lock:
            self._left -= 1
            if self._left < 0 or time.monotonic() >= self._key.expires_s:
                self._key = self._new_key()
            return self._key

    def encrypt(self, value: bytes) -> tuple[bytes, bytes]:
        """The ciphertext, and the header that goes with it.

        Raises:
            CryptoFailed: it was time for another data key, and a public key cannot be had.
        """
        key = self._current()
        param = os.urandom(PARAM_BYTES)
        return key.encrypt(param, value, None), encode_encryption(key.header, param)

    def overhead_bytes(self) -> int:
        return TAG_BYTES + len(ENCRYPTION) + len(encode_encryption(self._key.header, bytes(PARAM_BYTES)))

    def over(self, produce: Produce) -> Produce:
        """librdkafka's `produce` for plain records, as it is called by position; null values stay null, as their being
        null is no secret in Pulsar either."""

        def produce_encrypted(
            topic: str, value: bytes | None, key: Any, partition: int, callback: Any, alias: Any, timestamp: int,
            headers: list[tuple[str, Any]],
        ) -> None:  # fmt: skip
            if value is not None:
                value, header = self.encrypt(value)
                headers = [*headers, (ENCRYPTION, header)]
            produce(topic, value, key, partition, callback, alias, timestamp, headers)

        return produce_encrypted


def _public_key(pem: bytes, name: str) -> rsa.RSAPublicKey:
    try:
        key = serialization.load_pem_public_key(pem)
    except (ValueError, UnsupportedAlgorithm) as failure:
        raise CryptoFailed(f"key {name!r}: what its reader gave is no public key in PEM") from failure
    if not isinstance(key, rsa.RSAPublicKey):
        raise CryptoFailed(f"key {name!r}: expected an RSA key, got {type(key).__name__}")
    return key
