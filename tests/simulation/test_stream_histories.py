"""Streams through thousands of histories: the real planner and the real steps of a batch, on a cursor and a checkpoint
in memory, with drivers that die between any two steps. Spark is played by its offset log and its commit log."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any, cast

import pytest
from pyroaring import BitMap64

from pulsar_on_kafka.broker.cursor.batch_acks import BatchAckSet
from pulsar_on_kafka.broker.cursor.cursor_machine import CursorState
from pulsar_on_kafka.broker.cursor.ledger_acks import of_offsets
from pulsar_on_kafka_mapping.records.message_record import ChunkInfo
from pulsar_on_kafka_spark.options.stream_options import parse_stream_options
from pulsar_on_kafka_spark.planning.batch_plan import BatchPlan, ByTopic, Entries
from pulsar_on_kafka_spark.planning.chunked_messages import KnownChunks
from pulsar_on_kafka_spark.planning.excluded_offsets import ExcludedOffsets
from pulsar_on_kafka_spark.planning.offset_ranges import Range
from pulsar_on_kafka_spark.planning.visibility import PartitionView, TopicView
from pulsar_on_kafka_spark.streaming import stream, stream_topics
from pulsar_on_kafka_spark.streaming.stream import _Batches
from pulsar_on_kafka_spark.streaming.stream_planner import TopicPlanner
from tests.seeds import first_of

TOPIC = "persistent://public/default/t"
LEDGER = 7
SIZE = 4
"""Messages of a batch entry; every third entry is one."""
INCARNATION: Any = (
    SimpleNamespace(kafka_topic_id="id", layout=SimpleNamespace(incarnation=7), name=TOPIC),
    SimpleNamespace(incarnation=9),
)
"""The topic and the subscription, which are never made again here."""
Message = tuple[int, int, int]
"""Partition, offset, index."""


class Died(Exception):
    pass


class World:
    """The log, the cursors, the checkpoint and the sink outlive a driver."""

    def __init__(self, seed: int) -> None:
        self.drawn = random.Random(seed)
        self.ends = [0, 0]
        self.cursors = [CursorState(0, LEDGER) for _ in self.ends]
        self.aborted: set[tuple[int, int]] = set()
        self.open_from: dict[int, int] = {}
        self.files: dict[str, bytes] = {}
        self.offset_log: dict[int, tuple[str, str]] = {}
        self.done = -1
        self.sink: dict[int, Counter[Message]] = {}
        self.others: Counter[Message] = Counter()
        self.refusing = True
        self.dies = True
        self.chunks: dict[tuple[int, int], ChunkInfo] = {}
        self.parts: dict[str, list[tuple[int, int]]] = {}
        """By uuid, the places of its chunks so far."""

    def messages(self, partition: int, offset: int) -> list[Message]:
        chunk = self.chunks.get((partition, offset))
        if chunk is not None:
            whole = chunk.chunk_id == chunk.chunks - 1 and self.aborted.isdisjoint(self.parts[chunk.uuid])
            return [(partition, offset, 0)] if whole else []
        return [(partition, offset, index) for index in range(SIZE if offset % 3 == 0 else 1)]

    def records(self, message: Message) -> list[int]:
        """The offsets of a message in no batch."""
        chunk = self.chunks.get(message[:2])
        return [message[1]] if chunk is None else [offset for _, offset in self.parts[chunk.uuid]]

    def everything(self) -> list[Message]:
        return [
            message
            for partition, end in enumerate(self.ends)
            for offset in range(end)
            if (partition, offset) not in self.aborted
            for message in self.messages(partition, offset)
        ]

    def acknowledged(self, message: Message) -> bool:
        partition, offset, index = message
        state = self.cursors[partition]
        known = state.batches.get(offset)
        return state.is_acknowledged(offset) or (known is not None and bool(known.acked >> index & 1))

    def acknowledge(self, partition: int, ledgers: Any) -> None:
        self.cursors[partition].acknowledge_ledgers(ledgers)

    def maybe_dies(self) -> None:
        if self.dies and self.drawn.random() < 0.08:
            raise Died

    # What others do -----------------------------------------------------------------------------------------------

    def produces(self) -> None:
        partition, many = self.drawn.randrange(2), self.drawn.randint(1, 12)
        start = self.ends[partition]
        self.ends[partition] += many
        for offset in range(start, self.ends[partition]):
            if self.drawn.random() < 0.4:
                self._chunk_at(partition, offset)
        if self.drawn.random() < 0.3:
            self.aborted.update(
                (partition, offset) for offset in range(start, start + many) if self.drawn.random() < 0.5
            )
        if self.drawn.random() < 0.2:
            self.open_from.setdefault(partition, self.drawn.randint(start, self.ends[partition] - 1))

    def _chunk_at(self, partition: int, offset: int) -> None:
        """Another one of a message that is not finished, or the first one of another."""
        begun = [
            self.chunks[parts[-1]]
            for parts in self.parts.values()
            if parts[0][0] == partition and len(parts) < self.chunks[parts[-1]].chunks
        ]
        if begun and self.drawn.random() < 0.8:
            chunk = self.drawn.choice(begun)
            chunk = chunk._replace(chunk_id=chunk.chunk_id + 1)
        else:
            chunk = ChunkInfo(0, self.drawn.randint(2, 5), 9, f"message {len(self.parts)}")
        self.chunks[partition, offset] = chunk
        self.parts.setdefault(chunk.uuid, []).append((partition, offset))

    def transaction_ends(self) -> None:
        self.open_from.pop(self.drawn.randrange(2), None)

    def consumer_acknowledges(self) -> None:
        for message in self.everything():
            if self.drawn.random() < 0.1 and not self.acknowledged(message):
                partition, offset, index = message
                self.others[message] += 1
                if offset % 3 == 0 and (partition, offset) not in self.chunks:
                    self.cursors[partition].acknowledge_batches({offset: BatchAckSet(SIZE, 1 << index)})
                else:
                    self.cursors[partition].acknowledge(self.records(message))

    # What the driver sees -----------------------------------------------------------------------------------------

    def view(self) -> dict[str, TopicView]:
        views = {}
        for partition, state in enumerate(self.cursors):
            end = self.open_from.get(partition, self.ends[partition])
            whole = Range(min(state.next_unacked, end), end)
            excluded = ExcludedOffsets()
            for index, members in state.deleted.ledgers():
                excluded.add(index * LEDGER, members)
            excluded.add_all(BitMap64(offset for p, offset in self.aborted if p == partition))
            excluded.batches.update(state.batches.items())
            excluded.clip(whole)
            views[partition] = PartitionView(whole, excluded)
        topic, subscription = INCARNATION
        return {TOPIC: TopicView(cast("Any", topic), cast("Any", subscription), views, may_have_chunks=True)}

    def look(self, _: TopicView, known: Mapping[int, KnownChunks], offsets: Mapping[int, BitMap64]) -> None:
        """`chunk_frames.look` on this world's log."""
        for partition, wanted in offsets.items():
            fresh = known[partition].unknown(wanted)
            found = {at: self.chunks[partition, at] for at in fresh if (partition, at) in self.chunks}
            known[partition].learn(fresh, found)


