"""A client's process does a service's roles while there is none, and leaves them to others."""

from __future__ import annotations

import itertools
import random
from types import SimpleNamespace
from typing import Any, cast

import pytest

from pulsar_on_kafka import exceptions
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.base.errors import ConnectFailed, LayerError, NotAuthorized
from pulsar_on_kafka.base.processes import SERVICE, STAND_IN, this_process
from pulsar_on_kafka.base.role_state import RoleName, RoleState
from pulsar_on_kafka.broker.node import fallback_roles
from pulsar_on_kafka.broker.node.fallback_roles import (
    EVERY_S,
    FIRST_S,
    FORBIDDEN_S,
    MAX_STAND_INS,
    SURE_S,
    WHILE_S,
    StandIn,
    StandInMove,
    move,
)
from pulsar_on_kafka.broker.node.services import Services
from pulsar_on_kafka.client.connection.connection import STAND_IN_VARIABLE
from pulsar_on_kafka.kafka.records import GroupDescription, GroupMember
from pulsar_on_kafka.kafka.settings import KafkaSettings
from pulsar_on_kafka.service.running import ROLES_OF_STAND_INS
from pulsar_on_kafka_mapping.state.instances import Instance
from pulsar_on_kafka_mapping.state.state_topics import LEDGERS
from tests.clocks import SetClock

ALL = frozenset({"Read", "Write", "Describe"})


def member(kind: str, process: str) -> str:
    return f"{kind}-0123456789ab@{process}"


def test_transactions_and_other_clusters_need_nobody_to_stand_in() -> None:
    elsewhere = {RoleName.SUBSCRIPTIONS, RoleName.REPLICATION}
    assert set(RoleName) - set(ROLES_OF_STAND_INS) == {RoleName.TRANSACTIONS, *elsewhere}


def test_moves() -> None:
    service, a, b, c = member(SERVICE, "s:1:1"), *(member(STAND_IN, f"{name}:1:1") for name in "abc")
    assert move([], "a:1:1", standing=False) is StandInMove.JOIN
    assert move([b], "a:1:1", standing=False) is StandInMove.JOIN
    assert move([b, c], "a:1:1", standing=False) is StandInMove.WAIT
    assert move([b, service], "a:1:1", standing=False) is StandInMove.WAIT
    assert move([a, service], "a:1:1", standing=True) is StandInMove.LEAVE
    assert move([b, c], "a:1:1", standing=True) is StandInMove.STAY  # the group does not show it yet
    assert move([a, b, c], "b:1:1", standing=True) is StandInMove.STAY
    assert move([a, b, c], "c:1:1", standing=True) is StandInMove.LEAVE
    assert move([b, "somebody-else"], "a:1:1", standing=False) is StandInMove.WAIT


def test_whoever_decides_when_two_stand_in_at_last_and_none_beside_a_service() -> None:
    for seed in range(300):
        rng = random.Random(seed)
        standing: set[str] = set()
        processes = [f"p{number}:1:1" for number in range(rng.randint(1, 9))]
        services: list[str] = []
        for _ in range(200):
            services = [member(SERVICE, "s:1:1")] * (rng.random() < 0.3 if rng.random() < 0.1 else bool(services))
            seen = [member(STAND_IN, each) for each in standing]  # several decide by the same look
            for process in rng.sample(processes, rng.randint(0, len(processes))):
                _act(standing, process, [*seen, *services])
        for services in ([member(SERVICE, "s:1:1")], []):
            for _, process in itertools.product(range(4), processes):
                _act(standing, process, [*(member(STAND_IN, each) for each in standing), *services])
            assert len(standing) == (0 if services else min(MAX_STAND_INS, len(processes)))


def _act(standing: set[str], process: str, members: list[str]) -> None:
    wanted = move(members, process, standing=process in standing)
    if wanted is StandInMove.JOIN:
        standing.add(process)
    elif wanted is StandInMove.LEAVE:
        standing.discard(process)


class Roles:
    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        cluster.members.append(member(STAND_IN, this_process()))

    def states(self) -> list[RoleState]:
        return []

    def close(self, deadline: Deadline) -> None:
        self._cluster.members.remove(member(STAND_IN, this_process()))


