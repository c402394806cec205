"""The lease inbox holds what was heard and not taken in: nothing is missing, nothing comes twice."""

from __future__ import annotations

import random
from concurrent.futures import Future

from pulsar_on_kafka.base.errors import DeadlineExceeded
from pulsar_on_kafka.broker.subscriptions.leases.inbox import LeaseInbox
from pulsar_on_kafka.broker.subscriptions.leases.lease_options import RereadLeaseRecords


class Log:
    """Offsets are those of everybody's records; ours are the even ones."""

    def __init__(self, rng: random.Random | None = None) -> None:
        self.rng = rng or random.Random(1)
        self.start = 0
        self.end = 0
        self.asked: list[tuple[Future[RereadLeaseRecords], int, int]] = []
        self.inbox = LeaseInbox(self.read, self.wake, self.can_wait, max_records=4, max_bytes=30)
        self.woken = 0
        self.heard_upto = 0
        self.taken: list[int] = []

    def wake(self) -> None:
        self.woken += 1

    def can_wait(self, value: bytes) -> bool:
        return value.startswith(b"x")

    def read(self, start: int, most: int) -> Future[RereadLeaseRecords]:
        answer = Future[RereadLeaseRecords]()
        self.asked.append((answer, start, most))
        return answer

    def answer(self) -> None:
        answer, start, most = self.asked.pop()
        if self.rng.random() < 0.2:
            answer.set_exception(DeadlineExceeded("later"))
            return
        ours = [offset for offset in range(max(start, self.start), self.end) if offset % 2 == 0]
        upto = self.end if len(ours) <= most else ours[most - 1] + 1
        answer.set_result(RereadLeaseRecords([(o, 0, b"x" * 9) for o in ours[:most]], upto, self.start <= start))

    def hear(self, upto: int) -> None:
        self.inbox.receive([(o, 0, b"x" * 9) for o in range(self.heard_upto, upto) if o % 2 == 0])
        self.heard_upto = upto

    def take_in(self) -> None:
        self.taken.append(self.inbox.first()[0])
        self.inbox.applied()


def test_everything_is_taken_in_once_and_in_order_however_slowly() -> None:
    for seed in range(50):
        log = Log(random.Random(seed))
        now_s = 0.0
        while len(log.taken) < 100:
            now_s += 0.1
            log.end = min(200, log.end + log.rng.randrange(9))
            if log.rng.random() < 0.5:
                log.hear(log.rng.randint(log.heard_upto, log.end))
            if log.asked and log.rng.random() < 0.5:
                log.answer()
            assert log.inbox.catch_up(now_s)
            if log.inbox and log.rng.random() < 0.5:
                log.take_in()
            assert len(log.inbox) <= 4
            if log.heard_upto == 200 and not log.inbox and not log.inbox.is_behind:
                break
        assert log.taken == list(range(0, 200, 2)), seed


def test_what_retention_took_is_said() -> None:
    log = Log(random.Random(3))
    log.end = 20
    log.hear(20)
    while log.inbox:
        log.take_in()
    log.start = 12
    whole = []
    for now_s in range(10):
        whole.append(log.inbox.catch_up(now_s))
        if log.asked:
            log.answer()
    assert whole.count(False) == 1
    while log.inbox:
        log.take_in()
    assert log.taken == [0, 2, 4, 6, 12, 14, 16, 18]


def test_nobody_is_woken_for_what_can_wait() -> None:
    log = Log()
    log.inbox.receive([(0, 0, b"x")])
    assert (log.woken, log.inbox.is_urgent, log.inbox.begin()) == (0, False, 1)
    log.inbox.receive([(2, 0, b"x"), (4, 0, b"mine")])
    assert (log.woken, log.inbox.is_urgent) == (1, True)
    assert log.inbox.begin() == 3
    assert not log.inbox.is_urgent
