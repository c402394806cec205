"""Chunked messages of one partition, put together from their chunks. No I/O, no clock of its own.

A message that does not fit into one record is several, with one uuid (`mapping.records.message_record.ChunkInfo`). Its
place is its last chunk's: there it becomes one `WholeMessage`, which is handed out, refused and delivered again like
any other record. It is acknowledged by acknowledging all its chunks at once, so that no crash leaves a part of it.
Source: ConsumerImpl::processMessageChunk of the official client, SharedConsumerAssignor of the broker.

Differs from Pulsar: a message that is not complete when there are too many of such gives up its payload only; it is
read again when its last chunk has come. A chunk whose beginning is not there is acknowledged on every subscription, as
Pulsar's brokers do on Shared ones.
"""

from __future__ import annotations

import logging
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from pulsar_on_kafka.base.errors import LayerError, StoreError
from pulsar_on_kafka.broker.subscriptions.records.compressed import uncompressed
from pulsar_on_kafka.kafka.records import KafkaRecord, headers_of, packed_headers_of
from pulsar_on_kafka_mapping.errors import CorruptRecord
from pulsar_on_kafka_mapping.records.message_record import ChunkInfo, Headers
from pulsar_on_kafka_mapping.records.message_record import chunk_info as chunk_info_of
from pulsar_on_kafka_mapping.records.record_headers import CHUNK

_log = logging.getLogger(__name__)


def chunk_info(record: Any) -> ChunkInfo | None:
    """Returns the chunk information of a record; None if it is no chunk.

    Raises:
        CorruptRecord: its headers cannot be read.
    """
    if not any(name == CHUNK for name, _ in headers_of(record) or ()):
        return None
    return chunk_info_of(headers_of(record))


class WholeMessage:
    """A chunked message as one record: at its last chunk's offset, with that one's key, headers and time.

    Its payload may be absent (`present`), and is to be read again then. Memory: the payload, once.
    """

    __slots__ = ("_chunks", "_last", "_value", "decrypted", "offsets", "total_bytes")

    def __init__(self, offsets: Sequence[int], total_bytes: int, last: Any, chunks: Sequence[Any] | None) -> None:
        self.offsets = offsets
        """The offsets of its chunks, in their order."""
        self.total_bytes = total_bytes
        self._last = last
        self._chunks: Sequence[KafkaRecord] | None = chunks
        self._value: bytes | None = None
        self.decrypted = False

    @property
    def present(self) -> bool:
        return self._chunks is not None or self._value is not None

    def chunks(self) -> Sequence[KafkaRecord]:
        return self._chunks or ()

    def with_chunks(self, chunks: Sequence[Any], *, decrypted: bool = False) -> WholeMessage:
        """Returns the same message made of these chunks."""
        made = WholeMessage(self.offsets, self.total_bytes, self._last, chunks)
        made.decrypted = decrypted
        return made

    def check(self) -> None:
        """Make the payload of chunks that can be read. Raises CorruptRecord when they have another length than they
        say, or are not compressed as they say."""
        found = sum(len(chunk.value() or b"") for chunk in self.chunks())
        if found != self.total_bytes:
            raise CorruptRecord(f"{len(self.offsets)} chunks hold {found} bytes, expected {self.total_bytes}")
        self._value = uncompressed(self._last, self.value())

    def value(self) -> bytes:
        if self._value is None:
            self._value = b"".join([chunk.value() or b"" for chunk in self.chunks()])
            self._chunks = None
        return self._value

    def topic(self) -> str:
        return str(self._last.topic())

    def partition(self) -> int:
        return int(self._last.partition())

    def offset(self) -> int:
        return self.offsets[-1]

    def key(self) -> bytes | None:
        key: bytes | None = self._last.key()
        return key

    def headers(self) -> Headers | bytes | None:
        headers: Headers | bytes | None = packed_headers_of(self._last)
        return headers

    def timestamp(self) -> tuple[int, int]:
        timestamp: tuple[int, int] = self._last.timestamp()
        return timestamp

    def __len__(self) -> int:
        return self.total_bytes if self.present else len(self._last)


class ChunkRules(NamedTuple):
    """The rules of consumers for incomplete messages.

    `max_pending`: how many keep their payload (0: any number). `auto_ack_oldest`: those beyond that are acknowledged
    and lost. `expire_s`: a message of which the log has had no further chunk for so long is given up, that is
    acknowledged. Source: the official ConsumerConfiguration, whose expiry the Python client leaves at 60 s.
    """

    max_pending: int = 10
    auto_ack_oldest: bool = False
    expire_s: float = 60.0


