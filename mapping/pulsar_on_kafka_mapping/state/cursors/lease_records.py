"""An owner leases messages, by values of the `deliveries` state topic, to processes that do not own their partition.

    record  = format u8 | kind u8 | fields, see `_KINDS`
    text    = length varint | UTF-8          bitmap = see `BITMAP`          number = varint
    entries = count | (redeliveries, bitmap of offsets)*                   one message, one record each
            | count | (offset, redeliveries, messages, ack set, chunks)*   batch entries, and messages in chunks
    ack set = batch size | bits: length, bytes          nothing but a size of 0 where nothing is acknowledged
    chunks  = count | offset*, bytes                    nothing but a count of 0 for a message in one record

The owner of a partition writes TAKE_OVER, LEASE, RECALL and SAVED with the partition in the key (`DeliveryKey`),
WELCOME and EXPEL for all its partitions; members write REPORTs, for all partitions and owners. Where a subscription is
served on single partitions, all of them have a key of their partition's (`LeaseChannel`). Requests to a cursor's owner
lie in the same topic and are JSON objects (`cursor_requests`), which begin with another byte. Pure: no I/O.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple

from pyroaring import BitMap64

from pulsar_on_kafka_mapping.encoding.varint import ByteReader
from pulsar_on_kafka_mapping.errors import CorruptRecord
from pulsar_on_kafka_mapping.state.codecs.formats import expect_format
from pulsar_on_kafka_mapping.state.codecs.layouts import (
    BITMAP,
    TEXT,
    VARINT,
    Layout,
    as_other,
    ends_with,
    if_any,
    listed,
    raw,
    record,
    row,
    table,
)
from pulsar_on_kafka_mapping.state.cursors.cursor_requests import CursorLife
from pulsar_on_kafka_mapping.state.cursors.cursor_state import ACK_SET, REASONS

FORMAT: Final = 1
OWNER_BYTES: Final = 16
_FORMATS: Final = range(1, 32)
"""First bytes that are formats of these records: none of them begins a JSON object."""
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
    """Entries of a partition for the consumer `consumer` of this member. `number` counts the owner's records to it,
    from 1. `heard`: the offset in this log from which on the owner has not read reports, which may acknowledge some of
    these."""

    owner: bytes
    version: int
    to: MemberId
    number: int
    consumer: int
    heard: int
    entries: tuple[LeasedEntry, ...]
    reasons: Mapping[str, BitMap64] = field(default_factory=dict)
    """The reasons of negative acknowledgements of entries that the member is to dead-letter
    (`cursor_state.Deliveries`)."""


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
    """Reports that a durable save of the partition's cursor contains the acknowledgements of reports at the offsets
    [since, upto) of this log. The owner has not received earlier ones."""

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
    operators. A `draining` consumer accepts no more: the first report of that contains what it holds
    (`Report.answers`)."""

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
    draining: bool = False
    ordered_redelivery: bool = False


class Nack(NamedTuple):
    """An entry is to be delivered again `delay_ms` after this was written. `redeliveries` is what its holder saw, so
    that a refusal that stands twice in the log counts once."""

    consumer: int
    offset: int
    delay_ms: int
    redeliveries: int = 0


