"""Handles the producers of one connection: PRODUCER, SEND and CLOSE_PRODUCER. Source: Pulsar's ServerCnx, 4.0.7."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from collections.abc import Set as AbstractSet
from concurrent.futures import Future
from functools import partial
from typing import ClassVar, Final

from pulsar_on_kafka.base.errors import LayerError
from pulsar_on_kafka.broker.metadata.producers.admission import AccessMode
from pulsar_on_kafka.broker.node.role_rights import Requirement, on_topic
from pulsar_on_kafka.gateway.handlers.client_moves import Handle, Resource
from pulsar_on_kafka.gateway.handlers.exclusive_queue import WaitingProducer
from pulsar_on_kafka.gateway.handlers.handles import Handles, Opening
from pulsar_on_kafka.gateway.handlers.session import MAX_OPEN, ClientSession
from pulsar_on_kafka.gateway.handlers.wire_producer import (
    Left,
    OpenedProducer,
    ProducerCallbacks,
    WireProducer,
    access_mode,
    open_producer,
)
from pulsar_on_kafka.gateway.protocol.error_codes import error_code_of
from pulsar_on_kafka.gateway.protocol.flow_control import MAX_SENDS_IN_FLIGHT
from pulsar_on_kafka.gateway.protocol.replies import ANY_REQUEST
from pulsar_on_kafka.gateway.protocol.request_queue import Commands, operation_deadline
from pulsar_on_kafka_mapping.names.topic_name import TopicName
from pulsar_on_kafka_mapping.wire.command_types import CloseProducerCommand, ProducerCommand, SendCommand
from pulsar_on_kafka_mapping.wire.commands import MalformedCommand, ServerError, Type
from pulsar_on_kafka_mapping.wire.frames import Frame

_log: Final = logging.getLogger(__name__)

_REST_RETRY_INTERVAL_S: Final = 0.02
"""The rest of an entry is retried after this, then after twice this, and so on."""
_MAX_REST_RETRY_INTERVAL_S: Final = 1.0
_RATE_CHECK_S: Final = 1.0
"""A client that a publish rate holds back is served within this time after the rate has changed."""
_REFUSED: Final = "Client is not authorized to Produce"
_YIELDING: Final = {
    AccessMode.SHARED: ServerError.PRODUCER_BUSY,
    AccessMode.EXCLUSIVE: ServerError.PRODUCER_FENCED,
}
"""Modes that yield to waiting exclusive producers, and the error that they get. As in Pulsar."""


class ProducerHandler:
    """For the event loop. Memory: `MAX_OPEN` producers, and `MAX_SENDS_IN_FLIGHT` ids of closed ones."""

    def __init__(self, session: ClientSession) -> None:
        self._session = session
        self._context = session.context
        self._reader = session.reader
        self._flow = session.reader.flow
        self._replies = session.replies
        self._requests = session.requests
        self.handles = Handles[WireProducer]()
        self._closed_ids = deque[int](maxlen=MAX_SENDS_IN_FLIGHT)
        self._creating = 0
        """Requests of PRODUCER without a result."""
        self._closing: list[tuple[WireProducer, int]] = []
        """Producers whose CLOSE_PRODUCER waits for those requests, with the request ids."""
        self._waiting: dict[int, WaitingProducer] = {}
        """Producers that wait for exclusive access."""

    def __len__(self) -> int:
        return len(self.handles)

    # Opening ------------------------------------------------------------------------------------------------------

    def create(self, command: ProducerCommand) -> None:
        number = command.producer_id
        known = self.handles.get(number)
        if known is not None:
            self._send_success(known, command.request_id, None)
            return
        if self.handles.is_busy(number):
            self._refuse(command, ServerError.SERVICE_NOT_READY, f"producer {number} is being opened or closed")
            return
        if len(self.handles) >= MAX_OPEN:
            self._refuse(command, ServerError.NOT_ALLOWED, f"a connection has {MAX_OPEN} producers at most")
            return
        try:
            mode = access_mode(command)
        except LayerError as failure:
            self._refuse(command, *error_code_of(failure))
        else:
            self._open(command, mode, self.handles.begin(number))

    def _refuse(self, command: ProducerCommand, code: ServerError, reason: str) -> None:
        what = f"producer {command.producer_name} of {command.topic}"
        self._session.refuse_opening(what, command.request_id, code, reason)

    def _open(self, command: ProducerCommand, mode: AccessMode, opening: Opening[WireProducer]) -> None:
        number, waiting = command.producer_id, self._context.waiting

        def opened(name: str, bundle: int, found: OpenedProducer | None) -> None:
            self._end_creating()
            if found is None:
                self._wait_again(opening)
            else:
                self._admit(command, mode, name, bundle, found, opening)

        def refused(code: ServerError, reason: str) -> None:
            self._end_creating()
            self._stop_waiting(number)
            if self.handles.failed(opening):
                self._refuse(command, code, reason)

        def here(bundle: int) -> None:
            name = str(TopicName.parse(command.topic))
            if not opening.is_required:
                self.handles.failed(opening)
                self._end_creating()
            elif mode is AccessMode.WAIT_FOR_EXCLUSIVE and number not in self._waiting:
                self._wait(command, name, begin, opening)
                self._end_creating()
            elif mode in _YIELDING and waiting.any_at(name):
                refused(_YIELDING[mode], f"producers wait for exclusive access to {name}: {mode.value} comes later")
            else:
                meter = self._session.meter()
                open_it = partial(open_producer, self._context.node, command, meter, operation_deadline)
                work = partial(opening.attempt, open_it)
                self._requests.begin(work, partial(opened, name, bundle), refused, topic=name)

        def begin() -> None:
            self._creating += 1
            allowed = partial(self._session.owners.require_this, command.topic, here, refused)
            rights, words = self._session.rights, _REFUSED
            rights.require_on(Requirement.PRODUCE, command.topic, words, allowed, refused)

        begin()

    def _admit(
        self,
        command: ProducerCommand,
        mode: AccessMode,
        name: str,
        bundle: int,
        found: OpenedProducer,
        opening: Opening[WireProducer],
    ) -> None:
        self._stop_waiting(command.producer_id)
        producer = self._wire_producer(opening, name, bundle, found)
        if not self.handles.opened(opening, producer):
            self._requests.close_aside(producer.close, topic=name)
            return
        if mode is AccessMode.EXCLUSIVE_WITH_FENCING:
            self._context.waiting.fence(name)
        _log.info("connection=%s %.300r is open", self._session.name, str(found.sender.outlet))
        self._context.policies.watch(found.sender.outlet.admitted.topic, producer)
        self._send_success(producer, command.request_id, found.schema_version)
        if self._context.sharing.elsewhere(bundle):
            self.follow()
        if self._context.tenants.follows_map:
            self.follow_tenants()
        self._check_rights_of(command.producer_id, producer)

    def _wire_producer(
        self, opening: Opening[WireProducer], name: str, bundle: int, found: OpenedProducer
    ) -> WireProducer:
        soon = self._context.soon
        callbacks = ProducerCallbacks(
            sent=self._flow.add_sends,
            answered=self._flow.answered,
            lost=lambda: soon(partial(self._lost, opening)),
            left=lambda: soon(partial(self._context.waiting.left, name)),
        )
        session = self._session
        generation = self._context.tenants.generation(name)
        return WireProducer(
            self._context.node, opening.number, found, session.transactions, session.writer, callbacks, bundle,
            generation,
        )  # fmt: skip

    def _send_success(self, producer: WireProducer, request_id: int, schema_version: bytes | None) -> None:
        self._replies.send(
            Type.PRODUCER_SUCCESS,
            request_id=request_id,
            producer_name=producer.sender.name,
            last_sequence_id=producer.sender.last_sequence_id(),
            topic_epoch=producer.topic_epoch,
            schema_version=schema_version or b"",  # Java's client requires the field
            producer_ready=True,
        )

    # Waiting for exclusive access ---------------------------------------------------------------------------------

    def _wait(
        self, command: ProducerCommand, topic: str, begin: Callable[[], None], opening: Opening[WireProducer]
    ) -> None:
        """Queue a producer. Its client gets one reply that the producer is not ready."""
        number, request_id = command.producer_id, command.request_id
        replied = False

        def queued() -> None:
            nonlocal replied
            if not replied:
                name = command.producer_name
                self._replies.send(
                    Type.PRODUCER_SUCCESS, request_id=request_id, producer_name=name, producer_ready=False
                )
            replied = True

        def fenced() -> None:
            self._give_up(opening)
            self._refuse(command, ServerError.PRODUCER_FENCED, f"a producer has taken {topic} from all others")

        waits = self._waiting[number] = WaitingProducer(topic, begin, queued, fenced)
        self._context.waiting.come(waits)

    def _wait_again(self, opening: Opening[WireProducer]) -> None:
        """The topic has other producers."""
        if opening.is_required:
            self._context.waiting.refused(self._waiting[opening.number])
        else:
            self.handles.failed(opening)

    def _stop_waiting(self, number: int) -> None:
        waits = self._waiting.pop(number, None)
        if waits is not None:
            self._context.waiting.leave(waits)

    def _give_up(self, opening: Opening[WireProducer]) -> None:
        """The client has closed the producer, or another producer has fenced it."""
        opening.is_required = False
        waits = self._waiting.get(opening.number)
        if waits is not None and not waits.is_attempting:
            self.handles.failed(opening)
        self._stop_waiting(opening.number)

    # Sending ------------------------------------------------------------------------------------------------------

    def send(self, command: SendCommand, frame: Frame) -> None:
        number = command.producer_id
        producer = self.handles.get(number)
        if producer is None:
            if number not in self.handles and number not in self._closed_ids:
                raise MalformedCommand(f"SEND of producer {number}, which was never opened")
            return  # the gateway has just closed it; as in Pulsar its client resends messages without a receipt
        self._flow.sent += 1
        left = producer.send(command, frame.entry)
        if left is None:
            if producer.is_limited:
                self._keep_rate(producer)
        elif isinstance(left, Left):
            self._finish(left)
        else:
            self._flow.sent -= 1
            self._retry_after(left, producer, command, frame)

    def send_repeated(self, producer_id: int, sequence_id: int, number: bytes, entry: bytes) -> bool:
        """Send an entry as `WireProducer.send_repeated`. False: the frame has to be parsed."""
        producer = self.handles.get(producer_id)
        if producer is None:
            return False
        self._flow.sent += 1  # first: the answer may come at once
        if producer.send_repeated(sequence_id, number, entry):
            if producer.is_limited:
                self._keep_rate(producer)
            return True
        self._flow.sent -= 1
        return False

    def _keep_rate(self, producer: WireProducer) -> None:
        """Hold the client back while the publish rate of the topic is exceeded: later frames of the connection wait,
        those of its other producers and consumers, too. As in Pulsar."""
        wait_s = producer.rate_wait_s()
        if wait_s <= 0:
            return
        producer.note_limited()
        self._flow.begin_work()

        def look() -> None:
            wait_s = producer.rate_wait_s()
            if wait_s <= 0 or producer.is_over() or self._flow.is_closed:
                self._reader.end_work()
            else:
                later(min(wait_s, _RATE_CHECK_S), look)

        later = self._context.loop.call_later
        later(min(wait_s, _RATE_CHECK_S), look)

    def _retry_after(
        self, first: Callable[[], None], producer: WireProducer, command: SendCommand, frame: Frame
    ) -> None:
        """Handle the frame again after `first`. Later frames wait."""
        self._flow.begin_work()

        def done(_: None) -> None:
            self._reader.end_work(again=frame)

        def failed(code: ServerError, reason: str) -> None:
            self._flow.sent += 1
            left = producer.refuse(command, code, reason)
            if left is None:
                self._reader.end_work()
            else:
                self._finish(left)

        self._requests.begin(first, done, failed)

    def _finish(self, left: Left) -> None:
        """Retry the rest of an entry until it is done. Later frames wait; other connections are served."""
        self._flow.begin_work()

        def retry(pause_s: float) -> None:
            if left.retry(closing=self._flow.is_closed):
                self._reader.end_work()
            else:
                later(pause_s, retry, min(2 * pause_s, _MAX_REST_RETRY_INTERVAL_S))

        later = self._context.loop.call_later
        later(_REST_RETRY_INTERVAL_S, retry, 2 * _REST_RETRY_INTERVAL_S)

    # Closing ------------------------------------------------------------------------------------------------------

    def close(self, command: CloseProducerCommand) -> None:
        number, request_id = command.producer_id, command.request_id
        producer = self.handles.get(number)
        if producer is None:
            opening = self.handles.give_up(number)
            if opening is not None:
                self._give_up(opening)
            self._replies.send(Type.SUCCESS, request_id=request_id)
            return
        self.handles.remove(number, producer)
        self._closed_ids.append(number)
        self._closing.append((producer, request_id))  # as in Pulsar it still counts for earlier PRODUCER requests
        self._begin_closes()

    def _end_creating(self) -> None:
        self._creating -= 1
        self._begin_closes()

    def _begin_closes(self) -> None:
        if self._creating:
            return
        closing, self._closing = self._closing, []
        for producer, request_id in closing:
            self._requests.begin_close(
                producer.close, self._replies.success(request_id), self._replies.failure(request_id),
                topic=producer.topic,
            )  # fmt: skip

    def _lost(self, opening: Opening[WireProducer]) -> None:
        producer = self.handles.lost(opening)
        if producer is not None:
            self._close_for_client(opening.number, producer)

    def _close_for_client(
        self, number: int, producer: WireProducer, on_done: Callable[[], None] = lambda: None
    ) -> None:
        """Close a producer, which its client then opens anew."""
        self._leave(number, producer)

        def closed(_: object) -> None:
            """CLOSE_PRODUCER follows the receipts of the producer's messages."""
            self.handles.left(number)
            self._replies.send(Type.CLOSE_PRODUCER, producer_id=number, request_id=ANY_REQUEST)
            on_done()

        self._requests.begin_close(producer.close, closed, lambda code, reason: closed(None), topic=producer.topic)

    def _leave(self, number: int, producer: WireProducer) -> None:
        self.handles.leave(number, producer)
        self._closed_ids.append(number)

    # The connection -----------------------------------------------------------------------------------------------

    def follow(self) -> None:
        """Move the producers of topics that another gateway serves."""
        for number, producer in self.handles.items():
            if url := self._context.sharing.elsewhere(producer.bundle):
                self._leave(number, producer)
                handle, left = self._handle(number, producer), partial(self.handles.left, number)
                self._session.moves.begin(handle, producer.close, url, left)

    def follow_tenants(self) -> None:
        """Move the producers of tenants that this cluster does not serve any more."""
        for number, producer in self.handles.items():
            if not self._context.tenants.of_topic(producer.topic).is_here:
                self._leave(number, producer)
                handle, left = self._handle(number, producer), partial(self.handles.left, number)
                self._session.moves.begin_with_tenant(handle, producer.close, left)

    @staticmethod
    def _handle(number: int, producer: WireProducer) -> Handle:
        return Handle(Resource.PRODUCER, number, str(producer.sender.outlet), producer.topic)

    def check_rights(self, namespaces: AbstractSet[str]) -> None:
        """Close the producers that permissions in these namespaces no longer allow."""
        if not self._session.rights.are_limited:
            return
        for number, producer in self.handles.items():
            if TopicName.parse(producer.topic).namespace_name in namespaces:
                self._check_rights_of(number, producer)

    def _check_rights_of(self, number: int, producer: WireProducer) -> None:
        if not self._session.rights.are_limited or self.handles.get(number) is not producer:
            return
        name = TopicName.parse(producer.topic)
        if not self._session.rights.still_allows(on_topic(Requirement.PRODUCE, name, _REFUSED)):
            _log.info("connection=%s producer of %s is closed: %s", self._session.name, name, _REFUSED)
            self._close_for_client(number, producer)

    def unload(self, topics: AbstractSet[str]) -> list[Future[None]]:
        """Have the client open its producers of these topics anew. Each future is settled when the client knows."""
        reported: list[Future[None]] = []
        for number, producer in self.handles.items():
            if producer.topic in topics:
                reported.append(Future())
                self._close_for_client(number, producer, partial(reported[-1].set_result, None))
        return reported

    def note_rates(self, now_s: float) -> None:
        for _, producer in self.handles.items():
            producer.meter.note(now_s)

    def end(self) -> Callable[[], None]:
        """The connection has ended: no producer is opened any more. Returns a function that closes the open ones."""
        left = self.handles.end()

        def close() -> None:
            for number in list(self._waiting):
                self._stop_waiting(number)
            for producer in [*left, *(each for each, _ in self._closing)]:
                self._requests.close_aside(producer.close, topic=producer.topic)
            self._closing.clear()

        return close

    COMMANDS: ClassVar[Commands] = {Type.PRODUCER: create, Type.CLOSE_PRODUCER: close}
