"""Transactions are switched off over REST; clients get Pulsar's error."""

from __future__ import annotations

from typing import Any

import pytest

from pulsar_on_kafka.admin import CLUSTER, AdminClient
from pulsar_on_kafka_mapping.wire.commands import ServerError, Type
from tests.integration.gateway.rest import Rest
from tests.integration.gateway.wire import COMMIT, Wire, begun
from tests.steps import Unique
from tests.waiting import until

pytestmark = pytest.mark.kafka

SETTINGS = "/admin/v2/brokers/configuration"
SETTING = "transactionCoordinatorEnabled"


def test_clients_get_the_error_of_pulsar(wire: Wire, rest: Rest, admin: AdminClient) -> None:
    wire.connect()
    txn = begun(wire)
    rest.refuses(412, "takes true or false", "POST", f"{SETTINGS}/{SETTING}/perhaps")
    rest.refuses(412, "is no dynamic setting", "POST", f"{SETTINGS}/loadBalancerEnabled/true")
    rest.does("POST", f"{SETTINGS}/{SETTING}/false")
    try:
        assert rest.get(f"{SETTINGS}/values")[SETTING] == rest.get(f"{SETTINGS}/runtime")[SETTING] == "false"
        for kind, fields in (
            (Type.NEW_TXN, {"txn_ttl_seconds": 60_000}),
            (Type.TC_CLIENT_CONNECT_REQUEST, {}),
        ):

            def refused(kind: Type = kind, fields: dict[str, Any] = fields) -> Any:
                said = wire.ask(kind, request_id=7, tc_id=3, **fields)
                return said if said.HasField("error") else None

            said = until(refused, "a refusal")
            assert (said.error, said.message) == (ServerError.NOT_ALLOWED, "Transactions are not enabled.")
        ended = wire.ask(Type.END_TXN, request_id=8, txn_action=COMMIT, **txn)
        assert not ended.HasField("error"), ended.message
    finally:
        admin.remove_policy(CLUSTER, "transaction_coordinator_enabled")
    rest.does("POST", f"{SETTINGS}/{SETTING}/false")
    rest.does("DELETE", f"{SETTINGS}/{SETTING}")
    assert SETTING not in rest.get(f"{SETTINGS}/values")


def test_a_tenant_is_switched_off(rest: Rest, admin: AdminClient, unique: Unique) -> None:
    tenant = unique("tenant")
    here = f"/admin/v2/tenants/{tenant}/{SETTING}"
    rest.refuses(404, "Tenant does not exist", "GET", here)
    admin.create_tenant(tenant)
    admin.create_namespace(f"{tenant}/n")
    assert rest.ask("GET", here).status_code == 204
    rest.refuses(400, "takes true or false", "POST", here, json=1)
    rest.does("POST", here, json=False)
    assert rest.get(here) is False
    assert admin.get_policy(f"{tenant}/*", "transaction_coordinator_enabled") is False
    rest.does("DELETE", here)
    assert rest.ask("GET", here).status_code == 204
    rest.does("POST", here, json=False)
    rest.does("DELETE", f"/admin/v2/tenants/{tenant}", force="true")
    rest.refuses(404, "Tenant does not exist", "GET", here)
    admin.create_tenant(tenant)
    assert rest.ask("GET", here).status_code == 204
