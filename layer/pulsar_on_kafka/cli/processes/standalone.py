"""`pok standalone`: a Kafka broker in the foreground."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Annotated, Final, Literal

import typer

from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.base.shutdown import stop_on_signals
from pulsar_on_kafka.cli.shared.output import CommandFailed, YesOption, confirm, news, show_result
from pulsar_on_kafka.cli.shared.settings import Settings
from pulsar_on_kafka.embedded import BrokerOptions, open_broker, run_standalone
from pulsar_on_kafka.embedded.select import DEFAULT_PORT, default_data_dir
from pulsar_on_kafka.embedded.storage import wait_unlocked

_OURS: Final = frozenset({"kafka", "broker.log", "server.properties", "log4j2.xml", "log4j.properties"})


def standalone(
    settings: Settings,
    data_dir: Annotated[
        Path | None, typer.Option("--data-dir", help="Where the data stay between runs.", show_default="one per user")
    ] = None,
    port: Annotated[int, typer.Option("--port", min=0, max=65535, help="On 127.0.0.1; 0: a free one.")] = DEFAULT_PORT,
    broker: Annotated[
        Literal["embedded", "docker"],
        typer.Option("--broker", help="A Java process, or a container (whose data do not stay)."),
    ] = "embedded",
    wipe: Annotated[bool, typer.Option("--wipe", help="Start with no data: delete what is there first.")] = False,
    yes: YesOption = False,
) -> None:
    """Run a Kafka broker until Ctrl-C. Fetches Kafka at the first run; POK_KAFKA_VERSION names another version."""
    if broker == "docker":
        if data_dir is not None or wipe:
            raise typer.BadParameter("a container's data do not stay: --data-dir and --wipe are for --broker embedded")
        _run_docker(settings, port)
        return
    if wipe:
        _wipe(data_dir or default_data_dir(), yes)
    run_standalone(data_dir, port, announce=lambda line: _announce(settings, line), progress=news)


def _run_docker(settings: Settings, port: int) -> None:
    with stop_on_signals(interruptible=True) as stop, open_broker("docker", BrokerOptions(port=port), news) as running:
        _announce(settings, f"Kafka is ready: kafka://{running.bootstrap}")
        stop.wait()
        news("stopping ...")


def _announce(settings: Settings, line: str) -> None:
    show_result(settings, line, {"url": line.rpartition(" ")[2]})


def _wipe(data_dir: Path, yes: bool) -> None:
    """Delete a broker's data.

    Raises:
        CommandFailed: the directory contains files of other programs, or the user did not confirm.
        DataDirBusy: a broker uses it.
    """
    there = sorted(found.name for found in data_dir.iterdir()) if data_dir.is_dir() else []
    if not there:
        return
    foreign = [name for name in there if name not in _OURS]
    if foreign:
        raise CommandFailed(f"{data_dir} holds {', '.join(foreign[:3])}, which no broker put there: it stays as it is")
    wait_unlocked(data_dir / "kafka", Deadline.after(0))
    confirm(f"delete all data in {data_dir}", yes)
    shutil.rmtree(data_dir)
