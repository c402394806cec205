"""Memberships in consumer groups without a librdkafka consumer for each: one event loop serves them all.

The loop joins, sends heartbeats and commits, and calls the owners back. It runs none of their code beyond these
callbacks, so a busy owner delays no heartbeat. `MembershipMachine` has the rules of one membership.

**Late commits.** librdkafka sends an unanswered commit again, and the first copy may set the group back later (F25,
`ResentCommits`). Here this cannot happen: each commit is sent once. A commit with an unknown outcome ends its
membership: the client leaves, and joins as another member in a later generation. Kafka refuses the late commit by its
member id, and by its generation too.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import math
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from pulsar_on_kafka.base import errors
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.base.forks import OfOneProcess
from pulsar_on_kafka.base.meters import Latencies
from pulsar_on_kafka.kafka.errors import translate_code
from pulsar_on_kafka.kafka.groups.membership import split_commits
from pulsar_on_kafka.kafka.groups.membership_machine import (
    COMMIT_TIMEOUT_S,
    OWNER_TIMEOUT_S,
    REVOKE_TIMEOUT_S,
    SESSION_BEATS,
    Assigned,
    BeatTimes,
    Committed,
    FindCoordinator,
    GroupAction,
    GroupRequest,
    JoinRefused,
    LeftGroup,
    LostPartitions,
    MemberGeneration,
    MembershipMachine,
    Revoke,
    Send,
)
from pulsar_on_kafka.kafka.records import CommittedOffset, commit_metadata, stored_metadata
from pulsar_on_kafka.kafka.rights import Right, on_group, on_topic
from pulsar_on_kafka.kafka.wire.brokers import GROUPS_A_REQUEST, ConnectionLane, KafkaBrokers, in_parts
from pulsar_on_kafka.kafka.wire.client import WireClient
from pulsar_on_kafka.kafka.wire.connection import BrokerConnection
from pulsar_on_kafka.kafka.wire.error_codes import ErrorCode
from pulsar_on_kafka.kafka.wire.fields import MAX_STRING_BYTES
from pulsar_on_kafka.kafka.wire.group_messages import (
    HeartbeatRequest,
    JoinGroupRequest,
    LeaveGroupRequest,
    SyncGroupRequest,
)
from pulsar_on_kafka.kafka.wire.loop_work import LoopCalls, LoopTasks
from pulsar_on_kafka.kafka.wire.offset_messages import OffsetFetchRequest, OffsetFetchResponse

_T = TypeVar("_T")

_log: Final = logging.getLogger(__name__)

WHEEL_S: Final = 0.05
"""The interval of the timer wheel: due heartbeats wait up to that long."""
MIN_BEAT_S: Final = 0.5
_FEW_BEATS_PER_S: Final = 500
"""Not exceeded as long as a membership sends one every 1.5 s, whose reply reports a rebalance of its group."""
_FEW_BEATS_S: Final = 1.5
MAX_BEATS_PER_S: Final = 2000
MIN_SESSION_S: Final = 6.0
TOPICS_EVERY_S: Final = 10.0
"""The time in which the partition count of each topic is read once; longer with more than 5,000 topics."""
_MAX_TOPICS_PER_S: Final = 500
MISSING_TOPIC_S: Final = 30.0
"""A topic that no broker knows for so long is gone: librdkafka's `topic.metadata.propagation.max.ms`."""
LATE_TURN_S: Final = 1.0
"""A turn of the wheel that is later than this is logged."""
_CALLS_A_TURN: Final = 100
_TOPICS_TIMEOUT_S: Final = 10.0
_FIRST_RETRY_S: Final = 0.01
_RETRY_S: Final = 1.0
_LEAVE_TIMEOUT_S: Final = 5.0
_WAITING: Final = (JoinGroupRequest, SyncGroupRequest)


