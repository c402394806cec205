"""Which of Spark's modules go with the installed pyspark."""

from __future__ import annotations

import re
from pathlib import Path

import pyspark
import pytest
from pyspark.sql.utils import to_str

from pulsar_on_kafka.spark import SparkNotReady
from pulsar_on_kafka_spark.base.connector_jars import CONNECTORS, connector_jars, connector_of, packages


@pytest.mark.parametrize("installed", ["4.0.0", "4.0.5", "4.1.4", "4.2.1", "4.2.0.dev1"])
def test_a_pyspark_is_given_the_source_of_its_minor_version(installed: str) -> None:
    assert connector_of(installed).version.rpartition(".")[0] == ".".join(installed.split(".")[:2])


@pytest.mark.parametrize("installed", ["3.5.9", "4.3.0", "4.20.0", "5.0.0"])
def test_one_whose_source_cannot_be_had_is_told(installed: str) -> None:
    told = f"pyspark {installed} is installed, .* cannot be had: expected pyspark 4.0, 4.1 or 4.2"
    with pytest.raises(SparkNotReady, match=told):
        connector_of(installed)


def test_the_project_asks_for_the_versions_that_there_are() -> None:
    project = (Path(__file__).parents[4] / "pyproject.toml").read_text(encoding="utf-8")
    (asked,) = re.findall(r'"pyspark>=([\d.]+),<([\d.]+)"', project)
    minors = [tuple(map(int, minor.split("."))) for minor in CONNECTORS]
    assert asked == (f"{minors[0][0]}.{minors[0][1]}", f"{minors[-1][0]}.{minors[-1][1] + 1}")


def test_jars_are_of_the_installed_version() -> None:
    version = CONNECTORS[".".join(pyspark.__version__.split(".")[:2])].version
    assert all(each.endswith(f"_2.13:{version}") for each in packages())
    assert connector_jars().name == f"spark-{version}-sources"


def test_packages_are_the_value_of_a_setting() -> None:
    joined = ",".join(packages())
    assert to_str(packages()) == str(packages()) == f"{packages()}" == joined, "pyspark sets the text of a value"
    kafka, avro = packages()
    assert joined == f"{kafka},{avro}"