class Cluster:
    """The node that a StandIn asks."""

    def __init__(self) -> None:
        self.clock = SetClock(1000.0)
        self.cluster_id = "c"
        self.admin = self.access = self
        self.settings = KafkaSettings("")
        self.members: list[str] = []
        self.asked = 0
        self.failure: LayerError | None = None
        self.rights = ALL
        self.stand_in = StandIn(cast("Services", self), lambda: Roles(self), lambda least, most: least)
        self.stand_in.use()

    def describe_group(self, group_id: str, deadline: Deadline) -> GroupDescription:
        self.asked += 1
        if self.failure is not None:
            raise self.failure
        return GroupDescription(group_id, "STABLE", tuple(GroupMember("m", each, "h", ()) for each in self.members))

    def allowed_on_group(self, group_id: str, deadline: Deadline) -> frozenset[str]:
        return self.rights

    def allowed_on_topics(self, topics: list[str], deadline: Deadline) -> dict[str, frozenset[str]]:
        return {Instance().state_topic(LEDGERS): self.rights}

    def after(self, seconds: float) -> int:
        """Look then, and all the time before; how often Kafka was asked."""
        before = self.asked
        end = self.clock.seconds + seconds
        while self.clock.seconds < end:
            self.clock.seconds += 1
            self.stand_in.look()
        return self.asked - before


def test_a_client_that_lives_shorter_asks_nothing() -> None:
    assert Cluster().after(FIRST_S - 1) == 0


def test_a_client_begins_when_there_was_no_service_twice_and_leaves_when_one_comes() -> None:
    cluster = Cluster()
    assert cluster.after(FIRST_S) == 1
    assert not cluster.stand_in.standing
    assert cluster.after(SURE_S) == 1
    assert cluster.stand_in.standing
    assert cluster.after(WHILE_S) == 1
    cluster.members.append(member(SERVICE, "s:1:1"))
    assert cluster.after(WHILE_S) == 1
    assert (cluster.stand_in.standing, len(cluster.members)) == (False, 1)
    assert cluster.after(0.75 * EVERY_S) == 1
    cluster.members.clear()
    cluster.after(2 * EVERY_S)
    assert cluster.stand_in.standing
    cluster.stand_in.let_go()
    assert (cluster.stand_in.standing, cluster.members) == (False, [])


def test_a_service_that_is_started_again_is_not_stood_in_for() -> None:
    cluster = Cluster()
    cluster.after(FIRST_S)
    cluster.members.append(member(SERVICE, "s:1:1"))
    cluster.after(SURE_S)
    cluster.members.clear()
    assert cluster.after(0.75 * EVERY_S) == 1
    assert not cluster.stand_in.standing


@pytest.mark.parametrize("how", ["describe", "rights"])
def test_without_the_rights_it_is_left_to_others(how: str, caplog: pytest.LogCaptureFixture) -> None:
    cluster = Cluster()
    if how == "describe":
        cluster.failure = NotAuthorized("Describe on group")
    else:
        cluster.rights = frozenset({"Describe"})
    with caplog.at_level("INFO"):
        cluster.after(FIRST_S + SURE_S + FORBIDDEN_S / 2)
    assert not cluster.stand_in.standing
    assert [record.levelname for record in caplog.records] == ["INFO"]
    assert cluster.asked <= 2


def test_a_broker_that_is_away_changes_nothing() -> None:
    cluster = Cluster()
    cluster.after(FIRST_S + SURE_S)
    cluster.failure = ConnectFailed("away")
    cluster.after(EVERY_S)
    assert cluster.stand_in.standing


def test_two_threads_do_not_look_at_once() -> None:
    cluster = Cluster()
    seen: list[int] = []
    answer = cluster.describe_group

    def asked(*args: Any) -> GroupDescription:
        cluster.stand_in.look()  # of another Client's thread, as it were
        seen.append(cluster.asked)
        return answer(*args)

    cluster.admin = cast("Cluster", SimpleNamespace(describe_group=asked))
    assert cluster.after(FIRST_S) == 1
    assert seen == [0]


def test_the_environment_says_what_the_argument_leaves_open(monkeypatch: pytest.MonkeyPatch) -> None:
    import pulsar_on_kafka as pulsar

    def stands_in(argument: bool | None, said: str | None) -> bool:
        if said is None:
            monkeypatch.delenv(STAND_IN_VARIABLE, raising=False)
        else:
            monkeypatch.setenv(STAND_IN_VARIABLE, said)
        return pulsar.Client("kafka://h:1", stand_in=argument)._session._stands_in

    assert [stands_in(None, said) for said in (None, "", "1", "On", "0", "no", "FALSE")] == [True] * 4 + [False] * 3
    assert (stands_in(True, "0"), stands_in(False, "1")) == (True, False)
    with pytest.raises(exceptions.InvalidConfiguration, match="POK_STAND_IN is 'maybe', expected one of 0, 1"):
        stands_in(None, "maybe")
    with pytest.raises(ValueError, match="stand_in"):
        pulsar.Client("kafka://h:1", stand_in="yes")  # type: ignore[arg-type]
    assert fallback_roles.LOOK_S < FIRST_S
