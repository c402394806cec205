"""An example to be killed: `python -m tests.spark.table_program '{"example": "join_once", ...}'`."""

from __future__ import annotations

import json
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import pulsar_on_kafka.spark
from tests.spark.conftest import MASTER, SETTINGS

EXAMPLES = Path(__file__).parents[2] / "examples"


def spark_example(name: str) -> Any:
    """The example as a module of its own."""
    spec = spec_from_file_location(f"example_{name}", EXAMPLES / "spark" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)  # not in sys.modules, so that Spark pickles its classes by value
    spec.loader.exec_module(module)
    return module


def main(given: dict[str, Any]) -> None:
    example = spark_example(given["example"])
    settings = dict(SETTINGS)
    if given["jars"]:
        delta = {name: value for name, value in example.DELTA.items() if name != "spark.jars.packages"}
        settings |= {**delta, "spark.jars": ",".join(given["jars"]), "spark.databricks.delta.snapshotPartitions": "2"}
    spark = pulsar_on_kafka.spark.session("example", master=MASTER, config=settings)
    spark.sparkContext.setLogLevel("ERROR")
    *arguments, lake = given["arguments"]
    more = ["delta"] if given["jars"] else []
    example.load(spark, *arguments, Path(lake), *more, most=given["most"])
    spark.stop()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
