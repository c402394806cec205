"""Memberships of the group client on a real broker: alone, beside each other, and beside librdkafka's."""

from __future__ import annotations

import queue
import time
from collections.abc import Callable, Iterator
from contextlib import suppress

import pytest
from confluent_kafka import Consumer
from confluent_kafka.admin import AdminClient, NewTopic

from pulsar_on_kafka.base import errors
from pulsar_on_kafka.embedded import EmbeddedBroker
from pulsar_on_kafka.kafka.groups.group_client import ClientMembership, GroupClient, MembershipCallbacks
from pulsar_on_kafka.kafka.groups.membership_machine import OWNER_TIMEOUT_S, MemberGeneration
from pulsar_on_kafka.kafka.records import CommittedOffset
from pulsar_on_kafka.kafka.wire.brokers import ConnectionLane, KafkaBrokers
from pulsar_on_kafka.kafka.wire.client import WireClient
from pulsar_on_kafka.kafka.wire.error_codes import ErrorCode
from pulsar_on_kafka.kafka.wire.group_messages import LeaveGroupRequest, LeavingMember
from pulsar_on_kafka.kafka.wire.offset_messages import OffsetCommitRequest, OffsetToCommit
from tests.late_proxy import OFFSET_COMMIT, late_broker
from tests.steps import Missing
from tests.waiting import patience, until

pytestmark = pytest.mark.kafka

PARTITIONS = 4
WAIT_S = 60.0


class Owner:
    """Takes the commands of one membership in the test's thread, as a subscription's member does."""

    def __init__(self, client: GroupClient, group_id: str, topic: str, only: int | None = None) -> None:
        self._commands: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self.generation = MemberGeneration("", -1)
        self.owned: dict[int, int] = {}
        """The offset to save of each partition."""
        self.lost = 0
        self.failures: list[errors.LayerError] = []
        callbacks = MembershipCallbacks(
            assigned=lambda partitions, generation: self._put(lambda: self._assigned(partitions, generation)),
            revoked=lambda partitions, generation: self._put(lambda: self._revoked(partitions, generation)),
            lost=lambda partitions: self._put(lambda: self._lost(partitions)),
            refused=lambda failure: self._put(lambda: self.failures.append(failure)),
        )
        self.membership: ClientMembership = client.join(group_id, topic, callbacks, client_id="a-client", only=only)

    def _put(self, command: Callable[[], None]) -> None:
        self._commands.put(command)

    def _assigned(self, partitions: tuple[int, ...], generation: MemberGeneration) -> None:
        self.generation = generation
        if partitions:
            found = self.membership.committed(partitions, WAIT_S).result(WAIT_S)
            self.owned |= {each: found.get(each, CommittedOffset(0, "")).kafka_offset for each in partitions}

    def _revoked(self, partitions: tuple[int, ...], generation: MemberGeneration) -> None:
        self.generation = generation
        self.save(*(each for each in partitions if each in self.owned))
        for each in partitions:
            del self.owned[each]
        self.membership.confirm_revoked(partitions, generation)

    def _lost(self, partitions: tuple[int, ...]) -> None:
        self.lost += 1
        for each in partitions:
            self.owned.pop(each, None)

    def save(self, *partitions: int) -> None:
        commits = {each: CommittedOffset(self.owned[each], "pok1:") for each in partitions}
        self.membership.commit(commits, self.generation).result(WAIT_S)

    def partitions(self) -> list[int]:
        with suppress(queue.Empty):
            while True:
                self._commands.get_nowait()()
        return sorted(self.owned)

    def leave(self) -> None:
        left = self.membership.leave()
        until(lambda: self.partitions() == [] and left.done(), "the group to be left")


class LibrdkafkaMember:
    """A member as `GroupConsumer` has it."""

    def __init__(self, bootstrap: str, group_id: str, topic: str) -> None:
        options = {
            "bootstrap.servers": bootstrap, "group.id": group_id, "session.timeout.ms": 6000,
            "heartbeat.interval.ms": 500, "partition.assignment.strategy": "cooperative-sticky",
            "enable.auto.commit": False,
        }  # fmt: skip
        self.consumer = Consumer(options)
        self.consumer.subscribe([topic])

    def partitions(self) -> list[int]:
        self.consumer.poll(0.05)
        return sorted(each.partition for each in self.consumer.assignment())

    def leave(self) -> None:
        self.consumer.close()


