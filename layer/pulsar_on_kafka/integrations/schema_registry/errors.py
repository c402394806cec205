"""Errors of the REST API, with Confluent's codes and messages. Source: docs.confluent.io, "Schema Registry API
Reference"; seen in confluent-kafka 2.16's `SchemaRegistryError`."""

from __future__ import annotations

from http import HTTPStatus
from typing import Final

SUBJECT_NOT_FOUND: Final = 40401
VERSION_NOT_FOUND: Final = 40402
SCHEMA_NOT_FOUND: Final = 40403
NO_SUBJECT_CONFIG: Final = 40408
INVALID_SCHEMA: Final = 42201
INVALID_VERSION: Final = 42202
NOT_IN_WRITE_MODE: Final = 42205
STORE_ERROR: Final = 50001
TIMED_OUT: Final = 50002


class RegistryError(Exception):
    """An error reply. `code` is Confluent's error_code; its first three digits are the HTTP status."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message

    @property
    def status(self) -> int:
        return self.code if self.code < 1000 else self.code // 100


def subject_not_found(subject: str) -> RegistryError:
    return RegistryError(SUBJECT_NOT_FOUND, f"Subject '{subject}' not found.")


def version_not_found(version: object) -> RegistryError:
    return RegistryError(VERSION_NOT_FOUND, f"Version {version} not found.")


def schema_not_found(what: object = "") -> RegistryError:
    return RegistryError(SCHEMA_NOT_FOUND, f"Schema {what} not found" if what != "" else "Schema not found")


def invalid_version(text: str) -> RegistryError:
    allowed = 'Allowed values are between [1, 2^31-1] and the string "latest"'
    return RegistryError(INVALID_VERSION, f"The specified version '{text:.60}' is not a valid version id. {allowed}")


def invalid_schema(reason: str) -> RegistryError:
    return RegistryError(INVALID_SCHEMA, f"Invalid schema: {reason}")


def read_only(what: str) -> RegistryError:
    return RegistryError(
        NOT_IN_WRITE_MODE,
        f"{what} is in read-only mode: Pulsar's producers register schemas, as do pok schemas and AdminClient",
    )


def reason_of(status: int) -> str:
    """The message of an error without one of its own."""
    return f"HTTP {status} {HTTPStatus(status).phrase}"
