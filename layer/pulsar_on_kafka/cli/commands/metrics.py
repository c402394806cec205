"""`pok metrics`: backlogs and holes of a cluster in Prometheus's text form, once or for scraping."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import Annotated, Any

import typer

from pulsar_on_kafka.admin import AdminClient
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.base.errors import LayerError
from pulsar_on_kafka.base.http_server import HttpServer, answered
from pulsar_on_kafka.base.shutdown import stop_on_signals
from pulsar_on_kafka.cli.overview.overview import gathering
from pulsar_on_kafka.cli.shared.output import CommandFailed, news, write_line
from pulsar_on_kafka.client.values.texts import printable
from pulsar_on_kafka.metrics.overview import CONTENT_TYPE, page_of
from pulsar_on_kafka_mapping.names.topic_name import TopicName


def metrics(
    admin: AdminClient,
    topics: Annotated[list[str] | None, typer.Argument(help="Topics; without any, all of the namespace.")] = None,
    namespace: Annotated[str, typer.Option("--namespace", help="tenant/namespace.")] = "public/default",
    port: Annotated[
        int | None,
        typer.Option("--port", min=0, max=65535, help="Answer GET /metrics there until Ctrl-C; 0: a free one."),
    ] = None,
) -> None:
    """Print the metrics of every topic and subscription, for Prometheus (docs/metrics.md)."""
    requested = frozenset(str(TopicName.parse(each).base) for each in topics or ())
    with gathering(admin, None, None if requested else namespace) as gather:

        def look() -> tuple[bytes, list[str]]:
            """The page, and which topics are not there."""
            seen = gather()
            missing = sorted(requested - {each.topic for each in seen.topics})
            text = page_of(seen.of(topics=requested) if requested else seen).text
            return text, [f"topic {printable(name)} does not exist" for name in missing]

        if port is not None:
            _answer_scrapes(port, look)
            return
        text, missing = look()
        write_line(text.decode().rstrip("\n"))
        if missing:
            raise CommandFailed("; ".join(missing))


def _answer_scrapes(port: int, look: Callable[[], tuple[bytes, list[str]]]) -> None:
    turn = threading.Lock()

    def app(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        try:
            with turn:
                text, missing = look()
        except (CommandFailed, LayerError) as failure:
            return answered("503 Service Unavailable", {"reason": str(failure)}, start_response)
        for line in missing:
            news(line)
        start_response("200 OK", [("Content-Type", CONTENT_TYPE)])
        return [text]

    server = HttpServer("0.0.0.0", port, app)  # noqa: S104 - scrapers run on other hosts
    news(f"metrics on port {server.port}")
    with stop_on_signals(interruptible=True) as stop:
        while not stop.wait(Deadline.after(3600).remaining_s()):
            continue
    server.close()
