"""A plan names the messages of one micro-batch, and an outcome its result: written into the checkpoint, so that replays
deliver the same.

Pure.

JSON; bitmaps are base64 of roaring's portable form.

    plan:    {"v":1,"start":"<offset>","end":"<offset>","topics":{"<name>":{"0":<partition>}}}
    outcome: {"v":1,"topics":{"<name>":{"0":<partition>}}}

    partition = {"entries":"<base64>","batches":[[17,8,3]],"unsealed":[[1,7]],"chunked":[[9000,[3,4,6]]]}

and, of a plan, "pending":{"<name>":{"0":"<base64>"}} where messages in chunks are incomplete. As in records of state
topics, unknown members are ignored, and `chunked` and `pending` may be missing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Final

from pyroaring import BitMap64

from pulsar_on_kafka_mapping.errors import MappingError
from pulsar_on_kafka_mapping.ids.txn_id import TxnId
from pulsar_on_kafka_mapping.state.codecs.json_records import json_record
from pulsar_on_kafka_mapping.state.codecs.layouts import compressed
from pulsar_on_kafka_spark.base.errors import NotReadable
from pulsar_on_kafka_spark.planning.chunked_messages import WholeChunkedMessage

BatchBits = Mapping[int, tuple[int, int]]
"""Batch entries by offset: (number of messages, some of them as bits)."""


@dataclass(frozen=True, slots=True)
class Entries:
    """A set of entries of one partition is kept by offset. What `batches` means depends on whose this is.

    Memory: at most 8 kB for each 65,536 offsets; less where they are rare or in runs.
    """

    whole: BitMap64
    batches: BatchBits = field(default_factory=dict)
    unsealed: frozenset[TxnId] = frozenset()
    """Aborted transactions of which not all records are known (`PartitionView.unsealed`); of a plan."""
    chunked: Mapping[int, WholeChunkedMessage] = field(default_factory=dict)
    """Messages of `whole` that are in chunks, by their last chunk's offset, which stands for all of them; of a plan."""

    def __bool__(self) -> bool:
        return bool(self.whole) or bool(self.batches)


ByTopic = Mapping[str, Mapping[int, Entries]]
"""Entries by full name of the topic (without a partition's suffix) and partition."""

Pending = Mapping[str, Mapping[int, BitMap64]]
"""Likewise, the chunks of messages that are not complete."""


@dataclass(frozen=True, slots=True)
class BatchPlan:
    """A plan goes from `start` to `end`, the batch's offsets in Spark's log. `delivered.batches` has the messages of
    delivered batch entries that are *not* delivered, because they were acknowledged before. `pending`: chunks before
    `end` that the next batch has to examine again. `passed`: offsets known to hold no message, see
    `PartitionView.never`; they are acknowledged along. Not written: a repeated batch passes nothing, and the next one
    passes the rest."""

    start: str
    end: str
    delivered: ByTopic
    pending: Pending = field(default_factory=dict)
    passed: ByTopic = field(default_factory=dict)

    def entries(self) -> int:
        return sum(len(each.whole) for partitions in self.delivered.values() for each in partitions.values())


def accepted(delivered: ByTopic, refused: ByTopic) -> dict[str, dict[int, Entries]]:
    """The entries to acknowledge: everything that was delivered and not refused. Of batch entries with refused or
    undelivered messages (a transaction may hold them), the other ones (`batches`: bits of the acknowledged ones). Of a
    message in chunks all chunks."""
    found: dict[str, dict[int, Entries]] = {}
    for topic, partitions in delivered.items():
        for partition, entries in partitions.items():
            no = refused.get(topic, {}).get(partition, _NOTHING)
            some: dict[int, tuple[int, int]] = {}
            for offset in {*entries.batches, *no.batches}:
                if offset not in entries.whole or offset in no.whole:
                    continue
                size, absent = entries.batches.get(offset, (no.batches.get(offset, (0, 0))[0], 0))
                bits = (1 << size) - 1 & ~absent & ~no.batches.get(offset, (size, 0))[1]
                if bits:
                    some[offset] = size, bits
            whole = _spread(entries.whole - no.whole - BitMap64(no.batches) - BitMap64(entries.batches), entries)
            if whole or some:
                found.setdefault(topic, {})[partition] = Entries(whole, some)
    return found


def only(named: ByTopic, delivered: ByTopic) -> dict[str, dict[int, Entries]]:
    """The messages whose entries were delivered."""
    found: dict[str, dict[int, Entries]] = {}
    for topic, partitions in named.items():
        for partition, entries in partitions.items():
            there = delivered.get(topic, {}).get(partition, _NOTHING).whole
            left = Entries(
                entries.whole & there, {offset: bits for offset, bits in entries.batches.items() if offset in there}
            )
            if left:
                found.setdefault(topic, {})[partition] = left
    return found


