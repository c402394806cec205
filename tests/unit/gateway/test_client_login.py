"""The login of a connection: what ends it, and how a client renews it."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from pulsar_on_kafka.exceptions import AuthenticationError
from pulsar_on_kafka.gateway.login.access import Login
from pulsar_on_kafka.gateway.login.client_login import CONNECT_S, ClientLogin
from pulsar_on_kafka.gateway.protocol.replies import ANY_REQUEST
from pulsar_on_kafka_mapping.wire.commands import MalformedCommand, ServerError, Type, message_class


class Access:
    """Logs in a client whose data are `role` or `role until seconds`."""

    requires_login = True

    def login(self, method: str, data: bytes, certificate: object) -> Login:
        role, _, ends = data.decode().partition(" until ")
        if not role:
            raise AuthenticationError("no role")
        return Login(role, float(ends) if ends else None)


class Stage:
    def __init__(self) -> None:
        self.sent: list[tuple[Type, dict[str, Any]]] = []
        self.errors: list[tuple[ServerError, str]] = []
        self.ended: list[str] = []
        self.timers: list[tuple[float, Callable[[], None]]] = []
        replies: Any = SimpleNamespace(send=lambda kind, **fields: self.sent.append((kind, fields)), error=self._error)
        access: Any = Access()
        self.login = ClientLogin(access, lambda: 100.0, self._later, None, replies, self.ended.append)

    def _error(self, request_id: int, code: ServerError, reason: str) -> None:
        assert request_id == ANY_REQUEST
        self.errors.append((code, reason))

    def _later(self, delay_s: float, call: Callable[[], None]) -> Any:
        timer = delay_s, call
        self.timers.append(timer)
        return SimpleNamespace(cancel=lambda: self.timers.remove(timer) if timer in self.timers else None)

    def expire(self) -> float:
        """Run the only timer. Returns its delay."""
        ((delay_s, call),) = self.timers
        self.timers.clear()
        call()
        return delay_s

    def connect(self, data: str, *, renews: bool = True, principal: str = "") -> bool:
        flags = {"supports_auth_refresh": renews}
        return self.login.connect(
            message_class("Connect")(
                client_version="c", auth_method_name="m", auth_data=data.encode(), feature_flags=flags,
                original_principal=principal,
            )
        )  # fmt: skip

    def renew(self, data: str) -> None:
        self.login.renew(message_class("AuthResponse")(response={"auth_method_name": "m", "auth_data": data.encode()}))


def test_a_login_without_an_end_needs_no_renewal() -> None:
    stage = Stage()
    assert stage.connect("anna")
    assert (stage.login.role, stage.timers, stage.ended) == ("anna", [], [])


@pytest.mark.parametrize(
    ("data", "principal", "code"),
    [("", "", ServerError.AUTHENTICATION), ("proxy", "anna", ServerError.AUTHORIZATION)],
)
def test_a_client_that_may_not_connect_gets_an_error(data: str, principal: str, code: ServerError) -> None:
    stage = Stage()
    assert not stage.connect(data, principal=principal)
    assert [found for found, _ in stage.errors] == [code]
    assert len(stage.ended) == 1
    assert stage.login.current is None


def test_a_second_connect_is_malformed() -> None:
    stage = Stage()
    stage.connect("anna")
    with pytest.raises(MalformedCommand):
        stage.connect("anna")


def test_a_login_is_renewed_when_it_expires() -> None:
    stage = Stage()
    stage.connect("anna until 130")
    assert stage.expire() == 30
    ((kind, fields),) = stage.sent
    assert (kind, fields["challenge"]) == (
        Type.AUTH_CHALLENGE, {"auth_method_name": "m", "auth_data": b"PulsarAuthRefresh"},
    )  # fmt: skip
    stage.renew("anna until 160")
    assert [delay_s for delay_s, _ in stage.timers] == [60]
    assert not stage.ended


def test_a_login_that_is_not_renewed_in_time_ends_the_connection() -> None:
    stage = Stage()
    stage.connect("anna until 130")
    stage.expire()
    assert stage.expire() == CONNECT_S
    assert stage.ended == ["its login has expired"]


def test_a_client_that_cannot_renew_its_login_gets_no_challenge() -> None:
    stage = Stage()
    stage.connect("anna until 90", renews=False)
    assert stage.expire() == 0
    assert (stage.sent, stage.ended) == ([], ["its login has expired"])


def test_a_renewed_login_has_the_same_role() -> None:
    stage = Stage()
    stage.connect("anna until 130")
    stage.expire()
    stage.renew("bert")
    assert stage.errors == [(ServerError.AUTHENTICATION, "anna cannot become bert")]
    assert (len(stage.ended), stage.login.role) == (1, "anna")


def test_credentials_without_a_challenge_are_malformed() -> None:
    stage = Stage()
    stage.connect("anna")
    with pytest.raises(MalformedCommand):
        stage.renew("anna")
