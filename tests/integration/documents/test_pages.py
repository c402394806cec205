"""The pages that need one broker do what they say on it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.document_runs import PageRun
from tests.documents import ROOT, pages_of

_INSTEAD = {"examples/first_steps.py": "examples/first_steps.py {url} {topic}"}


@pytest.mark.parametrize("page", pages_of("broker"), ids=lambda page: str(page.relative_to(ROOT)))
def test_a_page_does_what_it_says(page: Path, service_url: str, tmp_path: Path) -> None:
    with PageRun(page, "broker", tmp_path, service_url, _INSTEAD) as run:
        run.run()
