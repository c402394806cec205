"""Key_Shared: a key's messages go to one consumer, in order."""

from __future__ import annotations

import threading
from collections import Counter
from typing import Any

from tests.compat.harness.driver import ScenarioRun, numbers
from tests.compat.harness.scenario import scenario
from tests.compat.scenarios.keyed import by_key, numbered_keys, send_keyed, sticky_consumer

AREA = "key_shared"


@scenario(area=AREA, title="Each key goes to one consumer, in order; all consumers take part")
def one_consumer_a_key(run: ScenarioRun) -> None:
    topic = run.topic()
    consumers = [run.consumer(topic, kind="KeyShared") for _ in range(3)]
    send_keyed(run, topic, numbered_keys(40), 3)
    shares = [by_key(run, run.rest(consumer)) for consumer in consumers]
    run.record("consumers of a key", set(Counter(key for share in shares for key in share).values()))
    run.record("messages", {key: texts for share in shares for key, texts in share.items()})
    run.record("all took part", all(shares))


@scenario(area=AREA, title="The ordering key comes before the partition key")
def ordering_key(run: ScenarioRun) -> None:
    topic = run.topic()
    consumers = [run.consumer(topic, kind="KeyShared") for _ in range(2)]
    producer = run.producer(topic)
    for number in range(30):
        producer.send(str(number).encode(), partition_key=f"p{number}", ordering_key="the-same")
    shares = [run.rest(consumer) for consumer in consumers]
    run.record("numbers", sorted(len(share) for share in shares))
    run.record_messages("received", shares[0] or shares[1])


@scenario(area=AREA, title="Messages without a key are shared out, each to one consumer")
def no_key(run: ScenarioRun) -> None:
    topic = run.topic()
    consumers = [run.consumer(topic, kind="KeyShared") for _ in range(2)]
    run.send(topic, numbers(40))
    shares = [run.rest(consumer) for consumer in consumers]
    run.record_set("received", shares[0] + shares[1])
    run.record("all took part", all(shares))


@scenario(area=AREA, title="The keys of a closed consumer go to those that are left, from the first unacknowledged one")
def a_consumer_leaves(run: ScenarioRun) -> None:
    topic = run.topic()
    first, second = run.consumer(topic, kind="KeyShared"), run.consumer(topic, kind="KeyShared")
    send_keyed(run, topic, numbered_keys(20), 2)
    for message in run.rest(second):
        second.acknowledge(message)
    taken = run.rest(first)
    run.record("it had some", bool(taken))
    first.close()
    again = run.receive_acked(second, len(taken))
    run.record("the same again, in order", by_key(run, again) == by_key(run, taken))
    run.record_messages("and then", run.rest(second))


@scenario(area=AREA, title="Order is kept per key when a consumer joins while messages are not acknowledged")
def a_consumer_joins(run: ScenarioRun) -> None:
    topic = run.topic()
    first = run.consumer(topic, kind="KeyShared")
    send_keyed(run, topic, numbered_keys(10), 1)
    held = run.receive(first, 10)
    second = run.consumer(topic, kind="KeyShared")
    send_keyed(run, topic, numbered_keys(10), 1)
    run.record("the newcomer waits for keys that are held", len(run.rest(second)))
    for message in held:
        first.acknowledge(message)
    rest = run.rest(first) + run.rest(second)
    run.record_set("afterwards", rest)


@scenario(area=AREA, title="Sticky ranges: a key goes where its hash lies, whatever else is there")
def sticky(run: ScenarioRun) -> None:
    topic = run.topic()
    low, high = sticky_consumer(run, topic, (0, 32767)), sticky_consumer(run, topic, (32768, 65535))
    send_keyed(run, topic, numbered_keys(30), 2)
    run.record("low", by_key(run, run.rest(low)))
    run.record("high", by_key(run, run.rest(high)))


@scenario(area=AREA, title="Sticky ranges that overlap are refused")
def sticky_overlap(run: ScenarioRun) -> None:
    topic = run.topic()
    first = sticky_consumer(run, topic, (0, 40000))
    run.attempt("overlapping", lambda: sticky_consumer(run, topic, (40000, 65535)))
    run.attempt("beside", lambda: sticky_consumer(run, topic, (40001, 65535)))
    first.close()
    run.attempt("free again", lambda: sticky_consumer(run, topic, (0, 100)))


