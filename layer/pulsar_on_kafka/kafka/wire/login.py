"""Opens connections to brokers: TLS and SASL by librdkafka's options, and new logins before one expires (KIP-368)."""

from __future__ import annotations

import asyncio
import hmac
import logging
import re
import secrets
import ssl
from base64 import b64decode, b64encode
from collections.abc import Callable, Generator, Mapping
from hashlib import new as new_hash
from hashlib import pbkdf2_hmac
from typing import Any, Final

from pulsar_on_kafka.base import errors
from pulsar_on_kafka.base.text import installed_version
from pulsar_on_kafka.base.worker import aside
from pulsar_on_kafka.kafka.security import Token, TokenSource
from pulsar_on_kafka.kafka.wire.cluster_messages import (
    ApiVersionsRequest,
    FindCoordinatorRequest,
    MetadataRequest,
)
from pulsar_on_kafka.kafka.wire.connection import BrokerConnection, ConnectionLost
from pulsar_on_kafka.kafka.wire.error_codes import ErrorCode, error_name
from pulsar_on_kafka.kafka.wire.fetch_messages import FetchRequest
from pulsar_on_kafka.kafka.wire.fields import Api
from pulsar_on_kafka.kafka.wire.group_messages import (
    DescribeGroupsRequest,
    HeartbeatRequest,
    JoinGroupRequest,
    LeaveGroupRequest,
    SyncGroupRequest,
)
from pulsar_on_kafka.kafka.wire.offset_messages import ListOffsetsRequest, OffsetCommitRequest, OffsetFetchRequest
from pulsar_on_kafka.kafka.wire.sasl_messages import SaslAuthenticateRequest, SaslHandshakeRequest

_log: Final = logging.getLogger(__name__)

Conversation = Generator[bytes, bytes, None]
"""The messages of a SASL mechanism: yields the client's, is sent the server's."""

_MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
_LOGIN_OPTIONS: Final = frozenset({"sasl.mechanism", "sasl.mechanisms", "sasl.username", "sasl.password"})
_TLS_OPTIONS: Final = frozenset(
    {
        "ssl.ca.location", "ssl.ca.pem", "ssl.certificate.location", "ssl.key.location", "ssl.key.password",
        "ssl.cipher.suites", "ssl.crl.location", "ssl.endpoint.identification.algorithm",
    }
)  # fmt: skip
_REQUIRED: Final[tuple[Api, ...]] = tuple(
    kind.API
    for kind in (
        MetadataRequest, FindCoordinatorRequest, JoinGroupRequest, SyncGroupRequest, HeartbeatRequest,
        LeaveGroupRequest, DescribeGroupsRequest, OffsetCommitRequest, OffsetFetchRequest, ListOffsetsRequest,
        FetchRequest,
    )
)  # fmt: skip
_MAX_SCRAM_ITERATIONS: Final = 1_000_000
_MAX_SCRAM_BYTES: Final = 16 * 1024
_REFUSED_TOKEN: Final = b"\1"
"""The client's answer to a refused token, upon which the broker ends the conversation."""
_LOGIN_S: Final = 10.0
_RENEW_AT: Final = 0.85
"""The part of a login's lifetime after which the connection logs in again."""


