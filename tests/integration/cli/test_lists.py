"""`pok topics list` and `pok namespaces list`, of one place and of the whole cluster."""

from __future__ import annotations

import pytest

from pulsar_on_kafka.admin import AdminClient
from tests.integration.command_line import CommandLine
from tests.steps import Unique

pytestmark = pytest.mark.kafka


def test_all_lists_every_tenant_and_namespace(admin: AdminClient, service_url: str, unique: Unique) -> None:
    tenant = unique("tenant").lower()
    topics = {f"persistent://{tenant}/one/orders", f"persistent://{tenant}/two/orders"}
    for topic in topics:
        admin.create_namespace(topic.removeprefix("persistent://").rpartition("/")[0])
        admin.create_topic(topic)
    of_topics, of_namespaces = CommandLine(service_url, "topics"), CommandLine(service_url, "namespaces")
    listed = of_topics("list", "--all").stdout.splitlines()
    assert topics <= set(listed)
    assert listed == sorted(listed)
    assert topics <= set(of_topics.json("list", "--all"))
    assert of_topics("list", f"{tenant}/one").stdout.splitlines() == [f"persistent://{tenant}/one/orders"]
    assert {f"{tenant}/one", f"{tenant}/two", "public/default"} <= set(of_namespaces.json("list", "--all"))
    assert tenant in {each["tenant"] for each in CommandLine(service_url, "tenants").json("list", "--all")}


def test_all_goes_without_a_place(service_url: str) -> None:
    of_topics, of_namespaces = CommandLine(service_url, "topics"), CommandLine(service_url, "namespaces")
    assert "got acme/eu" in of_topics("list", "acme/eu", "--all", exits=2).stderr
    assert "use --all" in of_namespaces("list", exits=2).stderr
    assert "use --all" in of_namespaces("list", "acme", "--all", exits=2).stderr
