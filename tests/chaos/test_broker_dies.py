"""The broker goes away and comes back while producers and consumers are at work."""

from __future__ import annotations

import math
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

import pulsar_on_kafka as pulsar
from pulsar_on_kafka.base.errors import StoreError
from pulsar_on_kafka.broker.subscriptions.member import saving
from pulsar_on_kafka.embedded import EmbeddedBroker
from pulsar_on_kafka.kafka.groups import membership as group
from pulsar_on_kafka.kafka.groups.membership import GroupCallbacks, GroupConsumer
from pulsar_on_kafka.kafka.records import CommittedOffset
from pulsar_on_kafka.kafka.settings import KafkaSettings
from tests.chaos.processes import ROOT
from tests.chaos.stage import Publisher, Stage, Stand
from tests.waiting import until

pytestmark = pytest.mark.kafka

_EARLIEST = pulsar.InitialPosition.Earliest

MakeStage = Callable[..., Stage]


def restart(broker: EmbeddedBroker) -> None:
    broker.restart()


def kill(broker: EmbeddedBroker) -> None:
    broker.kill()
    broker.start()


def until_both_go_on(one: Stand, other: Stand, publishers: list[Publisher]) -> None:
    """Each gets 500 messages more."""
    before = [(each, len(each.received())) for each in (one, other)]

    def come() -> list[int]:
        return [len(each.received()) - count for each, count in before]

    until(
        lambda: min(come()) > 500,
        lambda: (
            f"both subscriptions go on: {come()} messages came of 500 each; "
            f"{[(each.name, each.sent, len(each.confirmed)) for each in publishers]} were sent and confirmed"
        ),
        progress=lambda: min(come()),
    )


def test_everybody_continues_when_the_broker_comes_back(shaky_stage: MakeStage, own_broker: EmbeddedBroker) -> None:
    on = shaky_stage(4)
    publishers = [on.publish(pace_ms=4, name=name) for name in ("p", "q")]
    shared = on.subscription("Shared", "shared")
    failover = on.subscription("Failover", "failover")
    workers = [*shared.join_many(2, flush_every=37), *failover.join_many(2, flush_every=37)]
    until(lambda: len(shared.received()) > 500 and len(failover.received()) > 500, "they are at work")
    for outage in (restart, kill):
        outage(own_broker)
        until_both_go_on(shared, failover, publishers)
    for publisher in publishers:
        publisher.stop()
    assert all(worker.alive for worker in workers)
    shared.until_worked_off()
    failover.until_worked_off()
    on.check_publishing(on.sent())
    assert not shared.verdict().broken
    assert not failover.verdict().broken


@pytest.mark.parametrize(
    ("config", "ended"),
    [({}, "lost partitions"), ({"fetch.min.bytes": "1"}, "joining anew")],
    ids=["group client", "librdkafka"],
)
@pytest.mark.parametrize("waits", [True, False], ids=["waited for", "in the background"])
def test_a_commit_that_is_not_answered_ends_a_membership_and_another_begins(
    shaky_stage: MakeStage,
    own_broker: EmbeddedBroker,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    waits: bool,
    config: dict[str, str],
    ended: str,
) -> None:
    """librdkafka may owe the answer for ever; here the broker is frozen until it is given up."""
    # One that is due just then is waited for first, and the membership's session ends before a commit is sent.
    monkeypatch.setattr(saving, "_CHECKPOINT_EVERY_S", math.inf)
    on = shaky_stage(2)
    client = pulsar.Client(f"kafka://{own_broker.bootstrap}", kafka_config=config, operation_timeout_seconds=120)

    def subscribe() -> pulsar.Consumer:
        return client.subscribe(on.topic, "sub", pulsar.ConsumerType.Shared, initial_position=_EARLIEST)

    consumer = subscribe()
    on.publish(200).wait()
    received = [consumer.receive(timeout_millis=60_000) for _ in range(200)]
    consumer.flush()
    failures: list[Exception] = []

    def flush() -> None:
        try:
            consumer.flush()
        except pulsar.PulsarException as failure:
            failures.append(failure)

    def all_is_kept() -> bool:
        """What was acknowledged and not saved comes again."""
        with suppress(pulsar.Timeout):
            while True:
                consumer.acknowledge(consumer.receive(timeout_millis=100))
        return on.admin.subscription_stats(on.topic, "sub").backlog == 0

    flushing = threading.Thread(target=flush)
    with monkeypatch.context() as impatient:
        impatient.setattr(group, "ANSWER_S", 1.0)
        own_broker.pause()
        try:
            for message in received:
                consumer.acknowledge(message)
            if waits:
                flushing.start()
            until(lambda: ended in caplog.text, "it is given up")
        finally:
            own_broker.resume()
    if waits:
        flushing.join()
        assert [type(failure) for failure in failures] in ([pulsar.NotConnected], [pulsar.Timeout])
    until(all_is_kept, "all that was acknowledged to be kept")
    assert caplog.text.count("joining anew") == bool(config)
    with suppress(pulsar.NotConnected):  # once: some of what was acknowledged was not kept
        consumer.flush()
    consumer.flush()
    consumer.close()
    successor = subscribe()
    with pytest.raises(pulsar.Timeout):
        successor.receive(timeout_millis=1_000)
    client.close()