def joint_rules(rules: Iterable[ChunkRules]) -> ChunkRules:
    """Returns the joint rules of several consumers of one partition: nothing is lost unless all of them allow it."""
    every = list(rules)
    if not every:
        return ChunkRules()
    limits = [each.max_pending for each in every]
    return ChunkRules(
        0 if 0 in limits else sum(limits),
        all(each.auto_ack_oldest for each in every),
        max(each.expire_s for each in every),
    )


MAX_PENDING_BYTES: Final = 64 * 1024 * 1024
"""Payload kept for incomplete messages of a partition, besides that of the newest one."""
MAX_INDEX_BYTES: Final = 64 * 1024 * 1024
"""Memory for the places of incomplete messages' chunks, by estimate: some 90,000 messages. Beyond it reading stops."""
_MESSAGE_BYTES: Final = 600
_CHUNK_BYTES: Final = 120
_LOOK_RETRY_INTERVAL_S: Final = 1.0
MAX_REREAD_BYTES: Final = 32 * 1024 * 1024


class Known(NamedTuple):
    """A complete message that is not acknowledged: its chunks' offsets in their order, and its size."""

    offsets: Sequence[int]
    total_bytes: int


class HeldMessages(NamedTuple):
    """A consumer's messages: how many each entry has, and those that came in chunks by their last one's offset."""

    messages: Mapping[int, int]
    chunked: Mapping[int, Known]


class TooManyIncomplete(LayerError):
    """The chunks of one partition that may still become messages are more than memory is there for. Any of them may be
    completed by the next record, so none is given up."""


class IncompleteChunks(NamedTuple):
    """Chunks that will never be a message, and why."""

    uuid: str
    offsets: list[int]
    why: str


class _Look(NamedTuple):
    """The log ended at `end` at the moment `at_s`."""

    at_s: float
    end: int


class _Pending:
    """A message some of whose chunks were met."""

    __slots__ = ("chunks", "found", "payload_bytes", "total_bytes", "touched_s")

    def __init__(self, info: ChunkInfo) -> None:
        self.chunks = info.chunks
        self.total_bytes = info.total_bytes
        self.found: dict[int, tuple[int, Any]] = {}
        """Chunk id to offset and record."""
        self.payload_bytes: int | None = 0
        """None once the payload was given up."""
        self.touched_s = 0.0

    def add(self, chunk_id: int, offset: int, record: Any, now_s: float) -> int:
        """Adds a chunk; returns how many bytes more are kept."""
        self.touched_s = now_s
        _, before = self.found.get(chunk_id, (offset, None))
        self.found[chunk_id] = (offset, record)
        if self.payload_bytes is None:
            if len(self.found) < self.chunks:
                self.found[chunk_id] = (offset, None)
            return 0
        more = _size(record) - _size(before)
        self.payload_bytes += more
        return more

    def drop_payload(self) -> int:
        """Drops the payload; returns how many bytes less are kept."""
        freed, self.payload_bytes = self.payload_bytes or 0, None
        self.found = {chunk_id: (offset, None) for chunk_id, (offset, _) in self.found.items()}
        return freed

    def offsets(self) -> list[int]:
        return [self.found[chunk_id][0] for chunk_id in sorted(self.found)]

    def index_bytes(self) -> int:
        """An estimate of the memory for everything but the payload."""
        return _MESSAGE_BYTES + len(self.found) * _CHUNK_BYTES

    def whole(self) -> WholeMessage:
        records = [self.found[chunk_id][1] for chunk_id in range(self.chunks)]
        chunks = None if self.payload_bytes is None else records
        return WholeMessage(array("Q", self.offsets()), self.total_bytes, records[-1], chunks)


