"""Kafka's log cleaner in seconds instead of hours, so that a round of chance sees what it leaves.

`hasten` changes the catalogue of state topics in this process: who creates a topic afterwards gives it these settings,
and who reads one counts with them. All processes of a round have to do it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from confluent_kafka import Producer

from pulsar_on_kafka_mapping.state import state_topics
from pulsar_on_kafka_mapping.state.instances import Instance
from pulsar_on_kafka_mapping.state.state_keys import CursorSegmentKey, encode_key
from pulsar_on_kafka_mapping.state.state_topics import CURSORS, Cleanup, StateTopic
from tests.chaos.outside import read_at
from tests.kafka_records import place_of
from tests.waiting import until

LAG_MS: Final = 6_000
"""Readings that take half of it begin anew, and a busy machine has slow ones."""
QUICK: Final[Mapping[str, str]] = {
    "segment.ms": "1000",
    "min.cleanable.dirty.ratio": "0.001",
    "min.compaction.lag.ms": str(LAG_MS),
    "max.compaction.lag.ms": str(LAG_MS),
    "delete.retention.ms": str(2 * LAG_MS),
}
_NOBODYS: Final = encode_key(CursorSegmentKey("persistent://public/default/nobodys", 0, "nobodys", "A" * 22, 1, 0))
_LOOK_EVERY_S: Final = 0.5


def hasten(change: Callable[[Any, str, str], None]) -> None:
    """Have compacted state topics compacted within seconds; `change(configs, name, value)` sets one setting, for good
    (`operator.setitem`) or until a test ends (`MonkeyPatch.setitem`)."""
    for topic in vars(state_topics).values():
        if isinstance(topic, StateTopic) and topic.cleanup is Cleanup.COMPACT:
            for name, value in QUICK.items():
                change(topic.configs, name, value)


def wait_until_compacted(bootstrap: str, topic: str, within_s: float = 120.0) -> None:
    """Return when everything that is now in `topic`'s partition of `cursors` was seen by the cleaner.

    Tombstones of a key that nobody has follow one another: when the first one is gone, what stands before it was
    compacted.
    """
    partition = CURSORS.partition_for(topic)
    state_topic = Instance().state_topic(CURSORS)
    producer = Producer({"bootstrap.servers": bootstrap})
    first = _append(producer, partition)

    def is_compacted() -> bool:
        _append(producer, partition)  # an append is what closes a segment
        return not read_at(bootstrap, state_topic, partition, [first], tombstones=True)

    until(is_compacted, f"the cleaner in partition {partition} of {state_topic}", within_s)


def _append(producer: Producer, partition: int) -> int:
    placed: list[int] = []
    producer.produce(
        Instance().state_topic(CURSORS),
        None,
        _NOBODYS,
        partition=partition,
        on_delivery=lambda error, message: placed.append(place_of(message)[1]),
    )
    assert producer.flush(30) == 0
    return placed[0]
