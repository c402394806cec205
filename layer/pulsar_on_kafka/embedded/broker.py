"""A real Apache Kafka, one KRaft node in a process of its own, as a context manager.

with EmbeddedBroker() as broker:
    connect_to(broker.bootstrap)
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Final, Literal

from pulsar_on_kafka.base.deadline import Deadline, wait_until
from pulsar_on_kafka.base.shutdown import Startable
from pulsar_on_kafka.embedded import readiness
from pulsar_on_kafka.embedded.errors import (
    BrokerDidNotStart,
    DataDirBusy,
    EmbeddedBrokerError,
    NoDiskSpace,
    NotRunning,
    PortBusy,
)
from pulsar_on_kafka.embedded.jar_cache import discard_if_damaged, require_room
from pulsar_on_kafka.embedded.jars import ClassArchive, KafkaJars, kafka_jars
from pulsar_on_kafka.embedded.java import Java, find_java
from pulsar_on_kafka.embedded.security import LISTENERS, SecureListeners
from pulsar_on_kafka.embedded.settings import (
    HOST,
    Progress,
    free_port,
    hold_port,
    is_free,
    last_lines,
    node_properties,
    port_busy,
    render_properties,
    to_stderr,
)
from pulsar_on_kafka.embedded.storage import ensure_formatted, wait_unlocked

_PORT_ATTEMPTS: Final = 3
_BUSY: Final = re.compile(r"failed to bind to \S+:(\d+): Address already in use")
_ROOM_BYTES: Final = 100_000_000
_LOG_LIMIT_BYTES: Final = 20_000_000
_LOCK_PATIENCE_S: Final = 3.0  # a broker whose program was just killed needs a moment to be gone
_ASK_TIMEOUT_S: Final = 1.0
_PAUSE_PATIENCE_S: Final = 30.0
_ENDED_BY_SIGTERM: Final = 128 + signal.SIGTERM  # the JVM's status after an orderly end


@dataclass(frozen=True, slots=True)
class BrokerOptions:
    """Options of an embedded broker.

    Attributes:
        data_dir: the directory of its data, which stays; None for a temporary directory that is deleted with the
            broker.
        port: of the client listener on 127.0.0.1; 0 for a free one. It stays the same over restarts.
        heap_mb: the JVM's largest heap.
        extra: Kafka server properties that take precedence over the embedded broker's own.
        log_file: the file of the broker's log; None for `broker.log` in the data directory.
        log_level: log4j's level of that log.
        cache_dir: the directory of the jars; None for the user's cache.
        start_timeout_s, stop_timeout_s: time-outs of a start, and of a stop before it becomes a kill. A start takes 2 s
            on two quiet cores; the first one took over 60 s on two with 25 busy processes. A process that ends is
            reported at once.
        security: further listeners with TLS and SASL, and ACLs; None for the plain listener alone.
    """

    data_dir: Path | None = None
    port: int = 0
    heap_mb: int = 1024
    extra: Mapping[str, str] = field(default_factory=dict)
    log_file: Path | None = None
    log_level: str = "WARN"
    cache_dir: Path | None = None
    start_timeout_s: float = 300.0
    stop_timeout_s: float = 30.0
    security: SecureListeners | None = None


class EmbeddedBroker(Startable):
    """One Kafka node. For use from one thread. Started by `start` or `with`; a constructor touches nothing.

    The JVM ends with this program, however the program ends (see `lifeline`).
    """

    def __init__(self, options: BrokerOptions | None = None, progress: Progress = to_stderr) -> None:
        self._options = options or BrokerOptions()
        self._progress = progress
        self._port = self._options.port
        self._secure_ports: dict[str, int] = {}
        self._temporary: Path | None = None
        self._process: _Process | None = None
        self._log_begins = 0
        """The beginning of this start's part of the log, in bytes: the file may contain earlier ones."""
        self._held: socket.socket | None = None
        """The port, while it is killed and not started again, too."""

    @property
    def bootstrap(self) -> str:
        """`host:port`, the same from the first start on.

        Raises:
            NotRunning: before the first start of a broker whose port is chosen at the start.
        """
        if not self._port:
            raise NotRunning("the embedded broker has no address before its first start")
        return f"{HOST}:{self._port}"

    def bootstrap_of(self, listener: Literal["TLS", "SASL"]) -> str:
        """`host:port` of one of the listeners of `BrokerOptions.security`, the same from the first start on.

        Raises:
            NotRunning: before the first start, or without `security`.
        """
        port = self._secure_ports.get(listener)
        if port is None:
            raise NotRunning(f"the embedded broker has no {listener} listener (BrokerOptions.security), or never ran")
        return f"{HOST}:{port}"

    @property
    def can_restart(self) -> bool:
        """Whether `kill`, `pause` and `restart` work: they do here, not with an external cluster."""
        return True

    @property
    def pid(self) -> int:
        """The JVM's process id. Raises `NotRunning`."""
        return self._running().broker_pid

    @property
    def is_running(self) -> bool:
        """Whether the JVM lives; a paused one does."""
        return self._process is not None and self._process.alive()

    @property
    def data_dir(self) -> Path:
        """The directory of the data. Raises `NotRunning` for a temporary directory that does not exist yet, or any
        more."""
        found = self._options.data_dir or self._temporary
        if found is None:
            raise NotRunning("the embedded broker has no temporary directory before its start and after its stop")
        return found.absolute()

    @property
    def log_file(self) -> Path:
        return self._options.log_file or self.data_dir / "broker.log"

    def start(self) -> None:
        """Start and wait until the broker serves. Does nothing when it runs already.

        Raises:
            NoJava, JavaTooOld, NoDownloader, NoDiskSpace, DownloadFailed, PortBusy, DataDirBusy, BrokerDidNotStart:
                one line each on what to do; nothing stays behind.
        """
        if self.is_running:
            return
        self._forget_process()
        try:
            self._start_with_sound_jars()
        except OSError as error:
            self.stop()
            raise _named(error, self._options) from error
        except BaseException:  # no broker is left behind, also when it is interrupted
            self.stop()
            raise

    def stop(self) -> None:
        """Requests the broker to end, and kills it after `stop_timeout_s`. A second call does nothing; `start` works
        afterwards.

        A temporary data directory is removed. A broker that has one is killed at once: an orderly stop would flush each
        partition to the disk first, which takes a minute where there are thousands, and they are never read again.
        """
        if self._temporary is not None and self._process is not None and not self._process.leaves_archive:
            self._process.kill()
        self._end_process()
        self._let_port_go()
        if self._temporary is not None:
            shutil.rmtree(self._temporary, ignore_errors=True)
            self._temporary = None

    def kill(self) -> None:
        """End the broker as a power cut does for a process (SIGKILL). The data stay; `start` brings it back.

        Raises `NotRunning`.
        """
        self._running().kill()
        self._forget_process()

    def pause(self) -> None:
        """Freezes the broker (SIGSTOP): its connections stay open without replies, from when this returns.

        Raises:
            NotRunning: it is not running, or ended instead.
            EmbeddedBrokerError: it still ran 30 s later.
        """
        process = self._running()
        process.signal(signal.SIGSTOP)
        # The signal is only a request: a thread continues until its core handles it (on two busy ones, for up to half a
        # second).
        if not wait_until(lambda: process.stands_still() or not process.alive(), Deadline.after(_PAUSE_PATIENCE_S)):
            raise EmbeddedBrokerError(f"the embedded broker still ran {_PAUSE_PATIENCE_S:.0f} s after it was paused")
        self._running()

    def resume(self) -> None:
        """Let a paused broker go on; one that is not paused does so anyway. Raises `NotRunning`."""
        self._running().signal(signal.SIGCONT)

    def restart(self) -> None:
        """Stop in order and start on the same port and data. A broker that was killed is only started."""
        self._end_process()
        self.start()

    def _start_with_sound_jars(self) -> None:
        java = find_java()
        jars = kafka_jars(self._options.cache_dir, self._progress)
        try:
            self._start_on_some_port(java, jars)
        except BrokerDidNotStart:
            # A start reads only the sizes of the jars; when it fails every byte is worth reading.
            if not discard_if_damaged(jars.home):
                raise
            self._progress("the cached jars are damaged; fetching them again ...")
            self._start_on_some_port(java, kafka_jars(self._options.cache_dir, self._progress))

    def _start_on_some_port(self, java: Java, jars: KafkaJars) -> None:
        for attempt in range(1, _PORT_ATTEMPTS + 1):
            port = self._port or free_port()
            self._let_port_go()
            self._held = hold_port(port)
            try:
                self._start_once(java, jars, port)
            except PortBusy:  # that one, or the controller's, was taken between our look and the broker's bind
                if attempt == _PORT_ATTEMPTS or (self._port and not is_free(port)):
                    raise
            else:
                self._port = port
                return

    def _let_port_go(self) -> None:
        if self._held is not None:
            self._held.close()
            self._held = None

    def _start_once(self, java: Java, jars: KafkaJars, port: int) -> None:
        if self._options.data_dir is None and self._temporary is None:
            self._temporary = Path(tempfile.mkdtemp(prefix="pok-broker-"))
        if "," in str(self.data_dir):
            raise EmbeddedBrokerError(
                f"{self.data_dir}: Kafka takes a comma for the end of a directory's name; choose another"
            )
        self.data_dir.mkdir(parents=True, exist_ok=True)
        require_room(self.data_dir, _ROOM_BYTES, "a broker", "choose another data directory")
        log_dir = self.data_dir / "kafka"
        wait_unlocked(log_dir, Deadline.after(_LOCK_PATIENCE_S))
        cluster_id = ensure_formatted(log_dir, jars, java)
        archive = ClassArchive.of(jars, java)
        command = self._command(java, jars, archive, self._write_configuration(port, log_dir, jars))
        self._process = _Process(command, self._open_log(), self._temporary, archive)
        self._await_ready(port, cluster_id)

    def _write_configuration(self, port: int, log_dir: Path, jars: KafkaJars) -> Path:
        # The controller serves only this broker, so its port may change from start to start.
        properties = node_properties(port, free_port(), str(log_dir), self._options.extra)
        if self._options.security is not None:
            self._secure_ports = self._secure_ports or {name: free_port() for name in LISTENERS}
            properties = self._options.security.added_to(properties, HOST, self._secure_ports)
        file = self.data_dir / "server.properties"
        file.touch(mode=0o600)  # it may hold the passwords of `security`
        file.write_text(render_properties(properties), encoding="utf-8")
        logging, _ = jars.log_by
        text = resources.files("pulsar_on_kafka.embedded").joinpath(logging).read_text(encoding="utf-8")
        (self.data_dir / logging).write_text(text, encoding="utf-8")
        return file

    def _command(self, java: Java, jars: KafkaJars, archive: ClassArchive, properties: Path) -> list[str]:
        logging, option = jars.log_by
        # Measured on 2 quiet cores, to the first answer: 1.9 s plain, 1.1 s with a class archive, 0.8 s with only the
        # first compiler (-XX:TieredStopAtLevel=1), which would cost throughput for as long as the broker lives.
        return [
            java.executable,
            f"-Xmx{self._options.heap_mb}m",
            "-Xshare:auto",
            archive.jvm_option(),
            "-Xlog:cds=off",
            "-Xlog:cds+dynamic=off",
            "-Djava.awt.headless=true",
            f"-Dpok.log.level={self._options.log_level}",
            f"{option}{self.data_dir / logging}",
            "-cp",
            jars.class_path,
            "kafka.Kafka",
            str(properties),
        ]

    def _open_log(self) -> Path:
        log = self.log_file
        log.parent.mkdir(parents=True, exist_ok=True)
        if log.exists() and log.stat().st_size > _LOG_LIMIT_BYTES:
            log.unlink()
        self._log_begins = log.stat().st_size if log.exists() else 0
        return log

    def _await_ready(self, port: int, cluster_id: str) -> None:
        process = self._running()
        deadline = Deadline.after(self._options.start_timeout_s)

        def answers() -> bool:
            answer = readiness.query_cluster(HOST, port, _ASK_TIMEOUT_S)
            return answer is not None and answer.brokers > 0 and answer.cluster_id == cluster_id

        if not wait_until(lambda: not process.alive() or answers(), deadline):
            raise BrokerDidNotStart(
                f"no answer from the broker in {self._options.start_timeout_s:.0f} s; its log ends: {self._log_end(5)}"
            )
        if not process.alive():
            self._forget_process()
            raise self._why_it_ended(port)

    def _why_it_ended(self, port: int) -> EmbeddedBrokerError:
        end = self._log_end(60)
        busy = _BUSY.findall(end)
        if busy or not is_free(port):
            return port_busy(int(busy[-1]) if busy else port)
        if "Failed to acquire lock" in end:
            return DataDirBusy(f"another broker works on {self.data_dir}: stop it, or choose another data directory")
        if "No space left on device" in end:
            return NoDiskSpace(f"the disk of {self.data_dir} is full: free some, or choose another data directory")
        return BrokerDidNotStart(f"the broker ended while starting; its log ends: {self._log_end(5)}")

    def _log_end(self, lines: int) -> str:
        return last_lines(self.log_file, lines, self._log_begins)

    def _running(self) -> _Process:
        if self._process is None or not self._process.alive():
            raise NotRunning("the embedded broker is not running")
        return self._process

    def _end_process(self) -> None:
        if self._process is not None and self._process.alive():
            self._process.signal(signal.SIGCONT)  # a paused one would not receive the next
            self._process.signal(signal.SIGTERM)
            if not self._process.wait(Deadline.after(self._options.stop_timeout_s)):
                self._process.kill()
        self._forget_process()

    def _forget_process(self) -> None:
        if self._process is not None:
            self._process.close()
            self._process = None