class Topics:
    """`StreamTopics` of this world."""

    def __init__(self, world: World) -> None:
        self._world = world

    def look(self, begun: object, signs: object = None) -> dict[str, TopicView]:
        return self._world.view()

    def have_saved(self) -> None:
        return

    def signs(self) -> object:
        return object()


class Files:
    """`CheckpointFiles` of this world."""

    def __init__(self, world: World) -> None:
        self._world = world

    def write(self, name: str, content: bytes) -> None:
        self._world.maybe_dies()
        self._world.files[name] = content
        self._world.maybe_dies()

    def read(self, name: str) -> bytes | None:
        return self._world.files.get(name)

    def names(self) -> list[str]:
        return list(self._world.files)

    def remove(self, name: str) -> None:
        self._world.files.pop(name, None)


class Driver(_Batches):
    """One life of a driver. `fn` writes into the sink, and refuses some."""

    def __init__(self, world: World) -> None:
        self.world = world
        options = parse_stream_options(
            {"service.url": "kafka://h:1", "topic": TOPIC, "subscription": "s",
             "maxOffsetsPerTrigger": world.drawn.choice([None, 5, 20]),
             "negativeAckRedeliveryDelayMs": world.drawn.choice([0, 60_000])}
        )  # fmt: skip
        planner = TopicPlanner(cast("Any", None), options, world.look)
        planner._topics = cast("Any", Topics(world))
        super().__init__(cast("Any", None), cast("Any", None), planner, options, cast("Any", Files(world)), self._fn)
        self.refuses: ByTopic = {}

    def _fn(self, delivered: Any, batch_id: int) -> None:
        plan = cast("BatchPlan", delivered)
        found: Counter[Message] = Counter()
        refused: dict[int, Entries] = {}
        for partition, entries in plan.delivered.get(TOPIC, {}).items():
            no, some = BitMap64(), {}
            for offset in entries.whole:
                absent = entries.batches.get(offset, (0, 0))[1]
                coming = [m for m in self.world.messages(partition, offset) if not absent >> m[2] & 1]
                rejected = [m for m in coming if self.world.refusing and self.world.drawn.random() < 0.1]
                found.update(set(coming) - set(rejected))
                if rejected and len(self.world.messages(partition, offset)) == 1:
                    no.add(offset)
                elif rejected:
                    some[offset] = SIZE, sum(1 << m[2] for m in rejected)
            refused[partition] = Entries(no, some)
        self.refuses = {TOPIC: refused}
        self.world.sink[batch_id] = found
        self.world.maybe_dies()

    def frame(self, plan: BatchPlan) -> Any:
        return plan

    def _refused(self, context: object, plan: BatchPlan) -> ByTopic:
        return self.refuses

    def trigger(self) -> bool:
        """What Spark does at one; False when there was nothing."""
        world = self.world
        batch = world.done + 1
        if batch not in world.offset_log:
            start = world.offset_log[world.done][1] if world.done >= 0 else self._planner.first()
            end = self._planner.next_end(start, limited=True)
            if end == start:
                return False
            world.maybe_dies()
            world.offset_log[batch] = start, end
            world.maybe_dies()
        self._planner.begins(*world.offset_log[batch])
        self.run(cast("Any", None), batch)
        world.maybe_dies()
        world.done = batch
        return True


