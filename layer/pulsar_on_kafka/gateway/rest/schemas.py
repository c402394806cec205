"""Schemas of topics over REST."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from pulsar_on_kafka.broker.schema_registry.model import StoredSchema
from pulsar_on_kafka.exceptions import TopicNotFound
from pulsar_on_kafka.gateway.rest.request import RestError, RestRequest
from pulsar_on_kafka_schema_compat import SchemaInfo, SchemaType, UnreadableSchema
from pulsar_on_kafka_schema_compat.key_value import from_rest_form

_T = TypeVar("_T")


def schema(request: RestRequest) -> dict[str, Any]:
    """The latest schema, or the requested version."""
    number = request.names.get("version")
    if number is not None and not number.isdecimal():
        raise RestError(400, f"a schema's version is a number, got {number!r:.60}")
    version = None if number is None else int(number)
    return _schema_body(
        _of_either_domain(request, lambda topic: request.admin.get_schema_info_with_version(topic, version))
    )


def schemas(request: RestRequest) -> dict[str, Any]:
    """All schemas that are not deleted, the oldest first."""
    found = _of_either_domain(request, request.admin.get_all_schemas)
    return {"getSchemaResponses": [_schema_body(each) for each in found]}


def register(request: RestRequest) -> dict[str, Any]:
    """Register a schema, which may create the topic, and give its version."""
    return {"version": {"version": request.admin.create_schema(request.topic, _payload(request))}}


def delete(request: RestRequest) -> dict[str, Any]:
    """Delete the topic's schemas, with `force` also their definitions. -1 where there were none."""
    force = request.flag("force")
    deleted = _of_either_domain(request, lambda topic: request.admin.delete_schema(topic, force=force))
    return {"version": -1 if deleted is None else deleted}


def compatibility(request: RestRequest) -> dict[str, Any]:
    """Whether the topic's strategy accepts a schema."""
    info = _payload(request)
    result, strategy = _of_either_domain(
        request,
        lambda topic: (
            request.admin.test_compatibility(topic, info),
            request.admin.get_schema_compatibility_strategy(topic, applied=True),
        ),
    )
    return {"compatibility": result.is_compatible, "schemaCompatibilityStrategy": strategy.name}


def version_of(request: RestRequest) -> dict[str, Any]:
    """The version of a schema. Raises RestError: the topic does not have it."""
    info = _payload(request)
    found = _of_either_domain(request, lambda topic: request.admin.get_version_by_schema(topic, info))
    if found is None:
        raise RestError(404, f"topic {request.topic} does not have this schema")
    return {"version": found}


def metadata(request: RestRequest) -> dict[str, Any]:
    """Versions and their places: Kafka's offset stands for the entry, there are no ledgers."""
    index = [
        {"ledgerId": -1, "entryId": each.kafka_offset, "version": each.version.number}
        for each in _of_either_domain(request, request.admin.list_schema_versions)
    ]
    if not index:
        raise RestError(404, f"topic {request.topic} has no schema")
    return {"info": index[-1], "index": index}


def _payload(request: RestRequest) -> SchemaInfo:
    """The schema in a body, Pulsar's `PostSchemaPayload`. Raises RestError."""
    body = request.json()
    if not isinstance(body, dict) or not isinstance(body.get("schema", ""), str):
        raise RestError(400, f"expected type, schema and properties, got {body!r:.120}")
    kind, text = body.get("type"), body.get("schema", "")
    if not isinstance(kind, str) or kind not in SchemaType.__members__:
        raise RestError(422, f"type is {kind!r:.60}, expected one of {', '.join(SchemaType.__members__)}")
    properties = request.texts_in("properties of a schema", body.get("properties"))
    try:
        definition = from_rest_form(text) if kind == SchemaType.KEY_VALUE.name else text.encode()
    except (UnreadableSchema, UnicodeEncodeError) as failure:
        raise RestError(422, str(failure)) from failure
    return SchemaInfo(SchemaType[kind], definition, request.names["topic"], properties)


def _schema_body(found: StoredSchema) -> dict[str, Any]:
    try:
        return found.rest()
    except UnreadableSchema as failure:
        raise RestError(500, f"schema version {found.version.number} cannot be shown: {failure}") from failure


def _of_either_domain(request: RestRequest, get: Callable[[str], _T]) -> _T:
    """Schemas have no domain in Pulsar: the persistent topic counts, if it has a schema."""
    try:
        return get(request.topic)
    except TopicNotFound as none:
        try:
            return get(f"non-{request.topic}")
        except TopicNotFound:
            raise none from none.__cause__
