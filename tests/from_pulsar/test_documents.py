"""The pages that need a Pulsar do what they say on one, which has a tenant with messages and a hole."""

from __future__ import annotations

from pathlib import Path

import pulsar as official
import pytest

from tests.document_runs import PageRun
from tests.documents import cases_of
from tests.from_pulsar.there import There


@pytest.mark.parametrize("page", cases_of("pulsar"))
def test_a_page_does_what_it_says(page: Path, there: There, service_url: str, tenant: str, tmp_path: Path) -> None:
    topic = f"persistent://{there.make_tenant(tenant)}/orders"
    consumer = there.client.subscribe(topic, "billing", official.ConsumerType.Shared)
    producer = there.client.create_producer(topic)
    for number in range(3):
        producer.send(b"%d" % number)
    for message in [consumer.receive(20_000) for _ in range(3)][::2]:
        consumer.acknowledge(message)
    consumer.close()
    producer.close()
    instead = {
        "acme": tenant,
        "pulsar://old:6650": there.service_url,
        "http://old:8080": there.admin_url,
        "pulsar://p:6650": f"{there.service_url} --pulsar-admin {there.admin_url}",
        "kafka://k:9092": service_url,
    }
    with PageRun(page, "pulsar", tmp_path, service_url, instead) as run:
        run.run()
