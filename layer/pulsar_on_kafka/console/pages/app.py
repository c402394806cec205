"""Pages of the console, and the forms that they send."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar
from urllib.parse import parse_qs

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from pulsar_on_kafka.admin import PartitionCursor, TransactionInPendingAck
from pulsar_on_kafka.admin.overview.ordering import Only, Order
from pulsar_on_kafka.admin.overview.records import SubscriptionOverview
from pulsar_on_kafka.admin.stats import waiting_keys_of
from pulsar_on_kafka.base.text import counted
from pulsar_on_kafka.client.values.texts import parse_message_id
from pulsar_on_kafka.console.access import COOKIE, CSRF, SECURITY_HEADERS, ConsoleAccess
from pulsar_on_kafka.console.formatting import FILTERS, link, short_topic
from pulsar_on_kafka.console.hole_map import COLUMNS, hole_map
from pulsar_on_kafka.console.response_cache import CachedResponse, Unanswered
from pulsar_on_kafka.console.rows import RequestedRows, shown
from pulsar_on_kafka.console.view_model import MAX_DEAD_LETTERS_SHOWN, Site
from pulsar_on_kafka.exceptions import PulsarException
from pulsar_on_kafka_mapping.errors import MappingError

T = TypeVar("T")

_HERE: Final = Path(__file__).parent.parent
_OPEN_PATHS: Final = ("/login", "/static/")
_MAX_FORM_BYTES: Final = 65_536
_FOREIGN_FORM: Final = "this form is not of this console, or of one that ended since: load the page again\n"
_LATE_MS: Final = 60_000
"""An overview that is older is called so."""
PARTITIONS: Final = 50
"""Partitions of a subscription, and ledgers of a partition, that are listed at once."""
MAX_RANGES: Final = 1_000
"""Acknowledged ranges of a partition, and batches acknowledged in part, that are listed."""


class _Guarded:
    """The guard admits permitted users, and adds the headers that restrict browsers."""

    def __init__(self, app: ASGIApp, access: ConsoleAccess) -> None:
        self._app = app
        self._access = access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def sent(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [
                    *message["headers"],
                    *((name.lower().encode(), value.encode()) for name, value in SECURITY_HEADERS.items()),
                ]
            await send(message)

        request = Request(scope)
        path = request.url.path
        if self._access.may_look(request) or (self._access.token and path.startswith(_OPEN_PATHS)):
            await self._app(scope, receive, sent)
        else:
            await self._refusal(request)(scope, receive, sent)

    def _refusal(self, request: Request) -> Response:
        if not self._access.token:
            return Response("this console answers to 127.0.0.1, ::1 and localhost\n", 403)
        if request.method == "GET" and "text/html" in request.headers.get("accept", ""):
            return RedirectResponse("/login", 303)
        challenge = {"WWW-Authenticate": "Bearer"}
        return Response("this console requires its token: Authorization: Bearer ...\n", 401, challenge)


class Problem(NamedTuple):
    """A question of a page without a new answer. `away`: the cluster did not answer; else it refused."""

    reason: str
    away: bool


class Pages:
    """Handlers of requests. Each runs in a thread of Starlette's pool, 40 at most."""

    def __init__(self, site: Site, access: ConsoleAccess, *, secure: bool) -> None:
        """`secure`: the console answers HTTPS."""
        self._site = site
        self._access = access
        self._secure = secure
        self._templates = Environment(
            loader=FileSystemLoader(_HERE / "templates"),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self._templates.filters.update(FILTERS)
        self._templates.globals.update(link=link, pok=site.commands.line, columns=COLUMNS)

    def app(self) -> ASGIApp:
        routes = [
            Route("/", self._subscriptions),
            Route("/subscription", self._subscription),
            Route("/message", self._message),
            Route("/dead-letters", self._dead_letters),
            Route("/redrive", self._redrive, methods=["POST"]),
            Route("/transactions", self._transactions),
            Route("/replication", self._replication),
            Route("/roles", self._roles),
            Route("/login", self._login, methods=["GET", "POST"]),
            Mount("/static", StaticFiles(directory=_HERE / "static")),
        ]
        return _Guarded(Starlette(routes=routes, exception_handlers={404: self._no_page}), self._access)

    # Pages --------------------------------------------------------------------------------------------------------

    def _subscriptions(self, request: Request) -> Response:
        query = request.query_params
        requested = RequestedRows.of(
            query.get("q", ""), query.get("only", ""), query.get("sort", ""), query.get("page", "")
        )
        seen = self._site.look()
        listed = shown(seen.rows, requested)
        return self._page(
            "subscriptions.html",
            request,
            requested=requested,
            listed=listed,
            only=list(Only),
            most=max((row.backlog for row in listed.rows), default=0),
            here=lambda **changed: link("/", **{**_parameters(requested), **changed}),
        )

    def _subscription(self, request: Request) -> Response:
        query = request.query_params
        topic, name = query.get("topic", ""), query.get("name", "")
        found = self._overview_of(topic, name)
        number = _whole(query.get("partition")) or 0
        problems: list[Problem] = []
        cursors = self._query(problems, self._site.cursors, topic, name)
        chosen = _of(cursors, number)
        retained = self._query(problems, self._site.retained, topic)
        page = _whole(query.get("list")) or 0
        read = self._query(problems, self._site.read_positions, topic, name)
        consumers = self._query(problems, self._site.consumers, topic, name)
        ranges = [] if chosen is None else list(islice(chosen.acknowledged_ranges(), MAX_RANGES + 1))
        return self._page(
            "subscription.html",
            request,
            topic=topic,
            name=name,
            found=found,
            number=number,
            cursors=cursors,
            cursor=chosen,
            read_position=None if read is None else read.value.get(number),
            ranges=ranges[:MAX_RANGES],
            more_ranges=len(ranges) > MAX_RANGES,
            batches=[] if chosen is None else list(islice(chosen.acknowledged_in_batches(), MAX_RANGES)),
            map=None if chosen is None else hole_map(chosen, _whole(query.get("from")), _whole(query.get("scale"))),
            partitions=_listed([] if found is None else found.partitions, page),
            consumers=consumers,
            waiting_keys=[] if consumers is None else waiting_keys_of(consumers.value)[:MAX_RANGES],
            held=self._query(problems, self._site.held, topic, name),
            retained=retained,
            ledgers=[] if retained is None else [each for each in retained.value.ledgers if each.partition == number],
            max_ledgers=PARTITIONS,
            problems=list(dict.fromkeys(problems)),
            here=lambda **changed: link(
                "/subscription", **{"topic": topic, "name": name, "partition": number, "list": page or None, **changed}
            ),
        )

    def _message(self, request: Request) -> Response:
        query = request.query_params
        topic, name = query.get("topic", ""), query.get("name", "")
        number, offset = _whole(query.get("partition")) or 0, _whole(query.get("offset")) or 0
        problems: list[Problem] = []
        cursors = self._query(problems, self._site.cursors, topic, name)
        cursor = _of(cursors, number)
        within = cursor is not None and cursor.start <= offset < cursor.end
        requested = cursor.message_id(offset) if cursor is not None and within else None
        held = self._query(problems, self._site.held, topic, name)
        owner = _owner(self._overview_of(topic, name), number)
        fate = cursor.fate(offset) if cursor is not None and within else None
        holds = owner and fate is not None and not fate.acknowledged
        holder = self._query(problems, self._site.holder, topic, name, number, offset) if holds else None
        return self._page(
            "message.html",
            request,
            topic=topic,
            name=name,
            number=number,
            offset=offset,
            cursor=cursor,
            requested=requested,
            messages=None if requested is None else self._query(problems, self._site.message, topic, requested),
            fate=fate,
            owner=owner,
            holder=None if holder is None else holder.value,
            holders=[each.txn for each in ([] if held is None else held.value) if _holds(each, number, offset)],
            problems=list(dict.fromkeys(problems)),
        )

    def _dead_letters(self, request: Request) -> Response:
        query = request.query_params
        topic = query.get("topic", "")
        problems: list[Problem] = []
        return self._page(
            "dead_letters.html",
            request,
            topic=topic,
            topics=self._query(problems, self._site.dead_letter_topics) if not topic else None,
            letters=self._query(problems, self._site.dead_letters, topic) if topic else None,
            most=MAX_DEAD_LETTERS_SHOWN,
            done=query.get("done", ""),
            problems=problems,
        )

    def _transactions(self, request: Request) -> Response:
        problems: list[Problem] = []
        return self._page(
            "transactions.html", request, found=self._query(problems, self._site.transactions), problems=problems
        )

    def _replication(self, request: Request) -> Response:
        overview = self._site.look().overview
        copies = [each for each in (() if overview is None else overview.subscriptions) if each.copies_to is not None]
        copies.sort(key=lambda each: (-each.backlog, each.topic, each.subscription))
        page = _whole(request.query_params.get("list")) or 0
        return self._page(
            "replication.html",
            request,
            copies=_listed(copies, page),
            replicated=sum(each.replicated for each in (() if overview is None else overview.subscriptions)),
            here=lambda **changed: link("/replication", **changed),
        )

    def _roles(self, request: Request) -> Response:
        problems: list[Problem] = []
        return self._page("roles.html", request, roles=self._query(problems, self._site.roles), problems=problems)

    # Forms --------------------------------------------------------------------------------------------------------

    async def _redrive(self, request: Request) -> Response:
        form = await _form(request)
        if form is None or not self._access.is_own_form(request, form.get(CSRF, [""])[0]):
            return Response(_FOREIGN_FORM, 403)
        topic = form.get("topic", [""])[0]
        try:
            ids = [parse_message_id(each) for each in form.get("id", [])]
            done = await run_in_threadpool(self._site.redrive, topic, ids)
        except (Unanswered, PulsarException, MappingError, ValueError) as failure:
            return self._page("failed.html", request, 502, what=f"redrive {short_topic(topic)}", failure=str(failure))
        went = ", ".join(f"{counted(number, 'letter')} to {short_topic(to)}" for to, number in done.to.items())
        left = f"; {counted(done.without_origin, 'letter')} without an origin left" if done.without_origin else ""
        reported = f"put back {went}{left}" if went else f"nothing was put back{left}"
        return RedirectResponse(link("/dead-letters", topic=topic, done=reported), 303)

    async def _login(self, request: Request) -> Response:
        if not self._access.token:
            return RedirectResponse("/", 303)
        if request.method == "GET":
            return self._page("login.html", request, wrong=False)
        form = await _form(request)
        if form is None or not self._access.is_token(form.get("token", [""])[0].strip()):
            return self._page("login.html", request, 403, wrong=True)
        answer = RedirectResponse("/", 303)
        answer.set_cookie(COOKIE, self._access.cookie, httponly=True, samesite="strict", secure=self._secure)
        return answer

    # Inside -------------------------------------------------------------------------------------------------------

    def _no_page(self, request: Request, _: Exception) -> Response:
        return self._page("failed.html", request, 404, what="find this page", failure="there is none at this address")

    def _page(self, template: str, request: Request, status: int = 200, **shown_there: Any) -> Response:
        seen, now_ms = self._site.look(), self._site.clock.now_ms()
        late = seen.overview is not None and now_ms - seen.overview.gathered_ms > _LATE_MS
        text = self._templates.get_template(template).render(
            path=request.url.path,
            where=self._site.where,
            seen=seen,
            overview=seen.overview,
            away=bool(seen.failure) or late,
            now_ms=now_ms,
            csrf=self._access.csrf,
            every_s=self._site.every_s,
            **shown_there,
        )
        return HTMLResponse(text, status)

    def _overview_of(self, topic: str, name: str) -> SubscriptionOverview | None:
        overview = self._site.look().overview
        listed: Iterable[SubscriptionOverview] = () if overview is None else overview.subscriptions
        return next((each for each in listed if each.topic == topic and each.subscription == name), None)

    @staticmethod
    def _query(
        problems: list[Problem], request: Callable[..., CachedResponse[T]], *arguments: Any
    ) -> CachedResponse[T] | None:
        """The answer; None, and a line among the problems, where there is none."""
        try:
            found = request(*arguments)
        except Unanswered as failure:
            problems.append(Problem(str(failure), failure.away))
            return None
        if found.failure:
            problems.append(Problem(found.failure, found.away))
        return found


def _of(cursors: CachedResponse[Sequence[PartitionCursor]] | None, number: int) -> PartitionCursor | None:
    return None if cursors is None else next((each for each in cursors.value if each.partition == number), None)


def _owner(found: SubscriptionOverview | None, number: int) -> str:
    partitions = () if found is None else found.partitions
    return next((each.owner for each in partitions if each.partition == number), "")


def _holds(held: TransactionInPendingAck, number: int, offset: int) -> bool:
    """Whether a transaction is known to hold the entry at an offset."""
    if held.partition != number or held.ended:
        return False
    up_to = -1 if held.cumulative is None else held.cumulative
    return offset <= up_to or any(first <= offset <= last for first, last in held.ranges)


def _whole(text: str | None) -> int | None:
    """A whole number that a user typed; None for anything else, and for numbers beyond every offset."""
    return int(text) if text and text.isascii() and text.isdigit() and len(text) < 19 else None


def _listed(found: Sequence[T], page: int) -> Mapping[str, Any]:
    """A page of many, and where the one before and the one behind begin."""
    first = min(page, max(0, len(found) - 1)) // PARTITIONS * PARTITIONS
    return {
        "shown": found[first : first + PARTITIONS],
        "first": first,
        "of": len(found),
        "before": first - PARTITIONS if first else None,
        "behind": first + PARTITIONS if first + PARTITIONS < len(found) else None,
    }


def _parameters(requested: RequestedRows) -> dict[str, object]:
    return {
        "q": requested.words,
        "only": "" if requested.only is Only.ALL else requested.only.value,
        "sort": "" if requested.order == Order.BACKLOG.value else requested.order,
        "page": "" if requested.page == 1 else requested.page,
    }


async def _form(request: Request) -> dict[str, list[str]] | None:
    """The fields of a form; None where it is longer than ours are."""
    body = b""
    async for piece in request.stream():
        body += piece
        if len(body) > _MAX_FORM_BYTES:
            return None
    return parse_qs(body.decode("utf-8", "replace"), keep_blank_values=True, max_num_fields=1000)
