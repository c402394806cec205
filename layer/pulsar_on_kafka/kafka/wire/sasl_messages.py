"""Requests of a login: SaslHandshake and SaslAuthenticate. Names as in Kafka's protocol. No I/O."""

from __future__ import annotations

from dataclasses import dataclass, field
from struct import Struct
from typing import ClassVar, Final, NamedTuple

from pulsar_on_kafka.kafka.wire.fields import Api, FieldReader, sized, string

_LIFETIME: Final = Struct(">q")


class SaslHandshakeResponse(NamedTuple):
    error_code: int
    mechanisms: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SaslHandshakeRequest:
    API: ClassVar = Api("SaslHandshake", 17, 1, False)

    mechanism: str

    def encode(self) -> bytes:
        return string(self.mechanism)

    @staticmethod
    def decode_response(reader: FieldReader) -> SaslHandshakeResponse:
        return SaslHandshakeResponse(reader.int16(), tuple([reader.string() for _ in reader.array(2)]))


class SaslAuthenticateResponse(NamedTuple):
    error_code: int
    error_message: str | None
    auth_bytes: bytes
    session_lifetime_ms: int
    """The time until the connection must log in again (KIP-368); 0 without a limit."""


@dataclass(frozen=True, slots=True)
class SaslAuthenticateRequest:
    API: ClassVar = Api("SaslAuthenticate", 36, 1, False)

    auth_bytes: bytes = field(repr=False)

    def encode(self) -> bytes:
        return sized(self.auth_bytes)

    @staticmethod
    def decode_response(reader: FieldReader) -> SaslAuthenticateResponse:
        error_code, error_message, auth_bytes = reader.int16(), reader.nullable_string(), reader.sized()
        (lifetime_ms,) = reader.numbers(_LIFETIME)
        return SaslAuthenticateResponse(error_code, error_message, auth_bytes, lifetime_ms)
