"""Operations are actions of operators on the cluster. Each has an audit line in the log of the process."""

from __future__ import annotations

import logging
from typing import Final

from pulsar_on_kafka.client.values.texts import printable
from pulsar_on_kafka.console.actions import Action, Plan
from pulsar_on_kafka.console.operators import OperatorRights
from pulsar_on_kafka.console.view_model import Site

_audit: Final = logging.getLogger("pulsar_on_kafka.console.audit")
_RIGHTS_TIMEOUT_S: Final = 8.0
_MAX_CHARS: Final = 2000
"""The limit of each part of an audit line."""


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


def audit(operator: str, address: str, what: str, result: str, *, failed: bool = False) -> None:
    """Logs who did what on what, from where, and the result. The level is WARNING for a failure or a refusal."""
    level = logging.WARNING if failed else logging.INFO
    shown = (printable(operator) or "-", address, printable(what)[:_MAX_CHARS], printable(result)[:_MAX_CHARS])
    _audit.log(level, "console=audit operator=%s from=%s %s result=%s", *shown)
