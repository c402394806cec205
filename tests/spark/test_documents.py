"""The pages about Spark do what they say, with the Spark of the other tests."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.document_runs import PageRun
from tests.documents import cases_of


@pytest.mark.parametrize("page", cases_of("spark", long=["docs/spark.md"]))
def test_a_page_does_what_it_says(page: Path, spark: SparkSession, service_url: str, tmp_path: Path) -> None:
    instead = {
        "/lake": f"{tmp_path}/lake",
        "orders.parquet": f"{tmp_path}/orders.parquet",
        '"sales"': '"{topic}-sales"',
        "create sales ": "create {topic}-sales ",
        "produce sales ": "produce {topic}-sales ",
        'where = {"service.url"': 'where = {"instance": "{instance}", "service.url"',  # Spark runs with another one
    }
    with PageRun(page, "spark", tmp_path, service_url, instead) as run:
        run.run()