@pytest.fixture
def wire(bootstrap: str) -> Iterator[WireClient]:
    client = WireClient({"bootstrap.servers": bootstrap, "client.id": "test"})
    yield client
    client.close(patience())


@pytest.fixture
def client(wire: WireClient) -> Iterator[GroupClient]:
    found = GroupClient(wire)
    yield found
    found.close(patience())


@pytest.fixture
def admin_of_kafka(bootstrap: str) -> AdminClient:
    return AdminClient({"bootstrap.servers": bootstrap})


@pytest.fixture
def topic(admin_of_kafka: AdminClient, unique: Callable[[], str]) -> str:
    name = unique()
    admin_of_kafka.create_topics([NewTopic(name, PARTITIONS, 1)])[name].result(WAIT_S)
    return name


Members = list[Owner | LibrdkafkaMember]


def share_out(members: Members) -> bool:
    """Whether the members have all partitions, each one its share."""
    shares = [each.partitions() for each in members]
    is_even = max(map(len, shares)) - min(map(len, shares)) <= 1
    return is_even and sorted(partition for share in shares for partition in share) == list(range(PARTITIONS))


def test_a_member_alone_owns_all_saves_and_leaves(
    client: GroupClient, admin_of_kafka: AdminClient, topic: str, unique: Callable[[], str]
) -> None:
    group_id = unique()
    owner = Owner(client, group_id, topic)
    until(lambda: share_out([owner]), "all partitions")
    owner.owned[2] = 17
    owner.save(*range(PARTITIONS))
    found = owner.membership.committed(range(PARTITIONS), WAIT_S).result(WAIT_S)
    assert found[2] == CommittedOffset(17, "pok1:")
    assert owner.membership.member_id == owner.generation.member_id
    stale = owner.generation._replace(number=owner.generation.number - 1)
    with pytest.raises(errors.Fenced):
        owner.membership.commit({2: CommittedOffset(3, "")}, stale).result(WAIT_S)
    with pytest.raises(errors.RecordTooLarge, match="metadata of more than 32767 bytes"):
        owner.membership.commit({2: CommittedOffset(3, "x" * 40_000)}, owner.generation)
    owner.leave()
    described = admin_of_kafka.describe_consumer_groups([group_id])[group_id].result(WAIT_S)
    assert described.members == []
    assert sum(client.lag.counts) > 0


def test_a_second_member_gets_its_share_with_what_the_first_one_saved(
    client: GroupClient, topic: str, unique: Callable[[], str]
) -> None:
    group_id = unique()
    first = Owner(client, group_id, topic)
    until(lambda: share_out([first]), "all partitions")
    first.owned = {each: 100 + each for each in range(PARTITIONS)}
    second = Owner(client, group_id, topic)
    until(lambda: share_out([first, second]), lambda: f"both to share: {first.owned} {second.owned}")
    assert second.owned == {each: 100 + each for each in second.partitions()}
    first.leave()
    until(lambda: share_out([second]), "the rest")
    assert second.owned == {each: 100 + each for each in range(PARTITIONS)}
    assert first.lost == second.lost == 0


@pytest.mark.parametrize("leader", ["ours", "librdkafka"])
def test_members_of_both_kinds_share_a_group(
    client: GroupClient, bootstrap: str, topic: str, unique: Callable[[], str], leader: str
) -> None:
    """The first member of a group leads it."""
    group_id = unique()
    makes: list[Callable[[], Owner | LibrdkafkaMember]] = [
        lambda: Owner(client, group_id, topic),
        lambda: LibrdkafkaMember(bootstrap, group_id, topic),
    ]
    first_kind, second_kind = makes if leader == "ours" else makes[::-1]
    first = first_kind()
    until(lambda: share_out([first]), "all partitions")
    second = second_kind()
    until(lambda: share_out([first, second]), "both to share")
    third = second_kind()
    until(lambda: share_out([first, second, third]), "three to share")
    first.leave()
    until(lambda: share_out([second, third]), "the others to have all")
    second.leave()
    until(lambda: share_out([third]), "the last one to have all")
    third.leave()


