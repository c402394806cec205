"""Reads many partitions with few connections: one event loop serves all watches of a process.

`FetchSessions` has the rules. This module sends its requests, opens connections, and calls the readers back.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from typing import Final

from pulsar_on_kafka.base import errors
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.base.forks import OfOneProcess
from pulsar_on_kafka.kafka.errors import translate_code
from pulsar_on_kafka.kafka.reading.events import KafkaPartition
from pulsar_on_kafka.kafka.reading.fetch_session import FetchSession
from pulsar_on_kafka.kafka.reading.fetch_sessions import BUDGET_BYTES, Fetched, FetchEvent, FetchSessions
from pulsar_on_kafka.kafka.rights import on_topic
from pulsar_on_kafka.kafka.wire.brokers import ConnectionLane, KafkaBrokers
from pulsar_on_kafka.kafka.wire.client import WireClient
from pulsar_on_kafka.kafka.wire.connection import BrokerConnection
from pulsar_on_kafka.kafka.wire.fetch_messages import FetchRequest, FetchResponse
from pulsar_on_kafka.kafka.wire.loop_work import LoopCalls, LoopTasks
from pulsar_on_kafka.kafka.wire.offset_messages import (
    EARLIEST_TIMESTAMP,
    LATEST_TIMESTAMP,
    READ_UNCOMMITTED,
    ListOffsetsRequest,
    OffsetQuery,
)

_log: Final = logging.getLogger(__name__)

FETCH_TIMEOUT_S: Final = 30.0
"""The time for one response. A broker waits up to 5 s for records."""
_QUERY_TIMEOUT_S: Final = 10.0
_MAX_LATE_CALLS: Final = 1000
_MIN_PAUSE_S: Final = 0.01
_RETRY_MIN_S: Final = 0.02
_RETRY_MAX_S: Final = 0.5
_UNKNOWN_TOPIC_S: Final = 1.0
"""The time for which `watermarks` retries an unknown topic: a broker may learn of a new topic later than others."""
_END_S: Final = 1.0


class WatchedPartition(OfOneProcess):
    """The reading of one partition for one reader. Thread-safe; no method but `watermarks` waits.

    **Bytes.** Each `Fetched` event counts against the window and the budget of the process until `hand_out` gives its
    bytes back. The reader gives back each event that `take` was called with, once, also one of an earlier generation;
    parts are allowed. `forget` gives back the rest. What `take` was not called with, or raised an exception for, the
    client gives back itself.
    """

    def __init__(
        self, client: FetchClient, number: int, where: KafkaPartition, take: Callable[[FetchEvent], None]
    ) -> None:
        self.where = where
        self.number = number
        self.generation = 0
        """The number of seeks. The reader drops events of an earlier generation: they may wait in its queue."""
        self.is_forgotten = False
        self.take: Final = take
        self._client = client

    @property
    def known_end(self) -> int:
        """The high watermark of the last response; -1 before the first."""
        return self._client.known_end(self.number)

    def seek(self, position: int) -> None:
        """Continues at another offset, also after `OutOfRange`, in a new generation. `take` is not called with records
        of an earlier one any more, but a call may be under way. A `Stopped` event is repeated.

        Raises:
            Closed: the client is closed.
        """
        self._client.seek(self, position)

    def set_window(self, window_bytes: int) -> None:
        """Changes the window. 0 pauses: one more response may come. Raises Closed."""
        self._client.set_window(self, window_bytes)

    def hand_out(self, size: int) -> None:
        """Gives back so many bytes of `Fetched.data`."""
        self._client.hand_out(self, size)

    def forget(self) -> None:
        """Ends the reading, and gives back what it holds. A second call does nothing."""
        self._client.forget(self)

    def watermarks(self, timeout_s: float) -> tuple[int, int]:
        """(log start, high watermark) as the leader reports now, for two requests.

        Raises:
            NoSuchTopic: the topic or the partition does not exist.
            NotAuthorized: a right is missing; the message names it.
            StoreError: no leader answers in time, or another error.
            Closed: the client is closed.
        """
        return self._client.watermarks(self.where, timeout_s)


class FetchClient(OfOneProcess):
    """All watched partitions of a process in one cluster, under one login. Thread-safe.

    Calls of other threads are queued, and done together by the loop: they wake it once. Memory: see `FetchSessions`,
    and the calls that the loop has not done yet.
    """

    def __init__(self, wire: WireClient, budget_bytes: int = BUDGET_BYTES) -> None:
        """Begins the loop's thread. `budget_bytes` bounds what is under way, or fetched and not handed out, for all
        watches together. Raises as `WireClient.started`."""
        self._wire = wire
        self._machine = FetchSessions(budget_bytes)
        self._lock = threading.Lock()
        self._numbers = itertools.count(1)
        self._watched: dict[int, WatchedPartition] = {}
        self._connections: dict[FetchSession, BrokerConnection] = {}
        self._unreached: set[int] = set()
        """Brokers whose failure is logged already."""
        self._timer: asyncio.TimerHandle | None = None
        self._tasks = LoopTasks()
        self._loop, self._brokers = wire.started()
        self._calls = LoopCalls(self._loop, self._turn, "the fetch sessions")

    # Figures ------------------------------------------------------------------------------------------------------

    @property
    def held_bytes(self) -> int:
        """The bytes that were fetched and not handed out."""
        return self._machine.held_bytes

    @property
    def is_budget_reached(self) -> bool:
        """Whether readers get less than their windows, or nothing, because of the budget."""
        return self._machine.is_budget_reached

    @property
    def open_connections(self) -> int:
        """The number of connections to brokers for fetching."""
        return sum(connection.is_open for connection in [*self._connections.values()])

    @property
    def session_count(self) -> int:
        """The number of fetch sessions."""
        return self._machine.session_count

    # Any thread ---------------------------------------------------------------------------------------------------

    def watch(
        self,
        where: KafkaPartition,
        position: int,
        window_bytes: int,
        take: Callable[[FetchEvent], None],
        isolation_level: int = READ_UNCOMMITTED,
        topic_id: bytes | None = None,
    ) -> WatchedPartition:
        """Reads a partition from `position` on. Several watches may read the same one. `isolation_level`: Kafka's
        number for records of open and aborted transactions of Kafka's. `topic_id`: that of the topic, of which alone
        records are read; None for that of the topic that has the name now.

        The loop's thread calls `take` with each event, which queues it and returns at once. `window_bytes` bounds the
        bytes that the reader holds; 0 fetches nothing yet. One response may exceed it. Every watch ends by `forget`,
        also after a `Stopped` event.

        Raises:
            Closed: this client is closed.
        """
        watched = WatchedPartition(self, next(self._numbers), where, take)
        self._calls.run(partial(self._enter, watched, position, window_bytes, isolation_level, topic_id))
        return watched

    def seek(self, watched: WatchedPartition, position: int) -> None:
        """See `WatchedPartition.seek`."""
        with self._lock:  # calls are done in the order of their generations
            watched.generation += 1
            self._calls.run(partial(self._seek, watched, watched.generation, position))

    def set_window(self, watched: WatchedPartition, window_bytes: int) -> None:
        """See `WatchedPartition.set_window`."""
        self._calls.run(partial(self._machine.set_window, watched.number, window_bytes))

    def hand_out(self, watched: WatchedPartition, size: int) -> None:
        """See `WatchedPartition.hand_out`."""
        call = partial(self._machine.hand_out, watched.number, size)
        watch = self._machine.watch_of(watched.number)
        awaits_bytes = self._machine.is_budget_reached or (watch is not None and watch.session is None)
        if awaits_bytes or len(self._calls) >= _MAX_LATE_CALLS:
            with suppress(errors.Closed):
                self._calls.run(call)
        else:  # the loop does it when it turns next, for each wake-up costs both threads
            self._calls.leave(call)

    def forget(self, watched: WatchedPartition) -> None:
        """See `WatchedPartition.forget`."""
        watched.is_forgotten = True
        with suppress(errors.Closed):
            self._calls.run(partial(self._forget, watched))

    def known_end(self, number: int) -> int:
        """See `WatchedPartition.known_end`."""
        watch = self._machine.watch_of(number)
        return -1 if watch is None else watch.ends.high_watermark

    def watermarks(self, where: KafkaPartition, timeout_s: float) -> tuple[int, int]:
        """See `WatchedPartition.watermarks`."""
        what = f"requesting the end of {where}"
        until_s = self._loop.time() + timeout_s
        return self._wire.call(lambda _: self._watermarks(where, what, until_s), Deadline.after(timeout_s), what)

    def close(self, deadline: Deadline) -> None:
        """Ends all watches, and their sessions at the brokers. A second call does nothing."""
        if not self._calls.is_closed:
            self._calls.is_closed = True
            self._wire.call(self._end, deadline, "the end of the fetch sessions")

    # The loop -----------------------------------------------------------------------------------------------------

    def _turn(self) -> None:
        self._calls.make()
        if self._calls.is_closed:
            return
        now_s = self._loop.time()
        if topics := self._machine.topics_to_look_up(now_s):
            self._tasks.start(self._look_up(topics))
        for session, request in self._machine.requests(now_s):
            self._send(session, request)
        ended, self._machine.ended = self._machine.ended, []
        for session in ended:
            self._end_session(session)
        due_s = self._machine.due_s(now_s)
        if due_s is not None and (self._timer is None or due_s < self._timer.when()):
            if self._timer is not None:
                self._timer.cancel()
            self._timer = self._loop.call_at(max(due_s, now_s + _MIN_PAUSE_S), self._ring)

    def _ring(self) -> None:
        self._timer = None
        self._turn()

    def _enter(
        self,
        watched: WatchedPartition,
        position: int,
        window_bytes: int,
        isolation_level: int,
        topic_id: bytes | None,
    ) -> None:
        self._watched[watched.number] = watched
        self._machine.watch(watched.number, 0, watched.where, position, window_bytes, isolation_level, topic_id)

    def _seek(self, watched: WatchedPartition, generation: int, position: int) -> None:
        self._deliver(self._machine.seek(watched.number, generation, position))

    def _forget(self, watched: WatchedPartition) -> None:
        self._watched.pop(watched.number, None)
        self._machine.forget(watched.number)

    def _deliver(self, events: Iterable[FetchEvent]) -> None:
        for event in events:
            watched = self._watched.get(event.number)
            if watched is not None and event.generation == watched.generation and not watched.is_forgotten:
                try:
                    watched.take(event)
                    continue
                except Exception:  # a reader's fault, which must not end the others
                    _log.exception("%s: the reader failed to take %s", watched.where, type(event).__name__)
            if isinstance(event, Fetched):
                self._machine.hand_out(event.number, len(event.data))

    # The loop: requests -------------------------------------------------------------------------------------------

    def _send(self, session: FetchSession, request: FetchRequest) -> None:
        """A request takes no task where its connection is open."""
        connection = self._connections.get(session)
        if connection is None or not connection.is_open:
            self._tasks.start(self._send_when_open(session, request))
        else:
            self._send_on(connection, session, request)

    async def _send_when_open(self, session: FetchSession, request: FetchRequest) -> None:
        try:
            connection = await self._brokers.dedicated_connection(session.node_id)
        except Exception as failure:  # of any kind: without this call the session would wait forever
            self._fail(session, failure)
            return
        self._connections[session] = connection
        self._send_on(connection, session, request)

    def _send_on(self, connection: BrokerConnection, session: FetchSession, request: FetchRequest) -> None:
        try:
            response = connection.send(request, self._wire.client_id, FETCH_TIMEOUT_S)
        except errors.StoreError as failure:
            self._fail(session, failure)
        else:
            response.add_done_callback(partial(self._answered, session))

    def _answered(self, session: FetchSession, done: asyncio.Future[FetchResponse]) -> None:
        if done.cancelled() or self._calls.is_closed:
            return
        failure = done.exception()
        if failure is not None:
            self._fail(session, failure)
            return
        self._unreached.discard(session.node_id)
        self._deliver(self._machine.answered(session, done.result(), self._loop.time()))
        self._calls.turn_soon()  # when all responses of this turn are in

    def _fail(self, session: FetchSession, failure: BaseException) -> None:
        if self._calls.is_closed:
            return
        is_first = session.node_id not in self._unreached
        self._unreached.add(session.node_id)
        level = logging.DEBUG
        if is_first:
            level = logging.WARNING if isinstance(failure, errors.NotAuthenticated) else logging.INFO
        _log.log(level, "fetching from broker %d, again in a moment: %s", session.node_id, failure)
        self._close_connection(session)
        self._machine.failed(session, self._loop.time())
        self._calls.turn_soon()  # when all responses of this turn are in

    def _close_connection(self, session: FetchSession) -> None:
        connection = self._connections.pop(session, None)
        if connection is not None:
            connection.close()

    def _end_session(self, session: FetchSession) -> None:
        """Ends a session at its broker, which has room for few, then closes the connection."""
        connection, last = self._connections.get(session), session.last_request()
        if last is None or connection is None or not connection.is_open:
            self._close_connection(session)
            return
        with suppress(errors.StoreError):
            response = connection.send(last, self._wire.client_id, _QUERY_TIMEOUT_S)
            response.add_done_callback(lambda _: self._close_connection(session))

    # The loop: the cluster ----------------------------------------------------------------------------------------

    async def _look_up(self, topics: tuple[str, ...]) -> None:
        try:
            found = await self._brokers.refresh_topics(topics, _QUERY_TIMEOUT_S)
        except errors.LayerError as failure:
            _log.info("the leaders of %d topics, again in a moment: %s", len(topics), failure)
            self._machine.look_up_failed()
        else:
            self._deliver(self._machine.learn(found.values(), self._loop.time()))
        self._calls.turn_soon()  # when all responses of this turn are in

    async def _watermarks(self, where: KafkaPartition, what: str, until_s: float) -> tuple[int, int]:
        """Looks the leader up again after an error, until `until_s`."""
        unknown_until_s = self._loop.time() + _UNKNOWN_TOPIC_S
        pause_s = _RETRY_MIN_S
        while True:
            try:
                return await self._watermarks_once(where, what)
            except (errors.NotAuthorized, errors.NotAuthenticated):
                raise
            except (errors.StoreError, errors.NoSuchTopic) as failure:
                self._brokers.forget_topic(where.topic)
                end_s = unknown_until_s if isinstance(failure, errors.NoSuchTopic) else until_s
                if self._loop.time() + pause_s >= min(end_s, until_s):
                    raise
                _log.debug("%s, again in %.2f s: %s", what, pause_s, failure)
            await asyncio.sleep(pause_s)
            pause_s = min(_RETRY_MAX_S, 2 * pause_s)

    async def _watermarks_once(self, where: KafkaPartition, what: str) -> tuple[int, int]:
        right = on_topic("Read", where.topic)
        leader = self._brokers.leader(*where)
        if leader is None:
            topic = (await self._brokers.refresh_topics((where.topic,), _QUERY_TIMEOUT_S)).get(where.topic)
            if topic is not None and topic.error_code:
                raise translate_code(topic.error_code, what, right)
            if topic is not None and all(each.partition_index != where.partition for each in topic.partitions):
                raise errors.NoSuchTopic(f"{what}: the topic has {len(topic.partitions)} partitions")
            leader = self._brokers.leader(*where)
        if leader is None:
            raise errors.NoLeaderNow(f"{what}: the partition has no leader")
        connection = await self._brokers.connection(leader.leader_id, ConnectionLane.QUERIES)
        responses = [
            connection.send(
                ListOffsetsRequest(((where.topic, (OffsetQuery(where.partition, edge, leader.leader_epoch),)),)),
                self._wire.client_id,
                _QUERY_TIMEOUT_S,
            )
            for edge in (EARLIEST_TIMESTAMP, LATEST_TIMESTAMP)
        ]
        offsets = []
        for response in responses:
            listed = next((each for _, some in (await response).topics for each in some), None)
            if listed is None:
                raise errors.StoreError(f"{what}: the broker's response does not contain it")
            if listed.error_code:
                raise translate_code(listed.error_code, what, right)
            offsets.append(listed.offset)
        low, high = offsets
        return low, high

    # The loop: the end ------------------------------------------------------------------------------------------------

    async def _end(self, brokers: KafkaBrokers) -> None:
        """A broker reads nothing from the connection of a waiting request, so others end the sessions."""
        self._tasks.cancel()
        if self._timer is not None:
            self._timer.cancel()
        ending = []
        for session, connection in [*self._connections.items()]:
            connection.close()
            last = session.last_request()
            others = brokers.open_connection(session.node_id, ConnectionLane.QUERIES)
            if last is not None and others is not None:
                with suppress(errors.StoreError):
                    ending.append(others.send(last, self._wire.client_id, _END_S))
        if ending:
            await asyncio.wait(ending)
        self._connections.clear()
        self._watched.clear()
        self._calls.drop()
