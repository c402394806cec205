"""The jar cache, with small jars and downloaders that misbehave."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from pulsar_on_kafka.embedded import jars as jars_module
from pulsar_on_kafka.embedded.download import Downloader
from pulsar_on_kafka.embedded.errors import DownloadFailed, NoDiskSpace, NoDownloader
from pulsar_on_kafka.embedded.jars import FEWEST_JARS, KafkaJars, discard_if_damaged, is_complete, kafka_jars
from pulsar_on_kafka.embedded.settings import silent

NAMES = [
    "kafka_2.13-4.3.1.jar",
    "kafka-clients-4.3.1.jar",
    "kafka-tools-4.3.1.jar",
    "log4j-slf4j-impl-2.24.3.jar",
    "log4j-core-2.24.3.jar",
    *(f"other-{n}.jar" for n in range(FEWEST_JARS - 5)),
]


def write_jars(libs: Path, names: Iterable[str] = NAMES) -> None:
    for name in names:
        with zipfile.ZipFile(libs / name, "w") as jar:
            jar.writestr("content", name * 50)


class Registry:
    """A downloader that counts, and does to the jars what it is told to."""

    def __init__(self, spoil: Callable[[Path], None] = lambda libs: None) -> None:
        self.fetches = 0
        self.spoil = spoil

    def fetch(self, libs: Path, work: Path) -> None:
        self.fetches += 1
        write_jars(libs)
        self.spoil(libs)

    def __call__(self) -> list[Downloader]:
        return [Downloader("a fake", self.fetch)]


def get(cache: Path, registry: Callable[[], Iterable[Downloader]]) -> KafkaJars:
    return kafka_jars(cache, silent, registry)


def truncate(jar: Path) -> None:
    jar.write_bytes(jar.read_bytes()[:-30])


def test_a_second_call_fetches_nothing(tmp_path: Path) -> None:
    registry = Registry()
    first, second = get(tmp_path, registry), get(tmp_path, registry)
    assert registry.fetches == 1
    assert first == second
    assert len(second.class_path.split(":")) == FEWEST_JARS


def test_a_missing_or_short_jar_is_fetched_again(tmp_path: Path) -> None:
    registry = Registry()
    libs = get(tmp_path, registry).libs
    truncate(libs / NAMES[0])
    assert is_complete(get(tmp_path, registry))
    (libs / NAMES[5]).unlink()
    assert is_complete(get(tmp_path, registry))
    assert registry.fetches == 3


@pytest.mark.parametrize("manifest", ["", "[]", '{"kafka_2.13-4.3.1.jar": 7', "null"])
def test_a_broken_manifest_is_a_broken_cache(tmp_path: Path, manifest: str) -> None:
    registry = Registry()
    (get(tmp_path, registry).home / "manifest.json").write_text(manifest)
    assert is_complete(get(tmp_path, registry))
    assert registry.fetches == 2


def test_a_jar_damaged_in_its_full_size_is_found_by_reading_it(tmp_path: Path) -> None:
    registry = Registry()
    jars = get(tmp_path, registry)
    assert not discard_if_damaged(jars)
    jar = jars.libs / NAMES[1]
    content = bytearray(jar.read_bytes())
    content[60] ^= 0xFF
    jar.write_bytes(content)
    assert is_complete(jars)  # the sizes are right
    assert discard_if_damaged(jars)
    assert not is_complete(jars)
    get(tmp_path, registry)
    assert registry.fetches == 2


def test_a_half_done_download_of_a_dead_process_is_swept_away(tmp_path: Path) -> None:
    (tmp_path / "kafka-4.3.1-with-tools.partial-123" / "result" / "libs").mkdir(parents=True)
    get(tmp_path, Registry())
    assert not list(tmp_path.glob("*.partial-*"))


@pytest.mark.parametrize(
    "spoil",
    [
        lambda libs: truncate(libs / NAMES[0]),
        lambda libs: (libs / NAMES[0]).unlink(),
        lambda libs: (libs / NAMES[-1]).unlink(),
    ],
    ids=["truncated", "no kafka", "too few"],
)
def test_a_download_that_is_not_whole_never_becomes_the_cache(tmp_path: Path, spoil: Callable[[Path], None]) -> None:
    with pytest.raises(DownloadFailed, match="broken set of jars"):
        get(tmp_path, Registry(spoil))
    assert [entry.name for entry in tmp_path.iterdir()] == ["kafka-4.3.1-with-tools.lock"]


def test_the_second_downloader_is_tried_when_the_first_fails(tmp_path: Path) -> None:
    def refuse(libs: Path, work: Path) -> None:
        raise DownloadFailed("first: no route to host")

    good = Registry()
    jars = get(tmp_path, lambda: [Downloader("first", refuse), *good()])
    assert is_complete(jars)
    with pytest.raises(DownloadFailed, match="no route to host"):
        get(tmp_path / "other", lambda: [Downloader("first", refuse)])


def test_nothing_to_fetch_with_says_what_to_install(tmp_path: Path) -> None:
    with pytest.raises(NoDownloader, match=r"pip install .*\[embedded\]"):
        get(tmp_path, list)


def test_no_disk_is_said_before_the_download(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jars_module, "_ROOM_BYTES", 1 << 62)
    registry = Registry()
    with pytest.raises(NoDiskSpace, match="MB free"):
        get(tmp_path, registry)
    assert registry.fetches == 0


FETCHER = """
import sys, threading, zipfile
from pathlib import Path
from pulsar_on_kafka.embedded.download import Downloader
from pulsar_on_kafka.embedded.jars import is_complete, kafka_jars

names, cache = sys.argv[2:], Path(sys.argv[1])

def fetch(libs, work):
    for name in names:
        threading.Event().wait(0.01)
        with zipfile.ZipFile(libs / name, "w") as jar:
            jar.writestr("content", name)
    print("fetched")

assert is_complete(kafka_jars(cache, lambda line: None, lambda: [Downloader("a slow one", fetch)]))
"""


def test_two_processes_at_once_fetch_once(tmp_path: Path) -> None:
    command = [sys.executable, "-c", FETCHER, str(tmp_path), *NAMES]
    processes = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    outputs = [process.communicate(timeout=60)[0] for process in processes]
    assert [process.returncode for process in processes] == [0, 0, 0]
    assert "".join(outputs) == "fetched\n"
