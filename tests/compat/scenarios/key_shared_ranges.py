"""Key_Shared with sticky ranges, batches and chunks."""

from __future__ import annotations

from collections import Counter
from typing import Any

from tests.compat.harness.driver import ScenarioRun
from tests.compat.harness.scenario import scenario
from tests.compat.scenarios.keyed import by_key, numbered_keys, send_keyed, sticky_consumer

AREA = "key_shared"
_TWO_CHUNKS = 6_000_000


@scenario(area=AREA, title="Sticky: several ranges of one consumer")
def sticky_several_ranges(run: ScenarioRun) -> None:
    topic = run.topic()
    outer = sticky_consumer(run, topic, (0, 9999), (50_000, 65_535))
    inner = sticky_consumer(run, topic, (10_000, 49_999))
    send_keyed(run, topic, numbered_keys(30), 2)
    run.record("outer", by_key(run, run.rest(outer)))
    run.record("inner", by_key(run, run.rest(inner)))


@scenario(area=AREA, title="Sticky: keys that nobody has wait for whoever takes them")
def sticky_gap(run: ScenarioRun) -> None:
    topic = run.topic()
    low = sticky_consumer(run, topic, (0, 32_767))
    send_keyed(run, topic, numbered_keys(20), 2)
    run.record("low", by_key(run, run.receive_acked(low, _count(run, low))))
    high = sticky_consumer(run, topic, (32_768, 65_535))
    run.record("high", by_key(run, run.rest(high)))
    run.record_messages("low, then", run.rest(low))


def _count(run: ScenarioRun, consumer: Any) -> int:
    """How many come; they are given back."""
    found = len(run.rest(consumer))
    consumer.redeliver_unacknowledged_messages()
    return found


@scenario(area=AREA, title="Sticky: a refused message goes to the range's consumer again")
def sticky_negative(run: ScenarioRun) -> None:
    topic = run.topic()
    soon = {"negative_ack_redelivery_delay_ms": 200}
    consumers = [
        sticky_consumer(run, topic, (0, 32_767), **soon),
        sticky_consumer(run, topic, (32_768, 65_535), **soon),
    ]
    send_keyed(run, topic, numbered_keys(10), 1)
    for name, consumer in zip(("low", "high"), consumers, strict=True):
        messages = run.rest(consumer)
        for message in messages:
            consumer.negative_acknowledge(message)
        again = run.receive_acked(consumer, len(messages))
        run.record_set(name, again, "data", "redelivery_count")


@scenario(area=AREA, title="Sticky: whoever takes over a range gets what its consumer left")
def sticky_hand_over(run: ScenarioRun) -> None:
    topic = run.topic()
    low, high = sticky_consumer(run, topic, (0, 32_767)), sticky_consumer(run, topic, (32_768, 65_535))
    send_keyed(run, topic, numbered_keys(20), 2)
    left = by_key(run, run.rest(low))
    low.close()
    by_key(run, run.rest(high))
    heir = sticky_consumer(run, topic, (0, 32_767))
    run.record("left", left)
    run.record("inherited", by_key(run, run.rest(heir)))
    run.record_messages("the other one, then", run.rest(high))


@scenario(area=AREA, title="Batches by key: each key goes to one consumer, in order")
def batches_by_key(run: ScenarioRun) -> None:
    topic = run.topic()
    consumers = [run.consumer(topic, kind="KeyShared") for _ in range(2)]
    producer = run.producer(
        topic, batching_enabled=True, batching_max_publish_delay_ms=10_000, batching_type=run.sdk.BatchingType.KeyBased
    )
    for turn in range(3):
        for key in numbered_keys(12):
            producer.send_async(f"{key}-{turn}".encode(), None, partition_key=key)
    producer.flush()
    shares = [by_key(run, run.rest(consumer)) for consumer in consumers]
    run.record("consumers of a key", set(Counter(key for share in shares for key in share).values()))
    run.record("messages", {key: texts for share in shares for key, texts in share.items()})


@scenario(area=AREA, title="Messages in chunks go with their keys, whole and in order")
def chunks(run: ScenarioRun) -> None:
    topic = run.topic()
    consumers = [run.consumer(topic, kind="KeyShared") for _ in range(2)]
    producer = run.producer(topic, chunking_enabled=True)
    for number in range(2):
        for key in numbered_keys(3):
            producer.send(bytes([number]) * (_TWO_CHUNKS if number else 10), partition_key=key)
    shares: list[dict[str, list[int]]] = [{}, {}]
    while sum(len(sizes) for share in shares for sizes in share.values()) < 6:
        for share, consumer in zip(shares, consumers, strict=True):
            for message in run.rest(consumer, 300):
                share.setdefault(message.partition_key(), []).append(len(message.data()))
                consumer.acknowledge(message)
    run.record("consumers of a key", set(Counter(key for share in shares for key in share).values()))
    run.record("sizes", {key: sizes for share in shares for key, sizes in share.items()})
    run.until(lambda: run.admin.backlog(topic, "sub") == 0, "no backlog")


@scenario(area=AREA, title="redeliver_unacknowledged_messages keeps the order of each key")
def redelivered_in_order(run: ScenarioRun) -> None:
    topic = run.topic()
    consumer = run.consumer(topic, kind="KeyShared")
    send_keyed(run, topic, numbered_keys(4), 4)
    for message in run.receive(consumer, 16):
        if run.view(message).endswith("-1"):
            consumer.acknowledge(message)
    run.until(lambda: run.admin.backlog(topic, "sub") == 12, "the acknowledgements")
    consumer.redeliver_unacknowledged_messages()
    run.record("again", by_key(run, run.receive(consumer, 12)))
    run.record_messages("and then", run.rest(consumer))
