"""A coordinator's requests are heard from before its claim on."""

from __future__ import annotations

import threading

from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.broker.transactions.serving.coordinators import RequestTail
from pulsar_on_kafka_mapping.state.state_topics import TRANSACTION_REQUESTS
from tests.memory_log import MemoryStateLog
from tests.memory_reader import memory_reader
from tests.waiting import until

NEVER = Deadline.never()


def test_what_is_asked_before_the_thread_looks_is_heard() -> None:
    log = MemoryStateLog()
    tail = RequestTail(log, memory_reader(log, TRANSACTION_REQUESTS, threading.Event()))
    first, second = tail.feed(3), tail.feed(4)
    first.begin(lambda: None, NEVER)  # the thread begins, and waits for records of this one
    for number in range(100):
        second.begin(lambda: None, NEVER)
        log.append(TRANSACTION_REQUESTS, 4, b"%d" % number, b"", NEVER)
        heard = until(second.take, "the request")
        assert [record.key for record in heard] == [b"%d" % number]
        second.rest()
    tail.close(Deadline.after(30))