def spread(named: ByTopic, delivered: ByTopic) -> dict[str, dict[int, Entries]]:
    """The same messages with all chunks of those that were delivered in chunks."""
    return {
        topic: {
            p: replace(entries, whole=_spread(entries.whole, delivered.get(topic, {}).get(p, _NOTHING)))
            for p, entries in partitions.items()
        }
        for topic, partitions in named.items()
    }


def _spread(offsets: BitMap64, entries: Entries) -> BitMap64:
    return offsets | BitMap64(
        offset for last, message in entries.chunked.items() if last in offsets for offset in message.offsets
    )


def both(one: ByTopic, other: ByTopic) -> dict[str, dict[int, Entries]]:
    """The messages that either names."""
    found = {topic: dict(partitions) for topic, partitions in one.items()}
    for topic, partitions in other.items():
        for partition, more in partitions.items():
            known = found.setdefault(topic, {}).get(partition, _NOTHING)
            batches = dict(known.batches)
            for offset, (size, bits) in more.batches.items():
                batches[offset] = size, bits | batches.get(offset, (size, 0))[1]
            found[topic][partition] = Entries(known.whole | more.whole, batches)
    return found


_NOTHING: Final = Entries(BitMap64())


@dataclass(frozen=True, slots=True)
class _Partition:
    """`Entries` as they are written; `chunked`: total bytes and offsets of each message."""

    entries: bytes
    batches: list[tuple[int, int, int]]
    unsealed: list[tuple[int, int]]
    chunked: list[tuple[int, tuple[int, ...]]] = field(default_factory=list)


_Topics = dict[str, dict[str, _Partition]]
"""Partitions by number, which is text as JSON has it."""


@dataclass(frozen=True, slots=True)
class _Plan:
    start: str
    end: str
    topics: _Topics
    pending: dict[str, dict[str, bytes]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Outcome:
    topics: _Topics


_PLANS: Final = json_record("a plan", _Plan)
_OUTCOMES: Final = json_record("an outcome", _Outcome)


def encode_plan(plan: BatchPlan) -> bytes:
    pending = {
        name: {str(partition): compressed(offsets) for partition, offsets in partitions.items()}
        for name, partitions in plan.pending.items()
    }
    return _PLANS.encode(_Plan(plan.start, plan.end, _written(plan.delivered), pending))


def decode_plan(content: bytes, file: str) -> BatchPlan:
    """Raises NotReadable, which names the file."""
    with _readable(file):
        plan = _PLANS.decode(content)
        pending = {name: {int(p): _bitmap(raw) for p, raw in each.items()} for name, each in plan.pending.items()}
        return BatchPlan(plan.start, plan.end, _read(plan.topics), pending)


def encode_outcome(refused: ByTopic) -> bytes:
    return _OUTCOMES.encode(_Outcome(_written(refused)))


def decode_outcome(content: bytes, file: str) -> dict[str, dict[int, Entries]]:
    """Raises NotReadable, which names the file."""
    with _readable(file):
        return _read(_OUTCOMES.decode(content).topics)


@contextmanager
def _readable(file: str) -> Iterator[None]:
    try:
        yield
    except (MappingError, ValueError, IndexError) as error:
        raise NotReadable(f"the checkpoint's file {file} cannot be read: {error}") from error


def _written(topics: ByTopic) -> _Topics:
    return {
        name: {
            str(partition): _Partition(
                compressed(entries.whole),
                [(offset, *bits) for offset, bits in sorted(entries.batches.items())],
                sorted(entries.unsealed),
                [(message.total_bytes, message.offsets) for _, message in sorted(entries.chunked.items())],
            )
            for partition, entries in partitions.items()
        }
        for name, partitions in topics.items()
    }


def _read(topics: _Topics) -> dict[str, dict[int, Entries]]:
    return {
        name: {
            int(partition): Entries(
                _bitmap(reported.entries),
                {offset: (size, bits) for offset, size, bits in reported.batches},
                frozenset(TxnId(*each) for each in reported.unsealed),
                {at[-1]: WholeChunkedMessage(at, size) for size, at in reported.chunked},
            )
            for partition, reported in partitions.items()
        }
        for name, partitions in topics.items()
    }


def _bitmap(raw: bytes) -> BitMap64:
    return BitMap64.deserialize(raw) if raw else BitMap64()
