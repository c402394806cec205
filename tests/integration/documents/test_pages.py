"""The pages that need one broker do what they say on it."""

from __future__ import annotations

from pathlib import Path

import pytest

from pulsar_on_kafka.embedded.settings import free_port
from tests.document_runs import PageRun
from tests.documents import cases_of

_INSTEAD = {"examples/first_steps.py": "examples/first_steps.py {url} {topic}"}
_PORTS = ("6650", "6651", "8080", "8081")
"""Of a gateway in the pages; here others are free."""
_LONG = ("docs/cli.md", "docs/compat.md", "docs/gateway.md", "layer/pulsar_on_kafka/embedded/README.md")
"""Pages with many commands, or with brokers of their own."""


@pytest.mark.parametrize("page", cases_of("broker", long=_LONG))
def test_a_page_does_what_it_says(page: Path, service_url: str, tmp_path: Path) -> None:
    ports = {port: free_port() for port in _PORTS}
    instead = {f"{before}{port}": f"{before}{free}" for port, free in ports.items() for before in (":", "port ")}
    with PageRun(page, "broker", tmp_path, service_url, _INSTEAD | instead) as run:
        run.run()
