"""`pok spark`: read, count and export topics with Spark, which is loaded when it is used."""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date, datetime, timezone
from pathlib import Path
from typing import IO, Annotated, Any, Final, Literal

import typer

from pulsar_on_kafka.base.clock import SystemClock
from pulsar_on_kafka.cli.commands.topics import TopicArgument
from pulsar_on_kafka.cli.shared.command import command
from pulsar_on_kafka.cli.shared.completing import complete_subscription
from pulsar_on_kafka.cli.shared.connection import require_listener
from pulsar_on_kafka.cli.shared.output import CommandFailed, show_result, show_table, write_json, write_line
from pulsar_on_kafka.cli.shared.settings import Settings
from pulsar_on_kafka.client.values.texts import parse_time, payload_text

app = typer.Typer(no_args_is_help=True)

_SPARK: Final[Mapping[str, str]] = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
    "spark.sql.session.timeZone": "UTC",
}


_SHOWN: Final = "value,__key,__topic,__messageId,__publishTime"


_TIME_HELP: Final = "publish time: ISO 8601, Unix ms, or so long ago (90s, 1h)."


@dataclass(frozen=True)
class _Reading:
    """The input of a reading, and the place where Spark runs."""

    subscription: Annotated[
        str | None,
        typer.Option(
            "--subscription",
            "-s",
            show_default=False,
            help="Only what its next consumer would get; left out: all that may be read. Nothing is acknowledged.",
            autocompletion=complete_subscription,
        ),
    ] = None
    start: Annotated[
        str | None,
        typer.Option("--start", show_default=False, metavar="TIME", help=f"Only messages from this {_TIME_HELP}"),
    ] = None
    end: Annotated[
        str | None,
        typer.Option("--end", show_default=False, metavar="TIME", help=f"Only messages before this {_TIME_HELP}"),
    ] = None
    master: Annotated[str, typer.Option("--master", help="Where Spark runs.")] = "local[*]"
    executor_config: Annotated[
        list[str] | None,
        typer.Option(
            "--executor-config",
            show_default=False,
            metavar="KEY=VALUE",
            help="An option of Kafka's Java client, which Spark reads with, such as security.protocol=SASL_SSL. May be "
            "repeated. (--kafka-config is librdkafka's, for the driver.)",
        ),
    ] = None


_Columns = Annotated[
    str | None,
    typer.Option(
        "--columns",
        show_default=False,
        metavar="NAME,NAME",
        help="The value is `value`; others are __key, __topic, __messageId, __publishTime, __eventTime ... or: all.",
    ),
]
_Schema = Annotated[
    str,
    typer.Option(
        "--schema", metavar="latest|bytes|N", help="The schema that values are read by: bytes as they are, N a version."
    ),
]


@command(app, "read")
def read(
    settings: Settings,
    topic: TopicArgument,
    columns: _Columns = None,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="How many rows are printed at most.")] = 20,
    schema: _Schema = "latest",
    *,
    reading: _Reading,
) -> None:
    """Print messages: a table, or with `--output json` one object a line."""
    shown = columns or _SHOWN
    with _messages(settings, topic, shown, schema, reading) as found:
        rows = [row.asDict(recursive=True) for row in found.limit(limit).collect()]
        names = found.columns
    if settings.json:
        for row in rows:
            write_json(_as_json(row))
    elif rows:
        show_table(names, [[_cell(row[name]) for name in names] for row in rows])
    else:
        write_line("no messages")


@command(app, "count")
def count(
    settings: Settings,
    topic: TopicArgument,
    *,
    reading: _Reading,
) -> None:
    """Count messages. With a subscription: its backlog, message by message."""
    with _messages(settings, topic, "__offset", "bytes", reading) as found:
        number = found.count()
    show_result(settings, f"{number:,}", {"topic": topic, "subscription": reading.subscription, "messages": number})


@command(app, "export")
def export(
    settings: Settings,
    topic: TopicArgument,
    to: Annotated[str, typer.Option("--to", help="A directory, or what Spark takes for one; made by the export.")],
    form: Annotated[
        Literal["parquet", "csv", "json"], typer.Option("--format", "-f", help="Of the files.")
    ] = "parquet",
    append: Annotated[bool, typer.Option("--append", help="To a directory that is there already.")] = False,
    columns: _Columns = None,
    limit: Annotated[
        int | None, typer.Option("--limit", "-n", min=1, help="How many rows at most.", show_default=False)
    ] = None,
    schema: _Schema = "latest",
    *,
    reading: _Reading,
) -> None:
    """Write messages into files. In CSV bytes are base64, and what has fields or items is JSON."""
    if "://" not in to and not append and Path(to).exists():
        raise CommandFailed(f"{to} exists already; name another directory, or use --append")
    with _messages(settings, topic, columns, schema, reading) as found:
        rows = found if limit is None else found.limit(limit)
        if form == "csv":
            rows = _flat(rows)
        writer = rows.write.mode("append" if append else "errorifexists").format(form)
        (writer.option("header", "true") if form == "csv" else writer).save(to)
    show_result(settings, f"exported {topic} to {to}", {"topic": topic, "to": to, "format": form})


