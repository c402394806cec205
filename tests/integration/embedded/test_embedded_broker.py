"""The embedded broker as its users meet it: real JVMs, real signals."""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from pulsar_on_kafka.base.deadline import Deadline, wait_until
from pulsar_on_kafka.embedded import BrokerOptions, EmbeddedBroker, jar_cache, readiness
from pulsar_on_kafka.embedded import broker as embedded_broker
from pulsar_on_kafka.embedded.errors import (
    BrokerDidNotStart,
    DataDirBusy,
    EmbeddedBrokerError,
    NoJava,
    NotRunning,
    PortBusy,
)
from pulsar_on_kafka.embedded.jar_cache import JarSet
from pulsar_on_kafka.embedded.jars import kafka_jars
from pulsar_on_kafka.embedded.settings import Progress, free_port, is_free, silent
from tests.waiting import until

pytestmark = pytest.mark.kafka


def gone_within(pid: int, seconds: float) -> bool:
    def gone() -> bool:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
        stat = Path(f"/proc/{pid}/stat")
        return stat.exists() and stat.read_text().rpartition(")")[2].split()[0] == "Z"

    return wait_until(gone, Deadline.after(seconds))


def write(bootstrap: str, topic: str, value: bytes) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all"})
    producer.produce(topic, value, partition=0)
    assert producer.flush(20) == 0


def create(bootstrap: str, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(20)


def read_all(bootstrap: str, topic: str) -> list[bytes]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "reader", "enable.auto.commit": False})
    try:
        _, end = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=20)
        consumer.assign([TopicPartition(topic, 0, 0)])
        return [message.value() or b"" for message in consumer.consume(end, timeout=20)]
    finally:
        consumer.close()


def serves(bootstrap: str) -> bool:
    host, port = bootstrap.split(":")
    return readiness.query_cluster(host, int(port), 0.5) is not None


def test_data_outlive_restart_and_kill(own_broker: EmbeddedBroker) -> None:
    address = own_broker.bootstrap
    create(address, "kept")
    write(address, "kept", b"one")
    own_broker.restart()
    write(address, "kept", b"two")
    own_broker.kill()
    assert not serves(address)
    own_broker.start()
    assert own_broker.bootstrap == address
    assert read_all(address, "kept") == [b"one", b"two"]


@pytest.mark.long
def test_a_data_directory_carries_over_to_another_broker(tmp_path: Path) -> None:
    options = BrokerOptions(data_dir=tmp_path / "kept data", heap_mb=512)
    with EmbeddedBroker(options, silent) as first:
        create(first.bootstrap, "kept")
        write(first.bootstrap, "kept", b"one")
    meta = (tmp_path / "kept data" / "kafka" / "meta.properties").read_text()
    with EmbeddedBroker(options, silent) as second:
        assert read_all(second.bootstrap, "kept") == [b"one"]
    ids = [line for line in meta.splitlines() if "cluster.id" in line]
    assert ids
    assert ids[0] in (tmp_path / "kept data" / "kafka" / "meta.properties").read_text()


@pytest.mark.kills
def test_stop_and_kill_leave_no_process_and_no_temporary_directory() -> None:
    with EmbeddedBroker(BrokerOptions(heap_mb=512), silent) as broker:
        killed, data_dir = broker.pid, broker.data_dir
        broker.kill()
        assert gone_within(killed, 0)
        assert data_dir.exists()
        broker.start()
        stopped = broker.pid
    assert gone_within(stopped, 0)
    assert not data_dir.exists()
    broker.stop()  # twice is fine
    with pytest.raises(NotRunning):
        broker.kill()


def test_a_paused_broker_does_not_answer_and_still_stops(own_broker: EmbeddedBroker) -> None:
    for _ in range(3):  # no thread of it runs once the call returns
        own_broker.pause()
        assert not serves(own_broker.bootstrap)
        own_broker.resume()
    until(lambda: serves(own_broker.bootstrap), "the broker to answer again")
    own_broker.pause()
    pid = own_broker.pid
    own_broker.stop()
    assert gone_within(pid, 0)


HOLDER = """
import threading
from pulsar_on_kafka.embedded import BrokerOptions, EmbeddedBroker
broker = EmbeddedBroker(BrokerOptions(heap_mb=512), lambda line: None)
threads = [threading.Thread(target=broker.start)]   # a starter thread that ends must not take the broker along
for thread in threads: thread.start()
for thread in threads: thread.join()
print(broker.pid, broker.data_dir, flush=True)
threading.Event().wait(120)
"""


@pytest.mark.kills
def test_a_program_killed_with_sigkill_leaves_no_broker_behind() -> None:
    with subprocess.Popen([sys.executable, "-c", HOLDER], stdout=subprocess.PIPE, text=True) as program:
        assert program.stdout is not None
        pid, _, data_dir = program.stdout.readline().strip().partition(" ")
        assert not gone_within(int(pid), 1)
        program.kill()
    assert gone_within(int(pid), 10)
    until(lambda: not Path(data_dir).exists(), "the data directory to be removed")


FORKING_HOLDER = HOLDER.replace(
    "print(",
    """import os
if os.fork() == 0:
    threading.Event().wait(20)
    os._exit(0)
print(""",
)


@pytest.mark.kills
def test_a_forked_child_does_not_keep_the_broker_of_a_killed_program() -> None:
    with subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", FORKING_HOLDER],
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as program:
        assert program.stdout is not None
        pid = int(program.stdout.readline().split()[0])
        program.kill()
        program.wait()
        try:
            assert gone_within(pid, 10)
        finally:
            os.killpg(program.pid, signal.SIGKILL)


