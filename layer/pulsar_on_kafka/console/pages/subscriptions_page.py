"""The page of all subscriptions: filtered, sorted, one hundred at a time."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from pulsar_on_kafka.admin.overview.ordering import Only, Order
from pulsar_on_kafka.console.formatting import link
from pulsar_on_kafka.console.pages.renderer import PageRenderer
from pulsar_on_kafka.console.rows import RequestedRows, shown


def subscriptions_page(renderer: PageRenderer, request: Request) -> Response:
    query = request.query_params
    requested = RequestedRows.of(
        query.get("q", ""), query.get("only", ""), query.get("sort", ""), query.get("page", "")
    )
    seen = renderer.site.look()
    listed = shown(seen.rows, requested)
    return renderer.page(
        "subscriptions.html",
        request,
        requested=requested,
        listed=listed,
        only=list(Only),
        most=max((row.backlog for row in listed.rows), default=0),
        here=lambda **changed: link(request.url.path, **{**_parameters(requested), **changed}),
    )


def _parameters(requested: RequestedRows) -> dict[str, object]:
    return {
        "q": requested.words,
        "only": "" if requested.only is Only.ALL else requested.only.value,
        "sort": "" if requested.order == Order.BACKLOG.value else requested.order,
        "page": "" if requested.page == 1 else requested.page,
    }
