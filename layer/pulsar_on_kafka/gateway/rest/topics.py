"""Topics, their partitions and subscriptions over REST."""

from __future__ import annotations

from typing import Any

from pulsar_on_kafka.broker.lookup.gateway_urls import GatewayUrls
from pulsar_on_kafka.gateway.handlers.client_moves import TLS
from pulsar_on_kafka.gateway.handlers.lookups import NON_PERSISTENT, partitions_of, topics_of
from pulsar_on_kafka.gateway.rest.cursors import place_of
from pulsar_on_kafka.gateway.rest.request import RestError, RestRequest
from pulsar_on_kafka.gateway.rest.topic_commands import properties_in
from pulsar_on_kafka_mapping.ids.native_message_id import NativeMessageId
from pulsar_on_kafka_mapping.names.topic_name import TopicName


def lookup(request: RestRequest) -> dict[str, Any]:
    """The gateway that serves a topic. Fields without a meaning here are null."""
    name = TopicName.parse(request.topic)
    urls = request.cluster.tenants.of(name.tenant).urls
    if urls.serves:
        return urls.lookup_data()
    request.admin.node.namespaces.require(name.namespace_name, request.deadline())
    broker, web = request.cluster.serving(str(name), request.deadline()), request.cluster.web_url()
    if broker is None:
        raise RestError(503, f"no gateway serves topic {name} now: look it up again")
    here = GatewayUrls("", broker, web) if broker.startswith(TLS) else GatewayUrls(broker, "", web)
    return here.lookup_data()


def topics(request: RestRequest) -> list[str]:
    """The topics of a namespace. As in Pulsar a partitioned topic is listed by its partitions."""
    mode = 0 if request.is_persistent else NON_PERSISTENT
    return topics_of(request.admin.node, request.namespace, mode, request.deadline())


def partitioned_topics(request: RestRequest) -> list[str]:
    request.admin.node.namespaces.require(request.namespace, request.deadline())
    records = request.admin.node.topics.list(request.namespace, request.deadline())
    return [
        each.name
        for each in records
        if each.partitions and TopicName.parse(each.name).is_persistent is request.is_persistent
    ]


def partitions(request: RestRequest) -> dict[str, Any]:
    may_be_made = request.flag("checkAllowAutoCreation")
    return {"partitions": partitions_of(request.admin.node, request.topic, request.deadline(), may_be_made=may_be_made)}


def _requested_partitions(body: object) -> int:
    if not isinstance(body, int) or isinstance(body, bool):
        raise RestError(400, f"expected a number of partitions, got {body!r:.120}")
    if body < 1:
        raise RestError(406, f"partitions must be 1 to 8192, got {body}")
    return body


def make_partitioned(request: RestRequest) -> None:
    body, properties = request.json(), dict[str, str]()
    if isinstance(body, dict):  # Pulsar's PartitionedTopicMetadata
        properties, body = properties_in(body.get("properties")), body.get("partitions")
    request.admin.create_partitioned_topic(request.topic, _requested_partitions(body), properties=properties)


def grow(request: RestRequest) -> None:
    request.admin.update_partitions(request.topic, _requested_partitions(request.json()))


def make(request: RestRequest) -> None:
    request.admin.create_topic(request.topic, properties=properties_in(request.json()))


def _delete(request: RestRequest, *, partitioned: bool) -> None:
    found = partitions_of(request.admin.node, request.topic, request.deadline(), may_be_made=False)
    if bool(found) is not partitioned:
        kind, path = ("no partitions", "") if partitioned else (f"{found} partitions", "/partitions")
        raise RestError(412, f"topic {request.topic} has {kind}: DELETE .../{request.names['topic']}{path}")
    if request.flag("force"):
        delete_by_force(request, request.topic)
    else:
        request.admin.delete_topic(request.topic, with_subscriptions=True)


def delete_by_force(request: RestRequest, topic: str) -> None:
    """Delete a topic. Clients of this gateway open their producers and consumers anew at once. Clients of others notice
    the deletion later (`WireProducer.follow_policies`, heartbeats of consumers)."""
    names = {topic, *request.admin.list_partitions(topic)}
    request.admin.delete_topic(topic, force=True)
    request.cluster.unload(names, request.deadline())


def delete(request: RestRequest) -> None:
    _delete(request, partitioned=False)


def delete_partitioned(request: RestRequest) -> None:
    _delete(request, partitioned=True)


def unload(request: RestRequest) -> None:
    """Unload the topic for clients of this gateway. Raises RestError: the topic has no such partition."""
    name = TopicName.parse(request.topic)
    names = request.admin.list_partitions(str(name.base))
    if name.partition >= 0 and str(name) not in names:
        raise RestError(404, f"topic {name.base} has {len(names)} partitions, none is {name.partition}")
    request.cluster.unload({str(name)} if name.partition >= 0 else {str(name), *names}, request.deadline())


def subscriptions(request: RestRequest) -> list[str]:
    return request.admin.list_subscriptions(request.topic)


def make_subscription(request: RestRequest) -> None:
    """Create a subscription at the topic's end, unless the body has `earliest` or an id. As in Pulsar this creates the
    topic."""
    topic, name, body = request.topic, request.names["subscription"], request.json()
    properties = properties_in(body.get("properties") if isinstance(body, dict) else None)
    place = place_of(body)
    request.admin.node.topics.open(TopicName.parse(topic), request.deadline())
    from_earliest = place == NativeMessageId.earliest
    request.admin.create_subscription(topic, name, from_earliest=from_earliest, properties=properties)
    if place not in (NativeMessageId.earliest, NativeMessageId.latest):
        entry = NativeMessageId(place.partition(), place.ledger_id(), place.entry_id(), -1)  # as in Pulsar
        request.admin.reset_cursor(topic, name, message_id=entry)
    if request.flag("replicated"):
        request.admin.replicate_subscription(str(TopicName.parse(topic).base), name)


def delete_subscription(request: RestRequest) -> None:
    request.admin.unsubscribe(request.topic, request.names["subscription"], force=request.flag("force"))
