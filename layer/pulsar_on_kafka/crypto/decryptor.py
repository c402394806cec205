"""A consumer's side: decrypts what comes in records. Source: as in `encryptor`."""

from __future__ import annotations

import os
import threading
from functools import lru_cache
from typing import Final

from cryptography.exceptions import InvalidTag, UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from pulsar_on_kafka.base.errors import CryptoFailed
from pulsar_on_kafka.crypto.encryptor import OAEP, PARAM_BYTES
from pulsar_on_kafka.crypto.keys import CryptoKeyReader
from pulsar_on_kafka_mapping.records.encryption_header import (
    EncryptedKey,
    EncryptionInfo,
    encode_encryption,
    encode_keys,
)

MAX_DATA_KEYS: Final = 1000
_MAX_PRIVATE_KEYS: Final = 100
"""The limit of private keys that a process caches, as many small objects of OpenSSL's."""


class Decryptor:
    """One per consumer; thread-safe. Remembers the last 1,000 data keys, so that RSA is paid once for each."""

    def __init__(self, reader: CryptoKeyReader) -> None:
        self._reader = reader
        self._data_keys: dict[tuple[str, bytes], AESGCM] = {}
        self._lock = threading.Lock()

    def decrypt(self, value: bytes, info: EncryptionInfo) -> bytes:
        """The plain value.

        Raises:
            CryptoFailed: no private key fits, or the value was changed on its way.
        """
        if len(info.param) != PARAM_BYTES:
            raise CryptoFailed(f"the encryption parameter has {len(info.param)} bytes, expected {PARAM_BYTES}")
        reason: CryptoFailed | None = None
        for key in info.keys:
            try:
                return self._data_key(key).decrypt(info.param, value, None)
            except CryptoFailed as failure:
                reason = failure
            except InvalidTag as failure:
                reason = CryptoFailed(f"key {key.name!r}: the payload does not fit its tag")
                reason.__cause__ = failure
        raise reason or CryptoFailed("no key is named")

    def encrypt_again(self, value: bytes, info: EncryptionInfo) -> tuple[bytes, bytes]:
        """Encrypts with the data key that `info` names, for the same readers as before; returns the ciphertext and its
        header.

        Raises:
            CryptoFailed: no private key fits.
        """
        reason: CryptoFailed | None = None
        for key in info.keys:
            try:
                cipher = self._data_key(key)
            except CryptoFailed as failure:
                reason = failure
                continue
            param = os.urandom(PARAM_BYTES)
            header = encode_encryption(encode_keys(info.keys, info.algorithm), param)
            return cipher.encrypt(param, value, None), header
        raise reason or CryptoFailed("no key is named")

    def data_key(self, info: EncryptionInfo) -> bytes:
        """The secret of encrypted values, for decryption elsewhere.

        Raises:
            CryptoFailed: no private key fits.
        """
        reason: CryptoFailed | None = None
        for key in info.keys:
            try:
                return self._unwrapped(key)
            except CryptoFailed as failure:
                reason = failure
        raise reason or CryptoFailed("no key is named")

    def _unwrapped(self, key: EncryptedKey) -> bytes:
        private = _private_key(self._reader.get_private_key(key.name, key.metadata), key.name)
        try:
            return private.decrypt(key.value, OAEP)
        except ValueError as failure:
            raise CryptoFailed(f"key {key.name!r}: the private key does not fit the message's data key") from failure

    def _data_key(self, key: EncryptedKey) -> AESGCM:
        known = self._data_keys.get((key.name, key.value))
        if known is not None:
            return known
        try:
            cipher = AESGCM(self._unwrapped(key))
        except ValueError as failure:
            raise CryptoFailed(f"key {key.name!r}: its data key has a length that AES does not know") from failure
        with self._lock:
            while len(self._data_keys) >= MAX_DATA_KEYS:
                del self._data_keys[next(iter(self._data_keys))]
            self._data_keys[key.name, key.value] = cipher
        return cipher


def _private_key(pem: bytes, name: str) -> rsa.RSAPrivateKey:
    try:
        key = _loaded(pem)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        raise CryptoFailed(f"key {name!r}: what its reader gave is no private key in PEM") from None
    if not isinstance(key, rsa.RSAPrivateKey):
        raise CryptoFailed(f"key {name!r}: expected an RSA key, got {type(key).__name__}")
    return key


@lru_cache(maxsize=_MAX_PRIVATE_KEYS)
def _loaded(pem: bytes) -> PrivateKeyTypes:
    """OpenSSL looks for what is wrong with a key, which takes a hundred times as long as its use, and no other thread
    runs meanwhile. Raises as `load_pem_private_key`."""
    return serialization.load_pem_private_key(pem, password=None)
