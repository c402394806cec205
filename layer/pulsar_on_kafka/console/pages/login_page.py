"""The page on which a browser logs in with the console's token."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from pulsar_on_kafka.console.access import COOKIE
from pulsar_on_kafka.console.pages.renderer import PageRenderer
from pulsar_on_kafka.console.pages.requests import form_of


async def login_page(renderer: PageRenderer, request: Request) -> Response:
    access = renderer.access
    if not access.token:
        return RedirectResponse("/", 303)
    if request.method == "GET":
        return renderer.page("login.html", request, wrong=False)
    form = await form_of(request)
    if form is None or not access.is_token(form.get("token", [""])[0].strip()):
        return renderer.page("login.html", request, 403, wrong=True)
    answer = RedirectResponse("/", 303)
    answer.set_cookie(COOKIE, access.cookie, httponly=True, samesite="strict", secure=renderer.secure)
    return answer
