"""A broker's data directory: Kafka's format, written quickly, and the question who works on it.

    <data dir>/
        kafka/meta.properties, ...                        Kafka's own log directory
        server.properties, broker.log, log4j2.xml         ours, rewritten at each start

Kafka's `StorageTool format` costs a JVM start of 1 s. Its result is a file of feature levels (`bootstrap.checkpoint`;
since Kafka 4.4 the first snapshot of `__cluster_metadata-0`), which is the same for every cluster of one Kafka version,
and `meta.properties`, three ids. So the first format on a machine is the tool's own, kept beside the jars, and the
following ones copy it.
"""

from __future__ import annotations

import base64
import errno
import fcntl
import os
import shutil
import subprocess
import tempfile
import uuid
from pathlib import Path
from typing import Final

from pulsar_on_kafka.base.deadline import Deadline, wait_until
from pulsar_on_kafka.embedded.errors import BrokerDidNotStart, DataDirBusy
from pulsar_on_kafka.embedded.jars import KafkaJars
from pulsar_on_kafka.embedded.java import Java
from pulsar_on_kafka.embedded.settings import last_lines, node_properties, parse_properties, render_properties

_TEMPLATE: Final = "formatted"
_META: Final = "meta.properties"


def ensure_formatted(log_dir: Path, jars: KafkaJars, java: Java) -> str:
    """Formats the directory unless it is formatted. Returns its cluster id."""
    cluster_id = _cluster_id(log_dir)
    if cluster_id is not None:
        return cluster_id
    log_dir.mkdir(parents=True, exist_ok=True)
    template = jars.home / _TEMPLATE
    if not template.exists():
        _make_template(template, jars, java)
    shutil.copytree(template, log_dir, dirs_exist_ok=True)
    fresh = _kafka_uuid()
    _write_whole(
        log_dir / _META,
        render_properties({"version": "1", "cluster.id": fresh, "node.id": "1", "directory.id": _kafka_uuid()}),
    )
    return fresh


def wait_unlocked(log_dir: Path, deadline: Deadline) -> None:
    """Waits until no broker holds the directory's lock; a lock file without a holder is stale and does not count.

    Raises:
        DataDirBusy: a broker still holds it at the deadline.
    """
    if not wait_until(lambda: not _is_locked(log_dir), deadline):
        raise DataDirBusy(f"another broker works on {log_dir.parent}: stop it, or choose another data directory")


def _is_locked(log_dir: Path) -> bool:
    """Whether the directory is locked. Kafka locks `.lock` as POSIX does for Java's FileLock; the test takes and
    releases it."""
    try:
        with (log_dir / ".lock").open("r+b") as lock:
            fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except OSError as error:
        if error.errno in (errno.EACCES, errno.EAGAIN):
            return True
        raise
    return False


def _cluster_id(log_dir: Path) -> str | None:
    meta = log_dir / _META
    return parse_properties(meta.read_text(encoding="utf-8")).get("cluster.id") if meta.exists() else None


def _make_template(template: Path, jars: KafkaJars, java: Java) -> None:
    with tempfile.TemporaryDirectory(prefix="pok-format-") as name:
        work = Path(name)
        properties = work / "server.properties"
        # No port of it is ever opened.
        properties.write_text(render_properties(node_properties(9092, 9093, str(work / "kafka"), {})), encoding="utf-8")
        output = work / "output.txt"
        tool = [java.executable, "-XX:TieredStopAtLevel=1", "-cp", jars.class_path, "kafka.tools.StorageTool"]
        with output.open("wb") as sink:
            done = subprocess.run(
                [*tool, "format", "-t", _kafka_uuid(), "-c", str(properties)],
                stdin=subprocess.DEVNULL,
                stdout=sink,
                stderr=subprocess.STDOUT,
                timeout=120,
                check=False,
            )
        if done.returncode != 0:
            raise BrokerDidNotStart(f"Kafka could not format a data directory: {last_lines(output, 5)}")
        (work / "kafka" / _META).unlink()
        partial = template.with_name(f"{template.name}.{os.getpid()}")
        shutil.rmtree(partial, ignore_errors=True)
        shutil.copytree(work / "kafka", partial)
        try:
            partial.rename(template)
        except OSError:  # another process made it meanwhile
            shutil.rmtree(partial)


def _write_whole(file: Path, content: str) -> None:
    """All of it or nothing: a process that dies leaves no half of it."""
    partial = file.with_name(f"{file.name}.{os.getpid()}")
    partial.write_text(content, encoding="utf-8")
    partial.replace(file)


def _kafka_uuid() -> str:
    """A random UUID as Kafka writes it: 22 characters, never a leading '-', which its tools take for an option."""
    text = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
    return _kafka_uuid() if text.startswith("-") else text
