"""Routing chooses the partition that a producer's message goes to."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable

from pulsar_on_kafka.broker.publishing.outgoing_message import OutgoingMessage
from pulsar_on_kafka.exceptions import UnknownError
from pulsar_on_kafka_mapping.routing.key_hashes import HASHES, KeyHash, base64_key

MessageRouter = Callable[[OutgoingMessage, int], int]


class Routing:
    """The routing of one producer chooses the partition of each message. Thread-safe.

    `fixed` is the partition that the producer was made for, when it was made for one.
    """

    def __init__(
        self,
        partitions: int,
        *,
        partitioned: bool,
        to_one: bool,
        router: MessageRouter | None,
        fixed: int | None,
        hashing: KeyHash = KeyHash.CRC32,
        first_keyed: Callable[[KeyHash], None] = lambda hashing: None,
    ) -> None:
        """`first_keyed` is called, at least once, when `hashing` begins to choose partitions."""
        self.partitions = partitions
        """The number of partitions; set anew when the topic has grown."""
        self.by_key = fixed is None
        # Officially not used for a non-partitioned topic; a producer of one partition has no choice.
        self.router = router if partitioned and fixed is None else None
        self.single = fixed
        """The partition of every message without a key; None when it changes from message to message."""
        if not partitioned:
            self.single = 0
        elif self.single is None and self.router is None and to_one:
            self.single = random.randrange(partitions)
        self._turn = itertools.count(random.randrange(partitions))
        self._hashing = hashing
        self._first_keyed = first_keyed
        self._hash = self._begin if partitioned else HASHES[hashing]

    def spread(self, key: bytes | None) -> int:
        """The partition of a message without the router."""
        if key is not None and self.by_key:
            return self._hash(key) % self.partitions
        return self.single if self.single is not None else next(self._turn) % self.partitions

    def spread_bytes(self, key: bytes) -> int:
        """The same of a key that is no text."""
        return self.spread(key if self._hashing is KeyHash.CRC32 else base64_key(key))

    def _begin(self, key: bytes) -> int:
        self._hash = hash_key = HASHES[self._hashing]
        self._first_keyed(self._hashing)
        return hash_key(key)

    def application_choice(self, message: OutgoingMessage) -> int:
        """The application's choice.

        Raises:
            TypeError: it is no int.
            UnknownError: there is no such partition.
        """
        assert self.router is not None  # noqa: S101 - the caller looked
        partition = self.router(message, self.partitions)
        if type(partition) is not int:
            raise TypeError(f"message_router gave {partition!r}, expected an int")
        if not 0 <= partition < self.partitions:
            raise UnknownError(f"message_router gave {partition}, expected 0 to {self.partitions - 1}")
        return partition
