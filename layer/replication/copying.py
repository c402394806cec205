"""What of a record goes to another cluster, and what its copy says. Pure, but for the schema versions it asks for.

Source: Pulsar's `GeoPersistentReplicator`. Decision: mapping/decisions/0017.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from mapping.headers import (
    CHUNK,
    FENCE,
    MARKER,
    ORIGINAL_ID,
    PRODUCER,
    PUBLISH_TIME,
    REPLICATE_TO,
    REPLICATED_FROM,
    SCHEMA_VERSION,
    TXN,
)
from mapping.message_record import decode_headers
from mapping.original_position import original_suffix
from mapping.packed_headers import ALONE, unpack
from mapping.subscription_markers import is_carried

Headers = list[tuple[str, bytes | None]]

_CONCERNS_US: Final = frozenset(
    {MARKER, REPLICATED_FROM, REPLICATE_TO, SCHEMA_VERSION, FENCE, TXN, CHUNK, ORIGINAL_ID, PUBLISH_TIME}
)
_NOT_COPIED: Final = frozenset({FENCE, TXN, ORIGINAL_ID, PUBLISH_TIME})


class Copying:
    """Of one partition, by one owner of its replicator. `target_version` gives the target's version of a schema, by the
    header that names the source's; `chunk_met` is told before the first chunk is copied."""

    def __init__(
        self,
        origin: str,
        target: str,
        partition: int,
        incarnation: int,
        epoch: int,
        target_version: Callable[[bytes], bytes],
        chunk_met: Callable[[], None],
    ) -> None:
        self._target = target
        self._origin = (REPLICATED_FROM, origin.encode("utf-8"))
        self._suffix = original_suffix(partition, incarnation, epoch)
        self._target_version = target_version
        self._chunk_met = chunk_met

    def headers_of(self, record: Any) -> Headers | None:
        """Those of the copy; None for what is not copied: markers (but for those that clusters exchange), what comes
        from another cluster, and what its sender keeps from this one.

        Raises:
            CorruptRecord: the names of clusters that it shall get to cannot be read.
            LayerError: its schema is not to be had.
        """
        found = record.headers()
        if isinstance(found, bytes):  # nothing that decides whether it is copied
            headers = self._of_packed(found)
        else:
            copied = self._of_any(found or [])
            if copied is None:
                return None
            headers = copied
        return [
            *headers,
            self._origin,
            (ORIGINAL_ID, b"%d%b" % (record.offset(), self._suffix)),
            (PUBLISH_TIME, b"%d" % max(0, record.timestamp()[1])),
        ]

    def _of_packed(self, packed: bytes) -> Headers:
        if packed.startswith(ALONE):
            return [(PRODUCER, packed[len(ALONE) :])]
        return [self._copied(name, value) for name, value in unpack(packed) if name not in _NOT_COPIED]

    def _of_any(self, headers: Headers) -> Headers | None:
        ours = [name for name, _ in headers if name in _CONCERNS_US]
        if ours:
            if REPLICATED_FROM in ours or (MARKER in ours and not is_carried(headers)):
                return None
            if REPLICATE_TO in ours:
                wanted = decode_headers([each for each in headers if each[0] == REPLICATE_TO]).replicate_to
                if wanted is not None and self._target not in wanted:
                    return None
            if CHUNK in ours:
                self._chunk_met()
            return [self._copied(name, value) for name, value in headers if name not in _NOT_COPIED]
        return headers

    def _copied(self, name: str, value: bytes | None) -> tuple[str, bytes | None]:
        if name == SCHEMA_VERSION and value is not None:
            return name, self._target_version(value)
        return name, value
