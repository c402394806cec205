"""Schemas of topics over REST."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from pulsar_on_kafka.broker.schema_registry.model import StoredSchema
from pulsar_on_kafka.exceptions import TopicNotFound
from pulsar_on_kafka.gateway.rest.request import RestError, RestRequest
from pulsar_on_kafka_schema_compat import UnreadableSchema

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
