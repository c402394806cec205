"""The Java client plays what the Python client has too: both of Pulsar's clients mean the same by it."""

from __future__ import annotations

from collections import Counter
from typing import Any

from tests.compat.harness.driver import ScenarioRun
from tests.compat.harness.scenario import PulsarClient, scenario
from tests.compat.scenarios.keyed import by_key, send_keyed

BY_JAVA: dict[str, Any] = {"client": PulsarClient.JAVA}


def _key_shared(
    run: ScenarioRun, topic: str, *ranges: tuple[int, int], out_of_order: bool = False, **options: Any
) -> Any:
    modes = run.sdk.KeySharedMode
    policy = run.sdk.ConsumerKeySharedPolicy(
        modes.Sticky if ranges else modes.AutoSplit, out_of_order, list(ranges) or None
    )
    return run.consumer(topic, kind="KeyShared", key_shared_policy=policy, **options)


@scenario(**BY_JAVA, area="key shared (java)", title="Sticky ranges: a key goes where its hash lies")
def sticky(run: ScenarioRun) -> None:
    topic = run.topic()
    consumers = [_key_shared(run, topic, part) for part in ((0, 9999), (10000, 40000), (40001, 65535))]
    send_keyed(run, topic, [f"key-{number}" for number in range(30)], 2)
    for number, consumer in enumerate(consumers):
        run.record(f"consumer {number}", by_key(run, run.rest(consumer)))


@scenario(**BY_JAVA, area="key shared (java)", title="Several ranges for one consumer")
def several_ranges(run: ScenarioRun) -> None:
    topic = run.topic()
    outer, inner = _key_shared(run, topic, (0, 9999), (50000, 65535)), _key_shared(run, topic, (10000, 49999))
    send_keyed(run, topic, [f"key-{number}" for number in range(20)], 1)
    run.record("outer", by_key(run, run.rest(outer)))
    run.record("inner", by_key(run, run.rest(inner)))


@scenario(**BY_JAVA, area="key shared (java)", title="Sticky ranges that nobody has: their keys wait")
def uncovered(run: ScenarioRun) -> None:
    topic = run.topic()
    low = _key_shared(run, topic, (0, 32767))
    send_keyed(run, topic, [f"key-{number}" for number in range(10)], 1)
    run.record("low", by_key(run, run.rest(low)))
    high = _key_shared(run, topic, (32768, 65535))
    run.record("high, later", by_key(run, run.rest(high)))


@scenario(**BY_JAVA, area="key shared (java)", title="Overlapping ranges, other modes and other orders are refused")
def refused(run: ScenarioRun) -> None:
    topic = run.topic()
    _key_shared(run, topic, (0, 30000))
    try:
        _key_shared(run, topic, (30000, 65535))
    except run.sdk.PulsarException:
        # ConsumerAssignError with Python's client and ours (`key shared.sticky_overlap`); Java's has no class for it.
        run.record("overlapping is refused")
    run.attempt("auto split", lambda: _key_shared(run, topic))
    run.attempt("out of order", lambda: _key_shared(run, topic, (30001, 65535), out_of_order=True))
    run.attempt("beside", lambda: _key_shared(run, topic, (30001, 65535)))


@scenario(**BY_JAVA, area="key shared (java)", title="Out of order: a newcomer has keys at once that another one holds")
def out_of_order(run: ScenarioRun) -> None:
    topic = run.topic()
    keys = [f"key-{number}" for number in range(20)]
    first = _key_shared(run, topic, out_of_order=True)
    send_keyed(run, topic, keys, 1)
    held = run.receive(first, 20)
    second = _key_shared(run, topic, out_of_order=True)
    send_keyed(run, topic, keys, 1)
    of_first, of_second = by_key(run, run.rest(first)), by_key(run, run.rest(second))
    run.record("held", len(held))
    run.record("both take part", [bool(of_first), bool(of_second)])
    run.record("consumers of a key", set(Counter([*of_first, *of_second]).values()))
    run.record("keys", set(of_first) | set(of_second))


