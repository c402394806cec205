"""The gateway as a broker over REST: what monitoring, load balancers and tools look at."""

from __future__ import annotations

import secrets
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from pulsar_on_kafka.gateway.login.access import GatewayAccess, TokenKey
from tests.integration.gateway.rest import Rest, ServingRest

pytestmark = pytest.mark.kafka


def test_monitoring_finds_a_broker(rest: Rest) -> None:
    host = urlsplit(rest.url).netloc
    assert rest.ask("GET", "/admin/v2/brokers/ready").text == "ok"
    assert rest.ask("GET", "/status.html").text == "OK\n"
    assert rest.get("/admin/v2/brokers") == rest.get("/admin/v2/brokers/standalone") == [host]
    rest.refuses(404, "elsewhere", "GET", "/admin/v2/brokers/elsewhere")
    assert rest.get("/admin/v2/brokers/leaderBroker") == {"brokerId": host, "serviceUrl": rest.url}
    assert rest.get(f"/admin/v2/brokers/standalone/{host}/ownedNamespaces") == {}
    rest.refuses(404, "other:1", "GET", "/admin/v2/brokers/standalone/other:1/ownedNamespaces")
    assert "transactionCoordinatorEnabled" in rest.get("/admin/v2/brokers/configuration")
    assert rest.get("/admin/v2/brokers/configuration/values") == {}
    assert rest.get("/admin/v2/brokers/configuration/runtime")["webServicePort"] == host.rpartition(":")[2]
    rest.refuses(501, "no metadata store", "GET", "/admin/v2/brokers/internal-configuration")
    found = rest.ask("GET", "/metrics")
    assert found.status_code == 200
    assert "# TYPE pok_" in found.text
    shown = rest.get("/admin/v2/broker-stats/metrics")
    assert any(name.startswith("pok_") for each in shown for name in each["metrics"])
    assert all(each.keys() == {"metrics", "dimensions"} for each in shown)
    rest.refuses(501, "without loads", "GET", "/admin/v2/broker-stats/load-report")
    rest.refuses(501, "no bookies", "GET", "/admin/v2/broker-stats/bookieops")


def test_a_cluster_has_the_addresses_of_the_gateway(rest: Rest) -> None:
    told = rest.get("/admin/v2/clusters/standalone")
    assert (told["serviceUrl"], told["brokerServiceUrl"][:9]) == (rest.url, "pulsar://")
    assert told["brokerServiceUrlTls"] is told["serviceUrlTls"] is None
    assert rest.get("/admin/v2/clusters/standalone/failureDomains") == {}
    assert rest.get("/admin/v2/clusters/standalone/namespaceIsolationPolicies") == {}
    assert rest.get("/admin/v2/resourcegroups") == []
    assert rest.ask("GET", "/lookup/v2/topic/persistent/public/default/x/bundle").text == "0x00000000_0xffffffff"
    rest.refuses(404, "Cluster does not exist", "GET", "/admin/v2/clusters/elsewhere")


def test_a_load_balancer_needs_no_login(serving_rest: ServingRest, tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.write_bytes(secrets.token_bytes(32))
    with serving_rest(GatewayAccess(TokenKey.secret(str(key)))) as running:
        rest = Rest(running.url())
        assert rest.ask("GET", "/status.html").text == "OK\n"
        for path in ("/metrics", "/admin/v2/brokers/ready", "/admin/v2/brokers"):
            rest.refuses(401, "", "GET", path)
