"""Copies of messages (dead letters, retry letters) keep the encryption of their messages, and have headers of their
own.

Ours beyond the official clients.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from pulsar_on_kafka.client.values.message import Message
from pulsar_on_kafka.crypto.encryptor import TAG_BYTES, Produce
from pulsar_on_kafka.kafka.records import headers_of
from pulsar_on_kafka.mapping.records.message_record import encryption_info
from pulsar_on_kafka.mapping.records.record_headers import BATCH, ENCRYPTION

_KEPT: Final = (ENCRYPTION, BATCH)


class LetterSealing:
    """Sealing keeps a copy readable for those who could read its message, and for nobody else.

    What the consumer decrypted is encrypted again with the data key that came with it, so no public key is needed; what
    it could not decrypt is copied as it is. What was in clear stays so. Thread-safe.
    """

    def __init__(self) -> None:
        self._copied = threading.local()

    @contextmanager
    def like(self, message: Message, *headers: tuple[str, bytes]) -> Iterator[None]:
        """What this thread sends in here is a copy of `message`, and has these headers besides."""
        self._copied.message = message
        self._copied.headers = headers
        try:
            yield
        finally:
            self._copied.message = None
            self._copied.headers = ()

    def over(self, produce: Produce) -> Produce:
        """librdkafka's `produce` for copies: each gets the encryption of its message, and headers of its own."""

        def produce_sealed(
            topic: str, value: bytes | None, key: Any, partition: int, callback: Any, alias: Any, timestamp: int,
            headers: list[tuple[str, Any]],
        ) -> None:  # fmt: skip
            message = getattr(self._copied, "message", None)
            headers = [*headers, *getattr(self._copied, "headers", ())]
            if value is not None and message is not None:
                value, more = _sealed(message, value)
                headers += more
            produce(topic, value, key, partition, callback, alias, timestamp, headers)

        return produce_sealed

    def overhead_bytes(self) -> int:
        """Of the copy that this thread makes now."""
        message = getattr(self._copied, "message", None)
        headers = [] if message is None else headers_of(message.record) or []
        sealed = sum(TAG_BYTES + len(name) + len(value or b"") for name, value in headers if name == ENCRYPTION)
        return sealed + sum(len(name) + len(value) for name, value in getattr(self._copied, "headers", ()))


def _sealed(message: Message, value: bytes) -> tuple[bytes, list[tuple[str, Any]]]:
    context = message.encryption_context()
    if context is None:
        return value, []
    headers = headers_of(message.record) or []
    if context.is_decryption_failed():
        return value, [header for header in headers if header[0] in _KEPT]
    info = encryption_info(headers)
    assert info is not None  # noqa: S101 - there is a context
    ciphertext, header = message.feed.endpoint.unsealing.seal_again(value, info)
    return ciphertext, [(ENCRYPTION, header)]
