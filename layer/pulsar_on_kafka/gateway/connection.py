"""A connection of a client: its commands in their order, its producers and consumers, and their end with it.

All of it runs in the event loop, which nothing here blocks: what asks Kafka is done aside (`_ask`) and answered
when it is done. Source: Pulsar's ServerCnx, 4.0.7.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial
from importlib import metadata
from typing import Any, Final, TypeVar, cast

from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.base.errors import LayerError
from pulsar_on_kafka.broker.metadata.producers.admission import AccessMode
from pulsar_on_kafka.broker.node.node import Node
from pulsar_on_kafka.client.connection.session import FollowsPolicies, TopicWatch
from pulsar_on_kafka.exceptions import AlreadyClosed, AuthenticationError
from pulsar_on_kafka.gateway.fleet.bundles import bundle_of
from pulsar_on_kafka.gateway.fleet.membership import Sharing
from pulsar_on_kafka.gateway.handlers import lookups, schemas
from pulsar_on_kafka.gateway.handlers.entry_encoder import OutgoingEntries
from pulsar_on_kafka.gateway.handlers.exclusive_queue import WaitingProducer, WaitingProducers
from pulsar_on_kafka.gateway.handlers.handles import Handles, Opening
from pulsar_on_kafka.gateway.handlers.rate_meter import Meter, time_text
from pulsar_on_kafka.gateway.handlers.topic_watchers import TopicWatchers
from pulsar_on_kafka.gateway.handlers.transactions import GatewayTransactions, RoleTransactions, txn_fields, txn_of
from pulsar_on_kafka.gateway.handlers.wire_consumer import MAX_IDS_AT_ONCE, Wire, WireConsumer, open_consumer, parts_of
from pulsar_on_kafka.gateway.handlers.wire_producer import (
    Left,
    OpenedProducer,
    ProducerCallbacks,
    WireProducer,
    access_mode,
    open_producer,
)
from pulsar_on_kafka.gateway.login.access import GatewayAccess, Login
from pulsar_on_kafka.gateway.protocol import keep_alive
from pulsar_on_kafka.gateway.protocol.error_codes import error_code_of
from pulsar_on_kafka.gateway.protocol.fair_pool import FairPool
from pulsar_on_kafka.gateway.protocol.frame_writer import FrameWriter
from pulsar_on_kafka.gateway.protocol.keep_alive import KeepAlive, Verdict
from pulsar_on_kafka.gateway.protocol.loop_slices import LoopSlice, steps
from pulsar_on_kafka.gateway.protocol.request_queue import RequestQueue
from pulsar_on_kafka_mapping.errors import MappingError
from pulsar_on_kafka_mapping.ids.native_message_id import NativeMessageId
from pulsar_on_kafka_mapping.ids.txn_id import TxnId
from pulsar_on_kafka_mapping.names.topic_name import TopicName
from pulsar_on_kafka_mapping.wire.commands import PROTOCOL_VERSION, MalformedCommand, ServerError, Type, command, parsed
from pulsar_on_kafka_mapping.wire.frames import MAX_FRAME_BYTES, Frame, FrameCutter, MalformedFrame, frame
from pulsar_on_kafka_mapping.wire.repeated_sends import plain_send

_log: Final = logging.getLogger(__name__)

T = TypeVar("T")

MAX_MESSAGE_BYTES: Final = 5 * 1024 * 1024
"""Told to clients, which cut larger messages into chunks: Pulsar's default."""
CONNECT_S: Final = 10.0
"""A client has to say CONNECT within this."""
MAX_CONNECT_BYTES: Final = 64 * 1024
"""Of a client that has not said CONNECT yet."""
MAX_SENDS_IN_FLIGHT: Final = 1_000
"""Messages of one connection under way: above it nothing is read from it, until it is half of that. As in Pulsar."""
MAX_WATCHERS: Final = 100
"""Of topics, of one connection."""
MAX_OPEN: Final = 10_000
"""Producers, and consumers, of one connection."""
MAX_UNCONNECTED: Final = 1_000
"""Connections of a gateway that have not said CONNECT: with one more the oldest of them is closed."""
_MAX_CLIENT_VERSION_CHARS: Final = 100
"""Characters of what a client says of itself, which statistics have of each of its producers and consumers."""
INTRODUCED_S: Final = 1.0
"""A client has registered its consumer that long after SUCCESS, even if it sends no FLOW. Pulsar's brokers wait as long
before they say which consumer is the active one (`activeConsumerFailoverDelayTimeMillis`)."""
_OPERATION_S: Final = 30.0
_CLOSE_S: Final = 30.0
_TAKEN_S: Final = 10.0
"""A client has to take the last replies within this time after its connection was closed."""
_BUSY_RETRY_INTERVAL_S: Final = 0.3
_REST_RETRY_INTERVAL_S: Final = 0.02
"""After that what is left of an entry is tried again, then after twice that, and so on."""
_MAX_REST_RETRY_INTERVAL_S: Final = 1.0
_ANY: Final = 2**64 - 1
_OUTWAITED: Final = {
    AccessMode.SHARED: ServerError.PRODUCER_BUSY,
    AccessMode.EXCLUSIVE: ServerError.PRODUCER_FENCED,
}
"""Modes that come behind those who wait for being the only one, and what they are refused with, as in Pulsar."""
_VERSION: Final = f"pulsar-on-kafka {metadata.version('pulsar-on-kafka')}"


@dataclass(frozen=True, slots=True)
class ConnectionContext:
    """What the connections of a gateway share."""

    node: Node
    loop: asyncio.AbstractEventLoop
    pool: FairPool
    sharing: Sharing
    address: str
    """The URL that clients are told to connect to."""
    access: GatewayAccess
    transactions: GatewayTransactions
    policies: TopicWatch[FollowsPolicies]
    """Has producers hear of their topics' policies."""
    watchers: TopicWatchers
    waiting: WaitingProducers
    entries: OutgoingEntries = field(default_factory=OutgoingEntries)
    connections: set[Connection] = field(default_factory=set)
    strangers: dict[Connection, None] = field(default_factory=dict)
    """Those of them that have not said CONNECT, the oldest first."""


