"""Histories of processes that share one partition by leases (see `leases`), 6,000 of them with `make soak`. Some
of their consumers hang for a while, and on Key_Shared nearly all that waits for them is parked.

What must hold: a message is held by one live consumer at a time, until it was expelled; every
message is acknowledged in the end, after a seek anew; what a flush called durable does not go out again; on Key_Shared
nobody gets a message of a key while another live consumer has one of it, and keys go out in order; redelivery counts
are what was refused, as long as no process dies, and never more; on Failover a consumer gets messages in order from the
first that is not acknowledged on, and leaves none out; where a dead letter policy is set, applications receive a
message `max_redeliver_count + 1` times at most, whatever happens, without what they held when they closed in good
order. A consumer that drains gets nothing, and is done when its application has settled what it received.
"""

from __future__ import annotations

import random

import pytest

from pulsar_on_kafka.broker.metadata.subscriptions.subscription import SubscriptionType
from pulsar_on_kafka.broker.subscriptions.dispatching import key_shared
from pulsar_on_kafka.broker.subscriptions.dispatching.key_shared import MAX_PARKED
from pulsar_on_kafka.broker.subscriptions.partition import key_order
from pulsar_on_kafka.broker.subscriptions.partition.key_order import KNOWN, NEAR
from tests.seeds import first_of
from tests.simulation.leases import Process, World

SEEDS = 6
HISTORIES_A_SEED = 2
MANY = 200
KINDS = [SubscriptionType.SHARED, SubscriptionType.KEY_SHARED, SubscriptionType.FAILOVER]


def seek_now_and_then(world: World, luck: float) -> None:
    owner = world.owner
    if owner is None or not owner.owned or owner.paused:
        return
    asks = owner.owned[0].quiet
    often = 0.003 if world.may_seek and not asks else 0.0
    if world.seeks_often:
        often = 0.03 if asks else 0.01
    if 0.5 < luck < 0.5 + often:
        owner.seek()


def drain_now_and_then(world: World, process: Process) -> None:
    if process in world.processes and not process.paused and world.drains.random() < world.often_drains:
        process.drain_one()


def hang_now_and_then(world: World, process: Process) -> None:
    if world.hangs.random() < world.often_hangs:
        for inbox in process.inboxes():
            inbox.hangs = world.hangs.random() < 0.5


def disturb(world: World) -> None:
    rng = world.rng
    luck = rng.random()
    process = rng.choice(world.processes)
    if luck < 0.02 and len(world.processes) < 5:
        world.join()
    elif world.moves and luck < 0.03 and len(world.processes) > 1 and not process.paused and not process.out_of_group:
        process.leave()
    elif world.moves and luck < 0.035 and not process.paused:
        process.close_one()
    owner = world.owner
    if world.hands_over and 0.04 < luck < 0.06 and owner is not None and owner.owned and not owner.paused:
        owner.hand_over()
    seek_now_and_then(world, luck)
    drain_now_and_then(world, process)
    hang_now_and_then(world, process)
    if not world.faults:
        return
    if luck > 0.975 and luck < 0.978 and world.owner is not None and world.owner.owned and not world.owner.paused:
        world.troubles += 1
        world.owner.lose_partition()
    elif luck > 0.995 and len(world.processes) > 1:
        world.troubles += 1
        process.alive = False
        world.processes.remove(process)
        process.holds_nothing()
    elif luck > 0.98:
        world.troubles += 1
        process = world.owner if world.owner is not None and rng.random() < 0.5 else process
        process.paused = not process.paused
    for member in list(world.group.values()):
        if (not member.alive or member.paused) and rng.random() < 0.03:
            world.troubles += 1
            world.forget(member)


def run(world: World) -> None:
    for _ in range(world.rng.randrange(1, 4)):
        world.join()
    for step in range(60_000):
        quiet = step > 300
        world.now_s += 0.02 if world.rng.random() < 0.95 else 1.0
        if not quiet:
            disturb(world)
            if world.rng.random() < 0.05:
                world.end += world.rng.randrange(1, 10)
        else:
            for process in world.processes:
                process.wake_up()
            for member in list(world.group.values()):
                if not member.alive:
                    world.forget(member)
        world.assign()
        for process in [each for each in world.processes if not each.paused]:
            if process in world.processes and world.rng.random() < 0.7:
                process.step()
                process.traffic.step()
        owned = None if world.owner is None else world.owner.owned.get(0)
        if quiet and owned is not None and owned.cursor.next_unacked >= world.end and not owned.quiet:
            missed = sorted(set(range(world.end)) - world.acked)
            assert not missed, f"{missed} count as acknowledged, and were not, or not since a seek"
            return
    owner = world.owner
    pytest.fail(
        f"it does not come to an end: {sorted(set(range(world.end)) - world.acked)} left, owner "
        f"{owner and owner.client_id} {owner and owner.owned and vars(owner.leasing.lessor)}"
    )


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", first_of(1, range(SEEDS)))
@pytest.mark.parametrize("letters", [False, True], ids=["no policy", "dead letters"])
@pytest.mark.parametrize("faults", [False, True], ids=["orderly", "faults"])
def test_messages_are_shared_by_processes(seed: int, kind: SubscriptionType, faults: bool, letters: bool) -> None:
    play(seed, kind, faults=faults, letters=letters)


