"""By which hashing scheme a client chooses partitions is known by the keys that come to its producer of one of them."""

from __future__ import annotations

import math
from typing import Final

from pulsar_on_kafka_mapping.routing.key_hashes import KeyHash, partition_for_key

_SURE_BITS: Final = 16
"""Another scheme than the client's agrees with all of its keys once in 2**16 times."""
_MAX_KEYED: Final = 1_000
"""With so few keys in so many messages it stays unknown."""


class KeyScheme:
    """The scheme of one producer, as far as its keys tell. Not thread-safe. Memory: at most 16 keys.

    A client with a router of its own agrees with none in the end, and nothing is said of it.
    """

    def __init__(self, partition: int, partitions: int) -> None:
        """The producer is of this one of so many partitions, 2 or more."""
        self._partition = partition
        self._partitions = partitions
        self._enough = math.ceil(_SURE_BITS / math.log2(partitions))
        self._keys: set[bytes] = set()
        self._agree = list(KeyHash)
        self._left = _MAX_KEYED
        self.is_over = False
        """Nothing more is to be known of it."""

    def saw(self, key: bytes) -> KeyHash | None:
        """A message with this key came, as its client says it. Gives the scheme, once, when that is known."""
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
