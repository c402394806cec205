"""A group in virtual time: members of two kinds, their owners, and a network that delays and loses requests.

`GroupWorld` holds what Kafka accepted and checks each commit. A commit names its ownership, which begins by a
take-over: the owner reads the group's offset of the partition and commits it in its own name.
"""

from __future__ import annotations

import heapq
import itertools
import math
import random
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

from pulsar_on_kafka.kafka.groups.assignor import MemberClaim, read_claims
from pulsar_on_kafka.kafka.groups.consumer_protocol import (
    COOPERATIVE_STICKY,
    decode_assignment,
    encode_assignment,
    encode_subscription,
)
from pulsar_on_kafka.kafka.groups.membership_machine import (
    NO_MEMBER,
    Assigned,
    BeatTimes,
    Committed,
    FindCoordinator,
    GroupAction,
    GroupRequest,
    GroupResponse,
    LeftGroup,
    LostPartitions,
    MemberGeneration,
    MembershipMachine,
    Revoke,
    Send,
)
from pulsar_on_kafka.kafka.records import CommittedOffset, commit_metadata
from pulsar_on_kafka.kafka.wire.error_codes import ErrorCode
from pulsar_on_kafka.kafka.wire.group_messages import (
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    LeavingMember,
    SyncGroupRequest,
    SyncGroupResponse,
)
from pulsar_on_kafka.kafka.wire.offset_messages import OffsetCommitRequest, OffsetCommitResponse, OffsetToCommit
from tests.simulation.classic_group import ClassicGroup

GROUP, TOPIC = "g", "t"
_WAITING = (JoinGroupRequest, SyncGroupRequest)
_COMMIT_TIMEOUT_S, _WAIT_TIMEOUT_S, _BEAT_TIMEOUT_S = 10.0, 70.0, 2.0
_FENCED = (ErrorCode.ILLEGAL_GENERATION, ErrorCode.UNKNOWN_MEMBER_ID)


@dataclass(frozen=True)
class Faults:
    """Shares of requests that meet a fault."""

    late: float = 0.0
    lost: float = 0.0
    not_sent: float = 0.0


class GroupWorld:
    def __init__(self, seed: int, partitions: int, first_delay_s: float = 0.0) -> None:
        self.rng = random.Random(seed)
        self.now_s = 0.0
        self.partitions = partitions
        self.faults = Faults()
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._order = itertools.count()
        self.group = ClassicGroup(self.rng, lambda: self.now_s, self.at, self._accept, first_delay_s)
        self.committed: dict[int, CommittedOffset] = {}
        self._ownership: dict[int, tuple[str, int]] = {}
        """Name and generation of each partition's newest accepted take-over."""
        self.durable: dict[int, int] = {}
        """The progress whose commit an owner knows to be accepted."""
        self.accepted = self.take_overs = 0

    def at(self, time_s: float, call: Callable[[], None]) -> None:
        heapq.heappush(self._events, (max(time_s, self.now_s), next(self._order), call))

    def after(self, seconds: float, call: Callable[[], None]) -> None:
        self.at(self.now_s + seconds, call)

    def run_until(self, end_s: float) -> None:
        while self._events and self._events[0][0] <= end_s:
            self.now_s, _, call = heapq.heappop(self._events)
            call()
        self.now_s = end_s

    def _accept(self, request: OffsetCommitRequest) -> None:
        """A commit that the coordinator took. Its metadata is the ownership, and what it does."""
        for _, offsets in request.topics:
            for offset in offsets:
                partition, progress = offset.partition_index, offset.committed_offset
                name, what = commit_metadata(offset.committed_metadata).split("/")
                holder, generation = self._ownership.get(partition, ("", -1))
                assert request.generation_id >= generation, (
                    f"a commit of generation {request.generation_id} behind the take-over of generation {generation}"
                )
                known = self.committed.get(partition, CommittedOffset(0, "")).kafka_offset
                if what == "takes over":
                    assert progress == known, f"{name} took over {partition} at {progress}, Kafka had {known}"
                    assert progress >= self.durable.get(partition, 0), f"{name} lost what was saved of {partition}"
                    self._ownership[partition] = (name, request.generation_id)
                    self.take_overs += 1
                else:
                    assert name == holder, f"{name} and {holder} both own {partition}"
                    assert progress >= known, f"{name} set {partition} back from {known} to {progress}"
                self.committed[partition] = CommittedOffset(progress, offset.committed_metadata or "")
                self.accepted += 1