def test_a_busy_port_is_named_before_anything_starts() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        with pytest.raises(PortBusy, match=f"port {port} of 127.0.0.1 is in use"):
            EmbeddedBroker(BrokerOptions(port=port), silent).start()


@pytest.mark.long
def test_a_controller_s_port_that_is_taken_meanwhile_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is another one at each start; where all that are tried are taken, it is named."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        taken = listener.getsockname()[1]
        options = BrokerOptions(port=free_port(), heap_mb=512)
        with monkeypatch.context() as once:
            once.setattr(embedded_broker, "free_port", lambda: taken)
            once.setattr(embedded_broker, "_PORT_ATTEMPTS", 1)
            with pytest.raises(PortBusy, match=f"port {taken} of 127.0.0.1 is in use"):
                EmbeddedBroker(options, silent).start()
        chosen = iter([taken])
        monkeypatch.setattr(embedded_broker, "free_port", lambda: next(chosen, 0) or free_port())
        with EmbeddedBroker(options, silent) as broker:
            assert broker.bootstrap == f"127.0.0.1:{options.port}"
            assert serves(broker.bootstrap)


@pytest.mark.kills
def test_a_data_directory_has_one_broker_and_a_stale_lock_is_none(tmp_path: Path) -> None:
    options = BrokerOptions(data_dir=tmp_path, heap_mb=512)
    with EmbeddedBroker(options, silent) as first:
        with pytest.raises(DataDirBusy, match="another broker works on"):
            EmbeddedBroker(options, silent).start()
        assert serves(first.bootstrap)
        first.kill()
        assert (tmp_path / "kafka" / ".lock").exists()
        first.start()


def test_no_java_on_an_empty_path(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(NoJava, match=r"pip install .*\[embedded\]"):
        EmbeddedBroker(progress=silent).start()


@pytest.mark.long
def test_a_setting_kafka_refuses_is_shown_from_its_log(tmp_path: Path) -> None:
    """From what this start wrote: an earlier one failed by something else."""
    earlier = "failed to bind to 0.0.0.0/0.0.0.0:9092: Address already in use\nFailed to acquire lock\n"
    (tmp_path / "broker.log").write_text(earlier)
    broker = EmbeddedBroker(BrokerOptions(data_dir=tmp_path, extra={"num.io.threads": "many"}), silent)
    with pytest.raises(BrokerDidNotStart, match=r"num\.io\.threads") as refusal:
        broker.start()
    assert "\n" not in str(refusal.value)
    assert (tmp_path / "broker.log").read_text().startswith(earlier)
    assert not broker.is_running


def test_a_data_directory_that_cannot_be_made_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(EmbeddedBrokerError, match="choose another directory"):
        EmbeddedBroker(BrokerOptions(data_dir=tmp_path / "file" / "data"), silent).start()


@pytest.mark.long
def test_jars_damaged_in_the_cache_are_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The whole way: a real cache of a full size and the wrong bytes, a start that fails on it, and one that works."""
    sound = kafka_jars(progress=silent).libs

    def fetch(jars: JarSet, libs: Path, work: Path, progress: Progress) -> None:
        shutil.copytree(sound, libs, dirs_exist_ok=True)

    monkeypatch.setattr(jar_cache, "_from_maven", fetch)
    jars = kafka_jars(tmp_path, silent)
    clients = next(jars.libs.glob("kafka-clients-*.jar"))
    clients.write_bytes(b"\0" * clients.stat().st_size)
    news: list[str] = []
    with EmbeddedBroker(BrokerOptions(cache_dir=tmp_path, heap_mb=512), news.append) as broker:
        assert serves(broker.bootstrap)
    assert "the cached jars are damaged; fetching them again ..." in news


@pytest.mark.long
def test_an_unpacked_distribution_is_a_broker_and_stays_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    unpacked = tmp_path / "kafka"
    shutil.copytree(kafka_jars(progress=silent).libs, unpacked / "libs")
    there = sorted(unpacked.rglob("*"))
    monkeypatch.setenv("POK_KAFKA_HOME", str(unpacked))
    news: list[str] = []
    with EmbeddedBroker(BrokerOptions(cache_dir=tmp_path / "cache", heap_mb=512), news.append) as broker:
        assert serves(broker.bootstrap)
    assert not news
    assert sorted(unpacked.rglob("*")) == there


STANDALONE = """
import sys
from pathlib import Path
from pulsar_on_kafka.embedded import EmbeddedBrokerError, run_standalone
try:
    run_standalone(Path(sys.argv[1]), int(sys.argv[2]))
except EmbeddedBrokerError as error:
    sys.exit(str(error))
"""


@pytest.mark.parametrize("number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.long)])
def test_standalone_says_where_it_is_and_stops_cleanly(tmp_path: Path, number: signal.Signals) -> None:
    port = free_port()
    command = [sys.executable, "-c", STANDALONE, str(tmp_path), str(port)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as program:
        assert program.stdout is not None
        assert program.stdout.readline() == f"Kafka is ready: kafka://127.0.0.1:{port}\n"
        assert serves(f"127.0.0.1:{port}")
        second = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        assert second.returncode == 1
        assert re.fullmatch(f"port {port} of 127.0.0.1 is in use: .*\n", second.stderr)
        program.send_signal(number)
        assert program.wait(40) == 0
    assert is_free(port)
