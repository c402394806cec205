"""Random histories of one group: this product's machine beside members as librdkafka's, and a coordinator that moves.

Checked at each accepted commit (`GroupWorld`): no two live owners, no commit behind a newer generation's take-over, no
progress set back, nothing lost that an owner knew to be saved. Checked at the end: each partition has one owner.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial

import pytest

from pulsar_on_kafka.kafka.groups import membership_machine
from pulsar_on_kafka.kafka.groups.membership_machine import BeatTimes
from tests.seeds import in_three
from tests.simulation.group_members import Faults, GroupWorld, Member, OldClient, OurClient

BEATS = BeatTimes(interval_s=0.5, session_s=6.0)
OURS, OLD, OLDER = "ours", "old", "older"
MIXES = ((OURS,), (OURS, OURS), (OURS, OLD), (OLD, OURS), (OURS, OURS, OLD), (OURS, OLD, OLD), (OLDER, OURS))
_DISTURBED_S, _PIECE_S, _QUIET_S = 120.0, 4.0, 260.0


class History:
    """Members come, go, stop, stall and die while the network and the coordinator fail. Then the group is quiet."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        rng = self.rng = random.Random(seed)
        self.world = GroupWorld(seed, partitions=rng.choice((1, 2, 5)), first_delay_s=rng.choice((0.0, 0.0, 3.0)))
        self._made = 0
        self.members = [self._member(kind) for kind in rng.choice(MIXES)]

    def _member(self, kind: str) -> Member:
        self._made += 1
        makes: dict[str, Callable[[Member], OurClient | OldClient]] = {
            OURS: partial(OurClient, beats=BEATS),
            OLD: partial(OldClient, version_1=False),
            OLDER: partial(OldClient, version_1=True),
        }
        return Member(self.world, f"{kind}{self._made}", makes[kind])

    def play(self) -> None:
        world, rng = self.world, self.rng
        while world.now_s < _DISTURBED_S:
            world.faults = Faults(*(rng.choice((0.0, 0.0, 0.05, 0.2)) for _ in range(3)))
            self._disturb(rng)
            world.run_until(world.now_s + rng.uniform(0.0, _PIECE_S))
        world.faults = Faults()
        world.run_until(world.now_s + _QUIET_S)
        self._check_end()

    def _disturb(self, rng: random.Random) -> None:
        living = [each for each in self.members if not each.is_dead and not each.is_leaving]
        draw = rng.random()
        if draw < 0.12:
            self.world.group.move(rng.choice((0.0, 0.5, 8.0)))
        elif draw < 0.24 and living:
            rng.choice(living).suspended_until_s = self.world.now_s + rng.choice((1.0, 7.0, 30.0, 70.0))
        elif draw < 0.30 and living:
            rng.choice(living).is_dead = True
        elif draw < 0.36 and living:
            leaving = rng.choice(living)
            client = leaving.client
            assert isinstance(client, OurClient | OldClient)
            leaving.later(0.1, client.leave)
        elif draw < 0.40 and living:
            rng.choice(living).stalled_until_s = self.world.now_s + rng.choice((10.0, 50.0))
        elif draw < 0.43 and living:
            yielding = rng.choice(living)
            if isinstance(yielding.client, OurClient):
                yielding.later(0.1, yielding.client.yield_partitions)
        elif draw < 0.57 and len(living) < 3:
            self.members.append(self._member(rng.choice((OURS, OURS, OLD, OLDER))))

    def _check_end(self) -> None:
        living = [each for each in self.members if not each.is_dead and not each.is_leaving]
        if not living:
            return
        owners = [each.owner.progress.keys() for each in living]
        owned = sorted(partition for each in owners for partition in each)
        assert owned == list(range(self.world.partitions)), f"{[sorted(each) for each in owners]}"
        yielding = [isinstance(each.client, OurClient) and each.client.yields for each in living]
        if all(isinstance(each.client, OurClient) for each in living) and not all(yielding):
            assert not any(owner for owner, yields in zip(owners, yielding, strict=True) if yields)
            owners = [owner for owner, yields in zip(owners, yielding, strict=True) if not yields]
        if not any(yielding) or all(isinstance(each.client, OurClient) for each in living):
            assert max(map(len, owners)) - min(map(len, owners)) <= 1
        assert all(each.has_left for each in self.members if each.is_leaving and not each.is_dead)


@pytest.mark.parametrize("seeds", in_three(40, range(4000)), ids=str)
def test_a_partition_has_one_owner_whatever_happens_to_its_group(seeds: range, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(membership_machine, "OWNER_TIMEOUT_S", 40.0)
    take_overs = moves = 0
    for seed in seeds:
        history = History(seed)
        try:
            history.play()
        except AssertionError as failure:
            raise AssertionError(f"seed {seed} at {history.world.now_s:.2f} s: {failure}") from failure
        take_overs += history.world.take_overs
        moves += history.world.group.moves
    assert take_overs > 5 * len(seeds)
    assert moves > len(seeds)