class GroupClient(Protocol):
    """The part of a member that its owner uses."""

    def commit(self, commits: Mapping[int, CommittedOffset], prepared: MemberGeneration) -> None: ...

    def revoked(self, partitions: Iterable[int], generation: MemberGeneration) -> None: ...


class Owner:
    """Owns partitions as a subscription's member does: take over, acknowledge, save, give up. One thing at a time."""

    def __init__(self, member: Member) -> None:
        self._member = member
        self._world = member.world
        self.generation = NO_MEMBER
        self.progress: dict[int, int] = {}
        """Partitions that were taken over."""
        self._owned: set[int] = set()
        self._saved: dict[int, int] = {}
        self._revoking: dict[int, MemberGeneration] = {}
        self._tries = 0
        self._names: dict[int, str] = {}
        self._committing: dict[int, CommittedOffset] | None = None
        self._unsettled: dict[int, CommittedOffset] = {}

    @property
    def owned(self) -> set[int]:
        return set(self._owned)

    def assigned(self, partitions: Iterable[int], generation: MemberGeneration) -> None:
        self.generation = generation
        self._owned.update(partitions)

    def revoke(self, partitions: Iterable[int], generation: MemberGeneration) -> None:
        self.generation = generation
        self._revoking.update(dict.fromkeys(partitions, generation))
        self._tries = 0

    def lost(self, partitions: Iterable[int]) -> None:
        for partition in partitions:
            self._drop(partition)
        self._revoking.clear()

    def _drop(self, partition: int) -> None:
        self._owned.discard(partition)
        self._revoking.pop(partition, None)
        self.progress.pop(partition, None)
        self._saved.pop(partition, None)
        self._unsettled.pop(partition, None)

    def step(self) -> None:
        """One turn of the owner's loop."""
        rng = self._world.rng
        for partition in self.progress.keys() - self._revoking.keys():
            self.progress[partition] += rng.randrange(3)
        if self._committing is not None:
            return
        if self._unsettled:
            self._member.fetch(set(self._unsettled), self._settle)
            return
        dirty = {p: each for p, each in self.progress.items() if each != self._saved.get(p)}
        if self._revoking and (self._tries > 5 or not dirty.keys() & self._revoking.keys()):
            for partition, generation in list(self._revoking.items()):
                self._drop(partition)
                self._member.client.revoked((partition,), generation)
        elif dirty and (self._revoking or rng.random() < 0.5):
            self._tries += 1
            self._send({p: CommittedOffset(each, f"{self._names[p]}/saves") for p, each in dirty.items()})
        elif fresh := self._owned - self.progress.keys() - self._revoking.keys():
            self._member.fetch(fresh, self._take_over)

    def _take_over(self, found: Mapping[int, CommittedOffset]) -> None:
        if self._committing is not None:
            return
        commits = {}
        for partition in found.keys() & self._owned - self._revoking.keys() - self.progress.keys():
            self._names[partition] = f"{self._member.name}-{next(self._member.numbers)}"
            commits[partition] = CommittedOffset(found[partition].kafka_offset, f"{self._names[partition]}/takes over")
        if commits:
            self._send(commits)

    def _settle(self, found: Mapping[int, CommittedOffset]) -> None:
        unsettled, self._unsettled = self._unsettled, {}
        self._take_outcome({p: each for p, each in unsettled.items() if found[p] == each})

    def _send(self, commits: dict[int, CommittedOffset]) -> None:
        """Prepares a save now; it is sent later, perhaps in another generation."""
        self._committing, prepared = commits, self.generation
        self._member.later(0.3, lambda: self._member.client.commit(commits, prepared))

    def committed(self, error_code: int | None) -> None:
        sent, self._committing = self._committing or {}, None
        if error_code is None:
            self._unsettled = {p: each for p, each in sent.items() if p in self._owned}
        elif error_code == ErrorCode.NONE:
            for partition, each in sent.items():
                self._world.durable[partition] = max(self._world.durable.get(partition, 0), each.kafka_offset)
            self._take_outcome(sent)

    def _take_outcome(self, accepted: Mapping[int, CommittedOffset]) -> None:
        for partition, each in accepted.items():
            if partition in self._owned and each.metadata.startswith(f"{self._names[partition]}/"):
                self._saved[partition] = each.kafka_offset
                self.progress.setdefault(partition, each.kafka_offset)


