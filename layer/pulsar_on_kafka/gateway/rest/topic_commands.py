"""Properties, compaction, truncation and termination of topics over REST. Source: Pulsar's `PersistentTopicsBase`."""

from __future__ import annotations

from typing import Any

from pulsar_on_kafka.gateway.handlers.lookups import partitions_of
from pulsar_on_kafka.gateway.rest.request import RestError, RestRequest
from pulsar_on_kafka_mapping.ids.native_message_id import NativeMessageId
from pulsar_on_kafka_mapping.names.topic_name import TopicName


def properties_in(body: object) -> dict[str, str]:
    """Properties in a body, none without one. Raises RestError."""
    if body is None:
        return {}
    if not isinstance(body, dict) or not all(isinstance(value, str) for value in body.values()):
        raise RestError(400, f"expected properties as a JSON object of text, got {body!r:.120}")
    return body


def properties(request: RestRequest) -> dict[str, str]:
    _require_persistent(request, "properties")
    return request.admin.topic_properties(request.topic)


def update_properties(request: RestRequest) -> None:
    _require_persistent(request, "properties")
    request.admin.update_topic_properties(request.topic, properties_in(request.json()))


def remove_property(request: RestRequest) -> None:
    _require_persistent(request, "properties")
    request.admin.remove_topic_property(request.topic, request.query.get("key", ""))


def compact(request: RestRequest) -> None:
    """Compact a topic, or one partition of it; done with the reply."""
    _require_persistent(request, "compaction")
    request.admin.compact(request.topic)


def compaction_status(request: RestRequest) -> dict[str, str]:
    """Pulsar's LongRunningProcessStatus of a topic, or of one partition."""
    _require_persistent(request, "compaction")
    name = TopicName.parse(request.topic)
    status = request.admin.compaction_status(str(name.base))
    compacted = name.partition in status if name.partition >= 0 else bool(status)
    return {"status": "SUCCESS" if compacted else "NOT_RUN", "lastError": ""}


def create_missed_partitions(request: RestRequest) -> None:
    """A partitioned topic here has all of its partitions. Raises RestError: the topic is not partitioned."""
    if not partitions_of(request.admin.node, request.topic, request.deadline(), may_be_made=False):
        raise RestError(404, f"Partitioned topic not found: {request.topic} has zero partitions")


def truncate(request: RestRequest) -> None:
    if not request.is_persistent:
        raise RestError(412, f"unsupport truncate: {request.topic} is not persistent")
    request.admin.truncate_topic(request.topic)


def trim(request: RestRequest) -> None:
    """Raises RestError: the maintenance of a service trims topics, not on request."""
    raise RestError(501, "topics are trimmed within a minute by pok serve, not on request (docs/gateway.md)")


def terminate(request: RestRequest) -> dict[str, Any]:
    """Terminate a topic without partitions; the id of its last message."""
    _require_persistent(request, "termination")
    name = TopicName.parse(request.topic)
    if name.partition >= 0:
        raise RestError(501, f"{name} is a partition: terminate all of {name.base} by POST .../terminate/partitions")
    if partitions_of(request.admin.node, request.topic, request.deadline(), may_be_made=False):
        raise RestError(405, "Termination of a partitioned topic is not allowed")
    return _id_body(request.admin.terminate_topic(request.topic)[0])


def terminate_partitioned(request: RestRequest) -> dict[str, dict[str, Any]]:
    """Terminate all partitions; the id of each one's last message."""
    _require_persistent(request, "termination")
    if not partitions_of(request.admin.node, request.topic, request.deadline(), may_be_made=False):
        raise RestError(
            405,
            "Termination of a non-partitioned topic is not allowed using partitioned-terminate,"
            " please use terminate commands",
        )
    return {str(p): _id_body(found) for p, found in request.admin.terminate_topic(request.topic).items()}


def _id_body(found: NativeMessageId) -> dict[str, Any]:
    return {"ledgerId": found.ledger_id(), "entryId": found.entry_id(), "partitionIndex": found.partition()}


def _require_persistent(request: RestRequest, what: str) -> None:
    if not request.is_persistent:
        raise RestError(405, f"{what} of a non-persistent topic is not allowed: {request.topic}")
