"""The page on which a browser logs in with a token of the console."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from pulsar_on_kafka.console.access import COOKIE
from pulsar_on_kafka.console.pages.renderer import PageRenderer
from pulsar_on_kafka.console.pages.requests import form_of


async def login_page(renderer: PageRenderer, request: Request) -> Response:
    access = renderer.access
    if not access.requires_login:
        return RedirectResponse("/", 303)
    if request.method == "GET":
        return renderer.page("login.html", request, wrong=False)
    form = await form_of(request)
    visitor = None if form is None else access.login(form.get("token", [""])[0].strip())
    if visitor is None:
        return renderer.page("login.html", request, 403, wrong=True)
    answer = RedirectResponse("/", 303)
    answer.set_cookie(COOKIE, access.cookie(visitor), httponly=True, samesite="strict", secure=renderer.secure)
    return answer
