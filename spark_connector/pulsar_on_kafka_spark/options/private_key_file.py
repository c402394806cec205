"""The private key of the option `cryptoPrivateKeyPath`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from socket import gethostname

from pulsar_on_kafka.crypto.keys import CryptoKeyReader
from pulsar_on_kafka_spark.base.errors import NotReadable


class PrivateKeyFile(CryptoKeyReader):
    """A PEM file that exists wherever messages are decrypted: on the driver, by the data source on executors too.

    A missing file is an error for each `cryptoFailureAction`: `DISCARD` would omit all messages because of it.
    """

    def __init__(self, path: str) -> None:
        super().__init__("", path)
        self._path = path

    def get_private_key(self, key_name: str, metadata: Mapping[str, str]) -> bytes:
        """Raises NotReadable: this machine has no readable file there."""
        try:
            return Path(self._path).read_bytes()
        except OSError as failure:
            raise NotReadable(
                f"cryptoPrivateKeyPath is {self._path}, which cannot be read on {gethostname()}: {failure.strerror}"
            ) from failure