@contextmanager
def _messages(settings: Settings, topic: str, columns: str | None, schema: str, reading: _Reading) -> Iterator[Any]:
    """A DataFrame, in a Spark that ends with the block, unless this process had one before."""
    options: dict[str, Any] = {
        "service.url": settings.cluster_url(),
        "instance": settings.instance,
        "topic": topic,
        "predefinedSubscription": reading.subscription,
        "columns": columns,
        "startingTime": _time(reading.start, "--start"),
        "endingTime": _time(reading.end, "--end"),
        "schema": int(schema) if schema.isdigit() else schema,
        **{f"driver.{name}": value for name, value in settings.kafka_config.items()},
        **{f"kafka.{name}": value for name, value in _pairs(reading.executor_config or [])},
    }
    try:
        import pulsar_on_kafka_spark as connector
    except ImportError as missing:
        raise CommandFailed(str(missing)) from missing
    from pyspark.sql import SparkSession

    require_listener(settings.bootstrap)
    own = SparkSession.getActiveSession() is None
    with _output_of_spark(shown=settings.debug) as output:
        try:
            spark = connector.session("pok", master=reading.master, config=_SPARK)
        except connector.SparkNotReady as failure:
            raise CommandFailed(f"{failure} {_last_line(output)}".strip()) from failure
    try:
        yield connector.read_pulsar(spark, **options)
    finally:
        if own:
            spark.stop()


@contextmanager
def _output_of_spark(*, shown: bool) -> Iterator[IO[bytes]]:
    """The file with the output of the JVM during the block, neither among the results nor on the terminal; with `shown`
    it is this process's output."""
    with tempfile.TemporaryFile() as output:
        if shown:
            yield output
            return
        sys.stdout.flush()
        sys.stderr.flush()
        ours = [os.dup(descriptor) for descriptor in (1, 2)]
        try:
            for descriptor in (1, 2):
                os.dup2(output.fileno(), descriptor)
            yield output
        finally:
            for descriptor, saved in zip((1, 2), ours, strict=True):
                os.dup2(saved, descriptor)
                os.close(saved)


def _last_line(output: IO[bytes]) -> str:
    output.seek(0)
    return next(filter(None, map(str.strip, reversed(output.read().decode(errors="replace").splitlines()))), "")


def _time(text: str | None, option: str) -> int | None:
    if text is None:
        return None
    try:
        return parse_time(text, SystemClock().now_ms())
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint=option) from error


def _pairs(given: list[str]) -> Iterator[tuple[str, str]]:
    for item in given:
        name, separator, value = item.partition("=")
        if not separator or not name.strip():
            raise typer.BadParameter(f"expected key=value, got {item!r}", param_hint="--executor-config")
        yield name.strip(), value.strip()


def _flat(rows: Any) -> Any:
    """Columns that CSV can hold."""
    from pyspark.sql import functions

    made = []
    for field in rows.schema.fields:
        column = rows[f"`{field.name}`"]
        kind = field.dataType.typeName()
        if kind == "binary":
            column = functions.base64(column)
        elif kind in ("struct", "array", "map"):
            column = functions.to_json(column)
        made.append(column.alias(field.name))
    return rows.select(*made)


def _as_json(value: object) -> Any:
    """Bytes as text where they are UTF-8, else base64; times as ISO 8601."""
    if isinstance(value, bytes | bytearray):
        return payload_text(bytes(value))
    if isinstance(value, dict):
        return {str(name): _as_json(part) for name, part in value.items()}
    if isinstance(value, list):
        return [_as_json(part) for part in value]
    if isinstance(value, datetime):
        return value.astimezone(timezone.utc).isoformat() if value.tzinfo else value.isoformat()
    if isinstance(value, date):
        return value.isoformat()
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)


def _cell(value: object) -> object:
    shown = _as_json(value)
    if shown is None:
        return ""
    return json.dumps(shown, ensure_ascii=False) if isinstance(shown, dict | list) else shown