class KafkaLogin:
    """The security of all connections to one cluster: an SSL context, and a SASL mechanism. May hold a password."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        """Takes librdkafka's options; those that are not about security are left out.

        Raises:
            NotSupportedYet: an option about security that has no counterpart here.
        """
        protocol = str(options.get("security.protocol", "plaintext")).upper()
        self.tls = tls_context(options) if protocol.endswith("SSL") else None
        self.mechanism = ""
        """SASL's name; '' without SASL."""
        self._tokens: TokenSource | None = None
        self._salted: tuple[tuple[bytes, int], bytes] | None = None
        """SCRAM's salt and iterations with the salted password: it takes milliseconds to compute."""
        if protocol.startswith("SASL"):
            self._take_login(options)

    def _take_login(self, options: Mapping[str, Any]) -> None:
        _check(options, "sasl.", _LOGIN_OPTIONS)
        self.mechanism = str(options.get("sasl.mechanisms") or options.get("sasl.mechanism") or "GSSAPI").upper()
        if self.mechanism not in _MECHANISMS:
            raise errors.NotSupportedYet(f"SASL mechanism {self.mechanism} is none of {', '.join(_MECHANISMS)}")
        self._username = str(options.get("sasl.username") or "")
        self._password = str(options.get("sasl.password") or "")
        if self.mechanism == "OAUTHBEARER":
            tokens = options.get("oauth_cb")
            if not isinstance(tokens, TokenSource):
                raise errors.NotSupportedYet("tokens come from librdkafka itself")
            self._tokens = tokens

    async def conversation(self) -> Conversation:
        """A new conversation. Raises NoCredentials: there is no token."""
        if self._tokens is not None:
            return _bearer(await _in_thread(self._tokens.current))
        if self.mechanism == "PLAIN":
            return _plain(self._username, self._password)
        hash_name = self.mechanism.removeprefix("SCRAM-").replace("-", "").lower()
        return scram(hash_name, self._username, self._salted_password, secrets.token_urlsafe(24))

    def _salted_password(self, hash_name: str, salt: bytes, iterations: int) -> bytes:
        if self._salted is None or self._salted[0] != (salt, iterations):
            derived = pbkdf2_hmac(hash_name, self._password.encode(), salt, iterations)
            self._salted = (salt, iterations), derived
        return self._salted[1]


# Connections ----------------------------------------------------------------------------------------------------------


async def connect(host: str, port: int, login: KafkaLogin, client_id: str, timeout_s: float) -> BrokerConnection:
    """An open connection that is logged in, and stays so.

    Raises:
        ConnectFailed: the address is not reached, or the broker closes the connection.
        TlsFailed, NotAuthenticated, NoCredentials: the login fails.
        NotSupportedYet: the broker is older than Kafka 3.7.
        DeadlineExceeded: the broker does not answer within `timeout_s`.
    """
    address = f"{host}:{port}"
    try:
        return await asyncio.wait_for(_opened(host, port, login, client_id, timeout_s), timeout_s)
    except (asyncio.TimeoutError, TimeoutError):
        raise errors.DeadlineExceeded(f"{address} did not answer within {timeout_s:.1f} s") from None
    except ssl.SSLError as refused:
        raise errors.TlsFailed(f"TLS with {address}: {refused}") from refused
    except (OSError, UnicodeError) as failure:
        raise errors.ConnectFailed(f"{address} is not reached: {failure}") from failure


async def _opened(host: str, port: int, login: KafkaLogin, client_id: str, timeout_s: float) -> BrokerConnection:
    kept = _KeptLogin(login, client_id)
    _, connection = await asyncio.get_running_loop().create_connection(
        lambda: BrokerConnection(f"{host}:{port}", kept.end),
        host,
        port,
        ssl=login.tls,
        server_hostname=host if login.tls else None,
    )
    try:
        await _check_versions(connection, client_id, timeout_s)
        if login.mechanism:
            await kept.begin(connection, timeout_s)
    except ConnectionLost as lost:
        # A broker that refuses our certificate says so after the handshake of TLS 1.3.
        kind = errors.TlsFailed if isinstance(connection.failure, ssl.SSLError) else errors.ConnectFailed
        raise kind(str(lost)) from lost
    except BaseException:
        connection.close()
        raise
    return connection


async def _check_versions(connection: BrokerConnection, client_id: str, timeout_s: float) -> None:
    own = re.sub(r"[^A-Za-z0-9.-]", "-", installed_version() or "unknown")
    response = await connection.send(ApiVersionsRequest("pulsar-on-kafka", own), client_id, timeout_s)
    if response.error_code not in (ErrorCode.NONE, ErrorCode.UNSUPPORTED_VERSION):
        raise errors.StoreError(f"{connection.address}: ApiVersions: {error_name(response.error_code)}")
    known = {each.api_key: each for each in response.api_keys}
    for api in _REQUIRED:
        there = known.get(api.key)
        if there is None or not there.min_version <= api.version <= there.max_version:
            found = f"in versions {there.min_version} to {there.max_version}" if there else "not at all"
            raise errors.NotSupportedYet(
                f"{connection.address} knows {api.name} {found}, expected version {api.version}: that of Kafka 3.7 "
                "or later"
            )


