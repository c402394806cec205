"""Finds the hashing scheme by which a client chooses partitions, from the keys of its producer of one partition."""

from __future__ import annotations

import math
from typing import Final

from pulsar_on_kafka_mapping.routing.key_hashes import KeyHash, partition_for_key

_SURE_BITS: Final = 16
"""A wrong scheme agrees with all keys once in 2**16 times."""
_MAX_KEYED: Final = 1_000
"""With so few keys in so many messages it stays unknown."""


class KeyScheme:
    """The scheme of one producer, as far as its keys show. Not thread-safe. Memory: at most 16 keys.

    A client with a custom router agrees with no scheme in the end, and its scheme stays unknown.
    """

    def __init__(self, partition: int, partitions: int) -> None:
        """`partition` is the producer's, of 2 or more `partitions`."""
        self._partition = partition
        self._partitions = partitions
        self._enough = math.ceil(_SURE_BITS / math.log2(partitions))
        self._keys: set[bytes] = set()
        self._agree = list(KeyHash)
        self._left = _MAX_KEYED
        self.is_over = False
        """The search has ended."""

    def saw(self, key: bytes) -> KeyHash | None:
        """Apply the key of a message. Returns the scheme, once, when it is known."""
        self._left -= 1
        self.is_over = not self._left
        if key in self._keys:
            return None
        self._keys.add(key)
        self._agree = [
            each for each in self._agree if partition_for_key(key, self._partitions, each) == self._partition
        ]
        if not self._agree:
            self.is_over = True
        elif len(self._keys) >= self._enough and len(self._agree) == 1:
            self.is_over = True
            return self._agree[0]
        elif len(self._keys) >= 2 * self._enough:
            self.is_over = True  # two schemes that agree on so many keys
        return None
