"""A client that says nothing, or takes nothing, is disconnected; one that does either in its time is not."""

from __future__ import annotations

import pytest

from pulsar_on_kafka.gateway.protocol.keep_alive import KeepAlive, Verdict


def test_an_idle_client_gets_a_ping_and_is_gone_an_interval_later() -> None:
    keep = KeepAlive()
    found = [keep.judge(heard=False, is_read=True, waiting=0, taken=0) for _ in range(2)]
    assert found == [Verdict.PING, Verdict.SILENT]


def test_a_client_that_answers_stays() -> None:
    keep = KeepAlive()
    for number in range(10):
        heard = number % 2 == 1
        found = keep.judge(heard=heard, is_read=True, waiting=0, taken=number)
        assert found is (Verdict.GOES_ON if heard else Verdict.PING)


def test_what_is_not_read_cannot_be_heard() -> None:
    keep = KeepAlive()
    assert {keep.judge(heard=False, is_read=False, waiting=0, taken=0) for _ in range(10)} == {Verdict.GOES_ON}


@pytest.mark.parametrize("is_read", [True, False])
def test_a_client_that_takes_nothing_is_gone_after_two_intervals(is_read: bool) -> None:
    keep = KeepAlive()
    found = [keep.judge(heard=True, is_read=is_read, waiting=9, taken=taken) for taken in (5, 5, 5)]
    assert found == [Verdict.GOES_ON, Verdict.GOES_ON, Verdict.DOES_NOT_READ]


def test_a_client_that_reads_slowly_stays() -> None:
    keep = KeepAlive()
    for taken in range(1, 20):
        for _ in range(2):
            assert keep.judge(heard=True, is_read=False, waiting=9, taken=taken) is Verdict.GOES_ON
