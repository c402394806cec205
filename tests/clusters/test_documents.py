"""The pages that need two clusters do what they say on two."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.document_runs import PageRun
from tests.documents import ROOT, pages_of


@pytest.mark.parametrize("page", pages_of("two clusters"), ids=lambda page: str(page.relative_to(ROOT)))
def test_a_page_does_what_it_says(page: Path, two_brokers: dict[str, str], tmp_path: Path) -> None:
    eu, us = two_brokers.values()
    instead = {
        # The page's state is that of an instance, on both sides.
        "--service-url kafka://eu:9092": f"--service-url {eu} --peer-instance {{instance}}",
        "--service-url kafka://us:9092": f"--service-url {us} --peer-instance {{instance}}",
        "kafka://eu:9092": eu,
        "kafka://us:9092": us,
        "--port 9464": "--port 0",
        "--port 9474": "--port 0",
    }
    with PageRun(page, "two clusters", tmp_path, eu, instead) as run:
        run.run()
