"""The flights of 2013, through a program written for Pulsar, on a real Kafka broker, with a kill -9 in the middle.

    python examples/flights_demo.py                  all 336,776 flights, about a minute
    python examples/flights_demo.py --flights 20000  a sample
    POK_BOOTSTRAP=host:9092 python examples/flights_demo.py    on a cluster of yours (a new topic, deleted at the end)

Each flight is one message. A Shared subscription with four consumers acknowledges every flight one by one, except those
that never left. Their process is killed with SIGKILL half way and started again. What remains a new consumer receives,
and Spark reads it, too. At the end every number stands beside the one counted in the data frame; the exit code is 1 if
any disagrees.
"""

from __future__ import annotations

import argparse
import json
import secrets
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from flights import kafka_tools, picture, spark_view
from flights.consuming import ConsumingProcess, DemoFailed, Sample, Sampler, Watch, rate, seconds_until_first
from flights.data import FlightId, Truth, as_messages, load_flights
from flights.evidence import DURABLE
from flights.publish import Published, publish
from flights.spark_view import SparkView
from flights.verdict import Observed, Row, verdict
from flights.worker import CONSUMERS
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    Task,
    TextColumn,
    TimeElapsedColumn,
)
from rich.table import Table
from rich.text import Text

import pulsar_on_kafka as pulsar
from pulsar_on_kafka.admin import AdminClient
from pulsar_on_kafka.embedded import BrokerKind, EmbeddedBrokerError, ExternalBroker, open_broker
from pulsar_on_kafka.spark import SparkNotReady

PARTITIONS = 4
SHORTEST_RUN_S = 4.0
SHORTEST_WORK_S = 0.0002
QUIET_S = 1.5
GIVE_UP_S = 30.0
FEWEST_FLIGHTS = 1000
SUBSCRIPTION = "departures"

console = Console(width=None if sys.stdout.isatty() else 110, highlight=False)


@dataclass(frozen=True, slots=True)
class Stage:
    """Where the demo plays."""

    bootstrap: str
    topic: str
    client: pulsar.Client
    admin: AdminClient
    evidence: Path

    @property
    def service_url(self) -> str:
        return f"kafka://{self.bootstrap}"


def main() -> int:
    options = _options()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    started = time.monotonic()
    try:
        flights = load_flights(options.flights)
        truth = Truth.of(flights)
        with set_up(options.broker) as stage:
            published = publish_all(stage, list(as_messages(flights)))
            processes, samples = consume_with_a_kill(stage, published)
            remaining = read_remaining(stage)
            by_spark = None if options.without_spark else count_with_spark(stage, options.output)
            backlog = stage.admin.subscription_stats(stage.topic, SUBSCRIPTION).backlog
            evidence = [process.evidence.events for process in processes]
            rows = verdict(truth, Observed(published.count(), evidence, remaining, backlog, by_spark))
            show_picture(story(published, processes, samples, remaining), options.output)
            right = show_verdict(rows, options.output)
            show_kafkas_view(stage)
            console.print(f"\nThe whole demo took {time.monotonic() - started:.0f} s.")
            if options.keep:
                keep(stage)
    except (KeyboardInterrupt, pulsar.Interrupted):
        console.print("\nstopped; everything is cleaned up")
        return 128 + signal.SIGINT
    except (DemoFailed, EmbeddedBrokerError, pulsar.PulsarException) as error:
        console.print(f"[red]{type(error).__name__}: {error}")
        return 2
    return 0 if right else 1


@contextmanager
def set_up(kind: BrokerKind) -> Iterator[Stage]:
    """A broker, a fresh topic, and a subscription that starts at its beginning."""
    with ExitStack() as stack:
        console.rule("[bold]1  a broker and a topic")
        broker = stack.enter_context(open_broker(kind, progress=console.print))
        service_url = f"kafka://{broker.bootstrap}"
        topic = f"persistent://public/default/flights-{secrets.token_hex(3)}"
        admin = stack.enter_context(AdminClient(service_url))
        admin.create_partitioned_topic(topic, PARTITIONS)
        if isinstance(broker, ExternalBroker):
            stack.callback(admin.delete_topic, topic, force=True)
        admin.create_subscription(topic, SUBSCRIPTION, from_earliest=True)
        client = pulsar.Client(service_url)
        stack.callback(client.shutdown)
        evidence = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="pok-flights-")))
        console.print(f"Kafka at {broker.bootstrap}, topic {topic} with {PARTITIONS} partitions")
        yield Stage(broker.bootstrap, topic, client, admin, evidence)


