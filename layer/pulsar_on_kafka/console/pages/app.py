"""The console's application: which page or form answers at which address."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Final

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp

from pulsar_on_kafka.console.pages.cluster_pages import replication_page, roles_page, transactions_page
from pulsar_on_kafka.console.pages.dead_letters_page import dead_letter_page, dead_letters_page
from pulsar_on_kafka.console.pages.guard import ConsoleGuard
from pulsar_on_kafka.console.pages.health_page import health_page
from pulsar_on_kafka.console.pages.login_page import login_page
from pulsar_on_kafka.console.pages.messages_page import messages_page
from pulsar_on_kafka.console.pages.operate_page import operate_form, plan_page
from pulsar_on_kafka.console.pages.renderer import PageRenderer
from pulsar_on_kafka.console.pages.schemas_page import schemas_page
from pulsar_on_kafka.console.pages.subscription_page import message_page, subscription_page
from pulsar_on_kafka.console.pages.subscriptions_page import subscriptions_page
from pulsar_on_kafka.console.pages.topics_page import topic_page, topics_page

_STATIC: Final = Path(__file__).parent.parent / "static"

PageHandler = Callable[[PageRenderer, Request], Response]
FormHandler = Callable[[PageRenderer, Request], Awaitable[Response]]

PAGES: Final[dict[str, PageHandler]] = {
    "/": health_page,
    "/subscriptions": subscriptions_page,
    "/subscription": subscription_page,
    "/message": message_page,
    "/topics": topics_page,
    "/topic": topic_page,
    "/messages": messages_page,
    "/schemas": schemas_page,
    "/dead-letters": dead_letters_page,
    "/dead-letter": dead_letter_page,
    "/plan": plan_page,
    "/transactions": transactions_page,
    "/replication": replication_page,
    "/roles": roles_page,
}
"""Each runs in a thread of Starlette's pool, 40 at most."""
FORMS: Final[dict[str, FormHandler]] = {"/operate": operate_form}


def pages_app(renderer: PageRenderer) -> ASGIApp:
    """The pages, for permitted users only."""
    routes = [
        *(Route(path, partial(page, renderer)) for path, page in PAGES.items()),
        *(Route(path, partial(form, renderer), methods=["POST"]) for path, form in FORMS.items()),
        Route("/login", partial(login_page, renderer), methods=["GET", "POST"]),
        Mount("/static", StaticFiles(directory=_STATIC)),
    ]
    app = Starlette(routes=routes, exception_handlers={404: partial(_no_page, renderer)})
    return ConsoleGuard(app, renderer.access)


def _no_page(renderer: PageRenderer, request: Request, _: Exception) -> Response:
    return renderer.page("failed.html", request, 404, what="find this page", failure="there is none at this address")