class Connection(asyncio.Protocol):
    """Memory: `MAX_SENDS_IN_FLIGHT` messages under way and one read of the socket, a frame that is not complete, and
    what `FrameWriter` says."""

    def __init__(self, serving: ConnectionContext) -> None:
        self._serving = serving
        self._node = serving.node
        self._cutter = FrameCutter(MAX_CONNECT_BYTES)
        self._frames = FrameWriter(serving.loop, self._has_room_again)
        self._transport: asyncio.Transport | None = None
        self._name = "?"
        self._client = ""
        """What the client says of its kind and version."""
        self.ended = asyncio.Event()
        self._login: Login | None = None
        """None: it has to say CONNECT first."""
        self._method = ""
        self._refreshes = False
        """The client has new credentials where its login ends."""
        self._auth_challenged = False
        self._login_timer: asyncio.TimerHandle | None = None
        self._closing = False
        self._heard = False
        self._keep_alive = KeepAlive()
        self._timer: asyncio.TimerHandle | None = None
        self._requests = RequestQueue(serving.pool, self._soon, lambda: not self._frames.congested, error_code_of)
        self._sent = 0
        self._paused = False
        self._reads_on = False
        """The loop was told to read on."""
        self._stalled = False
        self._behind: deque[Frame] = deque()
        """What came and was not taken yet: something has to be done first."""
        self._slice = LoopSlice()
        self._answered = 0
        self._counting = threading.Lock()
        self._producers = Handles[WireProducer]()
        self._former_producers: deque[int] = deque(maxlen=MAX_SENDS_IN_FLIGHT)
        self._producers_to_come = 0
        self._after_these: list[tuple[WireProducer, int]] = []
        """Producers to end, and whom to tell, when those are admitted or refused that were asked for before."""
        self._waiting_producers: dict[int, WaitingProducer] = {}
        """Those of them that wait for being the only one of their topic."""
        self._consumers = Handles[WireConsumer]()
        self._leaving: dict[WireConsumer, list[Callable[[], None]]] = {}
        """Consumers whose end the client does not know yet, and what it is to hear after that."""
        self._going_on: dict[int, int] = {}
        """Where readers go on that were sought, when their client opens them anew."""
        self._watching = Handles[object]()
        """Watchers of topics, by what `TopicWatchers` knows them by."""
        self.moves: set[asyncio.Task[None]] = set()
        """What is being closed here, for its client to go to another gateway."""

    # The socket ---------------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        peer = transport.get_extra_info("peername")
        self._name = f"{peer[0]}:{peer[1]}" if peer else "?"
        self._frames.use(self._transport)
        self._serving.connections.add(self)
        self._serving.strangers[self] = None
        if len(self._serving.strangers) > MAX_UNCONNECTED:
            next(iter(self._serving.strangers)).end(f"{MAX_UNCONNECTED} younger connections have not said CONNECT")
        self._timer = self._serving.loop.call_later(CONNECT_S, self._has_to_be_connected)

    def data_received(self, data: bytes) -> None:
        if self._closing:
            return
        try:
            frames, failure = self._cutter.feed(data), ""
        except MalformedFrame as malformed:
            frames, failure = list(malformed.before), str(malformed)
        self._heard = self._heard or bool(frames)
        self._behind.extend(frames)
        if not self._stalled and not self._take_behind():
            return
        if failure:
            self.end(failure)

    def _take_behind(self) -> bool:
        """Take what came, for one slice and as long as not too much is under way; False where that ended the
        connection."""
        self._slice.begin()
        try:
            while self._behind and not self._stalled and not self._has_much_under_way():
                self._take(self._behind.popleft())
                self._leave_rest_when_over()
        except MalformedCommand as malformed:
            self.end(str(malformed))
            return False
        if self._has_much_under_way() and not self._paused and self._transport is not None:
            self._paused = True  # first: the last answer may come just now
            self._transport.pause_reading()
            if self._sent == self._answered:
                self._read_on()
        return True

    def _leave_rest_when_over(self) -> None:
        """After the slice go on once other connections had their turn, unless something else goes on."""
        if self._behind and not self._stalled and self._slice.is_over:
            self._stop_reading()
            self._serving.loop.call_soon(self._go_on)

    def _has_much_under_way(self) -> bool:
        return self._sent - self._answered > MAX_SENDS_IN_FLIGHT

    def pause_writing(self) -> None:
        """What the client does not take must not become more by what it asks for."""
        self._frames.pause()
        if self._transport is not None:
            self._transport.pause_reading()

    def resume_writing(self) -> None:
        self._frames.resume()

    def connection_lost(self, failure: Exception | None) -> None:
        self._closing = True
        for timer in (self._timer, self._login_timer):
            if timer is not None:
                timer.cancel()
        self._serving.connections.discard(self)
        self._serving.strangers.pop(self, None)
        producers, consumers = self._producers.end(), self._consumers.end()
        self._requests.end()
        self.ended.set()
        for watcher in self._watching.end():
            self._serving.watchers.close(watcher)
        for number in list(self._waiting_producers):
            self._wait_no_more(number)
        for producer in [*producers, *(each for each, _ in self._after_these)]:
            self._do_aside(producer.close, producer.topic)
        for consumer in consumers:
            self._close_aside(consumer)
        self._after_these.clear()

    def _close_aside(self, consumer: WireConsumer) -> None:
        """Close a consumer whose end no client waits for."""
        consumer.endpoint.close()
        self._do_aside(partial(consumer.close, Deadline.after(_CLOSE_S)), consumer.endpoint.topic)

    def end(self, reason: str) -> None:
        """Close it, after what was said before. Nothing that came besides is looked at."""
        _log.info("connection=%s is closed: %s", self._name, reason)
        self._closing = True
        self._behind.clear()
        self._serving.strangers.pop(self, None)
        if self._transport is not None and not self._transport.is_closing():
            self._frames.write()
            self._transport.close()
            self._serving.loop.call_later(_TAKEN_S, self.cut_off)

    def cut_off(self) -> None:
        """End it at once, whatever the client has not taken."""
        if self._transport is not None:
            self._transport.abort()

    def _has_to_be_connected(self) -> None:
        if self._login is None:
            self.end(f"no CONNECT in {CONNECT_S:g} s")

    def _interval_over(self) -> None:
        if self._closing:
            return
        waiting, taken = self._frames.progress()
        verdict = self._keep_alive.judge(
            heard=self._heard, is_read=not (self._paused or self._stalled), waiting=waiting, taken=taken
        )
        self._heard = False
        if verdict is Verdict.PING:
            self._say(Type.PING)
        elif verdict is not Verdict.GOES_ON:
            self.end(verdict.value)
            return
        self._timer = self._serving.loop.call_later(keep_alive.INTERVAL_S, self._interval_over)

    def _has_room_again(self) -> None:
        for _, consumer in self._consumers.items():
            consumer.endpoint.wake_member()
        self._requests.begin_waiting()
        self._may_read()

    def _say(self, kind: Type, **fields: Any) -> None:
        self._frames.send((frame(command(kind, **fields)),))

    # Commands -----------------------------------------------------------------------------------------------------

    def _take(self, each: Frame) -> None:
        if self._closing:
            return
        if self._login is not None and (plain := plain_send(each.command)) and self._send_repeated(*plain, each.entry):
            return
        kind, asked = parsed(each.command)
        if self._login is None and kind is not Type.CONNECT:
            raise MalformedCommand(f"the first command is {kind.name}, expected CONNECT")
        if kind is Type.SEND:
            self._send(asked, each)
            return
        handler = _HANDLERS.get(kind)
        if handler is None:
            self._refuse(kind, asked)
        else:
            handler(self, asked)

    def _refuse(self, kind: Type, asked: Any) -> None:
        number = getattr(asked, "request_id", None)
        if number is None:
            raise MalformedCommand(f"{kind.name} is not for clients to send")
        self._error(number, ServerError.NOT_ALLOWED, f"{kind.name}: not served by this gateway")

    def _error(self, number: int, code: ServerError, reason: str) -> None:
        self._say(Type.ERROR, request_id=number, error=code, message=reason)

    def _not_opened(self, asked: Any, code: ServerError, reason: str) -> None:
        _log.info("connection=%s %.300r is not opened: %.600r", self._name, _wanted(asked), reason)
        self._error(asked.request_id, code, reason)

    def _ask(
        self,
        work: Callable[[], Any],
        then: Callable[[Any], None],
        refused: Callable[[ServerError, str], None],
        topic: str = "",
    ) -> None:
        """Do `work` aside; the loop goes on with what it gave, or with why it failed. `topic` is what it changes."""
        self._requests.ask(work, then, refused, topic=topic)

    def _do_aside(self, close: Callable[[], object], topic: str) -> Future[Any]:
        """Have something closed that no request is about."""
        return self._requests.close_aside(close, topic=topic)

    def _success(self, number: int) -> Callable[[Any], None]:
        return lambda _: self._say(Type.SUCCESS, request_id=number)

    def _failure(self, number: int) -> Callable[[ServerError, str], None]:
        return lambda code, reason: self._error(number, code, reason)

    def _connect(self, asked: Any) -> None:
        if self._login is not None:
            raise MalformedCommand("a second CONNECT")
        self._client = asked.client_version[:_MAX_CLIENT_VERSION_CHARS]
        self._method = asked.auth_method_name
        self._refreshes = asked.feature_flags.supports_auth_refresh
        login = self._known(asked.auth_method_name, asked.auth_data)
        if login is None:
            return
        if self._serving.access.asks and asked.original_principal:
            self._error(_ANY, ServerError.AUTHORIZATION, f"{login.role} is no proxy: it speaks for itself alone")
            self.end(f"{login.role} says that it speaks for {asked.original_principal!r:.60}")
            return
        self._login = login
        self._serving.strangers.pop(self, None)
        self._cutter.most = MAX_FRAME_BYTES
        self._watch(login)
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._serving.loop.call_later(keep_alive.INTERVAL_S, self._interval_over)
        version = min(asked.protocol_version, PROTOCOL_VERSION)
        _log.debug("connection=%s role=%s client=%s version=%d", self._name, login.role, asked.client_version, version)
        self._say(
            Type.CONNECTED,
            server_version=_VERSION,
            protocol_version=version,
            max_message_size=MAX_MESSAGE_BYTES,
            feature_flags={
                "supports_topic_watchers": True,
                "supports_get_partitioned_metadata_without_auto_creation": True,
            },
        )

    def _known(self, method: str, data: bytes) -> Login | None:
        """None: it is nobody, which the client hears before its connection ends."""
        certificate = None if self._transport is None else self._transport.get_extra_info("peercert")
        try:
            return self._serving.access.login(method, data, certificate)
        except AuthenticationError as refused:
            self._error(_ANY, ServerError.AUTHENTICATION, str(refused))
            self.end(str(refused))
            return None

    def _watch(self, login: Login) -> None:
        if login.ends_s is not None:
            left_s = max(0.0, login.ends_s - self._node.clock.known_now_ms() / 1000)
            self._login_timer = self._serving.loop.call_later(left_s, self._login_ended)

    def _login_ended(self) -> None:
        """Ask for new credentials, as Pulsar does of clients that have some."""
        if self._auth_challenged or not self._refreshes:
            self.end("its login has ended")
            return
        self._auth_challenged = True
        self._say(
            Type.AUTH_CHALLENGE,
            server_version=_VERSION,
            protocol_version=PROTOCOL_VERSION,
            challenge={"auth_method_name": self._method, "auth_data": b"PulsarAuthRefresh"},
        )
        self._login_timer = self._serving.loop.call_later(CONNECT_S, self._login_ended)

    def _auth_response(self, asked: Any) -> None:
        if not self._auth_challenged:
            raise MalformedCommand("AUTH_RESPONSE, which nobody asked for")
        login = self._known(asked.response.auth_method_name, asked.response.auth_data)
        if login is None or self._login is None:
            return
        if login.role != self._login.role:
            self._error(_ANY, ServerError.AUTHENTICATION, f"{self._login.role} cannot become {login.role}")
            self.end(f"{self._login.role} says that it is {login.role}")
            return
        self._auth_challenged = False
        if self._login_timer is not None:
            self._login_timer.cancel()
        self._watch(login)

    def _ping(self, asked: Any) -> None:
        self._say(Type.PONG)

    def _pong(self, asked: Any) -> None:
        """It is there, which is known by now."""

    # Looking up ---------------------------------------------------------------------------------------------------

    def _partitioned_metadata(self, asked: Any) -> None:
        number, kind = asked.request_id, Type.PARTITIONED_TOPIC_METADATA_RESPONSE
        self._ask(
            lambda: lookups.partitions_of(
                self._node, asked.topic, self._deadline(), may_be_made=asked.metadata_auto_creation_enabled
            ),
            lambda found: self._say(kind, request_id=number, partitions=found, response=lookups.SUCCESS),
            lambda code, reason: self._say(
                kind, request_id=number, response=lookups.FAILED, error=code, message=reason
            ),
        )

    def _lookup(self, asked: Any) -> None:
        kind, number = Type.LOOKUP_TOPIC_RESPONSE, asked.request_id

        def refused(code: ServerError, reason: str) -> None:
            self._say(kind, request_id=number, response=lookups.LOOKUP_FAILED, error=code, message=reason)

        def found(bundle: int, url: str) -> None:
            served = lookups.addressed("brokerServiceUrl", url)
            self._say(kind, request_id=number, response=lookups.LOOKUP_CONNECT, authoritative=True, **served)

        if asked.advertised_listener_name:
            reason = f"this gateway has no listener {asked.advertised_listener_name!r:.60}: it has one address"
            refused(ServerError.NOT_ALLOWED, reason)
            return
        self._served(asked.topic, found, refused)

    def _served(
        self, topic: str, then: Callable[[int, str], None], refused: Callable[[ServerError, str], None]
    ) -> None:
        """Go on with a topic's bundle, and the address of the gateway that serves it."""
        if self._requests.is_full(refused):
            return
        try:
            bundle = bundle_of(topic)
        except MappingError as failure:
            refused(*error_code_of(failure))
            return

        def known(url: str | None) -> None:
            if url is None:
                refused(ServerError.SERVICE_NOT_READY, f"no gateway serves topic {topic} now: look it up again")
            else:
                then(bundle, url)

        self._serving.sharing.ask(bundle, self._requests.counted(known))

    def _served_here(
        self, topic: str, then: Callable[[int], None], refused: Callable[[ServerError, str], None]
    ) -> None:
        def known(bundle: int, url: str) -> None:
            if url != self._serving.address:
                refused(ServerError.SERVICE_NOT_READY, f"topic {topic} is served by {url}: look it up again")
            elif not self._closing:
                then(bundle)

        self._served(topic, known, refused)

    def _topics_of_namespace(self, asked: Any) -> None:
        number = asked.request_id

        def tell(names: list[str]) -> None:
            found = lookups.topics_hash(names)
            changed = not asked.HasField("topics_hash") or asked.topics_hash != found
            self._say(
                Type.GET_TOPICS_OF_NAMESPACE_RESPONSE,
                request_id=number,
                topics=names if changed else (),
                filtered=False,
                topics_hash=found,
                changed=changed,
            )

        self._ask(
            lambda: lookups.topics_if_any(self._node, asked.namespace, asked.mode, self._deadline()),
            tell,
            self._failure(number),
        )

    def _watch_topics(self, asked: Any) -> None:
        number, request = asked.watcher_id, asked.request_id
        if self._watching.is_busy(number):
            self._error(request, ServerError.SERVICE_NOT_READY, f"watcher {number} is being opened")
            return
        self._unwatch(number)
        if len(self._watching) >= MAX_WATCHERS:
            self._error(request, ServerError.NOT_ALLOWED, f"a connection has {MAX_WATCHERS} watchers at most")
            return
        opening, watcher = self._watching.begin(number), object()

        held: list[Callable[[], None]] = []
        """Updates from before the client knows that it has the watcher."""

        def changed(new: Sequence[str], gone: Sequence[str], names: AbstractSet[str]) -> None:
            update = partial(
                self._say,
                Type.WATCH_TOPIC_UPDATE,
                watcher_id=number,
                new_topics=new,
                deleted_topics=gone,
                topics_hash=lookups.topics_hash(names),
            )
            self._soon(lambda: update() if self._watching.get(number) is watcher else held.append(update))

        def opened(names: AbstractSet[str]) -> None:
            if not self._watching.opened(opening, watcher):
                self._serving.watchers.close(watcher)
                return
            found = lookups.topics_hash(names)
            self._say(
                Type.WATCH_TOPIC_LIST_SUCCESS,
                request_id=request,
                watcher_id=number,
                topic=() if asked.topics_hash == found else sorted(names),
                topics_hash=found,
            )
            for update in held:
                update()

        def refused(code: ServerError, reason: str) -> None:
            if self._watching.failed(opening):
                self._error(request, code, reason)

        watchers, pattern = self._serving.watchers, asked.topics_pattern
        self._ask(lambda: watchers.open(watcher, asked.namespace, pattern, changed), opened, refused)

    def _unwatch_topics(self, asked: Any) -> None:
        self._unwatch(asked.watcher_id)
        self._say(Type.SUCCESS, request_id=asked.request_id)

    def _unwatch(self, number: int) -> None:
        watcher = self._watching.get(number)
        if watcher is None:
            self._watching.give_up(number)
        else:
            self._watching.remove(number, watcher)
            self._serving.watchers.close(watcher)

    # Schemas ------------------------------------------------------------------------------------------------------

    def _get_schema(self, asked: Any) -> None:
        kind, number = Type.GET_SCHEMA_RESPONSE, asked.request_id
        self._ask(
            lambda: schemas.found_schema(self._node, asked, self._deadline()),
            lambda found: self._say(
                kind, request_id=number, schema=schemas.schema_fields(found[0]), schema_version=found[1]
            ),
            lambda code, reason: self._say(kind, request_id=number, error_code=code, error_message=reason),
        )

    def _get_or_create_schema(self, asked: Any) -> None:
        kind, number = Type.GET_OR_CREATE_SCHEMA_RESPONSE, asked.request_id
        self._ask(
            lambda: schemas.made_schema(self._node, asked, self._deadline()),
            lambda version: self._say(kind, request_id=number, schema_version=version),
            lambda code, reason: self._say(kind, request_id=number, error_code=code, error_message=reason),
        )

    # Producers ----------------------------------------------------------------------------------------------------

    def _producer(self, asked: Any) -> None:
        number, request = asked.producer_id, asked.request_id
        known = self._producers.get(number)
        if known is not None:
            self._opened(known, request, None)
            return
        if self._producers.is_busy(number):
            self._not_opened(asked, ServerError.SERVICE_NOT_READY, f"producer {number} is being opened or closed")
            return
        if len(self._producers) >= MAX_OPEN:
            self._not_opened(asked, ServerError.NOT_ALLOWED, f"a connection has {MAX_OPEN} producers at most")
            return
        try:
            mode = access_mode(asked)
        except LayerError as failure:
            self._not_opened(asked, *error_code_of(failure))
        else:
            self._open_producer(asked, mode, self._producers.begin(number))

    def _open_producer(self, asked: Any, mode: AccessMode, opening: Opening[WireProducer]) -> None:
        number, waiting = asked.producer_id, self._serving.waiting

        def opened(name: str, bundle: int, found: OpenedProducer | None) -> None:
            self._one_came()
            if found is None:
                self._wait_on(opening)
            else:
                self._admitted(asked, mode, name, bundle, found, opening)

        def refused(code: ServerError, reason: str) -> None:
            self._one_came()
            self._wait_no_more(number)
            if self._producers.failed(opening):
                self._not_opened(asked, code, reason)

        def here(bundle: int) -> None:
            name = str(TopicName.parse(asked.topic))
            if not opening.wanted:
                self._producers.failed(opening)
                self._one_came()
            elif mode is AccessMode.WAIT_FOR_EXCLUSIVE and number not in self._waiting_producers:
                self._wait(asked, name, begin, opening)
                self._one_came()
            elif mode in _OUTWAITED and waiting.any_at(name):
                refused(_OUTWAITED[mode], f"producers wait for being the only one of {name}: {mode.value} comes later")
            else:
                open_it = partial(open_producer, self._node, asked, self._meter(), self._deadline)
                self._ask(partial(_open_if_wanted, opening, open_it), partial(opened, name, bundle), refused, name)

        def begin() -> None:
            self._producers_to_come += 1
            self._served_here(asked.topic, here, refused)

        begin()

    def _admitted(
        self,
        asked: Any,
        mode: AccessMode,
        name: str,
        bundle: int,
        found: OpenedProducer,
        opening: Opening[WireProducer],
    ) -> None:
        number = asked.producer_id
        self._wait_no_more(number)
        producer = self._made_producer(opening, name, bundle, found)
        if not self._producers.opened(opening, producer):
            self._do_aside(producer.close, name)
            return
        if mode is AccessMode.EXCLUSIVE_WITH_FENCING:
            self._serving.waiting.fence(name)
        _log.info("connection=%s %.300r is open", self._name, str(found.sender.outlet))
        self._serving.policies.watch(found.sender.outlet.admitted.topic, producer)
        self._opened(producer, asked.request_id, found.schema_version)
        self._follow_if_moved(bundle)

    def _made_producer(
        self, opening: Opening[WireProducer], name: str, bundle: int, found: OpenedProducer
    ) -> WireProducer:
        heard = ProducerCallbacks(
            under_way=self._records_under_way,
            answered=self._records_answered,
            lost=lambda: self._soon(partial(self._producer_lost, opening)),
            left=lambda: self._soon(partial(self._serving.waiting.left, name)),
        )
        transactions, frames = self._own_transactions, self._frames
        return WireProducer(self._node, opening.number, found, transactions, frames, heard, bundle)

    def _wait(self, asked: Any, topic: str, begin: Callable[[], None], opening: Opening[WireProducer]) -> None:
        """Have a producer ask when it is its turn. Its client is told, once, that it waits."""
        number, request = asked.producer_id, asked.request_id
        said = False

        def queued() -> None:
            nonlocal said
            if not said:
                name = asked.producer_name
                self._say(Type.PRODUCER_SUCCESS, request_id=request, producer_name=name, producer_ready=False)
            said = True

        def fenced() -> None:
            self._give_up_producer(opening)
            self._not_opened(asked, ServerError.PRODUCER_FENCED, f"a producer has taken {topic} from all others")

        waits = self._waiting_producers[number] = WaitingProducer(topic, begin, queued, fenced)
        self._serving.waiting.come(waits)

    def _wait_on(self, opening: Opening[WireProducer]) -> None:
        """Others are there."""
        if opening.wanted:
            self._serving.waiting.refused(self._waiting_producers[opening.number])
        else:
            self._producers.failed(opening)

    def _wait_no_more(self, number: int) -> None:
        waits = self._waiting_producers.pop(number, None)
        if waits is not None:
            self._serving.waiting.leave(waits)

    def _give_up_producer(self, opening: Opening[WireProducer]) -> None:
        """It is not to be opened any more."""
        opening.wanted = False
        waits = self._waiting_producers.get(opening.number)
        if waits is not None and not waits.asking:
            self._producers.failed(opening)
        self._wait_no_more(opening.number)

    def _opened(self, producer: WireProducer, request: int, schema_version: bytes | None) -> None:
        self._say(
            Type.PRODUCER_SUCCESS,
            request_id=request,
            producer_name=producer.sender.name,
            last_sequence_id=producer.sender.last_sequence_id(),
            topic_epoch=producer.topic_epoch,
            schema_version=schema_version or b"",  # Java's client wants the field, whatever it says
            producer_ready=True,
        )

    def _send(self, asked: Any, each: Frame) -> None:
        producer = self._producers.get(asked.producer_id)
        if producer is None:
            if asked.producer_id not in self._producers and asked.producer_id not in self._former_producers:
                raise MalformedCommand(f"SEND of producer {asked.producer_id}, which was never opened")
            return  # it was closed just now; as in Pulsar its client sends again what is not answered
        self._sent += 1
        left = producer.send(asked, each.entry)
        if isinstance(left, Left):
            self._finish(left)
        elif left is not None:
            self._sent -= 1
            self._stall(left, producer, asked, each)

    def _send_repeated(self, producer_id: int, sequence_id: int, number: bytes, entry: bytes) -> bool:
        producer = self._producers.get(producer_id)
        if producer is None:
            return False
        self._sent += 1  # first: it may be answered at once
        if producer.send_repeated(sequence_id, number, entry):
            return True
        self._sent -= 1
        return False

    def _stall(self, first: Callable[[], None], producer: WireProducer, asked: Any, each: Frame) -> None:
        """Everything that comes waits until `first` is done, and the entry sent."""
        self._stop_reading()

        def done(_: None) -> None:
            self._behind.appendleft(each)
            self._go_on()

        def failed(code: ServerError, reason: str) -> None:
            self._sent += 1
            left = producer.refuse(asked, code, reason)
            if left is None:
                self._go_on()
            else:
                self._finish(left)

        self._ask(first, done, failed)

    def _finish(self, left: Left) -> None:
        """Everything that comes waits until nothing is left to do of an entry; other connections are served."""
        self._stop_reading()

        def again(pause_s: float) -> None:
            if left.go_on(closing=self._closing):
                self._go_on()
            else:
                self._serving.loop.call_later(pause_s, again, min(2 * pause_s, _MAX_REST_RETRY_INTERVAL_S))

        self._serving.loop.call_later(_REST_RETRY_INTERVAL_S, again, 2 * _REST_RETRY_INTERVAL_S)

    def _stop_reading(self) -> None:
        self._stalled = True
        if self._transport is not None:
            self._transport.pause_reading()

    def _go_on(self) -> None:
        self._stalled = False
        if self._take_behind():
            self._may_read()

    def _do_in_slices(self, works: Iterator[None], done: Callable[[Exception | None], None]) -> None:
        """Do the works of one command, of which the first slice is the present one; everything that comes waits until
        they are done."""

        def are_done() -> bool:
            try:
                for _ in () if self._closing else works:
                    if self._slice.is_over:
                        self._serving.loop.call_soon(go_on)
                        return False
            except Exception as failure:
                done(failure)
            else:
                done(None)
            return True

        def go_on() -> None:
            self._slice.begin()
            if are_done():
                self._go_on()

        if not are_done():  # what is done already goes on in `_take_behind`, which one read may call for thousands
            self._stop_reading()

    def _records_under_way(self, more: int) -> None:
        self._sent += more

    def _records_answered(self, records: int) -> None:
        """Any thread."""
        with self._counting:
            self._answered += records
            is_first = self._paused and not self._reads_on and self._sent - self._answered <= MAX_SENDS_IN_FLIGHT // 2
            self._reads_on = self._reads_on or is_first
        if is_first:  # each call wakes the loop
            self._soon(self._read_on)

    def _read_on(self) -> None:
        self._paused = False  # first: who sees that nobody was told, must not see this
        self._reads_on = False
        if self._stalled or self._take_behind():
            self._may_read()

    def _may_read(self) -> None:
        if self._transport is not None and not (
            self._closing or self._paused or self._stalled or self._frames.congested
        ):
            self._transport.resume_reading()

    def _close_producer(self, asked: Any) -> None:
        number, request = asked.producer_id, asked.request_id
        producer = self._producers.get(number)
        if producer is None:
            opening = self._producers.give_up(number)
            if opening is not None:
                self._give_up_producer(opening)
            self._say(Type.SUCCESS, request_id=request)
            return
        self._producers.remove(number, producer)
        self._former_producers.append(number)
        self._after_these.append((producer, request))  # as in Pulsar it is still there when those are judged
        self._end_producers()

    def _one_came(self) -> None:
        self._producers_to_come -= 1
        self._end_producers()

    def _end_producers(self) -> None:
        if self._producers_to_come:
            return
        ends, self._after_these = self._after_these, []
        for producer, request in ends:
            self._requests.do(producer.close, self._success(request), self._failure(request), topic=producer.topic)

    def _producer_lost(self, opening: Opening[WireProducer]) -> None:
        """Have the client open a producer anew."""
        producer = self._producers.lost(opening)
        if producer is not None:
            self._close_producer_of(opening.number, producer)

    def _close_producer_of(
        self, number: int, producer: WireProducer, on_done: Callable[[], None] = lambda: None
    ) -> None:
        self._producers.leave(number, producer)
        self._former_producers.append(number)

        def say(_: object) -> None:
            """Behind the receipts of what it has sent."""
            self._producers.left(number)
            self._say(Type.CLOSE_PRODUCER, producer_id=number, request_id=_ANY)
            on_done()

        self._requests.do(producer.close, say, lambda code, reason: say(None), topic=producer.topic)

    def _soon(self, action: Callable[[], None]) -> None:
        """By the loop. Any thread."""
        try:
            self._serving.loop.call_soon_threadsafe(action)
        except RuntimeError:
            _log.debug("connection=%s something ended after the gateway", self._name)

    # Consumers ----------------------------------------------------------------------------------------------------

    def _subscribe(self, asked: Any) -> None:
        number, request = asked.consumer_id, asked.request_id
        if self._consumers.get(number) is not None:
            self._say(Type.SUCCESS, request_id=request)
            return
        if self._consumers.is_busy(number):
            self._not_opened(asked, ServerError.SERVICE_NOT_READY, f"consumer {number} is being opened or closed")
            return
        if len(self._consumers) >= MAX_OPEN:
            self._not_opened(asked, ServerError.NOT_ALLOWED, f"a connection has {MAX_OPEN} consumers at most")
            return
        opening, going_on = self._consumers.begin(number), self._going_on.get(number)

        def opened(consumer: WireConsumer) -> None:
            self._subscribed(asked, opening, consumer)

        def refused(code: ServerError, reason: str) -> None:
            if self._consumers.failed(opening):
                self._not_opened(asked, code, reason)

        def here(bundle: int) -> None:
            topic, lost = str(TopicName.parse(asked.topic)), partial(self._consumer_lost, opening)
            wire = Wire(topic, self._frames, partial(self._soon, lost), bundle, self._serving.entries, self._meter())

            def busy(code: ServerError, reason: str) -> None:
                """By what a gateway that died has left, perhaps: Kafka lets it go soon."""
                if code is ServerError.CONSUMER_BUSY and self._serving.sharing.is_new(bundle) and opening.wanted:
                    self._serving.loop.call_later(_BUSY_RETRY_INTERVAL_S, here, bundle)
                else:
                    refused(code, reason)

            def open_it() -> WireConsumer:
                return open_consumer(self._node, asked, wire, self._deadline(), going_on)

            self._ask(partial(_open_if_wanted, opening, open_it), opened, busy, topic)

        self._served_here(asked.topic, here, refused)

    def _subscribed(self, asked: Any, opening: Opening[WireConsumer], consumer: WireConsumer) -> None:
        if not self._consumers.opened(opening, consumer):
            self._close_aside(consumer)
            return
        self._going_on.pop(opening.number, None)
        _log.info("connection=%s %.300r is open", self._name, _wanted(asked))
        self._say(Type.SUCCESS, request_id=asked.request_id)
        if opening.is_lost:
            self._close_consumer_of(opening.number, consumer)
        else:
            if consumer.endpoint.hears_active:
                self._serving.loop.call_later(INTRODUCED_S, consumer.endpoint.introduce)
            self._follow_if_moved(consumer.endpoint.bundle)

    def _consumer_lost(self, opening: Opening[WireConsumer]) -> None:
        """Have the client open a consumer anew."""
        consumer = self._consumers.lost(opening)
        if consumer is not None:
            self._close_consumer_of(opening.number, consumer)

    def _close_consumer_of(
        self, number: int, consumer: WireConsumer, on_done: Callable[[], None] = lambda: None
    ) -> None:
        self._consumers.leave(number, consumer)
        consumer.endpoint.close()
        if consumer.goes_on_at is not None:
            self._going_on[number] = consumer.goes_on_at
        waiting: list[Callable[[], None]] = []
        self._leaving[consumer] = waiting

        def say(_: object) -> None:
            del self._leaving[consumer]
            self._consumers.left(number)
            self._say(Type.CLOSE_CONSUMER, consumer_id=number, request_id=_ANY)
            for then in waiting:
                then()
            on_done()

        close = partial(consumer.close, Deadline.after(_CLOSE_S))
        self._requests.do(close, say, lambda code, reason: say(None), topic=consumer.endpoint.topic)

    def _flow(self, asked: Any) -> None:
        consumer = self._consumers.get(asked.consumer_id)
        if consumer is not None:
            consumer.endpoint.introduce()
            consumer.endpoint.grant(asked.messagePermits)

    def _ack(self, asked: Any) -> None:
        consumer = self._consumers.get(asked.consumer_id)
        code, reason = None, None
        if consumer is None:
            code, reason = ServerError.CONSUMER_NOT_FOUND, f"consumer {asked.consumer_id} is not open"
        else:
            try:
                if asked.HasField("txnid_most_bits") and asked.HasField("txnid_least_bits"):
                    self._ack_in_transaction(consumer, asked)
                    return
                if len(asked.message_id) > MAX_IDS_AT_ONCE:
                    self._acknowledge_many(consumer, asked)
                    return
                consumer.acknowledge(asked.ack_type, asked.message_id)
            except Exception as failure:  # told to the client where it wants to know
                code, reason = error_code_of(failure)
        self._acknowledged(asked, code, reason)

    def _acknowledge_many(self, consumer: WireConsumer, asked: Any) -> None:
        parts = parts_of(asked.message_id)
        works = steps(partial(consumer.acknowledge, asked.ack_type, part) for part in parts)
        self._do_in_slices(
            works,
            lambda failure: self._acknowledged(asked, *((None, None) if failure is None else error_code_of(failure))),
        )

    def _ack_in_transaction(self, consumer: WireConsumer, asked: Any) -> None:
        ack, refused = consumer.transaction_ack(asked), partial(self._acknowledged, asked)

        def hold() -> Future[None]:
            deadline = self._deadline()
            return consumer.acknowledge_in(self._own_transactions.part(txn_of(asked), deadline), ack, deadline)

        def held(_: None) -> None:
            self._acknowledged(asked, None, None)

        self._ask(hold, lambda answer: self._requests.when(answer, held, refused), refused)

    def _acknowledged(self, asked: Any, code: ServerError | None, reason: str | None) -> None:
        if asked.HasField("request_id"):
            self._say(
                Type.ACK_RESPONSE,
                consumer_id=asked.consumer_id,
                request_id=asked.request_id,
                error=code,
                message=reason,
            )
        elif code is not None and code is not ServerError.CONSUMER_NOT_FOUND:
            _log.warning("connection=%s an acknowledgement is refused: %s", self._name, reason)

    def _redeliver(self, asked: Any) -> None:
        consumer = self._consumers.get(asked.consumer_id)

        def done(failure: Exception | None) -> None:
            if failure is not None:  # there is no answer to it
                _log.warning(
                    "connection=%s a request for redelivery is refused: %s", self._name, error_code_of(failure)[1]
                )

        if consumer is not None and not asked.message_ids:
            epoch = asked.consumer_epoch if asked.HasField("consumer_epoch") else None
            self._do_in_slices(steps([partial(consumer.redeliver_all, epoch)]), done)
        elif consumer is not None:
            self._do_in_slices(steps(partial(consumer.redeliver, part) for part in parts_of(asked.message_ids)), done)

    def _of_consumer(
        self,
        asked: Any,
        work: Callable[[WireConsumer], Any],
        then: Callable[[Any], None],
        refused: Callable[[ServerError, str], None] | None = None,
    ) -> None:
        consumer, number = self._consumers.get(asked.consumer_id), asked.request_id
        if consumer is None:
            self._error(number, ServerError.CONSUMER_NOT_FOUND, f"consumer {asked.consumer_id} is not open")
            return
        self._ask(lambda: work(consumer), then, refused or self._failure(number), consumer.endpoint.topic)

    def _seek(self, asked: Any) -> None:
        if not asked.HasField("message_id") and not asked.HasField("message_publish_time"):
            raise MalformedCommand("SEEK names neither an id nor a time")

        consumer, number = self._consumers.get(asked.consumer_id), asked.request_id
        if consumer is None:
            self._error(number, ServerError.CONSUMER_NOT_FOUND, f"consumer {asked.consumer_id} is not open")
            return
        endpoint = consumer.endpoint

        def done(_: object) -> None:
            """The client hears of the consumer's end first, or it would go on with that. A consumer that was not the
            active one goes on: what it acknowledges from here on is of after the seek."""
            endpoint.seeking = False
            success = partial(self._success(number), None)
            if consumer in self._leaving:
                self._leaving[consumer].append(success)
            else:
                success()

        def failed(code: ServerError, reason: str) -> None:
            endpoint.seeking = False
            self._error(number, code, reason)

        endpoint.seeking = True
        self._ask(lambda: consumer.seek(asked, self._deadline()), done, failed, endpoint.topic)

    def _last_message_id(self, asked: Any) -> None:
        def tell(found: tuple[NativeMessageId, int | None, NativeMessageId | None]) -> None:
            last, size, mark = found
            said = _id(last)
            if size:
                said["batch_index"], said["batch_size"] = size - 1, size
            self._say(
                Type.GET_LAST_MESSAGE_ID_RESPONSE,
                request_id=asked.request_id,
                last_message_id=said,
                consumer_mark_delete_position=None if mark is None else _id(mark),
            )

        self._of_consumer(asked, lambda consumer: consumer.last_id(self._deadline()), tell)

    def _consumer_stats(self, asked: Any) -> None:
        def tell(found: tuple[WireConsumer, int]) -> None:
            consumer, backlog = found
            endpoint = consumer.endpoint
            traffic = endpoint.traffic()
            self._say(
                Type.CONSUMER_STATS_RESPONSE,
                request_id=asked.request_id,
                msgRateOut=traffic.rate,
                msgThroughputOut=traffic.throughput,
                msgRateRedeliver=traffic.redelivered,
                consumerName=endpoint.name,
                availablePermits=max(0, endpoint.open_permits),
                unackedMessages=endpoint.unacked,
                blockedConsumerOnUnackedMsgs=traffic.blocked,
                address=traffic.address,
                connectedSince=time_text(traffic.since_ms),
                type=consumer.kind.value,
                msgBacklog=backlog,
                messageAckRate=traffic.acknowledged,
            )

        self._of_consumer(asked, lambda consumer: (consumer, consumer.backlog(self._deadline())), tell)

    def _unsubscribe(self, asked: Any) -> None:
        number, request = asked.consumer_id, asked.request_id
        consumer = self._consumers.get(number)

        def done(_: object) -> None:
            if consumer is not None:
                self._consumers.remove(number, consumer)
            self._say(Type.SUCCESS, request_id=request)

        def failed(code: ServerError, reason: str) -> None:
            self._error(request, code, reason)
            if consumer is not None and consumer.endpoint.closed and self._consumers.get(number) is consumer:
                self._close_consumer_of(number, consumer)  # it has left, although the subscription stays

        self._of_consumer(asked, lambda each: each.unsubscribe(self._deadline(), force=asked.force), done, failed)

    def _close_consumer(self, asked: Any) -> None:
        number, request = asked.consumer_id, asked.request_id
        consumer = self._consumers.get(number)
        if consumer is None:
            if self._consumers.give_up(number) is None:
                self._going_on.pop(number, None)
            self._say(Type.SUCCESS, request_id=request)
            return
        self._consumers.remove(number, consumer)
        consumer.endpoint.close()
        close = partial(consumer.close, Deadline.after(_CLOSE_S))
        self._requests.do(close, self._success(request), self._failure(request), topic=consumer.endpoint.topic)

    def _meter(self) -> Meter:
        clock = self._node.clock
        return Meter(self._name, clock.known_now_ms(), clock.monotonic(), self._client)

    def note_rates(self) -> None:
        """An interval is over."""
        now_s = self._node.clock.monotonic()
        for _, producer in self._producers.items():
            producer.meter.note(now_s)
        for _, consumer in self._consumers.items():
            consumer.endpoint.meter.note(now_s)

    # Transactions -------------------------------------------------------------------------------------------------

    def _connect_to_coordinator(self, asked: Any) -> None:
        transactions, kind, number = self._serving.transactions, Type.TC_CLIENT_CONNECT_RESPONSE, asked.request_id

        def refused(code: ServerError, reason: str) -> None:
            self._say(kind, request_id=number, error=code, message=reason)

        def joined(_: None) -> None:
            self._ask(
                lambda: transactions.check_coordinator(asked.tc_id),
                lambda _: self._say(kind, request_id=number),
                refused,
            )

        self._requests.when(transactions.joined(), joined, refused)

    @property
    def _own_transactions(self) -> RoleTransactions:
        return RoleTransactions(self._serving.transactions, "" if self._login is None else self._login.role)

    def _new_transaction(self, asked: Any) -> None:
        self._of_transaction(asked, Type.NEW_TXN_RESPONSE, self._serving.transactions.begin)

    def _add_partitions(self, asked: Any) -> None:
        self._of_transaction(asked, Type.ADD_PARTITION_TO_TXN_RESPONSE, self._serving.transactions.add_partitions)

    def _add_subscriptions(self, asked: Any) -> None:
        self._of_transaction(asked, Type.ADD_SUBSCRIPTION_TO_TXN_RESPONSE, self._serving.transactions.add_subscriptions)

    def _end_transaction(self, asked: Any) -> None:
        self._of_transaction(asked, Type.END_TXN_RESPONSE, partial(self._serving.transactions.end, client=self._name))

    def _of_transaction(self, asked: Any, kind: Type, work: Callable[[Any, str, Deadline], TxnId]) -> None:
        number, role = asked.request_id, self._login.role if self._login is not None else ""
        # By its coordinator Java's client finds whom a refusal is for; without it nobody hears of that.
        most = asked.tc_id if kind is Type.NEW_TXN_RESPONSE else asked.txnid_most_bits
        self._ask(
            lambda: work(asked, role, self._deadline()),
            lambda txn: self._say(kind, request_id=number, **txn_fields(txn)),
            lambda code, reason: self._say(kind, request_id=number, txnid_most_bits=most, error=code, message=reason),
        )

    # Moving -------------------------------------------------------------------------------------------------------

    def follow(self) -> None:
        """Have the clients of topics that another gateway serves go there."""
        sharing = self._serving.sharing
        for number, producer in self._producers.items():
            if url := sharing.elsewhere(producer.bundle):
                self._producers.leave(number, producer)
                self._former_producers.append(number)
                what, on_done = str(producer.sender.outlet), partial(self._producers.left, number)
                self._move(what, producer.close, producer.topic, url, on_done, Type.CLOSE_PRODUCER, producer_id=number)
        for number, consumer in self._consumers.items():
            if url := sharing.elsewhere(consumer.endpoint.bundle):
                self._consumers.leave(number, consumer)
                consumer.endpoint.close()
                what, on_done = f"consumer of {consumer.endpoint.topic}", partial(self._consumers.left, number)
                close = partial(consumer.close, Deadline.after(_CLOSE_S))
                self._move(what, close, consumer.endpoint.topic, url, on_done, Type.CLOSE_CONSUMER, consumer_id=number)
        if self._login is not None and sharing.cut_off():  # also of one that only asks for transactions
            self.end("this gateway is cut off from Kafka, and others serve its topics")

    def unload(self, topics: AbstractSet[str]) -> list[Future[None]]:
        """Have the client open what it has of these topics anew. Each is settled when the client was told so."""
        reported: list[Future[None]] = []

        def end(close: Callable[[int, T, Callable[[], None]], None], number: int, handle: T) -> None:
            reported.append(Future())
            close(number, handle, partial(reported[-1].set_result, None))

        if not self._closing:
            for number, producer in self._producers.items():
                if producer.topic in topics:
                    end(self._close_producer_of, number, producer)
            for number, consumer in self._consumers.items():
                if consumer.endpoint.topic in topics:
                    end(self._close_consumer_of, number, consumer)
        return reported

    def _follow_if_moved(self, bundle: int) -> None:
        if self._serving.sharing.elsewhere(bundle):
            self.follow()

    def _move(
        self,
        what: str,
        close: Callable[[], object],
        topic: str,
        url: str,
        on_done: Callable[[], None],
        kind: Type,
        **which: int,
    ) -> None:
        async def move() -> None:
            await asyncio.wrap_future(self._do_aside(close, topic))
            _log.info("connection=%s %.300r goes to %s", self._name, what, url)
            on_done()
            self._say(kind, request_id=_ANY, **which, **lookups.addressed("assignedBrokerServiceUrl", url))

        moving = self._serving.loop.create_task(move())
        self.moves.add(moving)
        moving.add_done_callback(self.moves.discard)

    def _deadline(self) -> Deadline:
        return operation_deadline()