@dataclass(frozen=True, slots=True)
class MembershipCallbacks:
    """Calls of a membership to its owner, in the loop's thread. Each returns at once: it queues a command.

    `revoked`: the owner saves in this generation and calls `confirm_revoked` within 60 s. `lost`: it must not save.
    `refused`: Kafka refuses the membership, which tries again; with NoSuchTopic also one that has partitions, or none.
    """

    assigned: Callable[[tuple[int, ...], MemberGeneration], object]
    revoked: Callable[[tuple[int, ...], MemberGeneration], object]
    lost: Callable[[tuple[int, ...]], object]
    refused: Callable[[errors.LayerError], object]


class ClientMembership(OfOneProcess):
    """A member of one group that reads one topic, or `only` one partition of it. Thread-safe.

    Memory: the machine's, the commits that wait for the one under way, and reads of offsets.
    """

    def __init__(
        self,
        client: GroupClient,
        group_id: str,
        topic: str,
        client_id: str,
        callbacks: MembershipCallbacks,
        only: int | None,
    ) -> None:
        self.group_id = group_id
        self.topic = topic
        self.client_id = client_id
        self.callbacks = callbacks
        self.machine = MembershipMachine(group_id, topic, client.beats, only)
        """The loop's own."""
        self.slot: int | None = None
        """The wheel's turn that looks at this membership."""
        self.commits: dict[int, Future[None]] = {}
        self.left: Future[None] = Future()
        self.step_due_s = math.inf
        """The time since which a step of the owner is due, by the monotonic clock."""
        self._client = client

    @property
    def member_id(self) -> str:
        """Kafka's id of this member; '' without a generation."""
        return self.machine.generation.member_id

    @property
    def generation(self) -> MemberGeneration:
        """The generation now; a save is prepared in the one that the last callback named."""
        return self.machine.generation

    def commit(self, commits: Mapping[int, CommittedOffset], prepared: MemberGeneration) -> Future[None]:
        """Commits offsets that were prepared in this generation. A group has one commit under way at a time.

        The future fails with one of these:
            Fenced: nothing was committed: this is no member of that generation.
            Refused: nothing was committed: another commit is under way.
            CommitOutcomeUnknown: read the committed offsets back. Without a reply the partitions are lost as well.
            StoreError: nothing was committed.

        Raises:
            RecordTooLarge: metadata of more than 32,767 bytes, the limit of Kafka's protocol.
        """
        for partition, offset in commits.items():
            if len(stored_metadata(offset.metadata).encode()) > MAX_STRING_BYTES:
                what = f"commit of group {self.group_id}, partition {partition}"
                raise errors.RecordTooLarge(f"{what}: metadata of more than {MAX_STRING_BYTES} bytes")
        return self._client.commit(self, split_commits(commits), prepared)

    def committed(self, partitions: Sequence[int], timeout_s: float) -> Future[dict[int, CommittedOffset]]:
        """The group's commits; partitions without a commit are left out. The future fails with StoreError or Closed."""
        return self._client.committed(self, tuple(partitions), timeout_s)

    def confirm_revoked(self, partitions: Sequence[int], generation: MemberGeneration) -> None:
        """Gives up partitions of a `revoked` call with its generation: the group can assign them to another member."""
        self._client.run(lambda now_s: self._client.do(self, self.machine.revoked(partitions, generation, now_s)))

    def step_due(self) -> None:
        """The owner has something to do from now on, if it had not. Each callback implies it. Costs no request.

        Without `step_ended` within 300 s the membership leaves: the owner gets `lost`, and other members get its
        partitions. It joins again after `step_ended`.
        """
        if self.step_due_s == math.inf:
            self.step_due_s = time.monotonic()

    def step_ended(self, *, is_due: bool) -> None:
        """The owner has run, and the next step `is_due` already or not. Costs no request."""
        self.step_due_s = time.monotonic() if is_due else math.inf

    def yield_partitions(self) -> None:
        """See `MembershipMachine.yield_partitions`."""
        self._client.run(lambda now_s: self._client.do(self, self.machine.yield_partitions(now_s)))

    def leave(self) -> Future[None]:
        """Leaves the group, after `revoked` for assigned partitions. The future is done when Kafka has replied.

        Many groups are left together: begin to leave all of them, then wait.
        """
        self._client.run(lambda now_s: self._client.do(self, self.machine.leave(now_s)))
        return self.left