class ChunkAssembly:
    """Chunked messages of one partition: those that are incomplete, and those that are complete and not acknowledged.

    Memory: of incomplete messages as `ChunkRules` and MAX_PENDING_BYTES have it, and never more than one message above
    that, and their index within MAX_INDEX_BYTES; an offset for each chunk of every message that is not acknowledged.
    """

    def __init__(self, rules: Callable[[], ChunkRules] = ChunkRules, now_s: Callable[[], float] = lambda: 0.0) -> None:
        """`now_s` is the monotonic clock's."""
        self.rules = rules
        self.now_s = now_s
        self.in_order = True
        """Chunks come by ascending offset and none is left out, so that one whose beginning is not there, or that
        follows a gap, is useless. Otherwise they may come in any order."""
        self._pending: dict[str, _Pending] = {}
        """By uuid, oldest first."""
        self._with_payload: dict[str, None] = {}
        """Those of them whose payload is kept, oldest first."""
        self.pending_bytes = 0
        """Payload that is kept for incomplete messages."""
        self._index_bytes = 0
        self._look_s = 0.0
        """No pending message expires before."""
        self._look: _Look | None = None
        """The last look at the log's end, until everything below that end is read."""
        self.known: dict[int, Known] = {}
        """By last offset: complete messages that are not acknowledged."""
        self.given_up: list[IncompleteChunks] = []
        """Chunks that the caller acknowledges (`take_given_up`)."""
        self.given_up_chunks = 0
        """All of them so far."""

    def __bool__(self) -> bool:
        return bool(self.known or self._pending)

    @property
    def pending(self) -> int:
        return len(self._pending)

    def add(self, offset: int, info: ChunkInfo, record: Any) -> WholeMessage | None:
        """Take a chunk; gives the message that is complete with it, which may be another one than its last one when
        they are not in order.

        Raises:
            TooManyIncomplete: there is no memory for it; nothing was changed.
        """
        self._check_index(info)
        uuid, chunk_id, in_order = info.uuid, info.chunk_id, self.in_order
        pending = self._pending.get(uuid)
        useless = in_order
        if pending is not None and (info.chunks, info.total_bytes) != (pending.chunks, pending.total_bytes):
            self._give_up_pending(uuid, f"its chunks disagree: {pending.chunks} or {info.chunks} of them")
            pending, useless = None, True
        if pending is not None:
            before = pending.found.get(chunk_id)
            if before is None:
                if in_order and chunk_id != len(pending.found):
                    self._give_up_pending(uuid, f"chunk {chunk_id} follows after {len(pending.found) - 1}")
                    pending = None
            elif before[0] != offset:
                if chunk_id or not in_order:
                    self._give_up(uuid, [offset], f"chunk {chunk_id} is there already")
                    return None
                self._give_up_pending(uuid, "its producer began again")
                pending = None
        if pending is None:
            if chunk_id and useless:
                self._give_up(uuid, [offset], f"chunk {chunk_id} of {info.chunks} without its beginning")
                return None
            pending = self._begin(info)
        index_bytes = pending.index_bytes()
        self.pending_bytes += pending.add(chunk_id, offset, record, self.now_s())
        self._index_bytes += pending.index_bytes() - index_bytes
        if len(pending.found) < pending.chunks:
            self._keep_bounds(uuid)
            return None
        self._forget(uuid)
        whole = pending.whole()
        self.known[whole.offset()] = Known(whole.offsets, whole.total_bytes)
        return whole

    def _begin(self, info: ChunkInfo) -> _Pending:
        due_s = self.now_s() + self.rules().expire_s
        self._look_s = min(self._look_s, due_s) if self._pending else due_s
        pending = self._pending[info.uuid] = _Pending(info)
        self._with_payload[info.uuid] = None
        self._index_bytes += pending.index_bytes()
        return pending

    def _check_index(self, info: ChunkInfo) -> None:
        if self._index_bytes < MAX_INDEX_BYTES or info.chunks == 1:
            return
        pending = self._pending.get(info.uuid)
        if pending is None or len(pending.found) + 1 < pending.chunks:
            oldest = next(iter(self._pending))
            raise TooManyIncomplete(
                f"{len(self._pending)} chunked messages are incomplete, and their index takes {self._index_bytes} "
                f"bytes, expected at most {MAX_INDEX_BYTES}; the oldest one is {oldest!r:.100}: skip or seek the "
                "subscription past those that no producer will complete"
            )

    def _keep_bounds(self, newest: str) -> None:
        rules = self.rules()
        count = len(self._with_payload)
        most = rules.max_pending or count
        if count <= most and self.pending_bytes <= MAX_PENDING_BYTES:
            return
        for uuid in list(self._with_payload):
            if count <= most and self.pending_bytes <= MAX_PENDING_BYTES:
                break
            if uuid == newest:
                continue
            if rules.auto_ack_oldest and count > most:
                self._give_up_pending(uuid, f"more than {most} messages are incomplete")
            else:
                self.pending_bytes -= self._pending[uuid].drop_payload()
                del self._with_payload[uuid]
            count -= 1

    def expire(self, read_to: int, log_end: Callable[[], int]) -> bool:
        """Give up messages of which the log had no further chunk for too long; True when there was any.

        Time in which this process does not read says nothing of the log. So the log's end is looked at when a message
        is due, and the message is given up once everything below that end is read. `read_to`: everything below is.
        `log_end` asks Kafka; it may raise StoreError, and is called again in a second then.
        """
        now_s = self.now_s()
        if not self._pending or now_s < self._look_s:
            return False
        if self._look is None:
            try:
                self._look = _Look(now_s, log_end())
            except StoreError as failure:
                _log.info("incomplete messages are kept, the log's end is not known: %s", failure)
                self._look_s = now_s + _LOOK_RETRY_INTERVAL_S
                return False
        if read_to < self._look.end:
            return False
        looked_s, expire_s = self._look.at_s, self.rules().expire_s
        self._look = None
        late = [uuid for uuid, pending in self._pending.items() if looked_s - pending.touched_s >= expire_s]
        for uuid in late:
            pending = self._pending[uuid]
            self._give_up_pending(uuid, f"{len(pending.found)} of {pending.chunks} chunks came, none for {expire_s} s")
        self._look_s = min((pending.touched_s for pending in self._pending.values()), default=0.0) + expire_s
        return bool(late)

    def _give_up_pending(self, uuid: str, why: str) -> None:
        self._give_up(uuid, self._forget(uuid).offsets(), why)

    def _give_up(self, uuid: str, offsets: list[int], why: str) -> None:
        self.given_up.append(IncompleteChunks(uuid, offsets, why))
        self.given_up_chunks += len(offsets)

    def _forget(self, uuid: str) -> _Pending:
        pending = self._pending.pop(uuid)
        self._with_payload.pop(uuid, None)
        self.pending_bytes -= pending.payload_bytes or 0
        self._index_bytes -= pending.index_bytes()
        return pending

    def take_given_up(self, cursor: object) -> list[int]:
        """The offsets of what was given up since the last call, logged; a cursor acknowledges them."""
        given_up, self.given_up = self.given_up, []
        for uuid, offsets, why in given_up:
            _log.warning("cursor=%s chunked message %s is given up, offsets %s: %s", cursor, uuid, offsets, why)
        return [offset for each in given_up for offset in each.offsets]

    def forget_pending(self) -> None:
        self._pending.clear()
        self._with_payload.clear()
        self.pending_bytes = self._index_bytes = 0

    def clear(self) -> None:
        """Forgets incomplete and complete messages (seek)."""
        self.forget_pending()
        self.known.clear()

    def spread(self, offsets: Iterable[int]) -> Iterator[int]:
        """Yields the offsets of these entries, for chunked ones those of all chunks."""
        known = self.known
        for offset in offsets:
            whole = known.get(offset)
            if whole is None:
                yield offset
            else:
                yield from whole.offsets

    def acknowledged(self, offsets: Iterable[int]) -> list[int]:
        """Returns `spread` of these entries, and forgets them."""
        known = self.known
        found: list[int] = []
        for offset in offsets:
            whole = known.pop(offset, None)
            if whole is None:
                found.append(offset)
            else:
                found += whole.offsets
        return found

    def unacknowledged_below(self, end: int) -> list[int]:
        """The offsets below `end`, ascending, of chunks whose message ends at or after it: a cumulative acknowledgement
        up to there is not for them. What ends before is known no longer."""
        for offset in [offset for offset in self.known if offset < end]:
            del self.known[offset]
        return self.ending_behind(end - 1)

    def ending_behind(self, upto: int) -> list[int]:
        """The offsets up to `upto`, ascending, of chunks whose message ends behind it."""
        later = [whole.offsets for last, whole in self.known.items() if last > upto]
        later += [pending.offsets() for pending in self._pending.values()]
        return sorted({offset for offsets in later for offset in offsets if offset <= upto})

    def affordable(self, offsets: Sequence[int]) -> Sequence[int]:
        """The first of these entries: chunked ones up to 32 MiB together, and one at least."""
        size = 0
        for number, offset in enumerate(offsets):
            whole = self.known.get(offset)
            if whole is None:
                continue
            if size and size + whole.total_bytes > MAX_REREAD_BYTES:
                return offsets[:number]
            size += max(1, whole.total_bytes)
        return offsets

    def put_together(
        self, entries: Iterable[int], records: Mapping[int, Any], gone: Iterable[int]
    ) -> tuple[dict[int, Any], list[int]]:
        """Returns the records of these entries, made of `records` read again; and the entries of which a part is
        `gone`."""
        lost = frozenset(gone)
        found: dict[int, Any] = {}
        lost_entries: list[int] = []
        for entry in entries:
            whole = self.known.get(entry)
            if whole is None:
                if entry in records:
                    found[entry] = records[entry]
                elif entry in lost:
                    lost_entries.append(entry)
            elif not lost.isdisjoint(whole.offsets):
                lost_entries.append(entry)
            elif all(offset in records for offset in whole.offsets):
                chunks = [records[offset] for offset in whole.offsets]
                found[entry] = WholeMessage(whole.offsets, whole.total_bytes, chunks[-1], chunks)
        return found, lost_entries


def _size(record: Any) -> int:
    return 0 if record is None else len(record)