def test_lost_connections_do_not_end_a_membership(
    client: GroupClient, wire: WireClient, topic: str, unique: Callable[[], str]
) -> None:
    owner = Owner(client, unique(), topic)
    until(lambda: share_out([owner]), "all partitions")
    member_id = owner.membership.member_id

    async def lose(brokers: KafkaBrokers) -> None:
        node_id = brokers.coordinator(owner.membership.group_id)
        assert node_id is not None
        for lane in ConnectionLane:
            connection = brokers.open_connection(node_id, lane, owner.membership.group_id)
            if connection is not None:
                connection.close()

    for _ in range(3):
        wire.call(lose, patience(), "the loss of all connections")
        until(lambda: saved(owner, 0), "a commit over the next connection")
    assert owner.partitions() == list(range(PARTITIONS))
    assert (owner.membership.member_id, owner.lost) == (member_id, 0)
    owner.leave()


def saved(owner: Owner, partition: int) -> bool:
    try:
        owner.save(partition)
    except errors.StoreError:
        return False
    return True


def test_commits_of_a_member_that_was_removed_are_refused_and_it_joins_anew(
    client: GroupClient, wire: WireClient, topic: str, unique: Callable[[], str]
) -> None:
    group_id = unique()
    owner = Owner(client, group_id, topic)
    until(lambda: share_out([owner]), "all partitions")
    former = owner.generation

    async def remove(brokers: KafkaBrokers) -> None:
        request = LeaveGroupRequest(group_id, (LeavingMember(former.member_id),))
        response = await brokers.send_to_coordinator(group_id, ConnectionLane.QUERIES, request, "another", WAIT_S)
        assert [each.error_code for each in response.members] == [0]

    wire.call(remove, patience(), "LeaveGroup")
    with pytest.raises(errors.Fenced):
        owner.membership.commit({0: CommittedOffset(5, "")}, former).result(WAIT_S)
    until(lambda: owner.partitions() and owner.lost == 1, "another membership")
    assert owner.membership.member_id != former.member_id
    owner.save(0)
    owner.leave()


def test_only_one_partition_is_served(client: GroupClient, topic: str, unique: Callable[[], str]) -> None:
    group_id = unique()
    owners = [Owner(client, group_id, topic, only=1) for _ in range(2)]
    until(lambda: [1] in [each.partitions() for each in owners], "one to serve it")
    for each in owners:
        each.leave()
    assert [each.failures for each in owners] == [[], []]


def test_a_membership_whose_owner_does_not_run_leaves_until_it_does(
    client: GroupClient, topic: str, unique: Callable[[], str]
) -> None:
    owner = Owner(client, unique(), topic)
    until(lambda: share_out([owner]), "all partitions")
    former = owner.generation
    owner.membership.step_due_s = time.monotonic() - OWNER_TIMEOUT_S
    until(lambda: owner.partitions() == [] and owner.lost == 1, "the loss")
    assert owner.membership.member_id == ""
    owner.membership.step_ended(is_due=False)
    until(lambda: share_out([owner]), "all partitions again")
    assert owner.generation.member_id != former.member_id
    owner.leave()


def test_closing_the_client_ends_what_it_had_to_do(client: GroupClient, topic: str, unique: Callable[[], str]) -> None:
    owner = Owner(client, unique(), topic)
    until(lambda: share_out([owner]), "all partitions")
    reads = [owner.membership.committed((0,), WAIT_S) for _ in range(500)]
    commit = owner.membership.commit({0: CommittedOffset(5, "")}, owner.generation)
    client.close(patience())
    assert {type(each.exception(WAIT_S)) for each in reads} <= {errors.Closed, type(None)}
    assert type(commit.exception(WAIT_S)) in (errors.CommitOutcomeUnknown, type(None))
    with pytest.raises(errors.Closed):
        owner.membership.committed((0,), WAIT_S)


