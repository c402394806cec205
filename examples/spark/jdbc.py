"""A stream loads messages into a table of a database exactly once: here SQLite, by JDBC.

    python examples/spark/jdbc.py kafka://localhost:9092 orders orders.db sqlite-jdbc.jar

Spark's JDBC writer has a transaction for each task, none for a batch. So a batch is written to a table of its own,
which is empty before. Then one transaction of the database takes the rows over, but for those whose message ids are
there already. With PostgreSQL it is the same, with its driver, and psycopg in the place of sqlite3.
"""

from __future__ import annotations

import sqlite3
import sys
from contextlib import closing
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from pulsar_on_kafka.spark import session, stream_pulsar

TABLES = """
create table if not exists orders (message_id text primary key, customer text, cents bigint);
drop table if exists arrived;
create table arrived (message_id text, customer text, cents bigint);
"""


def load(spark: SparkSession, service_url: str, topic: str, database: Path, *, most: int = 10_000) -> None:
    """Everything that the subscription `database` has not acknowledged; values are `{"cents": ...}` in JSON."""

    def write(rows: DataFrame, batch_id: int) -> None:
        with closing(sqlite3.connect(database)) as connection:
            connection.executescript(TABLES)
        orders = rows.selectExpr(
            "hex(__messageId) as message_id", "string(__key) as customer",
            "bigint(get_json_object(string(value), '$.cents')) as cents",
        )  # fmt: skip
        jdbc = orders.coalesce(1).write.format("jdbc").option("url", f"jdbc:sqlite:{database}")
        jdbc.option("driver", "org.sqlite.JDBC").option("dbtable", "arrived").mode("append").save()
        take_over(database)

    stream = stream_pulsar(
        spark, service_url=service_url, topic=topic, subscription="database", maxOffsetsPerTrigger=most
    )
    checkpoint = database.with_suffix(".checkpoint")
    stream.foreach_batch(write, checkpoint=str(checkpoint), available_now=True).awaitTermination()


def take_over(database: Path) -> None:
    with closing(sqlite3.connect(database)) as connection, connection:
        connection.execute("insert or ignore into orders select message_id, customer, cents from arrived")


def main(service_url: str, topic: str, database: str, driver: str) -> None:
    spark = session("jdbc")
    spark.sql(f"add jar '{driver}'")
    load(spark, service_url, topic, Path(database))
    with closing(sqlite3.connect(database)) as connection:
        print(*connection.execute("select count(*), sum(cents) from orders").fetchone())


if __name__ == "__main__":
    main(*sys.argv[1:])