class Member:
    """A process with one member. While it is suspended, what happens to it waits; a dead one does nothing more."""

    def __init__(self, world: GroupWorld, name: str, make: Callable[[Member], GroupClient]) -> None:
        self.world = world
        self.name = name
        self.numbers = itertools.count()
        self.suspended_until_s = 0.0
        self.stalled_until_s = 0.0
        """The owner does nothing until then, while the rest of the process runs."""
        self.stepped_s = world.now_s
        """The owner's next step is due since then."""
        self.is_dead = False
        self.has_left = False
        self.is_leaving = False
        self._broker = 0
        self.owner = Owner(self)
        self.client = make(self)
        self._turn()

    def later(self, within_s: float, call: Callable[[], None]) -> None:
        self.deliver(self.world.now_s + self.world.rng.uniform(0.0, within_s), call)

    def deliver(self, time_s: float, call: Callable[[], None]) -> None:
        def run() -> None:
            if self.suspended_until_s > self.world.now_s:
                self.world.at(self.suspended_until_s, run)
            elif not self.is_dead:
                call()

        self.world.at(time_s, run)

    def _turn(self) -> None:
        if self.stalled_until_s <= self.world.now_s:
            self.owner.step()
            self.stepped_s = self.world.now_s
        if not self.has_left:
            self.later(1.0, self._turn)

    def find_coordinator(self) -> None:
        self._broker = self.world.group.broker

    def send(
        self, request: GroupRequest, answered: Callable[[GroupResponse], None], failed: Callable[[bool], None]
    ) -> None:
        """Sends over the network: the request may arrive late or never, and so may its response."""
        world, rng, faults = self.world, self.world.rng, self.world.faults
        if rng.random() < faults.not_sent:
            self.later(0.5, lambda: failed(False))
            return
        timeout_s = _WAIT_TIMEOUT_S if isinstance(request, _WAITING) else _COMMIT_TIMEOUT_S
        timeout_s = _BEAT_TIMEOUT_S if isinstance(request, HeartbeatRequest) else timeout_s
        is_over = False

        def end(call: Callable[[], None]) -> None:
            nonlocal is_over
            if not is_over:
                is_over = True
                call()

        def reply(response: GroupResponse) -> None:
            if rng.random() >= faults.lost:
                self.deliver(world.now_s + self._delay_s(), lambda: end(lambda: answered(response)))

        broker = self._broker
        arrives_s = world.now_s + self._delay_s()
        if rng.random() >= faults.lost:
            world.at(arrives_s, lambda: world.group.receive(broker, request, reply))
        breaks_s = rng.uniform(0.0, timeout_s) if rng.random() < faults.lost else timeout_s
        self.deliver(world.now_s + breaks_s, lambda: end(lambda: failed(True)))

    def _delay_s(self) -> float:
        rng = self.world.rng
        return rng.uniform(0.5, 15.0) if rng.random() < self.world.faults.late else rng.uniform(0.001, 0.05)

    def fetch(self, partitions: Iterable[int], found: Callable[[Mapping[int, CommittedOffset]], None]) -> None:
        """Reads the group's offsets from its coordinator, or does nothing."""
        wanted = sorted(partitions)

        def read() -> None:
            if self.world.now_s >= self.world.group.loaded_s and self.world.rng.random() >= self.world.faults.lost:
                offsets = {each: self.world.committed.get(each, CommittedOffset(0, "")) for each in wanted}
                self.later(0.2, lambda: found(offsets))

        self.world.after(self.world.rng.uniform(0.0, 0.2), read)


