"""The page that says what an action of an operator will do, and the form that does it."""

from __future__ import annotations

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from pulsar_on_kafka.console.access import CSRF
from pulsar_on_kafka.console.actions import action_of
from pulsar_on_kafka.console.formatting import link, shortened
from pulsar_on_kafka.console.operations import audit
from pulsar_on_kafka.console.pages.renderer import PageRenderer
from pulsar_on_kafka.console.pages.requests import FOREIGN_FORM, form_of
from pulsar_on_kafka.console.response_cache import AWAY, Unanswered
from pulsar_on_kafka.exceptions import AuthorizationError, PulsarException
from pulsar_on_kafka_mapping.errors import MappingError

_FAILURES = (Unanswered, PulsarException, MappingError, ValueError)
_MAX_DONE_CHARS = 1000
"""The limit of a result in an address."""
_NO_OPERATOR = "this needs the role operate: log in with the token of an operator"


def plan_page(renderer: PageRenderer, request: Request) -> Response:
    """The plan of an action. It changes nothing."""
    operator = _operator(renderer, request)
    if not operator:
        return _failed(renderer, request, AuthorizationError(_NO_OPERATOR))
    query = request.query_params
    try:
        action = action_of({name: query.getlist(name) for name in query}, renderer.site.clock.now_ms())
        plan = renderer.operations.plan(operator, action)
    except _FAILURES as failure:
        return _failed(renderer, request, failure)
    path, parameters = action.page
    return renderer.page("plan.html", request, action=action, plan=plan, back=link(path, **parameters))


async def operate_form(renderer: PageRenderer, request: Request) -> Response:
    """Does what the plan says. Refusals are audited, too."""
    operator, address = _operator(renderer, request), _address(request)
    form = await form_of(request) or {}
    if not operator:
        audit("", address, _what(form), f"refused: {_NO_OPERATOR}", failed=True)
        return await run_in_threadpool(_failed, renderer, request, AuthorizationError(_NO_OPERATOR))
    visitor = renderer.access.visitor(request)
    if visitor is None or not renderer.access.is_own_form(request, form.get(CSRF, [""])[0], visitor):
        audit(operator, address, _what(form), "refused: not a form of this console", failed=True)
        return Response(FOREIGN_FORM, 403)
    try:
        action = action_of(form, renderer.site.clock.now_ms())
        done = await run_in_threadpool(renderer.operations.perform, operator, address, action)
    except _FAILURES as failure:
        return await run_in_threadpool(_failed, renderer, request, failure)
    path, parameters = action.page
    return RedirectResponse(link(path, **parameters, done=shortened(done, _MAX_DONE_CHARS)), 303)


def _operator(renderer: PageRenderer, request: Request) -> str:
    visitor = renderer.access.visitor(request)
    return "" if visitor is None else visitor.operator


def _address(request: Request) -> str:
    return "?" if request.client is None else request.client.host


def _what(form: dict[str, list[str]]) -> list[tuple[str, str]]:
    """The requested action, for the audit line of a refusal."""
    names = {"action": "action", "topic": "topic", "name": "subscription"}
    return [(shown, form[name][0]) for name, shown in names.items() if name in form]


def _failed(renderer: PageRenderer, request: Request, failure: Exception) -> Response:
    if isinstance(failure, AuthorizationError):
        status = 403
    elif isinstance(failure, (Unanswered, *AWAY)):
        status = 502
    else:
        status = 409 if isinstance(failure, PulsarException) else 400
    reason = str(failure) or type(failure).__name__
    return renderer.page("failed.html", request, status, what="do this", failure=reason)