@dataclass(frozen=True, slots=True)
class Held:
    """A member's report to a new owner of its holdings of a partition: offsets by (consumer, redeliveries), and the
    numbers of remaining messages of batch entries among them. `chunked` has messages in chunks: by the last one's
    offset all of their offsets, in order, and the size in bytes."""

    version: int
    offsets: Mapping[tuple[int, int], BitMap64]
    messages: Mapping[int, int] = field(default_factory=dict)
    chunked: Mapping[int, tuple[tuple[int, ...], int]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Report:
    """A report holds the whole state of a member. `sequence` grows by one within an epoch. A report that is not above
    the last only counts by its acknowledgements, which hold from any sender, however late.

    `heard`: the last number from each owner. `leaving`: the member accepts no more. `save`: it waits for a save.
    `returned`: entries that consumers did not receive and give back, by partition and consumer: they wait behind an
    entry that was refused (ordered redelivery).
    """

    life: CursorLife
    member: MemberId
    sequence: int
    consumers: tuple[RemoteConsumer, ...] = ()
    heard: Mapping[bytes, int] = field(default_factory=dict)
    acks: Mapping[int, BitMap64] = field(default_factory=dict)
    batch_acks: Mapping[int, Mapping[int, tuple[int, int]]] = field(default_factory=dict)
    """Batch size and acknowledged bits, by partition and offset."""
    nacks: Mapping[int, Sequence[Nack]] = field(default_factory=dict)
    answers: Mapping[int, Held] = field(default_factory=dict)
    leaving: bool = False
    save: bool = False
    reasons: Mapping[int, Mapping[str, BitMap64]] = field(default_factory=dict)
    """By partition, the reasons of negative acknowledgements (`cursor_state.Deliveries`)."""
    returned: Mapping[int, Mapping[int, BitMap64]] = field(default_factory=dict)


LeaseRecord = TakeOver | Lease | Recall | Saved | Welcome | Expel | Report


# Parts ----------------------------------------------------------------------------------------------------------------

_LIFE: Final = record(CursorLife, topic_id=TEXT, topic_incarnation=VARINT, subscription_incarnation=VARINT)
_OWNER: Final = raw(OWNER_BYTES)
_MEMBER: Final = record(MemberId, client_id=TEXT, epoch=VARINT)
_NUMBERED: Final[Mapping[str, Layout[Any]]] = {"owner": _OWNER, "version": VARINT, "to": _MEMBER, "number": VARINT}
_OF_OWNERS: Final = table(_OWNER, VARINT, ordered=False)
_NACK: Final = record(Nack, consumer=VARINT, offset=VARINT, delay_ms=VARINT, redeliveries=VARINT)
_HELD: Final = record(
    Held,
    version=VARINT,
    offsets=table(row(VARINT, VARINT), BITMAP, ordered=False),
    messages=table(VARINT, VARINT, ordered=False),
)
_PLAIN: Final = table(VARINT, BITMAP)
_CHUNKS: Final = listed(VARINT)


def _write_odd(out: bytearray, entry: LeasedEntry) -> None:
    _ODD_HEAD.write(out, (entry.offset, entry.redeliveries, entry.messages, entry.acked or (0, 0), entry.chunks))
    if entry.chunks:
        VARINT.write(out, entry.total_bytes)


def _read_odd(reader: ByteReader) -> LeasedEntry:
    offset, redeliveries, messages, (size, bits), chunks = _ODD_HEAD.read(reader)
    acked = (size, bits) if size else None
    return LeasedEntry(offset, redeliveries, messages, acked, chunks, VARINT.read(reader) if chunks else 0)


_ODD_HEAD: Final = row(VARINT, VARINT, VARINT, ACK_SET, _CHUNKS)
_ODD: Final = listed(Layout(_write_odd, _read_odd, _ODD_HEAD.least))


MAX_LEASED: Final = 1_000_000
"""Messages in one lease; an owner leases no more than a consumer's inbox has room for."""


def _write_entries(out: bytearray, entries: Sequence[LeasedEntry]) -> None:
    plain: dict[int, list[int]] = {}
    odd: list[LeasedEntry] = []
    for entry in entries:
        if entry.is_plain:
            plain.setdefault(entry.redeliveries, []).append(entry.offset)
        else:
            odd.append(entry)
    _PLAIN.write(out, {redeliveries: BitMap64(offsets) for redeliveries, offsets in plain.items()})
    _ODD.write(out, tuple(odd))


def _read_entries(reader: ByteReader) -> tuple[LeasedEntry, ...]:
    """Entries by ascending offset, with a limit: a few bytes of a bitmap can name billions, which fit into no inbox."""
    plain = _PLAIN.read(reader)
    if (count := sum(map(len, plain.values()))) > MAX_LEASED:
        raise CorruptRecord(f"{reader.what} leases {count} messages, expected at most {MAX_LEASED}")
    found = [LeasedEntry(offset, redeliveries) for redeliveries, offsets in plain.items() for offset in offsets]
    return tuple(sorted([*found, *_ODD.read(reader)], key=lambda entry: entry.offset))


_RANGES, _OUT_OF_ORDER, _DRAINING, _ORDERED_REDELIVERY = 1, 2, 4, 8
"""Flags of a consumer. Earlier versions ignore the last two: they redeliver when the consumer has left, and out of
order."""


def _consumer_fields(of: RemoteConsumer) -> tuple[Any, ...]:
    ranges = of.sticky_ranges
    flags = (0 if ranges is None else _RANGES) | (_OUT_OF_ORDER if of.allow_out_of_order else 0)
    flags |= _DRAINING if of.draining else 0
    flags |= _ORDERED_REDELIVERY if of.ordered_redelivery else 0
    most = 0 if of.max_redeliver_count is None else of.max_redeliver_count + 1
    return (
        of.number, of.name, of.priority, of.max_unacked, flags, ranges or (), of.limits, of.delivered, of.unacked, most
    )  # fmt: skip


def _consumer(reported: tuple[Any, ...]) -> RemoteConsumer:
    number, name, priority, max_unacked, flags, ranges, limits, delivered, unacked, most = reported
    return RemoteConsumer(
        number, name, priority, max_unacked, ranges if flags & _RANGES else None, bool(flags & _OUT_OF_ORDER), limits,
        delivered, unacked, most - 1 if most else None, bool(flags & _DRAINING), bool(flags & _ORDERED_REDELIVERY),
    )  # fmt: skip


_CONSUMER: Final = as_other(
    row(
        VARINT, TEXT, VARINT, VARINT, VARINT, listed(row(VARINT, VARINT)), _OF_OWNERS, VARINT, VARINT, VARINT
    ), _consumer_fields, _consumer,
)  # fmt: skip


def _report_fields(report: Report) -> tuple[Any, ...]:
    flags = (_LEAVING if report.leaving else 0) | (_SAVE if report.save else 0)
    chunked = {partition: tuple(held.chunked.values()) for partition, held in report.answers.items() if held.chunked}
    return (
        report.life, report.member, report.sequence, flags, report.consumers, report.heard, report.acks,
        report.batch_acks, report.nacks, report.answers, (chunked, report.reasons, report.returned),
    )  # fmt: skip


def _report(reported: tuple[Any, ...]) -> Report:
    life, member, sequence, flags, consumers, received, acks, batch_acks, nacks, answers, at_end = reported
    chunked, reasons, returned = at_end
    for partition, messages in chunked.items():
        if not all(offsets for offsets, _ in messages):
            raise CorruptRecord("lease record has a message in chunks without any")
        if partition in answers:
            by_last = {offsets[-1]: (offsets, total_bytes) for offsets, total_bytes in messages}
            answers[partition] = replace(answers[partition], chunked=by_last)
    return Report(
        life, member, sequence, consumers, received, acks, batch_acks, nacks, answers, bool(flags & _LEAVING),
        bool(flags & _SAVE), reasons, returned,
    )  # fmt: skip


_NOTHING: Final[Mapping[Any, Any]] = {}
_REPORT_SAID: Final = row(
    _LIFE, _MEMBER, VARINT, VARINT, listed(_CONSUMER), _OF_OWNERS,
    table(VARINT, BITMAP, ordered=False),
    table(VARINT, table(VARINT, ACK_SET, ordered=False), ordered=False),
    table(VARINT, listed(_NACK), ordered=False),
    table(VARINT, _HELD, ordered=False),
    ends_with(
        (table(VARINT, listed(row(_CHUNKS, VARINT)), ordered=False), _NOTHING),
        (table(VARINT, REASONS, ordered=False), _NOTHING),
        (table(VARINT, table(VARINT, BITMAP, ordered=False), ordered=False), _NOTHING),
    ),
)  # fmt: skip

# Kinds ----------------------------------------------------------------------------------------------------------------

_LEASE, _RECALL, _REPORT = 2, 3, 7
_KINDS: Final[Mapping[int, tuple[type[LeaseRecord], Layout[Any]]]] = {
    1: (TakeOver, record(TakeOver, life=_LIFE, owner=_OWNER, version=VARINT)),
    _LEASE: (
        Lease,
        record(
            Lease,
            **_NUMBERED,
            consumer=VARINT,
            heard=VARINT,
            entries=Layout(_write_entries, _read_entries, 2),
            reasons=if_any(REASONS, _NOTHING),
        ),
    ),
    _RECALL: (Recall, record(Recall, **_NUMBERED)),
    4: (Saved, record(Saved, owner=_OWNER, version=VARINT, upto=VARINT, since=VARINT)),
    5: (Welcome, record(Welcome, owner=_OWNER, to=_MEMBER)),
    6: (Expel, record(Expel, owner=_OWNER, to=_MEMBER, reason=TEXT)),
    _REPORT: (Report, as_other(_REPORT_SAID, _report_fields, _report)),
}
_OF_ONE_PARTITION: Final = frozenset(n for n, (kind, _) in _KINDS.items() if kind not in (Welcome, Expel, Report))
_NUMBERS: Final[Mapping[type[LeaseRecord], int]] = {kind: number for number, (kind, _) in _KINDS.items()}


def encode(value: LeaseRecord) -> bytes:
    number = _NUMBERS[type(value)]
    out = bytearray((FORMAT, number))
    _KINDS[number][1].write(out, value)
    return bytes(out)


def decode(value: bytes, only_for: str | None = None, *, reports: bool = False) -> LeaseRecord | None:
    """The record; None for a value of another kind, and for a kind of record that a later version has among these.

    With `only_for` (a client id) also None for records of other members, and for reports unless they are requested:
    that costs little.

    Raises:
        CorruptRecord: it is marked as one of these, and cannot be read; also for another format than this version's.
    """
    if not is_lease_record(value):
        return None
    expect_format(value[0], FORMAT, "lease record")
    kind = value[1] if len(value) > 1 else 0
    if kind not in _KINDS:
        return None
    if only_for is not None and not (reports and kind == _REPORT) and not _is_for(only_for, kind, value):
        return None
    reader = _behind_kind(value)
    found: LeaseRecord = _KINDS[kind][1].read(reader)
    reader.expect_end()
    return found


def is_lease_record(value: bytes) -> bool:
    """Whether it is marked as one of these, of this format or another."""
    return bool(value) and value[0] in _FORMATS


def concerns(value: bytes, client_id: str) -> bool:
    """Whether it concerns this member, which owns nothing: no report, and no lease of another member. True also for an
    unreadable one."""
    if len(value) < 2 or value[0] != FORMAT:
        return True
    try:
        return _is_for(client_id, value[1], value)
    except CorruptRecord:
        return True


def is_report(value: bytes) -> bool:
    return len(value) > 1 and value[0] == FORMAT and value[1] == _REPORT


def concerns_all(value: bytes) -> bool:
    """Whether it concerns all partitions of its writer, not one. True also for an unreadable one."""
    return not (len(value) > 1 and value[0] == FORMAT and value[1] in _OF_ONE_PARTITION)


def _behind_kind(value: bytes) -> ByteReader:
    reader = ByteReader(value, "lease record")
    reader.take(2)
    return reader


def _is_for(client_id: str, kind: int, value: bytes) -> bool:
    if kind not in (_LEASE, _RECALL):
        return kind != _REPORT
    reader = _behind_kind(value)
    reader.take(OWNER_BYTES)
    reader.varint()
    return _MEMBER.read(reader).client_id == client_id
