"""The lease channel reads from the log again what a membership had no room for: a played log, the real channel's way
and inbox."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future
from typing import Any, cast

import pytest

from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.base.errors import DeadlineExceeded
from pulsar_on_kafka.broker.subscriptions.leases.inbox import LeaseInbox
from pulsar_on_kafka.broker.subscriptions.requests.channel import (
    DeliveryRecord,
    Listener,
    OutgoingRecord,
    Patience,
    never,
)
from pulsar_on_kafka.broker.subscriptions.requests.lease_channel import LeaseChannel
from pulsar_on_kafka_mapping.state.cursors.cursor_requests import ALL_MEMBERS, CursorLife
from pulsar_on_kafka_mapping.state.cursors.lease_records import (
    Lease,
    LeasedEntry,
    MemberId,
    Report,
    Saved,
    TakeOver,
    Welcome,
    decode,
    encode,
)
from pulsar_on_kafka_mapping.state.state_keys import DeliveryKey
from tests.seeds import in_three

TOPIC = "persistent://public/default/orders"
MAX_RECORDS, MAX_BYTES = 6, 200


class PlayedChannel:
    """One partition of `deliveries`. Others' records are in it, retention takes its beginning, reading may fail."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.log: list[DeliveryRecord] = []
        self.first = 0
        self.told = 0
        """What listeners have heard."""
        self.listeners: list[Listener] = []

    def listen(self, topic: str, listener: Listener, start: int | None = None, *, patience: Patience = never) -> None:
        self.listeners.append(listener)

    def read_from(self, topic: str, start: int) -> None:
        """It hears everything."""

    def start(self, topic: str, deadline: Deadline) -> int:
        return self.first

    def end(self, topic: str, deadline: Deadline) -> int:
        if self.rng.random() < 0.1:
            raise DeadlineExceeded("the broker is away")
        return len(self.log)

    def written(self, topic: str, start: int, end: int, deadline: Deadline) -> Iterator[DeliveryRecord]:
        for offset in range(start, end):
            if offset >= self.first:
                yield self.log[offset]

    def write(self, records: list[OutgoingRecord], deadline: Deadline) -> list[int]:
        offsets = range(len(self.log), len(self.log) + len(records))
        self.log += [DeliveryRecord(offset, *record) for offset, record in zip(offsets, records, strict=True)]
        return list(offsets)

    def tell(self) -> None:
        upto = self.rng.randint(self.told, len(self.log))
        for listener in self.listeners:
            listener(self.log[self.told : upto])
        self.told = upto