@scenario(**BY_JAVA, area="key shared (java)", title="In order: a newcomer waits for what another one holds")
def in_order(run: ScenarioRun) -> None:
    topic = run.topic()
    keys = [f"key-{number}" for number in range(20)]
    first = _key_shared(run, topic)
    send_keyed(run, topic, keys, 1)
    held = run.receive(first, 20)
    second = _key_shared(run, topic)
    send_keyed(run, topic, keys, 1)
    run.record("of the newcomer", len(run.rest(second)))
    for message in held:
        first.acknowledge(message)
    rest = run.rest(second)
    run.record("of the newcomer, afterwards", bool(rest))


@scenario(**BY_JAVA, area="access modes (java)", title="Exclusive: a second producer of any mode is refused")
def exclusive(run: ScenarioRun) -> None:
    topic, modes = run.topic(), run.sdk.ProducerAccessMode
    first = run.producer(topic, access_mode=modes.Exclusive)
    first.send(b"a")
    run.attempt("exclusive", lambda: run.producer(topic, access_mode=modes.Exclusive))
    run.attempt("shared", lambda: run.producer(topic))
    first.close()
    run.attempt("afterwards", lambda: run.producer(topic, access_mode=modes.Exclusive))


@scenario(**BY_JAVA, area="access modes (java)", title="Exclusive beside Shared is refused")
def exclusive_beside_shared(run: ScenarioRun) -> None:
    topic, modes = run.topic(), run.sdk.ProducerAccessMode
    run.producer(topic).send(b"a")
    run.attempt("exclusive", lambda: run.producer(topic, access_mode=modes.Exclusive))
    run.attempt("shared", lambda: run.producer(topic))


@scenario(**BY_JAVA, area="access modes (java)", title="ExclusiveWithFencing throws out; who was thrown out stays out")
def fencing(run: ScenarioRun) -> None:
    topic, modes = run.topic(), run.sdk.ProducerAccessMode
    first = run.producer(topic, access_mode=modes.Exclusive)
    first.send(b"a")
    second = run.producer(topic, access_mode=modes.ExclusiveWithFencing)
    second.send(b"b")
    run.attempt("the first one", lambda: first.send(b"c"))
    run.attempt("the first one again", lambda: first.send(b"d"))
    run.attempt("the second one", lambda: second.send(b"e"))
    consumer = run.consumer(topic, initial_position=run.sdk.InitialPosition.Earliest)
    run.record_messages("stored", run.receive(consumer, 3))
    run.record_messages("and then", run.rest(consumer))


def _buried_at_once(run: ScenarioRun, kind: str) -> tuple[str, Any, Any]:
    """A topic, a consumer of its dead letters, and one that buries what it refuses twice."""
    topic = run.topic()
    dead = run.consumer(f"{topic}-sub-DLQ", "undertaker")
    policy = run.sdk.ConsumerDeadLetterPolicy(max_redeliver_count=1)
    options = {"dead_letter_policy": policy, "negative_ack_redelivery_delay_ms": 300}
    return topic, dead, run.consumer(topic, kind=kind, **options)


@scenario(**BY_JAVA, area="dead letter (java)", title="Properties of a dead letter")
def dead_letter(run: ScenarioRun) -> None:
    topic, dead, consumer = _buried_at_once(run, "Shared")
    run.producer(topic).send(b"x", properties={"a": "1"}, partition_key="k")
    for _ in range(2):
        consumer.negative_acknowledge(run.receive(consumer, 1)[0])
    letter = run.receive(dead, 1)[0]
    run.record("letter", run.view(letter, "data", "partition_key"))
    run.record("own", letter.properties().get("a"))
    run.record("origin", letter.properties().get("REAL_TOPIC"))


@scenario(**BY_JAVA, area="dead letter (java)", title="Dead letters of Key_Shared")
def dead_letter_key_shared(run: ScenarioRun) -> None:
    topic, dead, consumer = _buried_at_once(run, "KeyShared")
    send_keyed(run, topic, ["k"], 2)
    for _ in range(2):
        message = run.receive(consumer, 1)[0]
        while run.view(message) != "k-0":
            consumer.acknowledge(message)
            message = run.receive(consumer, 1)[0]
        consumer.negative_acknowledge(message)
    run.record_messages("dead", run.receive(dead, 1))