async def _log_in(connection: BrokerConnection, login: KafkaLogin, client_id: str, timeout_s: float) -> float:
    """Logs in. Returns the login's lifetime in seconds, 0.0 for no limit."""
    shaken = await connection.send_login(SaslHandshakeRequest(login.mechanism), client_id, timeout_s)
    if shaken.error_code:
        raise errors.NotAuthenticated(
            f"{connection.address} refuses SASL mechanism {login.mechanism} ({error_name(shaken.error_code)}), it has "
            f"{', '.join(shaken.mechanisms) or 'none'}"
        )
    conversation = await login.conversation()
    message = next(conversation)
    while True:
        answer = await connection.send_login(SaslAuthenticateRequest(message), client_id, timeout_s)
        if answer.error_code:
            raise errors.NotAuthenticated(
                f"{connection.address}: {answer.error_message or error_name(answer.error_code)}"
            )
        try:
            message = conversation.send(answer.auth_bytes)
        except StopIteration:
            return answer.session_lifetime_ms / 1000


class _KeptLogin:
    """Logs a connection in, and again before its login expires: the broker would close it otherwise (KIP-368)."""

    def __init__(self, login: KafkaLogin, client_id: str) -> None:
        self._login = login
        self._client_id = client_id
        self._timer: asyncio.TimerHandle | None = None
        self._renewal: asyncio.Task[None] | None = None

    async def begin(self, connection: BrokerConnection, timeout_s: float) -> None:
        """Raises NotAuthenticated, NoCredentials, or what `BrokerConnection.send` raises."""
        lifetime_s = await _log_in(connection, self._login, self._client_id, timeout_s)
        if lifetime_s > 0:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(lifetime_s * _RENEW_AT, self._begin_renewal, connection)

    def _begin_renewal(self, connection: BrokerConnection) -> None:
        self._renewal = asyncio.get_running_loop().create_task(self._renew(connection))

    async def _renew(self, connection: BrokerConnection) -> None:
        # The broker reads the login when it has answered everything before, and accepts no other request within it.
        timeout_s = connection.longest_wait_s() + _LOGIN_S
        connection.hold()
        try:
            await self.begin(connection, timeout_s)
        except errors.StoreError as failure:
            if connection.is_open:
                _log.warning("the login at %s cannot be renewed: %s", connection.address, failure)
            connection.close(failure)
        else:
            connection.release()

    def end(self) -> None:
        if self._timer is not None:
            self._timer.cancel()


async def _in_thread(call: Callable[[], Token]) -> Token:
    """The result of a call that may block, such as one of the program's."""
    loop = asyncio.get_running_loop()
    result: asyncio.Future[Token] = loop.create_future()

    def settle(action: Callable[[Any], object], value: object) -> None:
        if not result.done():
            action(value)

    def run() -> None:
        try:
            found = call()
        except Exception as failure:  # the caller raises it
            loop.call_soon_threadsafe(settle, result.set_exception, failure)
        else:
            loop.call_soon_threadsafe(settle, result.set_result, found)

    aside("pok-kafka-token", run)
    return await result


# Mechanisms -----------------------------------------------------------------------------------------------------------


def _plain(username: str, password: str) -> Conversation:
    """RFC 4616."""
    yield f"\0{username}\0{password}".encode()


def _bearer(token: Token) -> Conversation:
    """RFC 7628."""
    refusal = yield f"n,,\1auth=Bearer {token.value}\1\1".encode()
    if refusal:
        yield _REFUSED_TOKEN
        raise errors.NotAuthenticated(f"the broker refuses the token: {refusal[:200].decode(errors='replace')}")