class Member:
    """One membership, which commits in its callbacks; `before` runs before each of these commits."""

    def __init__(self, on: Stage) -> None:
        self.before: Callable[[], None] = lambda: None
        self.told: list[str] = []
        self.failures: list[str] = []
        config = KafkaSettings(on.bootstrap).group_member(
            group_id=on.topic, client_id="test", fetch_queue_kbytes=1024, partitioned=False
        )
        callbacks = GroupCallbacks(self._assigned, self._revoked, lambda _: self.told.append("lost"), lambda _: None)
        self.consumer = GroupConsumer(config, on.kafka_topic, callbacks)

    def _assigned(self, partitions: list[int]) -> dict[int, int]:
        self._commit("assigned", 1)
        return dict.fromkeys(partitions, 0)

    def _revoked(self, partitions: list[int]) -> None:
        self._commit("revoked", 2)

    def _commit(self, what: str, offset: int) -> None:
        self.told.append(what)
        self.before()
        try:
            self.consumer.commit({0: CommittedOffset(offset, what)})
        except StoreError as failure:
            self.failures.append(type(failure).__name__)

    def until_told(self, *told: str) -> None:
        until(lambda: [self.consumer.poll(1, 0.05), self.told == list(told)][1], f"it hears {told}")


def test_commits_in_callbacks_count_when_the_callback_ends(stage: MakeStage) -> None:
    on = stage(1)
    first = Member(on)
    first.until_told("assigned")
    assert first.consumer.committed([0], 5) == {0: CommittedOffset(1, "assigned")}
    first.consumer.close()
    assert first.told == ["assigned", "revoked"]
    second = Member(on)
    second.before = lambda: second.told.append(str(second.consumer.committed([0], 5)))
    second.until_told("assigned", str({0: CommittedOffset(2, "revoked")}))
    second.before = lambda: None
    second.consumer.close()
    assert first.failures == second.failures == []


@pytest.mark.kills
def test_a_commit_in_a_callback_is_not_waited_for_without_end(
    shaky_stage: MakeStage, own_broker: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The broker is frozen, once the callback runs, until the commit has failed; another membership begins."""
    monkeypatch.setattr(group, "ANSWER_S", 1.0)
    member = Member(shaky_stage(1))
    member.before = own_broker.pause
    try:
        member.until_told("assigned")
    finally:
        own_broker.resume()
    assert member.failures == ["CommitOutcomeUnknown"]
    member.before = lambda: None
    member.until_told("assigned", "lost", "assigned")
    assert member.consumer.committed([0], 20) == {0: CommittedOffset(1, "assigned")}
    member.before = own_broker.pause
    try:
        member.consumer.close()
    finally:
        own_broker.resume()
    assert member.told[3:] == ["revoked"]
    assert member.failures == ["CommitOutcomeUnknown"] * 2


def test_a_consumer_dies_while_the_broker_is_away(shaky_stage: MakeStage, own_broker: EmbeddedBroker) -> None:
    """Its group is rebalanced by a coordinator that has only just read the group from its log."""
    on = shaky_stage(2)
    publisher = on.publish(pace_ms=1)
    shared = on.subscription("Shared")
    doomed, other = shared.join_many(2, flush_every=23, persist_ms=5, shuffle=100)
    until(lambda: min(doomed.received(), other.received()) > 500, "both are at work")
    own_broker.kill()
    doomed.kill()
    own_broker.start()
    third = shared.join(flush_every=23, persist_ms=5, shuffle=100)
    publisher.stop()
    shared.until_worked_off()
    on.check_publishing(on.sent())
    assert third.received() + other.received() > 0
    assert not shared.verdict().broken


def test_questions_about_groups_outlive_a_broker(own_broker: EmbeddedBroker, tmp_path: Path) -> None:
    """librdkafka's own requests abort the process here (see `kafka.consumer_groups`)."""
    answers = tmp_path / "answers"
    command = [sys.executable, "-m", "tests.chaos.group_asker", own_broker.bootstrap]
    with (
        answers.open("wb") as said,
        subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=said) as asker,
    ):

        def answered() -> int:
            assert asker.poll() is None, f"the asking process ended with {asker.returncode}"
            return answers.read_text().split().count("yes")

        try:
            until(answered, "it gets answers")
            own_broker.kill()
            own_broker.start()
            before = answered()
            until(lambda: answered() > before + 20, "it gets answers again")
            asker.communicate(timeout=60)
        finally:
            asker.kill()
    assert asker.returncode == 0
