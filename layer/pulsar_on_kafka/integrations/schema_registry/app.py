"""Confluent's REST API of schemas: routes and replies."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Any, Final

import orjson
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.base.errors import DeadlineExceeded, LayerError
from pulsar_on_kafka.integrations.schema_registry.access import RegistryAccess
from pulsar_on_kafka.integrations.schema_registry.errors import (
    INVALID_SCHEMA,
    STORE_ERROR,
    TIMED_OUT,
    RegistryError,
    invalid_schema,
    read_only,
    reason_of,
)
from pulsar_on_kafka.integrations.schema_registry.posted_schemas import MAX_POSTED_BYTES, PostedSchema
from pulsar_on_kafka.integrations.schema_registry.registry_face import RegistryFace
from pulsar_on_kafka.integrations.schema_registry.subjects import SubjectVersion, page_of
from pulsar_on_kafka_mapping.errors import MappingError
from pulsar_on_kafka_schema_compat import UnreadableSchema

_log: Final = logging.getLogger(__name__)

MEDIA_TYPE: Final = "application/vnd.schemaregistry.v1+json"
REPLY_S: Final = 8.0
"""The longest wait for Kafka; then the reply is 500 with 50002."""
_EVERY_CONTEXT: Final = ":*:"
_TRUE: Final = frozenset({"true", "1"})


class FaceHolder:
    """The face of a cluster, as soon as the cluster is reached. `failure` is why it is not."""

    def __init__(self) -> None:
        self.face: RegistryFace | None = None
        self.failure = "it is being connected to"

    def connected(self) -> RegistryFace:
        """Raises RegistryError before."""
        if self.face is None:
            raise RegistryError(STORE_ERROR, f"Kafka is not reached: {self.failure}")
        return self.face


class Question:
    """One request: its names, parameters, body and deadline."""

    def __init__(self, face: RegistryFace, request: Request, body: bytes = b"") -> None:
        self.face = face
        self.deadline = Deadline.after(REPLY_S)
        self._request = request
        self._body = body

    def name(self, part: str) -> str:
        return str(self._request.path_params[part])

    def name_or_none(self, part: str) -> str | None:
        return self.name(part) if part in self._request.path_params else None

    def flag(self, name: str) -> bool:
        return self._request.query_params.get(name, "").lower() in _TRUE

    def text(self, name: str) -> str:
        return self._request.query_params.get(name, "")

    def page(self, found: list[Any]) -> list[Any]:
        return page_of(found, self._integer("offset", 0), self._integer("limit", -1))

    def _integer(self, name: str, default: int) -> int:
        text = self._request.query_params.get(name, "")
        try:
            return max(-1, int(text)) if text else default
        except ValueError:
            raise RegistryError(400, f"{name} is {text!r:.60}, expected an integer") from None

    def posted(self) -> PostedSchema:
        return PostedSchema.parse(self._body)

    def id_version(self) -> SubjectVersion:
        """The version with the integer id of the address."""
        text = self.name("id")
        number = int(text) if text.isascii() and text.isdecimal() and len(text) < 12 else 0
        return self.face.with_id(number, self.deadline)


def _subjects(question: Question) -> Any:
    deleted_only = question.flag("deletedOnly") or question.flag("deleted_only")  # confluent-kafka's name
    found = question.face.subjects(question.deadline, deleted=question.flag("deleted") or deleted_only)
    if deleted_only:
        live = set(question.face.subjects(question.deadline))
        found = [each for each in found if each not in live]
    prefix = question.text("subjectPrefix").removeprefix(_EVERY_CONTEXT)
    return question.page([each for each in found if each.startswith(prefix)])


def _versions(question: Question) -> Any:
    found = question.face.versions(question.name("subject"), question.deadline, deleted=question.flag("deleted"))
    return question.page([each.number for each in found])


def _version(question: Question) -> Any:
    return _of_version(question).rest()


def _version_schema(question: Question) -> Any:
    return _as_written(_of_version(question))


def _referenced_by(question: Question) -> Any:
    _of_version(question)
    return []


def _of_version(question: Question) -> SubjectVersion:
    return question.face.version(
        question.name("subject"), question.name("version"), question.deadline, deleted=question.flag("deleted")
    )


def _as_written(version: SubjectVersion) -> bytes:
    return version.text().encode()


def _look_up(question: Question) -> Any:
    return question.face.look_up(
        question.name("subject"), question.posted(), question.deadline, deleted=question.flag("deleted")
    ).rest()


def _compatibility(question: Question) -> Any:
    number, posted = question.name_or_none("version"), question.posted()
    reasons = question.face.incompatibilities(question.name("subject"), number, posted, question.deadline)
    return {"is_compatible": not reasons, **({"messages": reasons} if question.flag("verbose") else {})}


def _id_versions(question: Question) -> Any:
    version = question.id_version()
    return [{"subject": str(version.subject), "version": version.number}]


def _guid_ids(question: Question) -> Any:
    found = question.face.with_guid(question.name("guid"), question.deadline)
    return [{"context": ".", "id": each.id} for each in found]


QUESTIONS: Final[tuple[tuple[str, str, Callable[[Question], Any]], ...]] = (
    ("GET", "/", lambda question: {}),
    ("GET", "/contexts", lambda question: ["."]),
    ("GET", "/subjects", _subjects),
    ("POST", "/subjects/{subject}", _look_up),
    ("GET", "/subjects/{subject}/versions", _versions),
    ("GET", "/subjects/{subject}/versions/{version}", _version),
    ("GET", "/subjects/{subject}/versions/{version}/schema", _version_schema),
    ("GET", "/subjects/{subject}/versions/{version}/referencedby", _referenced_by),
    ("GET", "/schemas/types", lambda question: ["AVRO", "JSON", "PROTOBUF"]),
    ("GET", "/schemas/ids/{id}", lambda question: question.id_version().schema_rest()),
    ("GET", "/schemas/ids/{id}/schema", lambda question: _as_written(question.id_version())),
    ("GET", "/schemas/ids/{id}/versions", _id_versions),
    ("GET", "/schemas/ids/{id}/subjects", lambda question: [str(question.id_version().subject)]),
    (
        "GET",
        "/schemas/guids/{guid}",
        lambda question: question.face.with_guid(question.name("guid"), question.deadline)[0].schema_rest(),
    ),
    ("GET", "/schemas/guids/{guid}/ids", _guid_ids),
    ("POST", "/compatibility/subjects/{subject}/versions", _compatibility),
    ("POST", "/compatibility/subjects/{subject}/versions/{version}", _compatibility),
    ("GET", "/config", lambda question: {"compatibilityLevel": question.face.level(None, question.deadline)}),
    (
        "GET",
        "/config/{subject}",
        lambda question: {"compatibilityLevel": question.face.level(question.name("subject"), question.deadline)},
    ),
    ("GET", "/mode", lambda question: {"mode": "READONLY"}),
    ("GET", "/mode/{subject}", lambda question: {"mode": "READONLY"}),
)
"""Reading requests. Each runs in a thread of Starlette's pool, 40 at most."""
WRITES: Final[tuple[tuple[str, str], ...]] = (
    ("POST", "/subjects/{subject}/versions"),
    ("DELETE", "/subjects/{subject}"),
    ("DELETE", "/subjects/{subject}/versions/{version}"),
    ("PUT", "/config"),
    ("DELETE", "/config"),
    ("PUT", "/config/{subject}"),
    ("DELETE", "/config/{subject}"),
    ("PUT", "/mode"),
    ("PUT", "/mode/{subject}"),
    ("DELETE", "/mode/{subject}"),
)
"""Writing requests, which get 42205."""


