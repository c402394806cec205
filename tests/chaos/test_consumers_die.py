"""Consumers are killed, stopped and joined by others, mid-stream."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from itertools import count, islice

import pytest
from confluent_kafka import Producer

from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.base.errors import Fenced
from pulsar_on_kafka.kafka.groups.group_members import GroupMembers
from pulsar_on_kafka.kafka.groups.membership import GroupCallbacks, GroupConsumer
from pulsar_on_kafka.kafka.records import CommittedOffset
from pulsar_on_kafka.kafka.settings import KafkaSettings
from pulsar_on_kafka.kafka.wire.client import WireClient
from pulsar_on_kafka_mapping.names.subscription_group import group_id
from tests.chaos.evidence import Position
from tests.chaos.processes import WorkerProcess
from tests.chaos.stage import Stage
from tests.chaos.worker import residue
from tests.waiting import until

pytestmark = pytest.mark.kafka

MakeStage = Callable[..., Stage]


def test_the_messages_of_a_killed_shared_consumer_come_to_the_other(stage: MakeStage) -> None:
    on = stage(4)
    publisher = on.publish(pace_ms=0.3)
    shared = on.subscription("Shared")
    doomed, other = shared.join_many(2, flush_every=37)
    until(lambda: min(doomed.received(), other.received()) > 500, "both are at work")
    doomed.kill()
    until(lambda: other.owned() == {0, 1, 2, 3}, "the other one has it all")
    publisher.stop()
    shared.until_worked_off()
    assert other.owned() == {0, 1, 2, 3}
    found = shared.verdict()
    on.check_publishing(on.sent())
    assert not found.broken
    assert found.duplicates["holder killed"] > 0
    assert not found.unexplained, found


def test_a_killed_exclusive_consumer_is_followed_at_once(stage: MakeStage) -> None:
    on = stage(1)
    publisher = on.publish(pace_ms=0.3)
    exclusive = on.subscription("Exclusive")
    doomed = exclusive.join(flush_every=37)
    follower = exclusive.worker(flush_every=37, apart=False)
    exclusive.warm(follower)
    until(lambda: doomed.received() > 1000, "it is at work")
    doomed.kill()
    follower.try_to_subscribe()
    follower.until(lambda: follower.look().last("sb"), "subscribed or refused")
    said = follower.look().last("sb")
    assert said is not None
    assert said.kind == "s", f"refused: {said.text}"
    assert follower.said_good_byes()
    follower.until(follower.received, "receives")
    publisher.stop()
    exclusive.until_worked_off()
    assert not exclusive.verdict().broken


@pytest.mark.parametrize("type_", ["Shared", "KeyShared", "Failover"])
def test_a_survivor_of_the_same_machine_goes_on_before_the_session_is_over(stage: MakeStage, type_: str) -> None:
    on = stage(1)
    publisher = on.publish(pace_ms=1, keys=97 if type_ == "KeyShared" else 0)
    stand = on.subscription(type_)
    workers = [stand.join(flush_every=37, apart=False), stand.join(flush_every=37, apart=False)]
    until(lambda: [worker for worker in workers if worker.owned()], "one of them owns it")
    doomed, survivor = sorted(workers, key=lambda worker: not worker.owned())
    until(lambda: doomed.received() + survivor.received() > 1000, "it is at work")
    sent = publisher.sent
    assert not survivor.said_good_byes()
    doomed.kill()
    survivor.until(survivor.owned, "takes over")
    survivor.until(lambda: any(r.position.offset > sent for r in survivor.look().receipts), "receives what came then")
    assert survivor.said_good_byes()
    publisher.stop()
    stand.until_worked_off()
    assert not stand.verdict().broken


def test_eight_that_close_together_leave_nobody_behind(stage: MakeStage) -> None:
    on = stage(4)
    publisher = on.publish(pace_ms=1)
    shared = on.subscription("Shared")
    workers = shared.join_many(8, flush_every=37)
    until(lambda: set().union(*(w.owned() for w in workers)) == {0, 1, 2, 3}, "all partitions are served")
    for worker in workers:
        worker.tell("close")
    for worker in workers:
        worker.until(lambda worker=worker: worker.count("c"), "closed")  # type: ignore[misc]
    group = group_id(on.kafka_topic, "sub")
    assert not on.admin.node.admin.describe_group(group, Deadline.after(20)).members
    for worker in workers:
        assert not re.search("could not save|save failed", worker.log.read_text())
    shared.join(flush_every=37, apart=False)
    publisher.stop()
    shared.until_worked_off()
    assert not shared.verdict().broken


def test_a_living_member_that_was_made_to_leave_can_commit_nothing(stage: MakeStage) -> None:
    on = stage(1)
    assigned: list[int] = []
    lost: list[int] = []

    def take(partitions: list[int]) -> dict[int, int]:
        assigned.extend(partitions)
        return dict.fromkeys(partitions, 0)

    settings = KafkaSettings(on.bootstrap)
    config = settings.group_member(group_id=on.topic, client_id="living", fetch_queue_kbytes=1024, partitioned=False)
    member = GroupConsumer(config, on.kafka_topic, GroupCallbacks(take, lost.extend, lost.extend, lambda _: None))
    until(lambda: [member.poll(1, 0.05), assigned][1], "it has the partition")
    member.commit({0: CommittedOffset(1, "before")})
    wire = WireClient(settings.common())
    assert GroupMembers(wire).remove({on.topic: [member.member_id()]}, Deadline.after(60)) == {on.topic: None}
    wire.close(Deadline.after(60))
    with pytest.raises(Fenced):
        member.commit({0: CommittedOffset(2, "after")})
    assert member.committed([0], 20) == {0: CommittedOffset(1, "before")}
    until(lambda: [member.poll(1, 0.05), lost][1], "it is told")
    member.close()


def test_a_process_stopped_beyond_its_session_changes_nothing_when_it_wakes(stage: MakeStage) -> None:
    on = stage(4)
    on.publish(8_000).wait()
    # The sleepers do not flush while messages come and save rarely, so they wake with acknowledgements that were not
    # saved. The others acknowledge other messages, so they do not make them durable in the sleepers' stead.
    asleep = {
        "flush_every": 100_000,
        "flush_idle_s": 3.0,
        "persist_ms": 60_000,
        "residues": (0, 1, 2, 3, 4),
        "pace_ms": 0.5,
    }
    others = {"flush_every": 37, "residues": (5, 6, 7, 8)}
    stands = [on.subscription(type_, type_) for type_ in ("Shared", "Failover", "Exclusive")]
    cast = [(stand, stand.worker(**asleep), stand.worker(**others)) for stand in stands]
    for stand, sleeper, other in cast:
        stand.warm(sleeper, other)
    for _, sleeper, _ in cast:
        sleeper.subscribe()
        until(lambda sleeper=sleeper: sleeper.received() > 1000, "it is at work")  # type: ignore[misc]
        sleeper.stop()
    until(lambda: sum(asked_again(other) for _, _, other in cast) == 3, "the others are let in")
    until(lambda: all(other.owned() == {0, 1, 2, 3} for _, _, other in cast), "the others own it all")
    for stand, sleeper, _ in cast:
        stand.until_worked_off((5, 6, 7, 8))
        assert len(sleeper.look().acknowledged) > 100
        assert not sleeper.look().durable
    for _, sleeper, _ in cast:
        sleeper.go_on()
    for _, sleeper, _ in cast:
        sleeper.until(lambda s=sleeper: s.count("l"), "learns that it lost its partitions")  # type: ignore[misc]
        sleeper.until(lambda s=sleeper: s.count("x") + s.count("f"), "is told what was not kept")  # type: ignore[misc]
    on.publish(2_000, name="q").wait()
    for stand, sleeper, other in cast:
        if stand.type == "Exclusive":
            sleeper.until(lambda s=sleeper: s.count("f"), "has no consumer any more")  # type: ignore[misc]
            stand.until_worked_off((5, 6, 7, 8))
        else:
            # It goes on with the partitions that it gets again, and with what the other one left to acknowledge there.
            sleeper.until(sleeper.last_owned_after_loss, "owns partitions again")
            sent = set(on.sent())
            until(lambda: sent <= stand.received(), "each message went to one of them")  # noqa: B023
            sleeper.kill()
        other.close()
        stand.join(flush_every=37)
    for stand in stands:
        stand.until_worked_off()
        assert not stand.verdict().broken


def test_a_sleeper_wakes_to_an_empty_group(stage: MakeStage) -> None:
    """Kafka takes commits from nobody in particular for an empty group; the sleeper's must not be among them."""
    on = stage(1)
    on.publish(4_000).wait()
    stand = on.subscription("Failover")
    sleeper = stand.join(flush_every=100_000, persist_ms=50, pace_ms=1)
    until(lambda: sleeper.received() > 500, "it is at work")
    sleeper.stop()
    other = stand.join(flush_every=37)
    stand.until_worked_off()
    other.close()
    before = stand.sampler.samples[-1]
    sleeper.go_on()
    sleeper.until(lambda: sleeper.count("l"), "learns that it lost its partition")
    sleeper.until(lambda: sleeper.owned() == {0}, "gets it again")
    assert stand.sampler.samples[-1].offset >= before.offset
    assert not stand.verdict().broken


