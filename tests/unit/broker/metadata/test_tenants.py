"""The map of tenants: the table of moves, its records, and who wins when two move one."""

from __future__ import annotations

import itertools

import pytest

from pulsar_on_kafka.base.clock import SystemClock
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.base.errors import InvalidOption, Refused
from pulsar_on_kafka.broker.metadata.entities import Entities
from pulsar_on_kafka.broker.metadata.tenants import TENANT_KEYS, TRANSITIONS, TenantMove, Tenants, moved
from pulsar_on_kafka_mapping.errors import CorruptRecord
from pulsar_on_kafka_mapping.state.clusters.tenant_records import (
    TenantRecord,
    TenantState,
    decode_tenant,
    encode_tenant,
)
from pulsar_on_kafka_mapping.state.state_topics import TENANTS
from tests.memory_log import MemoryStateLog

RECORDS = {
    TenantState.ACTIVE: TenantRecord("acme", "west", TenantState.ACTIVE, 3),
    TenantState.SWITCHING: TenantRecord("acme", "west", TenantState.SWITCHING, 3, "east"),
    TenantState.REMOVED: TenantRecord("acme", "west", TenantState.REMOVED, 3),
}
TRUE_ALREADY = {
    (TenantState.ACTIVE, TenantMove.ASSIGN, "west"),
    (TenantState.ACTIVE, TenantMove.FINISH_SWITCH, "west"),
    (TenantState.ACTIVE, TenantMove.ABANDON_SWITCH, "west"),
    (TenantState.SWITCHING, TenantMove.BEGIN_SWITCH, "east"),
    (TenantState.REMOVED, TenantMove.REMOVE, "west"),
    (TenantState.REMOVED, TenantMove.REMOVE, "east"),
}
REFUSED = {
    (TenantState.ACTIVE, TenantMove.BEGIN_SWITCH, "west"),  # it is there
    (TenantState.SWITCHING, TenantMove.BEGIN_SWITCH, "west"),  # it goes elsewhere
    (TenantState.SWITCHING, TenantMove.FINISH_SWITCH, "west"),
    (TenantState.SWITCHING, TenantMove.ABANDON_SWITCH, "east"),
}


@pytest.fixture
def deadline() -> Deadline:
    return Deadline.after(10)


@pytest.mark.parametrize(
    ("state", "move", "cluster"), list(itertools.product(TenantState, TenantMove, ("west", "east")))
)
def test_every_move_in_every_state(state: TenantState, move: TenantMove, cluster: str) -> None:
    record = RECORDS[state]
    if (state, move, cluster) in TRUE_ALREADY:
        assert moved(record, "acme", move, cluster) is None
    elif (state, move) not in TRANSITIONS or (state, move, cluster) in REFUSED:
        with pytest.raises(Refused, match="tenant acme is"):
            moved(record, "acme", move, cluster)
    else:
        after = moved(record, "acme", move, cluster)
        assert after is not None
        assert (after.state, after.epoch) == (TRANSITIONS[state, move], 4)
        assert after.target == (cluster if after.state is TenantState.SWITCHING else "")
        assert decode_tenant(encode_tenant(after)) == after


def test_a_tenant_without_a_record_is_where_every_other_one_is(deadline: Deadline) -> None:
    tenants = Tenants(Entities(MemoryStateLog(), TENANTS, TENANT_KEYS, SystemClock()))
    assert tenants.place("acme", deadline) is None
    tenants.move("*", TenantMove.ASSIGN, deadline, "west")
    tenants.move("acme", TenantMove.ASSIGN, deadline, "east")
    assert [tenants.place(name, deadline).cluster for name in ("acme", "other")] == ["east", "west"]  # type: ignore[union-attr]
    assert tenants.move("acme", TenantMove.REMOVE, deadline) is None
    assert tenants.move("acme", TenantMove.REMOVE, deadline) is None
    assert list(tenants.all(deadline)) == ["*"]
    assert tenants.move("acme", TenantMove.ASSIGN, deadline, "east") == TenantRecord(
        "acme", "east", TenantState.ACTIVE, 3
    )
    with pytest.raises(Refused, match=r"tenant \* is on cluster west: cannot begin the switch with cluster east"):
        tenants.move("*", TenantMove.BEGIN_SWITCH, deadline, "east")
    for tenant, cluster in (("a/b", "west"), ("", "west"), ("acme", "")):
        with pytest.raises(InvalidOption, match="is named by letters"):
            tenants.move(tenant, TenantMove.ASSIGN, deadline, cluster)


def test_of_two_that_move_a_tenant_one_is_refused(deadline: Deadline) -> None:
    """Each has read the map before the other one wrote."""
    log = MemoryStateLog()
    one, other = (Tenants(Entities(log, TENANTS, TENANT_KEYS, SystemClock())) for _ in range(2))
    one.move("acme", TenantMove.ASSIGN, deadline, "west")
    assert other.record("acme", deadline) == one.record("acme", deadline)
    one.move("acme", TenantMove.BEGIN_SWITCH, deadline, "east")
    with pytest.raises(Refused, match="tenant acme is switching from cluster west to east: cannot begin the switch"):
        other.move("acme", TenantMove.BEGIN_SWITCH, deadline, "north")
    with pytest.raises(Refused, match="cannot assign with cluster north"):
        other.move("acme", TenantMove.ASSIGN, deadline, "north")
    other.move("acme", TenantMove.FINISH_SWITCH, deadline, "east")
    assert one.record("acme", deadline) == TenantRecord("acme", "east", TenantState.ACTIVE, 3)


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"[]",
        b'{"v":2}',
        b'{"v":1,"tenant":"a","cluster":"b","epoch":1}',
        b'{"v":1,"tenant":"a","cluster":"b","epoch":"1","state":"ACTIVE"}',
        b'{"v":1,"tenant":"a","cluster":"b","epoch":0,"state":"ACTIVE"}',
        b'{"v":1,"tenant":"a","cluster":"b","epoch":1,"state":"SWITCHING"}',
        b'{"v":1,"tenant":"a","cluster":"b","epoch":1,"state":"ACTIVE","target":"c"}',
        b'{"v":1,"tenant":"a","cluster":7,"epoch":1,"state":"ACTIVE"}',
        b'{"v":1,"tenant":"a","cluster":"b","epoch":1,"state":"GONE"}',
    ],
)
def test_a_record_that_says_something_else_is_corrupt(value: bytes) -> None:
    with pytest.raises(CorruptRecord):
        decode_tenant(value)


def test_fields_of_later_versions_are_ignored() -> None:
    value = b'{"v":1,"tenant":"a","cluster":"b","epoch":1,"state":"ACTIVE","mood":"good"}'
    assert decode_tenant(value) == TenantRecord("a", "b", TenantState.ACTIVE, 1)
