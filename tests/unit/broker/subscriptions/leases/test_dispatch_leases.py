"""Leases, case by case: what is void, what comes too late, what has to come first."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from pyroaring import BitMap64

from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.base.errors import DeadlineExceeded
from pulsar_on_kafka.broker.metadata.subscriptions.subscription import SubscriptionType
from pulsar_on_kafka.broker.subscriptions.leases.lessee import Lessee
from pulsar_on_kafka.broker.subscriptions.records.consumer_inbox import Delivery, Endpoint, PartitionAcks
from pulsar_on_kafka_mapping.ids.ledger_ids import LedgerLayout
from pulsar_on_kafka_mapping.state.cursors.cursor_requests import ALL_MEMBERS
from pulsar_on_kafka_mapping.state.cursors.lease_records import (
    Expel,
    Held,
    Lease,
    LeasedEntry,
    LeaseRecord,
    MemberId,
    Nack,
    Recall,
    RemoteConsumer,
    Report,
    Saved,
    TakeOver,
    Welcome,
    decode,
    encode,
)
from tests.simulation.leases import DEADLINE, LIFE, Inbox, Process, World
from tests.simulation.played_records import key_of

OWNER, NEXT_OWNER = b"1" * 16, b"2" * 16
SLOT = PartitionAcks("persistent://public/default/orders", 0, -1, LedgerLayout(1, 10))
MEMBER = MemberId("other", 1)


def acknowledge_the_first(member: Lessee) -> None:
    """Entry 1 is leased to it and acknowledged."""
    member.apply(SLOT, lease(1, number=1))
    SLOT.ack(1)
    member.drain([SLOT])


def lessee() -> tuple[Lessee, Endpoint]:
    """A member with one consumer of ten messages, welcomed by OWNER, that has told what it takes."""
    endpoint = Endpoint("mine", 10, delivery_type=Delivery)
    made = Lessee(LIFE, "me", [endpoint])
    made.requesting = True
    said(made)
    made.apply(None, Welcome(OWNER, made.id))
    assert said(made).consumers[0].limits == {OWNER: 10}
    return made, endpoint


def said(member: Lessee) -> Report:
    report = member.report()
    assert report is not None
    member.written(0)
    return report


def lease(
    *offsets: int, number: int, owner: bytes = OWNER, version: int = 1, epoch: int = 1, heard: int = 100
) -> Lease:
    entries = tuple(LeasedEntry(offset) for offset in offsets)
    return Lease(owner, version, MemberId("me", epoch), number, 1, heard, entries)


def held(member: Lessee) -> list[int]:
    return sorted(offset for leased in member.partitions.values() for offset in leased.in_flight.holders)


def test_a_lease_of_a_former_owner_is_void() -> None:
    member, _ = lessee()
    member.apply(SLOT, lease(1, 2, number=1))
    member.apply(SLOT, TakeOver(LIFE, NEXT_OWNER, 2))
    member.apply(SLOT, lease(3, number=2))
    assert held(member) == [1, 2]
    answer = said(member).answers[0]
    assert (answer.version, dict(answer.offsets)) == (2, {(1, 0): BitMap64([1, 2])})


def test_who_loses_one_partition_goes_on_leasing_others_of_which_it_leased_nothing_before() -> None:
    member, _ = lessee()
    other = PartitionAcks("persistent://public/default/orders", 1, -1, LedgerLayout(1, 10))
    member.apply(SLOT, lease(1, number=1))
    member.apply(SLOT, TakeOver(LIFE, NEXT_OWNER, 2))
    assert said(member).consumers[0].limits[OWNER] >= 2
    member.apply(other, lease(7, number=2))
    assert (held(member), member.id.epoch) == ([1, 7], 1)


def test_a_take_over_of_another_life_or_an_older_version_is_passed_over() -> None:
    member, _ = lessee()
    member.apply(SLOT, TakeOver(LIFE, NEXT_OWNER, 2))
    said(member)
    member.apply(SLOT, TakeOver(LIFE, OWNER, 1))
    member.apply(SLOT, TakeOver(LIFE._replace(topic_id="x" * 22), OWNER, 9))
    assert member.report() is None


def test_a_lease_that_was_not_heard_ends_the_epoch() -> None:
    member, endpoint = lessee()
    member.apply(SLOT, lease(1, number=1))
    endpoint.deliver([Delivery(None, endpoint.feed(SLOT), 1, 0)])  # type: ignore[arg-type]
    member.apply(SLOT, lease(5, number=3))
    assert (held(member), list(endpoint.queue), member.id.epoch) == ([], [], 2)
    report = said(member)
    assert (report.member.epoch, report.sequence, dict(report.heard)) == (2, 1, {})


def test_what_is_leased_to_a_member_that_has_said_that_it_leaves_is_not_taken() -> None:
    member, _ = lessee()
    member.requesting = False
    report = member.report()
    assert report is not None
    assert report.leaving
    member.apply(SLOT, lease(1, 2, number=1))  # written before its owner heard of that; it hands them out again
    member.written(40)
    assert (held(member), bool(member.to_read), member.id.epoch, member.is_known) == ([], False, 2, False)


def test_what_is_acknowledged_after_an_expulsion_is_told_all_the_same() -> None:
    member, endpoint = lessee()
    member.apply(SLOT, lease(1, 2, number=1))
    member.apply(None, Expel(OWNER, member.id, "it was silent"))
    SLOT.ack(1)
    SLOT.nacks.append((0.0, 0.0, 2, endpoint))
    member.drain([SLOT])
    report = said(member)
    assert (report.acks, report.nacks) == ({0: BitMap64([1])}, {})


def test_recalled_messages_leave_the_inbox_and_are_not_refused() -> None:
    member, endpoint = lessee()
    member.apply(SLOT, lease(1, 2, number=1))
    endpoint.deliver([Delivery(None, endpoint.feed(SLOT), 1, 0)])  # type: ignore[arg-type]
    member.apply(SLOT, Recall(OWNER, 1, member.id, 2))
    SLOT.nacks.append((0.0, 0.0, 2, endpoint))
    member.drain([SLOT])
    assert (held(member), list(endpoint.queue), bool(member.to_read)) == ([], [], False)


def test_a_flush_waits_for_a_save_behind_the_report() -> None:
    member, _ = lessee()
    acknowledge_the_first(member)
    assert member.unsaved
    member.save_required = True
    assert member.report() is not None
    member.written(40)
    member.apply(SLOT, Saved(OWNER, 1, 40))
    assert member.unsaved
    member.apply(SLOT, Saved(OWNER, 1, 41))
    assert not member.unsaved


def test_a_flush_asks_for_a_save_with_the_report_that_acknowledges() -> None:
    member, _ = lessee()
    acknowledge_the_first(member)
    member.save_required = True
    report = said(member)
    assert (report.acks, report.save) == ({0: BitMap64([1])}, True)


def test_what_a_new_owner_has_not_heard_is_told_again() -> None:
    """Its save says from where on it has heard: behind the first report."""
    member, _ = lessee()
    SLOT.ack(1)
    SLOT.ack_in_batch((2, 0, 2))
    member.drain([SLOT])
    mark = member.mark()
    member.save_required = True
    assert member.report() is not None
    member.written(40)
    member.apply(SLOT, Saved(NEXT_OWNER, 2, upto=60, since=50))
    assert not member.is_saved(mark)
    report = member.report()
    assert report is not None
    assert (report.acks, report.batch_acks) == ({0: BitMap64([1])}, {0: {2: (2, 0b01)}})
    assert not member.is_saved(mark)
    member.written(60)
    member.apply(SLOT, Saved(NEXT_OWNER, 2, upto=61, since=50))
    assert member.is_saved(mark)


def test_what_was_told_before_a_seek_is_not_told_again() -> None:
    member, _ = lessee()
    acknowledge_the_first(member)
    member.now_s += 1.0
    assert member.report() is not None
    member.written(40)
    member.apply(SLOT, Saved(NEXT_OWNER, 2, upto=60, since=50))
    member.apply(SLOT, Saved(NEXT_OWNER, 3, upto=70))  # it has sought: what stands before has been taken care of
    member.now_s += 1.0
    report = member.report()
    assert report is None or not report.acks


@pytest.mark.parametrize(("upto", "left"), [(40, [1]), (41, [])], ids=["told behind it", "told before it"])
def test_who_takes_over_does_not_count_what_it_told_before_the_last_save(upto: int, left: list[int]) -> None:
    """The former owner has taken it in, or sought since; it may not have been heard to say so."""
    member, _ = lessee()
    acknowledge_the_first(member)
    member.now_s += 1.0
    assert member.report() is not None
    member.written(40)
    member.taken_in(0, upto)
    assert list(member.take_unsaved(0)[0].whole) == left


def test_who_takes_over_knows_what_was_leased_to_it_and_did_not_arrive() -> None:
    member, _ = lessee()
    member.apply(SLOT, lease(1, 2, number=1))
    elsewhere = replace(lease(5, number=1), to=MEMBER)
    in_the_log = [lease(1, 2, number=1), lease(3, 4, 5, number=2), elsewhere, lease(6, number=3, epoch=9)]
    assert member.unheard(in_the_log) == BitMap64([3, 4])
    assert member.unread(0) == BitMap64([1, 2])
    assert member.unread(1) == BitMap64()


def test_what_became_this_process_s_own_is_no_other_owner_s_to_save() -> None:
    member, _ = lessee()
    SLOT.ack(1)
    member.drain([SLOT])
    mark = member.mark()
    member.save_required = True
    assert member.report() is not None
    member.written(40)
    acks, _ = member.take_unsaved(0)
    assert acks.whole == BitMap64([1])
    assert member.is_saved(mark)


def test_what_is_acknowledged_and_not_heard_by_the_owner_does_not_come_again() -> None:
    """Not said yet, under way, and in the log behind what the owner had heard; what it had heard comes: it sought."""
    member, _ = lessee()
    for offset, at in (1, 40), (2, 50), (3, None):
        SLOT.ack(offset)
        member.drain([SLOT])
        member.save_required = True
        assert member.report() is not None
        if at is not None:
            member.written(at)
    SLOT.ack(4)
    member.drain([SLOT])
    member.apply(SLOT, lease(1, 2, 3, 4, 5, number=1, heard=41))
    assert held(member) == [1, 5]
    assert [entry.offset for each in member.to_read for entry in each.entries] == [1, 5]
    member.apply(SLOT, lease(4, number=2, heard=41))
    assert len(member.to_read) == 1
    assert not SLOT.has_acknowledgements()


def test_messages_of_a_batch_that_are_acknowledged_here_do_not_come_again() -> None:
    member, endpoint = lessee()
    for ack in (7, 0, 3), (8, 0, 2), (8, 1, 2), (9, 1, 3):
        SLOT.ack_in_batch(ack)
    member.drain([SLOT])
    entries = (LeasedEntry(7, 0, 2, (3, 0b010)), LeasedEntry(8, 0, 2), LeasedEntry(9, 0, 3))
    member.apply(SLOT, Lease(OWNER, 1, member.id, 1, 1, 100, entries))
    (to_read,) = member.to_read
    assert to_read.entries == (LeasedEntry(7, 0, 1, (3, 0b011)), LeasedEntry(9, 0, 2, (3, 0b010)))
    assert (to_read.messages, endpoint.unacked) == (3, 3)


@pytest.mark.parametrize("owners", [1, 2, 3])
@pytest.mark.parametrize("leased", range(1, 11))
def test_it_is_known_how_much_has_to_be_taken_until_owners_are_to_hear_of_room(owners: int, leased: int) -> None:
    member, endpoint = lessee()
    for number in range(1, owners):
        member.apply(None, Welcome(bytes([number]) * 16, member.id))
    if owners > 1:
        said(member)
    member.apply(SLOT, lease(*range(leased), number=1))
    endpoint.deliver([Delivery(None, endpoint.feed(SLOT), offset, 0) for offset in range(leased)])  # type: ignore[arg-type]
    member.to_read.clear()
    until = member.until_worth_reporting(endpoint)
    assert until is not None
    taken = 0
    while member.report() is None and taken < leased:
        endpoint.queue.popleft()
        taken += 1
    assert taken == min(until, leased)


def test_the_member_is_woken_when_that_was_taken() -> None:
    _, endpoint = lessee()
    woken: list[int] = []
    endpoint.wake_member = lambda: woken.append(len(endpoint.queue))
    endpoint.deliver([Delivery(None, endpoint.feed(SLOT), offset, 0) for offset in range(8)])  # type: ignore[arg-type]
    endpoint.watch(6)
    assert not endpoint.has_room_again()
    for _ in range(3):
        endpoint.take(Deadline.after(1))
    assert woken == [6, 5]
    endpoint.watch(-1)
    for _ in range(5):
        endpoint.take_now()
    with pytest.raises(DeadlineExceeded):
        endpoint.take(Deadline.after(0))
    assert woken == [6, 5]
    endpoint.unwatch()
    assert endpoint.has_room_again()


def test_acknowledgements_are_gathered_longer_where_members_are_many() -> None:
    member, _ = lessee()
    for reports_a_s, gathered_s in (160, 0.16), (400, 0.64), (400, 2.0), (100, 2.0), (25, 0.5), (10, 0.1):
        member.pace(reports_a_s)
        assert member.acks_s == pytest.approx(gathered_s)
    member.now_s = 1.0
    SLOT.ack(1)
    member.drain([SLOT])
    said(member)
    member.now_s += 0.05
    SLOT.ack(2)
    member.drain([SLOT])
    assert member.report() is None
    member.now_s += 0.06
    assert said(member).acks == {0: BitMap64([2])}


def test_owners_share_the_room_of_an_inbox() -> None:
    member, _ = lessee()
    member.apply(SLOT, lease(1, 2, number=1))
    member.apply(None, Welcome(NEXT_OWNER, member.id))
    limits = said(member).consumers[0].limits
    assert limits == {OWNER: 10, NEXT_OWNER: 4}


# The owner's side ---------------------------------------------------------------------------------------------------


class Owner:
    """A process that owns the partition, and a member that is words alone."""

    def __init__(self, kind: SubscriptionType = SubscriptionType.SHARED) -> None:
        self.world = World(random.Random("owner"), kind, faults=False, letters=False)
        self.world.end = 40
        self.process: Process = self.world.join()
        self.process.take_over()
        self.owned = self.process.owned[0]
        self.sequence = 0

    def hear(self, offset: int, *, limit: int = 30, heard: int = 0, **said: object) -> None:
        self.sequence += 1
        consumer = RemoteConsumer(1, "theirs", limits={self.process.session: limit})
        report = Report(LIFE, MEMBER, self.sequence, (consumer,), {self.process.session: heard}, **said)  # type: ignore[arg-type]
        self.process.leasing.lessor.apply(offset, report)
        self.process.leasing._check_members(self.world.now_s)

    def read(self) -> None:
        self.owned.intake.accept(list(range(20)), self.world.read_at_all(20))

    def save(self) -> None:
        self.process.save()
        self.process.answer()

    def written(self) -> list[LeaseRecord]:
        outbox = self.process.leasing._outbox
        records, outbox._records = outbox._records, []
        return [record for _, record in records]

    def leased(self) -> list[int]:
        """Offsets, of what is handed out now."""
        self.process.dispatcher.dispatch()
        return [e.offset for record in self.written() if isinstance(record, Lease) for e in record.entries]


def test_nothing_is_leased_before_a_save_says_so() -> None:
    owner = Owner()
    owner.read()
    owner.hear(0)
    assert owner.leased() == []
    owner.save()
    assert owner.owned.saves.saved.leased_from is not None
    assert owner.leased()


def test_reports_from_before_the_last_save_do_not_count_again() -> None:
    owner = Owner()
    owner.hear(7, acks={0: BitMap64([0])})
    assert (owner.owned.cursor.next_unacked, owner.owned.saves.applied_below) == (1, 8)
    owner.owned.seek(0)
    owner.process.leasing.lessor.apply(7, Report(LIFE, MEMBER, 1, acks={0: BitMap64([0, 1])}))
    assert owner.owned.cursor.next_unacked == 0


def test_what_was_told_before_a_seek_and_is_heard_behind_it_does_not_count() -> None:
    """Nor under a later owner, and what is leased then is not left out by who told it."""
    owner = Owner()
    owner.hear(0)
    owner.save()
    owner.world.deliveries += [(0, b"")] * 9
    owner.process.leasing.hand_over.about_to_seek(owner.owned)
    owner.process.dispatcher.seek(owner.owned, 0, None)
    owner.hear(8, acks={0: BitMap64([0])})
    assert (owner.owned.cursor.next_unacked, owner.owned.saves.applied_below) == (0, 9)
    owner.save()
    assert owner.owned.saves.saved.leased_from == len(owner.world.deliveries)
    assert Saved(owner.process.session, 1, len(owner.world.deliveries)) in owner.written()
    owner.read()
    owner.process.dispatcher.dispatch()
    assert {record.heard for record in owner.written() if isinstance(record, Lease)} == {len(owner.world.deliveries)}
    owner.hear(len(owner.world.deliveries), acks={0: BitMap64([0])})
    assert owner.owned.cursor.next_unacked == 1


def test_a_refusal_counts_once_and_only_for_what_its_consumer_holds() -> None:
    owner = Owner()
    owner.read()
    owner.hear(0)
    owner.save()
    leased = owner.leased()
    mine = next(iter(set(range(20)) - set(leased)))
    owner.hear(1, heard=1, nacks={0: (Nack(1, leased[0], 0), Nack(1, mine, 0))})
    owner.process.dispatcher.drain()
    owner.process.dispatcher.redelivery.redeliver_due()
    assert owner.owned.redeliveries.counts == {leased[0]: 1}


def test_a_refusal_from_before_a_recall_does_not_count() -> None:
    owner = Owner()
    owner.read()
    owner.hear(0)
    owner.save()
    owner.leased()
    owner.process.dispatcher.seek(owner.owned, 0, None)
    assert any(isinstance(record, Recall) for record in owner.written())
    owner.read()
    owner.save()
    again = owner.leased()
    owner.hear(1, heard=1, nacks={0: (Nack(1, again[0], 0),)})
    owner.process.dispatcher.drain()
    owner.process.dispatcher.redelivery.redeliver_due()
    assert not owner.owned.redeliveries.counts


def test_a_member_that_was_given_up_is_told_so_until_it_begins_anew() -> None:
    owner = Owner()
    owner.hear(0)
    owner.written()
    owner.process.leasing.lessor.not_written()
    assert [type(record) for record in owner.written()] == [Expel]
    owner.hear(1)
    assert [type(record) for record in owner.written()] == [Expel]
    report = Report(LIFE, MemberId("other", 2), 1, (RemoteConsumer(1, "theirs"),))
    owner.process.leasing.lessor.apply(2, report)
    assert [type(record) for record in owner.written()] == [Welcome]


@pytest.mark.parametrize("expelled", [False, True])
def test_who_gives_up_in_good_order_has_the_next_owner_ask_where_a_last_word_may_be_unheard(expelled: bool) -> None:
    owner = Owner()
    owner.hear(0)
    owner.save()
    assert owner.owned.saves.saved.leased_from is not None
    if expelled:
        owner.process.leasing.lessor.group_is([owner.process.client_id], requested_s=owner.world.now_s + 1)
    else:
        owner.process.leasing.lessor.apply(1, Report(LIFE, MEMBER, owner.sequence + 1, leaving=True))
    assert not owner.process.leasing.lessor.has_members
    owner.process.leasing.hand_over.retire()
    assert (owner.owned.cursor.leased_from is not None) is expelled


def test_what_was_acknowledged_before_it_was_recalled_and_leased_anew_does_not_come_again() -> None:
    """The member looks after itself once in a while: all of this happens between two of its looks."""
    world = World(random.Random("member"), SubscriptionType.FAILOVER, faults=False, letters=False)
    world.end = 2
    owner = world.join()
    owner.take_over()
    member = world.join()
    inbox = member.consumers[0]
    leasing = member.leasing
    member_id = leasing.lessee.id

    def look(*said_by_owner: LeaseRecord) -> None:
        at = len(world.deliveries)
        world.deliveries += [(0, encode(record)) for record in said_by_owner]
        leasing.receive([(at + i, *world.deliveries[at + i]) for i in range(len(said_by_owner))])
        world.now_s += 1.0
        leasing.step(joined=True)

    def leased(number: int) -> Lease:
        return Lease(owner.session, 1, member_id, number, 1, 0, (LeasedEntry(0), LeasedEntry(1)))

    look()
    look(Welcome(owner.session, member_id), leased(1))
    assert [delivery.offset for delivery in inbox.queue] == [0, 1]
    first = inbox.queue.popleft()
    first.feed.slot.ack(first.offset)
    world.acked.add(first.offset)
    look(Recall(owner.session, 1, member_id, 2), leased(3))
    assert [delivery.offset for delivery in inbox.queue] == [1]


def test_only_who_has_much_at_hand_and_owns_nothing_can_do_without_hearing() -> None:
    world = World(random.Random("patience"), SubscriptionType.SHARED, faults=False, letters=False)
    owner, member = world.join(), world.join()
    owner.take_over()
    for process in (owner, member):
        process.dispatcher.attach(Endpoint("large", 1000, delivery_type=Delivery))
        for inbox in process.consumers[:-1]:
            process.dispatcher.detach(inbox)
        process.consumers[0].queue.extend(Delivery(None, None, offset, 0) for offset in range(600))  # type: ignore[arg-type]
    assert [process.leasing.is_patient() for process in (owner, member)] == [False, True]
    inbox = member.consumers[0]
    for _ in range(100):
        inbox.queue.popleft()
    assert not member.leasing.is_patient(), "half of it is gone"
    inbox.capacity = 150
    while len(inbox.queue) > 101:
        inbox.queue.popleft()
    assert member.leasing.is_patient()
    inbox.queue.popleft()
    assert not member.leasing.is_patient(), "more than half is there, and soon none"


def test_somebody_who_wants_no_messages_hears_of_the_save_of_what_it_acknowledges() -> None:
    """It owned the partition before, and owns another one now."""
    owner = Owner()
    owner.process.leasing._inbox.applied_from = 5
    owner.process.leasing._inbox.applied_upto = 9
    report = Report(LIFE, MEMBER, 7, acks={0: BitMap64([0])}, leaving=True, save=True)
    owner.process.leasing.lessor.apply(8, report)
    assert owner.process.leasing.lessor.in_use
    owner.process.leasing._check_members(owner.world.now_s)
    owner.save()
    version = owner.owned.saves.saved.lineage.version
    assert owner.written() == [Saved(owner.process.session, version, upto=9, since=5)]
    assert not owner.process.leasing.lessor.in_use


def test_keys_stay_with_who_holds_them_under_a_new_owner() -> None:
    owner = Owner(SubscriptionType.KEY_SHARED)
    first = 0
    same = [offset for offset in range(20) if key_of(offset) == key_of(first)]
    owner.hear(0)
    owner.save()
    member = owner.process.leasing.lessor.members()[0][1][0]
    owner.process.dispatcher.still_held(owner.owned, member, {first: 1}, {})
    owner.read()
    for endpoint in owner.process.consumers:
        endpoint.resize(100)
    leased = set(owner.leased())
    here = {delivery.offset for each in owner.process.consumers for delivery in each.queue}
    assert not here.intersection(same)
    assert first not in leased | here
    owner.hear(1, acks={0: BitMap64([first])}, limit=100)
    leased |= set(owner.leased())
    here = {delivery.offset for each in owner.process.consumers for delivery in each.queue}
    assert (leased | here).issuperset(same[1:])


def test_a_consumer_goes_before_anything_of_a_partition_went_out_that_comes_again() -> None:
    owner = Owner(SubscriptionType.KEY_SHARED)
    process = owner.process
    process.dispatcher.attach(Inbox(process, "another"))
    owner.owned.redeliveries.waiting.update(range(20))
    owner.owned.intake.passed_over.update(owner.owned.redeliveries.waiting)
    gone = process.consumers[0]
    process.dispatcher.detach(gone)
    for endpoint in process.consumers:
        endpoint.resize(100)
    owner.read()
    process.dispatcher.dispatch()
    assert {delivery.offset for each in process.consumers for delivery in each.queue} == set(range(20))


def test_what_a_consumer_put_off_and_then_gave_back_hides_no_refusal_by_who_has_it_then() -> None:
    owner = Owner()
    process, slot, now_s = owner.process, owner.owned.slot, owner.world.now_s
    joe = process.consumers[0]
    joe.resize(20)
    owner.read()
    process.dispatcher.dispatch()
    slot.nacks.append((now_s, 60.0, joe.queue.popleft().offset, joe))
    process.dispatcher.drain()
    process.dispatcher.redelivery.redeliver_all(joe)
    joe.resize(0)
    ann = Inbox(process, "ann")
    ann.resize(20)
    process.dispatcher.attach(ann)
    process.dispatcher.dispatch()
    refused = ann.queue.popleft().offset
    slot.nacks.append((now_s, 0.0, refused, ann))
    process.dispatcher.drain()
    process.dispatcher.redelivery.redeliver_due()
    assert refused in owner.owned.redeliveries.waiting


@pytest.mark.parametrize("known", [True, False], ids=["answered", "left the group"])
def test_a_new_owner_hands_nothing_out_before_everybody_has_said_what_he_holds(known: bool) -> None:
    owner = Owner()
    owner.owned.cursor.leased_from = 0
    lessor = owner.process.leasing.lessor
    lessor.took_over(owner.owned, {}, {})
    owner.read()
    assert not owner.process.dispatcher.dispatch()
    assert lessor.group_is({"other", owner.process.client_id}, owner.world.now_s + 1) == []
    if known:
        owner.hear(1, answers={0: Held(1, {(1, 0): BitMap64([3])})})
    group = {"other", owner.process.client_id} if known else {owner.process.client_id}
    assert lessor.group_is(group, owner.world.now_s + 1) == [0]
    owner.process.dispatcher.dispatch()
    here = {delivery.offset for each in owner.process.consumers for delivery in each.queue}
    assert here
    assert (3 in owner.owned.in_flight.holders) or not known


@pytest.mark.parametrize("heard", [3, 4], ids=["before it was recalled", "behind that"])
def test_what_was_refused_before_it_was_recalled_does_not_come_apart_under_a_new_owner(heard: int) -> None:
    owner = Owner()
    owner.owned.cursor.leased_from = 0
    refusal = Report(LIFE, MEMBER, 7, heard={OWNER: heard}, nacks={0: (Nack(1, 5, 0),)})
    owner.world.deliveries += [(0, encode(Recall(OWNER, 1, MEMBER, 4))), (ALL_MEMBERS, encode(refusal))]
    nacked = owner.process.leasing.hand_over.take_over(owner.owned, DEADLINE)
    assert nacked is not None
    assert list(nacked) == ([5] if heard == 4 else [])
    owner.process.leasing.hand_over.opened(owner.owned, nacked)
    late = Report(LIFE, MEMBER, 8, heard={OWNER: heard}, nacks={0: (Nack(1, 6, 0),)})
    owner.process.leasing.lessor.apply(len(owner.world.deliveries), late)
    assert list(owner.process.leasing.lessor._take_overs.requested[0].nacked) == ([5, 6] if heard == 4 else [])


def test_what_members_say_to_hold_is_recalled_when_a_seek_came_before_their_answer() -> None:
    """Otherwise the new owner would take it for theirs, and they drop it when they hear of the seek."""
    owner = Owner()
    owner.owned.cursor.leased_from = 0
    owner.hear(0)
    lessor = owner.process.leasing.lessor
    lessor.took_over(owner.owned, {0: Nack(1, 0, 60_000)}, {})
    owner.process.dispatcher.seek(owner.owned, 0, None)
    owner.written()
    owner.hear(1, answers={0: Held(1, {(1, 0): BitMap64([3])})}, nacks={0: (Nack(1, 4, 60_000),)})
    assert lessor.group_is({"other", owner.process.client_id}, owner.world.now_s + 1) == [0]
    owner.read()
    assert 3 not in owner.owned.in_flight.holders
    for endpoint in owner.process.consumers:
        endpoint.resize(100)
    owner.process.dispatcher.dispatch()
    leased = set(owner.leased())
    here = {delivery.offset for each in owner.process.consumers for delivery in each.queue}
    assert leased | here == set(range(20))


def test_who_came_after_a_take_over_is_not_waited_for() -> None:
    owner = Owner()
    owner.owned.cursor.leased_from = 0
    lessor, me, now_s = owner.process.leasing.lessor, owner.process.client_id, owner.world.now_s
    lessor.took_over(owner.owned, {}, {})
    assert lessor.group_is({"other", me}, now_s + 1) == []
    assert lessor.group_is({"other", "late", me}, now_s + 2) == []
    owner.hear(1)  # its first report: it holds nothing
    assert lessor.group_is({"other", "late", me}, now_s + 3) == [0]


def test_a_partition_that_waited_too_long_is_read_from_its_beginning() -> None:
    """What was passed over meanwhile must not count as gone."""
    owner = Owner()
    owner.owned.cursor.leased_from = 0
    leasing, members, now_s = owner.process.leasing, {"other", owner.process.client_id}, owner.world.now_s
    leasing.lessor.took_over(owner.owned, {}, {})
    owner.process.position = 20
    assert leasing.lessor.group_is(members, now_s + 19) == []
    leasing._resume(leasing.lessor.group_is(members, now_s + 21))
    assert (owner.owned.quiet, owner.process.position) == (False, 0)


def test_a_member_is_given_up_for_what_it_did_not_write_not_for_what_was_not_read() -> None:
    owner = Owner()
    owner.hear(0)
    lessor, members, now_s = owner.process.leasing.lessor, {"other", owner.process.client_id}, owner.world.now_s
    lessor.now_s += 60  # this process stood still
    owner.process.leasing._check_members(lessor.now_s)
    assert lessor.has_members
    assert lessor.misses_any(members, now_s + 60)  # everything in the log by now is taken in first
    owner.hear(1)
    lessor.group_is(members, now_s + 60)
    assert lessor.has_members
    assert not lessor.misses_any(members, now_s + 80)
    assert lessor.misses_any(members, now_s + 81)
    lessor.group_is(members, now_s + 81)
    assert not lessor.has_members


def test_what_was_received_stays_when_the_partition_is_given_up_and_what_was_not_is_taken_back() -> None:
    owner = Owner()
    consumer = owner.process.consumers[0]
    consumer.resize(20)
    owner.read()
    owner.process.dispatcher.dispatch()
    received = [consumer.queue.popleft().offset for _ in range(4)]
    consumer.feed(owner.owned.slot)
    owner.owned.slot.nacks.append((owner.world.now_s, 60.0, received[3], consumer))
    owner.process.hand_over()
    owner.process.owned.clear()
    leased = owner.process.leasing.lessee.partitions[0]
    assert sorted(leased.in_flight.holders) == sorted(received[:3])
    assert (consumer.unacked, list(consumer.queue)) == (3, [])


def test_what_was_leased_is_written_before_the_partition_is_given_up() -> None:
    """Behind the next owner's TAKE_OVER it would be void: a message went to the dead letters that nobody had got."""
    owner = Owner()
    owner.hear(0)
    owner.save()
    owner.read()
    owner.process.dispatcher.dispatch()
    owner.process.leasing.hand_over.keep_what_is_out([0])
    said = [decode(value) for _, value in owner.world.deliveries]
    leased = {entry.offset for record in said if isinstance(record, Lease) for entry in record.entries}
    assert leased
    assert leased == {o for o, feed in owner.owned.in_flight.holders.items() if feed.endpoint.is_remote}


