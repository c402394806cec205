"""kafka-python, which only `good_byes` loads: librdkafka's options in its words, and LeaveGroup."""

from __future__ import annotations

import ssl
import warnings
from collections.abc import Mapping, Sequence
from typing import Any, Final

from pulsar_on_kafka.base import errors
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.kafka.rights import on_group
from pulsar_on_kafka.kafka.security import TokenSource

with warnings.catch_warnings():  # it reads its schemas in a way that Python 3.11 and 3.12 call deprecated
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka.admin import KafkaAdminClient, MemberToRemove
    from kafka.errors import AuthorizationError, KafkaError, NoError, UnknownMemberIdError
    from kafka.net.sasl.oauth import AbstractTokenProvider

_MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
_LOGIN: Final = frozenset({"sasl.mechanism", "sasl.mechanisms", "sasl.username", "sasl.password"})
_TLS: Final = frozenset(
    {
        "ssl.ca.location", "ssl.ca.pem", "ssl.certificate.location", "ssl.key.location", "ssl.key.password",
        "ssl.cipher.suites", "ssl.crl.location", "ssl.endpoint.identification.algorithm",
    }
)  # fmt: skip
_REASON: Final = "its process died"


def connection(options: Mapping[str, Any]) -> dict[str, Any]:
    """kafka-python's options to reach the cluster of these librdkafka options. Other options are left out.

    Raises:
        NotSupportedYet: an option about security that has no counterpart there.
    """
    protocol = str(options.get("security.protocol", "plaintext")).upper()
    found: dict[str, Any] = {
        "bootstrap_servers": [each.strip() for each in str(options["bootstrap.servers"]).split(",")],
        "client_id": options["client.id"],
        "security_protocol": protocol,
    }
    if protocol.startswith("SASL"):
        _check(options, "sasl.", _LOGIN)
        found.update(_login(options))
    if protocol.endswith("SSL"):
        _check(options, "ssl.", _TLS)
        found["ssl_context"] = _tls(options)
    return found


def leave(reached: Mapping[str, Any], group_id: str, member_ids: Sequence[str], deadline: Deadline) -> None:
    """Requests the removal of these members from the group's coordinator, with a client of its own."""
    wait_ms = max(1, round(deadline.remaining_s() * 1000))
    what = f"leaving group {group_id}"
    try:
        client = KafkaAdminClient(**reached, bootstrap_timeout_ms=wait_ms, request_timeout_ms=wait_ms)
        try:
            members = [MemberToRemove(member_id=each, reason=_REASON) for each in member_ids]
            answers = client.remove_group_members(group_id, members)
        finally:
            client.close()
    except AuthorizationError as refused:
        raise errors.NotAuthorized(f"{what}: {on_group('Read', group_id)}") from refused
    except (KafkaError, OSError) as failure:
        raise errors.StoreError(f"{what}: {failure}") from failure
    refusals = sorted({each.__name__ for each in answers.values() if each not in (NoError, UnknownMemberIdError)})
    if refusals:
        raise errors.StoreError(f"{what}: {', '.join(refusals)}")


def _check(options: Mapping[str, Any], prefix: str, known: frozenset[str]) -> None:
    for name in options:
        if name.startswith(prefix) and name not in known:
            raise errors.NotSupportedYet(f"kafka-python has no {name}")


class _Tokens(AbstractTokenProvider):  # type: ignore[misc]  # kafka-python publishes no types
    def __init__(self, source: TokenSource) -> None:
        super().__init__()
        self._source = source

    def token(self) -> str:
        return self._source.current().value


def _login(options: Mapping[str, Any]) -> dict[str, Any]:
    mechanism = str(options.get("sasl.mechanisms") or options.get("sasl.mechanism") or "GSSAPI").upper()
    if mechanism not in _MECHANISMS:
        raise errors.NotSupportedYet(f"SASL mechanism {mechanism} is none of {', '.join(_MECHANISMS)}")
    if mechanism != "OAUTHBEARER":
        return {
            "sasl_mechanism": mechanism,
            "sasl_plain_username": options.get("sasl.username"),
            "sasl_plain_password": options.get("sasl.password"),
        }
    tokens = options.get("oauth_cb")
    if not isinstance(tokens, TokenSource):
        raise errors.NotSupportedYet("tokens come from librdkafka itself")
    return {"sasl_mechanism": mechanism, "sasl_oauth_token_provider": _Tokens(tokens)}


def _tls(options: Mapping[str, Any]) -> ssl.SSLContext:
    """Checks as librdkafka does: by the system's authorities where none are named, and the host's name by default."""
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
