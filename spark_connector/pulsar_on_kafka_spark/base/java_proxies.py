"""Python objects implement Spark's interfaces in its plans: py4j forwards the calls.

Spark makes its plans in the driver, so nothing of these reaches an executor. py4j calls Python also for methods with
defaults in Java; so every method of an interface is implemented. Written against the interfaces
`org.apache.spark.sql.connector` of Spark 4.0 to 4.2.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final

from py4j.java_gateway import JavaClass, JavaPackage
from pyspark import java_gateway
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql.classic.column import Column as ClassicColumn

CONNECTOR: Final = "org.apache.spark.sql.connector"
_callbacks: Final[Any] = java_gateway.ensure_callback_server_started


@lru_cache(maxsize=1)
def driver_jvm(spark: SparkSession) -> DriverJvm:
    """The same for a session each time, so that it finds what it knows; the last session's is kept."""
    return DriverJvm(spark)


class DriverJvm:
    """The JVM of a session, as far as proxies need it."""

    def __init__(self, spark: SparkSession) -> None:
        untyped: Any = spark
        self.session: Any = untyped._jsparkSession
        self._spark = spark
        self.gateway: Any = untyped.sparkContext._gateway
        self.jvm: Any = _Known(untyped._jvm)
        self.sql: Any = self.jvm.org.apache.spark.sql
        self.minor: Final = tuple(int(part) for part in spark.version.split(".")[:2])
        self._texts: Any = self.jvm.com.fasterxml.jackson.databind.ObjectMapper()
        self._map: Any = self.jvm.java.lang.Class.forName("java.util.HashMap")
        _callbacks(self.gateway)

    def none_of(self, name: str) -> Any:
        """An empty array of an interface of the connector's."""
        kind = self.jvm
        for part in f"{CONNECTOR}.{name}".split("."):
            kind = getattr(kind, part)
        return self.gateway.new_array(kind, 0)

    def single(self, package: Any, name: str) -> Any:
        """An object of Scala."""
        return getattr(getattr(package, f"{name}$"), "MODULE$")

    def options(self, given: Mapping[str, str]) -> Any:
        """A map of options, in one call to the JVM: a map of py4j's takes one for each of its members."""
        return self.sql.util.CaseInsensitiveStringMap(self._texts.readValue(json.dumps(dict(given)), self._map))

    def literal(self, value: bytes, kind: str) -> Column:
        """An array as `unsafe_values` makes it, and its type."""
        expressions: Any = self.sql.catalyst.expressions
        array = expressions.UnsafeArrayData()
        array.pointTo(value, self.jvm.org.apache.spark.unsafe.Platform.BYTE_ARRAY_OFFSET, len(value))
        literal = expressions.Literal(array, self.sql.types.DataType.fromDDL(kind))
        return ClassicColumn(self.sql.classic.ExpressionUtils.column(literal))

    def frame(self, plan: Any) -> DataFrame:
        return DataFrame(self.sql.classic.Dataset.ofRows(self.session, plan), self._spark)


class _Known:
    """A package or a class of Java of which everything is looked up once, since each look-up is a call to the JVM."""

    def __init__(self, java: Any) -> None:
        self._java = java

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._java, name)
        if isinstance(found, JavaPackage | JavaClass):
            found = _Known(found)
        setattr(self, name, found)
        return found

    def __call__(self, *arguments: Any) -> Any:
        return self._java(*arguments)


class Proxy:
    """A proxy is equal to itself alone."""

    def __init__(self, java: DriverJvm, name: str) -> None:
        self._java = java
        self._name = name

    def hashCode(self) -> int:  # noqa: N802 - Java's names
        return hash(self._name) & 0x7FFF_FFFF

    def equals(self, other: object) -> bool:
        return other is self

    def toString(self) -> str:  # noqa: N802
        return self._name


class TableProxy(Proxy):
    """A table that can be read."""

    def __init__(self, java: DriverJvm, name: str, schema: Any, capabilities: Any) -> None:
        super().__init__(java, name)
        self._schema = schema
        self._capabilities = capabilities

    def name(self) -> str:
        return self._name

    def schema(self) -> Any:
        return self._schema

    def columns(self) -> Any:
        kind, fields = self._java.sql.connector.catalog.Column, self._schema.fields()
        found = self._java.gateway.new_array(kind, len(fields))
        for number, field in enumerate(fields):
            found[number] = kind.create(field.name(), field.dataType(), field.nullable())
        return found

    def partitioning(self) -> Any:
        return self._java.none_of("expressions.Transform")

    def properties(self) -> Any:
        return self._java.jvm.java.util.HashMap()

    def capabilities(self) -> Any:
        return self._capabilities

    def id(self) -> None:
        """The id; a table here has none, nor a version."""

    def version(self) -> None:
        """See `id`."""

    def constraints(self) -> Any:
        return self._java.none_of("catalog.constraints.Constraint")

    def newScanBuilder(self, options: Any) -> Proxy:  # noqa: N802
        raise NotImplementedError

    class Java:
        implements = (f"{CONNECTOR}.catalog.SupportsRead",)