def test_the_rest_of_a_batch_entry_stays_with_who_received_some_of_it() -> None:
    owner = Owner()
    consumer = owner.process.consumers[0]
    slot, feed = owner.owned.slot, consumer.feed(owner.owned.slot)
    for entry in (3, 4):
        owner.owned.in_flight.hold_batch(entry, feed, 3)
        consumer.queue.extend(Delivery(None, feed, entry, 0) for _ in range(3))  # type: ignore[arg-type]
    consumer.queue.popleft()
    owner.owned.withdraw(feed, BitMap64())
    assert [delivery.offset for delivery in consumer.queue] == [3, 3]
    assert (list(owner.owned.in_flight.holders), consumer.unacked, slot.forgotten) == ([3], 3, 0)


def test_a_first_report_that_answers_is_an_answer() -> None:
    """A former owner that was no member before: it did not begin behind the TAKE_OVER with nothing."""
    owner = Owner()
    owner.owned.cursor.leased_from = 0
    lessor, me, now_s = owner.process.leasing.lessor, owner.process.client_id, owner.world.now_s
    lessor.took_over(owner.owned, {}, {})
    owner.hear(1, answers={0: Held(1, {(1, 0): BitMap64([3])})})
    assert lessor.group_is({"other", me}, now_s + 1) == [0]
    assert 3 in owner.owned.in_flight.holders