def publish_all(stage: Stage, messages: list[tuple[FlightId, str, bytes]]) -> Published:
    console.rule("[bold]2  publish: one message per flight, key = carrier")
    with _progress() as progress:
        task = progress.add_task("stored", total=len(messages))
        published = publish(stage.client, stage.topic, messages, lambda done: progress.update(task, completed=done))
    if published.failures:
        flight_id, result = published.failures[0]
        raise DemoFailed(f"{len(published.failures)} flights were not stored, flight {flight_id} first: {result}")
    sizes = ", ".join(f"{len(flights):,}" for flights in published.partitions)
    console.print(f"{published.count():,} flights in {published.seconds:.1f} s: ", end="")
    console.print(f"[bold]{published.count() / published.seconds:,.0f} published/s[/]; in the partitions: {sizes}")
    return published


def consume_with_a_kill(stage: Stage, published: Published) -> tuple[list[ConsumingProcess], list[Sample]]:
    """Kill the consuming process when it has received half of the flights; its successor does the rest."""
    console.rule("[bold]3  consume: four Shared consumers in one process, killed half way")
    count = published.count()
    with ExitStack() as stack:
        progress = stack.enter_context(_progress())
        received = progress.add_task("received", total=count)
        durable = progress.add_task("durably acknowledged", total=count)

        def show(now_received: int, now_durable: int) -> None:
            progress.update(received, completed=now_received)
            progress.update(durable, completed=now_durable)

        watch = Watch(show)
        sampler = stack.enter_context(Sampler(stage.admin, stage.topic, SUBSCRIPTION))

        first = stack.enter_context(_consuming_process(stage, 1, count))
        watch.until(first, lambda seen, _: len(seen.received) >= count / 2 and len(seen.durable) >= count / 10)
        first.kill()
        watch.add(first.evidence.read_on())
        _tell_of_the_kill(first, watch)

        second = stack.enter_context(_consuming_process(stage, 2, count))
        watch.until(second, lambda seen, quiet_s: _is_done(seen, second, count, quiet_s))
        second.stop()
        watch.add(second.evidence.read_on())
    console.print(
        f"process {second.pid} got its first message {seconds_until_first(second):.1f} s after its start, "
        f"processed [bold]{rate(second):,.0f} flights/s[/] and left in order"
    )
    return [first, second], sampler.samples


def _consuming_process(stage: Stage, number: int, flights: int) -> ConsumingProcess:
    # A small sample would be over before its middle could be seen: there each flight takes a little while.
    work_s = SHORTEST_RUN_S * CONSUMERS / flights
    evidence = stage.evidence / f"process-{number}.txt"
    return ConsumingProcess(
        stage.service_url, stage.topic, SUBSCRIPTION, evidence, work_s if work_s > SHORTEST_WORK_S else 0.0
    )


def _is_done(watch: Watch, second: ConsumingProcess, count: int, quiet_s: float) -> bool:
    """Everything was received and nothing more comes; or nothing comes any more (the final table will tell)."""
    if second.evidence.events and len(watch.received) >= count:
        return quiet_s > QUIET_S
    return quiet_s > GIVE_UP_S


def _tell_of_the_kill(first: ConsumingProcess, watch: Watch) -> None:
    console.print(
        f"process {first.pid}: first message after {seconds_until_first(first):.1f} s, "
        f"[bold]{rate(first):,.0f} flights/s[/]"
    )
    console.print(
        f"[bold red]kill -9 {first.pid}[/] after {len(watch.received):,} flights, "
        f"{len(watch.durable):,} of them durably acknowledged; a new process is started"
    )
    console.print("(Kafka waits 6 s for the dead process, its session timeout, before it gives the partitions away)")


def read_remaining(stage: Stage) -> list[tuple[FlightId, str]]:
    """What a new consumer of the subscription still gets. Nothing is acknowledged."""
    console.rule("[bold]4  what remains")
    consumer = stage.client.subscribe(stage.topic, SUBSCRIPTION, consumer_type=pulsar.ConsumerType.Shared)
    remaining = []
    patience_ms = 15_000  # for the first one: the group has to form
    while True:
        try:
            flight = json.loads(consumer.receive(timeout_millis=patience_ms).data())
        except pulsar.Timeout:
            break
        patience_ms = 2_000
        remaining.append((flight["id"], flight["carrier"]))
    consumer.close()
    console.print(f"A new consumer gets {len(remaining):,} messages, then nothing more.")
    return remaining


def count_with_spark(stage: Stage, output: Path) -> SparkView | None:
    """The same by Spark; None when this machine cannot run it, which is said."""
    console.rule("[bold]5  the same, counted by Spark")
    log = output / "spark.log"
    console.print(f"Spark starts; its Kafka connector (10 MB) is fetched once, at the first run. It writes to {log}")
    started_s = time.monotonic()
    try:
        with spark_view.started(log) as spark:
            console.print(f"Spark {spark.version} is there after {time.monotonic() - started_s:.1f} s")
            began_s = time.monotonic()
            found = spark_view.remaining(spark, stage.service_url, stage.topic, SUBSCRIPTION)
    except SparkNotReady as missing:
        console.print(f"[yellow]without Spark: {missing}")
        return None
    console.print(
        f"spark_connector.read_pulsar(..., subscription={SUBSCRIPTION!r}) has [bold]{len(found.flights):,} rows[/] of "
        f"{len(found.by_carrier)} carriers, read and counted in {time.monotonic() - began_s:.1f} s"
    )
    return found


