"""Access to the registry's REST API requires a name and a password; without any, this machine's programs may read."""

from __future__ import annotations

import base64
import binascii
import hmac
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import urlsplit

from pulsar_on_kafka.base.errors import InvalidOption

_LOCAL: Final = frozenset({"127.0.0.1", "::1", "localhost"})


@dataclass(frozen=True, slots=True)
class RegistryAccess:
    """The clients that may read. Without users the server listens on this machine alone, and answers to no other host
    name than this machine's own."""

    users: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Passwords by name."""

    @staticmethod
    def checked(host: str, users: Mapping[str, str] | None) -> RegistryAccess:
        """Raises InvalidOption: programs of other machines could reach it, and no password is required."""
        if not users and host not in _LOCAL:
            raise InvalidOption(
                f"--schema-registry-host {host} opens the schema registry to programs of other machines: use "
                "--schema-registry-users-file, too"
            )
        return RegistryAccess(users or {})

    def admits(self, headers: Mapping[str, str]) -> bool:
        """Whether the sender of these headers may read."""
        if not self.users:
            return _host_of(headers.get("host", "")) in _LOCAL
        kind, _, reported = headers.get("authorization", "").partition(" ")
        if kind.lower() != "basic":
            return False
        try:
            name, _, password = base64.b64decode(reported, validate=True).decode().partition(":")
        except (binascii.Error, ValueError):
            return False
        found = False
        for user, expected in self.users.items():  # all are compared: the time tells nothing
            found |= _equal(f"{name}:{password}", f"{user}:{expected}")
        return found


def _equal(reported: str, expected: str) -> bool:
    return hmac.compare_digest(reported.encode("utf-8", "replace"), expected.encode())


def _host_of(text: str) -> str:
    try:
        return urlsplit(f"//{text}").hostname or ""
    except ValueError:
        return ""
