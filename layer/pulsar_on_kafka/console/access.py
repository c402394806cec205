"""Access to the console requires the token; without one, it is granted to this machine's programs."""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import urlsplit

from starlette.requests import HTTPConnection

from pulsar_on_kafka.base.errors import InvalidOption

COOKIE: Final = "pok_console"
CSRF: Final = "csrf"
"""The field of a form that proves that the form is ours."""
_LOCAL: Final = frozenset({"127.0.0.1", "::1", "localhost"})

SECURITY_HEADERS: Final[Mapping[str, str]] = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'",
    "Cache-Control": "no-store",
    "Referrer-Policy": "same-origin",  # without any, browsers send forms with the origin `null`
    "X-Content-Type-Options": "nosniff",
}


@dataclass(frozen=True, slots=True)
class ConsoleAccess:
    """The access rights: readers, and pages whose forms are accepted.

    Without a token the console listens on this machine alone, and answers to no other host name than this machine's
    own: a page of another site whose name resolves to 127.0.0.1 gets no data. A login with the token sets a cookie with
    this process's secret, so a new process requires the token again.
    """

    token: str = field(default="", repr=False)
    _secret: str = field(default_factory=lambda: secrets.token_urlsafe(32), repr=False)

    @staticmethod
    def checked(host: str, token: str) -> ConsoleAccess:
        """Raises InvalidOption: programs of other machines could reach it, and no token is required."""
        if not token and host not in _LOCAL:
            raise InvalidOption(
                f"--console-host {host} opens the console to programs of other machines: use --console-token-file, too"
            )
        return ConsoleAccess(token)

    def is_token(self, reported: str) -> bool:
        return bool(self.token) and _equal(reported, self.token)

    @property
    def cookie(self) -> str:
        """The cookie of a logged-in browser."""
        return self._proof("cookie")

    @property
    def csrf(self) -> str:
        """The token of this console's forms, unknown to other sites."""
        return self._proof("form")

    def may_look(self, requested: HTTPConnection) -> bool:
        if not self.token:
            return _host_of(requested) in _LOCAL
        kind, _, reported = requested.headers.get("authorization", "").partition(" ")
        if kind.lower() == "bearer":
            return self.is_token(reported)
        return _equal(requested.cookies.get(COOKIE, ""), self.cookie)

    def is_own_form(self, requested: HTTPConnection, csrf: str) -> bool:
        """Whether a form came from a page of this console."""
        origin = requested.headers.get("origin")
        if origin is not None and urlsplit(origin).netloc != requested.headers.get("host"):
            return False
        return _equal(csrf, self.csrf)

    def _proof(self, of: str) -> str:
        return hmac.digest(self._secret.encode(), of.encode(), "sha256").hex()


def _equal(reported: str, requested: str) -> bool:
    return hmac.compare_digest(reported.encode("utf-8", "replace"), requested.encode())


def _host_of(requested: HTTPConnection) -> str:
    try:
        return urlsplit(f"//{requested.headers.get('host', '')}").hostname or ""
    except ValueError:
        return ""
