"""Login and encryption of connections: librdkafka's options for them."""

from __future__ import annotations

import logging
import socket
import ssl
import time
from collections.abc import Callable, Hashable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.base.errors import NoCredentials
from pulsar_on_kafka.base.forks import process_lock

_log = logging.getLogger(__name__)

_MECHANISMS: Final = ("sasl.mechanisms", "sasl.mechanism")  # librdkafka takes both
_BEARER: Final = "OAUTHBEARER"
_TIME_TO_RENEW_S: Final = 10.0


class Token(NamedTuple):
    """A token that OAUTHBEARER sends. `expires_s` is a Unix time in seconds.

    librdkafka requests a new one at 80 % of the token's remaining life, with a check once a second: a token that lives
    for less than 5 s may be used after its end.
    """

    value: str
    expires_s: float
    principal: str = ""


class TokenSource:
    """Calls `supply` for tokens and hands the same one to every librdkafka handle while half of its life, and 10 s, is
    left: a handle that got less might not renew it in time.

    Called by librdkafka from its own threads; `supply` runs in one at a time. Two sources are equal when their
    `identity` is, so that two Clients with the same token share a node.
    """

    def __init__(self, supply: Callable[[], Token], identity: Hashable) -> None:
        self._supply = supply
        self._identity = identity
        self._token: Token | None = None
        self._fresh_until_s = 0.0
        self._lock = process_lock()

    def current(self) -> Token:
        """Raises NoCredentials, naming why there is no token (never a part of one)."""
        with self._lock:
            now = time.time()
            if self._token is None or now >= self._fresh_until_s:
                self._token = self._request_token(now)
                left_s = self._token.expires_s - now
                self._fresh_until_s = now + min(left_s / 2, left_s - _TIME_TO_RENEW_S)
            return self._token

    def _request_token(self, now: float) -> Token:
        try:
            token = self._supply()
        except NoCredentials:
            raise
        except Exception as failure:  # the application's; its text may hold a secret
            raise NoCredentials(f"the token supplier raised {type(failure).__name__}") from failure
        if token.expires_s <= now:
            raise NoCredentials(f"the token expired {now - token.expires_s:.0f} s ago")
        return token

    def __call__(self, _config: str) -> tuple[str, float, str, dict[str, str]]:
        try:
            token = self.current()
        except NoCredentials as failure:
            _log.warning("no token for the cluster: %s", failure)
            raise
        return token.value, token.expires_s, token.principal, {}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TokenSource) and self._identity == other._identity

    def __hash__(self) -> int:
        return hash(self._identity)


@dataclass(frozen=True, slots=True)
class Security:
    """librdkafka options, which may hold passwords and are therefore left out of `repr`, and where tokens come from."""

    options: Mapping[str, str] = field(default_factory=dict, repr=False)
    tokens: TokenSource | None = field(default=None, repr=False)

    @property
    def identity(self) -> tuple[Any, ...]:
        return tuple(sorted(self.options.items())), self.tokens

    def applied_under(self, overrides: Mapping[str, Any]) -> dict[str, Any]:
        """These options with `overrides` on top. Tokens go with OAUTHBEARER only: with another mechanism librdkafka
        would wait for one in vain."""
        options: dict[str, Any] = dict(self.options)
        for name in _MECHANISMS:
            if name in overrides:
                options.pop("sasl.mechanisms", None)
        options.update(overrides)
        if self.tokens is not None and any(options.get(name) == _BEARER for name in _MECHANISMS):
            options.setdefault("oauth_cb", self.tokens)
        return options

    def check(self) -> None:
        """Raises NoCredentials when there is no token now: a handle would find out after ten seconds only."""
        if self.tokens is not None:
            self.tokens.current()


_LOOK_S: Final = 2.0


def tls_listener(options: Mapping[str, Any], deadline: Deadline) -> str:
    """The first address of librdkafka's `options`, if they are without TLS, that answers a TLS handshake; '' for none.
    Nothing is verified, or sent besides."""
    if "ssl" in str(options.get("security.protocol", "")).lower():
        return ""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    for server in str(options["bootstrap.servers"]).split(","):
        host, _, port = server.rpartition(":")
        within_s = max(0.1, min(_LOOK_S, deadline.remaining_s()))
        with (
            suppress(OSError, ValueError),
            socket.create_connection((host.strip("[]"), int(port)), within_s) as connection,
            context.wrap_socket(connection),
        ):
            return server
    return ""


def refused_everywhere(options: Mapping[str, Any], deadline: Deadline) -> str:
    """The addresses of librdkafka's `options` if every one of them refuses a connection; otherwise ''. librdkafka
    itself retries until its request times out."""
    servers = str(options["bootstrap.servers"]).split(",")
    for server in servers:
        host, _, port = server.rpartition(":")
        try:
            socket.create_connection((host.strip("[]"), int(port)), min(_LOOK_S, deadline.remaining_s())).close()
        except ConnectionRefusedError:
            continue
        except (OSError, ValueError):
            return ""
        return ""
    return ", ".join(servers)