class OurClient:
    """The machine of this product, driven as its engine drives it."""

    def __init__(self, member: Member, beats: BeatTimes) -> None:
        self._member = member
        self._world = member.world
        self._numbers = itertools.count(1)
        self.machine = MembershipMachine(GROUP, TOPIC, beats)
        self.yields = False
        self._wakes_s = math.inf
        member.later(0.1, lambda: self._do(self.machine.begin(self._world.partitions, self._world.now_s)))

    def _tick(self, at_s: float) -> None:
        if at_s == self._wakes_s:
            self._wakes_s = math.inf
            self._do(self.machine.tick(self._world.now_s, self._member.stepped_s))

    def _do(self, actions: Iterable[GroupAction]) -> None:
        owner, member = self._member.owner, self._member
        for action in actions:
            if isinstance(action, Send):
                self._send(action)
            elif isinstance(action, FindCoordinator):
                member.find_coordinator()
            elif isinstance(action, Assigned):
                owner.assigned(action.partitions, action.generation)
            elif isinstance(action, Revoke):
                owner.revoke(action.partitions, action.generation)
            elif isinstance(action, LostPartitions):
                owner.lost(action.partitions)
            elif isinstance(action, Committed):
                owner.committed(action.error_code)
            elif isinstance(action, LeftGroup):
                member.has_left = True
        wakes_s = max(self.machine.due_s, self._world.now_s) + 0.05
        if self.machine.due_s < math.inf and wakes_s < self._wakes_s:
            self._wakes_s = wakes_s
            member.deliver(wakes_s, lambda: self._tick(wakes_s))

    def _send(self, action: Send) -> None:
        ticket, sent_s = action.ticket, self._world.now_s
        if isinstance(action.request, _WAITING) and self._world.rng.random() < self._world.faults.late:
            self._member.later(3.0, lambda: self._do(self.machine.postponed(ticket, self._world.now_s)))
        self._member.send(
            action.request,
            lambda response: self._do(self.machine.answered(ticket, response, sent_s, self._world.now_s)),
            lambda sent: self._do(self.machine.failed(ticket, sent=sent, now_s=self._world.now_s)),
        )

    def commit(self, commits: Mapping[int, CommittedOffset], prepared: MemberGeneration) -> None:
        self._do(self.machine.commit(next(self._numbers), [commits], prepared, self._world.now_s))

    def revoked(self, partitions: Iterable[int], generation: MemberGeneration) -> None:
        self._do(self.machine.revoked(partitions, generation, self._world.now_s))

    def yield_partitions(self) -> None:
        self.yields = True
        self._do(self.machine.yield_partitions(self._world.now_s))

    def leave(self) -> None:
        self._member.is_leaving = True
        self._do(self.machine.leave(self._world.now_s))