def scram(
    hash_name: str, username: str, salted_password: Callable[[str, bytes, int], bytes], nonce: str
) -> Conversation:
    """RFC 5802, without channel binding.

    Raises:
        NotAuthenticated: the server's message is malformed, or the server does not know the password.
    """
    own = f"n={username.replace('=', '=3D').replace(',', '=2C')},r={nonce}"
    first = yield f"n,,{own}".encode()
    fields = _scram_fields(first)
    server_nonce = fields.get("r", "")
    if not server_nonce.startswith(nonce) or len(server_nonce) == len(nonce):
        raise errors.NotAuthenticated("SCRAM: the server's nonce does not continue ours")
    try:
        salt, iterations = b64decode(fields["s"], validate=True), int(fields["i"])
    except (KeyError, ValueError) as malformed:
        raise errors.NotAuthenticated(
            f"SCRAM: the server sent {first[:200]!r}, expected salt and iterations"
        ) from malformed
    if not 0 < iterations <= _MAX_SCRAM_ITERATIONS:
        raise errors.NotAuthenticated(f"SCRAM: {iterations} iterations, expected 1 to {_MAX_SCRAM_ITERATIONS}")
    salted = salted_password(hash_name, salt, iterations)
    client_key = hmac.digest(salted, b"Client Key", hash_name)
    without_proof = f"c=biws,r={server_nonce}"
    signed = f"{own},{first.decode()},{without_proof}".encode()
    signature = hmac.digest(new_hash(hash_name, client_key).digest(), signed, hash_name)
    proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
    final = _scram_fields((yield f"{without_proof},p={b64encode(proof).decode()}".encode()))
    expected = b64encode(hmac.digest(hmac.digest(salted, b"Server Key", hash_name), signed, hash_name)).decode()
    if not hmac.compare_digest(final.get("v", ""), expected):
        raise errors.NotAuthenticated(f"SCRAM: the server does not know the password {final.get('e', '')}".rstrip())


def _scram_fields(message: bytes) -> dict[str, str]:
    if len(message) > _MAX_SCRAM_BYTES or not message.isascii():
        raise errors.NotAuthenticated(f"SCRAM: the server sent {message[:60]!r}, expected short ASCII")
    return dict(each.partition("=")[::2] for each in message.decode().split(","))


# TLS ------------------------------------------------------------------------------------------------------------------


def _check(options: Mapping[str, Any], prefix: str, known: frozenset[str]) -> None:
    for name in options:
        if name.startswith(prefix) and name not in known:
            raise errors.NotSupportedYet(f"{name} has no effect outside of librdkafka")


def tls_context(options: Mapping[str, Any]) -> ssl.SSLContext:
    """Checks as librdkafka does: by the system's authorities where none are named, and the host's name by default.

    Raises:
        NotSupportedYet: an option of TLS that has no counterpart here, or a file that cannot be read.
    """
    _check(options, "ssl.", _TLS_OPTIONS)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = options.get("ssl.endpoint.identification.algorithm", "https") != "none"
    if str(options.get("enable.ssl.certificate.verification", "true")).lower() in ("false", "0"):
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    try:
        authorities, pem = options.get("ssl.ca.location"), options.get("ssl.ca.pem")
        if authorities or pem:
            context.load_verify_locations(cafile=authorities, cadata=pem)
        else:
            context.load_default_certs()
        if certificate := options.get("ssl.certificate.location"):
            context.load_cert_chain(certificate, options.get("ssl.key.location"), options.get("ssl.key.password"))
        if revoked := options.get("ssl.crl.location"):
            context.load_verify_locations(cafile=revoked)
            context.verify_flags |= ssl.VERIFY_CRL_CHECK_LEAF
        if ciphers := options.get("ssl.cipher.suites"):
            context.set_ciphers(str(ciphers))
    except (OSError, ssl.SSLError) as refused:
        raise errors.NotSupportedYet(f"TLS with these files: {refused}") from refused
    return context