def test_a_rebalance_while_acknowledgements_are_in_flight(stage: MakeStage) -> None:
    on = stage(4)
    publisher = on.publish(pace_ms=1)
    shared = on.subscription("Shared")
    shared.join_many(2, flush_every=23, persist_ms=5, shuffle=200)
    for _ in range(2):
        third = shared.worker(flush_every=23, persist_ms=5, shuffle=200)
        shared.warm(third)
        third.subscribe()
        third.until(lambda third=third: third.received() > 200, "receives")  # type: ignore[misc]
        third.close()
    publisher.stop()
    shared.until_worked_off()
    found = shared.verdict()
    assert not found.broken
    assert found.kills == found.stops == 0


def test_failover_goes_on_in_order_when_the_active_process_dies(stage: MakeStage) -> None:
    on = stage(1)
    publisher = on.publish(pace_ms=1)
    failover = on.subscription("Failover")
    active, second, _ = failover.join_many(3, flush_every=37)
    until(lambda: active.received() > 500, "the first by name is active")
    active.kill()
    before = second.received()
    until(lambda: second.received() > before + 500, "the second one continues")
    publisher.stop()
    failover.until_worked_off()
    assert not failover.verdict().broken


def test_a_topic_of_a_plain_kafka_producer_while_consumers_crash(stage: MakeStage) -> None:
    """Written by a Kafka transaction: commit markers and aborted records take offsets that nobody ever receives."""
    on = stage(2)
    plain = Producer({"bootstrap.servers": on.bootstrap, "transactional.id": on.topic, "linger.ms": 1})
    plain.init_transactions(30)
    shared = on.subscription("Shared")
    workers = shared.join_many(2, flush_every=37)
    numbers, committed = count(), 0

    def write(*, is_aborted: bool) -> None:
        nonlocal committed
        plain.begin_transaction()
        for number in islice(numbers, 150):
            plain.produce(
                on.kafka_topic,
                b"" if number % 97 == 0 else f"plain:{number}".encode(),
                key=None if number % 3 else f"k{number}".encode(),
                headers=[("any", b"\xff\x00")],
                partition=number % 2,
            )
        if is_aborted:
            plain.flush(30)  # so that there is something in the log to be aborted
            plain.abort_transaction(30)
        else:
            plain.commit_transaction(30)
            committed += 150

    def are_at_work() -> bool:
        """One may be through with everything before the other one is assigned a partition, so there is more each
        time."""
        write(is_aborted=False)
        return min(worker.received() for worker in workers) > 100

    for turn in range(40):
        write(is_aborted=turn % 8 == 7)
        if turn == 20:
            until(are_at_work, "both are at work")
            workers[0].kill()
            shared.join(flush_every=37)
    shared.until_worked_off()
    found = shared.verdict()
    assert not found.broken
    assert found.sent == committed
    ends = {sample.partition: sample.offset for sample in shared.sampler.samples}
    assert set(ends) == {0, 1}


def asked_again(worker: WorkerProcess) -> bool:
    """It subscribed; it is asked again each time that it was refused."""
    answers = worker.count("b") + worker.count("s")
    if worker.asked == answers and not worker.count("s") and time.monotonic() - worker.asked_at > 0.3:
        worker.try_to_subscribe()
    return bool(worker.count("s"))


def unacknowledged(on: Stage) -> set[Position]:
    """What workers with the usual orders leave."""
    return {position for position in on.sent() if residue(*position) == 9}


def test_it_is_there_in_time(stage: MakeStage) -> None:
    """A clean hand-over costs no session time-out."""
    on = stage(2)
    on.publish(3_000).wait()
    shared = on.subscription("Shared")
    first = shared.join(flush_every=37, pace_ms=1)
    until(lambda: first.received() > 300, "it is at work")
    second = shared.worker(flush_every=37)
    shared.warm(second)
    first.close()
    began = time.monotonic()
    second.subscribe()
    second.until(second.received, "receives")
    assert second.look().receipts[0].at - began < 3.0
    shared.until_worked_off()
    found = shared.verdict()
    assert not found.broken
    assert found.remaining == len(unacknowledged(on))
