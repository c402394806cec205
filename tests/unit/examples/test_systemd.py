"""The units of `examples/systemd/` start what there is, and let it close."""

from __future__ import annotations

import importlib
import inspect
import shlex
from configparser import ConfigParser
from pathlib import Path

import pytest

from pulsar_on_kafka import Client
from pulsar_on_kafka.broker.node import node
from pulsar_on_kafka.broker.publishing import sender
from pulsar_on_kafka.cli.processes import serve
from tests.unit.docker.test_kubernetes import STOPS_S, needed_bytes, understood

_ROOT = Path(__file__).resolve().parents[3]
_UNITS = _ROOT / "examples" / "systemd"


def _read(name: str) -> ConfigParser:
    """Strict: a key that is there twice is an error here, as systemd's lists are not used."""
    unit = ConfigParser(interpolation=None, delimiters=("=",), comment_prefixes=("#", ";"))
    unit.optionxform = str  # type: ignore[assignment, method-assign]
    with (_UNITS / name).open(encoding="utf-8") as lines:
        unit.read_file(lines)
    return unit


def test_the_unit_starts_a_worker_with_options_that_it_has(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(_ROOT / "examples"))
    worker = importlib.import_module("orders_worker")
    service = _read("orders-worker@.service")["Service"]
    interpreter, script, *arguments = shlex.split(service["ExecStart"])
    assert interpreter.startswith(service["WorkingDirectory"] + "/"), "systemd wants the program's absolute path"
    assert (_ROOT / script).samefile(str(worker.__file__))
    job = worker.options().parse_args(arguments)
    assert job.name == "worker-%i", "each instance has a name of its own"
    assert (job.url, job.subscription) == ("${ORDERS_URL}", worker.SUBSCRIPTION)


def test_a_worker_has_longer_to_stop_than_it_takes() -> None:
    service = _read("orders-worker@.service")["Service"]
    assert service["KillSignal"] == "SIGTERM", "what orders_worker.work handles"
    leaving_s = inspect.signature(Client).parameters["operation_timeout_seconds"].default
    sending_s = inspect.signature(Client.create_producer).parameters["send_timeout_millis"].default / 1000
    closing_s = sender.CLOSE_TIMEOUT_S + 2 * sender.LEAVE_TIMEOUT_S
    assert int(service["TimeoutStopSec"]) > sending_s + leaving_s + 2 * closing_s + node._CLOSE_S


def test_the_target_takes_its_workers_with_it() -> None:
    target, unit = "orders-workers.target", _read("orders-worker@.service")
    assert unit["Unit"]["PartOf"] == unit["Install"]["WantedBy"] == target
    assert _read(target)["Install"]["WantedBy"] == "multi-user.target"
    assert {each.name for each in _UNITS.iterdir()} == {target, "orders-worker@.service", "pok-serve.service"}


def test_the_service_is_started_with_options_that_it_has() -> None:
    service = _read("pok-serve.service")["Service"]
    program, *arguments = shlex.split(service["ExecStart"])
    assert Path(program).name == "pok"
    understood(*arguments)
    assert f"--port {serve.DEFAULT_PORT}" in service["ExecStart"]
    assert (service["Type"], service["TimeoutStartSec"]) == ("notify", "infinity"), "it waits for Kafka"
    assert int(service["TimeoutStopSec"]) > STOPS_S
    assert service["MemoryMax"] == "1G"
    assert needed_bytes(copies=16) <= 2**30
