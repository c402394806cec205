"""Reasons of negative acknowledgements: the last one of a message counts, and the memory is bounded."""

from __future__ import annotations

from pyroaring import BitMap64

from pulsar_on_kafka.broker.subscriptions.records.refusal_reasons import (
    MAX_KEPT,
    MAX_REASON_BYTES,
    MAX_SAVED_BYTES,
    RefusalReasons,
    bounded,
)


def test_the_last_reason_of_each_message_counts() -> None:
    reasons = RefusalReasons()
    assert not reasons
    reasons.put(7, -1, "first")
    reasons.put(7, -1, "second")
    reasons.put(8, 3, "of a batch")
    assert (reasons.get(7), reasons.get(8, 3), reasons.get(8, 4), reasons.get(9)) == ("second", "of a batch", "", "")
    reasons.forget([7, 100])
    assert (reasons.get(7), bool(reasons)) == ("", True)
    reasons.clear()
    assert not reasons


def test_another_process_gets_them() -> None:
    here, there = RefusalReasons(), RefusalReasons()
    here.put(7, -1, "a")
    here.put(8, 3, "a")
    here.put(9, -1, "b")
    assert here.take_changed()
    assert not here.take_changed()
    assert here.of([7, 8, 100]) == {"a": BitMap64([7 << 16, 8 << 16 | 4])}
    there.merge(here.of([7, 8, 9]))
    assert (there.get(7), there.get(8, 3), there.get(9)) == ("a", "a", "b")


def test_a_reason_ends_with_a_whole_character() -> None:
    assert bounded("ü" * MAX_REASON_BYTES) == "ü" * (MAX_REASON_BYTES // 2)
    assert bounded("a" + "ü" * MAX_REASON_BYTES) == "a" + "ü" * ((MAX_REASON_BYTES - 1) // 2)
    assert bounded("\ud800") == "?"


def test_the_oldest_ones_are_dropped() -> None:
    reasons = RefusalReasons()
    for offset in range(MAX_KEPT + 2):
        reasons.put(offset, -1, f"reason {offset}")
    assert (reasons.get(1), reasons.get(2)) == ("", "reason 2")


def test_a_save_has_the_newest_ones_of_unacknowledged_messages() -> None:
    reasons = RefusalReasons()
    for offset in range(1000):
        reasons.put(offset, -1, f"{offset:0500}")
    saved = reasons.to_save(lambda offset: offset == 999)
    assert reasons.get(999) == ""
    kept = sorted(min(keys) >> 16 for keys in saved.values())
    assert kept == list(range(999 - len(kept), 999))
    assert 0 < len(kept) * MAX_REASON_BYTES <= MAX_SAVED_BYTES