def registry_app(holder: FaceHolder, access: RegistryAccess) -> ASGIApp:
    """The API, for permitted clients only."""
    by_path: dict[str, dict[str, Callable[[Question], Any] | None]] = {}
    for method, path, answer in QUESTIONS:
        by_path.setdefault(path, {})[method] = answer
    for method, path in WRITES:
        by_path.setdefault(path, {})[method] = None
    routes = [Route(path, _endpoint(holder, methods), methods=[*methods]) for path, methods in by_path.items()]
    app = Starlette(routes=routes, exception_handlers={HTTPException: _http_error, Exception: _failed})
    return _Guard(app, access)


def _endpoint(
    holder: FaceHolder, methods: dict[str, Callable[[Question], Any] | None]
) -> Callable[[Request], Awaitable[Response]]:
    async def endpoint(request: Request) -> Response:
        answer = methods["GET" if request.method == "HEAD" else request.method]
        try:
            if answer is None:
                subject = request.path_params.get("subject")
                raise read_only("The registry" if subject is None else f"Subject {subject}")
            body = await _body(request)
            found = await run_in_threadpool(_answered, holder, answer, request, body)
        except RegistryError as error:
            return _error(error)
        return Response(found, media_type=MEDIA_TYPE)

    return endpoint


def _answered(holder: FaceHolder, answer: Callable[[Question], Any], request: Request, body: bytes) -> bytes:
    try:
        found = answer(Question(holder.connected(), request, body))
    except DeadlineExceeded as late:
        raise RegistryError(TIMED_OUT, f"Kafka did not reply within {REPLY_S:g} s: {late}") from late
    except (UnreadableSchema, MappingError) as unreadable:
        raise RegistryError(INVALID_SCHEMA, f"The schema has no form of Confluent's: {unreadable}") from unreadable
    except LayerError as failure:
        raise RegistryError(STORE_ERROR, f"Error in the store of schemas: {failure}") from failure
    return found if isinstance(found, bytes) else orjson.dumps(found)


async def _body(request: Request) -> bytes:
    if request.method != "POST":
        return b""
    found = bytearray()
    async for piece in request.stream():
        found += piece
        if len(found) > MAX_POSTED_BYTES:
            raise invalid_schema(f"the body is larger than {MAX_POSTED_BYTES:,} bytes")
    return bytes(found)


def _error(error: RegistryError) -> Response:
    body = orjson.dumps({"error_code": error.code, "message": error.message})
    return Response(body, error.status, media_type=MEDIA_TYPE)


def _http_error(request: Request, error: Exception) -> Response:
    status = error.status_code if isinstance(error, HTTPException) else 500
    return _error(RegistryError(status, reason_of(status)))


def _failed(request: Request, error: Exception) -> Response:
    _log.error("the schema registry failed at %s", request.url.path, exc_info=error)
    return _error(RegistryError(500, "the request failed for a reason that the log of pok serve shows"))


class _Guard:
    """Requires the access rights for every address."""

    def __init__(self, app: ASGIApp, access: RegistryAccess) -> None:
        self._app = app
        self._access = access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and not self._access.admits(Request(scope).headers):
            refusal = _error(RegistryError(401, "this registry requires a name and a password (basic auth)"))
            refusal.headers["WWW-Authenticate"] = 'Basic realm="pok schema-registry"'
            await refusal(scope, receive, send)
            return
        await self._app(scope, receive, send)
