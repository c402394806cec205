"""The real Subscriptions and CursorStore under random histories: consumers of the whole topic and of single partitions
come, pause, die, hand over and come back in the same process. Nobody serves a partition beside another one, no saved
acknowledgement is lost, and what the last commits refer to is there when the log was compacted. Commits are so small
that most holes lie in segments.

Kafka's groups are a small model: who is a member, who owns (the first one that joined), commits refused for others.
`make soak` runs 3,000.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from contextlib import suppress
from functools import partial

import pytest

from pulsar_on_kafka.base import errors
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.broker.cursor import commit_metadata
from pulsar_on_kafka.broker.cursor.checkpoints import Checkpoints
from pulsar_on_kafka.broker.cursor.identity import CursorIdentity
from pulsar_on_kafka.broker.cursor.saved_cursor import AcceptedSave, Save, checkpoint_beside
from pulsar_on_kafka.broker.cursor.store import CursorStore
from pulsar_on_kafka.broker.metadata.entities import Entities
from pulsar_on_kafka.broker.metadata.subscriptions.registry import SUBSCRIPTION_KEYS, Subscriptions
from pulsar_on_kafka.broker.metadata.subscriptions.subscription import Subscription, SubscriptionType, cursor_identity
from pulsar_on_kafka.broker.metadata.subscriptions.subscription_holders import Claimant
from pulsar_on_kafka.broker.metadata.topics import Topic
from pulsar_on_kafka.broker.subscriptions.partition.owned_partition import OwnedPartition
from pulsar_on_kafka.kafka.records import CommittedOffset, GroupDescription, GroupMember
from pulsar_on_kafka_mapping.ids.ledger_ids import LedgerLayout
from pulsar_on_kafka_mapping.names.topic_name import TopicName
from tests.seeds import in_three
from tests.simulation.cursors import every_reference_is_there, prepared, taken_over
from tests.simulation.history import ActorsHistory
from tests.simulation.turns import NEVER, Actor, ActorsLog, kafka_cleans, simulated_topic

PARTITIONS = 2
SESSION_S = 6
TOPIC = Topic(TopicName.parse("t"), "public.default.t", "id", PARTITIONS, True, LedgerLayout(5, 8))


class Groups:
    """Kafka's consumer groups. A member that is not the first of its group owns nothing."""

    def __init__(self) -> None:
        self.members: dict[str, list[str]] = {}
        self.commits: dict[tuple[str, int], CommittedOffset] = {}

    def owns(self, group: str, client: str) -> bool:
        return self.members.get(group, [""])[:1] == [client]

    def leave(self, client: str) -> None:
        for members in self.members.values():
            if client in members:
                members.remove(client)


class ActorsKafka:
    """The groups and logs as one actor meets them: others may have their turns before every answer."""

    def __init__(self, groups: Groups, actor: Actor, rng: random.Random) -> None:
        self._groups = groups
        self._actor = actor
        self._rng = rng

    def turn(self) -> None:
        if self._rng.random() < 0.5:
            self._actor.pause()

    def describe_group(self, group_id: str, deadline: Deadline) -> GroupDescription:
        self.turn()
        members = tuple(GroupMember(c, c, "", ()) for c in self._groups.members.get(group_id, ()))
        return GroupDescription(group_id, "STABLE" if members else "EMPTY", members)

    def delete_group(self, group_id: str, deadline: Deadline) -> bool:
        self.turn()
        if self._groups.members.get(group_id):
            raise errors.SubscriptionBusy("it has live members")
        for place in [place for place in self._groups.commits if place[0] == group_id]:
            del self._groups.commits[place]
        return True

    def start_offsets(self, topic: str, partitions: Sequence[int], deadline: Deadline) -> dict[int, int]:
        return dict.fromkeys(partitions, 0)

    def end_offsets(self, topic: str, partitions: Sequence[int], deadline: Deadline) -> dict[int, int]:
        raise NotImplementedError

    def committed(self, group: str, partition: int) -> CommittedOffset | None:
        self.turn()
        return self._groups.commits.get((group, partition))

    def commit(self, group: str, client: str, partition: int, commit: CommittedOffset) -> None:
        self.turn()
        if not self._groups.owns(group, client):
            raise errors.Fenced(f"{client} is no owner any more")
        self._groups.commits[group, partition] = commit


