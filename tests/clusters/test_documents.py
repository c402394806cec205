"""The pages that need two clusters do what they say on two."""

from __future__ import annotations

from pathlib import Path

import pytest

from pulsar_on_kafka.embedded.settings import free_port
from tests.document_runs import PageRun
from tests.documents import cases_of


@pytest.mark.long
@pytest.mark.parametrize("page", cases_of("two clusters"))
def test_a_page_does_what_it_says(page: Path, two_brokers: dict[str, str], tmp_path: Path) -> None:
    first, second = two_brokers.values()
    lookup = free_port()
    instead = {
        "lookup-1:9465,lookup-2:9465": f"127.0.0.1:{lookup}",
        "lookup-1:9465": f"127.0.0.1:{lookup}",
        "--port 9465": f"--port {lookup}",
        "--port 6650": "--port 0 --http-port 0",
        "--port 9464": "--port 0",
        "--port 9474": "--port 0",
        "/etc/pok": str(tmp_path),
    }
    hosts = {"eu": first, "us": second, "west.example.com": first, "west": first, "east": second}
    # The page's state is that of an instance, on both sides.
    instead |= {
        f"--service-url kafka://{host}:9092": f"--service-url {url} --peer-instance {{instance}}"
        for host, url in hosts.items()
    }
    instead |= {f"kafka://{host}:9092": url for host, url in hosts.items()}
    with PageRun(page, "two clusters", tmp_path, first, instead) as run:
        run.run()
