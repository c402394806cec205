"""The keep-alive's verdicts, interval by interval."""

from __future__ import annotations

import pytest

from pulsar_on_kafka.gateway.protocol.keep_alive import KeepAlive, Verdict

CONTINUE, PING, SILENT, DOES_NOT_READ = Verdict.CONTINUE, Verdict.PING, Verdict.SILENT, Verdict.DOES_NOT_READ


@pytest.mark.parametrize(
    ("intervals", "verdicts"),
    [
        # each interval: a frame came, the socket is read, bytes that wait, bytes that were read
        ([(False, True, 0, 0)] * 2, [PING, SILENT]),
        ([(False, True, 0, 0), (True, True, 0, 1)] * 5, [PING, CONTINUE] * 5),
        ([(False, False, 0, 0)] * 10, [CONTINUE] * 10),
        ([(True, True, 9, 5)] * 3, [CONTINUE, CONTINUE, DOES_NOT_READ]),
        ([(True, False, 9, 5)] * 3, [CONTINUE, CONTINUE, DOES_NOT_READ]),
        ([(True, False, 9, taken // 2) for taken in range(2, 40)], [CONTINUE] * 38),
    ],
    ids=["silent", "answers", "not read, so not judged", "reads nothing", "reads nothing, not read", "reads slowly"],
)
def test_verdicts(intervals: list[tuple[bool, bool, int, int]], verdicts: list[Verdict]) -> None:
    keep, found = KeepAlive(), []
    for received, is_read, waiting, taken in intervals:
        keep.has_received = received
        found.append(keep.judge(is_read=is_read, waiting=waiting, taken=taken))
    assert found == verdicts