class History(ActorsHistory):
    def __init__(self, seed: int, steps: int = 500) -> None:
        super().__init__(seed, steps)
        self.topic = simulated_topic(with_lag=True)
        self.groups = Groups()
        self.sessions = 0
        self.client_of: dict[Actor, str] = {}
        self.gone_since: dict[str, int] = {}
        """Members whose process died or is stopped: Kafka lets them go after a while."""
        self.serving: dict[str, tuple[str, tuple[int, ...]]] = {}
        self.acknowledged: dict[tuple[int, int], set[int]] = {}
        """What was saved for certain, by partition and its life: removing a subscription from one ends that."""
        self.taken_over: dict[str, int] = {}
        """By way of serving: how often a partition was taken over from the other way."""
        self.newest: dict[int, tuple[CursorIdentity, CommittedOffset]] = {}
        """By partition: the last commit that was accepted of anybody."""

    def run(self) -> dict[str, int]:
        self.begin(*[self._consumer] * 4, then=self._consumer)
        entities = Entities(self.log, self.topic, SUBSCRIPTION_KEYS, self.clock)
        kafka = ActorsKafka(self.groups, self.actors[0], self.rng)
        Subscriptions(entities, kafka, self.clock).create(TOPIC, "s", {0: 0, 1: 0}, NEVER)
        self.play()
        self.log.compact(self.rng, thoroughly=True)
        for identity, commit in self.newest.values():
            every_reference_is_there(self.log, identity, commit)
        return self.taken_over

    def step(self, draw: float) -> None:
        if draw < 0.9:
            self.schedule.step_one_of(self.actors)
        elif draw < 0.95:
            kafka_cleans(self.log, self.topic, self.clock, self.rng)
        elif draw < 0.97 and self.broker.waiting:
            self.broker.execute_one()
        elif draw > 0.98:
            self.gone_since[self.client_of.pop(self.one_dies(), "")] = self.clock.seconds
        self._evict()
        self._one_serves_a_partition()

    def _evict(self) -> None:
        for actor in self.actors:
            client = self.client_of.get(actor, "")
            if self.schedule.sleeps(actor):
                self.gone_since.setdefault(client, self.clock.seconds)
            else:
                self.gone_since.pop(client, None)
        for client, since in list(self.gone_since.items()):
            if self.clock.seconds - since >= SESSION_S:
                self.groups.leave(client)
                if client not in self.client_of.values():
                    del self.gone_since[client]

    def _one_serves_a_partition(self) -> None:
        owners: dict[int, list[str]] = {}
        for client, (group, partitions) in self.serving.items():
            if self.groups.owns(group, client):
                for partition in partitions:
                    owners.setdefault(partition, []).append(client)
        assert all(len(found) == 1 for found in owners.values()), f"seed {self.seed}: {owners} serve at once"

    # What a consumer does -----------------------------------------------------------------------------------------

    def _consumer(self, actor: Actor) -> None:
        log = ActorsLog(self.log, actor, self.rng, self.broker, unknown_share=0.04)
        kafka = ActorsKafka(self.groups, actor, self.rng)
        entities = Entities(log, self.topic, SUBSCRIPTION_KEYS, self.clock)
        subscriptions = Subscriptions(entities, kafka, self.clock, leaving_s=0.0)
        store = CursorStore(self.log)
        while True:
            actor.pause()
            self.sessions += 1
            client = f"c{self.sessions}"
            self.client_of[actor] = client
            with suppress(errors.Refused, errors.StoreError):
                self._live(client, subscriptions, store, kafka)
            self.serving.pop(client, None)
            self.groups.leave(client)

    def _live(self, client: str, subscriptions: Subscriptions, store: CursorStore, kafka: ActorsKafka) -> None:
        partition = self.rng.choice([None, *range(PARTITIONS)])
        kind = self.rng.choice([SubscriptionType.SHARED, SubscriptionType.EXCLUSIVE])
        claimant = Claimant(client, client, client) if kind is SubscriptionType.EXCLUSIVE else None
        opened = subscriptions.open(
            TOPIC, "s", kind, from_earliest=True, claimant=claimant, partition=partition, deadline=NEVER
        )
        kafka.turn()
        self.groups.members.setdefault(opened.group, []).append(client)
        for _ in range(6):
            if self.groups.owns(opened.group, client):
                now = subscriptions.verify(opened, client, NEVER)
                self._serve(client, now, store, kafka)
                break
            kafka.turn()
        self.serving.pop(client, None)
        kafka.turn()
        self.groups.leave(client)
        if claimant is not None:
            subscriptions.release(opened, client, NEVER)
        if partition == 1 and self.rng.random() < 0.2:  # 0 keeps it, so that it lives on
            subscriptions.delete(opened, NEVER)

    def _serve(self, client: str, now: Subscription, store: CursorStore, kafka: ActorsKafka) -> None:
        checkpoints = Checkpoints(self.log, self.clock)
        cursors: dict[int, OwnedPartition] = {}
        for partition in now.served:
            identity = cursor_identity(now, partition)
            own = kafka.committed(now.group, partition)
            other = now.other_group(partition)
            elsewhere = kafka.committed(other, partition) if other is not None else None
            checkpoint = checkpoint_beside(partial(checkpoints.newest, identity, NEVER), own, elsewhere)
            found = store.recover(identity, own, checkpoint, 0, NEVER, elsewhere)
            saved = self.acknowledged.get((partition, identity.subscription_incarnation), set())
            missing = {offset for offset in saved if not found.state.is_acknowledged(offset)}
            owned, save = taken_over(store, identity, found)
            self._commit(now.group, client, partition, owned, save, kafka)
            assert not missing, f"seed {self.seed}: {client} lost {missing} of partition {partition}"
            if elsewhere is not None and (own is None or found.state.next_unacked != own.kafka_offset):
                way = "whole" if now.partition is None else "partition"
                self.taken_over[way] = self.taken_over.get(way, 0) + 1
            store.clean(identity, owned.saves.accepted(save), NEVER)
            if self.rng.random() < 0.7:
                copy = AcceptedSave(identity, save.commit, save.saved.lineage, save.replaces)
                store.write_checkpoints([copy], 0, NEVER)
                store.clean(identity, owned.saves.checkpoint_written(), NEVER)
            cursors[partition] = owned
        self.serving[client] = (now.group, now.served)
        for _ in range(self.rng.randrange(8)):
            kafka.turn()
            self._acknowledge(client, now.group, self.rng.choice(list(cursors.items())), store, kafka)

    def _acknowledge(
        self, client: str, group: str, cursor: tuple[int, OwnedPartition], store: CursorStore, kafka: ActorsKafka
    ) -> None:
        partition, owned = cursor
        wanted = self.rng.sample(range(owned.cursor.next_unacked, owned.cursor.next_unacked + 30), 3)
        owned.cursor.acknowledge(sorted(wanted))
        save = prepared(store, owned)
        self._commit(group, client, partition, owned, save, kafka)
        self.acknowledged.setdefault((partition, owned.identity.subscription_incarnation), set()).update(wanted)
        store.clean(owned.identity, owned.saves.accepted(save), NEVER)

    def _commit(
        self, group: str, client: str, partition: int, owned: OwnedPartition, save: Save, kafka: ActorsKafka
    ) -> None:
        kafka.commit(group, client, partition, save.commit)
        self.newest[partition] = owned.identity, save.commit


@pytest.fixture(autouse=True)
def _small_commits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commit_metadata, "MAX_METADATA_CHARS", 125)


def _run(seeds: range) -> dict[str, int]:
    total = {"whole": 0, "partition": 0}
    for seed in seeds:
        for way, count in History(seed).run().items():
            total[way] += count
    return total


@pytest.mark.parametrize("seeds", in_three(8, range(80)), ids=str)
def test_whole_and_single_partitions_hand_over_and_lose_nothing(seeds: range) -> None:
    total = _run(seeds)
    assert min(total.values()) > len(seeds) // 2, total


@pytest.mark.soak
@pytest.mark.timeout(0)
def test_in_thousands_of_histories_nothing_is_lost() -> None:
    assert min(_run(range(80, 3080)).values()) > 1500