class OldClient:
    """A member as librdkafka's, with an assignor that breaks ties by chance.

    `version_1` leaves the generation out of its subscription, as librdkafka did before 2.2. A commit without a response
    ends the membership, as in `GroupConsumer`.
    """

    def __init__(self, member: Member, *, version_1: bool) -> None:
        self._member = member
        self._world = member.world
        self._version_1 = version_1
        self._member_id = ""
        self._joined = -1
        self._generation = NO_MEMBER
        self._owned: set[int] = set()
        self._revoking: set[int] = set()
        self._state = "out"
        self._turns = 0
        """Numbers the requests of joins: the answer to a former one does nothing."""
        self._lives = 0
        self._leaving = False
        self._heard_s = self._world.now_s
        self._commits = 0
        member.later(0.1, self._join)
        self._beat()

    def _join(self) -> None:
        self._state = "joining"
        self._turns += 1
        turn = self._turns
        metadata = encode_subscription(TOPIC, self._owned, self._generation.number)
        if self._version_1:
            metadata = b"\0\1" + metadata[2:-6]  # neither generation nor rack
        request = JoinGroupRequest(GROUP, 6000, 60_000, self._member_id, ((COOPERATIVE_STICKY, metadata),))
        self._send(request, lambda response: self._on_join(response, turn), lambda: self._again(turn))

    def _send(
        self, request: GroupRequest, answered: Callable[[GroupResponse], None], failed: Callable[[], None]
    ) -> None:
        self._member.send(request, answered, lambda _: failed())

    def _again(self, turn: int) -> None:
        self._member.find_coordinator()
        self._member.later(0.5, lambda: self._join() if turn == self._turns and not self._leaving else None)

    def _on_join(self, response: GroupResponse, turn: int) -> None:
        if turn != self._turns or not isinstance(response, JoinGroupResponse) or self._leaving:
            return
        code = response.error_code
        if code == ErrorCode.MEMBER_ID_REQUIRED:
            self._member_id = response.member_id
            self._join()
        elif code in _FENCED:
            self._lose()
        elif code:
            self._again(turn)
        else:
            self._joined = response.generation_id
            assignments: tuple[tuple[str, bytes], ...] = ()
            if response.leader == self._member_id:
                claims = read_claims(TOPIC, ((each.member_id, each.metadata) for each in response.members))
                given = assign_by_chance(self._world.rng, self._world.partitions, claims)
                assignments = tuple((name, encode_assignment(TOPIC, each)) for name, each in given.items())
            self._sync(assignments)

    def _sync(self, assignments: tuple[tuple[str, bytes], ...]) -> None:
        self._state = "syncing"
        self._turns += 1
        turn = self._turns
        request = SyncGroupRequest(GROUP, self._joined, self._member_id, assignments)
        self._send(request, lambda response: self._on_sync(response, turn), lambda: self._again(turn))

    def _on_sync(self, response: GroupResponse, turn: int) -> None:
        if turn != self._turns or not isinstance(response, SyncGroupResponse) or self._leaving:
            return
        if response.error_code in _FENCED:
            self._lose()
        elif response.error_code:
            self._again(turn)
        else:
            self._state = "stable"
            self._generation = MemberGeneration(self._member_id, self._joined)
            assigned = {partition for _, partition in decode_assignment(response.assignment)}
            self._revoking = self._owned - assigned
            self._member.owner.assigned(assigned - self._owned, self._generation)
            self._owned |= assigned
            if self._revoking:
                self._member.owner.revoke(self._revoking, self._generation)

    def revoked(self, partitions: Iterable[int], generation: MemberGeneration) -> None:
        if generation != self._generation and not self._leaving:
            return
        self._owned.difference_update(partitions)
        self._revoking.difference_update(partitions)
        if self._revoking:
            return
        if self._leaving:
            self._leave()
        elif self._state == "stable":
            self._join()

    def _lose(self) -> None:
        self._lives += 1
        self._member_id, self._generation, self._joined = "", NO_MEMBER, -1
        self._member.owner.lost(sorted(self._owned))
        self._owned, self._revoking = set(), set()
        if self._leaving:
            self._member.has_left = True
        else:
            self._join()

    def _beat(self) -> None:
        if not self._member.has_left:
            self._member.deliver(self._world.now_s + 0.5, self._beat)
        if self._generation == NO_MEMBER:
            self._heard_s = self._world.now_s
        elif self._world.now_s - self._heard_s > 6.0:
            self._lose()
        elif self._state == "stable":
            sent, generation = self._world.now_s, self._generation
            request = HeartbeatRequest(GROUP, generation.number, generation.member_id)
            self._send(request, lambda r: self._on_beat(r, generation, sent), self._member.find_coordinator)

    def _on_beat(self, response: GroupResponse, generation: MemberGeneration, sent: float) -> None:
        if generation != self._generation or not isinstance(response, HeartbeatResponse) or self._state != "stable":
            return
        code = response.error_code
        if code in (ErrorCode.NONE, ErrorCode.REBALANCE_IN_PROGRESS):
            self._heard_s = max(self._heard_s, sent)
            if code and not self._revoking and not self._leaving:
                self._join()
        elif code in _FENCED:
            self._lose()
        else:
            self._member.find_coordinator()

    def commit(self, commits: Mapping[int, CommittedOffset], prepared: MemberGeneration) -> None:
        """librdkafka takes its current generation by itself."""
        if not commits.keys() <= self._owned or prepared.member_id != self._generation.member_id:
            self._member.owner.committed(ErrorCode.ILLEGAL_GENERATION)
            return
        self._heard_s, life = max(self._heard_s, self._world.now_s - 5.0), self._lives
        member_id, number = self._generation
        offsets = tuple(OffsetToCommit(p, each.kafka_offset, each.metadata) for p, each in commits.items())
        request = OffsetCommitRequest(GROUP, number, member_id, ((TOPIC, offsets),))

        def answered(response: GroupResponse) -> None:
            assert isinstance(response, OffsetCommitResponse)
            self._member.owner.committed(response.topics[0][1][0].error_code)

        def failed() -> None:
            self._member.owner.committed(None)
            if life == self._lives and not self._member.has_left:
                leave = LeaveGroupRequest(GROUP, (LeavingMember(member_id),))
                self._send(leave, lambda _: None, lambda: None)
                self._lose()

        self._send(request, answered, failed)

    def leave(self) -> None:
        self._member.is_leaving = self._leaving = True
        if self._owned:
            self._revoking = set(self._owned)
            self._member.owner.revoke(self._revoking, self._generation)
        else:
            self._leave()

    def _leave(self) -> None:
        self._member.has_left = True
        if self._member_id:
            request = LeaveGroupRequest(GROUP, (LeavingMember(self._member_id),))
            self._send(request, lambda _: None, lambda: None)