def story(
    published: Published,
    processes: list[ConsumingProcess],
    samples: list[Sample],
    remaining: list[tuple[FlightId, str]],
) -> picture.Story:
    first, second = processes
    zero = first.started_s
    durable_at: dict[FlightId, float] = {}
    for process in processes:
        for event in process.evidence.events:
            if event.kind == DURABLE:
                durable_at |= dict.fromkeys(event.flights, event.at_s - zero)
    # Saved just before the kill, without a chance to say so: acknowledged, since nobody gets them any more.
    holes = {flight for flight, _ in remaining}
    received = {flight for process in processes for event in process.evidence.events for flight in event.flights}
    for flight in received - durable_at.keys() - holes:
        durable_at[flight] = first.ended_s - zero
    end = max([first.ended_s, *(event.at_s for event in second.evidence.events)]) + 1
    return picture.Story(
        picture.acknowledged_at(published.partitions, durable_at),
        [(at_s - zero, sample) for at_s, sample in samples if at_s <= end],
        (seconds_until_first(first), second.started_s + seconds_until_first(second) - zero),
        first.ended_s - zero,
        end - zero,
        len(holes),
    )


def show_picture(drawn: picture.Story, output: Path) -> None:
    console.rule("[bold]6  acknowledged, over time")
    console.print(picture.terminal(drawn, min(console.width, 100)))
    file = output / "acknowledgements.png"
    picture.draw(drawn, file)
    console.print(f"The same as a picture: {file}")


def show_verdict(rows: list[Row], output: Path) -> bool:
    """The table, also as JSON; True when every row agrees."""
    console.rule("[bold]7  the run beside the data frame")
    table = Table()
    table.add_column("")
    table.add_column("this run", justify="right")
    table.add_column("data frame", justify="right")
    table.add_column("")
    for row in rows:
        expected = "" if row.expected is None else f"{row.expected:,}"
        mark = "" if row.expected is None else "[green]=" if row.agrees else "[bold red]DIFFERS"
        table.add_row(row.what, f"{row.seen:,}", expected, mark)
    console.print(table)
    (output / "numbers.json").write_text(json.dumps([asdict(row) for row in rows], indent=1) + "\n", encoding="utf-8")
    wrong = [row.what.strip() for row in rows if not row.agrees]
    if wrong:
        console.print(f"[bold red]{len(wrong)} numbers disagree: {'; '.join(wrong)}")
    else:
        console.print("[bold green]Nothing was lost, and nothing durably acknowledged came again.")
    return not wrong


def show_kafkas_view(stage: Stage) -> None:
    console.rule("[bold]8  the same, seen by Kafka's own tool")
    stats = stage.admin.subscription_stats(stage.topic, SUBSCRIPTION)
    command = kafka_tools.describe_command(stage.bootstrap, stats.group)
    console.print(kafka_tools.as_line(command), style="cyan", soft_wrap=True)
    console.print(kafka_tools.run(command), soft_wrap=True)
    console.print(
        "Kafka counts from the committed offset, which cannot pass the first hole: its LAG is the span that holds the "
        f"{stats.backlog:,} holes. The acknowledgements above it are in the commit's metadata and in its segments."
    )


def keep(stage: Stage) -> None:
    console.print(f"\nKept for your own looks: {stage.service_url}, topic {stage.topic}. Ctrl-C ends it.")
    with suppress(KeyboardInterrupt):
        threading.Event().wait()


def _progress() -> Progress:
    columns = (BarColumn(), MofNCompleteColumn(), _RateColumn(), TimeElapsedColumn())
    return Progress(TextColumn("{task.description:>20}"), *columns, console=console)


class _RateColumn(ProgressColumn):
    def render(self, task: Task) -> Text:
        speed = task.finished_speed or task.speed
        return Text(f"{speed:,.0f}/s" if speed else "", style="cyan")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--flights", type=int, metavar="N", help="only a sample of N flights (1000 or more)")
    parser.add_argument("--keep", action="store_true", help="leave the broker running until Ctrl-C")
    parser.add_argument("--broker", choices=["auto", "embedded", "docker", "external"], default="auto")
    parser.add_argument("--without-spark", action="store_true", help="leave out the step that Spark counts")
    parser.add_argument("--output", type=Path, default=Path("demo-output"), help="where the picture and numbers go")
    options = parser.parse_args()
    if options.flights is not None and options.flights < FEWEST_FLIGHTS:
        parser.error(f"--flights {options.flights}: {FEWEST_FLIGHTS} are the fewest that have a middle to be killed in")
    return options


if __name__ == "__main__":
    sys.exit(main())
