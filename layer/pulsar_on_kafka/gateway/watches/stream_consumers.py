"""Handles the V5 consumers of one connection that share the segments of a topic: stream consumers, and checkpoint
consumers of a group. Source: Pulsar's ServerCnx, 5.0.1."""

from __future__ import annotations

import logging
from collections.abc import Callable
from collections.abc import Set as AbstractSet
from functools import partial
from typing import Any, ClassVar, Final

from pulsar_on_kafka.broker.node.role_rights import Operation, Requirement, on_topic
from pulsar_on_kafka.gateway.handlers.session import ClientSession
from pulsar_on_kafka.gateway.protocol.error_codes import error_code_of
from pulsar_on_kafka.gateway.protocol.request_queue import Commands, OnError
from pulsar_on_kafka.gateway.streams.stream_controller import StreamConsumer
from pulsar_on_kafka.gateway.streams.subscription_coordinator import SegmentAssignment
from pulsar_on_kafka_mapping.errors import MappingError
from pulsar_on_kafka_mapping.names.subscription_group import check_subscription_name
from pulsar_on_kafka_mapping.names.topic_name import TopicName
from pulsar_on_kafka_mapping.wire.command_types import (
    ScalableTopicSubscribeCommand,
    ScalableTopicUnsubscribeCommand,
)
from pulsar_on_kafka_mapping.wire.commands import ServerError, Type

_log: Final = logging.getLogger(__name__)

MAX_STREAM_CONSUMERS: Final = 1_000
"""Such consumers of one connection."""
_WORDS: Final = "Client is not authorized to ScalableTopicSubscribe"


class StreamConsumerHandler:
    """For the event loop. Memory: `MAX_STREAM_CONSUMERS` names.

    Both kinds of consumers may share the segments of one subscription, as in Pulsar.
    """

    def __init__(self, session: ClientSession, end: Callable[[str], None]) -> None:
        """`end` ends the connection, the only event upon which a client looks for another controller."""
        self._session = session
        self._controller = session.context.streams
        self._replies = session.replies
        self._requests = session.requests
        self._end = end
        self._open: dict[int, StreamConsumer] = {}

    def __len__(self) -> int:
        return len(self._open)

    def subscribe(self, command: ScalableTopicSubscribeCommand) -> None:
        refused = partial(self._refuse, command.request_id)
        if self._requests.is_full(refused):
            return
        if len(self._open) >= MAX_STREAM_CONSUMERS and command.consumer_id not in self._open:
            refused(ServerError.TOO_MANY_REQUESTS, f"a connection has {MAX_STREAM_CONSUMERS} stream consumers at most")
            return
        try:
            check_subscription_name(command.subscription)
        except MappingError as failure:
            refused(*error_code_of(failure))
            return
        here = partial(self._register, command, refused)
        allowed = partial(self._session.owners.require_this, command.topic, here, refused)
        self._session.rights.require_on(
            Requirement.CONSUME, command.topic, _WORDS, allowed, refused, command.subscription
        )

    def _refuse(self, request_id: int, code: ServerError, reason: str) -> None:
        _log.info("connection=%s a stream consumer is not registered: %.600r", self._session.name, reason)
        self._replies.send(Type.SCALABLE_TOPIC_SUBSCRIBE_RESPONSE, request_id=request_id, error=code, message=reason)

    def _register(self, command: ScalableTopicSubscribeCommand, refused: OnError, bundle: int) -> None:
        """This gateway is the controller."""
        number = command.consumer_id
        if (before := self._open.pop(number, None)) is not None:
            self._controller.disconnect(before)
        consumer = self._open[number] = StreamConsumer(
            TopicName.parse(command.topic), bundle, command.subscription, command.consumer_name,
            partial(self._send, number), self._end,
        )  # fmt: skip
        answer = self._requests.counted(_reply)

        def registered(assignment: SegmentAssignment) -> None:
            answer(
                partial(
                    self._replies.send,
                    Type.SCALABLE_TOPIC_SUBSCRIBE_RESPONSE,
                    request_id=command.request_id,
                    assignment=_assignment(assignment),
                )
            )
            self._check_rights_of(number, consumer)

        def failed(code: ServerError, reason: str) -> None:
            self._remove(number, consumer)
            answer(partial(refused, code, reason))

        self._controller.register(consumer, registered, failed)

    def _send(self, number: int, assignment: SegmentAssignment) -> None:
        self._replies.send(
            Type.SCALABLE_TOPIC_ASSIGNMENT_UPDATE, consumer_id=number, assignment=_assignment(assignment)
        )

    def _remove(self, number: int, consumer: StreamConsumer) -> None:
        if self._open.get(number) is consumer:
            del self._open[number]

    def unsubscribe(self, command: ScalableTopicUnsubscribeCommand) -> None:
        """The consumer leaves. SUCCESS for an unknown one, too, as Pulsar replies."""
        request_id = command.request_id
        consumer = self._open.pop(command.consumer_id, None)
        if consumer is None:
            self._replies.send(Type.SUCCESS, request_id=request_id)
            return
        answer = self._requests.counted(_reply)
        succeeded = partial(answer, partial(self._replies.send, Type.SUCCESS, request_id=request_id))
        self._controller.unregister(
            consumer, succeeded, lambda code, reason: answer(partial(self._replies.error, request_id, code, reason))
        )

    def check_rights(self, namespaces: AbstractSet[str]) -> None:
        """Consumers that permissions in these namespaces no longer allow leave: their segments go to the others."""
        for number, consumer in list(self._open.items()):
            if consumer.topic.namespace_name in namespaces:
                self._check_rights_of(number, consumer)

    def _check_rights_of(self, number: int, consumer: StreamConsumer) -> None:
        if self._session.rights.still_allows(_operation(consumer)) or self._open.get(number) is not consumer:
            return
        _log.info("connection=%s %s leaves: its role may not consume any more", self._session.name, consumer)
        del self._open[number]
        self._controller.unregister(consumer, _nothing, _ignore)

    def end(self) -> Callable[[], None]:
        """The connection has ended. Returns a function that disconnects its consumers."""
        left, self._open = list(self._open.values()), {}

        def disconnect() -> None:
            for consumer in left:
                self._controller.disconnect(consumer)

        return disconnect

    COMMANDS: ClassVar[Commands] = {
        Type.SCALABLE_TOPIC_SUBSCRIBE: subscribe,
        Type.SCALABLE_TOPIC_UNSUBSCRIBE: unsubscribe,
    }


def _operation(consumer: StreamConsumer) -> Operation:
    return on_topic(Requirement.CONSUME, consumer.topic, _WORDS, consumer.subscription)


def _assignment(assignment: SegmentAssignment) -> dict[str, Any]:
    """The assignment on the wire. No ranges of buckets: a segment has one consumer."""
    return {
        "layout_epoch": assignment.epoch,
        "segments": [
            {
                "segment_id": each.segment_id,
                "hash_start": each.hash_start,
                "hash_end": each.hash_end,
                "segment_topic": str(each.topic),
            }
            for each in assignment.segments
        ],
    }


def _reply(reply: Callable[[], None]) -> None:
    reply()


def _nothing() -> None:
    """No client waits for it."""


def _ignore(code: ServerError, reason: str) -> None:
    """The consumer's grace time removes it from the record instead."""
