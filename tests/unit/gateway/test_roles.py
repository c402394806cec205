"""A role takes part in its own transactions alone, and REST on this machine answers to this machine's names alone."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from starlette.requests import Request

from pulsar_on_kafka.gateway.handlers.transactions import GatewayTransactions, RoleTransactions
from pulsar_on_kafka.gateway.login.access import OPEN_ACCESS, GatewayAccess
from pulsar_on_kafka.gateway.rest.request import Cluster, RestError, RestRequest
from pulsar_on_kafka.gateway.rest.rights import RouteRight
from pulsar_on_kafka.gateway.rest.server import Rest
from pulsar_on_kafka.gateway.rest.tenants import make
from pulsar_on_kafka_mapping.ids.txn_id import TxnId

NOTHING: Any = None
TXN = TxnId(0, 1)


def test_a_transaction_is_known_to_its_owner_and_to_super_users() -> None:
    access = GatewayAccess(certificates=True, super_users=frozenset({"admin"}))
    transactions = GatewayTransactions(NOTHING, access, NOTHING)
    part: Any = SimpleNamespace(owner="bob", id=TXN)
    transactions._known[TXN] = part
    known = {role: RoleTransactions(transactions, role).known(TXN) for role in ("bob", "eve", "admin", "")}
    assert known == {"bob": part, "eve": None, "admin": part, "": None}
    part.owner = ""
    assert RoleTransactions(transactions, "eve").known(TXN) is part


@pytest.mark.parametrize(
    ("host", "answers"),
    [("localhost:8080", True), ("127.0.0.1", True), ("[::1]:1", True), ("evil.example:8080", False)],
)
def test_rest_of_this_machine_answers_to_its_names(host: str, answers: bool) -> None:
    rest = Rest(NOTHING, OPEN_ACCESS, frozenset({"localhost", "127.0.0.1", "::1"}))
    scope = {"type": "http", "method": "GET", "path": "/", "query_string": b"", "headers": [(b"host", host.encode())]}
    request = Request({**scope, "scheme": "http", "server": ("127.0.0.1", 80)})
    if answers:
        rest._check(request, RouteRight(None, administers=True))
    else:
        with pytest.raises(RestError, match="answers to 127"):
            rest._check(request, RouteRight(None, administers=True))


@pytest.mark.parametrize("said", [b'{"allowedClusters": [{"a": 1}]}', b'{"allowedClusters": "all"}'])
def test_a_list_that_is_none_is_named(said: bytes) -> None:
    cluster = Cluster(*[NOTHING] * 7)
    with pytest.raises(RestError, match=r"allowedClusters is .*, expected a list of names"):
        make(RestRequest(cluster, {"tenant": "t"}, {}, said))