def test_who_left_and_comes_again_is_another_epoch() -> None:
    """Its former owners count what they write to it from 1 again."""
    member, endpoint = lessee()
    acknowledge_the_first(member)
    member.requesting = False
    member.now_s = 1.0
    report = said(member)
    assert (report.leaving, report.member.epoch) == (True, 1)
    member.requesting = True
    member.now_s = 2.0
    report = said(member)
    assert (report.sequence, report.member.epoch, dict(report.heard)) == (1, 2, {})
    assert endpoint.unacked == 0


def test_a_refusal_counts_when_the_same_report_says_that_its_consumer_is_gone() -> None:
    owner = Owner()
    owner.hear(0)
    owner.save()
    owner.read()
    offset = owner.leased()[0]
    owner.sequence += 1
    report = Report(LIFE, MEMBER, owner.sequence, nacks={0: (Nack(1, offset, 60_000),)}, leaving=True)
    owner.process.leasing.lessor.apply(1, report)
    assert owner.process.dispatcher._nacks.waiting(0) or owner.owned.redeliveries.counts.get(offset)


# One consumer at a time (Failover) ----------------------------------------------------------------------------------


def taken_over(*, theirs_is_active: bool) -> Owner:
    """By an owner that asks; the member has said that its consumer holds 3 and 4, and everybody else was heard."""
    owner = Owner(SubscriptionType.FAILOVER)
    for endpoint in owner.process.consumers:
        endpoint.priority = 1 if theirs_is_active else -1
        endpoint.resize(100)
    owner.owned.active = None
    owner.owned.cursor.leased_from = 0
    owner.owned.cursor.revision += 1
    owner.save()
    owner.process.leasing.lessor.took_over(owner.owned, {}, {})
    owner.hear(1, answers={0: Held(1, {(1, 0): BitMap64([3, 4])})})
    owner.written()
    return owner


