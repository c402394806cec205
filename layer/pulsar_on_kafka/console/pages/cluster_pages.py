"""The pages of a cluster's open transactions, of its replication, and of its service roles."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from pulsar_on_kafka.console.formatting import link
from pulsar_on_kafka.console.pages.renderer import PageRenderer, Problem, query
from pulsar_on_kafka.console.pages.requests import listed, whole


def transactions_page(renderer: PageRenderer, request: Request) -> Response:
    problems: list[Problem] = []
    found = query(problems, renderer.site.transactions)
    return renderer.page("transactions.html", request, found=found, problems=problems)


def replication_page(renderer: PageRenderer, request: Request) -> Response:
    overview = renderer.site.look().overview
    copies = [each for each in (() if overview is None else overview.subscriptions) if each.copies_to is not None]
    copies.sort(key=lambda each: (-each.backlog, each.topic, each.subscription))
    page = whole(request.query_params.get("list")) or 0
    return renderer.page(
        "replication.html",
        request,
        copies=listed(copies, page),
        replicated=sum(each.replicated for each in (() if overview is None else overview.subscriptions)),
        here=lambda **changed: link("/replication", **changed),
    )


def roles_page(renderer: PageRenderer, request: Request) -> Response:
    problems: list[Problem] = []
    return renderer.page("roles.html", request, roles=query(problems, renderer.site.roles), problems=problems)
