"""`CryptoKeyReader`: where the public and private keys come from."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from pulsar_on_kafka.base.errors import CryptoFailed


class CryptoKeyReader:
    """Keys in PEM files. Source: `pulsar.CryptoKeyReader`.

    One with keys elsewhere may override `get_public_key` and `get_private_key` (ours, not the official client's).
    """

    def __init__(self, public_key_path: str, private_key_path: str) -> None:
        for name, path in (("public_key_path", public_key_path), ("private_key_path", private_key_path)):
            if not isinstance(path, str):
                raise ValueError(f"Argument {name} is expected to be of type 'str' and not '{type(path).__name__}'")
        self._public_key_path = public_key_path
        self._private_key_path = private_key_path

    def get_public_key(self, key_name: str) -> tuple[bytes, Mapping[str, str]]:
        """The public key called `key_name` in PEM, and metadata to send along.

        Raises:
            CryptoFailed: there is none.
        """
        return _read(self._public_key_path, key_name), {}

    def get_private_key(self, key_name: str, metadata: Mapping[str, str]) -> bytes:
        """The private key called `key_name` in PEM; `metadata` is what came along with the message.

        Raises:
            CryptoFailed: there is none.
        """
        return _read(self._private_key_path, key_name)


def _read(path: str, key_name: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as failure:
        raise CryptoFailed(f"key {key_name!r}: {path} cannot be read: {failure.strerror}") from failure