def all_have_answered(owner: Owner) -> None:
    group = {"other", owner.process.client_id}
    assert owner.process.leasing.lessor.group_is(group, owner.world.now_s + 1) == [0]


def test_the_active_consumer_keeps_what_it_holds_under_a_new_owner() -> None:
    owner = taken_over(theirs_is_active=True)
    owner.hear(2, acks={0: BitMap64([0, 1, 2])})
    all_have_answered(owner)
    owner.read()
    assert owner.leased() == list(range(5, 20))


def test_what_nobody_holds_below_that_has_all_of_it_come_again_in_order() -> None:
    """A transaction held it, say, and was aborted while the owner changed."""
    owner = taken_over(theirs_is_active=True)
    owner.hear(2, acks={0: BitMap64([0, 2])})
    all_have_answered(owner)
    owner.read()
    assert owner.leased() == []
    owner.owned.intake.accept(list(range(1, 20)), owner.world.read_at_all(20)[1:])
    assert owner.leased() == [1, *range(3, 20)]


def test_what_another_one_held_comes_again_when_it_is_not_active_any_more() -> None:
    owner = taken_over(theirs_is_active=False)
    all_have_answered(owner)
    assert [type(record) for record in owner.written()] == [Recall]
    owner.read()
    assert owner.leased() == []
    assert [each.offset for each in owner.process.consumers[0].queue] == list(range(20))