@pytest.fixture(autouse=True)
def without_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "count_rows", lambda *_: None)
    monkeypatch.setattr(stream_topics, "find_both", lambda *_: INCARNATION)


def acknowledging(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def acknowledge(_: object, __: object, accepted: ByTopic) -> None:
        for partition, entries in accepted.get(TOPIC, {}).items():
            world.maybe_dies()
            world.acknowledge(partition, of_offsets(entries.whole, entries.batches, LEDGER))

    monkeypatch.setattr(stream, "acknowledge_entries", acknowledge)


def play(world: World, steps: int) -> None:
    driver = Driver(world)
    for _ in range(steps):
        action = world.drawn.choice(["produce", "trigger", "trigger", "trigger", "acknowledge", "end", "restart"])
        if action == "produce":
            world.produces()
        elif action == "acknowledge":
            world.consumer_acknowledges()
        elif action == "end":
            world.transaction_ends()
        elif action == "restart":
            driver = Driver(world)
        else:
            try:
                driver.trigger()
            except Died:
                driver = Driver(world)


def finish(world: World) -> None:
    world.open_from.clear()
    world.refusing = world.dies = False
    idle = 0
    while idle < 2:  # what one life of a driver refused, or replays as refused, comes in its next one
        before, driver = sum(map(Counter.total, world.sink.values())), Driver(world)
        while driver.trigger():
            pass
        idle = 0 if sum(map(Counter.total, world.sink.values())) > before else idle + 1


@pytest.mark.parametrize("block", first_of(1, range(10)))
def test_each_message_is_in_one_batch_or_was_anothers(block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    for seed in range(100 * block, 100 * block + 100):
        world = World(seed)
        acknowledging(world, monkeypatch)
        play(world, 60)
        finish(world)
        sunk: Counter[Message] = sum(world.sink.values(), Counter())
        messages = world.everything()
        assert max(sunk.values(), default=0) <= 1, f"seed {seed}: twice"
        assert not set(sunk) - set(messages), f"seed {seed}: aborted"
        lost = [message for message in messages if message not in sunk and message not in world.others]
        assert lost == [], f"seed {seed}: lost"
        left = [message for message in messages if not world.acknowledged(message)]
        assert left == [], f"seed {seed}: not acknowledged"
        chunks = [(message[0], world.records(message)) for message in messages if message[:2] in world.chunks]
        assert all(world.cursors[p].is_acknowledged(at) for p, offsets in chunks for at in offsets), f"seed {seed}"


@pytest.mark.parametrize("block", first_of(1, range(5)))
def test_behind_a_seek_everything_comes_again(block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    for seed in range(100 * block, 100 * block + 100):
        world = World(seed)
        acknowledging(world, monkeypatch)
        play(world, 30)
        finish(world)
        before = world.done
        sought = [world.drawn.randint(0, end) for end in world.ends]
        for state, offset in zip(world.cursors, sought, strict=True):
            state.reset(offset)
        finish(world)
        again: Counter[Message] = sum((found for batch, found in world.sink.items() if batch > before), Counter())
        assert again == Counter(m for m in world.everything() if min(world.records(m)) >= sought[m[0]]), f"seed {seed}"