class Errands(Executor):
    """They are done when the history says so, each in one piece but for what `between` does."""

    def __init__(self) -> None:
        self.waiting: list[tuple[Future[Any], Callable[[], Any]]] = []

    def submit(self, errand: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        answer: Future[Any] = Future()
        self.waiting.append((answer, errand))
        return answer

    def do(self) -> None:
        answer, errand = self.waiting.pop(0)
        try:
            answer.set_result(errand())
        except DeadlineExceeded as failure:
            answer.set_exception(failure)


def channel_of(channel: PlayedChannel, seat: int | None, errands: Errands) -> LeaseChannel:
    return LeaseChannel(
        cast("Any", channel), TOPIC, "s", seat, lambda deadline: (), lambda partition, deadline: -1, errands
    )


class Member:
    """A process that listens, slowly."""

    def __init__(self, channel: PlayedChannel) -> None:
        self.errands = Errands()
        self.lease_channel = channel_of(channel, None, self.errands)
        self.inbox = LeaseInbox(
            self.lease_channel.read, lambda: None, lambda _: False, max_records=MAX_RECORDS, max_bytes=MAX_BYTES
        )
        self.lease_channel.listen(self.inbox.receive, never)
        self.taken: list[int] = []
        self.gaps = 0

    def take_in(self) -> None:
        self.taken.append(self.inbox.first()[0])
        self.inbox.applied()


def record(rng: random.Random) -> OutgoingRecord:
    subscription = rng.choice(("s", "s", "other"))
    to = MemberId("m" * rng.randrange(1, 90), 1)
    value = encode(Welcome(b"1" * 16, to)) if rng.random() < 0.8 else b'{"request": 1}'
    return DeliveryKey(TOPIC, rng.choice((-1, 0)), subscription), value


def ours(channel: PlayedChannel) -> list[int]:
    return [each.offset for each in channel.log if each.key.subscription == "s" and not each.value.startswith(b"{")]


def play(seed: int, *, retention: bool) -> None:
    rng = random.Random(seed)
    channel = PlayedChannel(rng)
    member = Member(channel)
    again = 0
    for step in range(2000):
        if step < 300:
            channel.write([record(rng) for _ in range(rng.randrange(5))], Deadline.never())
            if retention and rng.random() < 0.03:
                channel.first = rng.randint(channel.first, len(channel.log))
        if rng.random() < 0.5:
            channel.tell()
        if member.errands.waiting and rng.random() < 0.5:
            again += 1
            member.errands.do()
        member.gaps += not member.inbox.catch_up(step / 10)
        assert len(member.inbox) <= MAX_RECORDS
        if member.inbox and rng.random() < 0.6:
            member.take_in()
    assert not member.inbox
    assert not member.inbox.is_behind
    assert again > 10
    wanted = ours(channel)
    missed = sorted(set(wanted) - set(member.taken))
    assert member.taken == [offset for offset in wanted if offset not in missed], f"{seed}: twice, or out of order"
    assert member.gaps or not missed, f"{seed}: {missed} were missed, and nobody said so"


@pytest.mark.parametrize("retention", [False, True])
@pytest.mark.parametrize("seeds", in_three(30, range(100)), ids=str)
def test_what_there_was_no_room_for_is_read_again_once_and_in_order(seeds: range, retention: bool) -> None:
    for seed in seeds:
        play(seed, retention=retention)


def test_what_retention_takes_while_it_is_read_is_told() -> None:
    channel = PlayedChannel(random.Random(5))
    channel.rng.random = lambda: 1.0  # type: ignore[method-assign]
    member = Member(channel)
    key = DeliveryKey(TOPIC, 0, "s")
    channel.write([(key, encode(Welcome(b"1" * 16, MemberId("me", 1)))) for _ in range(10)], Deadline.never())
    answer = member.lease_channel.read(2, 100)
    written = channel.written

    def taken_meanwhile(*args: Any) -> Iterator[DeliveryRecord]:
        channel.first = 5
        return written(*args)

    channel.written = taken_meanwhile  # type: ignore[method-assign, assignment]
    member.errands.do()
    found = answer.result(0)
    assert [offset for offset, _, _ in found.records] == [5, 6, 7, 8, 9]
    assert (found.upto, found.is_whole) == (10, False)


OWNER, MEMBER, LIFE = b"o" * 16, MemberId("me", 1), CursorLife("id", 1, 2)
SEATS = (None, 0, 1)


def played() -> PlayedChannel:
    channel = PlayedChannel(random.Random(5))
    channel.rng.random = lambda: 1.0  # type: ignore[method-assign]
    return channel


def test_those_of_a_single_partition_hear_one_another_alone() -> None:
    """Nor does who serves the whole subscription hear them."""
    channel = played()
    errands = Errands()
    heard: dict[int | None, list[tuple[int, type[object]]]] = {seat: [] for seat in SEATS}
    channels = {seat: channel_of(channel, seat, errands) for seat in SEATS}
    for seat, each in channels.items():
        known = heard[seat]
        each.listen(lambda found, known=known: known.extend((p, type(decode(v))) for _, p, v in found), never)  # type: ignore[misc]
    for seat, each in channels.items():
        partition = seat or 0
        each.write(
            [
                (partition, Saved(OWNER, 1, 5)),
                (ALL_MEMBERS, Report(LIFE, MEMBER, 1)),
                (ALL_MEMBERS, Welcome(OWNER, MEMBER)),
            ]
        )
        errands.do()
    channel.rng.randint = lambda a, b: b  # type: ignore[method-assign]
    channel.tell()
    for seat in SEATS:
        assert heard[seat] == [(seat or 0, Saved), (ALL_MEMBERS, Report), (ALL_MEMBERS, Welcome)], seat


@pytest.mark.parametrize("before", [None, 1])
@pytest.mark.parametrize("now", [None, 1])
def test_who_takes_a_partition_over_reads_what_was_said_of_it_in_either_way(
    before: int | None, now: int | None
) -> None:
    channel = played()
    errands = Errands()
    lease = Lease(OWNER, 1, MEMBER, 1, 0, 0, (LeasedEntry(7),))
    for seat in (before, 0):  # what those of another partition said concerns nobody here
        said = channel_of(channel, seat, errands)
        said.write([(1 if seat is None else seat, lease), (ALL_MEMBERS, Report(LIFE, MEMBER, 1))])
        errands.do()
    at, found = channel_of(channel, now, errands).take_over(1, TakeOver(LIFE, OWNER, 2), 0, Deadline.never())
    assert (at, [type(each) for each in found]) == (4, [Lease, Report])
