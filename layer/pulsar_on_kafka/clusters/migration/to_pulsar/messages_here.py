"""Reads the messages of one partition here, as any reader gets them: committed, decompressed, whole, without
duplicates."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from pulsar_on_kafka.base import errors
from pulsar_on_kafka.base.deadline import Deadline, wait_until
from pulsar_on_kafka.broker.metadata.topics import Topic
from pulsar_on_kafka.broker.node.node import Node
from pulsar_on_kafka.broker.subscriptions.records.consumer_inbox import Endpoint
from pulsar_on_kafka.broker.subscriptions.records.reader_thread import Tail
from pulsar_on_kafka.client.values.encryption import consumer_encryption
from pulsar_on_kafka.client.values.enums import ConsumerCryptoFailureAction
from pulsar_on_kafka.client.values.message import Message, ReceivedMessage
from pulsar_on_kafka.crypto.keys import CryptoKeyReader

_QUEUE: Final = 1_000
_CLOSE_S: Final = 30.0


class PartitionMessages:
    """The messages of one partition, for one thread. Memory: see `Tail`, with an inbox of 1,000 messages."""

    def __init__(self, node: Node, topic: Topic, partition: int, private_key: str = "") -> None:
        """`private_key`: a file (PEM); without it encrypted messages stay encrypted."""
        self._node = node
        self._topic = topic
        self._partition = partition
        self._private_key = private_key
        self.open_transaction: int | None = None
        """After the reading: the offset of the first message of an open transaction, at which it ended."""

    def between(self, start: int, end: int, deadline: Deadline) -> Iterator[Message]:
        """The messages whose (last) records are in [start, end), in order.

        Raises:
            StoreError: the cluster cannot be read now.
            DeadlineExceeded: it takes too long.
            TopicIncarnationChanged: the topic was deleted.
        """
        self.open_transaction = None
        if start >= end:
            return
        with self._tail(start) as (endpoint, tail):
            ends = {self._partition: end}
            while True:
                message = endpoint.take_now()
                if message is None:
                    if not self._wait(tail, ends, deadline):
                        break
                    message = endpoint.take(deadline)
                if message.offset >= end:
                    return
                assert isinstance(message, Message)  # noqa: S101 - the endpoint's delivery type
                yield message
            waits_from = tail.waits_from(self._partition)
            if waits_from is not None and waits_from < end:
                self.open_transaction = waits_from

    def _wait(self, tail: Tail, ends: dict[int, int], deadline: Deadline) -> bool:
        """Waits for a message; False at the end."""
        since_s = self._node.clock.monotonic()

        def happened() -> bool:
            return tail.failure is not None or tail.has_messages_at_hand() or tail.has_reached(ends, since_s)

        if not wait_until(happened, deadline):
            raise errors.DeadlineExceeded(f"{self._topic.name} partition {self._partition} was not read in time")
        if tail.failure is not None:
            raise tail.failure
        return tail.has_messages_at_hand()

    @contextmanager
    def _tail(self, start: int) -> Iterator[tuple[Endpoint, Tail]]:
        key = CryptoKeyReader("", self._private_key) if self._private_key else None
        endpoint = Endpoint(
            f"export-{secrets.token_hex(5)}",
            _QUEUE,
            delivery_type=ReceivedMessage,
            decryptor=consumer_encryption(key, ConsumerCryptoFailureAction.CONSUME),
        )
        tail = self._node.readers.open_tail(self._topic, {self._partition: start}, endpoint)
        try:
            yield endpoint, tail
        finally:
            self._node.readers.close_tail(tail, Deadline.after(_CLOSE_S))