@pytest.mark.soak
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(SEEDS, MANY))
@pytest.mark.parametrize("letters", [False, True], ids=["no policy", "dead letters"])
@pytest.mark.parametrize("faults", [False, True], ids=["orderly", "faults"])
def test_the_same_in_many_more_histories(seed: int, kind: SubscriptionType, faults: bool, letters: bool) -> None:
    play(seed, kind, faults=faults, letters=letters)


def test_what_a_consumer_keeps_and_refuses_waits_for_what_was_withdrawn_before_it() -> None:
    play(17, SubscriptionType.KEY_SHARED, faults=False, letters=False)


@pytest.mark.parametrize("seed", [18, 86])
def test_messages_of_an_owner_that_leaves_before_all_members_answer_stay_with_its_consumer(seed: int) -> None:
    """Failover: the group takes the partition twice in a row. On 86 the owner emptied its consumer's inbox; 18 finds an
    owner that keeps the inbox and does not answer the next owner with it."""
    play(seed, SubscriptionType.FAILOVER, faults=False, letters=False)


def test_an_owner_that_leaves_before_it_has_read_everything_keeps_the_counts_of_the_one_before() -> None:
    """The group moves the partition on while messages behind those that are parked were not read yet."""
    play(70, SubscriptionType.KEY_SHARED, faults=True, letters=True)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", first_of(1, range(SEEDS)))
@pytest.mark.parametrize("faults", [False, True], ids=["orderly", "faults"])
def test_operators_seek_while_owners_change_and_processes_die(seed: int, kind: SubscriptionType, faults: bool) -> None:
    play(seed, kind, faults=faults, letters=False, seeks=True)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", first_of(1, range(2)))
def test_take_overs_that_nobody_saved_keep_nobody_from_messages(seed: int, kind: SubscriptionType) -> None:
    """Foreign programs may write them: members that believed one would hear their owner no more."""
    play(seed, kind, faults=False, letters=False, forgeries=True)


@pytest.mark.soak
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(SEEDS, MANY))
def test_seeks_in_many_more_histories(seed: int, kind: SubscriptionType) -> None:
    play(seed, kind, faults=True, letters=seed % 2 == 0, seeks=True)


ORDERED = [SubscriptionType.KEY_SHARED, SubscriptionType.FAILOVER]


@pytest.mark.parametrize("kind", ORDERED)
@pytest.mark.parametrize("seed", first_of(1, range(4)))
@pytest.mark.parametrize("letters", [False, True], ids=["no policy", "dead letters"])
@pytest.mark.parametrize("faults", [False, True], ids=["orderly", "faults"])
def test_later_messages_of_a_key_wait_for_refused_ones(
    seed: int, kind: SubscriptionType, faults: bool, letters: bool
) -> None:
    """`ordered_redelivery`: nobody receives a message of a key (Failover: of the partition) while an earlier one was
    refused and is not acknowledged, nor, on Key_Shared, while somebody else has an earlier one."""
    play(seed, kind, faults=faults, letters=letters, ordered=True)


@pytest.mark.soak
@pytest.mark.parametrize("kind", ORDERED)
@pytest.mark.parametrize("seed", range(4, MANY))
@pytest.mark.parametrize("letters", [False, True], ids=["no policy", "dead letters"])
@pytest.mark.parametrize("faults", [False, True], ids=["orderly", "faults"])
def test_they_wait_in_many_more_histories(seed: int, kind: SubscriptionType, faults: bool, letters: bool) -> None:
    play(seed, kind, faults=faults, letters=letters, ordered=True)


def play(
    seed: int,
    kind: SubscriptionType,
    *,
    faults: bool,
    letters: bool,
    seeks: bool = False,
    forgeries: bool = False,
    ordered: bool = False,
) -> None:
    for history in range(HISTORIES_A_SEED):
        what, number = f"{seed} {history}", seed * HISTORIES_A_SEED + history
        world = World(random.Random(what), kind, faults=faults, letters=letters, seeks=seeks, ordered=ordered)
        world.forgeries |= forgeries
        with pytest.MonkeyPatch.context() as bounds:
            bounds.setattr(key_order, "NEAR", (NEAR, 1, 3)[number % 3])
            bounds.setattr(key_order, "KNOWN", (KNOWN, 0, 4)[(number + number // 3) % 3])
            bounds.setattr(key_shared, "MAX_PARKED", (MAX_PARKED, MAX_PARKED, 5)[number // 2 % 3])
            try:
                run(world)
            except AssertionError as failure:
                raise AssertionError(f"history {what}: {failure}") from failure
