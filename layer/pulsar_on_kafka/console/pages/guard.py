"""The guard of the console's pages admits permitted users, and adds the headers that restrict browsers."""

from __future__ import annotations

from typing import Final

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from pulsar_on_kafka.console.access import SECURITY_HEADERS, ConsoleAccess

_OPEN_PATHS: Final = ("/login", "/static/")


class ConsoleGuard:
    """The guard of an application. It passes only permitted requests on."""

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
        if self._access.visitor(request) or (self._access.requires_login and path.startswith(_OPEN_PATHS)):
            await self._app(scope, receive, sent)
        else:
            await self._refusal(request)(scope, receive, sent)

    def _refusal(self, request: Request) -> Response:
        if not self._access.requires_login:
            return Response("this console answers to 127.0.0.1, ::1 and localhost\n", 403)
        if request.method == "GET" and "text/html" in request.headers.get("accept", ""):
            return RedirectResponse("/login", 303)
        challenge = {"WWW-Authenticate": "Bearer"}
        return Response("this console requires a token: Authorization: Bearer ...\n", 401, challenge)