@pytest.mark.parametrize("decided", [True, False])
def test_what_is_refused_after_the_answer_brings_all_of_it_again(decided: bool) -> None:
    owner = taken_over(theirs_is_active=True)
    if decided:
        all_have_answered(owner)
        assert not owner.owned.went_out(5)
    owner.hear(2, nacks={0: (Nack(1, 4, 0),)})
    owner.process.dispatcher.redelivery.redeliver_due()
    if not decided:
        all_have_answered(owner)
    owner.read()
    assert [type(record) for record in owner.written()] == [Recall]
    assert owner.leased() == list(range(20))


@pytest.mark.parametrize("kept", [True, False], ids=["kept", "refused"])
def test_a_member_answers_with_what_its_active_consumer_holds_unless_some_of_it_was_refused(kept: bool) -> None:
    endpoint = Endpoint("mine", 10, delivery_type=Delivery)
    member = Lessee(LIFE, "me", [endpoint], in_order=True)
    member.requesting = True
    said(member)
    member.apply(None, Welcome(OWNER, member.id))
    said(member)
    member.apply(SLOT, lease(1, 2, 3, number=1))
    endpoint.deliver([Delivery(None, endpoint.feed(SLOT), offset, 0) for offset in (1, 2, 3)])  # type: ignore[arg-type]
    SLOT.ack(1)
    if not kept:
        SLOT.nacks.append((0.0, 60.0, 2, endpoint))
    member.drain([SLOT])
    member.apply(SLOT, TakeOver(LIFE, NEXT_OWNER, 2))
    assert dict(said(member).answers[0].offsets) == ({(1, 0): BitMap64([2, 3])} if kept else {})
    assert len(endpoint.queue) == (3 if kept else 0)


