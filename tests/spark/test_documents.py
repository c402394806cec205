"""The pages about Spark do what they say, with the Spark of the other tests."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.document_runs import PageRun
from tests.documents import ROOT, pages_of


def marked(page: Path) -> object:
    name = str(page.relative_to(ROOT))
    return pytest.param(page, id=name, marks=pytest.mark.long if name == "docs/spark.md" else ())


@pytest.mark.parametrize("page", [marked(page) for page in pages_of("spark")])
def test_a_page_does_what_it_says(page: Path, spark: SparkSession, service_url: str, tmp_path: Path) -> None:
    instead = {
        "/lake": f"{tmp_path}/lake",
        "orders.parquet": f"{tmp_path}/orders.parquet",
        '"sales"': '"{topic}-sales"',
    }
    with PageRun(page, "spark", tmp_path, service_url, instead) as run:
        run.run()