def assign_by_chance(rng: random.Random, count: int, claims: list[MemberClaim]) -> dict[str, list[int]]:
    """Assigns cooperatively and with balance, in another way than ours: chance decides which partitions stay."""
    names = [claim.member_id for claim in claims if claim.subscribes]
    rng.shuffle(names)
    owners: dict[int, list[tuple[int, str]]] = {}
    for claim in claims:
        for partition in claim.owned:
            owners.setdefault(partition, []).append((claim.generation, claim.member_id))
    holder = {p: max(each)[1] for p, each in owners.items() if sum(g == max(each)[0] for g, _ in each) == 1}
    kept = {name: [p for p in range(count) if holder.get(p) == name] for name in names}
    names.sort(key=lambda name: -len(kept[name]))
    result: dict[str, list[int]] = {claim.member_id: [] for claim in claims}
    shares = {name: count // len(names) + (place < count % len(names)) for place, name in enumerate(names)}
    for name in names:
        rng.shuffle(kept[name])
        result[name] = kept[name][: shares[name]]
    free = [p for p in range(count) if all(p not in each for each in result.values())]
    rng.shuffle(free)
    for name in names:
        gained = [free.pop() for _ in range(shares[name] - len(result[name]))]
        result[name] += [p for p in gained if all(each == name for _, each in owners.get(p, ()))]
    return result