class _Process:
    """The lifeline and, through it, the JVM."""

    def __init__(self, command: list[str], log: Path, temporary: Path | None, archive: ClassArchive) -> None:
        self._owner = os.getpid()
        self._archive = archive
        script = Path(__file__).with_name("lifeline.py")
        lifeline = [sys.executable, "-I", "-S", str(script), str(os.getpid()), str(temporary or "")]
        with log.open("ab") as sink:
            # A session of its own: Ctrl-C in the terminal is for the program, which then stops the broker in order.
            self._lifeline = subprocess.Popen(
                [*lifeline, *command],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=sink,
                start_new_session=True,
            )
        assert self._lifeline.stdout is not None  # noqa: S101 - the pipe was requested
        first_line = self._lifeline.stdout.readline()
        self.broker_pid = int(first_line or 0)

    def alive(self) -> bool:
        """A forked child of the program sees none: the broker is its parent's."""
        return os.getpid() == self._owner and self._lifeline.poll() is None

    @property
    def leaves_archive(self) -> bool:
        """Whether it writes the class archive of later ones, when it ends in order."""
        return self._archive.is_missing

    def signal(self, number: signal.Signals) -> None:
        if self.broker_pid and self.alive():
            try:
                os.kill(self.broker_pid, number)
            except ProcessLookupError:
                return

    def stands_still(self) -> bool:
        """Whether every thread of the JVM is stopped. Without /proc, assumed at once."""
        threads = Path(f"/proc/{self.broker_pid}/task")
        try:
            # The state is the first word behind the name, which is in parentheses and may hold some itself.
            return all((each / "stat").read_text().rpartition(") ")[2][:1] == "T" for each in threads.iterdir())
        except OSError:  # a thread ended while we looked, or there is no /proc
            return sys.platform != "linux"

    def kill(self) -> None:
        """SIGKILL the JVM and wait for its end. The pipe stays open till then: its end means that the program is gone,
        and the lifeline would clear the data away."""
        self.signal(signal.SIGKILL)
        self._lifeline.wait()

    def wait(self, deadline: Deadline) -> bool:
        try:
            self._lifeline.wait(deadline.remaining_s())
        except subprocess.TimeoutExpired:
            return False
        return True

    def close(self) -> None:
        """End what still lives, by closing the pipe it watches; keep the class archive if the JVM left one."""
        if os.getpid() != self._owner:
            return
        for pipe in (self._lifeline.stdin, self._lifeline.stdout):
            if pipe is not None:
                pipe.close()
        self._lifeline.wait()
        self._archive.settle(ended_in_order=self._lifeline.returncode in (0, _ENDED_BY_SIGTERM))


def _named(error: OSError, options: BrokerOptions) -> EmbeddedBrokerError:
    where = options.data_dir or tempfile.gettempdir()
    return EmbeddedBrokerError(
        f"the broker's data cannot be kept in {where} ({error.strerror}): choose another directory"
    )