class _WaitingSend:
    """A JoinGroup or SyncGroup that queues for a connection."""

    __slots__ = ("_action", "_client", "_membership", "names_member")

    def __init__(
        self,
        client: GroupClient,
        membership: ClientMembership,
        action: Send,
        request: JoinGroupRequest | SyncGroupRequest,
    ) -> None:
        self._client = client
        self._membership = membership
        self._action = action
        self.names_member = bool(request.member_id)

    def send(self, connection: BrokerConnection) -> asyncio.Future[Any] | None:
        is_due = self._membership.machine.is_pending(self._action.ticket)
        return self._client.send_on(connection, self._membership, self._action) if is_due else None

    def postponed(self) -> None:
        self._client.postponed(self._membership, self._action)

    def not_sent(self, failure: errors.LayerError) -> None:
        self._client.not_sent(self._membership, self._action, failure)


class GroupClient(OfOneProcess):
    """All memberships of a process in one cluster, under one login. Thread-safe.

    **Heartbeats.** A membership sends one every 0.5 s with up to 250 memberships, every 1.5 s with 750 to 3,000, and
    less often with more: the loop sends up to 2,000 a second. The session is four intervals, and 6 s at least.
    """

    def __init__(self, wire: WireClient) -> None:
        """Begins the loop's thread. Raises as `WireClient.started`."""
        self._wire = wire
        self.lag = Latencies()
        """The delay of the wheel's turns, in seconds: of all heartbeats that were due."""
        self.beats = BeatTimes(MIN_BEAT_S, MIN_SESSION_S)
        """The times of all memberships, by their number."""
        self._memberships: set[ClientMembership] = set()
        self._wheel: defaultdict[int, list[ClientMembership]] = defaultdict(list)
        self._turn = 0
        self._timer: asyncio.TimerHandle | None = None
        self._is_deferred = False
        """The last turn was late, and left its work to the next one."""
        self._numbers = itertools.count(1)
        self._by_topic: defaultdict[str, set[ClientMembership]] = defaultdict(set)
        self._uncounted: set[str] = set()
        """Topics whose partition count is not known."""
        self._counted: dict[str, int] = {}
        """The partition count of each other topic in use."""
        self._missing_since_s: dict[str, float] = {}
        """Topics that no broker knows, and since when."""
        self._topic_round: list[str] = []
        self._next_topics_s = 0.0
        self._is_asking_topics = False
        self._tasks = LoopTasks()
        self._loop, self._brokers = wire.started()
        self._calls = LoopCalls(self._loop, self._make_calls, "the memberships")

    # Any thread ---------------------------------------------------------------------------------------------------

    @property
    def count(self) -> int:
        """The number of memberships."""
        return len(self._memberships)

    def join(
        self, group_id: str, topic: str, callbacks: MembershipCallbacks, *, client_id: str, only: int | None = None
    ) -> ClientMembership:
        """A membership that begins to join. `client_id` names the process (`base.processes`) to brokers."""
        membership = ClientMembership(self, group_id, topic, client_id, callbacks, only)
        self.run(lambda _: self._enter(membership))
        return membership

    def commit(
        self, membership: ClientMembership, parts: Sequence[Mapping[int, CommittedOffset]], prepared: MemberGeneration
    ) -> Future[None]:
        """See `ClientMembership.commit`."""
        outcome: Future[None] = Future()
        number = next(self._numbers)

        def begin(now_s: float) -> None:
            if membership.commits:
                outcome.set_exception(errors.Refused(f"group {membership.group_id} has a commit under way"))
                return
            membership.commits[number] = outcome
            self.do(membership, membership.machine.commit(number, parts, prepared, now_s))

        if parts:
            self.run(begin)
        else:
            outcome.set_result(None)
        return outcome

    def committed(
        self, membership: ClientMembership, partitions: tuple[int, ...], timeout_s: float
    ) -> Future[dict[int, CommittedOffset]]:
        """See `ClientMembership.committed`."""
        outcome: Future[dict[int, CommittedOffset]] = Future()

        def begin(_: float) -> None:
            if outcome.set_running_or_notify_cancel():
                reading = self._tasks.start(self._read(membership, partitions, timeout_s))
                reading.add_done_callback(lambda done: _settle(outcome, done))

        self.run(begin)
        return outcome

    def run(self, call: Callable[[float], None]) -> None:
        """Runs a call with the time in the loop. Raises Closed."""
        self._calls.run(lambda: call(self._loop.time()))

    def _make_calls(self) -> None:
        """Makes some calls; the others do not hold up heartbeats."""
        self._calls.make(_CALLS_A_TURN)
        if self._calls:
            self._calls.turn_soon()

    def close(self, deadline: Deadline) -> None:
        """Ends all memberships without leaving their groups; owners leave before. A second call does nothing."""
        if not self._calls.is_closed:
            self._calls.is_closed = True
            self._wire.call(self._end, deadline, "the end of the memberships")

    def _count(self) -> None:
        """Sets the times of heartbeats by the number of memberships."""
        few_s = min(len(self._memberships) / _FEW_BEATS_PER_S, _FEW_BEATS_S)
        self.beats.interval_s = max(MIN_BEAT_S, few_s, len(self._memberships) / MAX_BEATS_PER_S)
        self.beats.session_s = max(MIN_SESSION_S, SESSION_BEATS * self.beats.interval_s)

    # The loop: the wheel ------------------------------------------------------------------------------------------

    def _enter(self, membership: ClientMembership) -> None:
        self._memberships.add(membership)
        self._count()
        self._by_topic[membership.topic].add(membership)
        if self._timer is None:
            self._turn = math.floor(self._loop.time() / WHEEL_S)
            self._timer = self._loop.call_at((self._turn + 1) * WHEEL_S, self._turn_wheel)
        count = self._counted.get(membership.topic)
        if count is not None:
            self.do(membership, membership.machine.begin(count, self._loop.time()))
        elif membership.topic not in self._uncounted:
            self._uncounted.add(membership.topic)
            self._next_topics_s = 0.0

    def _turn_wheel(self) -> None:
        now_s = self._loop.time()
        late_s = max(0.0, now_s - (self._turn + 1) * WHEEL_S)
        self.lag.add(late_s)
        if late_s > WHEEL_S and not self._is_deferred:  # responses that came meanwhile are read first
            self._is_deferred = True
            self._timer = self._loop.call_later(WHEEL_S, self._turn_wheel)
            return
        self._is_deferred = False
        if late_s > LATE_TURN_S:
            _log.warning("heartbeats of %d memberships are late by %.1f s", len(self._memberships), late_s)
        last = math.floor(now_s / WHEEL_S)
        for turn in sorted(turn for turn in self._wheel if turn <= last):
            for membership in self._wheel.pop(turn):
                if membership.slot == turn:
                    membership.slot = None
                    self._tick(membership, now_s)
        self._turn = last
        if self._next_topics_s <= now_s and not self._is_asking_topics:
            self._is_asking_topics = True
            self._tasks.start(self._ask_topics())
        again = self._memberships and not self._calls.is_closed
        self._timer = self._loop.call_at((last + 1) * WHEEL_S, self._turn_wheel) if again else None

    def _tick(self, membership: ClientMembership, now_s: float) -> None:
        machine = membership.machine
        was_stalled = machine.is_stalled
        self.do(membership, machine.tick(now_s, membership.step_due_s))
        if machine.is_stalled and not was_stalled:
            _log.warning(
                "group=%s this member leaves: its owner has not run for %g s", membership.group_id, OWNER_TIMEOUT_S
            )

    def do(self, membership: ClientMembership, actions: Iterable[GroupAction]) -> None:
        """Does what a machine returned, and has the wheel look at it when something is due."""
        for action in actions:
            if isinstance(action, Send):
                self._send(membership, action)
            elif isinstance(action, FindCoordinator):
                self._brokers.forget_coordinator(membership.group_id)
            elif isinstance(action, Committed):
                self._end_commit(membership, action)
            elif isinstance(action, LeftGroup):
                self._leave(membership)
            else:
                self._call(membership, action)
        due_s = membership.machine.due_s
        if due_s < math.inf:
            slot = max(self._turn + 1, math.ceil(due_s / WHEEL_S))
            if membership.slot is None or slot < membership.slot:
                membership.slot = slot
                self._wheel[slot].append(membership)

    def _call(self, membership: ClientMembership, action: Assigned | Revoke | LostPartitions | JoinRefused) -> None:
        callbacks = membership.callbacks
        membership.step_due()
        try:
            if isinstance(action, Assigned):
                callbacks.assigned(action.partitions, action.generation)
            elif isinstance(action, Revoke):
                callbacks.revoked(action.partitions, action.generation)
            elif isinstance(action, LostPartitions):
                callbacks.lost(action.partitions)
            else:
                callbacks.refused(
                    translate_code(action.error_code, f"joining group {membership.group_id}", *_rights(membership))
                )
        except Exception:  # an owner's fault, which must not end the other memberships
            _log.exception("group=%s the owner failed to take %s", membership.group_id, type(action).__name__)

    def _end_commit(self, membership: ClientMembership, action: Committed) -> None:
        outcome = membership.commits.pop(action.number)
        what = f"commit of group {membership.group_id}"
        if action.error_code == ErrorCode.NONE:
            outcome.set_result(None)
        elif action.error_code is None:
            outcome.set_exception(
                errors.CommitOutcomeUnknown(f"{what}: no reply, or one that does not name the outcome")
            )
        elif action.error_code == ErrorCode.GROUP_ID_NOT_FOUND:
            outcome.set_exception(errors.StoreError(f"{what}: GROUP_ID_NOT_FOUND"))
        else:
            outcome.set_exception(translate_code(action.error_code, what, *_rights(membership)))

    def _leave(self, membership: ClientMembership) -> None:
        self._memberships.discard(membership)
        self._count()
        if not self._memberships:  # the wheel stands still from now on
            self._wheel.clear()
        self._brokers.forget_coordinator(membership.group_id)
        members = self._by_topic[membership.topic]
        members.discard(membership)
        if not members:
            del self._by_topic[membership.topic]
            self._counted.pop(membership.topic, None)
            self._uncounted.discard(membership.topic)
            self._missing_since_s.pop(membership.topic, None)
        if not membership.left.done():
            membership.left.set_result(None)

    # The loop: requests -------------------------------------------------------------------------------------------

    def _send(self, membership: ClientMembership, action: Send) -> None:
        """Takes no task where the connection is open: there are thousands of requests a second."""
        group_id, request = membership.group_id, action.request
        node_id = self._brokers.coordinator(group_id)
        if node_id is None:
            self._brokers.find_coordinator(group_id).add_done_callback(
                lambda found: self._send_found(membership, action, found)
            )
            return
        if isinstance(request, _WAITING):
            try:
                self._brokers.wait_connections(node_id).send(_WaitingSend(self, membership, action, request))
            except errors.ConnectFailed as failure:
                self.not_sent(membership, action, failure)
            return
        lane = ConnectionLane.HEARTBEATS if isinstance(request, HeartbeatRequest) else ConnectionLane.COMMITS
        connection = self._brokers.open_connection(node_id, lane, group_id)
        if connection is None:
            self._tasks.start(self._send_when_open(node_id, lane, membership, action))
        else:
            self.send_on(connection, membership, action)

    def _send_found(self, membership: ClientMembership, action: Send, found: asyncio.Future[int]) -> None:
        failure = errors.ConnectFailed("the client is closed") if found.cancelled() else found.exception()
        if isinstance(failure, errors.LayerError):
            self.not_sent(membership, action, failure)
        elif not self._calls.is_closed:
            self._send(membership, action)

    def _timeout_s(self, request: GroupRequest) -> float:
        if isinstance(request, HeartbeatRequest):
            # A slow broker answers those that wait; to send them again over another connection would not help it.
            return self.beats.session_s
        if isinstance(request, LeaveGroupRequest):
            return _LEAVE_TIMEOUT_S
        return REVOKE_TIMEOUT_S + COMMIT_TIMEOUT_S if isinstance(request, _WAITING) else COMMIT_TIMEOUT_S

    async def _send_when_open(
        self, node_id: int, lane: ConnectionLane, membership: ClientMembership, action: Send
    ) -> None:
        try:
            connection = await self._brokers.connection(node_id, lane, membership.group_id)
        except errors.LayerError as failure:
            self.not_sent(membership, action, failure)
        else:
            self.send_on(connection, membership, action)

    def send_on(
        self, connection: BrokerConnection, membership: ClientMembership, action: Send
    ) -> asyncio.Future[Any] | None:
        """Sends the request on this connection. Its response, or None after a refusal, goes to the machine."""
        request = action.request
        try:
            response: asyncio.Future[Any] = connection.send(request, membership.client_id, self._timeout_s(request))
        except errors.StoreError as failure:
            self.not_sent(membership, action, failure)
            return None
        sent_s = self._loop.time()
        response.add_done_callback(lambda done: self._answered(membership, action, sent_s, done))
        return response

    def _answered(self, membership: ClientMembership, action: Send, sent_s: float, done: asyncio.Future[Any]) -> None:
        if done.cancelled() or self._calls.is_closed:
            return
        failure = done.exception()
        if failure is None:
            actions = membership.machine.answered(action.ticket, done.result(), sent_s, self._loop.time())
            if actions or not isinstance(action.request, HeartbeatRequest):
                self.do(membership, actions)
        else:
            _log.debug("group=%s %s: %s", membership.group_id, type(action.request).__name__, failure)
            self._fail(membership, action, sent=True)

    def postponed(self, membership: ClientMembership, action: Send) -> None:
        """A JoinGroup or SyncGroup gave way to others."""
        self.do(membership, membership.machine.postponed(action.ticket, self._loop.time()))

    def not_sent(self, membership: ClientMembership, action: Send, failure: errors.LayerError) -> None:
        """The machine learns it in the loop's next turn: it may be within a call."""
        _log.debug("group=%s %s was not sent: %s", membership.group_id, type(action.request).__name__, failure)
        self._loop.call_soon(lambda: self._fail(membership, action, sent=False))
        if isinstance(failure, errors.NotAuthorized) and isinstance(action.request, JoinGroupRequest):
            self._loop.call_soon(lambda: self._call(membership, JoinRefused(ErrorCode.GROUP_AUTHORIZATION_FAILED)))

    def _fail(self, membership: ClientMembership, action: Send, *, sent: bool) -> None:
        if not self._calls.is_closed:
            self.do(membership, membership.machine.failed(action.ticket, sent=sent, now_s=self._loop.time()))

    async def _read(
        self, membership: ClientMembership, partitions: tuple[int, ...], timeout_s: float
    ) -> dict[int, CommittedOffset]:
        """Settled offsets, as librdkafka reads them for a member with `isolation.level` read_committed (KIP-447)."""
        what = f"reading the offsets of group {membership.group_id}"
        request = OffsetFetchRequest(((membership.group_id, ((membership.topic, partitions),)),))
        until_s, pause_s = self._loop.time() + timeout_s, _FIRST_RETRY_S
        while True:
            try:
                return await asyncio.wait_for(self._read_once(membership, request, what), until_s - self._loop.time())
            except (errors.NotAuthorized, errors.NotAuthenticated):
                raise
            except asyncio.TimeoutError:
                raise errors.DeadlineExceeded(f"{what}: no response in time") from None
            except errors.StoreError as failure:
                if self._loop.time() + pause_s >= until_s:
                    raise
                self._brokers.forget_coordinator(membership.group_id)
                _log.debug("%s, again in %.2f s: %s", what, pause_s, failure)
            await asyncio.sleep(pause_s)
            pause_s = min(_RETRY_S, 2 * pause_s)

    async def _read_once(
        self, membership: ClientMembership, request: OffsetFetchRequest, what: str
    ) -> dict[int, CommittedOffset]:
        """The time-out is that of commits: an overdue response closes the connection, which other groups share."""
        response = await self._brokers.send_to_coordinator(
            membership.group_id, ConnectionLane.COMMITS, request, membership.client_id, COMMIT_TIMEOUT_S
        )
        return _offsets(response, membership, what)

    # The loop: the cluster ----------------------------------------------------------------------------------------

    async def _ask_topics(self) -> None:
        """Reads partition counts: of new topics at once, and of each known one every ten seconds."""
        try:
            await self._count_some()
            pause_s = TOPICS_EVERY_S / max(1, len(self._counted) // GROUPS_A_REQUEST)
            self._next_topics_s = self._loop.time() + max(pause_s, GROUPS_A_REQUEST / _MAX_TOPICS_PER_S)
        except errors.LayerError as failure:
            _log.info("the partition counts of topics, again in %g s: %s", _RETRY_S, failure)
            self._next_topics_s = self._loop.time() + _RETRY_S
        finally:
            self._is_asking_topics = False
        if self._uncounted:
            self._next_topics_s = min(self._next_topics_s, self._loop.time() + _RETRY_S)

    async def _count_some(self) -> None:
        new = sorted(self._uncounted)
        if not new and not self._topic_round:
            self._topic_round = sorted(self._counted)
        known, self._topic_round = self._topic_round[:GROUPS_A_REQUEST], self._topic_round[GROUPS_A_REQUEST:]
        for names in in_parts(new) if new else [known]:
            if not names:
                continue
            topics = await self._brokers.refresh_topics(names, _TOPICS_TIMEOUT_S)
            counts = {name: len(topic.partitions) for name, topic in topics.items() if not topic.error_code}
            refused = {name: topic.error_code for name, topic in topics.items() if topic.error_code}
            self._take_counts(counts, refused)

    def _take_counts(self, counts: Mapping[str, int], refused: Mapping[str, int]) -> None:
        now_s = self._loop.time()
        for topic, count in counts.items():
            members = [*self._by_topic.get(topic, ())]
            if not members:
                continue  # they left meanwhile
            is_new = topic in self._uncounted
            self._uncounted.discard(topic)
            self._missing_since_s.pop(topic, None)
            self._counted[topic] = count
            for membership in members:
                machine = membership.machine
                actions = machine.begin(count, now_s) if is_new else machine.partitions_counted(count, now_s)
                self.do(membership, actions)
        for topic, code in refused.items():
            if code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                is_reported = now_s - self._missing_since_s.setdefault(topic, now_s) >= MISSING_TOPIC_S
            else:
                is_reported = topic in self._uncounted
            for membership in [*self._by_topic.get(topic, ())] if is_reported else []:
                self._call(membership, JoinRefused(code))

    # The loop: the end ------------------------------------------------------------------------------------------------

    async def _end(self, _: KafkaBrokers) -> None:
        while self._calls:
            self._calls.make()
        self._tasks.cancel()
        if self._timer is not None:
            self._timer.cancel()
        for membership in [*self._memberships]:
            for outcome in membership.commits.values():
                outcome.set_exception(errors.CommitOutcomeUnknown(f"commit of group {membership.group_id}: closed"))
            membership.commits.clear()
            self._leave(membership)
        self._wheel.clear()


def _settle(outcome: Future[_T], done: asyncio.Task[_T]) -> None:
    if done.cancelled():
        outcome.set_exception(errors.Closed("the memberships of this process are closed"))
    elif (failure := done.exception()) is not None:
        outcome.set_exception(failure)
    else:
        outcome.set_result(done.result())


def _rights(membership: ClientMembership) -> tuple[Right, Right]:
    return on_topic("Read", membership.topic), on_group("Read", membership.group_id)


def _offsets(response: OffsetFetchResponse, membership: ClientMembership, what: str) -> dict[int, CommittedOffset]:
    """Raises StoreError."""
    found: dict[int, CommittedOffset] = {}
    for group in response.groups:
        if group.error_code:
            raise translate_code(group.error_code, what, *_rights(membership))
        for _, offsets in group.topics:
            for each in offsets:
                if each.error_code:
                    raise translate_code(
                        each.error_code, f"{what}, partition {each.partition_index}", *_rights(membership)
                    )
                if each.committed_offset >= 0:
                    found[each.partition_index] = CommittedOffset(each.committed_offset, commit_metadata(each.metadata))
    return found