@scenario(area=AREA, title="Consumers of another mode, another order or another type are refused")
def another_kind(run: ScenarioRun) -> None:
    topic = run.topic()
    policy, mode = run.sdk.ConsumerKeySharedPolicy, run.sdk.KeySharedMode

    def subscribe(policy: Any = None, kind: str = "KeyShared") -> Any:
        return run.consumer(topic, kind=kind, key_shared_policy=policy)

    subscribe(policy(mode.Sticky, sticky_ranges=[(0, 100)]))
    run.attempt("auto split", subscribe)
    run.attempt("out of order", lambda: subscribe(policy(mode.Sticky, True, [(200, 300)])))
    run.attempt("backwards", lambda: subscribe(policy(mode.Sticky, sticky_ranges=[(300, 200)])))
    run.attempt("shared", lambda: subscribe(kind="Shared"))
    run.attempt("beside", lambda: subscribe(policy(mode.Sticky, sticky_ranges=[(200, 300)])))


@scenario(area=AREA, title="A message that comes again is before what was never out")
def negative_before_new(run: ScenarioRun) -> None:
    topic = run.topic()
    consumer = run.consumer(topic, kind="KeyShared", receiver_queue_size=1, negative_ack_redelivery_delay_ms=300)
    send_keyed(run, topic, ["k"], 6)
    first = run.receive(consumer, 1)[0]
    consumer.negative_acknowledge(first)
    run.record_messages("second", run.receive(consumer, 1))
    threading.Event().wait(1.5)  # the delay passes while the consumer's queue is full
    run.record_messages("then", run.rest(consumer), "data", "redelivery_count")


@scenario(area=AREA, title="Policies that make no sense")
def bad_policies(run: ScenarioRun) -> None:
    policy, mode = run.sdk.ConsumerKeySharedPolicy, run.sdk.KeySharedMode
    for name, ranges in (("empty", []), ("backwards", [(5, 1)]), ("beyond", [(0, 65536)]), ("negative", [(-1, 5)])):
        run.attempt(name, lambda r=ranges: policy(key_shared_mode=mode.Sticky, sticky_ranges=r))  # type: ignore[misc]
    run.attempt("overlapping", lambda: policy(key_shared_mode=mode.Sticky, sticky_ranges=[(0, 5), (5, 9)]))
    run.attempt("sticky without ranges", lambda: policy(key_shared_mode=mode.Sticky))
    made = policy(allow_out_of_order_delivery=True)
    run.record("properties", [made.key_shared_mode, made.allow_out_of_order_delivery, made.sticky_ranges])


@scenario(area=AREA, title="A negatively acknowledged message goes to the same consumer, counted")
def negative(run: ScenarioRun) -> None:
    topic = run.topic()
    consumers = [
        run.consumer(topic, kind="KeyShared", negative_ack_redelivery_delay_ms=200, consumer_name=name)
        for name in ("a", "b")
    ]
    send_keyed(run, topic, ["k"], 1)
    shares = [run.rest(consumer) for consumer in consumers]
    owner = 0 if shares[0] else 1
    consumers[owner].negative_acknowledge(shares[owner][0])
    run.record_messages("again", run.receive(consumers[owner], 1), "data", "redelivery_count")


@scenario(area=AREA, title="On a partitioned topic")
def partitioned(run: ScenarioRun) -> None:
    topic = run.topic(partitions=2)
    consumers = [run.consumer(topic, kind="KeyShared") for _ in range(2)]
    send_keyed(run, topic, numbered_keys(20), 3)
    shares = [by_key(run, run.rest(consumer)) for consumer in consumers]
    run.record("consumers of a key", set(Counter(key for share in shares for key in share).values()))
    run.record("messages", {key: texts for share in shares for key, texts in share.items()})


@scenario(area=AREA, title="Cumulative acknowledgements are refused")
def cumulative(run: ScenarioRun) -> None:
    topic = run.topic()
    consumer = run.consumer(topic, kind="KeyShared")
    send_keyed(run, topic, ["k"], 1)
    message = run.receive(consumer, 1)[0]
    run.attempt("cumulative", lambda: consumer.acknowledge_cumulative(message))