def test_a_topic_that_does_not_exist_is_reported_until_it_does(
    client: GroupClient, admin_of_kafka: AdminClient, unique: Callable[[], str]
) -> None:
    name = unique()
    owner = Owner(client, unique(), name)
    until(lambda: not owner.partitions() and owner.failures, "a refusal")
    assert isinstance(owner.failures[0], errors.NoSuchTopic)
    admin_of_kafka.create_topics([NewTopic(name, PARTITIONS, 1)])[name].result(WAIT_S)
    until(lambda: share_out([owner]), "all partitions")
    owner.leave()


def test_a_commit_that_arrives_behind_a_newer_one_changes_nothing(missing: Missing, unique: Callable[[], str]) -> None:
    """librdkafka's members need `ResentCommits` for it (F25)."""
    name, group_id = unique(), unique()
    with late_broker(missing) as proxy:
        bootstrap = proxy.url.removeprefix("kafka://")
        admin = AdminClient({"bootstrap.servers": bootstrap})  # its futures end with it
        admin.create_topics([NewTopic(name, 1, 1)])[name].result(WAIT_S)
        wire = WireClient({"bootstrap.servers": bootstrap, "client.id": "test"})
        client = GroupClient(wire)
        owner = Owner(client, group_id, name)
        until(lambda: owner.partitions() == [0], "the partition")
        former = owner.generation
        proxy.hold(OFFSET_COMMIT, 10.0)
        with pytest.raises(errors.CommitOutcomeUnknown):
            owner.membership.commit({0: CommittedOffset(9, "late")}, former).result(WAIT_S)
        until(lambda: owner.partitions() == [0] and owner.lost == 1, "another membership")
        owner.owned[0] = 12
        owner.save(0)
        assert not proxy.delivered
        until(lambda: proxy.delivered["OffsetCommit"], "the late request")
        assert owner.membership.committed((0,), WAIT_S).result(WAIT_S) == {0: CommittedOffset(12, "pok1:")}

        async def refusals(brokers: KafkaBrokers) -> list[int]:
            codes = []
            for member_id in (former.member_id, owner.membership.member_id):
                offsets = ((name, (OffsetToCommit(0, 9, "late"),)),)
                request = OffsetCommitRequest(group_id, former.number, member_id, offsets)
                response = await brokers.send_to_coordinator(group_id, ConnectionLane.QUERIES, request, "test", WAIT_S)
                codes.append(response.topics[0][1][0].error_code)
            return codes

        codes = wire.call(refusals, patience(), "the same commit")
        assert codes == [ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION]
        owner.leave()
        client.close(patience())
        wire.close(patience())


def test_a_commit_without_a_response_makes_another_member(
    own_broker: EmbeddedBroker, unique: Callable[[], str]
) -> None:
    name = unique()
    admin = AdminClient({"bootstrap.servers": own_broker.bootstrap})
    admin.create_topics([NewTopic(name, PARTITIONS, 1)])[name].result(WAIT_S)
    wire = WireClient({"bootstrap.servers": own_broker.bootstrap, "client.id": "test"})
    client = GroupClient(wire)
    owner = Owner(client, unique(), name)
    until(lambda: share_out([owner]), "all partitions")
    former = owner.generation
    own_broker.pause()
    outcome = owner.membership.commit({0: CommittedOffset(9, "late")}, former)
    with pytest.raises(errors.CommitOutcomeUnknown):
        outcome.result(WAIT_S)
    own_broker.resume()
    until(lambda: share_out([owner]) and owner.lost == 1, "another membership")
    assert owner.membership.member_id not in ("", former.member_id)
    owner.save(0)
    own_broker.restart()
    until(lambda: share_out([owner]) and saved(owner, 0), "a commit after the restart")
    owner.leave()
    client.close(patience())
    wire.close(patience())