def test_what_was_refused_is_acknowledged_by_what_comes_behind_it() -> None:
    endpoint = Endpoint("mine", 10, delivery_type=Delivery)
    member = Lessee(LIFE, "me", [endpoint], in_order=True)
    member.requesting = True
    said(member)
    member.apply(None, Welcome(OWNER, member.id))
    said(member)
    member.apply(SLOT, lease(1, 2, 3, number=1))
    SLOT.nacks.append((0.0, 60.0, 2, endpoint))
    member.drain([SLOT])
    SLOT.cumulative.append(3)
    member.drain([SLOT])
    assert said(member).acks == {0: BitMap64([1, 2, 3])}


@pytest.mark.parametrize("out", ["few", "refused", "many"])
def test_the_active_consumer_stays_with_what_it_was_handed_when_its_process_gives_the_partition_up(out: str) -> None:
    owner = Owner(SubscriptionType.FAILOVER)
    consumer = owner.process.consumers[0]
    consumer.resize(6)
    owner.read()
    owner.process.dispatcher.dispatch()
    received = [consumer.queue.popleft().offset for _ in range(4)]
    owner.owned.slot.ack(received[1])
    if out == "refused":
        owner.owned.slot.nacks.append((owner.world.now_s, 60.0, received[3], consumer))
    if out == "many":
        owner.owned.intake.passed_over.add_range(20, 50_020)
    owner.process.hand_over()
    owner.process.owned.clear()
    kept = sorted(owner.process.leasing.lessee.partitions[0].in_flight.holders)
    assert kept == ([0, 2, 3, 4, 5] if out == "few" else [])
    assert len(consumer.queue) == (2 if out == "few" else 0)
