"""Both sides of a subscription, message by message: equal, or what differs. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass

from pyroaring import BitMap, BitMap64

from pulsar_on_kafka.broker.replication_state.acks import ReplicatedAcks
from pulsar_on_kafka.broker.replication_state.progress import Progress, SubscriptionSide, reported_progress
from pulsar_on_kafka_mapping.state.clusters.subscription_progress import BLOCK, Origin


@dataclass(frozen=True, slots=True)
class SideSeen:
    """One side, of what both logs have. `unacknowledged` counts entries; `digest` covers them, and which messages of
    batch entries are acknowledged, each named by its origin: equal digests are equal subscriptions. `mark_delete`: the
    offset here, -1 for nothing; `holes` counts entries acknowledged above it."""

    cluster: str
    mark_delete: int
    holes: int
    unacknowledged: int
    digest: str


@dataclass(frozen=True, slots=True)
class PartitionComparison:
    """`common`: messages (entries) that both logs have. `only_here` and `only_there`: how many of them are acknowledged
    on one side alone; `in_part`: batch entries of which the sides acknowledged different messages."""

    partition: int
    here: SideSeen
    there: SideSeen
    common: int
    only_here: int
    only_there: int
    in_part: int

    @property
    def equal(self) -> bool:
        return self.here.digest == self.there.digest


def compare(partition: int, here: SubscriptionSide, there: SubscriptionSide) -> PartitionComparison:
    """Compares the acknowledgements of both cursors, for the messages in both logs. Raises StoreError, see
    `reported_progress`."""
    mine, theirs = reported_progress(here), reported_progress(there)
    digests = (hashlib.blake2b(digest_size=16), hashlib.blake2b(digest_size=16))
    counts = dict.fromkeys(("common", "only_here", "only_there", "in_part", "left_here", "left_there"), 0)
    for origin, start, both in _common(here, there):
        ours = [_acks(side, origin) for side in (mine, theirs)]
        acked = [acks.within(start, start + BLOCK) & both for acks in ours]
        sets = [_sets(acks, start, both) for acks in ours]
        for digest, done, parts in zip(digests, acked, sets, strict=True):
            digest.update(f"{origin} {start} {parts}".encode())
            left = both - done
            left.run_optimize()
            digest.update(left.serialize())
        counts["common"] += len(both)
        counts["only_here"] += len(acked[0] - acked[1])
        counts["only_there"] += len(acked[1] - acked[0])
        counts["left_here"] += len(both - acked[0])
        counts["left_there"] += len(both - acked[1])
        counts["in_part"] += len(dict(set(sets[0]) ^ set(sets[1])))
    return PartitionComparison(
        partition,
        _seen(here, counts["left_here"], digests[0].hexdigest()),
        _seen(there, counts["left_there"], digests[1].hexdigest()),
        counts["common"],
        counts["only_here"],
        counts["only_there"],
        counts["in_part"],
    )


def _seen(side: SubscriptionSide, unacknowledged: int, digest: str) -> SideSeen:
    cursor = side.cursor
    return SideSeen(side.origin.cluster, cursor.mark_delete, len(cursor.deleted), unacknowledged, digest)


def _acks(progress: Progress, origin: Origin) -> ReplicatedAcks:
    return progress.get(origin) or ReplicatedAcks(BLOCK)


def _sets(acks: ReplicatedAcks, start: int, both: BitMap) -> list[tuple[int, tuple[int, int]]]:
    return sorted(
        (position, found)
        for position, found in acks.batches_within(start, start + BLOCK)
        if position - start in both and not acks.has(position)
    )


def _common(here: SubscriptionSide, there: SubscriptionSide) -> Iterator[tuple[Origin, int, BitMap]]:
    """(origin, first offset of a block there, offsets that both logs have counted from it), in a fixed order."""
    found: dict[Origin, BitMap64] = {here.origin: there.index.copies(here.origin)}
    found[there.origin] = here.index.copies(there.origin)
    for origin in here.index.origins().keys() & there.index.origins().keys():
        found[origin] = here.index.copies(origin) & there.index.copies(origin)
    for origin in sorted(found):
        offsets = found[origin]
        if not offsets:
            continue
        for block in range(int(offsets.min()) // BLOCK, int(offsets.max()) // BLOCK + 1):
            start = block * BLOCK
            window = BitMap64()
            window.add_range(start, start + BLOCK)
            part = BitMap((offsets & window).shift(-start))
            if part:
                yield origin, start, part
