"""Access to the console requires a token; without any, this machine's programs may look."""

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
class Visitor:
    """A user who may look: the role `read`. One with a name is an operator: the role `operate`."""

    operator: str = ""


READER: Final = Visitor()


@dataclass(frozen=True, slots=True)
class ConsoleAccess:
    """The access rights: readers, operators, and pages whose forms are accepted.

    Without tokens the console listens on this machine alone, has no operators, and answers to no other host name than
    this machine's own: a page of another site whose name resolves to 127.0.0.1 gets no data. A login with a token sets
    a cookie that this process's secret signs, so a new process requires the token again.
    """

    token: str = field(default="", repr=False)
    """The token of readers; '' for none."""
    operators: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Their tokens by name."""
    _secret: str = field(default_factory=lambda: secrets.token_urlsafe(32), repr=False)

    @staticmethod
    def checked(host: str, token: str, operators: Mapping[str, str] | None = None) -> ConsoleAccess:
        """Raises InvalidOption: programs of other machines could reach it, and no token is required; or an operator has
        the token of readers."""
        found = ConsoleAccess(token, operators or {})
        if not found.requires_login and host not in _LOCAL:
            raise InvalidOption(
                f"--console-host {host} opens the console to programs of other machines: use --console-token-file, too"
            )
        if token and token in found.operators.values():
            raise InvalidOption("the token of --console-token-file is one of --console-operators-file, too")
        return found

    @property
    def requires_login(self) -> bool:
        return bool(self.token or self.operators)

    def login(self, token: str) -> Visitor | None:
        """The visitor with this token; None: it is no token of this console."""
        found = READER if self.token and _equal(token, self.token) else None
        for name, expected in self.operators.items():  # all are compared: the time tells nothing
            if _equal(token, expected):
                found = Visitor(name)
        return found

    def cookie(self, visitor: Visitor) -> str:
        """The cookie of a logged-in browser."""
        return self._proof(f"cookie {visitor.operator}")

    def csrf(self, visitor: Visitor) -> str:
        """The token of this visitor's forms, unknown to other sites."""
        return self._proof(f"form {visitor.operator}")

    def visitor(self, requested: HTTPConnection) -> Visitor | None:
        """The sender of a request; None: it may not look."""
        if not self.requires_login:
            return READER if _host_of(requested) in _LOCAL else None
        kind, _, reported = requested.headers.get("authorization", "").partition(" ")
        if kind.lower() == "bearer":
            return self.login(reported)
        cookie = requested.cookies.get(COOKIE, "")
        visitors = [*([READER] if self.token else []), *map(Visitor, self.operators)]
        return next((each for each in visitors if _equal(cookie, self.cookie(each))), None)

    def is_own_form(self, requested: HTTPConnection, csrf: str, visitor: Visitor) -> bool:
        """Whether a form came from a page that this console has shown to the visitor."""
        origin = requested.headers.get("origin")
        if origin is not None and urlsplit(origin).netloc != requested.headers.get("host"):
            return False
        return _equal(csrf, self.csrf(visitor))

    def _proof(self, of: str) -> str:
        return hmac.digest(self._secret.encode(), of.encode(), "sha256").hex()


def _equal(reported: str, requested: str) -> bool:
    return hmac.compare_digest(reported.encode("utf-8", "replace"), requested.encode())


def _host_of(requested: HTTPConnection) -> str:
    try:
        return urlsplit(f"//{requested.headers.get('host', '')}").hostname or ""
    except ValueError:
        return ""
