"""The fence's rules, one by one."""

from __future__ import annotations

from pulsar_on_kafka.statelog.take_over import Owner, TakeOverFence

FIRST, SECOND = Owner("s1", 1), Owner("s2", 2)


def taken_over_twice() -> TakeOverFence:
    fence = TakeOverFence()
    assert fence.takeover(b"t1", "s1", 1)
    assert fence.record(b"before", 1)
    assert fence.takeover(b"t2", "s2", 2)
    assert not fence.record(b"after", 1)
    assert fence.record(b"new", 2)
    return fence


def test_nobody_serves_before_the_first_takeover() -> None:
    assert TakeOverFence().owner is None
    assert TakeOverFence().next_version == 1
    assert TakeOverFence().to_clean(FIRST) == []


def test_a_record_is_void_only_behind_a_takeover_of_a_higher_version() -> None:
    fence = taken_over_twice()
    assert fence.valid_keys() == [b"before", b"new"]
    assert not fence.is_valid(b"after")
    assert not fence.is_valid(b"never written")
    assert (fence.owner, fence.next_version) == (SECOND, 3)


def test_a_takeover_that_is_not_above_the_newest_is_void() -> None:
    fence = taken_over_twice()
    assert not fence.takeover(b"t2 again", "s3", 2)
    assert not fence.takeover(b"t1 late", "s4", 1)
    assert fence.owner == SECOND


def test_only_the_owner_cleans_void_records_first() -> None:
    fence = taken_over_twice()
    fence.takeover(b"t2 again", "s3", 2)
    assert fence.to_clean(FIRST) == []
    assert fence.to_clean(SECOND) == [b"after"]
    fence.tombstone(b"after")
    assert fence.to_clean(SECOND) == [b"t1", b"t2 again"]
    for key in (b"t1", b"t2 again"):
        fence.tombstone(key)
    assert fence.to_clean(SECOND) == []


def test_a_tombstoned_takeover_keeps_its_effect_on_those_who_saw_it() -> None:
    fence = taken_over_twice()
    fence.tombstone(b"t2")
    assert not fence.record(b"later", 1)


def test_a_tombstoned_record_is_as_if_it_had_never_been() -> None:
    fence = taken_over_twice()
    fence.tombstone(b"before")
    assert fence.valid_keys() == [b"new"]
