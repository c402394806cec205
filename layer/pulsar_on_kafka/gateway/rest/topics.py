"""Topics, their partitions and subscriptions over REST."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeVar

from pulsar_on_kafka.broker.schema_registry.model import StoredSchema
from pulsar_on_kafka.exceptions import TopicNotFound
from pulsar_on_kafka.gateway.handlers.client_moves import TLS
from pulsar_on_kafka.gateway.handlers.lookups import NON_PERSISTENT, partitions_of, topics_of
from pulsar_on_kafka.gateway.rest.request import RestError, RestRequest
from pulsar_on_kafka_mapping.ids.native_message_id import NativeMessageId
from pulsar_on_kafka_mapping.names.topic_name import TopicName
from pulsar_on_kafka_schema_compat import UnreadableSchema

_T = TypeVar("_T")
_LATEST: Final = 2**63 - 1


def lookup(asked: RestRequest) -> dict[str, Any]:
    """Where a topic is served. Fields of what there is not are null."""
    name = TopicName.parse(asked.topic)
    asked.admin.node.namespaces.require(name.namespace_name, asked.deadline())
    broker, web = asked.cluster.serving(str(name), asked.deadline()), asked.cluster.web_url()
    if broker is None:
        raise RestError(503, f"no gateway serves topic {name} now: look it up again")
    encrypted = broker.startswith(TLS)
    return {
        "brokerUrl": None if encrypted else broker,
        "brokerUrlTls": broker if encrypted else None,
        "httpUrl": None if encrypted else web,
        "httpUrlTls": web if encrypted else None,
        "nativeUrl": None if encrypted else broker,
    }


def topics(asked: RestRequest) -> list[str]:
    """As in Pulsar the partitions of a partitioned topic, not itself."""
    mode = 0 if asked.is_persistent else NON_PERSISTENT
    return topics_of(asked.admin.node, asked.namespace, mode, asked.deadline())


def partitioned_topics(asked: RestRequest) -> list[str]:
    asked.admin.node.namespaces.require(asked.namespace, asked.deadline())
    records = asked.admin.node.topics.list(asked.namespace, asked.deadline())
    return [
        each.name
        for each in records
        if each.partitions and TopicName.parse(each.name).is_persistent is asked.is_persistent
    ]


def partitions(asked: RestRequest) -> dict[str, Any]:
    may_be_made = asked.flag("checkAllowAutoCreation")
    return {"partitions": partitions_of(asked.admin.node, asked.topic, asked.deadline(), may_be_made=may_be_made)}


def _wanted_partitions(asked: RestRequest) -> int:
    said = asked.json()
    if isinstance(said, dict):
        asked.nothing_in("properties of a topic", said.get("properties"))
        said = said.get("partitions")
    if not isinstance(said, int) or isinstance(said, bool):
        raise RestError(400, f"expected a number of partitions, got {said!r:.120}")
    if said < 1:
        raise RestError(406, f"partitions must be 1 to 8192, got {said}")
    return said


def make_partitioned(asked: RestRequest) -> None:
    asked.admin.create_partitioned_topic(asked.topic, _wanted_partitions(asked))


def grow(asked: RestRequest) -> None:
    asked.admin.update_partitions(asked.topic, _wanted_partitions(asked))


def make(asked: RestRequest) -> None:
    asked.nothing_in("properties of a topic", asked.json())
    asked.admin.create_topic(asked.topic)


def _delete(asked: RestRequest, *, partitioned: bool) -> None:
    found = partitions_of(asked.admin.node, asked.topic, asked.deadline(), may_be_made=False)
    if bool(found) is not partitioned:
        kind, path = ("no partitions", "") if partitioned else (f"{found} partitions", "/partitions")
        raise RestError(412, f"topic {asked.topic} has {kind}: DELETE .../{asked.names['topic']}{path}")
    if asked.flag("force"):
        delete_by_force(asked, asked.topic)
    else:
        asked.admin.delete_topic(asked.topic, with_subscriptions=True)


def delete_by_force(asked: RestRequest, topic: str) -> None:
    """Clients of the gateway that is asked open what they have of the topic anew at once; those of others hear it as
    of a deletion by anybody else (`WireProducer.follow_policies`, heartbeats of consumers)."""
    names = {topic, *asked.admin.list_partitions(topic)}
    asked.admin.delete_topic(topic, force=True)
    asked.cluster.unload(names, asked.deadline())


def delete(asked: RestRequest) -> None:
    _delete(asked, partitioned=False)


def delete_partitioned(asked: RestRequest) -> None:
    _delete(asked, partitioned=True)


def unload(asked: RestRequest) -> None:
    """Of the clients of the gateway that is asked. Raises RestError: there is no such partition."""
    name = TopicName.parse(asked.topic)
    names = asked.admin.list_partitions(str(name.base))
    if name.partition >= 0 and str(name) not in names:
        raise RestError(404, f"topic {name.base} has {len(names)} partitions, none is {name.partition}")
    asked.cluster.unload({str(name)} if name.partition >= 0 else {str(name), *names}, asked.deadline())


def subscriptions(asked: RestRequest) -> list[str]:
    return asked.admin.list_subscriptions(asked.topic)


def make_subscription(asked: RestRequest) -> None:
    """At the topic's end, unless the body names `earliest` or an id. As in Pulsar it makes the topic."""
    topic, name, said = asked.topic, asked.names["subscription"], asked.json()
    if isinstance(said, dict):
        asked.nothing_in("properties of a subscription", said.get("properties"))
    place = _place(said)
    asked.admin.node.topics.open(TopicName.parse(topic), asked.deadline())
    asked.admin.create_subscription(topic, name, from_earliest=place == NativeMessageId.earliest)
    if place not in (NativeMessageId.earliest, NativeMessageId.latest):
        asked.admin.reset_cursor(topic, name, message_id=place)
    if asked.flag("replicated"):
        asked.admin.replicate_subscription(topic, name)


