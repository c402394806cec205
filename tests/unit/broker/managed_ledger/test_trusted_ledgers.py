"""The cache of what this process took off its lists."""

from __future__ import annotations

from pulsar_on_kafka.broker.managed_ledger.trusted import TrustedLedgers


def test_the_oldest_ledgers_are_forgotten_first() -> None:
    trusted = TrustedLedgers(most=3)
    trusted.add([1, 2, 3])
    trusted.add([1])  # again: it is the newest now
    trusted.add([4])
    assert [ledger for ledger in (1, 2, 3, 4) if ledger in trusted] == [1, 3, 4]
    trusted.add(range(10, 20))
    assert [ledger for ledger in range(30) if ledger in trusted] == [17, 18, 19]


def test_what_is_deleted_is_forgotten() -> None:
    trusted = TrustedLedgers()
    trusted.add([1, 2])
    trusted.forget([1, 7])
    assert 1 not in trusted
    assert 2 in trusted
