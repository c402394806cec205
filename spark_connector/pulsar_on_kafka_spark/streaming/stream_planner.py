"""The planner decides the ends of a stream's micro-batches, and the entries of each.

A stream proceeds along the partitions as Kafka's source does, up to the max read position: messages behind an open
transaction follow when that ends. It also delivers unacknowledged messages below its position: those that `fn` refused,
those that an aborted transaction had acknowledged, and everything behind a seek. The subscription's cursor records
them.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from math import inf
from time import monotonic
from typing import Final, NamedTuple, TypeVar

from pyroaring import BitMap64

from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.broker.node.node import Node
from pulsar_on_kafka_spark.base.errors import NotReadable
from pulsar_on_kafka_spark.options.stream_options import StreamOptions
from pulsar_on_kafka_spark.planning.batch_plan import BatchPlan, ByTopic, Entries, Pending
from pulsar_on_kafka_spark.planning.chunked_messages import ChunkedMessages, KnownChunks
from pulsar_on_kafka_spark.planning.offset_ranges import Range
from pulsar_on_kafka_spark.planning.planned_views import known_batches, visible
from pulsar_on_kafka_spark.planning.visibility import SNAPSHOT_S, PartitionView, TopicView
from pulsar_on_kafka_spark.reading.tenant_cluster import MoveWatch
from pulsar_on_kafka_spark.streaming.stream_offset import StreamOffset, TopicPlace, parse_offset
from pulsar_on_kafka_spark.streaming.stream_topics import SNAPSHOT_REFRESH_INTERVAL_S, StreamTopics, life_of
from pulsar_on_kafka_spark.streaming.trigger_delay import TriggerDelay

_Place = TypeVar("_Place", bound=Hashable)


def share_out(available: Mapping[_Place, int], most: int | None) -> dict[_Place, int]:
    """Divides a limit among places: from the available offsets of each, `most` together (None: all), in proportion,
    with at least one of every place while that is possible. Source: KafkaMicroBatchStream.rateLimit.
    """
    total = sum(available.values())
    if most is None or total <= most:
        return dict(available)
    some = [place for place, count in available.items() if count]
    least = 1 if len(some) <= most else 0
    rest, left_of = most - least * len(some), total - least * len(some)
    shares = dict.fromkeys(available, 0)
    for place in some:
        shares[place] = least + (available[place] - least) * rest // left_of
    left = most - sum(shares.values())
    for place in sorted(some, key=lambda each: shares[each] - available[each])[
        :left
    ]:  # rounding left less than one each
        shares[place] += 1
    return shares


def entries_within(max_bytes: int, sample: Mapping[int, int]) -> int:
    """The number of records of the sizes in `sample` (bytes by count) that fit; one at least, so that a stream
    proceeds."""
    count = sum(sample.values())
    size = sum(size * number for size, number in sample.items())
    return max(1, max_bytes if not size else max_bytes * count // size)


_log = logging.getLogger(__name__)

_POLL_INTERVAL_S: Final = 0.2
"""The poll interval without new messages; Spark polls every 10 ms."""
_SAMPLE: Final = 100
"""Records in each of three places of a partition."""

Place = tuple[str, int]
"""Topic and partition."""
Look = Callable[[TopicView, Mapping[int, KnownChunks], Mapping[int, BitMap64]], None]
"""`chunk_frames.look` for one session and its options."""

_NOTHING: Final = BitMap64()
_NO_CHUNKS: Final = ChunkedMessages()


class _Quiet(NamedTuple):
    """A state without new messages: at `start` there were none, while the logs' ends and the cursors were as in
    `signs`."""

    start: str
    signs: object
    look_s: float
    snapshot_s: float


class TopicPlanner:
    """The planner decides where batches end. Offsets are JSON texts. It is called by the query's thread.

    Memory: one snapshot of the topics at a time, a bitmap of what was refused lately, and `KnownChunks`.
    """

    def __init__(self, node: Node, options: StreamOptions, look: Look) -> None:
        """`look` finds chunks of messages."""
        self._node = node
        self._look = look
        self._chunks: dict[Place, KnownChunks] = {}
        self._incomplete: dict[Place, BitMap64] = {}
        """Chunks of no complete message so far: they are not redelivered by themselves."""
        self._options = options
        self._topics = StreamTopics(node, options.read)
        self._delay = TriggerDelay(options.min_entries, options.max_delay_s)
        self._cluster = options.read.cluster
        self._moves = MoveWatch(options.read)
        subscription = options.read.subscription
        self.name = f"pulsar[{','.join(options.read.topics)}{'' if subscription is None else '/' + subscription}]"
        self.under_way: tuple[str, str] | None = None
        """Start and end of the batch that runs."""
        self._fixed: dict[Place, int] | None = None
        self._quiet: _Quiet | None = None
        self._kept_back: list[tuple[float, Place, BitMap64]] = []
        """Refused messages, and their redelivery times."""
        self._newest: StreamOffset | None = None
        self._progress: dict[str, str] = {}
        self.forms: dict[str, tuple[bool, bool]] = {}
        """For the topics of the last planned batch: whether all messages are plain, and whether some may be raw
        (`TopicView`)."""
        self.when_stopped: ExitStack | None = None
        self.refused = 0
        """Entries, since the start."""
        self.delivered = 0

    def first(self) -> str:
        """The beginning of a stream without a checkpoint."""
        views = self._topics.look(None)
        ends = {name: {p: view.whole.start for p, view in found.partitions.items()} for name, found in views.items()}
        places = {name: TopicPlace(life_of(views[name]), ends[name]) for name in views}
        return StreamOffset(places, cluster=self._cluster).json()

    def next_end(self, start: str, *, limited: bool) -> str:
        """The end of the batch that begins at `start`: `start` itself without messages. `limited`: within the rate
        limits."""
        self._moves.check()
        signs = self._still_quiet(start)
        if signs is None:
            return start
        begun = self._begun(start)
        views = self._topics.look(begun, signs)
        fresh = {place: self._end(view, place) - begun.ends(place[0]).get(place[1], view.whole.start)
                 for place, view in _partitions(views)}  # fmt: skip
        waiting = sum(map(len, self._left_behind(views, begun).values()))
        self._note(views, begun, fresh, waiting)
        most = self._most(views, begun) if limited else None
        again = waiting if most is None else min(waiting, most)
        shares = share_out({p: max(0, n) for p, n in fresh.items()}, None if most is None else most - again)
        now = monotonic()
        nothing = not again and not any(shares.values())
        if nothing or (limited and self._waits_for_more(fresh, waiting, now)):
            again_s = min(self._next_due(), inf if nothing else self._delay.ends_s())
            self._quiet = _Quiet(start, signs, now + _POLL_INTERVAL_S, min(now + SNAPSHOT_REFRESH_INTERVAL_S, again_s))
            return start
        self._quiet = None
        ends: dict[str, dict[int, int]] = {name: {} for name in views}
        for (name, partition), view in _partitions(views):
            at = begun.ends(name).get(partition, view.whole.start)
            ends[name][partition] = at + shares[name, partition]
        places = {name: TopicPlace(life_of(views[name]), ends[name]) for name in views}
        of = again if again else begun.of
        return StreamOffset(places, begun.again + bool(again), of, self._cluster).json()

    def _waits_for_more(self, fresh: Mapping[Place, int], waiting: int, now: float) -> bool:
        """With a fixed end nothing more comes, so that a query which waited would end without its last messages."""
        return self._fixed is None and self._delay.holds(sum(max(0, count) for count in fresh.values()) + waiting, now)

    def begins(self, start: str, end: str) -> None:
        """The batch between these is about to run: `foreachBatch` comes next."""
        self.under_way = start, end

    def fix_end(self) -> None:
        """Fixes the end: later messages do not count (`availableNow`)."""
        self._fixed = {place: view.whole.end for place, view in _partitions(self._topics.look(None))}

    def newest(self) -> str | None:
        """The end of the readable messages at the last look."""
        return None if self._newest is None else self._newest.json()

    def progress(self) -> dict[str, str]:
        """Metrics for `sources[0].metrics` of the query's progress."""
        return {**self._progress, "delivered": str(self.delivered), "refused": str(self.refused)}

    def stop(self) -> None:
        """The query has ended, and what was held for it is given back; a second call does nothing."""
        self._moves.close()
        held, self.when_stopped = self.when_stopped, None
        if held is not None:
            held.close()

    def plan(self, start: str, end: str, pending: Pending) -> BatchPlan:
        """The plan of the batch between these offsets, by the present state.

        Args:
            pending: the pending chunks of the previous batch.

        Raises:
            NotReadable, DataLoss: see `spark.base.errors`.
        """
        begun, ended = self._begun(start), parse_offset(end)
        if not ended.is_of(self._cluster):
            return BatchPlan(start, end, {}, {}, {})  # later batches have what was not acknowledged
        self._topics.have_saved()
        views = self._topics.look(begun)
        left = ended.of if ended.again > begun.again else 0
        behind = self._left_behind(views, begun) if left else {}
        self.forms = {name: (view.plain, view.raw) for name, view in views.items()}
        fresh: dict[Place, BitMap64] = {}
        for (name, partition), view in _partitions(views):
            upto = ended.ends(name).get(partition)
            if upto is not None:  # else it came after the batch was planned
                fresh[name, partition] = visible(view, begun.ends(name).get(partition, view.whole.start), upto)
        chunked = self._put_together(views, begun, fresh, behind, pending)
        delivered: dict[str, dict[int, Entries]] = {}
        incomplete: dict[str, dict[int, BitMap64]] = {}
        for (name, partition), offsets in fresh.items():
            view = views[name].partitions[partition]
            found = chunked.get((name, partition), _NO_CHUNKS)
            offsets = found.places(offsets)
            again = found.places(behind.get((name, partition), _NOTHING))
            if left and again:
                taken = again if len(again) <= left else BitMap64(again[:left])
                left -= len(taken)
                offsets |= taken
            if found.pending:
                incomplete.setdefault(name, {})[partition] = found.pending
            if offsets:
                batches = {offset: bits for offset, bits in known_batches(view).items() if offset in offsets}
                messages = {last: message for last, message in found.messages.items() if last in offsets}
                delivered.setdefault(name, {})[partition] = Entries(offsets, batches, view.unsealed, messages)
        return BatchPlan(start, end, delivered, incomplete, _passed(views, ended))

    def check_moves(self) -> None:
        """Raises NotReadable: the tenant has left the cluster."""
        self._moves.check(at_once=True)

    def _begun(self, start: str) -> StreamOffset:
        """The position of a batch's start. After a move of the tenant, a stream that acknowledges has no position: it
        continues with everything that is not acknowledged.

        Raises:
            NotReadable: a stream that does not acknowledge was begun on another cluster.
        """
        found = parse_offset(start)
        if found.is_of(self._cluster):
            return found
        if not self._options.acknowledge:
            raise NotReadable(
                f"this stream's checkpoint was begun on cluster {found.cluster}, and its tenant has moved to "
                f"{self._cluster}. A stream that acknowledges continues there; this one does not: start with another "
                "checkpoint, and startingTime or startingOffsets for the beginning"
            )
        return StreamOffset({}, found.again, found.of, self._cluster)

    def _put_together(
        self,
        views: Mapping[str, TopicView],
        begun: StreamOffset,
        fresh: Mapping[Place, BitMap64],
        behind: Mapping[Place, BitMap64],
        pending: Pending,
    ) -> dict[Place, ChunkedMessages]:
        """The messages in chunks of a batch, which may have begun before it."""
        found = {}
        for name, view in views.items():
            if not view.may_have_chunks:
                continue
            required: dict[int, BitMap64] = {}
            for partition, one in view.partitions.items():
                place = name, partition
                if place in fresh:
                    at = begun.ends(name).get(partition, one.whole.start)
                    before = visible(one, one.whole.start, at) & pending.get(name, {}).get(partition, _NOTHING)
                    required[partition] = fresh[place] | behind.get(place, _NOTHING) | before
            known = {p: self._chunks.setdefault((name, p), KnownChunks()) for p in required}
            self._look(view, known, required)
            for partition, offsets in required.items():
                place = name, partition
                found[place] = known[partition].together()
                others = self._incomplete.get(place, _NOTHING) - offsets
                self._incomplete[place] = others | found[place].without_place()
        return found

    def keep_back(self, refused: ByTopic) -> None:
        """Holds refused messages back: they are redelivered after the delay, or with the next start."""
        due = monotonic() + self._options.redelivery_delay_s
        for name, partitions in refused.items():
            for partition, entries in partitions.items():
                offsets = entries.whole | BitMap64(entries.batches)
                self.refused += len(offsets)
                self._kept_back.append((due, (name, partition), offsets))

    def _left_behind(self, views: Mapping[str, TopicView], begun: StreamOffset) -> dict[Place, BitMap64]:
        """The messages below the stream's position that are to be redelivered."""
        if not self._options.acknowledge:
            return {}
        now = monotonic()
        if self._fixed is None:
            self._kept_back = [one for one in self._kept_back if one[0] > now]
        found = {}
        for (name, partition), view in _partitions(views):
            at = begun.ends(name).get(partition)
            if at is None or view.whole.start >= at:
                continue
            offsets = visible(view, view.whole.start, at)
            for _, place, kept in self._kept_back:
                if place == (name, partition):
                    offsets -= kept
            offsets -= self._incomplete.get((name, partition), _NOTHING)
            if offsets:
                found[name, partition] = offsets
        return found

    def _still_quiet(self, start: str) -> object | None:
        """None while, by cheap checks, there are no new messages; otherwise the signs for the next snapshot."""
        quiet, now = self._quiet, monotonic()
        known = quiet is not None and quiet.start == start and now < quiet.snapshot_s
        if known and quiet is not None and now < quiet.look_s:
            return None
        signs = self._topics.signs()
        if known and quiet is not None and signs == quiet.signs:
            self._quiet = quiet._replace(look_s=now + _POLL_INTERVAL_S)
            return None
        return signs

    def _next_due(self) -> float:
        return min((due for due, _, _ in self._kept_back), default=inf)

    def _end(self, view: PartitionView, place: Place) -> int:
        return view.whole.end if self._fixed is None else min(view.whole.end, self._fixed.get(place, 0))

    def _most(self, views: Mapping[str, TopicView], begun: StreamOffset) -> int | None:
        most = self._options.max_entries
        if self._options.max_bytes is None:
            return most
        by_bytes = entries_within(self._options.max_bytes, self._sizes(views, begun))
        return by_bytes if most is None else min(most, by_bytes)

    def _sizes(self, views: Mapping[str, TopicView], begun: StreamOffset) -> Counter[int]:
        """The sizes of some records to be read: at the beginning, in the middle and at the end."""
        sizes: Counter[int] = Counter()
        for (name, partition), view in _partitions(views):
            start = max(view.whole.start, begun.ends(name).get(partition, view.whole.start))
            end = self._end(view, (name, partition))
            required = _sample(start, end)
            topic = views[name].topic.kafka_topic
            for records in self._node.fetcher.read_at(topic, partition, required, Deadline.after(SNAPSHOT_S)):
                sizes.update(len(each.key() or b"") + len(each.value() or b"") for each in records)
        return sizes

    def _note(
        self, views: Mapping[str, TopicView], begun: StreamOffset, fresh: Mapping[Place, int], waiting: int
    ) -> None:
        ends = {name: {p: view.whole.end for p, view in found.partitions.items()} for name, found in views.items()}
        places = {n: TopicPlace(life_of(views[n]), ends[n]) for n in views}
        self._newest = StreamOffset(places, begun.again, begun.of, self._cluster)
        behind = [max(0, count) for count in fresh.values()]
        self._progress = {
            "offsetsBehindLatest": str(sum(behind)),
            "maxOffsetsBehindLatest": str(max(behind, default=0)),
            "unacknowledgedBehind": str(waiting),
        }


def _partitions(views: Mapping[str, TopicView]) -> Iterator[tuple[Place, PartitionView]]:
    for name, found in views.items():
        for partition, view in found.partitions.items():
            yield (name, partition), view


def _passed(views: Mapping[str, TopicView], ended: StreamOffset) -> dict[str, dict[int, Entries]]:
    """Offsets that are known to hold no message, up to the end of a batch."""
    found: dict[str, dict[int, Entries]] = {}
    for (name, partition), view in _partitions(views):
        never = view.never & Range(view.whole.start, ended.ends(name).get(partition, 0)).offsets()
        if never:
            found.setdefault(name, {})[partition] = Entries(never)
    return found


def _sample(start: int, end: int) -> Sequence[int]:
    middle = start + (end - start) // 2
    places = {
        offset
        for at in (start, middle, end - _SAMPLE)
        for offset in range(max(start, at), min(end, max(start, at) + _SAMPLE))
    }
    return sorted(places)
