"""Cursors and properties of subscriptions over REST."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from pulsar_on_kafka import exceptions
from pulsar_on_kafka.gateway.handlers.lookups import partitions_of
from pulsar_on_kafka.gateway.rest.request import RestError, RestRequest
from pulsar_on_kafka.gateway.rest.topic_commands import properties_in
from pulsar_on_kafka_mapping.ids.native_message_id import NativeMessageId
from pulsar_on_kafka_mapping.names.topic_name import TopicName

_LATEST: Final = 2**63 - 1
_NOT_ISSUED: Final = (
    "Expire message by {by} not issued on topic {topic} for subscription {subscription} due to ongoing message "
    "expiration not finished or {reason}"
)
_CAUGHT_UP: Final = (
    "subscription almost catch up. If it's performed on a partitioned topic operation might succeeded on other "
    "partitions, please check stats of individual partition."
)


def place_of(body: object) -> NativeMessageId:
    """A message id in JSON, `earliest` or `latest` (None means latest). Raises RestError."""
    if body in (None, "latest"):
        return NativeMessageId.latest
    if body == "earliest":
        return NativeMessageId.earliest
    named: dict[str, Any] = body if isinstance(body, dict) else {"ledgerId": None}
    numbers = [named.get(name, -1) for name in ("partitionIndex", "ledgerId", "entryId", "batchIndex")]
    if not all(isinstance(each, int) for each in numbers):
        raise RestError(400, f"expected ledgerId, entryId and partitionIndex, latest or earliest, got {body!r:.120}")
    partition, ledger, entry, batch_index = numbers
    if ledger == _LATEST:
        return NativeMessageId.latest
    return NativeMessageId.earliest if ledger < 0 else NativeMessageId(partition, ledger, entry, batch_index)


def check_persistent(request: RestRequest, reason: str = "Operation not allowed on non-persistent topic") -> None:
    """Raises RestError with the reason: the topic is not persistent."""
    if not request.is_persistent:
        raise RestError(405, reason)


def check_one_partition(request: RestRequest, reason: str, status: int = 405) -> int:
    """The partition in the topic's name, -1 without one. Raises RestError with the reason: it is the name of a
    partitioned topic."""
    if partitions_of(request.admin.node, request.topic, request.deadline(), may_be_made=False):
        raise RestError(status, reason)
    return TopicName.parse(request.topic).partition


def reset_to_time(request: RestRequest) -> None:
    check_persistent(request)
    timestamp_ms = request.number("timestamp")
    request.admin.reset_cursor(request.topic, request.names["subscription"], timestamp_ms=timestamp_ms)


def reset_to_id(request: RestRequest) -> None:
    check_persistent(request)
    check_one_partition(request, "Reset-cursor at position is not allowed for partitioned-topic")
    place, excluded = _position(request)
    subscription = request.names["subscription"]
    try:
        request.admin.reset_cursor(request.topic, subscription, message_id=place, excluded=excluded)
    except exceptions.InvalidMessage as foreign:
        raise RestError(412, f"Unable to find position for position specified: {foreign}") from foreign


def skip(request: RestRequest) -> None:
    check_persistent(request, "Skipping messages on a non-persistent topic is not allowed")
    check_one_partition(request, "Skip messages on a partitioned topic is not allowed")
    request.admin.skip(request.topic, request.names["subscription"], request.number("count"))


def skip_all(request: RestRequest) -> None:
    check_persistent(request)
    request.admin.clear_backlog(request.topic, request.names["subscription"])


def expire(request: RestRequest) -> None:
    """Expire what is older than a number of seconds."""
    check_persistent(request, "Expire messages on a non-persistent topic is not allowed")
    _expire(request, request.names["subscription"], _named_partitions(request))


def expire_everywhere(request: RestRequest) -> None:
    """The same for all subscriptions. Each is tried before the first refusal is the reply."""
    check_persistent(request, "Expire messages for all subscriptions on a non-persistent topic is not allowed")
    refused: list[RestError] = []
    name, partitions = TopicName.parse(request.topic), _named_partitions(request)
    for subscription in request.admin.list_subscriptions(str(name.base)):
        try:
            _expire(request, subscription, partitions)
        except RestError as failure:
            refused.append(failure)
    if refused:
        raise refused[0]


def _named_partitions(request: RestRequest) -> Sequence[int]:
    """The partitions that the name of the topic stands for."""
    partitions = partitions_of(request.admin.node, request.topic, request.deadline(), may_be_made=False)
    partition = TopicName.parse(request.topic).partition
    return [partition] if partition >= 0 else range(max(1, partitions))


def _expire(request: RestRequest, subscription: str, partitions: Sequence[int]) -> None:
    expired = request.admin.expire_messages(request.topic, subscription, older_than_s=request.number("seconds"))
    if any(each not in expired for each in partitions):
        raise RestError(409, _not_issued(request, subscription, "timestamp", _CAUGHT_UP))


def expire_to_id(request: RestRequest) -> None:
    """Expire everything up to and including a message id."""
    check_persistent(request, "Expire messages on a non-persistent topic is not allowed")
    partition = check_one_partition(request, "Expire message at position is not supported for partitioned-topic")
    place, excluded = _position(request)
    if place.partition() != partition:
        raise RestError(
            412,
            "Invalid parameter for expire message by position, partition index of passed in message position doesn't "
            "match partition index for the topic",
        )
    subscription = request.names["subscription"]
    try:
        expired = request.admin.expire_messages(request.topic, subscription, message_id=place, excluded=excluded)
    except exceptions.InvalidMessage:
        expired = {}
    if not expired:
        raise RestError(409, _not_issued(request, subscription, "position", "invalid message position provided."))


def _not_issued(request: RestRequest, subscription: str, by: str, reason: str) -> str:
    return _NOT_ISSUED.format(by=by, topic=request.topic, subscription=subscription, reason=reason)


def _position(request: RestRequest) -> tuple[NativeMessageId, bool]:
    """The id in a body of Pulsar's ResetCursorData, and whether the message itself is excluded. Java calls that
    `excluded`, other clients `isExcluded`."""
    body = request.json()
    place = place_of(body)
    named = [body.get(name, False) for name in ("excluded", "isExcluded")] if isinstance(body, dict) else []
    if not all(isinstance(each, bool) for each in named):
        raise RestError(400, f"excluded is {named!r:.60}, expected true or false")
    return place, any(named)


def properties(request: RestRequest) -> dict[str, str]:
    check_persistent(request)
    return request.admin.subscription_properties(request.topic, request.names["subscription"])


def set_properties(request: RestRequest) -> None:
    check_persistent(request)
    found = properties_in(request.json())
    request.admin.update_subscription_properties(request.topic, request.names["subscription"], found)


def replicated(request: RestRequest) -> dict[str, bool]:
    """Whether a subscription is replicated, by partition of the topic."""
    check_persistent(request)
    name = TopicName.parse(request.topic)
    found = request.admin.subscription_stats(str(name.base), request.names["subscription"])
    names = [str(name)] if name.partition >= 0 else request.admin.list_partitions(str(name))
    return dict.fromkeys(names, found.replicated)


def set_replicated(request: RestRequest) -> None:
    """A partition's subscription is replicated with those of the other partitions."""
    check_persistent(request)
    enabled = request.json()
    if not isinstance(enabled, bool):
        raise RestError(400, f"expected true or false, got {enabled!r:.60}")
    topic, subscription = str(TopicName.parse(request.topic).base), request.names["subscription"]
    if enabled:
        request.admin.replicate_subscription(topic, subscription)
    else:
        request.admin.stop_replicating_subscription(topic, subscription)
