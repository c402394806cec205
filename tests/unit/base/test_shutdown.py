from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from pulsar_on_kafka.base.shutdown import Startable, stop_on_signals
from pulsar_on_kafka.embedded import select
from pulsar_on_kafka.embedded.broker import BrokerOptions
from pulsar_on_kafka.embedded.errors import BrokerDidNotStart


class _Recorded(Startable):
    def __init__(self) -> None:
        self.calls: list[str] = []

    def start(self) -> None:
        self.calls.append("start")

    def stop(self) -> None:
        self.calls.append("stop")


def test_a_with_starts_and_stops_also_when_it_fails() -> None:
    recorded = _Recorded()

    def used() -> None:
        with recorded as same:
            assert same is recorded
            raise ValueError("inside")

    with pytest.raises(ValueError, match="inside"):
        used()
    assert recorded.calls == ["start", "stop"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_first_signal_is_a_wish(number: signal.Signals) -> None:
    before = signal.getsignal(number)
    with stop_on_signals(interruptible=True) as stop:
        assert not stop.is_set()
        os.kill(os.getpid(), number)
        assert stop.wait(10)
    assert signal.getsignal(number) is before


def _told_twice(*, interruptible: bool) -> None:
    with stop_on_signals(interruptible=interruptible) as stop:
        os.kill(os.getpid(), signal.SIGINT)
        assert stop.wait(10)
        signal.raise_signal(signal.SIGINT)


def test_the_second_signal_interrupts_where_that_is_wanted() -> None:
    _told_twice(interruptible=False)
    with pytest.raises(KeyboardInterrupt):
        _told_twice(interruptible=True)


class _Broker(_Recorded):
    bootstrap = "127.0.0.1:9092"
    is_running = True

    def __init__(self, log_file: Path) -> None:
        super().__init__()
        self.log_file = log_file


def test_standalone_stops_its_broker_when_it_is_told_to(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    broker, said = _Broker(tmp_path / "broker.log"), list[str]()

    def made(options: BrokerOptions, progress: object) -> _Broker:
        assert options.data_dir == tmp_path
        return broker

    def announced(line: str) -> None:
        said.append(line)
        os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(select, "EmbeddedBroker", made)
    select.run_standalone(tmp_path, announce=announced, progress=said.append)
    assert said == ["Kafka is ready: kafka://127.0.0.1:9092", "stopping ..."]
    assert broker.calls == ["start", "stop"]


def test_standalone_says_that_its_broker_has_ended(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    broker = _Broker(tmp_path / "broker.log")
    broker.log_file.write_text("out of memory\n", encoding="utf-8")
    broker.is_running = False
    monkeypatch.setattr(select, "EmbeddedBroker", lambda options, progress: broker)
    with pytest.raises(BrokerDidNotStart, match="ended by itself; its log ends: out of memory"):
        select.run_standalone(tmp_path, announce=lambda line: None, progress=lambda line: None)
    assert broker.calls == ["start", "stop"]
