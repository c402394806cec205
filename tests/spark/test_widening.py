"""What is widened, beside Spark's own rule."""

from __future__ import annotations

from itertools import product
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.types import DataType

from pulsar_on_kafka_spark.values.widening import widens

TYPES = (
    *("tinyint", "smallint", "int", "bigint", "float", "double", "boolean", "string", "binary", "void", "date"),
    *("timestamp", "timestamp_ntz", "interval day to second", "interval year to month"),
    *("decimal(2,0)", "decimal(9,0)", "decimal(10,0)", "decimal(20,0)", "decimal(20,5)", "decimal(38,18)"),
    *("array<int>", "array<bigint>", "map<string,int>", "map<string,string>", "map<int,int>"),
    *("struct<a:int>", "struct<a:string>", "struct<b:int>", "struct<a:int,b:int>", "struct<a:struct<b:int>>"),
)


def test_types_are_widened_as_spark_widens_them(spark: SparkSession) -> None:
    untyped: Any = spark
    rule = untyped._jvm.org.apache.spark.sql.catalyst.expressions.Cast
    names = ", ".join(f"cast(null as {kind}) as `{kind}`" for kind in TYPES)
    types = {field.name: field.dataType for field in spark.sql(f"select {names}").schema.fields}

    def of_spark(found: DataType, wanted: DataType) -> bool:
        parse = untyped._jsparkSession.parseDataType
        return bool(rule.canUpCast(parse(found.json()), parse(wanted.json()).asNullable()))

    differ = [
        (one, other)
        for one, other in product(TYPES, TYPES)
        if widens(types[one], types[other]) != of_spark(types[one], types[other])
    ]
    assert differ == []
