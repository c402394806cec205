"""The login of one connection: CONNECT, and renewed credentials before the login ends. Source: Pulsar's ServerCnx."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from importlib import metadata
from typing import Any, Final

from pulsar_on_kafka.exceptions import AuthenticationError
from pulsar_on_kafka.gateway.login.access import GatewayAccess, Login
from pulsar_on_kafka.gateway.protocol.replies import ANY_REQUEST, Replies
from pulsar_on_kafka_mapping.wire.command_types import AuthResponseCommand, ConnectCommand
from pulsar_on_kafka_mapping.wire.commands import PROTOCOL_VERSION, MalformedCommand, ServerError, Type

CONNECT_S: Final = 10.0
"""A client has to send CONNECT, or renewed credentials, within this time."""
SERVER_VERSION: Final = f"pulsar-on-kafka {metadata.version('pulsar-on-kafka')}"


class ClientLogin:
    """For the event loop."""

    def __init__(
        self,
        access: GatewayAccess,
        now_s: Callable[[], float],
        later: Callable[[float, Callable[[], None]], asyncio.TimerHandle],
        certificate: Mapping[str, Any] | None,
        replies: Replies,
        end: Callable[[str], None],
    ) -> None:
        """`now_s` is the Unix time. `end` ends the connection, for a reason that its log gets."""
        self._access = access
        self._now_s = now_s
        self._later = later
        self._certificate = certificate
        self._replies = replies
        self._end = end
        self.current: Login | None = None
        self._method = ""
        self._can_renew = False
        self._auth_challenged = False
        self._timer: asyncio.TimerHandle | None = None

    @property
    def role(self) -> str:
        return "" if self.current is None else self.current.role

    def connect(self, command: ConnectCommand) -> bool:
        """Returns whether the client is logged in. Otherwise it got an error, and its connection ends."""
        if self.current is not None:
            raise MalformedCommand("a second CONNECT")
        self._method = command.auth_method_name
        self._can_renew = command.feature_flags.supports_auth_refresh
        login = self._checked(command.auth_method_name, command.auth_data)
        if login is None:
            return False
        if self._access.requires_login and command.original_principal:
            self._replies.error(
                ANY_REQUEST, ServerError.AUTHORIZATION, f"{login.role} is not a proxy: it acts for itself alone"
            )
            self._end(f"{login.role} claims to act for {command.original_principal!r:.60}")
            return False
        self._accept(login)
        return True

    def renew(self, command: AuthResponseCommand) -> None:
        if not self._auth_challenged:
            raise MalformedCommand("AUTH_RESPONSE without an AUTH_CHALLENGE")
        login = self._checked(command.response.auth_method_name, command.response.auth_data)
        if login is None:
            return
        if login.role != self.role:
            reason = f"{self.role} cannot become {login.role}"
            self._replies.error(ANY_REQUEST, ServerError.AUTHENTICATION, reason)
            self._end(reason)
            return
        self._auth_challenged = False
        self.close()
        self._accept(login)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _checked(self, method: str, data: bytes) -> Login | None:
        try:
            return self._access.login(method, data, self._certificate)
        except AuthenticationError as refused:
            self._replies.error(ANY_REQUEST, ServerError.AUTHENTICATION, str(refused))
            self._end(str(refused))
            return None

    def _accept(self, login: Login) -> None:
        self.current = login
        if login.ends_s is not None:
            self._timer = self._later(max(0.0, login.ends_s - self._now_s()), self._expire)

    def _expire(self) -> None:
        """Require renewed credentials, as Pulsar does of clients that can send them."""
        if self._auth_challenged or not self._can_renew:
            self._end("its login has expired")
            return
        self._auth_challenged = True
        self._replies.send(
            Type.AUTH_CHALLENGE,
            server_version=SERVER_VERSION,
            protocol_version=PROTOCOL_VERSION,
            challenge={"auth_method_name": self._method, "auth_data": b"PulsarAuthRefresh"},
        )
        self._timer = self._later(CONNECT_S, self._expire)
