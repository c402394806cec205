"""Executors' consumers: later reads reuse them, and Spark logs nothing about their group."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from pyspark.sql import SparkSession

import pulsar_on_kafka as pulsar
from pulsar_on_kafka.spark import read_pulsar
from tests.steps import Unique


def test_reads_share_consumers_and_log_no_warning(
    spark: SparkSession, client: pulsar.Client, service_url: str, unique: Unique
) -> None:
    topic = unique()
    producer = client.create_producer(topic)
    for number in range(10):
        producer.send(b"%d" % number, properties={"n": str(number)})
    before = _consumers(spark)
    options = {"service_url": service_url, "topic": topic}
    with _warnings(spark) as logged:
        for columns in ("value,__key", "value,__messageProperties", "value,__offset"):
            assert read_pulsar(spark, columns=columns, **options).count() == 10
        assert len(read_pulsar(spark, **options).where("__messageProperties['n'] = '3'").collect()) == 1
        made = _consumers(spark) - before
        (reused,) = {name for name in made if "spark-pulsar" in name}
        assert made == {reused}
        assert "kafka.group.id" not in logged.toString()
        own = read_pulsar(spark, columns="value", **options, **{"kafka.group.id": "mine"})
        assert own.count() == 10
    assert "kafka.group.id" in logged.toString(), "the program chose it, and Spark says what that may cost"
    assert any("client-id=consumer-mine-" in name for name in _consumers(spark) - before - made)


def _consumers(spark: SparkSession) -> set[str]:
    """The consumers that live in the JVM, by the names of their MBeans."""
    untyped: Any = spark
    jvm, gateway = untyped._jvm, untyped.sparkContext._gateway
    class_of = jvm.java.lang.Class.forName
    kinds, given = gateway.new_array(jvm.java.lang.Class, 2), gateway.new_array(jvm.java.lang.Object, 2)
    kinds[0], kinds[1] = class_of("javax.management.ObjectName"), class_of("javax.management.QueryExp")
    given[0] = jvm.javax.management.ObjectName("kafka.consumer:type=app-info,client-id=*")
    server = jvm.java.lang.management.ManagementFactory.getPlatformMBeanServer()
    found = class_of("javax.management.MBeanServer").getMethod("queryNames", kinds).invoke(server, given)
    return {str(name) for name in found}


@contextmanager
def _warnings(spark: SparkSession) -> Iterator[Any]:
    """What Spark's Kafka source logs from WARN on, as Java's text writer."""
    untyped: Any = spark
    jvm = untyped._jvm
    log4j = jvm.org.apache.logging.log4j
    written = jvm.java.io.StringWriter()
    appender = log4j.core.appender.WriterAppender.createAppender(None, None, written, "written", False, True)
    appender.start()
    logger = log4j.LogManager.getLogger("org.apache.spark.sql.kafka010.KafkaSourceProvider")
    logger.addAppender(appender)
    log4j.core.config.Configurator.setLevel(logger.getName(), log4j.Level.WARN)
    try:
        yield written
    finally:
        log4j.core.config.Configurator.setLevel(logger.getName(), log4j.Level.ERROR)
        logger.removeAppender(appender)