def _place(said: object) -> NativeMessageId:
    if said in (None, "latest"):
        return NativeMessageId.latest
    if said == "earliest":
        return NativeMessageId.earliest
    named: dict[str, Any] = said if isinstance(said, dict) else {"ledgerId": None}
    numbers = [named.get(name, -1) for name in ("ledgerId", "entryId", "partitionIndex")]
    if not all(isinstance(each, int) for each in numbers):
        raise RestError(400, f"expected ledgerId, entryId and partitionIndex, latest or earliest, got {said!r:.120}")
    ledger, entry, partition = numbers
    if ledger == _LATEST:
        return NativeMessageId.latest
    return NativeMessageId.earliest if ledger < 0 else NativeMessageId(partition, ledger, entry, -1)


def delete_subscription(asked: RestRequest) -> None:
    asked.admin.unsubscribe(asked.topic, asked.names["subscription"], force=asked.flag("force"))


def schema(asked: RestRequest) -> dict[str, Any]:
    """The latest schema, or the version that is named."""
    said = asked.names.get("version")
    if said is not None and not said.isdecimal():
        raise RestError(400, f"a schema's version is a number, got {said!r:.60}")
    version = None if said is None else int(said)
    return _told(_of_either_domain(asked, lambda topic: asked.admin.get_schema_info_with_version(topic, version)))


def schemas(asked: RestRequest) -> dict[str, Any]:
    """All live ones, the oldest first."""
    found = _of_either_domain(asked, asked.admin.get_all_schemas)
    return {"getSchemaResponses": [_told(each) for each in found]}


def _told(found: StoredSchema) -> dict[str, Any]:
    try:
        return found.rest()
    except UnreadableSchema as failure:
        raise RestError(500, f"schema version {found.version.number} cannot be told: {failure}") from failure


def _of_either_domain(asked: RestRequest, get: Callable[[str], _T]) -> _T:
    """A topic is named without its domain here, as Pulsar keeps schemas: the persistent one counts, if it has any."""
    try:
        return get(asked.topic)
    except TopicNotFound as none:
        try:
            return get(f"non-{asked.topic}")
        except TopicNotFound:
            raise none from none.__cause__
