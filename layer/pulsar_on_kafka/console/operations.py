"""Operations are actions of operators on the cluster. Each has an audit line in the log of the process."""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from typing import Final

from pulsar_on_kafka.client.values.texts import printable
from pulsar_on_kafka.console.actions import Action, Plan
from pulsar_on_kafka.console.operators import OperatorRights
from pulsar_on_kafka.console.view_model import Site

_audit: Final = logging.getLogger("pulsar_on_kafka.console.audit")
_RIGHTS_TIMEOUT_S: Final = 8.0
_MAX_CHARS: Final = 2000
"""The limit of each value of an audit line."""

Fields = Sequence[tuple[str, str]]
"""Names and values of an audit line."""


class Operations:
    """Plans and performs actions within the operators' rights. Thread-safe."""

    def __init__(self, site: Site, rights: OperatorRights) -> None:
        self._site = site
        self._rights = rights

    def plan(self, operator: str, action: Action) -> Plan:
        """The plan of the action; changes nothing. Raises Unanswered, and the exceptions of the action."""
        admin = self._site.admin()
        return action.plan(admin, self._rights.check_of(operator, admin.node, _RIGHTS_TIMEOUT_S))

    def perform(self, operator: str, address: str, action: Action) -> str:
        """Performs the action and returns its result in words. Raises Unanswered, and the exceptions of the action."""
        try:
            admin = self._site.admin()
            done = action.perform(admin, self._rights.check_of(operator, admin.node, _RIGHTS_TIMEOUT_S))
        except BaseException as failure:
            reason = str(failure) or type(failure).__name__
            audit(operator, address, action.what, f"failed: {reason}", failed=True)
            raise
        finally:
            self._site.forget()
        audit(operator, address, action.what, done)
        return done


def audit(operator: str, address: str, what: Fields, result: str, *, failed: bool = False) -> None:
    """Logs who did what on what, from where, and the result. The level is WARNING for a failure or a refusal."""
    level = logging.WARNING if failed else logging.INFO
    fields = [("operator", operator or "-"), ("from", address), *what, ("result", result)]
    _audit.log(level, "console=audit %s", " ".join(f"{name}={quoted(value)}" for name, value in fields))


def quoted(value: str) -> str:
    """The value of a field; as JSON has it if it has spaces or quotes, so that no value passes for another field."""
    cut = value[:_MAX_CHARS]
    is_plain = cut and not any(each.isspace() or each == '"' for each in cut)
    return printable(cut if is_plain else json.dumps(cut, ensure_ascii=False))
