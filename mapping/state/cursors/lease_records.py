"""An owner leases messages, by values of the `deliveries` state topic, to processes that do not own their partition.

    record  = format u8 | kind u8 | fields, see `encode`
    text    = length varint | UTF-8          bitmap = see `bitmaps`          number = varint
    entries = count | (redeliveries, bitmap of offsets)*                   one message, one record each
            | count | (offset, redeliveries, messages, ack set, chunks)*   batch entries, and messages in chunks
    ack set = batch size | bits: length, bytes          nothing but a size of 0 where nothing is acknowledged
    chunks  = count | offset*, bytes                    nothing but a count of 0 for a message in one record

The owner of a partition writes TAKE_OVER, LEASE, RECALL and SAVED with the partition in the key (`DeliveryKey`),
WELCOME and EXPEL for all its partitions; members write REPORTs, for all partitions and owners. Requests to a cursor's
owner lie in the same topic and are JSON objects (`cursor_requests`), which begin with another byte. Pure: no I/O.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

from pyroaring import BitMap64

from pulsar_on_kafka.mapping.encoding.varint import Reader, write_varint
from pulsar_on_kafka.mapping.errors import CorruptRecord
from pulsar_on_kafka.mapping.state.codecs.bitmaps import read_bitmap, write_bitmap
from pulsar_on_kafka.mapping.state.cursors.cursor_requests import CursorLife

FORMAT: Final = 1
OWNER_BYTES: Final = 16
_FORMATS: Final = range(1, 32)
"""First bytes that are formats of these records: none of them begins a JSON object."""
_TAKE_OVER, _LEASE, _RECALL, _SAVED, _WELCOME, _EXPEL, _REPORT = range(1, 8)
_LEAVING, _SAVE = 1, 2


class MemberId(NamedTuple):
    """A member is one stay of a process with an owner: `client_id` is unique for its membership in the Kafka group, and
    the epoch grows when it gives up what it holds and begins anew."""

    client_id: str
    epoch: int


@dataclass(frozen=True, slots=True)
class LeasedEntry:
    """An entry is handed to a consumer elsewhere. `messages` counts what is unacknowledged of it, or its chunks.

    `acked` (batch size, bits) is what is not to be delivered of a batch entry; `chunks` are the offsets of a message in
    chunks, in their order, of `total_bytes`.
    """

    offset: int
    redeliveries: int = 0
    messages: int = 1
    acked: tuple[int, int] | None = None
    chunks: tuple[int, ...] = ()
    total_bytes: int = 0

    @property
    def is_plain(self) -> bool:
        return self.messages == 1 and self.acked is None and not self.chunks


@dataclass(frozen=True, slots=True)
class TakeOver:
    """An owner takes over: from here on leases of lower versions are void, and every member answers with what it holds
    (`Report.answers`)."""

    life: CursorLife
    owner: bytes
    version: int


@dataclass(frozen=True, slots=True)
class Lease:
    """These entries are consumer `consumer`'s of this member. `number` counts what one owner wrote to it, from 1.
    `heard`: reports in this log from there on the owner has not heard; what they acknowledge may be among these."""

    owner: bytes
    version: int
    to: MemberId
    number: int
    consumer: int
    heard: int
    entries: tuple[LeasedEntry, ...]


@dataclass(frozen=True, slots=True)
class Recall:
    """Nothing of the partition is this member's any more; it drops what was not received. Recalls are numbered as
    leases are."""

    owner: bytes
    version: int
    to: MemberId
    number: int


@dataclass(frozen=True, slots=True)
class Saved:
    """A durable save of the partition's cursor holds what reports in the offsets [since, upto) of this log acknowledge.
    What stands before that this owner has not heard."""

    owner: bytes
    version: int
    upto: int
    since: int = 0


@dataclass(frozen=True, slots=True)
class Welcome:
    """The owner knows the member from now on."""

    owner: bytes
    to: MemberId


@dataclass(frozen=True, slots=True)
class Expel:
    """The owner has given to others what the member holds."""

    owner: bytes
    to: MemberId
    reason: str


@dataclass(frozen=True, slots=True)
class RemoteConsumer:
    """A process announces a consumer of its own. `limits` is how many messages each owner may lease to it in all,
    counted from the member's epoch on. `sticky_ranges` and `allow_out_of_order` are those of Key_Shared.
    `max_redeliver_count` is that of its dead letter policy, if it has one. `delivered` and `unacked` are for
    operators."""

    number: int
    name: str
    priority: int = 0
    max_unacked: int = 50_000
    sticky_ranges: tuple[tuple[int, int], ...] | None = None
    allow_out_of_order: bool = False
    limits: Mapping[bytes, int] = field(default_factory=dict)
    delivered: int = 0
    unacked: int = 0
    max_redeliver_count: int | None = None


class Nack(NamedTuple):
    """An entry is to be delivered again `delay_ms` after this was written. `redeliveries` is what its holder saw, so
    that a refusal that stands twice in the log counts once."""

    consumer: int
    offset: int
    delay_ms: int
    redeliveries: int = 0


@dataclass(frozen=True, slots=True)
class Held:
    """A member tells a new owner what it holds of a partition: offsets by (consumer, redeliveries), and of batch
    entries among them how many messages are left. `chunked` has those that came in chunks: by the last one's offset all
    of their offsets, in their order, and the size in bytes."""

    version: int
    offsets: Mapping[tuple[int, int], BitMap64]
    messages: Mapping[int, int] = field(default_factory=dict)
    chunked: Mapping[int, tuple[tuple[int, ...], int]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Report:
    """A report holds all that a member has to say. `sequence` grows by one within an epoch; one that is not above the
    last changes nothing but by its acknowledgements, which count whoever sends them, how late ever.

    `heard`: the last number from each owner. `leaving`: it comes to no more. `save`: it waits for a save.
    """

    life: CursorLife
    member: MemberId
    sequence: int
    consumers: tuple[RemoteConsumer, ...] = ()
    heard: Mapping[bytes, int] = field(default_factory=dict)
    acks: Mapping[int, BitMap64] = field(default_factory=dict)
    batch_acks: Mapping[int, Mapping[int, tuple[int, int]]] = field(default_factory=dict)
    """By partition and offset: batch size, acknowledged bits."""
    nacks: Mapping[int, Sequence[Nack]] = field(default_factory=dict)
    answers: Mapping[int, Held] = field(default_factory=dict)
    leaving: bool = False
    save: bool = False


LeaseRecord = TakeOver | Lease | Recall | Saved | Welcome | Expel | Report


def encode(record: LeaseRecord) -> bytes:
    """The value of `record`."""
    out = bytearray([FORMAT])
    match record:
        case TakeOver(life, owner, version):
            out.append(_TAKE_OVER)
            _write_life(out, life)
            out += owner
            write_varint(out, version)
        case Lease(owner, version, to, number, consumer, heard, entries):
            out.append(_LEASE)
            _write_numbered(out, owner, version, to, number)
            write_varint(out, consumer)
            write_varint(out, heard)
            _write_entries(out, entries)
        case Recall(owner, version, to, number):
            out.append(_RECALL)
            _write_numbered(out, owner, version, to, number)
        case Saved(owner, version, upto, since):
            out.append(_SAVED)
            out += owner
            for number in (version, upto, since):
                write_varint(out, number)
        case Welcome(owner, to):
            out.append(_WELCOME)
            out += owner
            _write_member(out, to)
        case Expel(owner, to, reason):
            out.append(_EXPEL)
            out += owner
            _write_member(out, to)
            _write_text(out, reason)
        case Report():
            out.append(_REPORT)
            _write_report(out, record)
    return bytes(out)


def decode(value: bytes, only_for: str | None = None, *, reports: bool = False) -> LeaseRecord | None:
    """None for a value of another kind, and for a kind of record that a later version has among these.

    With `only_for` (a client id) also for what is not for that member, reports among it unless they are wanted: that
    costs little.

    Raises:
        CorruptRecord: it says that it is one of these, and cannot be read; also for another format than this version's.
    """
    if not is_lease_record(value):
        return None
    if value[0] != FORMAT:
        raise CorruptRecord(f"lease record has format {value[0]}, this version reads {FORMAT}: a newer one is needed")
    kind = value[1] if len(value) > 1 else 0
    if kind not in _READERS:
        return None
    if only_for is not None and not (reports and kind == _REPORT) and not _is_for(only_for, kind, value):
        return None
    reader = _behind_kind(value)
    found = _READERS[kind](reader)
    reader.expect_end()
    return found


def is_lease_record(value: bytes) -> bool:
    """Whether it says that it is one of these, of this format or another."""
    return bool(value) and value[0] in _FORMATS


def concerns(value: bytes, client_id: str) -> bool:
    """Whether it says anything to this member, which owns nothing: it is no report, and no lease of somebody else's.
    True also for what cannot be read."""
    if len(value) < 2 or value[0] != FORMAT:
        return True
    try:
        return _is_for(client_id, value[1], value)
    except CorruptRecord:
        return True


def is_report(value: bytes) -> bool:
    """Whether it says that it is a Report."""
    return len(value) > 1 and value[0] == FORMAT and value[1] == _REPORT


def _behind_kind(value: bytes) -> Reader:
    reader = Reader(value, "lease record")
    reader.take(2)
    return reader


def _is_for(client_id: str, kind: int, value: bytes) -> bool:
    if kind not in (_LEASE, _RECALL):
        return kind != _REPORT
    reader = _behind_kind(value)
    reader.take(OWNER_BYTES)
    reader.varint()
    return _read_member(reader).client_id == client_id


# Parts ------------------------------------------------------------------------------------------------------------


def _write_text(out: bytearray, text: str) -> None:
    raw = text.encode()
    write_varint(out, len(raw))
    out += raw


def _read_text(reader: Reader) -> str:
    raw = reader.take(reader.varint())
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        raise CorruptRecord(f"{reader.what} holds {raw[:60]!r}, expected UTF-8") from error


def _write_life(out: bytearray, life: CursorLife) -> None:
    _write_text(out, life.topic_id)
    write_varint(out, life.topic_incarnation)
    write_varint(out, life.subscription_incarnation)


def _read_life(reader: Reader) -> CursorLife:
    return CursorLife(_read_text(reader), reader.varint(), reader.varint())


def _write_member(out: bytearray, member: MemberId) -> None:
    _write_text(out, member.client_id)
    write_varint(out, member.epoch)


def _read_member(reader: Reader) -> MemberId:
    return MemberId(_read_text(reader), reader.varint())


def _write_numbered(out: bytearray, owner: bytes, version: int, to: MemberId, number: int) -> None:
    out += owner
    write_varint(out, version)
    _write_member(out, to)
    write_varint(out, number)


def _read_numbered(reader: Reader) -> tuple[bytes, int, MemberId, int]:
    return reader.take(OWNER_BYTES), reader.varint(), _read_member(reader), reader.varint()


def _write_acks(out: bytearray, size: int, bits: int) -> None:
    write_varint(out, size)
    if size:
        raw = bits.to_bytes((bits.bit_length() + 7) // 8, "big")
        write_varint(out, len(raw))
        out += raw


def _read_acks(reader: Reader) -> tuple[int, int] | None:
    size = reader.varint()
    if not size:
        return None
    bits = int.from_bytes(reader.take(reader.varint()), "big")
    if bits.bit_length() > size:
        raise CorruptRecord(f"{reader.what}: an ack set is wider than its batch of {size}")
    return size, bits


def _write_entries(out: bytearray, entries: Sequence[LeasedEntry]) -> None:
    plain: dict[int, list[int]] = {}
    odd: list[LeasedEntry] = []
    for entry in entries:
        if entry.is_plain:
            plain.setdefault(entry.redeliveries, []).append(entry.offset)
        else:
            odd.append(entry)
    write_varint(out, len(plain))
    for redeliveries, offsets in sorted(plain.items()):
        write_varint(out, redeliveries)
        write_bitmap(out, BitMap64(offsets))
    write_varint(out, len(odd))
    for entry in odd:
        write_varint(out, entry.offset)
        write_varint(out, entry.redeliveries)
        write_varint(out, entry.messages)
        _write_acks(out, *(entry.acked or (0, 0)))
        write_varint(out, len(entry.chunks))
        for offset in entry.chunks:
            write_varint(out, offset)
        if entry.chunks:
            write_varint(out, entry.total_bytes)


def _read_entries(reader: Reader) -> tuple[LeasedEntry, ...]:
    """By ascending offset."""
    found: list[LeasedEntry] = []
    for _ in range(reader.count(2)):
        redeliveries = reader.varint()
        found += [LeasedEntry(offset, redeliveries) for offset in read_bitmap(reader)]
    for _ in range(reader.count(5)):
        offset, redeliveries, messages = reader.varint(), reader.varint(), reader.varint()
        acked = _read_acks(reader)
        chunks = tuple(reader.varint() for _ in range(reader.count(1)))
        total_bytes = reader.varint() if chunks else 0
        found.append(LeasedEntry(offset, redeliveries, messages, acked, chunks, total_bytes))
    return tuple(sorted(found, key=lambda entry: entry.offset))


def _write_numbers(out: bytearray, numbers: Mapping[bytes, int]) -> None:
    write_varint(out, len(numbers))
    for owner, number in numbers.items():
        out += owner
        write_varint(out, number)


def _read_numbers(reader: Reader) -> dict[bytes, int]:
    return {reader.take(OWNER_BYTES): reader.varint() for _ in range(reader.count(OWNER_BYTES + 1))}


def _write_consumer(out: bytearray, consumer: RemoteConsumer) -> None:
    write_varint(out, consumer.number)
    _write_text(out, consumer.name)
    ranges = consumer.sticky_ranges
    flags = (1 if ranges is not None else 0) | (2 if consumer.allow_out_of_order else 0)
    for number in (consumer.priority, consumer.max_unacked, flags, len(ranges or ())):
        write_varint(out, number)
    for first, last in ranges or ():
        write_varint(out, first)
        write_varint(out, last)
    _write_numbers(out, consumer.limits)
    write_varint(out, consumer.delivered)
    write_varint(out, consumer.unacked)
    write_varint(out, 0 if consumer.max_redeliver_count is None else consumer.max_redeliver_count + 1)


def _read_consumer(reader: Reader) -> RemoteConsumer:
    number, name = reader.varint(), _read_text(reader)
    priority, max_unacked, flags = reader.varint(), reader.varint(), reader.varint()
    ranges = tuple((reader.varint(), reader.varint()) for _ in range(reader.count(2)))
    limits = _read_numbers(reader)
    delivered, unacked, most = reader.varint(), reader.varint(), reader.varint()
    return RemoteConsumer(
        number, name, priority, max_unacked, ranges if flags & 1 else None, bool(flags & 2), limits, delivered, unacked,
        most - 1 if most else None,
    )  # fmt: skip


def _write_report(out: bytearray, report: Report) -> None:
    _write_life(out, report.life)
    _write_member(out, report.member)
    write_varint(out, report.sequence)
    write_varint(out, (_LEAVING if report.leaving else 0) | (_SAVE if report.save else 0))
    write_varint(out, len(report.consumers))
    for consumer in report.consumers:
        _write_consumer(out, consumer)
    _write_numbers(out, report.heard)
    write_varint(out, len(report.acks))
    for partition, offsets in report.acks.items():
        write_varint(out, partition)
        write_bitmap(out, offsets)
    write_varint(out, len(report.batch_acks))
    for partition, batches in report.batch_acks.items():
        write_varint(out, partition)
        write_varint(out, len(batches))
        for offset, (size, bits) in batches.items():
            write_varint(out, offset)
            _write_acks(out, size, bits)
    write_varint(out, len(report.nacks))
    for partition, nacks in report.nacks.items():
        write_varint(out, partition)
        write_varint(out, len(nacks))
        for nack in nacks:
            for number in nack:
                write_varint(out, number)
    write_varint(out, len(report.answers))
    for partition, held in report.answers.items():
        write_varint(out, partition)
        _write_held(out, held)
    _write_chunked(out, report.answers)


def _write_held(out: bytearray, held: Held) -> None:
    write_varint(out, held.version)
    write_varint(out, len(held.offsets))
    for (consumer, redeliveries), offsets in held.offsets.items():
        write_varint(out, consumer)
        write_varint(out, redeliveries)
        write_bitmap(out, offsets)
    write_varint(out, len(held.messages))
    for offset, messages in held.messages.items():
        write_varint(out, offset)
        write_varint(out, messages)


def _write_chunked(out: bytearray, answers: Mapping[int, Held]) -> None:
    """Behind everything else, and only where there is any: earlier versions knew nothing of it."""
    chunked = {partition: held.chunked for partition, held in answers.items() if held.chunked}
    if not chunked:
        return
    write_varint(out, len(chunked))
    for partition, messages in chunked.items():
        write_varint(out, partition)
        write_varint(out, len(messages))
        for offsets, total_bytes in messages.values():
            write_varint(out, len(offsets))
            for offset in offsets:
                write_varint(out, offset)
            write_varint(out, total_bytes)


def _read_chunked(reader: Reader) -> dict[int, dict[int, tuple[tuple[int, ...], int]]]:
    found: dict[int, dict[int, tuple[tuple[int, ...], int]]] = {}
    for _ in range(0 if reader.at_end else reader.count(2)):
        messages = found.setdefault(reader.varint(), {})
        for _ in range(reader.count(3)):
            offsets = tuple(reader.varint() for _ in range(reader.count(1)))
            if not offsets:
                raise CorruptRecord(f"{reader.what} has a message in chunks without any")
            messages[offsets[-1]] = (offsets, reader.varint())
    return found


def _read_held(reader: Reader) -> Held:
    version = reader.varint()
    offsets = {(reader.varint(), reader.varint()): read_bitmap(reader) for _ in range(reader.count(3))}
    return Held(version, offsets, {reader.varint(): reader.varint() for _ in range(reader.count(2))})


def _read_report(reader: Reader) -> Report:
    life, member, sequence, flags = _read_life(reader), _read_member(reader), reader.varint(), reader.varint()
    consumers = tuple(_read_consumer(reader) for _ in range(reader.count(8)))
    heard = _read_numbers(reader)
    acks = {reader.varint(): read_bitmap(reader) for _ in range(reader.count(2))}
    batch_acks: dict[int, dict[int, tuple[int, int]]] = {}
    for _ in range(reader.count(2)):
        batches = batch_acks.setdefault(reader.varint(), {})
        for _ in range(reader.count(2)):
            offset = reader.varint()
            batches[offset] = _read_acks(reader) or (0, 0)
    nacks: dict[int, tuple[Nack, ...]] = {}
    for _ in range(reader.count(2)):
        partition = reader.varint()
        nacks[partition] = tuple(
            Nack(reader.varint(), reader.varint(), reader.varint(), reader.varint()) for _ in range(reader.count(4))
        )
    answers = {reader.varint(): _read_held(reader) for _ in range(reader.count(4))}
    for partition, chunked in _read_chunked(reader).items():
        if partition in answers:
            answers[partition] = replace(answers[partition], chunked=chunked)
    return Report(
        life, member, sequence, consumers, heard, acks, batch_acks, nacks, answers, bool(flags & _LEAVING),
        bool(flags & _SAVE),
    )  # fmt: skip


_READERS: Final[Mapping[int, Callable[[Reader], LeaseRecord]]] = {
    _TAKE_OVER: lambda reader: TakeOver(_read_life(reader), reader.take(OWNER_BYTES), reader.varint()),
    _LEASE: lambda reader: Lease(*_read_numbered(reader), reader.varint(), reader.varint(), _read_entries(reader)),
    _RECALL: lambda reader: Recall(*_read_numbered(reader)),
    _SAVED: lambda reader: Saved(reader.take(OWNER_BYTES), reader.varint(), reader.varint(), reader.varint()),
    _WELCOME: lambda reader: Welcome(reader.take(OWNER_BYTES), _read_member(reader)),
    _EXPEL: lambda reader: Expel(reader.take(OWNER_BYTES), _read_member(reader), _read_text(reader)),
    _REPORT: _read_report,
}
