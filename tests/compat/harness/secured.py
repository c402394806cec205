"""Clusters with TLS, logins by token and authorization, for the scenarios about security.

A JSON file describes both sides; `make compat` starts such clusters and writes one, `pok compat run --secured FILE`
takes one of your own:

    {"pulsar": {"url": "pulsar+ssl://host:6651", "admin_url": "https://host:8443", "logins": LOGINS},
     "kafka": {"url": "kafka+ssl://host:9093", "logins": LOGINS}}
    LOGINS = {"authority": "ca.pem", "other_authority": "another-ca.pem", "tokens": {ROLE: TOKEN}}
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

ADMIN: Final = "admin"
EVERYTHING: Final = "everything"
PRODUCER: Final = "producer"
CONSUMER: Final = "consumer"
NOBODY: Final = "nobody"
EXPIRED: Final = "expired"
FORGED: Final = "forged"
ROLES: Final = {
    ADMIN: "a super user",
    EVERYTHING: "makes topics, produces and consumes",
    PRODUCER: "produces only",
    CONSUMER: "consumes only",
    NOBODY: "may log in, and nothing else",
    EXPIRED: "a token that is over",
    FORGED: "a token that the cluster did not sign",
}
"""What the token of each name gives its bearer in the namespace of the run."""

NOT_GIVEN: Final = "needs clusters with TLS, tokens and authorization: --secured FILE (docs/compat.md)"


class BadSecured(Exception):
    """A description of secured clusters that cannot be used; the message is one line."""


@dataclass(frozen=True, slots=True)
class Logins:
    """`authority` signed the servers' certificate, `other_authority` did not; both are PEM files."""

    authority: str
    other_authority: str
    tokens: Mapping[str, str] = field(repr=False)
    """By role: all of `ROLES`."""


@dataclass(frozen=True, slots=True)
class SecuredSide:
    """Address and logins of one cluster. `admin_url` is Pulsar's REST API, '' for Kafka.

    `gateway` is the address of a gateway to Kafka, or ''. Then the logins are those of the gateway, and Kafka at `url`
    needs none.
    """

    url: str
    logins: Logins
    admin_url: str = ""
    gateway: str = ""


def read_secured(file: Path) -> tuple[SecuredSide, SecuredSide]:
    """Pulsar's side and Kafka's. File names in it are relative to its folder.

    Raises:
        BadSecured: the file is not there, is no JSON, or lacks something.
    """
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise BadSecured(f"{file} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise BadSecured(f"{file} is no JSON: {error}") from error
    return _side(file, found, "pulsar"), _side(file, found, "kafka")


def _side(file: Path, found: Any, name: str) -> SecuredSide:
    try:
        side = found[name]
        logins = side["logins"]
        tokens = {role: str(logins["tokens"][role]) for role in ROLES}
        authority, other = (str(file.parent / logins[which]) for which in ("authority", "other_authority"))
        logins_of_side = Logins(authority, other, tokens)
        addresses = (str(side.get(which, "")) for which in ("admin_url", "gateway"))
        made = SecuredSide(str(side["url"]), logins_of_side, *addresses)
    except KeyError as error:
        raise BadSecured(f"{file}: {name} lacks {error.args[0]!r}") from error
    except (TypeError, AttributeError) as error:
        raise BadSecured(f"{file}: expected objects as docs/compat.md has them, in {name!r}") from error
    for which in (made.logins.authority, made.logins.other_authority):
        if not Path(which).is_file():
            raise BadSecured(f"{file}: {name} names the file {which}, which is not there")
    return made