def operation_deadline() -> Deadline:
    """For one thing that Kafka is asked."""
    return Deadline.after(_OPERATION_S)


def _wanted(asked: Any) -> str:
    """A consumer or producer in the words of its client, whatever these are."""
    if hasattr(asked, "subscription"):
        return f"consumer of {asked.topic}/{asked.subscription}"
    return f"producer {asked.producer_name} of {asked.topic}"


def _id(message_id: NativeMessageId) -> dict[str, int]:
    return {
        "ledgerId": message_id.ledger_id() & _ANY,
        "entryId": message_id.entry_id() & _ANY,
        "partition": message_id.partition(),
    }


def _open_if_wanted(opening: Opening[Any], open_it: Callable[[], T]) -> T:
    """Kafka is not asked for what was closed while it waited for its turn."""
    if not opening.wanted:
        raise AlreadyClosed("closed before it was opened")
    return open_it()


_HANDLERS: Final[dict[Type, Callable[[Connection, Any], None]]] = {
    Type.CONNECT: Connection._connect,
    Type.AUTH_RESPONSE: Connection._auth_response,
    Type.PING: Connection._ping,
    Type.PONG: Connection._pong,
    Type.PARTITIONED_TOPIC_METADATA: Connection._partitioned_metadata,
    Type.LOOKUP_TOPIC: Connection._lookup,
    Type.GET_TOPICS_OF_NAMESPACE: Connection._topics_of_namespace,
    Type.WATCH_TOPIC_LIST: Connection._watch_topics,
    Type.WATCH_TOPIC_LIST_CLOSE: Connection._unwatch_topics,
    Type.PRODUCER: Connection._producer,
    Type.CLOSE_PRODUCER: Connection._close_producer,
    Type.SUBSCRIBE: Connection._subscribe,
    Type.FLOW: Connection._flow,
    Type.ACK: Connection._ack,
    Type.REDELIVER_UNACKNOWLEDGED_MESSAGES: Connection._redeliver,
    Type.SEEK: Connection._seek,
    Type.GET_LAST_MESSAGE_ID: Connection._last_message_id,
    Type.CONSUMER_STATS: Connection._consumer_stats,
    Type.GET_SCHEMA: Connection._get_schema,
    Type.GET_OR_CREATE_SCHEMA: Connection._get_or_create_schema,
    Type.UNSUBSCRIBE: Connection._unsubscribe,
    Type.CLOSE_CONSUMER: Connection._close_consumer,
    Type.TC_CLIENT_CONNECT_REQUEST: Connection._connect_to_coordinator,
    Type.NEW_TXN: Connection._new_transaction,
    Type.ADD_PARTITION_TO_TXN: Connection._add_partitions,
    Type.ADD_SUBSCRIPTION_TO_TXN: Connection._add_subscriptions,
    Type.END_TXN: Connection._end_transaction,
}
